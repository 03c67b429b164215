"""Ids as text: what is read, what is written, and how it is described."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from aiocosid.abc import MAX_ID, GroupedId, IdConverter
from aiocosid.converter import (
    GroupedPrefixIdConverter,
    OpaqueIdConverter,
    PrefixIdConverter,
    Radix62IdConverter,
    ToStringIdConverter,
)
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.integrations.pydantic import ConvertedId, Int64Str

RADIX = Radix62IdConverter()


class Hex(IdConverter):
    """A stranger's converter: four hexadecimal digits."""

    def as_str(self, new_id: int, /) -> str:
        if new_id > 0xFFFF:
            raise InvalidIdError("id", new_id, expected="at most 65535")
        return f"{new_id:04x}"

    def as_int(self, text: str, /) -> int:
        try:
            return int(text, 16)
        except ValueError:
            raise InvalidIdError("id", text, expected="four {hexadecimal} digits") from None


class Described(Hex):
    """One that says about itself what CosId's do."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree

    def as_tree(self) -> dict[str, Any]:
        return self.tree


class Order(BaseModel):
    id: Int64Str
    parent: Int64Str | None = None


HexId = Annotated[int, ConvertedId(Hex())]
NUMBER = TypeAdapter(Int64Str)


def errors(adapter: TypeAdapter[Any], value: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(value)
    return [each["type"] for each in caught.value.errors()]


def test_an_id_is_a_string_in_json_and_an_int_in_python() -> None:
    order = Order(id=MAX_ID)
    assert order.model_dump() == {"id": MAX_ID, "parent": None}
    assert order.model_dump_json() == '{"id":"9223372036854775807","parent":null}'
    assert Order.model_validate_json('{"id":"9223372036854775807","parent":7}') == Order(
        id=MAX_ID, parent=7
    )


def test_one_id_has_one_text() -> None:
    for good in (0, 1, "0", "42", MAX_ID, str(MAX_ID)):
        assert NUMBER.validate_python(good) == int(good)
    for bad in (
        "",
        "-1",
        "+1",
        " 1",
        "1 ",
        "01",
        "1_0",
        "1.0",
        "1e3",
        "0x1",
        "1\n",
        "\u0661",
        "9" * 5000,
    ):
        assert errors(NUMBER, bad) == ["int64_text"], bad
    others: dict[object, str] = {
        **dict.fromkeys((True, 1.5, None, b"1", (1,)), "int_type"),
        **dict.fromkeys((MAX_ID + 1, str(MAX_ID + 1)), "less_than_equal"),
        -1: "greater_than_equal",
    }
    for other, kind in others.items():
        assert errors(NUMBER, other) == [kind], other


def test_strict_models_read_the_string_as_well() -> None:
    assert NUMBER.validate_python("42", strict=True) == 42
    assert NUMBER.validate_json('"42"', strict=True) == 42


def test_it_may_be_narrowed() -> None:
    positive = TypeAdapter[int](Annotated[Int64Str, Field(gt=0)])
    assert positive.validate_python("1") == 1
    assert errors(positive, "0") == ["greater_than"]


def test_it_is_described_as_a_string() -> None:
    for mode in ("validation", "serialization"):
        assert Order.model_json_schema(mode=mode)["properties"]["id"] == {
            "format": "int64",
            "pattern": "^(?:0|[1-9][0-9]{0,18})$",
            "title": "Id",
            "type": "string",
        }


def test_a_converters_text_in_json_and_an_int_in_python() -> None:
    ids = TypeAdapter[int](HexId)
    assert ids.validate_python("002a") == ids.validate_python(42) == 42
    assert ids.validate_json('"002a"') == 42
    assert (ids.dump_json(42), ids.dump_python(42)) == (b'"002a"', 42)
    for bad in (True, 1.0, None, b"002a"):
        assert errors(ids, bad) == ["id_text"], bad
    for bad in (-1, MAX_ID + 1):
        assert errors(ids, bad) == ["int64"], bad
    with pytest.raises(ValidationError, match="the text of an id"):
        ids.validate_json("42")  # a client's number is no id


def test_what_the_converter_refuses_is_a_validation_error_in_its_words() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter[int](HexId).validate_python("no{thing}")
    (error,) = caught.value.errors()
    assert error["type"] == "id_text"
    assert error["msg"] == "id is 'no{thing}'; it has to be four {hexadecimal} digits"
    json.dumps(error)  # FastAPI has to


def test_a_sign_makes_no_id() -> None:
    """ToStringIdConverter reads one, as CosId does."""
    for inner in (ToStringIdConverter(), GroupedPrefixIdConverter(ToStringIdConverter(), "_")):
        ids = TypeAdapter[int](Annotated[int, ConvertedId(inner)])
        for text in ("-5", "20260116_-5"):
            assert errors(ids, text) == ["id_text"]
    prefixed = ConvertedId(PrefixIdConverter("o", ToStringIdConverter()))
    assert errors(TypeAdapter[int](Annotated[int, prefixed]), "o-5") == ["id_text"]


def test_it_wants_a_converter() -> None:
    make: Any = ConvertedId
    for wrong in ("62", Radix62IdConverter, None):
        with pytest.raises(InvalidArgumentError, match=r"converter .* an IdConverter"):
            make(wrong)


def test_numbers_may_be_refused_in_python_too() -> None:
    opaque = TypeAdapter[int](Annotated[int, ConvertedId(Hex(), text_only=True)])
    assert opaque.validate_python("002a") == 42
    assert errors(opaque, 42) == ["id_text"]


def test_an_id_that_knows_its_group_stays_itself() -> None:
    read = TypeAdapter[int](HexId).validate_python(GroupedId(42, "20260116"))
    assert isinstance(read, GroupedId)


def test_cosids_converters() -> None:
    """The real ones, the group that an id knows among them; no example of an opaque text."""
    coded = TypeAdapter[int](Annotated[int, ConvertedId(PrefixIdConverter("o-", RADIX))])
    assert coded.json_schema()["pattern"] == "^o-[0-9A-Za-z]{11}$"
    assert coded.json_schema()["examples"] == ["o-0000000000g"]
    grouped = TypeAdapter[int](Annotated[int, ConvertedId(GroupedPrefixIdConverter(RADIX))])
    text = grouped.dump_json(grouped.validate_python(GroupedId(42, "20260116")))
    assert text == b'"20260116-0000000000g"'
    assert grouped.dump_json(grouped.validate_json(text)) == text
    opaque = TypeAdapter[int](Annotated[int, ConvertedId(OpaqueIdConverter(b"k" * 16))])
    assert opaque.validate_json(opaque.dump_json(42)) == 42
    assert opaque.json_schema() == {"type": "string"}


def test_a_known_converter_is_described() -> None:
    radix = {"kind": "Radix62IdConverter", "radix": 62, "charSize": 11, "padStart": True}
    short = {**radix, "radix": 36, "charSize": 13, "padStart": False}
    decimal = {"kind": "ToStringIdConverter", "padStart": True, "charSize": 8}
    for tree, pattern in (
        (radix, "^[0-9A-Za-z]{11}$"),
        (short, "^[0-9A-Z]{1,13}$"),
        (decimal, "^[0-9]{8,}$"),
        ({**decimal, "padStart": False}, "^[0-9]{1,19}$"),
        ({"prefix": "o.", "actual": {"suffix": "-x", "actual": decimal}}, r"^o\.[0-9]{8,}-x$"),
        ({"prefix": "o", "actual": {"kind": "Hex"}}, None),
        ({"kind": "JavaScriptSafeIdConverter", "actual": decimal}, "^[0-9]{8,}$"),
        ({"radix": 32, "charSize": 13, "padStart": True}, None),
    ):
        schema = TypeAdapter[int](Annotated[int, ConvertedId(Described(tree))]).json_schema()
        assert schema.get("pattern") == pattern
        assert schema.get("examples") == (pattern and ["002a"])
    assert TypeAdapter[int](HexId).json_schema() == {"type": "string"}
