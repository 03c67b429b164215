"""Shardings from settings, under ShardingSphere's names for CosId's algorithms.  No I/O."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import InvalidArgumentError
from ..errors.base import one_of
from ._interval_timeline import IntervalTimeline, check_unit
from ._keys import DATETIME_PATTERN, DateTextReader, SnowflakeTimeKey, StandardTimeKey
from ._range import ShardRange
from ._sharding import ModCycle, check_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..abc import IdConverter
    from ..snowflake import SnowflakeLayout
    from ._keys import TimeKey
    from ._sharding import Sharding

__all__ = ("SHARDING_PROPERTIES", "sharding_algorithm")

_INTERVAL: Final = {
    "logic-name-prefix": True,
    "datetime-lower": True,
    "datetime-upper": True,
    "sharding-suffix-pattern": True,
    "datetime-interval-unit": True,
    "datetime-interval-amount": False,
    "id-name": False,
}

SHARDING_PROPERTIES: Final[Mapping[str, Mapping[str, bool]]] = {
    "COSID_MOD": {"mod": True, "logic-name-prefix": True},
    "COSID_INTERVAL": {**_INTERVAL, "zone-id": False, "ts-unit": False, "datetime-pattern": False},
    "COSID_INTERVAL_DATE": {**_INTERVAL, "zone-id": False},
    "COSID_INTERVAL_LDT": _INTERVAL,
    "COSID_INTERVAL_STRING": {**_INTERVAL, "datetime-pattern": False},
    "COSID_INTERVAL_TS": {**_INTERVAL, "zone-id": True},
    "COSID_INTERVAL_TS_SECOND": {**_INTERVAL, "zone-id": True},
    "COSID_INTERVAL_SNOWFLAKE": {**_INTERVAL, "zone-id": True},
}
"""The types of `sharding_algorithm`, each with its properties and whether they are required."""

NAMES: Final = {
    "divisor": "mod",
    "logic_name_prefix": "logic-name-prefix",
    "effective": "datetime-lower..datetime-upper",
    "unit": "datetime-interval-unit",
    "amount": "datetime-interval-amount",
    "suffix_pattern": "sharding-suffix-pattern",
    "zone": "zone-id",
    "timestamp_unit": "ts-unit",
    "pattern": "datetime-pattern",
}
"""The names of a sharding's arguments in settings."""

_INTEGER: Final = re.compile("[0-9]{1,30}")  # int() raises another error above 4300 digits

TIMESTAMP_UNITS: Final[dict[str, Literal["ms", "s"]]] = {"SECOND": "s", "MILLISECOND": "ms"}


def sharding_algorithm(
    kind: str,
    properties: Mapping[str, object],
    *,
    layout: SnowflakeLayout | None = None,
    converter: IdConverter | None = None,
) -> Sharding[Any]:
    """Return the sharding that ShardingSphere's properties describe.

    Both ends belong to the interval, as in ShardingSphere.  The older types of CosId's own module
    are COSID_INTERVAL with their own properties: "COSID_INTERVAL_DATE", "_LDT", "_STRING", "_TS"
    and "_TS_SECOND".

    Args:
        kind: "COSID_MOD", "COSID_INTERVAL", "COSID_INTERVAL_SNOWFLAKE", or an older one.
        properties: the values by ShardingSphere's names, as text or plain values: ``mod``,
            ``logic-name-prefix``, ``datetime-lower`` and ``datetime-upper`` as "yyyy-MM-dd
            HH:mm:ss", ``sharding-suffix-pattern``, ``datetime-interval-unit`` as "MONTHS",
            ``datetime-interval-amount`` (1), ``zone-id`` (none; Snowflakes and timestamps need
            one), ``ts-unit`` ("MILLISECOND" or "SECOND"), ``datetime-pattern``, ``id-name`` (not
            used: pass that generator's ``layout`` and ``converter``).
        layout: the layout of the ids, for COSID_INTERVAL_SNOWFLAKE.
        converter: reads ids that are text, for COSID_INTERVAL_SNOWFLAKE.

    Raises:
        InvalidArgumentError: the type or a property is unknown, a property is missing, or a value
            has the wrong type; the error names the property.
    """
    if kind not in SHARDING_PROPERTIES:
        raise InvalidArgumentError("type", kind, one_of(SHARDING_PROPERTIES, kind))
    _check_names(kind, properties)
    if layout is None and kind == "COSID_INTERVAL_SNOWFLAKE":
        raise InvalidArgumentError("layout", layout, f"is required: {kind} reads ids")
    try:
        return _built(kind, dict(properties), layout, converter)
    except InvalidArgumentError as error:
        if error.argument not in NAMES:
            raise
        raise InvalidArgumentError(NAMES[error.argument], error.value, error.rule) from None


def _check_names(kind: str, properties: Mapping[str, object]) -> None:
    known = SHARDING_PROPERTIES[kind]
    for name in properties:
        if name not in known:
            raise InvalidArgumentError(f"a property of {kind}", name, one_of(known, name))
    for name, needed in known.items():
        if needed and properties.get(name) is None:
            raise InvalidArgumentError(name, None, f"is required for {kind}")


def _built(
    kind: str,
    given: dict[str, Any],
    layout: SnowflakeLayout | None,
    converter: IdConverter | None,
) -> Sharding[Any]:
    """Return the sharding, which itself checks the values."""
    if kind == "COSID_MOD":
        return ModCycle(_integer(given["mod"]), given["logic-name-prefix"])
    key: TimeKey[Any]
    if layout is not None and kind == "COSID_INTERVAL_SNOWFLAKE":
        key = SnowflakeTimeKey(layout, given["zone-id"], converter)
    else:
        stamp = given.get("ts-unit", "SECOND" if kind.endswith("_SECOND") else "MILLISECOND")
        if str(stamp).upper() not in TIMESTAMP_UNITS:
            raise InvalidArgumentError("ts-unit", stamp, one_of(TIMESTAMP_UNITS, stamp))
        key = StandardTimeKey(
            given.get("zone-id"),
            TIMESTAMP_UNITS[stamp.upper()],
            given.get("datetime-pattern", DATETIME_PATTERN),
        )
    check_kind("id-name", given.get("id-name", ""), str, "the name of a generator")
    unit = given["datetime-interval-unit"]
    return IntervalTimeline(
        ShardRange.closed(_time("datetime-lower", given), _time("datetime-upper", given)),
        check_unit("unit", unit.lower() if isinstance(unit, str) else unit),
        _integer(given.get("datetime-interval-amount", 1)),
        logic_name_prefix=given["logic-name-prefix"],
        suffix_pattern=given["sharding-suffix-pattern"],
        key=key,
    )


def _integer(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return the number in a text; other values are returned unchanged and then refused."""
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value


def _time(name: str, given: Mapping[str, object]) -> datetime:
    value = given[name]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value  # TOML has dates
    if not isinstance(value, str):
        rule = f"must be a local time written as {DATETIME_PATTERN!r}"
        raise InvalidArgumentError(name, value, rule)
    return DateTextReader(DATETIME_PATTERN).read(name, value)
