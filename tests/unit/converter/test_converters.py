"""What holds for every converter, and what is each one's own."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiocosid import StringIdGenerator
from aiocosid import converter as room
from aiocosid.abc import MAX_ID, GroupedId, IdConverter
from aiocosid.converter import (
    CrockfordIdConverter,
    DatePrefix,
    DatePrefixIdConverter,
    GroupedPrefixIdConverter,
    GroupPrefix,
    OpaqueIdConverter,
    PrefixIdConverter,
    Radix36IdConverter,
    Radix62IdConverter,
    ShardedTextConverter,
    SnowflakeFriendlyIdConverter,
    SqidsConverter,
    SuffixIdConverter,
    ToStringIdConverter,
    TypeIdConverter,
    UlidConverter,
    UuidConverter,
    compose,
)
from aiocosid.errors import InvalidArgumentError, InvalidIdError, MissingExtraError
from aiocosid.segment import GroupBy, GroupedSegmentId
from aiocosid.snowflake import COSID_MS, FriendlyText, ShardedLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

KEY = bytes(range(32))
PLAIN = ToStringIdConverter()


def dated(
    pattern: str = "yyMMdd", delimiter: str = "-", zone: str = "UTC", **options: Any
) -> DatePrefixIdConverter:
    options.setdefault("clock", ManualClock())
    return DatePrefixIdConverter(pattern, PLAIN, delimiter, zone=zone, **options)


ALL: dict[str, tuple[IdConverter, int, bool]] = {  # with the highest id, and whether texts sort
    "to-string": (PLAIN, MAX_ID, False),
    "to-string padded": (ToStringIdConverter(True, 19), MAX_ID, True),
    "62": (Radix62IdConverter(), MAX_ID, True),
    "62 short": (Radix62IdConverter(True, 6), 62**6 - 1, True),
    "62 tiny": (Radix62IdConverter(True, 2), 62**2 - 1, True),
    "62 unpadded": (Radix62IdConverter(False), MAX_ID, False),
    "36": (Radix36IdConverter(), MAX_ID, True),
    "36 unpadded": (Radix36IdConverter(False, 12), 36**12 - 1, False),
    "ulid": (UlidConverter(), MAX_ID, True),
    "ulid of a time": (UlidConverter(COSID_MS), MAX_ID, True),
    "uuid": (UuidConverter(), MAX_ID, True),
    "uuid of a time": (UuidConverter(COSID_MS), MAX_ID, True),
    "typeid": (TypeIdConverter(), MAX_ID, True),
    "typeid of a time": (TypeIdConverter("o", COSID_MS), MAX_ID, True),
    "sqids": (SqidsConverter(), MAX_ID, False),
    "sqids own": (SqidsConverter("0123456789abcdef", 12, ("abc",)), MAX_ID, False),
    "crockford": (CrockfordIdConverter(), MAX_ID, True),
    "crockford plain": (CrockfordIdConverter(check=False), MAX_ID, True),
    "crockford lower": (CrockfordIdConverter(lower_case=True), MAX_ID, True),
    "crockford unpadded": (CrockfordIdConverter(False, 8), 32**8 - 1, False),
    "prefix": (PrefixIdConverter("o-", Radix62IdConverter()), MAX_ID, True),
    "suffix": (SuffixIdConverter("-o", Radix36IdConverter()), MAX_ID, True),
    "date": (DatePrefixIdConverter("yyMd", PLAIN, zone="UTC"), MAX_ID, False),
    "friendly": (
        SnowflakeFriendlyIdConverter(FriendlyText(COSID_MS, zone="UTC", pad=True)),
        COSID_MS.compose(COSID_MS.last_tick, 1023, 4095),
        True,
    ),
    "sharded": (ShardedTextConverter(ShardedLayout(), "A"), MAX_ID, False),
    "opaque": (OpaqueIdConverter(KEY), MAX_ID, False),
    "composed": (compose(Radix62IdConverter(), prefix="a", suffix="z"), MAX_ID, True),
}
NO_IDS: tuple[Any, ...] = (True, False, 1.0, "1", None, b"1", -(2**63) - 1)
NO_TEXTS: tuple[Any, ...] = ("", "\0", " ", "é", "\ud800", "-", "9" * 5000, None, 1, b"1")


@given(st.integers(0, MAX_ID), st.integers(0, MAX_ID), st.integers(0, 70))
@settings(max_examples=60, deadline=None)
def test_round_trip_and_order(one: int, other: int, bits: int) -> None:
    """Every id comes back, texts of different ids differ, and they sort where that is promised."""
    other = min(one + 1, MAX_ID) if bits > 63 else other >> bits
    for name, (converter, highest, sorts) in ALL.items():
        ids = sorted({one % (highest + 1), other % (highest + 1), 0, highest})
        if name == "sharded":  # none has the sequence 0
            ids = sorted({each | 1 for each in ids})
        texts = converter.convert_many(ids)
        assert texts == [converter.as_str(each) for each in ids], name
        assert [converter.as_int(text) for text in texts] == ids, name
        assert len(set(texts)) == len(ids), name
        if sorts:
            assert texts == sorted(texts), name


def test_none_truncates_or_takes_what_is_no_id() -> None:
    """Above its limit, negative, a bool or no int at all: refused by all calls, alone and not."""
    for name, (converter, highest, _) in ALL.items():
        for wrong in (*NO_IDS, highest + 1, MAX_ID + 1, -2 if converter is not PLAIN else 2**70):
            if name in {"date", "to-string padded"} and wrong == -2:
                continue  # decimal: a sign with nothing before it is readable
            with pytest.raises(InvalidIdError):
                converter.as_str(wrong)
            with pytest.raises(InvalidIdError):
                converter.convert_many([1, wrong])
        assert converter.convert_many([]) == []
        assert converter.convert_many(iter([1])) == [converter.as_str(1)]


@given(st.text("0129AHIOUZaouz*~$=_-+ \uff11é", max_size=20))
@example("-1")
@settings(max_examples=60, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    """What is read has a text that is read as the same id; the rest is one kind of error."""
    for name, (converter, highest, _) in ALL.items():
        try:
            read = converter.as_int(text)
        except InvalidIdError:
            continue
        assert read <= highest, name
        assert converter.as_int(converter.as_str(read)) == read, name


def test_what_is_no_text_is_refused() -> None:
    for converter, _, _ in ALL.values():
        for wrong in NO_TEXTS:
            with pytest.raises(InvalidIdError):
                converter.as_int(wrong)


def test_they_are_values() -> None:
    """Equal and hashed by their settings, shown with them, unchangeable, copied and pickled."""
    assert Radix62IdConverter() == Radix62IdConverter(True, 11) != Radix62IdConverter(False)
    assert len({Radix62IdConverter(char_size=5), Radix36IdConverter(char_size=5)}) == 2
    assert len({converter for converter, _, _ in ALL.values()}) == len(ALL)
    for name, (converter, _, _) in ALL.items():
        assert copy.deepcopy(converter) == copy.copy(converter) == converter, name
        assert type(converter).__name__ in repr(converter)
        assert "pairs" not in repr(converter)
        json.dumps(converter.as_tree())
        with pytest.raises(AttributeError):
            setattr(converter, str(re.findall(r"(\w+)=", repr(converter))[0]), PLAIN)
        if name != "opaque":
            packed = pickle.dumps(converter)
            assert len(packed) < 2000, name
            again = pickle.loads(packed)  # noqa: S301 - our own
            assert again == converter, name
            assert again.as_str(5)[-2:] == converter.as_str(5)[-2:]


def test_texts_of_sharded_ids_are_the_generators() -> None:
    """Local time, sequence and shard; those of a year above 9999 have no text."""
    layout = ShardedLayout(1_546_300_800, zone="+08:00")
    converter = ShardedTextConverter(layout, "O-")
    new_id = layout.compose(1_700_000_000, 7, 42)
    assert converter.as_str(new_id) == "O-202311150613200000420007"
    assert converter.as_int("O-202311150613200000420007") == new_id
    assert converter.as_tree() == {
        "kind": "ShardedTextConverter",
        "layout": repr(layout),
        "prefix": "O-",
    }
    wide = ShardedTextConverter(
        ShardedLayout(0, timestamp_bits=50, sharding_bits=6, sequence_bits=7)
    )
    for refusing, wrong in ((converter, new_id - 42), (wide, 2**63 - 1)):
        with pytest.raises(InvalidIdError):
            refusing.as_str(wrong)
    with pytest.raises(InvalidIdError, match="before the year 10000"):
        wide.as_str(2**63 - 1)
    for text in (
        "202311150613200000420007",
        "O-202313150613200000420007",
        "O-20231115061320000042",
    ):
        with pytest.raises(InvalidIdError):
            converter.as_int(text)


def test_trees_are_the_actuators() -> None:
    """CosId's names of settings, nested as its converters are."""
    chain = compose(
        ToStringIdConverter(True, 6),
        prefix="a",
        suffix="z",
        group_prefix=GroupPrefix(delimiter="."),
        date_prefix=DatePrefix(zone="UTC"),
    )
    decimal = {"kind": "ToStringIdConverter", "padStart": True, "charSize": 6}
    group = {"kind": "GroupedPrefixIdConverter", "delimiter": ".", "actual": decimal}
    date = {"kind": "DatePrefixIdConverter", "pattern": "yyMMdd", "actual": group}
    prefix = {"kind": "PrefixIdConverter", "prefix": "a", "actual": date}
    assert chain.as_tree() == {"kind": "SuffixIdConverter", "suffix": "z", "actual": prefix}
    assert Radix62IdConverter(False, 3).as_tree() == {
        "kind": "Radix62IdConverter",
        "radix": 62,
        "charSize": 3,
        "padStart": False,
        "maxId": 238328,
    }
    assert CrockfordIdConverter().as_tree()["check"] is True
    assert CrockfordIdConverter(lower_case=True).as_tree()["lowerCase"] is True
    assert ALL["friendly"][0].as_tree() == {
        "kind": "SnowflakeFriendlyIdConverter",
        "padStart": True,
        "machineCharSize": 4,
        "sequenceCharSize": 4,
    }


WRONG: Any = object()


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("char_size", lambda: Radix62IdConverter(True, 12)),
        ("char_size", lambda: Radix62IdConverter(True, 0)),
        ("char_size", lambda: Radix36IdConverter(True, 14)),
        ("char_size", lambda: CrockfordIdConverter(True, 14)),
        ("pad_start", lambda: Radix62IdConverter(WRONG)),
        ("pad_start", lambda: ToStringIdConverter(WRONG)),
        ("char_size", lambda: ToStringIdConverter(True, -1)),
        ("char_size", lambda: ToStringIdConverter(True, 10**9)),
        ("check", lambda: CrockfordIdConverter(check=WRONG)),
        ("lower_case", lambda: CrockfordIdConverter(lower_case=WRONG)),
        ("prefix", lambda: PrefixIdConverter(WRONG, PLAIN)),
        ("inner", lambda: PrefixIdConverter("a", WRONG)),
        ("suffix", lambda: SuffixIdConverter(WRONG, PLAIN)),
        ("inner", lambda: SuffixIdConverter("a", WRONG)),
        ("delimiter", lambda: GroupedPrefixIdConverter(PLAIN, WRONG)),
        ("inner", lambda: GroupedPrefixIdConverter(WRONG)),
        ("inner", lambda: OpaqueIdConverter(KEY, WRONG)),
        ("layout", lambda: ShardedTextConverter(COSID_MS)),  # type: ignore[arg-type]
        ("layout", lambda: ShardedTextConverter(ShardedLayout)),  # type: ignore[arg-type]
        ("prefix", lambda: ShardedTextConverter(ShardedLayout(), WRONG)),
        ("inner", lambda: DatePrefixIdConverter("yyMMdd", WRONG, zone="UTC")),
        ("pattern", lambda: dated("yyyyMMMdd")),
        ("zone", lambda: dated(zone="Mars/Olympus")),
        ("delimiter", lambda: dated("yyMd", "")),
        ("delimiter", lambda: dated("yyMd", "0")),
        ("delimiter", lambda: dated("yyMMdd", WRONG)),
        ("before_prefix", lambda: GroupPrefix(before_prefix=WRONG)),
        ("delimiter", lambda: GroupPrefix(delimiter=WRONG)),
        ("before_prefix", lambda: DatePrefix(zone="UTC", before_prefix=WRONG)),
        ("delimiter", lambda: DatePrefix(zone="UTC", delimiter=WRONG)),
        ("base", lambda: compose(WRONG)),
        ("prefix", lambda: compose(PLAIN, prefix=WRONG)),
        ("suffix", lambda: compose(PLAIN, suffix=WRONG)),
        ("text", lambda: SnowflakeFriendlyIdConverter(COSID_MS)),  # type: ignore[arg-type]
        ("text", lambda: SnowflakeFriendlyIdConverter(FriendlyText)),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(argument: str, make: Callable[[], object]) -> None:
    """Are refused by the name of the setting."""
    with pytest.raises(InvalidArgumentError) as error:
        make()
    assert error.value.argument == argument


def test_a_setting_that_is_not_given_is_cosids() -> None:
    """Which is in each class's own documentation."""
    assert ToStringIdConverter() == ToStringIdConverter(False, 0)


def test_cosids_size_of_none_pads_nothing() -> None:
    """It goes without padding alone: with it, nothing would be padded that was asked for."""
    unpadded = ToStringIdConverter(char_size=-1)
    assert unpadded.as_str(5) == "5"
    assert unpadded.convert_many([5, 17]) == ["5", "17"]
    assert unpadded.as_int("5") == 5
    assert unpadded.as_str(-5) == "-5"
    with pytest.raises(InvalidArgumentError, match="char_size"):
        ToStringIdConverter(char_size=-2)
    assert Radix62IdConverter() == Radix62IdConverter(True, 11)
    assert Radix36IdConverter() == Radix36IdConverter(True, 13)
    assert CrockfordIdConverter() == CrockfordIdConverter(True, 13, True, False)
    assert GroupedPrefixIdConverter(PLAIN) == GroupedPrefixIdConverter(PLAIN, "-")
    assert GroupPrefix() == GroupPrefix(delimiter="-", before_prefix=True)
    assert DatePrefix(zone="UTC") == DatePrefix(
        pattern="yyMMdd", delimiter="-", before_prefix=True, zone="UTC"
    )
    assert dated("yyMMdd") == DatePrefixIdConverter("yyMMdd", PLAIN, zone="UTC")
    assert compose(PLAIN).as_str(7) == "7"
    assert Radix62IdConverter().max_id == MAX_ID


def test_the_kind_is_the_name_of_the_class() -> None:
    for converter, _, _ in ALL.values():
        assert converter.as_tree()["kind"] == type(converter).__name__
    assert ALL["opaque"][0].as_tree()["actual"] == Radix62IdConverter().as_tree()


def test_each_states_for_itself_whether_its_text_depends_on_the_time() -> None:
    """What a converter does not state counts as a dependence: threads then take ids one by one."""
    classes = [found for name in room.__all__ if is_converter(found := vars(room)[name])]
    assert len(classes) > 10
    assert [each for each in classes if "is_timeless" not in vars(each)] == []
    assert [each for each in classes if not each.is_timeless] == [DatePrefixIdConverter]


def is_converter(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, IdConverter)


def test_a_negative_number_has_a_text_where_no_zero_stands_before_the_sign() -> None:
    padded = ToStringIdConverter(True, 3)
    assert padded.as_str(-12) == "-12"
    assert padded.as_int("-12") == -12
    assert PLAIN.as_int(str(-(2**63))) == -(2**63)
    for refused in (lambda: padded.as_str(-1), lambda: PLAIN.as_int(str(-(2**63) - 1))):
        with pytest.raises(InvalidIdError):
            refused()


def test_the_longest_text_that_is_read() -> None:
    """Is one that a person may have filled with hyphens, or that has many places to split."""
    crockford = CrockfordIdConverter()
    grouped = GroupedPrefixIdConverter(PLAIN)
    for converter, text, most in ((crockford, crockford.as_str(7), 64), (grouped, "-7", 255)):
        assert int(converter.as_int(text.rjust(most, "-" if converter is crockford else "g"))) == 7
        with pytest.raises(InvalidIdError):
            converter.as_int(text.rjust(most + 1, "-" if converter is crockford else "g"))


def test_what_is_derived_is_no_part_of_the_value() -> None:
    """Nor is the clock."""
    assert repr(Radix62IdConverter()) == "Radix62IdConverter(pad_start=True, char_size=11)"
    crockford = "CrockfordIdConverter(pad_start=True, char_size=13, check=True, lower_case=False)"
    assert repr(CrockfordIdConverter()) == crockford
    assert " _" not in repr(dated())
    assert dated(clock=ManualClock()) == dated(clock=ManualClock())


def test_each_field_of_a_date_is_read_as_it_is_written() -> None:
    fields = ("yyyyMMddHHmmssSSS", "yy-M-d-H-m-s", "yyyyDDD", "yyyy-D")
    for pattern in fields:
        converter = dated(pattern)
        assert converter.as_int(converter.as_str(7)) == 7


def test_the_widest_text_is_of_255_characters() -> None:
    assert len(ToStringIdConverter(True, 255).as_str(7)) == 255
    with pytest.raises(InvalidArgumentError):
        ToStringIdConverter(True, 256)


def test_quoted_text_of_a_date_is_read_as_it_is_written() -> None:
    converter = dated("yyMMdd'o''clock'")
    text = converter.as_str(7)
    assert "o'clock-" in text
    assert converter.as_int(text) == 7


def test_keys_of_settings_are_read_as_they_are() -> None:
    """A sign that is not of base64 is no part of a key, and none is shown."""
    text = base64.b64encode(KEY).decode()
    assert OpaqueIdConverter.from_text(text) == OpaqueIdConverter(KEY)
    for wrong in (text + "!", "!" + text, text[4:], ""):
        with pytest.raises(InvalidArgumentError, match="hexadecimal digits or base64") as error:
            OpaqueIdConverter.from_text(wrong)
        assert not wrong or wrong not in str(error.value)


def test_errors_say_the_limit_and_the_way_out() -> None:
    with pytest.raises(InvalidIdError, match=r"0 to 3843, not 3844: char_size is 2 \(maximum 11\)"):
        Radix62IdConverter(True, 2).as_str(3844)
    with pytest.raises(InvalidIdError, match="1 to 11 of the digits 0123"):
        Radix62IdConverter().as_int("zzzzzzzzzzz")
    for above, way_out in ((MAX_ID + 1, False), (MAX_ID, True), (62**2, True), (-1, False)):
        with pytest.raises(InvalidIdError) as error:
            Radix62IdConverter(True, 2).as_str(above)
        assert (": char_size is 2" in str(error.value)) is way_out
    for converter in (CrockfordIdConverter(), CrockfordIdConverter(check=False)):
        with pytest.raises(InvalidIdError) as error:
            converter.as_int("?")
        symbol = " and a check symbol" if converter.check else ""
        assert f"VWXYZ{symbol}, for an id of at most" in str(error.value)


# Groups.


def test_a_group_travels_with_its_id() -> None:
    converter = GroupedPrefixIdConverter(ToStringIdConverter(True, 6))
    new_id = GroupedId(42, "20260116")
    assert converter.as_str(new_id) == "20260116-000042"
    assert converter.convert_many([new_id, GroupedId(1, "x")]) == ["20260116-000042", "x-000001"]
    read = compose(converter, prefix="no").as_int("no20260116-000042")
    assert isinstance(read, GroupedId)
    assert (read, read.group) == (42, "20260116")
    with pytest.raises(InvalidIdError, match="must be a GroupedId, from `with_group`"):
        converter.as_str(42)


def test_a_text_with_two_splits_is_refused() -> None:
    converter = GroupedPrefixIdConverter(PLAIN)
    assert converter.as_int("2026-01-5").group == "2026-01"
    with pytest.raises(InvalidIdError, match="several ways"):
        converter.as_int("2026--5")
    with pytest.raises(InvalidIdError, match="in no way"):
        converter.as_int("5")
    with pytest.raises(InvalidIdError, match="in no way"):
        converter.as_int("-" * 100_000 + "5")
    with pytest.raises(InvalidIdError, match="cannot be split"):
        GroupedPrefixIdConverter(PLAIN, "").as_int("205")


def test_a_grouped_id_is_an_int_that_is_copied_with_its_group() -> None:
    new_id = GroupedId(7, "a")
    assert (new_id, hash(new_id), repr(new_id), f"{new_id}") == (7, hash(7), "7", "7")
    again = pickle.loads(pickle.dumps(new_id))  # noqa: S301 - our own
    for each in (copy.copy(new_id), copy.deepcopy(new_id), again):
        assert (type(each), each, each.group) == (GroupedId, 7, "a")


# Dates.


async def test_the_date_is_of_the_conversion() -> None:
    clock = ManualClock(wall_ms=1_768_607_999_000)  # 2026-01-16T23:59:59Z
    utc, tokyo = dated(clock=clock), dated(clock=clock, zone="Asia/Tokyo")
    assert (utc.as_str(42), tokyo.as_str(42)) == ("260116-42", "260117-42")
    await clock.advance(1)
    assert utc.convert_many([42, 43]) == ["260117-42", "260117-43"]
    assert utc.as_int("991231-42") == 42


def test_a_date_is_read_before_it_is_dropped() -> None:
    """Any date of the pattern, and nothing else."""
    for pattern in ("yyyyMMddHHmmssSSS", "yyyy-MM-dd", "uuuuDDD", "yy'w'MM", "yyyy''M.d", "H:m:s"):
        converter = dated(pattern, "_")
        for ms in range(0, 10**13, 777_777_777_777):
            text = dated(pattern, "_", clock=ManualClock(wall_ms=ms)).as_str(5)
            assert converter.as_int(text) == 5, text
    for text in ("261316-5", "260132-5", "2601165", "26011-5", "xxxxxx-5", "260116-", "260116--x"):
        with pytest.raises(InvalidIdError):
            dated().as_int(text)
    with pytest.raises(InvalidIdError):
        dated("yyyyDDD").as_int("2026367-5")


# Composition.


def test_composition_is_in_cosids_order() -> None:
    """Prefix, date, group, id, suffix; what is not before the prefix stands in front of it."""
    new_id = GroupedId(5, "G")
    seen = set[str]()
    for group_first in (True, False):
        for date_first in (True, False):
            chain = compose(
                PLAIN,
                prefix="P",
                suffix="S",
                group_prefix=GroupPrefix(before_prefix=group_first),
                date_prefix=DatePrefix(zone="UTC", pattern="'D'", before_prefix=date_first),
            )
            text = chain.as_str(new_id)
            assert chain.as_int(text) == 5
            seen.add(text)
    assert seen == {"PD-G-5S", "D-PG-5S", "G-PD-5S", "D-G-P5S"}
    assert compose(PLAIN) is PLAIN


# Crockford.


def test_crockford_as_people_write_it() -> None:
    converter = CrockfordIdConverter()
    assert converter.as_str(1234) == "000000000016JD"
    assert CrockfordIdConverter(False, check=False).as_str(32**4 + 1) == "10001"
    small = CrockfordIdConverter(lower_case=True)
    assert (small.as_str(1234), small.convert_many([36])) == ("000000000016jd", ["0000000000014u"])
    for text in ("16JD", "16jd", "i6-jd", "L6JD", "o0-1-6j-d", "00000000000016JD"[-14:]):
        assert converter.as_int(text) == 1234, text
    for text in ("16JE", "16J", "61JD", "1U6JD", "16J\u0130", "D", "-" * 70 + "16JD"):
        with pytest.raises(InvalidIdError):
            converter.as_int(text)
    assert {converter.as_str(each)[-1] for each in range(37)} == set(
        "0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U"
    )


@given(
    st.integers(0, MAX_ID), st.integers(0, 12), st.sampled_from("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
)
@settings(max_examples=100, deadline=None)
def test_the_check_symbol_finds_typing_errors(number: int, at: int, digit: str) -> None:
    """Every wrong digit, and every two neighbours that are swapped."""
    converter = CrockfordIdConverter()
    text = converter.as_str(number)
    wrong = text[:at] + digit + text[at + 1 :]
    swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    for each in {wrong, swapped} - {text}:
        with pytest.raises(InvalidIdError):
            converter.as_int(each)


# Without cryptography.


def test_without_its_library_opaque_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from aiocosid.converter import OpaqueIdConverter\n"
        "from aiocosid.errors import MissingExtraError\n"
        "try: OpaqueIdConverter(bytes(16))\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "aiocosid[opaque]" in done.stdout
    assert issubclass(MissingExtraError, ImportError)


def test_converters_work_in_many_threads() -> None:
    """They share tables, and nothing else: above 2 KiB, 128 ids, AES lets other threads run."""
    converter = OpaqueIdConverter(KEY)
    due = converter.convert_many(range(1500))
    wrong = list[object]()

    def work(*, at_once: bool) -> None:
        try:
            for _ in range(3):
                if at_once:
                    assert converter.convert_many(range(1500)) == due
                else:
                    assert [converter.as_str(each) for each in range(300)] == due[:300]
                    assert converter.as_int(due[5]) == 5
        except BaseException as error:  # noqa: BLE001 - for the test's own thread
            wrong.append(error)

    threads = [threading.Thread(target=work, kwargs={"at_once": bool(n % 4)}) for n in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


DAY: Final = GroupBy.day(zone="UTC")
KEYS: Final = GroupBy.key(lambda: "1")
MONTHS: Final = GroupBy.month(zone="UTC", pattern="yyyyM")


@pytest.mark.parametrize(
    ("group_by", "delimiter", "inner", "is_fine"),
    [
        (KEYS, "", PLAIN, False),
        (KEYS, "0", PLAIN, False),
        (KEYS, "-x", PLAIN, False),
        (MONTHS, "", PLAIN, False),
        (KEYS, "", Radix62IdConverter(pad_start=False), False),
        (KEYS, "", Radix62IdConverter(), True),
        (KEYS, "0-", PLAIN, True),
        (MONTHS, "-", PLAIN, True),
        (DAY, "", PLAIN, True),
    ],
)
def test_groups_whose_texts_may_be_equal(
    group_by: GroupBy, delimiter: str, inner: IdConverter, *, is_fine: bool
) -> None:
    """Id 23 of group 1, and id 3 of group 12, both 123: refused before the first id."""
    grouped = GroupedSegmentId(MemoryStore(), name="n", group_by=group_by)
    converter = compose(inner, group_prefix=GroupPrefix(delimiter=delimiter), suffix="z")
    if is_fine:
        StringIdGenerator(grouped, converter)
        return
    with pytest.raises(InvalidArgumentError, match="two groups may have the same text"):
        StringIdGenerator(grouped, converter)
