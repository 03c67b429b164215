"""CosId's own converters, as its Java classes answered (tests/vectors).

Where Java's behaviour is a defect ours differs, and the test says in what:

* ToString: Java writes zeros before a minus sign, which it cannot read; ours refuses such an id.
  Java reads ``+5``, ``-0`` and digits of other scripts; ours refuses;
* DatePrefix: Java drops as many characters as the pattern has letters, signs and quotes, so that
  with a quoted text it reads another id, and drops any characters; ours reads the date;
* GroupedPrefix: Java reads no text; ours does where it can be split in one way;
* Friendly: a local time that occurs twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aiocosid.abc import GroupedId, IdConverter
from aiocosid.converter import (
    DatePrefixIdConverter,
    GroupedPrefixIdConverter,
    PrefixIdConverter,
    Radix36IdConverter,
    Radix62IdConverter,
    SnowflakeFriendlyIdConverter,
    SuffixIdConverter,
    ToStringIdConverter,
)
from aiocosid.converter._radix import RadixIdConverter
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import FriendlyText, SnowflakeLayout
from aiocosid.testing import ManualClock

from .._vectors import document

RADIXES: dict[int, type[RadixIdConverter]] = {62: Radix62IdConverter, 36: Radix36IdConverter}


def radix(args: dict[str, Any]) -> RadixIdConverter:
    return RADIXES[args["radix"]](args["pad_start"], args["char_size"])


def check(vector: Any, kinds: tuple[type[Exception], ...], call: Any, *args: Any) -> Any:
    """Call; the answer is Java's, or an error where Java has one."""
    if "error" in vector:
        with pytest.raises(kinds):
            call(*args)
        return None
    answer = call(*args)
    assert answer == vector["result"], vector
    return answer


def test_radix() -> None:
    """Texts and ids of all sizes, limits, and what is refused."""
    seen = Counter[str]()
    for vector in document("converter_radix"):
        op, args = vector["op"], vector["args"]
        seen[op] += 1
        match op:
            case "radix.as_string":
                converter = radix(args)
                text = check(vector, (InvalidIdError,), converter.as_str, args["id"])
                if text is not None:
                    assert converter.convert_many([args["id"]]) == [text]
            case "radix.as_long":
                check(vector, (InvalidIdError,), radix(args).as_int, args["s"])
            case "radix.config" if "error" in vector:
                with pytest.raises(InvalidArgumentError, match="char_size"):
                    radix(args)
            case "radix.config":
                tree, due = radix(args).as_tree(), vector["result"]
                assert (tree["maxId"], tree["charSize"]) == (due["max_id"], due["char_size"])
                assert (tree["radix"], tree["padStart"]) == (args["radix"], args["pad_start"])
                assert radix(args).most == due["max_char_size"]
            case "radix.max_id":
                assert radix(args).as_tree()["maxId"] == vector["result"]
            case "radix.offset":
                digits = Radix62IdConverter.digits
                assert digits.find(args["char"]) == vector["result"]
            case _:
                assert op == "radix.max_char_size"  # of CosIdGenerator's fields
    assert seen["radix.as_string"] + seen["radix.as_long"] > 5000


def converter_of(about: dict[str, Any], args: dict[str, Any]) -> IdConverter:  # noqa: PLR0911 - a table
    """Make what a vector describes; a date prefix reads its time and zone."""
    inner = converter_of(about["actual"], args) if "actual" in about else ToStringIdConverter()
    match about["type"]:
        case "to_string":
            return ToStringIdConverter(about["pad_start"], about["char_size"])
        case "radix62" | "radix36" as kind:
            return RADIXES[int(kind[-2:])](about["pad_start"], about["char_size"])
        case "prefix":
            return PrefixIdConverter(about["prefix"], inner)
        case "suffix":
            return SuffixIdConverter(about["suffix"], inner)
        case "grouped_prefix":
            return GroupedPrefixIdConverter(inner, about["delimiter"])
        case "date_prefix":
            clock = ManualClock(wall_ms=args.get("now_ms", 0))
            zone = args.get("zone", "UTC")
            return DatePrefixIdConverter(
                about["pattern"], inner, about["delimiter"], zone=zone, clock=clock
            )
        case _:
            unit = 1 if about["unit"] == "millisecond" else 1000
            bits = (about["timestamp_bit"], about["machine_bit"], about["sequence_bit"])
            name = "ms" if unit == 1 else "s"
            layout = SnowflakeLayout(*bits, name, about["epoch"] * unit)  # type: ignore[arg-type]
            text = FriendlyText(layout, zone=about["zone"], pad=about["pad_start"])
            return SnowflakeFriendlyIdConverter(text)


def answer(call: Callable[[Any], Any], argument: object) -> Any:
    try:
        return call(argument)
    except InvalidIdError:
        return None


def test_the_others() -> None:
    """Prefixes, suffixes, dates, groups, friendly and decimal texts; our answer is Java's or none.

    But for a pattern with quotes, of which Java loses digits.
    """
    refused = set[object]()
    groups = quoted = 0
    for vector in document("converters"):
        args, about = vector["args"], vector["args"]["converter"]
        converter, due = converter_of(about, args), vector.get("result")
        if vector["op"] == "convert.as_string":
            number = args["id"]
            if args.get("group_key") is not None:
                number = GroupedId(number, args["group_key"])
            text = answer(converter.as_str, number)
            if text is not None:
                assert converter.convert_many([number]) == [text]
            elif due is not None:
                refused.add((number, due))
            assert text in {None, due}, vector
            continue
        read, text = answer(converter.as_int, args["s"]), args["s"]
        if about["type"] == "grouped_prefix":
            groups += read is not None
            assert read is None or converter.as_str(read) == text
            assert (read is None) == (about["delimiter"] == "")
        elif "'" in about.get("pattern", ""):
            quoted += 1
            assert read == 12345 != due
        else:
            assert read in {None, due}, vector
            if read != due:
                refused.add(text)
    assert (groups, quoted) == (32, 2)
    assert refused == REFUSED


REFUSED = {  # by ours
    (-1, "000-1"),
    (-1, "00000000000000000-1"),
    "+5",
    "-0",
    "\uff11\uff12",  # full-width
    "\u0661\u0662",  # Arabic
    "xxxxxx-12",  # no date
    "xxxxxxx12",
}
