"""The statistics of generators in the format of CosId's actuator.  No I/O.

CosId's starter registers a generator wrapped in its converter, and a Snowflake wrapped in its
clock's generator.  Null values are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ...abc import MAX_ID
from ...converter import Radix62IdConverter
from ...generators import WrappedStatistics
from ...generators.text import StringStatistics
from ...segment import GroupedStatistics, SegmentStatistics
from ...snowflake import CachedSnowflakeStatistics, SnowflakeStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...abc import Statistics

__all__ = ("TEXT", "actuator_tree")

TEXT: Final = Radix62IdConverter()
"""Formats the ids of a generator without a converter: 11 characters, as in CosId."""

_KINDS: Final = {"SegmentId": "DefaultSegmentId", "StringIdGenerator": "StringIdGeneratorDecorator"}

_UNITS: Final = {1: "MillisecondSnowflakeId", 1000: "SecondSnowflakeId"}

_SEGMENT: Final = ("fetchTime", "maxId", "offset", "sequence", "step")
_STATES: Final = ("expired", "overflow", "available")
_NO_SEGMENT: Final = dict.fromkeys(_SEGMENT, -1) | {"fetchTime": 0, "step": 0}
_NO_STATE: Final = {"expired": False, "overflow": True, "available": False}
_SNOWFLAKE: Final = ("epoch", "timestampBit", "machineBit", "sequenceBit", "machineId")


def actuator_tree(seen: Statistics) -> dict[str, object]:
    """Return the statistics of a generator with CosId's kinds, levels and keys, ready for JSON.

    A kind that CosId does not have keeps its name; it also keeps its own keys if it is neither a
    segment nor a Snowflake.
    """
    converter: object = TEXT.as_tree()
    if isinstance(seen, StringStatistics):
        kind, actual, converter = seen.kind, seen.actual, seen.converter.as_tree()
    else:
        kind, actual = "", seen
    if isinstance(actual, SegmentStatistics | GroupedStatistics):
        kind = "StringSegmentId"
    elif isinstance(actual, SnowflakeStatistics) and actual.converter is None:
        kind = "StringSnowflakeId"
    tree = _generator(actual)
    if kind:
        tree = _leveled(_KINDS.get(kind, kind), tree, converter)
    return _present(tree)


def _generator(seen: Statistics) -> dict[str, object]:
    match seen:
        case SegmentStatistics():
            found = _segment(seen, "", None)
        case GroupedStatistics():
            found = _segment(seen.actual, seen.group or "", seen.group_ends)
        case CachedSnowflakeStatistics():
            found = _snowflake(seen, seen.kind)
        case SnowflakeStatistics(converter=None):
            own = _snowflake(seen, _UNITS.get(seen.unit_ms, seen.kind))
            found = _leveled("ClockSyncSnowflakeId", own, TEXT.as_tree())
        case SnowflakeStatistics():
            found = _cosid_generator(seen, seen.converter or {})
        case WrappedStatistics():
            found = _leveled(seen.kind, _generator(seen.actual), TEXT.as_tree())
        case _:
            found = seen.as_tree()
    return found


def _segment(seen: SegmentStatistics | None, key: str, ends: int | None) -> dict[str, object]:
    tree: Mapping[str, object] = {"kind": "SegmentChainId", **_NO_SEGMENT, **_NO_STATE}
    if seen is not None:
        tree = seen.as_tree()
    return {
        "kind": _KINDS.get(str(tree["kind"]), tree["kind"]),
        **{each: tree[each] for each in _SEGMENT},
        "groupedKey": {"key": key, "ttlAt": MAX_ID if ends is None else ends},
        "converter": TEXT.as_tree(),
        **{each: tree[each] for each in _STATES},
    }


def _snowflake(seen: SnowflakeStatistics, kind: str) -> dict[str, object]:
    tree = seen.as_tree()
    return {
        "kind": kind,
        **{each: tree[each] for each in (*_SNOWFLAKE, "lastTimestamp")},
        "converter": TEXT.as_tree(),
        "safeJavascript": tree["safeJavascript"],
    }


def _cosid_generator(seen: SnowflakeStatistics, text: Mapping[str, object]) -> dict[str, object]:
    radix = text.get("radix")
    parser = {"kind": "RadixCosIdStateParser" if radix else "FriendlyIdStateParser"}
    own: dict[str, object] = {
        "kind": f"Radix{radix}CosIdGenerator" if radix else "FriendlyCosIdGenerator",
        "machineId": seen.machine_id,
        "lastTimestamp": seen.as_tree()["lastTimestamp"],
        "converter": parser,
    }
    return _leveled("ClockSyncCosIdGenerator", own, parser)


def _leveled(kind: str, actual: object, converter: object) -> dict[str, object]:
    return {"kind": kind, "actual": actual, "converter": converter}


def _present(tree: Mapping[str, object]) -> dict[str, object]:
    """Return a tree without its null values."""
    return {
        key: _present(cast("dict[str, object]", each)) if isinstance(each, dict) else each
        for key, each in tree.items()
        if each is not None
    }
