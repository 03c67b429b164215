"""Ids in SQLAlchemy, on a SQLite file and on PostgreSQL."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    inspect,
    literal,
    select,
    update,
)
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    mapped_column,
    relationship,
)

import aiocosid
from aiocosid import SegmentChainId, SegmentId
from aiocosid.abc import IdConverter, IdGenerator, TextIdGenerator
from aiocosid.converter import TypedId
from aiocosid.errors import InvalidArgumentError, InvalidIdError, NotOpenError
from aiocosid.integrations.sqlalchemy import (
    SegmentPrimaryKey,
    SnowflakePrimaryKey,
    TextPrimaryKey,
    TypedIdType,
    assign_ids,
    assign_ids_before_flush,
    cosid_default,
)
from aiocosid.provider.models import GeneratedId, ensure_ids
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import GatedDistributor, WrappedDistributor

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


class Hex(IdConverter):
    """Ids as hexadecimal text."""

    def as_str(self, new_id: int, /) -> str:
        return f"x{new_id:x}"

    def as_int(self, text: str, /) -> int:
        if not text.startswith("x"):
            raise InvalidIdError("text", text, "must be a string that begins with x")
        return int(text[1:], 16)


class HexId(TypedId, inner=Hex()):
    """An id as hexadecimal text."""


class HexIds(TextIdGenerator):
    """Texts of another generator's ids."""

    def __init__(self, inner: IdGenerator) -> None:
        self.inner = inner

    async def next_id(self) -> str:
        return Hex().as_str(await self.inner.next_id())

    async def next_ids(self, n: int) -> list[str]:
        return Hex().convert_many(await self.inner.next_ids(n))

    def next_id_nowait(self) -> str:
        return Hex().as_str(self.inner.next_id_nowait())

    def statistics(self) -> Any:
        return self.inner.statistics()

    async def run(self, **_: Any) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


class Named(dict[str, Any]):
    """A provider."""

    def statistics(self) -> dict[str, dict[str, Any]]:
        return {}


class Base(DeclarativeBase):
    pass


class Order(SegmentPrimaryKey, Base):
    __tablename__ = "order"

    title: Mapped[str] = mapped_column(String(40), default="")
    items: Mapped[list[Item]] = relationship(back_populates="order")


class Item(SegmentPrimaryKey, Base):
    __tablename__ = "line"
    __cosid__ = "item"

    order_id: Mapped[int | None] = mapped_column(ForeignKey("order.id"))
    order: Mapped[Order | None] = relationship(back_populates="items")


class Event(SnowflakePrimaryKey, Base):
    __tablename__ = "event"

    note: Mapped[str] = mapped_column(default="")


class Ticket(TextPrimaryKey, Base):
    __tablename__ = "ticket"

    number: Mapped[int] = mapped_column(BigInteger, default=cosid_default("number"))
    note: Mapped[str] = mapped_column(default="")


class Marked(Base):
    """An id that only `ensure_ids` fills."""

    __tablename__ = "marked"

    id: Mapped[Annotated[int, GeneratedId("order")]] = mapped_column(BigInteger, primary_key=True)


class Public(Base):
    __tablename__ = "public"

    id: Mapped[str] = mapped_column(
        TypedIdType(HexId), primary_key=True, default=cosid_default("public")
    )
    parent: Mapped[str | None] = mapped_column(TypedIdType(HexId))


class Data(MappedAsDataclass, DeclarativeBase):
    pass


class Record(Data):
    __tablename__ = "record"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, init=False, insert_default=cosid_default("order")
    )
    title: Mapped[str] = mapped_column(default="")


on_both = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)


@pytest_asyncio.fixture
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """An empty database of the test's own."""
    url = f"sqlite+aiosqlite:///{tmp_path}/app.db"
    if getattr(request, "param", "") == "postgres":
        url = request.getfixturevalue("postgres_database").replace("://", "+asyncpg://")
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        await connection.run_sync(Data.metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
def sessions(engine: AsyncEngine) -> async_sessionmaker[Any]:
    return async_sessionmaker(engine, expire_on_commit=False)


class Asked:
    """A memory store's counters, and what was asked of them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.wrapped: dict[str, WrappedDistributor] = {}

    def __call__(self, name: str, step: int = 1) -> SegmentId:
        """A generator that asks once for each batch."""
        inner = self.store.segment_distributor(namespace="n", name=name, offset=0, step=step)
        self.wrapped[name] = WrappedDistributor(inner)
        return SegmentId(self.wrapped[name])

    def steps(self, name: str) -> list[int]:
        found = self.wrapped[name].steps
        self.wrapped[name].steps = []
        return found


@pytest_asyncio.fixture
async def asked() -> AsyncIterator[Asked]:
    """The default provider, all of whose generators have to be awaited for each id."""
    asked = Asked()
    names = ("order", "item", "number", "t", "p", "s")
    made = {name: asked(name) for name in names}
    async with made["order"], made["item"], made["number"], made["t"], made["p"], made["s"]:
        texts = {"ticket": HexIds(made["t"]), "public": HexIds(made["p"])}
        for name in names:
            asked.steps(name)
        with aiocosid.use_provider(Named(made | texts | {"__share__": made["s"]})):
            yield asked


@contextmanager
def statements(engine: AsyncEngine) -> Generator[list[tuple[str, bool]]]:
    """The statements sent, each with whether it was an executemany."""
    seen: list[tuple[str, bool]] = []

    def note(_c: Any, _cur: Any, text: str, _p: Any, _ctx: Any, many: bool) -> None:
        seen.append((text, many))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine.sync_engine, "before_cursor_execute", note)


@on_both
async def test_a_flush_awaits_the_generator(
    sessions: async_sessionmaker[Any], asked: Asked
) -> None:
    """One object, and several, whose ids come by one batch in the order they were added."""
    async with sessions() as session:
        session.add(one := Order())
        await session.flush()
        assert (one.id, asked.steps("order")) == (1, [1])
        orders = [Order(title=f"{n}") for n in range(1200)]
        session.add_all(orders)
        await session.commit()
        assert [each.id for each in orders] == list(range(2, 1202))
        assert asked.steps("order") == [1200]
        stored = (await session.execute(select(Order.id).order_by(Order.id))).scalars().all()
        assert stored == list(range(1, 1202))


async def test_an_id_in_hand_is_taken_without_waiting(sessions: async_sessionmaker[Any]) -> None:
    """And when none is, the flush waits for the store, with the loop free."""
    inner = MemoryStore().segment_distributor(namespace="n", name="order", offset=0, step=2)
    gated = GatedDistributor(inner)
    gated.let_through(2)
    async with SegmentChainId(gated, safe_distance=1) as chain:
        with aiocosid.use_provider(Named(order=chain)):
            async with sessions() as session:
                session.add_all(first := [Order(), Order(), Order()])
                await session.flush()
                assert [each.id for each in first] == [1, 2, 3]
                session.add_all(then := [Order() for _ in range(9)])
                flush = asyncio.create_task(session.flush())
                await gated.arrived(3)
                assert not flush.done()
                gated.open()
                await flush
                assert len({each.id for each in (*first, *then)}) == 12


@on_both
async def test_a_bulk_insert_takes_one_batch(
    engine: AsyncEngine, sessions: async_sessionmaker[Any], asked: Asked
) -> None:
    """By the ORM, by Core, with RETURNING, and as one statement with many VALUES."""
    rows = [{"title": f"{n}"} for n in range(1000)]
    async with sessions() as session:
        await session.execute(insert(Order), rows)
        back = await session.scalars(
            insert(Order).returning(Order.id, sort_by_parameter_order=True), rows
        )
        assert back.all() == list(range(1001, 2001))
        assert asked.steps("order") == [1000, 1000]
        await session.commit()
    async with engine.begin() as connection:
        await connection.execute(insert(Order), rows[:500])
        await connection.execute(insert(Order).values(rows[:3]))
        assert asked.steps("order") == [500, 1, 1, 1]
        assert len((await connection.execute(select(Order.id))).all()) == 2503
        # Given ids are kept; two columns have a batch each.
        await connection.execute(insert(Order), [{"id": 10_001}, {"id": 10_002}])
        await connection.execute(insert(Ticket), [{"note": "a"}, {"note": "b"}])
        assert (asked.steps("order"), asked.steps("t"), asked.steps("number")) == ([], [2], [2])
        assert (await connection.execute(select(Ticket.id, Ticket.number))).all() == [
            ("x1", 1),
            ("x2", 2),
        ]


async def test_two_columns_of_one_default_share_no_id(engine: AsyncEngine, asked: Asked) -> None:
    default = cosid_default("order")
    both = (Column(name, BigInteger, default=default) for name in ("a", "b"))
    table = Table("twice", MetaData(), *both, Column("n", BigInteger))
    async with engine.begin() as connection:
        await connection.run_sync(table.metadata.create_all)
        await connection.execute(table.insert(), [{"n": 1}, {"n": 2}, {"n": 3}])
        rows = (await connection.execute(select(table.c.a, table.c.b))).all()
    assert sorted(number for row in rows for number in row) == [1, 2, 3, 4, 5, 6]


async def test_an_insert_from_a_select_is_refused(engine: AsyncEngine, asked: Asked) -> None:
    """SQLAlchemy would ask for one id and write it into every row."""
    async with engine.begin() as connection:
        copied = insert(Ticket).from_select(["id", "note"], select(literal("a"), literal("b")))
        with pytest.raises(
            InvalidArgumentError, match=r"ticket\.number is required in INSERT \.\.\. SELECT"
        ):
            await connection.execute(copied)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_inserts_inside_of_a_statement(engine: AsyncEngine, asked: Asked) -> None:
    """One that copies rows is refused wherever it stands; beside it others get their ids."""
    refused = pytest.raises(
        InvalidArgumentError, match=r"ticket\.number is required in INSERT \.\.\. SELECT"
    )
    async with engine.begin() as connection:
        await connection.execute(insert(Order), [{"title": "a"}, {"title": "b"}])
        id_and_note = select(literal("c").concat(Order.title), Order.title)
        copied = insert(Ticket).from_select(["id", "note"], id_and_note)
        for statement in (
            select(copied.returning(Ticket.number).cte()),
            insert(Order).values(title="x").add_cte(copied.cte()),
        ):
            with refused:
                await connection.execute(statement)
        one = insert(Order).values(title="x").returning(Order.id).cte()
        from_one = insert(Item).from_select(["id", "order_id"], select(one.c.id, literal(1)))
        await connection.execute(from_one)
        assert (await connection.scalars(select(Item.id))).all() == [3]
        one = insert(Order).values(title="y").returning(Order.id).cte()
        renamed = (
            update(Item).where(Item.id == 3).values(order_id=select(one.c.id).scalar_subquery())
        )
        await connection.execute(renamed)
        assert (await connection.scalars(select(Item.order_id))).all() == [4]


async def test_an_update_is_refused(engine: AsyncEngine, asked: Asked) -> None:
    """SQLAlchemy would ask for one id and write it into every row."""
    column = Column("a", BigInteger, onupdate=cosid_default("order"))
    table = Table("changed", MetaData(), column, Column("n", BigInteger))
    async with engine.begin() as connection:
        await connection.run_sync(table.metadata.create_all)
        await connection.execute(table.insert(), [{"n": 1}, {"n": 2}])
        with pytest.raises(InvalidArgumentError, match=r"onupdate of changed\.a"):
            await connection.execute(table.update().values(n=3))
    assert asked.steps("order") == []


async def test_numbers_go_into_numbers_and_texts_into_texts(
    engine: AsyncEngine, asked: Asked
) -> None:
    """SQLite would take either; of ours none is taken before the look."""
    for column_type, default, said in (
        (
            BigInteger(),
            cosid_default("ticket"),
            "must hand out int, the type of the column, not str",
        ),
        (String(20), cosid_default("order"), "must hand out str, the type of the column, not int"),
        (
            String(20),
            cosid_default(Counter()),
            "must hand out str, the type of the column, not int",
        ),
    ):
        table = Table("k", MetaData(), Column("k", column_type, default=default), Column("n", Text))
        async with engine.begin() as connection:
            await connection.run_sync(table.metadata.create_all)
            with pytest.raises(InvalidArgumentError, match=rf"the generator of k\.k .*{said}"):
                await connection.execute(table.insert(), {"n": "a"})
    assert (asked.steps("t"), asked.steps("order")) == ([], [])


async def test_a_default_may_be_asked_by_itself(
    sessions: async_sessionmaker[Any], asked: Asked
) -> None:
    async with sessions() as session:
        default: Any = inspect(Order).columns["id"].default
        assert await session.scalar(default) == 1


async def test_a_provider_need_not_list_its_names(asked: Asked, tmp_path: Path) -> None:
    """Nor be hashable."""

    class Lookup:
        def __getitem__(self, name: str) -> Counter:
            return {"order": counter}[name]

    counter = Counter()
    found: Any = cosid_default("order", provider=Lookup()).generator()
    assert found is counter
    with pytest.raises(InvalidArgumentError, match=r"no generator 'item'"):
        cosid_default("item", provider=Lookup()).generator()
    a, b = cosid_default("order", provider={"order": counter}), cosid_default(counter)
    assert len({a, b, cosid_default("order", provider={"order": counter})}) == 2


@on_both
async def test_ids_are_there_before_the_flush(
    engine: AsyncEngine, sessions: async_sessionmaker[Any], asked: Asked
) -> None:
    """`assign_ids` fills what was added, by one batch for each generator."""
    async with sessions() as session:
        order = Order(items=[Item(), Item()])
        session.add_all([order, kept := Order(id=77), mark := Marked(), Ticket(), Event()])
        assert await assign_ids(session) == 7
        assert (order.id, kept.id, mark.id) == (1, 77, 2)
        assert [each.id for each in order.items] == [1, 2]
        assert [asked.steps(n) for n in ("order", "item", "t", "number", "s")] == [
            [2],
            [2],
            [1],
            [1],
            [1],
        ]
        assert await assign_ids(session) == 0
        await session.commit()
        assert asked.steps("order") == []
    async with sessions() as session:
        (found,) = (await session.scalars(select(Order).where(Order.id == 1))).all()
        session.expire(found)
        assert await ensure_ids([found, Order()]) == 1  # a stored one is not even looked at
        assert inspect(found).expired


@on_both
async def test_a_factory_may_assign_before_every_flush(engine: AsyncEngine, asked: Asked) -> None:
    """Then a mark is enough, and the ORM needs no RETURNING to learn the keys."""
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    assign_ids_before_flush(sessions)
    async with sessions() as session:
        session.add_all(marks := [Marked() for _ in range(3)])
        session.add_all(orders := [Order() for _ in range(3)])
        with statements(engine) as seen:
            await session.commit()
        assert sorted([*(each.id for each in marks), *(each.id for each in orders)]) == [
            1,
            2,
            3,
            4,
            5,
            6,
        ]
        assert asked.steps("order") == [6]
        assert not [text for text, _ in seen if "RETURNING" in text]
        assert await session.get(Marked, 1) is marks[0]
        await session.commit()
    async with async_sessionmaker(engine)() as other:
        assert other.sync_session_class is Session


async def test_a_table_may_be_a_dataclass(sessions: async_sessionmaker[Any], asked: Asked) -> None:
    async with sessions() as session:
        session.add(record := Record(title="a"))
        await session.commit()
        assert (record.id, record.title) == (1, "a")


@on_both
async def test_a_converted_column_is_a_number_in_the_database(
    engine: AsyncEngine, sessions: async_sessionmaker[Any], asked: Asked
) -> None:
    """Text in Python, compared and sorted as numbers."""
    async with sessions() as session:
        session.add_all([Public(), Public(id="x100", parent="x1"), Public(id="xff")])
        await session.commit()
        found = await session.scalars(select(Public).order_by(Public.id))
        assert [(each.id, each.parent) for each in found] == [
            ("x1", None),
            ("xff", None),
            ("x100", "x1"),
        ]
        for where in (
            Public.id == "xff",
            Public.id == 255,
            Public.id.in_(["xff", "x200"]),
            (Public.id > "x1") & (Public.id < 256),
            Public.id == literal("xff", TypedIdType(HexId), literal_execute=True),
        ):
            assert (await session.scalars(select(Public.id).where(where))).all() == ["xff"]
        raw = await session.execute(select(Public.id + 0).order_by(Public.id))
        assert raw.scalars().all() == [1, 255, 256]
        for wrong, said in {
            "ff": "begins with x",
            7.5: "a string such as 'x2a'",
            "x0F": "a complete text such as 'x2a'",
        }.items():
            with pytest.raises(InvalidIdError, match=said):
                await session.execute(
                    select(Public).where(Public.id == literal(wrong, Public.id.type))
                )
        assert await session.get(Public, "x100") is not None


async def test_errors_come_out_as_they_are(sessions: async_sessionmaker[Any]) -> None:
    """Not inside of a StatementError; they can be pickled, and the session goes on."""
    async with sessions() as session:
        session.add(Order())
        with pytest.raises(NotOpenError, match="use_provider") as caught:
            await session.flush()
        assert not isinstance(caught.value, StatementError)
        assert type(pickle.loads(pickle.dumps(caught.value))) is NotOpenError  # noqa: S301 - ours
        await session.rollback()
        async with aiocosid.connect(MemoryStore()) as ids, asyncio.timeout(10):
            chain = await ids.segment_chain("order")
            with aiocosid.use_provider(ids):
                await chain.aclose()
                session.add(Order())
                with pytest.raises(aiocosid.errors.ClosedError):
                    await session.flush()


async def test_a_cancelled_flush_leaves_a_gap(sessions: async_sessionmaker[Any]) -> None:
    inner = MemoryStore().segment_distributor(namespace="n", name="order", offset=0, step=1)
    gated = GatedDistributor(inner)
    gated.open()
    async with SegmentId(gated) as gen:
        gated.close()
        with aiocosid.use_provider(Named(order=gen)):
            async with sessions() as session:
                session.add_all([Order(), Order()])
                flush = asyncio.create_task(session.flush())
                async with asyncio.timeout(20):
                    while not gated.held:  # noqa: ASYNC110 - it is held in another thread's turn
                        await asyncio.sleep(0.01)
                flush.cancel()
                await asyncio.wait([flush])
                assert flush.cancelled()
            gated.open()
            async with sessions() as session:
                session.add(order := Order())
                await session.commit()
                assert order.id > 0


class Counter:
    """Ids for threads."""

    def __init__(self) -> None:
        self.last = 0
        self.asked: list[int] = []

    def next_id(self) -> int:
        return self.next_ids(1)[0]

    def next_ids(self, n: int) -> Sequence[int]:
        self.asked.append(n)
        self.last += n
        return range(self.last - n + 1, self.last + 1)


async def test_a_session_without_asyncio_takes_a_generator_that_needs_no_await(
    tmp_path: Path,
) -> None:
    """One that is to be awaited is refused before an id is taken, in hand or not."""
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    counter = Counter()
    table = Table(
        "t",
        MetaData(),
        Column("id", BigInteger, primary_key=True, default=cosid_default(counter)),
        Column("n", BigInteger),
    )
    table.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), {"n": 1})
        connection.execute(table.insert(), [{"n": 2}, {"n": 3}, {"n": 4}])
        assert connection.scalars(select(table.c.id)).all() == [1, 2, 3, 4]
    assert counter.asked == [1, 3]

    Base.metadata.create_all(engine)
    named = Named(order=counter)
    with aiocosid.use_provider(named), Session(engine) as session:
        session.add(order := Order())
        session.commit()
        assert order.id == 5

    async with aiocosid.connect(MemoryStore()) as ids:
        chain = await ids.segment_chain("order")
        with aiocosid.use_provider(ids), Session(engine) as session:
            session.add(Order())
            with pytest.raises(InvalidArgumentError, match=r"order\.id.*SyncIdGenerator"):
                session.flush()
        assert chain.statistics().ids_handed_out == 0
    engine.dispose()


async def test_a_mixin_without_a_name_says_so() -> None:
    class Nameless(DeclarativeBase):
        pass

    with pytest.raises(
        InvalidArgumentError, match=r"__cosid__ of .*Vague must be a generator's name"
    ):

        class Vague(SegmentPrimaryKey, Nameless):  # pyright: ignore[reportUnusedClass]
            __table__ = Table("vague", Nameless.metadata, Column("n", BigInteger))


async def test_another_provider_may_be_given(engine: AsyncEngine) -> None:
    async with aiocosid.connect(MemoryStore()) as ids:
        orders = await ids.segment_chain("order")
        by_name, given = cosid_default("order", provider=ids), cosid_default(orders)
        table = Table(
            "given",
            MetaData(),
            Column("a", BigInteger, default=by_name),
            Column("b", BigInteger, default=given),
            Column("n", BigInteger),
        )
        async with engine.begin() as connection:
            await connection.run_sync(table.metadata.create_all)
            await connection.execute(table.insert(), {"n": 1})
            assert (await connection.execute(select(table.c.a, table.c.b))).all() == [(1, 2)]
