"""`TypedId` and 64-bit ids at the boundary of each framework: text out, the prefix checked in."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter, ValidationError

from aiocosid.abc import MAX_ID
from aiocosid.converter import Int64Text, TypedId
from aiocosid.integrations.msgspec import dec_hook, enc_hook, schema_hook
from tests.script import run_python


class OrderId(TypedId, prefix="ord"):
    """Of an order."""


class CustomerId(TypedId, prefix="cus"):
    """Of a customer."""


ORDER = OrderId(MAX_ID)
CUSTOMER = CustomerId(7)

# pydantic


class Order(BaseModel):
    id: OrderId
    customer: CustomerId | None = None
    number: Int64Text = Int64Text(1)


def test_pydantic_writes_the_text_in_both_modes() -> None:
    order = Order(id=ORDER, customer=CUSTOMER)
    text = '{"id":"ord_7zzzzzzzzzzzz","customer":"cus_0000000000007","number":"1"}'
    assert order.model_dump_json() == text
    assert json.loads(json.dumps(order.model_dump())) == json.loads(text)
    again = Order.model_validate_json(text)
    assert (type(again.id), int(again.id)) == (OrderId, MAX_ID)
    assert TypeAdapter(dict[OrderId, int]).dump_json({ORDER: 1}) == b'{"ord_7zzzzzzzzzzzz":1}'


@pytest.mark.parametrize("wrong", [str(CUSTOMER), CUSTOMER, 7, "7", None, "ord_7"])
def test_pydantic_refuses_what_has_no_such_prefix(wrong: Any) -> None:
    with pytest.raises(ValidationError, match=r"OrderId must be .*'ord_") as caught:
        Order(id=wrong)
    assert [each["type"] for each in caught.value.errors()] == ["id_text"]


def test_pydantic_reads_digits_and_numbers_of_a_decimal_id() -> None:
    number = TypeAdapter(Int64Text)
    for given in ("42", 42):
        assert number.validate_python(given, strict=True) == "42"
    assert number.validate_json("42", strict=True) == number.validate_json('"42"') == "42"
    assert number.json_schema() == {
        "type": "string",
        "format": "int64",
        "pattern": "^(?:0|[1-9][0-9]{0,18})$",
        "examples": ["42"],
    }
    assert Order.model_validate(SimpleNamespace(id=ORDER, number=7), from_attributes=True) == Order(
        id=ORDER, number=Int64Text(7)
    )
    with pytest.raises(ValidationError, match="the decimal digits") as caught:
        number.validate_python("no{thing}")
    json.dumps(caught.value.errors())  # FastAPI has to


def test_pydantic_describes_the_text() -> None:
    for mode in ("validation", "serialization"):
        described = Order.model_json_schema(mode=mode)["properties"]
        assert described["id"] == {
            "examples": ["ord_000000000001a"],
            "pattern": "^(?:ord_[0-7][0123456789abcdefghjkmnpqrstvwxyz]{12})$",
            "title": "Id",
            "type": "string",
        }


async def test_fastapi_reads_it_from_a_path_and_answers_text_without_a_model() -> None:
    """An endpoint that returns a dict is where an `int` would come out as a number."""
    app = FastAPI()

    @app.get("/orders/{order_id}")
    def read(order_id: OrderId) -> Any:
        return {"id": order_id}

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        assert (await client.get(f"/orders/{ORDER}")).text == '{"id":"ord_7zzzzzzzzzzzz"}'
        answer = await client.get(f"/orders/{CUSTOMER}")
    assert answer.status_code == 422
    assert "must be a string that starts with 'ord_'" in answer.json()["detail"][0]["msg"]


# msgspec


class Struct(msgspec.Struct):
    id: OrderId
    customer: CustomerId | None = None
    number: Int64Text | None = None


def test_msgspec_writes_and_reads_the_text() -> None:
    encoder = msgspec.json.Encoder(enc_hook=enc_hook)
    decoder = msgspec.json.Decoder(Struct, dec_hook=dec_hook)
    written = encoder.encode(Struct(ORDER, CUSTOMER, Int64Text(1)))
    assert written == b'{"id":"ord_7zzzzzzzzzzzz","customer":"cus_0000000000007","number":"1"}'
    read = decoder.decode(written)
    assert read == Struct(ORDER, CUSTOMER, Int64Text(1))
    assert type(read.id) is OrderId


def test_msgspec_never_writes_a_number() -> None:
    """Without the hook it refuses."""
    with pytest.raises(TypeError, match="Encoding objects of type OrderId is unsupported"):
        msgspec.json.encode(Struct(ORDER))


@pytest.mark.parametrize("wrong", [b'"cus_0000000000007"', b"7", b"null"])
def test_msgspec_names_the_field_of_a_wrong_id(wrong: bytes) -> None:
    decoder = msgspec.json.Decoder(Struct, dec_hook=dec_hook)
    with pytest.raises(msgspec.ValidationError, match=r"OrderId must be .*`\$\.id`"):
        decoder.decode(b'{"id":%b}' % wrong)


def test_hooks_of_msgspec_leave_other_types_to_other_hooks() -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: enc_hook(object()),
        lambda: dec_hook(complex, "1"),
        lambda: schema_hook(complex),
    )
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()
    described = msgspec.json.schema(Struct, schema_hook=schema_hook)
    found = described["$defs"]["Struct"]["properties"]
    assert found["id"] == OrderId.json_schema()


# Django REST framework, whose settings are the process's

SERIALIZER = """
import json
import django
from django.conf import settings
settings.configure()
django.setup()
from aiocosid.converter import TypedId
from aiocosid.integrations.rest_framework import Int64StrField, TypedIdField
from rest_framework import serializers

class OrderId(TypedId, prefix="ord"): ...

class Serializer(serializers.Serializer):
    id = TypedIdField(OrderId)
    number = Int64StrField(required=False, allow_null=True)

def read(data):
    found = Serializer(data=data)
    if found.is_valid():
        return {name: repr(value) for name, value in found.validated_data.items()}
    return {name: str(error[0]) for name, error in found.errors.items()}
"""


def test_rest_framework_writes_the_text_of_an_id_or_its_number() -> None:
    given = "[{'id': OrderId(42), 'number': 2**63 - 1}, {'id': 42, 'number': None}]"
    first, second = run_python(
        f"{SERIALIZER}print(json.dumps(Serializer({given}, many=True).data))"
    )
    assert first == {"id": "ord_000000000001a", "number": str(MAX_ID)}
    assert second == {"id": "ord_000000000001a", "number": None}


def test_rest_framework_reads_the_text() -> None:
    good: list[Any] = [{"id": str(ORDER), "number": number} for number in (str(MAX_ID), MAX_ID)]
    wrong: list[Any] = [
        {"id": str(CUSTOMER)},
        {"id": 42},
        {"id": str(ORDER), "number": "007"},
        {"id": str(ORDER), "number": True},
    ]
    given = repr([*good, *wrong])
    found = run_python(f"{SERIALIZER}print(json.dumps([read(each) for each in {given}]))")
    assert found[:2] == [{"id": f"OrderId('{ORDER}')", "number": str(MAX_ID)}] * 2
    assert [list(each) for each in found[2:]] == [["id"], ["id"], ["number"], ["number"]]
    assert all("must be" in text for each in found[2:] for text in each.values())


def test_a_field_of_numbers_takes_a_typed_id() -> None:
    """Django's own: to store it, to look it up, and to clean a form."""
    code = (
        "from django.db import models\n"
        "field = models.BigIntegerField()\n"
        "found = [field.get_prep_value(OrderId(42)), field.clean(OrderId(42), None)]\n"
        "print(json.dumps(found))"
    )
    assert run_python(SERIALIZER + code) == [42, 42]
