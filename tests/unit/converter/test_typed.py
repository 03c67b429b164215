"""Ids with a prefix: one text for one id, never a number in JSON, never another class's."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sqlite3
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.abc import MAX_ID, GroupedId
from aiocosid.converter import (
    GroupedPrefixIdConverter,
    Int64Text,
    OpaqueIdConverter,
    PrefixIdConverter,
    Radix62IdConverter,
    ToStringIdConverter,
    TypedId,
)
from aiocosid.converter._pattern import pattern_of
from aiocosid.errors import InvalidArgumentError, InvalidIdError


class OrderId(TypedId, prefix="ord"):
    """Of an order."""


class CustomerId(TypedId, prefix="cus"):
    """Of a customer."""


class HiddenId(TypedId, prefix="hid", inner=OpaqueIdConverter(bytes(16))):
    """That tells nothing."""


class CodeId(TypedId, inner=Radix62IdConverter()):
    """With a converter alone."""


class SafeId(Int64Text, max_id=2**53 - 1):
    """That JavaScript reads as a number."""


class OldOrderId(OrderId):
    """With its parent's prefix."""


FAMILY: Any = TypedId  # checkers take the text for an annotation
KINDS: list[type[TypedId]] = [OrderId, HiddenId, CodeId, OldOrderId, Int64Text, FAMILY["ord"]]


@given(st.integers(0, MAX_ID))
def test_text_and_number_belong_together(number: int) -> None:
    for kind in KINDS:
        made = kind(number)
        assert int(made) == number
        assert kind(str(made)) == made
        assert kind.parse(str(made)) == made
        assert re.fullmatch(kind.pattern, made)
        assert json.loads(json.dumps({"id": made})) == {"id": str(made)}
        assert (f"{made}", type(str(made))) == (str(made), str)
        assert kind.converter.as_str(number) == made


@given(st.integers(0, MAX_ID), st.integers(0, MAX_ID))
def test_texts_of_a_class_sort_like_numbers(one: int, other: int) -> None:
    assert (OrderId(one) < OrderId(other)) is (one < other)


def test_the_text() -> None:
    """The prefix of TypeID, and half of its digits: 17 characters."""
    assert str(OrderId(42)) == "ord_000000000001a"
    assert str(OrderId(MAX_ID)) == "ord_7zzzzzzzzzzzz"
    assert str(Int64Text(MAX_ID)) == "9223372036854775807"
    assert repr(OrderId(42)) == "OrderId('ord_000000000001a')"
    assert repr(FAMILY["cus"](42)) == "TypedId[\"cus\"]('cus_000000000001a')"
    assert OldOrderId.converter == PrefixIdConverter("ord_", OrderId.converter.inner)  # type: ignore[attr-defined]


def test_ids_of_two_prefixes_are_never_equal() -> None:
    """Nor is an id its number; it is its text."""
    other: TypedId = CustomerId(1)  # mypy would see it
    assert OrderId(1) != other
    assert len({OrderId(1), CustomerId(1), OldOrderId(1)}) == 2
    number: Any = 1
    assert OrderId(1) != number
    assert {str(OrderId(1)): "found"}[OrderId(1)] == "found"


def test_a_wrong_text_says_what_was_expected_and_given() -> None:
    for wrong, said in {
        "cus_1": "OrderId must be a string that starts with 'ord_', not 'cus_1'",
        "order_0000000000001": "a string that starts with 'ord_'",
        "ord_1": "a complete text such as 'ord_000000000001a'",
        "ord_000000000001A": "a complete text",
        "ord_000000000001i": "a complete text",
        "ord_8000000000000": "for a number up to 9223372036854775807",
        "ord_": "a complete text",
        "": "starts with 'ord_'",
        -1: "from 0 to 9223372036854775807",
        MAX_ID + 1: "from 0 to 9223372036854775807",
        True: "not True",
        1.5: "a string or an integer",
        None: "a string or an integer",
        b"ord_0000000000001": "a string or an integer",
    }.items():
        with pytest.raises(InvalidIdError, match=re.escape(said)) as caught:
            OrderId(wrong)  # type: ignore[arg-type]
        assert caught.value.argument == "OrderId"
    with pytest.raises(InvalidIdError, match="starts with 'ord_'"):
        OrderId(CustomerId(1))


@pytest.mark.parametrize("text", ["-1", "007", " 7", "7.0", "", "9223372036854775808", "\u0667"])
def test_a_decimal_text_has_one_form(text: str) -> None:
    with pytest.raises(InvalidIdError, match=r"a complete text such as '42'|the decimal digits"):
        Int64Text(text)


def test_a_number_from_outside_is_its_digits() -> None:
    for good in (0, 1, "0", "42", MAX_ID, str(MAX_ID)):
        assert Int64Text.parse(good) == str(good)
    for wrong in (True, 1.5, None, b"1", -1, MAX_ID + 1, str(MAX_ID + 1)):
        with pytest.raises(InvalidIdError):
            Int64Text.parse(wrong)


def test_a_class_may_have_a_limit() -> None:
    """In numbers and texts; its children have it too."""
    assert (SafeId(2**53 - 1), SafeId("9007199254740991")) == ("9007199254740991",) * 2
    for wrong in (2**53, "9007199254740992"):
        with pytest.raises(InvalidIdError, match="9007199254740991"):
            SafeId(wrong)

    class FewId(SafeId, prefix="few", max_id=7):
        pass

    assert (FewId(7), FewId.max_id, SafeId.max_id) == ("few_0000000000007", 7, 2**53 - 1)
    assert FewId.json_schema()["examples"] == ["few_0000000000007"]
    with pytest.raises(InvalidIdError, match="such as 'few_0000000000007', for a number up to 7"):
        FewId("few_0000000000008")
    for limit in (0, MAX_ID + 1, 1.5):
        with pytest.raises(InvalidArgumentError, match="max_id"):
            type("Own", (TypedId,), {}, prefix="own", max_id=limit)


def test_a_converter_alone_writes_the_text() -> None:
    assert (CodeId(42), CodeId.prefix, repr(CodeId(42))) == (
        "0000000000g",
        "",
        "CodeId('0000000000g')",
    )
    assert CodeId.json_schema() == {
        "type": "string",
        "pattern": "^(?:[0-9A-Za-z]{11})$",
        "examples": ["0000000000g"],
    }
    with pytest.raises(InvalidIdError, match="a complete text such as '0000000000g'"):
        CodeId("g")
    with pytest.raises(InvalidIdError, match="1 to 11 of the digits"):
        CodeId("!")
    with pytest.raises(InvalidIdError, match="a string such as '0000000000g'"):
        CodeId.parse(42)
    for wrong in ("62", Radix62IdConverter, 7):
        with pytest.raises(InvalidArgumentError, match=r"inner .* an IdConverter"):
            type("Own", (TypedId,), {}, inner=wrong)

    class ChildId(OrderId, inner=Radix62IdConverter()):
        pass

    assert (ChildId(42), ChildId.prefix) == ("0000000000g", "")


def test_an_id_keeps_the_group_that_its_text_has() -> None:
    class DayId(TypedId, inner=GroupedPrefixIdConverter(Radix62IdConverter())):
        pass

    made = DayId(GroupedId(42, "20260116"))
    assert (made, int(made), type(int(made))) == ("20260116-0000000000g", 42, int)
    assert DayId(str(made)) == copy.copy(made) == made
    assert DayId.json_schema() == {"type": "string", "pattern": "^(?:.+)$"}
    with pytest.raises(InvalidIdError, match="a GroupedId"):
        DayId(42)
    with pytest.raises(InvalidIdError, match=r"must be a string, not 42$"):
        DayId.parse(42)


def test_a_sign_makes_no_id() -> None:
    """`ToStringIdConverter` reads one, as CosId does."""
    for inner, text in (
        (ToStringIdConverter(), "-5"),
        (GroupedPrefixIdConverter(ToStringIdConverter(), "_"), "20260116_-5"),
        (PrefixIdConverter("o", ToStringIdConverter()), "o-5"),
    ):
        kind: Any = type("Own", (TypedId,), {}, inner=inner)
        with pytest.raises(InvalidIdError):
            kind(text)


def test_a_known_converter_is_described() -> None:
    radix = {"kind": "Radix62IdConverter", "radix": 62, "charSize": 11, "padStart": True}
    short = {**radix, "radix": 36, "charSize": 13, "padStart": False}
    decimal = {"kind": "ToStringIdConverter", "padStart": True, "charSize": 8}
    for tree, pattern in (
        (radix, "[0-9A-Za-z]{11}"),
        (short, "[0-9A-Z]{1,13}"),
        (decimal, "[0-9]{8,}"),
        ({**decimal, "padStart": False}, "[0-9]{1,19}"),
        ({"prefix": "o.", "actual": {"suffix": "-x", "actual": decimal}}, r"o\.[0-9]{8,}-x"),
        ({"prefix": "o", "actual": {"kind": "Hex"}}, None),
        ({"radix": 32, "charSize": 13, "padStart": True}, None),
    ):
        assert pattern_of(tree) == pattern


def test_a_number_from_outside_is_refused() -> None:
    """It does not say what it is an id of."""
    for wrong in (5, None, 5.0, ["ord_0000000000001"]):
        with pytest.raises(InvalidIdError, match="a string such as 'ord_000000000001a'"):
            OrderId.parse(wrong)


def test_an_id_is_made_of_what_generators_give() -> None:
    grouped = OrderId(GroupedId(7, "2026"))
    assert (type(int(grouped)), int(grouped)) == (int, 7)
    made = OrderId(1)
    assert OrderId(made) is made
    assert type(OldOrderId(made)) is OldOrderId


def test_copies_and_pickles_are_the_same_id() -> None:
    for kind in KINDS:
        made = kind(5)
        for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301 - our own
            assert (again, type(again), int(again)) == (made, kind, 5)


def test_the_class_of_a_prefix_is_one() -> None:
    """And another one of another parent."""
    assert FAMILY["ord"] is FAMILY["ord"] is not FAMILY["cus"]
    assert issubclass(FAMILY["ord"], TypedId)
    assert not issubclass(FAMILY["ord"], OrderId)
    assert FAMILY["ord"](1) == OrderId(1)


@pytest.mark.parametrize("prefix", ["", "Ord", "_ord", "ord_", "o1", "a" * 64, 7, None])
def test_a_prefix_is_one_of_typeid(prefix: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="letters from a to z") as caught:
        FAMILY[prefix]
    assert caught.value.argument == "prefix"
    if prefix is not None:
        with pytest.raises(InvalidArgumentError, match="letters from a to z"):
            type("Own", (TypedId,), {}, prefix=prefix)


def test_a_class_needs_a_prefix() -> None:
    """When an id is made: a parent of classes may have none."""

    class AppId(TypedId):
        @property
        def link(self) -> str:
            return f"/{self.prefix}/{self}"

    class PageId(AppId, prefix="page"):
        pass

    assert PageId(1).link == "/page/page_0000000000001"
    for kind in (TypedId, AppId):
        with pytest.raises(InvalidArgumentError, match=f"OrderId\\({kind.__name__}, prefix='ord'"):
            kind(1)


def test_sqlite_stores_the_number() -> None:
    """Without SQLAlchemy too; its own adaptation would store the text."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.execute("INSERT INTO orders VALUES (?)", (OrderId(42),))
        where = "SELECT id, typeof(id) FROM orders WHERE id = ?"
        assert connection.execute(where, (OrderId(42),)).fetchall() == [(42, "integer")]
    connection.close()


def test_dataclasses_and_attrs_have_text_in_json() -> None:
    """Attrs reads it by its converter."""

    @dataclass
    class Order:
        id: OrderId

    @attrs.define
    class Bill:
        id: OrderId = attrs.field(converter=OrderId)

    assert json.dumps(asdict(Order(OrderId(42)))) == '{"id": "ord_000000000001a"}'
    assert json.dumps(attrs.asdict(Bill(42))) == '{"id": "ord_000000000001a"}'
    with pytest.raises(InvalidIdError, match="starts with 'ord_'"):
        Bill("cus_000000000001a")


def test_no_framework_is_loaded() -> None:
    code = (
        "import sys; from aiocosid.converter import TypedId; TypedId['ord'](1)\n"
        "print(sys.modules.keys() & {'pydantic', 'pydantic_core', 'sqlalchemy', 'msgspec', 'ulid'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
