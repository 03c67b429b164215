"""What `check_settings` tells of settings that can be built."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.provider.settings import check_settings
from aiocosid.testing import ManualClock

NOW_MS = 1_760_000_000_000  # 2025-10-09
OWN = {"timestamp_bits": 41, "machine_bits": 10, "sequence_bits": 12, "unit": "ms"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own environment."""
    monkeypatch.delenv("HOSTNAME", raising=False)


def warnings(generators: dict[str, Any], **others: Any) -> dict[str, str]:
    """Return the warnings by place."""
    settings = {"store": "sqlite:///ids.db", "generators": generators, **others}
    found = check_settings(settings, clock=ManualClock(wall_ms=NOW_MS)).warnings
    return {each.key: each.reason for each in found}


def test_what_is_as_it_should_be_is_not_warned_of() -> None:
    generators = {
        "order": {"kind": "chain"},
        "bill": {"kind": "segment", "converter": "radix62"},
        "event": {"kind": "snowflake", "converter": "radix62"},
        "web": {"kind": "snowflake", "layout": "javascript-safe-ms", "namespace": "web"},
        "raw": {"kind": "snowflake", "limit": "int64"},
        "token": {"kind": "cosid_text", "namespace": "token"},
        "daily": {
            "kind": "grouped",
            "group_by": "day",
            "zone": "UTC",
            "converter": {"type": "to-string", "group_prefix": {}, "prefix": "B-"},
        },
    }
    assert warnings(generators) == {}


def test_layouts_that_end_or_never_do() -> None:
    """Unit, epoch and bits that do not fit each other show in the end of the layout."""
    ends_soon = NOW_MS - 2**41 + 364 * 86_400_000
    generators = {
        "soon": {"layout": {**OWN, "epoch": ends_soon + 2**41 - 2**40, "timestamp_bits": 40}},
        "later": {"layout": {**OWN, "epoch": ends_soon + 2**41 - 2**40 + 2 * 86_400_000}},
        "never": {"layout": {**OWN, "unit": "s", "epoch": 1_577_203_200_000}},
        "zero": {"layout": {**OWN, "epoch": 0}},
    }
    generators["later"]["layout"]["timestamp_bits"] = 40
    for each in generators.values():
        each.update(kind="snowflake", converter="radix62")  # type: ignore[call-overload]
    found = warnings(generators)
    assert set(found) == {
        "generators.soon.layout",
        "generators.never.layout",
        "generators.zero.layout.epoch",
    }
    assert "ends within a year, at 2026-" in found["generators.soon.layout"]
    assert "41 bits count ticks of a second" in found["generators.never.layout"]
    assert "replaces an epoch of 0 with its own" in found["generators.zero.layout.epoch"]


def test_numbers_and_texts_that_do_not_reach() -> None:
    found = warnings(
        {
            "numbers": {"kind": "snowflake"},
            "short": {"kind": "chain", "converter": {"type": "radix62", "char_size": 6}},
            "fits": {
                "kind": "chain",
                "converter": {"type": "radix62", "char_size": 6},
                "max_id": 62**6 - 1,
            },
            "limited": {"kind": "chain", "limit": "int32", "converter": {"char_size": 6}},
        }
    )
    assert set(found) == {"generators.numbers", "generators.short.converter"}
    assert "which JavaScript rounds" in found["generators.numbers"]
    assert "a max_id" in found["generators.short.converter"]


def test_grouped_texts_without_their_group() -> None:
    """Numbers begin anew in each period, and so do texts of them."""
    daily = {"kind": "grouped", "group_by": "day", "zone": "UTC"}
    found = warnings(
        {
            "bare": {**daily, "converter": "radix62"},
            "fixed": {**daily, "converter": {"prefix": "B-", "suffix": "-x"}},
            "numbers": {**daily, "limit": "int64"},
            "grouped": {**daily, "converter": {"group_prefix": {}}},
        }
    )
    assert set(found) == {"generators.bare.converter", "generators.fixed.converter"}
    assert "group_prefix = {}" in found["generators.bare.converter"]


def test_stores_that_others_do_not_know() -> None:
    """Memory, and machine ids of one namespace from two stores."""
    snowflake = {"kind": "snowflake", "converter": "radix62"}
    found = warnings(
        {
            "a": snowflake,
            "b": {**snowflake, "store": "other"},
            "c": {"kind": "chain", "store": "memory://"},
            "d": {**snowflake, "store": "other", "namespace": "own"},
        },
        stores={"other": "sqlite:///other.db"},
    )
    assert set(found) == {"generators.b", "generators.c"}
    assert "a store other than generators.a" in found["generators.b"]
    assert "one process only" in found["generators.c"]


def test_a_pod_is_not_where_the_file_is_checked() -> None:
    """StatefulSet: no pod's name is needed to look at the settings."""
    generators = {"a": {"kind": "snowflake", "converter": "radix62"}}
    assert warnings(generators, machine={"source": "stateful-set"}) == {}


def test_quotas_count_in_each_process() -> None:
    token = {"name": "shop", "digest": f"sha256:{'0' * 64}", "ids_per_second": 5}
    quiet = {**token, "ids_per_second": None, "ids_per_request": 5}
    server = {"tokens": [quiet, token]}
    assert warnings({}, server={**server, "workers": 1}) == {}
    assert warnings({}, server={**server, "workers": 4}) == {
        "server.tokens.1.ids_per_second": "counts in each process: 4 processes each allow that many"
    }
