"""Mistakes of the caller: code 2, one line that says what to give, and nothing is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aiocosid.stores.memory import MemoryStore
from tests.command import Command

SECRET_URL = "redis://user:s3cr3t@host/0?password=s3cr3t"  # noqa: S105 - it must not be shown
OWN = ("--bits", "41/10/12", "--unit", "ms", "--epoch", "0")
CHOICES = ("cosid-ms", "javascript-safe-s", "twitter", "sonyflake-v2", "cosid-radix62")

REFUSED: list[tuple[tuple[object, ...], str | tuple[str, ...]]] = [
    # A store that is none, or is named twice; a password in the wrong place.
    *((("inspect", "--store", url), "url must") for url in ("", "order", "memory://elsewhere")),
    (("inspect", "--store", "oracle://u:s3cr3t@h/db"), "url 'oracle:...' must"),
    (("bench", "--store", "nothing://", "--seconds", 0.01), "url 'nothing:...' must"),
    (
        ("next", "x", "--store", "memory:", "--config", "ids.toml"),
        "cannot be combined with --config",
    ),
    *((words, "") for words in (("inspect", SECRET_URL), (SECRET_URL,))),
    (("next", "a", "b", SECRET_URL), ""),
    # Names, numbers and formats.
    *((words, "") for words in (("next",), ("next", "order", "another"), ("next", ""))),
    (("next", "order", "--namespace", ""), "namespace"),
    (("next", "nul\0byte"), "name"),
    *((("next", "order", "-n", n), "-n") for n in (0, "ten")),
    (("next", "order", "-n", 2**63), "not 9223372036854775808"),
    (("next", "order", "--step", 0), "--step must be from 1 to 9223372036854775807, not 0"),
    *((("next", "order", "--timeout", seconds), "imeout") for seconds in (0, "nan")),
    (("doctor", "--timeout", 0), "imeout"),
    (("bench", "--seconds", "inf"), "--seconds"),
    (("next", "order", "--format", "xml"), "--format"),
    (("set-floor", "order"), "--above N or --from-table"),
    *((("set-floor", "order", "--above", above), "above") for above in (-1, 2**63)),
    (("set-floor", "", "--above", 1), "name"),
    (("snowflake", "-n", 0), "-n"),
    (("snowflake", "-n", 10_000_001), "not 10000001"),
    *((("snowflake", "--layout", name), "cosid-ms") for name in ("cosid", "cosid-radix62")),
    (("snowflake", "--namespace", ""), "namespace"),
    (("snowflake", "order"), ""),
    # Slips.
    (("docter",), ("'doctor'", "(see aiocosid --help)\n")),
    (("next", "order", "--stor", "x"), ("--store", "(see aiocosid next --help)\n")),
    (("machines", "lst"), ("'list'", "(see aiocosid machines --help)\n")),
    (("machines",), ("Missing command.", "(see aiocosid machines --help)\n")),
    # Floors after a loss, and statements for a store that has none.
    *((("init", "--after-loss", "--floor", each), "NAME=N") for each in ("order", "order=x", "=1")),
    (("init", "--floor", "order=1"), "--after-loss"),
    (("init", "--floor-from", "order=orders"), "TABLE.COLUMN"),
    (("init", "--floor-from", "order=orders.id"), "--after-loss"),
    (("init", "--sql", "--store", "redis://:s3cr3t@db"), "--dialect"),
    (("init", "--sql"), "--dialect"),
    (("init", "--sql", "--config", "ids.toml"), "--config"),
    (("init", "--dialect", "mysql"), "--dialect"),
    # What is no id.
    *((("parse", *words), "") for words in ((), ("",), ("x",), (2**63,), ("9" * 5000,))),
    *((("parse", text), "") for text in ("1_000", "٣", "20211328202301948-0-0")),
    (("parse", "20211228202301948-1024-0"), ""),
    (("parse", "20211228202301948-0-0", "--layout", "cosid-s"), ""),
    (("parse", "0Gt0", "--layout", "cosid-radix62"), ""),
    (("parse", 2**58, "--layout", "javascript-safe-ms"), ""),
    (("parse", 1, "--zone", "Nowhere/At_all"), "zone"),
    (("parse", 1, "--format", "xml"), "--format"),
    # Options of a layout that do not go together: half of one is not completed by a guess.
    (("parse", 1, "--layout", "snowflake"), CHOICES),
    (("parse", 1, *OWN[:2]), "--unit and --epoch"),
    (("parse", 1, *OWN[:4]), "--unit and --epoch"),
    (("parse", 1, *OWN[2:4]), "requires --bits"),
    (("parse", 1, *OWN, "--layout", "twitter"), "cannot be combined with --layout"),
    (("parse", 1, "--layout", "cosid-radix62", "--epoch", "0"), "cannot be combined with --bits"),
    (("parse", 1, *OWN[2:], "--bits", "41/22"), "41/5/5/12"),
    (("parse", 1, *OWN[2:], "--bits", "41/10/13"), "at most 63"),
    (("parse", 1, *OWN, "--unit", "0ms"), "10ms"),
    (("parse", 1, "--epoch", "yesterday"), "milliseconds since 1970"),
    (("parse", 1, "--epoch", "2020-01-01"), "2020-01-01T00:00:00Z"),
    (("parse", 1, "--epoch", "1577203200"), "1577203200000"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=lambda each: repr(each)[:60])
def test_it_is_refused(
    aiocosid: Command,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
    said: str | tuple[str, ...],
) -> None:
    """Nothing is printed on a guess, no file or counter is made, and no password is shown."""
    monkeypatch.setenv("AIOCOSID_STORE", "memory:")
    memory = MemoryStore.from_url()
    before = asyncio.run(memory.counters())
    refusal = aiocosid.refuses(*words)
    assert all(each in refusal for each in ((said,) if isinstance(said, str) else said)), refusal
    assert "s3cr3t" not in refusal
    assert (asyncio.run(memory.counters()), [*Path().iterdir()]) == (before, [])
