"""Shardings from settings, under the names that ShardingSphere gives CosId's algorithms.  Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from .._dates import resolve_zone
from ..abc._ids import check_integer
from ..errors import InvalidArgumentError
from ._interval_timeline import IntervalTimeline
from ._keys import DATETIME_PATTERN, SnowflakeTimeKey, StandardTimeKey
from ._mod_cycle import ModCycle
from ._range import ShardRange
from ._sharding import MAX_NODES
from ._steps import check_unit
from ._text_key import DateTextReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from ..abc import IdConverter
    from ..snowflake import SnowflakeLayout
    from ._keys import TimeKey
    from ._sharding import Sharding
    from ._steps import ShardUnit

__all__ = ("SHARDING_PROPERTIES", "sharding_algorithm")

_INTERVAL: Final = {
    "logic-name-prefix": True,
    "datetime-lower": True,
    "datetime-upper": True,
    "sharding-suffix-pattern": True,
    "datetime-interval-unit": True,
    "datetime-interval-amount": False,
}

SHARDING_PROPERTIES: Final[Mapping[str, Mapping[str, bool]]] = {
    "COSID_MOD": {"mod": True, "logic-name-prefix": True},
    "COSID_INTERVAL": {**_INTERVAL, "zone-id": False, "ts-unit": False, "datetime-pattern": False},
    "COSID_INTERVAL_SNOWFLAKE": {**_INTERVAL, "zone-id": True},
}
"""The types of `sharding_algorithm`, each with its properties and whether one has to be given."""

TIMESTAMP_UNITS: Final = {"SECOND": "s", "MILLISECOND": "ms"}


def sharding_algorithm(
    kind: str,
    properties: Mapping[str, object],
    *,
    layout: SnowflakeLayout | None = None,
    converter: IdConverter | None = None,
) -> Sharding[Any]:
    """Return the sharding that ShardingSphere's properties describe.

    Both ends of an interval belong to it, as there.

    Args:
        kind: "COSID_MOD", "COSID_INTERVAL" or "COSID_INTERVAL_SNOWFLAKE".
        properties: by ShardingSphere's names, text or plain values: ``mod``,
            ``logic-name-prefix``, ``datetime-lower`` and ``datetime-upper`` as
            "yyyy-MM-dd HH:mm:ss", ``sharding-suffix-pattern``, ``datetime-interval-unit`` as
            "MONTHS", ``datetime-interval-amount`` (1), ``zone-id`` (none; a Snowflake needs one),
            ``ts-unit`` ("MILLISECOND" or "SECOND"), ``datetime-pattern``.
        layout: of the ids, for COSID_INTERVAL_SNOWFLAKE.
        converter: reads ids that are text, for COSID_INTERVAL_SNOWFLAKE.

    Raises:
        InvalidArgumentError: the type or a property is unknown, a property is missing, or a value
            is not of its kind; the error has the property's name.
    """
    if kind not in SHARDING_PROPERTIES:
        expected = f"one of {', '.join(SHARDING_PROPERTIES)}"
        raise InvalidArgumentError("type", kind, expected=expected)
    _check_names(kind, properties)
    if kind == "COSID_MOD":
        divisor = _integer("mod", properties["mod"])
        return ModCycle(divisor, _text("logic-name-prefix", properties))
    if kind == "COSID_INTERVAL":
        return _timeline(properties, _standard_key(properties))
    if layout is None:
        raise InvalidArgumentError("layout", layout, expected=f"given, for {kind} reads ids")
    zone = _zone(properties)
    return _timeline(properties, SnowflakeTimeKey(layout, zone, converter))


def _check_names(kind: str, properties: Mapping[str, object]) -> None:
    known = SHARDING_PROPERTIES[kind]
    for name in properties:
        if name not in known:
            expected = f"one of {', '.join(known)}"
            raise InvalidArgumentError(f"a property of {kind}", name, expected=expected)
    for name, needed in known.items():
        if needed and properties.get(name) is None:
            raise InvalidArgumentError(name, None, expected=f"given, for {kind} needs it")


def _timeline(properties: Mapping[str, object], key: TimeKey[Any]) -> IntervalTimeline[Any]:
    return IntervalTimeline(
        ShardRange.closed(_time("datetime-lower", properties), _time("datetime-upper", properties)),
        _unit("datetime-interval-unit", properties),
        _integer("datetime-interval-amount", properties.get("datetime-interval-amount", 1)),
        logic_name_prefix=_text("logic-name-prefix", properties),
        suffix_pattern=_text("sharding-suffix-pattern", properties),
        key=key,
    )


def _standard_key(properties: Mapping[str, object]) -> StandardTimeKey:
    unit = properties.get("ts-unit", "MILLISECOND")
    if not isinstance(unit, str) or unit.upper() not in TIMESTAMP_UNITS:
        expected = f"one of {', '.join(TIMESTAMP_UNITS)}"
        raise InvalidArgumentError("ts-unit", unit, expected=expected)
    pattern = properties.get("datetime-pattern", DATETIME_PATTERN)
    DateTextReader(pattern, argument="datetime-pattern")  # type: ignore[arg-type]  # it looks
    return StandardTimeKey(
        _zone(properties) if "zone-id" in properties else None,
        "s" if unit.upper() == "SECOND" else "ms",
        pattern,  # type: ignore[arg-type]  # text, as seen just above
    )


def _text(name: str, properties: Mapping[str, object]) -> str:
    value = properties[name]
    if not isinstance(value, str):
        raise InvalidArgumentError(name, value, expected="text")
    return value


def _integer(name: str, value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    check_integer(name, value, at_least=1, at_most=MAX_NODES)
    return value  # type: ignore[return-value]  # as seen just above


def _time(name: str, properties: Mapping[str, object]) -> datetime:
    value = properties[name]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value  # TOML has them
    if not isinstance(value, str):
        expected = f"a local time as {DATETIME_PATTERN!r} writes it"
        raise InvalidArgumentError(name, value, expected=expected)
    return DateTextReader(DATETIME_PATTERN).read(name, value)


def _unit(name: str, properties: Mapping[str, object]) -> ShardUnit:
    value = properties[name]
    return check_unit(name, value.lower() if isinstance(value, str) else value)


def _zone(properties: Mapping[str, object]) -> tzinfo:
    try:
        return resolve_zone(properties["zone-id"])
    except InvalidArgumentError as error:
        expected = str(error).partition("it has to be ")[2]
        raise InvalidArgumentError("zone-id", properties["zone-id"], expected=expected) from None
