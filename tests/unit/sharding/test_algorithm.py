"""Shardings from settings, by ShardingSphere's names."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.sharding import (
    IntervalTimeline,
    ModCycle,
    ShardRange,
    SnowflakeTimeKey,
    StandardTimeKey,
    sharding_algorithm,
)
from aiocosid.snowflake import COSID_MS

MOD = {"mod": "4", "logic-name-prefix": "t_mod_"}

INTERVAL = {
    "logic-name-prefix": "t_log_",
    "datetime-lower": "2021-01-01 00:00:00",
    "datetime-upper": "2021-12-31 23:59:59",
    "sharding-suffix-pattern": "yyyyMM",
    "datetime-interval-unit": "MONTHS",
}

EFFECTIVE = ShardRange.closed(
    datetime.fromisoformat("2021-01-01"), datetime.fromisoformat("2021-12-31T23:59:59")
)


def timeline(amount: int, key: Any) -> IntervalTimeline[Any]:
    return IntervalTimeline(
        EFFECTIVE, "months", amount, logic_name_prefix="t_log_", suffix_pattern="yyyyMM", key=key
    )


def test_each_type_is_built_from_its_properties() -> None:
    assert sharding_algorithm("COSID_MOD", MOD) == ModCycle(4, "t_mod_")
    assert sharding_algorithm("COSID_MOD", {**MOD, "mod": 4}) == ModCycle(4, "t_mod_")
    assert sharding_algorithm("COSID_INTERVAL", INTERVAL) == timeline(1, StandardTimeKey())
    ignoring = sharding_algorithm("COSID_INTERVAL", INTERVAL, layout=COSID_MS)
    assert ignoring == timeline(1, StandardTimeKey())
    full = {
        "datetime-lower": EFFECTIVE.lower,
        "datetime-interval-amount": "3",
        "datetime-interval-unit": "months",
        "zone-id": "Asia/Shanghai",
        "ts-unit": "second",
        "datetime-pattern": "yyyyMMdd",
    }
    key = StandardTimeKey("Asia/Shanghai", "s", "yyyyMMdd")
    assert sharding_algorithm("COSID_INTERVAL", {**INTERVAL, **full}) == timeline(3, key)
    snowflake = sharding_algorithm(
        "COSID_INTERVAL_SNOWFLAKE", {**INTERVAL, "zone-id": "UTC"}, layout=COSID_MS
    )
    assert snowflake == timeline(1, SnowflakeTimeKey(COSID_MS, "UTC"))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("MOD", {}, "type must be one of 'COSID_MOD', 'COSID_INTERVAL'.*, not 'MOD'"),
        ("COSID_MOD", {"modd": 4}, "a property of COSID_MOD must be one of 'mod',.* not 'modd'"),
        ("COSID_MOD", {"mod": None}, "mod is required"),
        ("COSID_MOD", {"mod": "0"}, "mod must be an integer from 1 to .*, not 0"),
        ("COSID_MOD", {"mod": "four"}, "mod must be .*, not 'four'"),
        ("COSID_MOD", {"mod": "9" * 5000}, "mod must be .*, not '999"),
        ("COSID_MOD", {"mod": True}, "mod must be .*, not True"),
        ("COSID_MOD", {"mod": 10**7}, "mod must be .*, not 10000000"),
        ("COSID_MOD", {"logic-name-prefix": 5}, "logic-name-prefix must be a string .*, not 5"),
        ("COSID_INTERVAL", {"mod": 4}, "a property of COSID_INTERVAL must .*, not 'mod'"),
        (
            "COSID_INTERVAL",
            {"datetime-lower": "2021-01-01"},
            "datetime-lower must .*, not '2021-01-01'",
        ),
        ("COSID_INTERVAL", {"datetime-upper": 2021}, "datetime-upper must .*, not 2021"),
        (
            "COSID_INTERVAL",
            {"datetime-upper": "2020-01-01 00:00:00"},
            "upper must be an interval that is",
        ),
        (
            "COSID_INTERVAL",
            {"datetime-interval-unit": "WEEKS"},
            "datetime-interval-unit must .*, not 'weeks'",
        ),
        ("COSID_INTERVAL", {"datetime-interval-unit": 1}, "datetime-interval-unit must .*, not 1"),
        (
            "COSID_INTERVAL",
            {"datetime-interval-amount": "0"},
            "datetime-interval-amount must .*, not 0",
        ),
        (
            "COSID_INTERVAL",
            {"sharding-suffix-pattern": "YYYYMM"},
            "sharding-suffix-pattern 'YYYYMM' cannot",
        ),
        (
            "COSID_INTERVAL",
            {"sharding-suffix-pattern": "yyyy"},
            "sharding-suffix-pattern 'yyyy' must",
        ),
        (
            "COSID_INTERVAL",
            {"sharding-suffix-pattern": 7},
            "sharding-suffix-pattern must .*, not 7",
        ),
        ("COSID_INTERVAL", {"zone-id": "Moon"}, "zone-id must be a tzinfo, 'UTC',.* not 'Moon'"),
        ("COSID_INTERVAL", {"ts-unit": "DAY"}, "ts-unit must .*, not 'DAY'"),
        ("COSID_INTERVAL", {"datetime-pattern": "HH"}, "datetime-pattern 'HH' has no year"),
        ("COSID_INTERVAL", {"datetime-pattern": 5}, "datetime-pattern must .*, not 5"),
        ("COSID_INTERVAL_SNOWFLAKE", {"zone-id": "UTC"}, "layout is required"),
        ("COSID_INTERVAL_SNOWFLAKE", {}, "zone-id is required"),
        ("COSID_INTERVAL_SNOWFLAKE", {"ts-unit": "SECOND"}, "not 'ts-unit'"),
    ],
)
def test_what_is_wrong_is_named(kind: str, changes: dict[str, Any], message: str) -> None:
    properties: dict[str, Any] = {**(MOD if "MOD" in kind else INTERVAL), **changes}
    with pytest.raises(InvalidArgumentError, match=message):
        sharding_algorithm(kind, properties)


def test_what_is_missing_is_named() -> None:
    """As ShardingSphere's page has it: these have no default."""
    snowflake = {**INTERVAL, "zone-id": "UTC"}
    for kind, given in (
        ("COSID_MOD", MOD),
        ("COSID_INTERVAL", INTERVAL),
        ("COSID_INTERVAL_SNOWFLAKE", snowflake),
    ):
        for name in given:
            rest = {each: value for each, value in given.items() if each != name}
            with pytest.raises(InvalidArgumentError) as error:
                sharding_algorithm(kind, rest, layout=COSID_MS)
            assert error.value.argument == name
            assert "is required" in str(error.value)


ZONED = {**INTERVAL, "zone-id": "Asia/Shanghai"}


@pytest.mark.parametrize(
    ("kind", "given", "key"),
    [
        ("DATE", ZONED, StandardTimeKey("Asia/Shanghai")),
        ("DATE", INTERVAL, StandardTimeKey()),
        ("LDT", INTERVAL, StandardTimeKey()),
        ("STRING", {**INTERVAL, "datetime-pattern": "yyyyMM"}, StandardTimeKey(pattern="yyyyMM")),
        ("TS", ZONED, StandardTimeKey("Asia/Shanghai", "ms")),
        ("TS_SECOND", ZONED, StandardTimeKey("Asia/Shanghai", "s")),
        ("SNOWFLAKE", ZONED, SnowflakeTimeKey(COSID_MS, "Asia/Shanghai")),
    ],
)
def test_types_of_cosids_own_module(kind: str, given: dict[str, Any], key: Any) -> None:
    """With a name of a generator, which its page gives to all of them."""
    for more in ({}, {"id-name": "snowflake"}):
        made = sharding_algorithm(f"COSID_INTERVAL_{kind}", {**given, **more}, layout=COSID_MS)
        assert made == timeline(1, key)


@pytest.mark.parametrize(
    ("kind", "given", "argument"),
    [
        ("COSID_INTERVAL_TS", INTERVAL, "zone-id"),
        ("COSID_INTERVAL_TS_SECOND", INTERVAL, "zone-id"),
        ("COSID_INTERVAL_LDT", ZONED, "a property of COSID_INTERVAL_LDT"),
        ("COSID_INTERVAL_TS", {**ZONED, "ts-unit": "SECOND"}, "a property of COSID_INTERVAL_TS"),
        ("COSID_MOD", {**MOD, "id-name": "a"}, "a property of COSID_MOD"),
        ("COSID_INTERVAL", {**INTERVAL, "id-name": 7}, "id-name"),
    ],
)
def test_what_they_refuse(kind: str, given: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        sharding_algorithm(kind, given)
    assert error.value.argument == argument
