"""What is printed on a terminal of 80 columns: whole words, and no line that is longer."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiocosid.abc import Machine
from aiocosid.cli._output import write_table
from tests.command import Command

from ._doubles import ScriptedStore

FRAME = re.compile(r"[│┃┏┓┗┛┡┩┳╇┴┬├┤┼─━└┘┌┐]")
SETTINGS = """\
store = "sqlite:///ids.db"
[generators.order]
kind = "chain"
step = 10
[generators.event]
kind = "snowflake"
converter = "radix62"
[generators.invoice]
kind = "grouped"
group_by = "year"
zone = "Europe/Berlin"
pattern = "yy"
"""
ANSI = re.compile(r"\x1b\[[\d;]*m")
POD = "order-service-7d9c5b6f4-x2x9p:1"


@pytest.fixture
def narrow(aiocosid: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Run a command twice: return what it prints to a pipe, and to a terminal of 80 columns."""

    def shown(*words: object) -> tuple[str, str]:
        monkeypatch.delenv("COLUMNS", raising=False)
        wide = aiocosid(*words).out
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("NO_COLOR", "1")
        with monkeypatch.context() as patched:
            patched.setattr(sys.stdout, "isatty", lambda: True)
            return wide, ANSI.sub("", aiocosid(*words).out)

    return shown


def words_of(text: str) -> set[str]:
    return set(FRAME.sub(" ", text).split())


def check(wide: str, narrow: str) -> None:
    """No line of the table is longer than the terminal, and all words of the pipe are there."""
    tables = [line for line in narrow.splitlines() if FRAME.search(line)] or narrow.splitlines()
    assert max(map(len, tables)) <= 80
    assert words_of(wide) - words_of(narrow) == set()


@pytest.mark.parametrize(
    "words",
    [
        ("inspect",),
        ("series", "list"),
        ("parse", 266300479548424192, "--zone", "Asia/Shanghai"),
        ("check-config", "ids.toml"),
        ("groups", "check", "ids.toml", "--at", "2099-06-01"),
    ],
)
def test_tables(
    narrow: Callable[..., tuple[str, str]], aiocosid: Command, words: tuple[object, ...]
) -> None:
    """Of names as long as people's, and more columns than fit."""
    Path("ids.toml").write_text(SETTINGS, encoding="utf-8")
    assert aiocosid("init").code == 0
    aiocosid("set-floor", "customer-support-ticket", "--above", 10**12, "--create")
    aiocosid("series", "open", "invoice", "--range", "100000-199999", "--range", "300000-399999")
    wide, out = narrow(*words)
    check(re.sub(r"\w{11} \(11\)", "", wide), out)  # a Snowflake of this moment


@pytest.mark.parametrize("instance", ["10.20.30.40:1234", POD])
def test_machine_ids(
    narrow: Callable[..., tuple[str, str]], scripted: ScriptedStore, instance: str
) -> None:
    """A row is one of the table, or with a long name a block of lines."""
    found = Machine(
        namespace="shop",
        machine_id=3,
        instance_id=instance,
        last_timestamp_ms=1_700_000_000_500,
        fence_ms=1_700_000_090_500,
        stable=True,
    )
    scripted.known = [[found, found]] * 2
    wide, out = narrow("machines", "list")
    check(wide, out)
    assert ("│ instance " in out) is (instance == POD)


def test_doctor(narrow: Callable[..., tuple[str, str]], aiocosid: Command) -> None:
    """Its lines go on below their beginning."""
    assert aiocosid("init", "--disposable").code == 0
    wide, out = narrow("doctor")
    check("".join(line for line in wide.splitlines(keepends=True) if " ms" not in line), out)
    assert re.search(r"^warning  disposable   .*\n {22}\S", out, re.MULTILINE)


def test_a_column_without_words(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("", "value"), [("", "1")])
    assert "1" in capsys.readouterr().out
