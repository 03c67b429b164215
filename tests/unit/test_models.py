"""Ids on models: which field is the id, what is empty, and one batch for each generator."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NewType, TypeVar

import attrs
import msgspec
import pydantic
import pytest
import pytest_asyncio
from sqlalchemy import BigInteger
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import aiocosid
from aiocosid import CosIdGenerator, IdProvider, SegmentChainId
from aiocosid.abc import SHARE
from aiocosid.converter import TypedId
from aiocosid.errors import ClosedError, InvalidArgumentError, InvalidIdError, NotOpenError
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.provider.models import GeneratedId, _fields, cosid, ensure_ids, id_fields
from aiocosid.provider.models._fields import annotations_of
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import GatedDistributor, settle

T = TypeVar("T")
OrderId = Annotated[int, GeneratedId("order")]
Number = NewType("Number", int)


@dataclass
class Order:
    id: Annotated[int, GeneratedId("order")] = 0


@dataclass(slots=True)
class Slotted:
    id: Annotated[int | None, GeneratedId("order")] = None


@dataclass
class Late:
    title: str
    id: OrderId = dataclasses.field(init=False)


@dataclass
class Special(Order):
    kind: ClassVar[str] = "special"
    title: str = ""


@dataclass
class Renamed(Order):
    id: Annotated[int, GeneratedId("item")] = 0


@dataclass
class Unmarked(Order):
    id: int = 0


@dataclass
class Entity(Generic[T]):
    id: Annotated[T, GeneratedId("order")] | None = None


@dataclass
class Named(Entity[T]):
    pass


@dataclass
class Numbered(Named[int]):
    id_of_parent: Annotated[int, "no mark of ours"] = 0


class Loose(pydantic.BaseModel):
    id: OrderId | None = None


class Strict(pydantic.BaseModel, validate_assignment=True):
    id: Annotated[int, pydantic.Field(ge=0), GeneratedId("order")] = 0


class Document(pydantic.BaseModel, Generic[T]):
    id: Annotated[T | None, GeneratedId("order")] = None


class Struct(msgspec.Struct):
    id: OrderId = 0


@attrs.define
class Attrs:
    id: OrderId = 0


class Plain:
    """Anything with an annotation."""

    id: Annotated[Number, GeneratedId("order")]


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "row"

    id: Mapped[Annotated[int, GeneratedId("order")]] = mapped_column(BigInteger, primary_key=True)


MODELS: list[Any] = [
    *(Order, Slotted, Special, Numbered, Loose, Strict, Document[int], Struct, Attrs, Plain, Row),
]


@pytest_asyncio.fixture
async def ids() -> AsyncIterator[IdProvider]:
    """Counters "order" and "item", each from 1 on, as the default provider."""
    async with aiocosid.connect(MemoryStore()) as ids:
        await ids.segment_chain("order")
        await ids.segment_chain("item")
        with aiocosid.use_provider(ids):
            yield ids


class Texts(dict[str, Any]):
    """A provider with one generator of texts."""

    def statistics(self) -> dict[str, dict[str, Any]]:
        return {}


@cosid("order")
@dataclass(slots=True)
class NamedOrder:
    id: int = 0


@cosid("order", field="number")
class NamedPydantic(pydantic.BaseModel, validate_assignment=True):
    id: str = "kept"
    number: int | None = None


@cosid("order")
class NamedStruct(msgspec.Struct):
    id: int = 0


@cosid("order")
@attrs.define
class NamedAttrs:
    id: int = 0


@cosid("order")
class NamedPlain:
    """Anything with an annotation."""

    id: int


@cosid("order")
class NamedRow(Base):
    __tablename__ = "named_row"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)


class Inheriting(NamedPlain):
    """Has its base's mark."""


@cosid("item")
class Other(NamedPlain):
    """Has a mark of its own."""


async def test_a_class_names_its_generator(ids: IdProvider) -> None:
    """As CosId's annotation of a class does; nothing of the class changes."""
    models: list[Any] = [NamedOrder, NamedStruct, NamedAttrs, NamedPlain, NamedRow, Inheriting]
    objects = [*(model() for model in models), NamedPydantic()]
    assert await ensure_ids([*objects, Other()]) == len(objects) + 1
    assert [each.id for each in objects[:-1]] == list(range(1, len(objects)))
    assert (objects[-1].id, objects[-1].number) == ("kept", len(objects))
    assert [field.annotation.name for field in id_fields(Other)] == ["item"]
    assert await ensure_ids(objects) == 0


def test_a_class_that_names_no_field() -> None:
    """A misspelt field is refused at once; a wrong type or another mark as on the field itself."""
    with pytest.raises(
        InvalidArgumentError,
        match=r"field must be an annotated field of .*Item .*number.*, not 'id'",
    ):

        @cosid("order")
        class Item:
            number: int = 0

    @cosid("item")
    @dataclass
    class Both:
        id: OrderId = 0

    with pytest.raises(InvalidArgumentError, match="has several names or shards"):
        id_fields(Both)

    @cosid("order")
    @dataclass
    class Wrong:
        id: float = 0

    with pytest.raises(InvalidArgumentError, match="on a field of type int, str or a TypedId"):
        id_fields(Wrong)


async def test_every_kind_of_model_gets_its_ids_in_order(ids: IdProvider) -> None:
    """Dataclasses, pydantic, attrs, msgspec, SQLAlchemy and plain classes, in one batch."""
    objects = [*(model() for model in MODELS), Late("x")]
    assert await ensure_ids(objects) == len(objects)
    assert [each.id for each in objects] == list(range(1, len(objects) + 1))


async def test_only_empty_ids_are_filled(ids: IdProvider) -> None:
    """None and what is not positive is empty; an object given twice gets one id."""
    orders = [Order(7), Order(0), Order(-1), Slotted(None), Slotted(1)]
    assert await ensure_ids(iter([*orders, orders[1]])) == 3
    assert orders == [Order(7), Order(1), Order(2), Slotted(3), Slotted(1)]
    assert await ensure_ids(orders) == 0
    assert await ensure_ids([]) == 0


async def test_one_batch_for_each_generator(ids: IdProvider) -> None:
    """Mixed classes; the nearest definition of a field names its generator."""
    orders, items = [Order() for _ in range(1500)], [Renamed() for _ in range(3)]
    assert await ensure_ids([*orders[:700], *items, *orders[700:]]) == 1503
    assert [each.id for each in orders] == list(range(1, 1501))
    assert [each.id for each in items] == [1, 2, 3]


async def test_one_object_needs_no_list(ids: IdProvider) -> None:
    """Also one that is iterable itself, as pydantic's models are; and another provider."""
    assert (await ensure_ids(one := Loose()), one.id) == (1, 1)
    async with aiocosid.connect(MemoryStore()) as other:
        await other.segment_chain("order")
        assert (await ensure_ids(two := Order(), other), two.id) == (1, 1)


async def test_texts_come_from_a_generator_of_texts(ids: IdProvider, tmp_path: Path) -> None:
    """And a generator of the other type is refused before an id is taken."""

    @dataclass
    class Ticket:
        id: Annotated[str, GeneratedId("ticket")] = ""

    @dataclass
    class Wrong:
        id: Annotated[str | None, GeneratedId("order")] = None

    async with CosIdGenerator(ManualMachineIdDistributor(1, state_dir=tmp_path)) as tickets:
        provider = Texts(ticket=tickets, order=tickets)
        some = [Ticket(), Ticket("kept"), Ticket()]
        assert await ensure_ids(some, provider) == 2
        assert some[0].id < some[2].id
        assert some[1].id == "kept"
        with pytest.raises(
            InvalidArgumentError, match=r"Order\.id .* IdGenerator, .*the field has int"
        ):
            await ensure_ids(Order(), provider)
    with pytest.raises(
        InvalidArgumentError, match=r"Wrong\.id .* TextIdGenerator, .*the field has str"
    ):
        await ensure_ids([Order(), Wrong()])
    assert (await ids.segment_chain("order")).statistics().ids_handed_out == 0


def test_the_wrong_marks_are_refused_with_class_and_fields() -> None:
    """Two ids, also one of a base; another type; what cannot be assigned to."""

    @dataclass
    class Two:
        id: Annotated[int, GeneratedId("order")] = 0
        number: Annotated[str, GeneratedId("number")] = ""

    @dataclass
    class Second(Order):
        number: OrderId = 0

    @dataclass
    class Double:
        id: Annotated[OrderId, GeneratedId("item")] = 0

    @dataclass
    class Amount:
        id: Annotated[float, GeneratedId("order")] = 0

    @dataclass
    class Either:
        id: Annotated[int | str, GeneratedId("order")] = 0

    for model, said in {
        Two: r"Two \['id', 'number'\] is on several fields; mark only one",
        Second: r"Second \['id', 'number'\] is on several fields; mark only one",
        Double: r"Double\.id \['item', 'order'\] has several names",
        Amount: r"Amount\.id must be on a field of type int, str .* not <class 'float'>",
        Either: r"Either\.id must be .*int, str",
        Entity: r"Entity\.id must be .*int, str.*~T",
    }.items():
        with pytest.raises(InvalidArgumentError, match=said):
            id_fields(model)


class TypedOrderId(TypedId, prefix="ord"):
    pass


TypedMark = Annotated[TypedOrderId, GeneratedId("order")]


@dataclass
class TypedOrder:
    id: TypedMark | None = None


class TypedModel(pydantic.BaseModel, validate_assignment=True):
    id: Annotated[TypedOrderId | None, GeneratedId("order")] = None


class TypedStruct(msgspec.Struct):
    id: TypedMark | None = None


@attrs.define
class TypedAttrs:
    id: TypedMark | None = attrs.field(
        default=None, converter=attrs.converters.optional(TypedOrderId)
    )


async def test_a_typed_id_is_made_of_a_number(ids: IdProvider) -> None:
    """In every kind of model, and also of a text that its own converter has written."""
    objects: list[Any] = [TypedOrder(), TypedModel(), TypedStruct(), TypedAttrs()]
    assert await ensure_ids(objects) == 4
    assert [each.id for each in objects] == [TypedOrderId(number) for number in (1, 2, 3, 4)]
    assert {type(each.id) for each in objects} == {TypedOrderId}
    assert await ensure_ids(objects) == 0
    inner = SegmentChainId(MemoryStore().segment_distributor(name="text"))
    async with aiocosid.StringIdGenerator(inner, TypedOrderId.converter) as texts:
        await ensure_ids(order := TypedOrder(), Texts(order=texts))
        assert repr(order.id) == "TypedOrderId('ord_0000000000001')"


async def test_a_text_of_another_class_leaves_typed_objects_as_they_were() -> None:
    class OtherId(TypedId, prefix="cus"):
        pass

    inner = SegmentChainId(MemoryStore().segment_distributor(name="text"))
    async with aiocosid.StringIdGenerator(inner, OtherId.converter) as texts:
        with pytest.raises(InvalidIdError, match="starts with 'ord_'"):
            await ensure_ids(order := TypedOrder(), Texts(order=texts))
    assert order.id is None


async def test_what_is_frozen_is_refused_before_an_id_is_taken(ids: IdProvider) -> None:
    @dataclass(frozen=True)
    class Frozen:
        id: OrderId = 0

    class FrozenModel(pydantic.BaseModel, frozen=True):
        id: OrderId = 0

    class FrozenField(pydantic.BaseModel):
        id: Annotated[OrderId, pydantic.Field(frozen=True)] = 0

    class FrozenStruct(msgspec.Struct, frozen=True):
        id: OrderId = 0

    @attrs.frozen
    class FrozenAttrs:
        id: OrderId = 0

    class Pair(NamedTuple):
        id: OrderId = 0

    marked = {"id": OrderId}
    read_only = type("R", (), {"id": property(lambda _: 0), "__annotations__": marked})
    kinds: list[Any] = [
        Frozen,
        FrozenModel,
        FrozenField,
        FrozenStruct,
        FrozenAttrs,
        Pair,
        read_only,
    ]
    for model in kinds:
        with pytest.raises(
            InvalidArgumentError, match=r"\.id requires a field that can be assigned to"
        ):
            await ensure_ids([Order(), model()])
    assert (await ids.segment_chain("order")).statistics().ids_handed_out == 0


async def test_a_class_without_an_id_is_a_mistake(ids: IdProvider) -> None:
    """Forgotten marks would go unnoticed else; what cannot be resolved is named."""

    class Local:
        pass

    @dataclass
    class Hidden:
        title: str
        id: Annotated[Local, GeneratedId("order")]

    class Empty(pydantic.BaseModel):
        title: str = ""

    for wrong in (Unmarked(), [Order(), object()], 7, "text", {"id": 0}):
        with pytest.raises(InvalidArgumentError, match=r"a field annotated GeneratedId, not <"):
            await ensure_ids(wrong)
    with pytest.raises(InvalidArgumentError, match=r"must be of a class .* not <class '.*Empty'>"):
        await ensure_ids(Empty())  # iterable, but one object
    with pytest.raises(InvalidArgumentError, match=r"name unknown types: id$"):
        await ensure_ids(Hidden("x", Local()))


async def test_the_provider_has_to_be_there_and_know_the_name() -> None:
    with pytest.raises(NotOpenError, match="use_provider"):
        await ensure_ids(Order())
    async with aiocosid.connect(MemoryStore()) as ids:
        with pytest.raises(InvalidArgumentError, match="'order'"):
            await ensure_ids(Order(), ids)


async def test_a_cancelled_call_leaves_all_objects_as_they_were() -> None:
    """Also those whose generator had answered; what somebody else fills meanwhile stays."""
    async with aiocosid.connect(MemoryStore()) as others:
        await others.segment_chain("item")
        store = MemoryStore().segment_distributor(namespace="n", name="order", offset=0, step=10)
        gated = GatedDistributor(store)
        gated.open()
        async with SegmentChainId(gated) as chain:
            provider = Texts(order=chain, item=others["item"])
            objects: list[Any] = [Renamed(), *(Order() for _ in range(100))]
            gated.close()
            call = asyncio.create_task(ensure_ids(objects, provider))
            await settle()
            call.cancel()
            await asyncio.wait([call])
            assert {each.id for each in objects} == {0}
            call = asyncio.create_task(ensure_ids(objects, provider))
            await settle()
            objects[5].id = 4711
            gated.open()
            assert await call == 100
            assert objects[5].id == 4711
            assert len({each.id for each in objects[1:]}) == 100


async def test_a_failing_generator_changes_nothing(ids: IdProvider) -> None:
    """Its error comes through; the ids that another one gave already are a gap."""
    await ids["item"].aclose()
    objects = [Order(), Renamed()]
    with pytest.raises(ClosedError):
        await ensure_ids(objects)
    assert [each.id for each in objects] == [0, 0]


async def test_a_model_that_refuses_its_id_leaves_all_as_they_were(ids: IdProvider) -> None:
    """Whoever has one already loses it again; what was not set at all is not set then."""

    class Narrow(pydantic.BaseModel, validate_assignment=True):
        id: Annotated[int, pydantic.Field(gt=0, le=7), GeneratedId("order")] = 0

    plain, late, row, struct = Plain(), Late("x"), Row(), Struct()
    objects: list[Any] = [plain, late, row, struct, *(Narrow() for _ in range(5))]
    with pytest.raises(
        InvalidArgumentError, match=r"Narrow\.id must be an id that the model accepts, not 8"
    ) as caught:
        await ensure_ids(objects)
    assert isinstance(caught.value.__cause__, pydantic.ValidationError)
    assert [each for each in objects if getattr(each, "id", None)] == []
    assert "id" not in vars(plain) | vars(late) | vars(row)
    assert not any(each.model_fields_set for each in objects[4:])
    objects[4:] = [Strict() for _ in range(5)]
    assert await ensure_ids(objects) == 9


async def test_the_loop_turns_while_many_objects_get_their_ids(ids: IdProvider) -> None:
    """While they are looked at and while ids are assigned; a call cancelled there undoes them."""
    turns: list[tuple[int, bool]] = []
    orders = [Order() for _ in range(3000)]

    async def count() -> None:
        while True:
            turns.append((orders[0].id, orders[-1].id > 0))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await ensure_ids(orders) == 3000
    assert len([turn for turn in turns if turn == (0, False)]) >= 3
    assert len([turn for turn in turns if turn == (1, False)]) >= 2

    orders[:] = [Order() for _ in range(3000)]
    call = asyncio.create_task(ensure_ids(orders))
    while not orders[0].id:  # noqa: ASYNC110 - the turn in the middle is to be met
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    counting.cancel()
    assert call.cancelled()
    assert {each.id for each in orders} == {0}


async def test_a_class_with_unknown_names_is_looked_through_once(
    ids: IdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as its id is found; without one it is looked at again, as names may come to be."""

    @dataclass
    class Guest:
        host: NotYet | None = None  # type: ignore[name-defined]  # noqa: F821
        id: OrderId = 0

    seen: list[type] = []

    def noting(model: type) -> Any:
        seen.append(model)
        return annotations_of(model)

    monkeypatch.setattr(_fields, "annotations_of", noting)
    assert await ensure_ids([Guest() for _ in range(5)]) == 5
    assert await ensure_ids([Guest(), Guest()]) == 2
    assert seen.count(Guest) == 1


def test_a_class_is_looked_through_once_and_not_kept() -> None:
    @dataclass
    class Gone:
        id: OrderId = 0

    assert id_fields(Gone) is id_fields(Gone)
    seen = weakref.ref(Gone)
    del Gone
    gc.collect()
    assert seen() is None


def test_other_annotations_do_not_disturb() -> None:
    @dataclass
    class Full:
        limit: ClassVar[int] = 3
        hint: dataclasses.InitVar[int] = 0
        parts: list[OrderId] = dataclasses.field(default_factory=list)
        names: dict[str, Any] = dataclasses.field(default_factory=dict)
        id: OrderId = 0

    (found,) = id_fields(Full)
    assert (found.attribute, found.kind, found.annotation) == ("id", int, GeneratedId("order"))
    assert GeneratedId().name == SHARE
