"""Ids in other systems' formats: the formats' own vectors, the time, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import ulid
from hypothesis import given
from hypothesis import strategies as st
from typeid import TypeID

from aiocosid.abc import MAX_ID, IdConverter
from aiocosid.converter import SqidsConverter, TypeIdConverter, UlidConverter, UuidConverter
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import COSID_MS, LAYOUTS, SONYFLAKE_V1, SnowflakeLayout

MS = 0x017F22E279B0  # of the example of RFC 9562, appendix A.6
RFC = COSID_MS.with_epoch(MS)


def test_a_uuid_is_that_of_the_rfc() -> None:
    """Version, variant and time of 017F22E2-79B0-7CC3-98C4-DC0C0C07398F, no random bits."""
    assert UuidConverter(RFC).as_str(0) == "017f22e2-79b0-7000-8000-000000000000"
    for layout, version in ((RFC, 7), (None, 8)):
        for new_id in (0, 1, 2**62 - 1, 2**62, MAX_ID):
            uuid = UuidConverter(layout).as_uuid(new_id)
            assert (uuid.version, uuid.variant) == (version, "specified in RFC 4122")
            assert UuidConverter(layout).from_uuid(uuid) == new_id


def test_ulids_are_those_of_the_specification() -> None:
    """The time is in the first ten characters, the id in the last; the highest time has a text."""
    assert UlidConverter(RFC).as_str(0)[:10] == str(ulid.ULID.from_timestamp(MS))[:10]
    assert UlidConverter().as_str(31) == "0000000000000000000000000Z"
    last = SnowflakeLayout(48, 1, 1, "ms", 0)
    assert UlidConverter(last).as_str(last.max_id).startswith("7ZZZZZZZZZ")
    assert UlidConverter().as_int("0000000000000000000000000z") == 31


def test_typeids_are_those_of_the_specification() -> None:
    """Of valid.json: a UUID and its suffix; and what the library reads is our UUID."""
    assert str(TypeID.from_uuid(UUID(int=0), "prefix")) == "prefix_00000000000000000000000000"  # type: ignore[arg-type]
    for layout in (RFC, None):
        text = TypeIdConverter("pre_fix", layout).as_str(4711)
        read = TypeID.from_string(text)
        assert (read.prefix, len(read.suffix)) == ("pre_fix", 26)
        number = UuidConverter(layout).as_uuid(4711).int
        assert int(read.uuid.int) == number or layout is None  # it had version 7 alone once
    assert len(TypeIdConverter().as_str(1)) == 26


@pytest.mark.parametrize(
    ("new_id", "text"), [*enumerate(("bM", "Uk", "gb", "Ef", "Vq", "uw", "OI", "AX", "p6", "nJ"))]
)
def test_sqids_are_those_of_the_specification(new_id: int, text: str) -> None:
    """Of its tests: ten numbers with the alphabet of sqids.org."""
    assert SqidsConverter().as_str(new_id) == text
    assert SqidsConverter().as_int(text) == new_id


def test_the_blocklist_is_that_of_the_specification() -> None:
    """4572721 has another text since one word is blocked; only what is written is read."""
    assert SqidsConverter(blocklist=()).as_str(4572721) == "aho1e"
    assert SqidsConverter().as_str(4572721) == "JExTR"
    assert SqidsConverter().as_int("JExTR") == 4572721
    for other in ("aho1e", "86Rf07", "JExTRx" * 60, ""):  # blocked, three numbers, too long
        with pytest.raises(InvalidIdError, match="the Sqid of one id"):
            SqidsConverter().as_int(other)
    nothing = SqidsConverter("abc", 3, ("cab", "abc", "bca"))
    with pytest.raises(InvalidIdError, match="has no text"):
        nothing.as_str(0)


def test_the_time_is_the_ids() -> None:
    """Whatever the layout: of a millisecond, 10 ms or a second, the sequence above the machine."""
    at = datetime(2026, 1, 16, 12, 30, tzinfo=UTC)
    ms = int(at.timestamp() * 1000)
    for layout in (COSID_MS, SONYFLAKE_V1, *LAYOUTS.values()):
        if not 0 <= layout.tick_at(ms) <= layout.last_tick:
            continue
        new_id = layout.compose(layout.tick_at(ms), 1, 1)
        written = ulid.ULID.from_str(UlidConverter(layout).as_str(new_id))
        assert written.milliseconds == layout.ms_of(layout.tick_at(ms)), layout
        assert UuidConverter(layout).as_uuid(new_id).int >> 80 == written.milliseconds, layout


def test_an_id_of_another_layout_has_no_text() -> None:
    """Above its bits, or of a time that 48 bits do not hold."""
    short = SnowflakeLayout(40, 5, 8, "ms", 0)
    late = SnowflakeLayout(52, 1, 1, "ms", 0)
    for layout, new_id, said in (
        (short, short.max_id + 1, "do not belong to this layout"),
        (late, late.max_id, "year 10890"),
    ):
        for converter in (
            UlidConverter(layout),
            UuidConverter(layout),
            TypeIdConverter("", layout),
        ):
            with pytest.raises(InvalidIdError, match=said):
                converter.as_str(new_id)


FOREIGN: dict[IdConverter, tuple[str, ...]] = {
    UlidConverter(RFC): (
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",  # of the specification
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",  # more than 128 bits
        UlidConverter().as_str(7),  # the time is not the id's
        UlidConverter(RFC).as_str(7)[:-1] + "U",
        UlidConverter(RFC).as_str(7)[:-1] + "\u0667",
    ),
    UlidConverter(): (UlidConverter(RFC).as_str(7), "0000000000" + "Z" * 16),
    UuidConverter(RFC): (
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",  # of the RFC
        "919108f7-52d1-4320-9bac-f847db4148a8",
        UuidConverter().as_str(7),
        "017f22e279b070008000000000000007",  # without hyphens
        "{017f22e2-79b0-7000-8000-000000000007}",
    ),
    UuidConverter(): (UuidConverter(RFC).as_str(7), "00000000-0000-8002-8000-000000000000"),
    TypeIdConverter("order", RFC): (
        "prefix_01h455vb4pex5vsknk084sn02q",  # of valid.json
        "order_01h455vb4pex5vsknk084sn02q",
        "order_",
        "order",
        TypeIdConverter("order", RFC).as_str(7).upper(),
        TypeIdConverter("orders", RFC).as_str(7),
        TypeIdConverter("", RFC).as_str(7),
        TypeIdConverter("order").as_str(7),
    ),
}


def test_what_was_made_elsewhere_is_no_id() -> None:
    for converter, texts in FOREIGN.items():
        for text in texts:
            with pytest.raises(InvalidIdError):
                converter.as_int(text)
    wrong: Any = "017f22e2-79b0-7000-8000-000000000000"
    with pytest.raises(InvalidIdError, match="a UUID that this converter has written"):
        UuidConverter(RFC).from_uuid(wrong)
    with pytest.raises(InvalidIdError, match="a string that starts with 'order_'"):
        TypeIdConverter("order").as_int("cus_01h455vb4pex5vsknk084sn02q")


@given(st.integers(0, MAX_ID), st.integers(0, MAX_ID))
def test_the_three_sort_like_ids(one: int, other: int) -> None:
    for layout in (None, COSID_MS):
        for converter in (
            UlidConverter(layout),
            UuidConverter(layout),
            TypeIdConverter("a", layout),
        ):
            texts = converter.convert_many(sorted((one, other)))
            assert texts == sorted(texts)
            assert converter.as_int(converter.as_str(one)) == one


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("layout", {"layout": "COSID_MS"}),
        ("prefix", {"prefix": "Order"}),
        ("prefix", {"prefix": "_order"}),
        ("min_length", {"min_length": 256}),
        ("alphabet, blocklist", {"alphabet": "aa"}),
        ("alphabet, blocklist", {"alphabet": "äöü"}),
        ("alphabet, blocklist", {"blocklist": (7,)}),
    ],
)
def test_bad_settings(argument: str, options: dict[str, Any]) -> None:
    kind: Any = {"layout": UlidConverter, "prefix": TypeIdConverter}.get(argument, SqidsConverter)
    with pytest.raises(InvalidArgumentError) as caught:
        kind(**options)
    assert caught.value.argument == argument


def test_trees_say_the_settings() -> None:
    assert UlidConverter(COSID_MS).as_tree()["layout"] == repr(COSID_MS)
    assert TypeIdConverter("a").as_tree() == {
        "kind": "TypeIdConverter",
        "prefix": "a",
        "layout": None,
    }
    assert SqidsConverter(min_length=3).as_tree() == {
        "kind": "SqidsConverter",
        "alphabet": "",
        "minLength": 3,
    }


@pytest.mark.parametrize(
    ("module", "name"),
    [("ulid", "UlidConverter"), ("typeid", "TypeIdConverter"), ("sqids", "SqidsConverter")],
)
def test_without_its_library_each_names_the_extra(module: str, name: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"from aiocosid.converter import {name}\n"
        "from aiocosid.errors import MissingExtraError\n"
        f"try: {name}()\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "aiocosid[formats]" in done.stdout
