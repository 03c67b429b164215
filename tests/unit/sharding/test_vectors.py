"""CosId's own shardings, as its Java classes answered (tests/vectors).

Where Java's behaviour is a defect ours differs, and the test says in what:

* a negative value: Java raises an index error unless it is a multiple of the divisor; ours takes
  the remainder that is not negative;
* a range that ends below the lowest int64: Java wraps around to all nodes; ours is empty;
* an interval that is open above and ends at the begin of a piece: Java has a node for that piece,
  which no value ever reaches; ours has none;
* a range that holds no time of the interval, as ``(t, t]``, or that only touches an open end of it:
  Java names the node at that time; ours names none;
* a datetime with a zone: Java takes its fields as they are written, so that one moment may have two
  nodes; ours reads it in the key's zone;
* 30 February in a text: Java moves it to the 29th; ours refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from aiocosid.abc import IdConverter
from aiocosid.errors import InvalidArgumentError
from aiocosid.sharding import (
    IntervalTimeline,
    ModCycle,
    ShardRange,
    SnowflakeTimeKey,
    StandardTimeKey,
)
from aiocosid.sharding._interval_timeline import check_unit, steps
from aiocosid.snowflake import SnowflakeLayout

from .._vectors import load, unread

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

INT64_MIN = -(2**63)


def range_of(vector: Any, read: Callable[[Any], Any] = int) -> ShardRange[Any]:
    lower, upper = vector["lower"], vector["upper"]
    return ShardRange(
        lower and read(lower["value"]),
        upper and read(upper["value"]),
        lower is not None and lower["type"] == "open",
        upper is not None and upper["type"] == "open",
    )


def time_range(vector: Any) -> ShardRange[datetime]:
    return range_of(vector, datetime.fromisoformat)


_timelines: dict[str, IntervalTimeline[Any]] = {}


def timeline(args: Any) -> IntervalTimeline[Any]:
    shape = {name: args[name] for name in args if name not in ("value", "range")}
    key = json.dumps(shape)
    if key not in _timelines:
        _timelines[key] = IntervalTimeline(
            time_range(args["effective"]),
            args["unit"].lower(),
            args["amount"],
            logic_name_prefix=args["logic_name_prefix"],
            suffix_pattern=args["suffix_pattern"],
        )
    return _timelines[key]


class Radix62(IdConverter):
    """Reads CosId's texts."""

    def as_str(self, new_id: int, /) -> str:
        raise NotImplementedError

    def as_int(self, text: str, /) -> int:
        found = 0
        for character in text:
            found = found * 62 + BASE62.index(character)
        return found


def test_every_operation_has_its_test() -> None:
    assert unread(__file__, "sharding_interval", "sharding_modcycle") == []


# Remainders.


def test_mod_cycle_nodes() -> None:
    for vector in load("sharding_modcycle", "mod_cycle.nodes"):
        args = vector["args"]
        if "error" in vector:
            with pytest.raises(InvalidArgumentError, match="divisor"):
                ModCycle(args["divisor"], args["logic_name_prefix"])
        else:
            found = ModCycle(args["divisor"], args["logic_name_prefix"])
            assert list(found.effective_nodes) == vector["result"]


def test_mod_cycle_precise() -> None:
    """Where Java raises for a negative value, ours has the remainder that is not negative."""
    for vector in load("sharding_modcycle", "mod_cycle.precise"):
        args = vector["args"]
        found = ModCycle(args["divisor"], args["logic_name_prefix"]).exact(args["value"])
        if "error" in vector:
            assert args["value"] < 0
            assert found == f"t_mod_{args['value'] % args['divisor']}"
        else:
            assert found == vector["result"]


def test_mod_cycle_range() -> None:
    """Where Java raises for a negative end or wraps around, ours has every remainder in order."""
    differing = 0
    for vector in load("sharding_modcycle", "mod_cycle.range"):
        args = vector["args"]
        values = range_of(args["range"])
        found = list(ModCycle(args["divisor"], "t_mod_").range(values))
        if found != vector.get("result"):
            assert "error" in vector or (values.upper == INT64_MIN and values.upper_open)
            first = 0 if values.lower is None else values.lower + values.lower_open
            assert values.upper is not None
            stop = values.upper + 1 - values.upper_open
            assert found == [f"t_mod_{v % args['divisor']}" for v in range(first, stop)]
            differing += 1
    assert differing == 26 + 5  # those that raise, and those that end below int64


# Time.


def test_interval_nodes() -> None:
    """An interval that is open above has no node that begins with its end."""
    differing = 0
    for vector in load("sharding_interval", "interval.nodes"):
        if "error" in vector:
            with pytest.raises(InvalidArgumentError, match="two datetimes"):
                timeline(vector["args"])
            continue
        effective = vector["args"]["effective"]
        lower, upper = effective["lower"], effective["upper"]
        if lower["value"] == upper["value"] and upper["type"] == "open":
            # It holds no time; Java has one node all the same.
            with pytest.raises(InvalidArgumentError, match="not empty"):
                timeline(vector["args"])
            continue
        found = list(timeline(vector["args"]).effective_nodes)
        if found != vector["result"]["nodes"]:
            assert upper["type"] == "open"
            assert found == vector["result"]["nodes"][:-1]
            differing += 1
        assert found[0] == vector["result"]["start_node"]
    assert differing == 3


def test_interval_precise() -> None:
    for vector in load("sharding_interval", "interval.precise"):
        value = datetime.fromisoformat(vector["args"]["value"])
        found = timeline(vector["args"])
        if "error" in vector:
            with pytest.raises(InvalidArgumentError, match="must have a time in"):
                found.exact(value)
        else:
            assert found.exact(value) == vector["result"], vector


def reached(of: IntervalTimeline[Any], values: ShardRange[datetime]) -> list[str]:
    """The nodes that a time of the range has, one piece after the other."""
    both = values.intersection(of.effective)
    begins = [of._steps.begin(offset) for offset in range(len(of.effective_nodes) + 1)]
    pieces = zip(of.effective_nodes, begins[:-1], begins[1:], strict=True)
    return [
        node
        for node, begin, end in pieces
        if (found := both.intersection(ShardRange.closed_open(begin, end))).lower is not None
        and found.upper is not None
        and (found.lower < found.upper or (found.lower == found.upper and found.lower in found))
    ]


def test_interval_range() -> None:
    """Every node that a time of the range reaches, and no other; Java names some that none does."""
    differing = 0
    for vector in load("sharding_interval", "interval.range"):
        of, values = timeline(vector["args"]), time_range(vector["args"]["range"])
        found = list(of.range(values))
        assert found == reached(of, values), vector
        if found != vector["result"]:
            assert [node for node in vector["result"] if node not in found] == [
                vector["result"][-1]
            ]
            differing += 1
    # Of 1828: 69 with the piece that begins at the open end, 32 that hold no time.
    assert differing == 101


def test_interval_steps() -> None:
    """The steps themselves: the begin of a unit, the next piece, and how many lie between."""
    for op in ("interval_step.floor", "interval_step.next", "interval_step.offset"):
        for vector in load("sharding_interval", op):
            args = vector["args"]
            time = datetime.fromisoformat(args["time"])
            if args["amount"] == 0 or args["unit"] in ("WEEKS", "MILLIS"):
                continue  # refused when a timeline is made; Java refuses most of them later
            cut = steps(time, check_unit("unit", args["unit"].lower()), args["amount"])
            floor = cut.begin(0)
            if op == "interval_step.floor":
                assert floor.isoformat() == vector["result"]
            elif op == "interval_step.next":
                following = steps(datetime.fromisoformat(vector["result"]), args["unit"].lower(), 1)
                # The last days of a month move: 31 January and a month is 28 February.
                assert cut.begin(1) == following.begin(0)
            else:
                start = datetime.fromisoformat(args["start"])
                from_start = steps(start, args["unit"].lower(), args["amount"])
                if start == from_start.begin(0):
                    assert from_start.offset(time) == vector["result"]


# Keys.


def key_value(kind: str, value: Any) -> Any:
    if kind in ("Instant", "Date"):
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
    if kind in ("ZonedDateTime", "LocalDateTime", "OffsetDateTime"):
        return datetime.fromisoformat(value)
    if kind == "LocalDate":
        return date.fromisoformat(value)
    if kind in ("YearMonth", "Year"):  # Python has none: the first day
        return date.fromisoformat(f"{value}-01-01"[:10])
    return value


def test_standard_keys() -> None:
    for vector in load("sharding_interval", "datetime_convertor.standard"):
        args = vector["args"]
        key = StandardTimeKey(args["zone"], "s" if args["is_second_ts"] else "ms", args["pattern"])
        value = key_value(args["value_type"], args["value"])
        if args["value_type"] == "Integer":
            continue  # Java tells 32 bits from 64 and refuses them; Python has one integer
        if "error" in vector or value == "2024-02-30 01:02:03":
            with pytest.raises(InvalidArgumentError, match="written as 'yyyy-MM-dd HH:mm:ss'"):
                key.local_time(value)
        elif args["value_type"] == "ZonedDateTime":
            assert value.replace(tzinfo=None).isoformat() == vector["result"]
            moment = key.local_time(value)
            assert moment == key.local_time(value.astimezone(UTC)) != value.replace(tzinfo=None)
        else:
            expected = datetime.fromisoformat(vector["result"])
            assert key.local_time(value) == expected, vector


def test_snowflake_keys() -> None:
    for vector in load("sharding_interval", "datetime_convertor.snowflake"):
        args = vector["args"]
        widths = (args["timestamp_bit"], args["machine_bit"], args["sequence_bit"])
        layout = SnowflakeLayout(*widths, "ms", args["epoch"])
        key = SnowflakeTimeKey(layout, args["zone"], Radix62())
        if "error" not in vector:  # Java refuses 32 bits
            assert key.local_time(args["value"]) == datetime.fromisoformat(vector["result"])
