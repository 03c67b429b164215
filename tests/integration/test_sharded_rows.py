"""Ids that carry the shard of their row: in models, and in SQLAlchemy with and without asyncio."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from sqlalchemy import BigInteger, String, create_engine, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import aiocosid
from aiocosid.converter import ShardedTextConverter
from aiocosid.errors import InvalidArgumentError
from aiocosid.generators.text import StringIdGenerator
from aiocosid.integrations.sqlalchemy import assign_ids, assign_ids_before_flush, cosid_default
from aiocosid.provider.models import GeneratedId, ensure_ids
from aiocosid.sharding import ModCycle
from aiocosid.snowflake import ShardedId, ShardedLayout
from aiocosid.stores.memory import MemorySequenceDistributor, MemoryStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LAYOUT = ShardedLayout(1_546_300_800)
CYCLE = ModCycle(8, "orders_")
REGIONS = cycle([3, 1, 3, 2])


def by_customer(row: Any) -> int:
    return CYCLE.sharding_id(row.customer_id)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "order"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, default=cosid_default("order", shard="region")
    )
    region: Mapped[int | None]
    title: Mapped[str] = mapped_column(default="none")


class Item(Base):
    __tablename__ = "item"

    customer_id: Mapped[int]
    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, default=cosid_default("order", shard=by_customer)
    )


class Late(Base):
    """Its shard has a default, which SQLAlchemy asks row by row."""

    __tablename__ = "late"

    region: Mapped[int] = mapped_column(default=lambda: next(REGIONS))
    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, default=cosid_default("order", shard="region")
    )
    title: Mapped[str]


class LateToo(Base):
    """The same by a function."""

    __tablename__ = "late_too"

    region: Mapped[int] = mapped_column(default=lambda: next(REGIONS))
    id: Mapped[int] = mapped_column(
        BigInteger,
        primary_key=True,
        default=cosid_default("order", shard=lambda row: row.region or 0),
    )
    title: Mapped[str]


class Texts(Base):
    __tablename__ = "texts"

    id: Mapped[str] = mapped_column(
        String(32), primary_key=True, default=cosid_default("text", shard="region")
    )
    region: Mapped[int]


class Behind(Base):
    __tablename__ = "behind"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, default=cosid_default("order", shard="region")
    )
    region: Mapped[int] = mapped_column(default=3)
    title: Mapped[str]


class Marked(Base):
    __tablename__ = "marked"

    id: Mapped[Annotated[int, GeneratedId("order", shard="region")]] = mapped_column(
        BigInteger, primary_key=True
    )
    region: Mapped[int]


ANY = cosid_default("order", shard="region")


class Twice(Base):
    """Two columns with one default."""

    __tablename__ = "twice"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, default=ANY)
    number: Mapped[int] = mapped_column(BigInteger, default=ANY)
    region: Mapped[int]


class Wrong(Base):
    """A shard for a generator whose ids carry none, and the name of no column."""

    __tablename__ = "wrong"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, default=cosid_default("plain", shard="region")
    )
    number: Mapped[int] = mapped_column(BigInteger, default=cosid_default("order", shard="regoin"))
    region: Mapped[int]


@dataclass
class Parcel:
    region: int | None
    id: Annotated[int, GeneratedId("order", shard="region")] = 0


class Asked(ShardedId):
    """Remembers how many ids of which shard were asked for."""

    __slots__ = ("asked",)

    asked: list[tuple[int, int | None]]

    async def next_ids(self, n: int, sharding_id: int | None = None) -> list[int]:
        self.asked.append((n, sharding_id))
        return await super().next_ids(n, sharding_id)


class Named(dict[str, Any]):
    """A provider."""

    def statistics(self) -> dict[str, dict[str, Any]]:
        return {}


@pytest_asyncio.fixture
async def orders() -> AsyncIterator[Asked]:
    """The default provider's generator."""
    sequences = MemorySequenceDistributor(namespace="shop", name="order")
    async with (
        aiocosid.connect(MemoryStore()) as ids,
        Asked(sequences, layout=LAYOUT, sharding_id=9) as found,
    ):
        found.asked = []
        plain = await ids.segment_chain("plain")
        text = StringIdGenerator(found, ShardedTextConverter(LAYOUT))
        with aiocosid.use_provider(Named(order=found, plain=plain, text=text)):
            yield found


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    url = f"sqlite+aiosqlite:///{tmp_path}/app.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database").replace("://", "+asyncpg://")
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
def sessions(engine: AsyncEngine) -> async_sessionmaker[Any]:
    return async_sessionmaker(engine, expire_on_commit=False)


def shards(ids: Sequence[int]) -> list[int]:
    return [LAYOUT.parse(each).sharding_id for each in ids]


async def rows_of(engine: AsyncEngine, model: Any = Order) -> list[tuple[int, int]]:
    """The shard in each id, and that of its row."""
    async with engine.connect() as connection:
        found = (await connection.execute(select(model.id, model.region))).all()
    assert len({new_id for new_id, _ in found}) == len(found)
    return [(LAYOUT.parse(new_id).sharding_id, region) for new_id, region in found]


REGIONS_OF_ROWS = [7, 0, 7, 4095, 0, 7]


class TestSqlAlchemy:
    async def test_a_flush(
        self, engine: AsyncEngine, sessions: async_sessionmaker[Any], orders: Asked
    ) -> None:
        """One object, and several: one call for each shard, and each row has its own."""
        async with sessions.begin() as session:
            session.add(one := Order(region=5))
            await session.flush()
            assert shards([one.id]) == [5]
            assert orders.asked == []  # one id in hand is taken at once
            session.add_all(many := [Order(region=each) for each in REGIONS_OF_ROWS])
            await session.flush()
            assert shards([each.id for each in many]) == REGIONS_OF_ROWS
            assert Counter(orders.asked) == Counter([(3, 7), (2, 0)])  # 4095 was in hand
        assert sorted(await rows_of(engine)) == sorted([(5, 5), *((x, x) for x in REGIONS_OF_ROWS)])

    async def test_a_bulk_insert(self, engine: AsyncEngine, orders: Asked) -> None:
        """By Core and by the ORM, as one statement with many VALUES, and by a function."""
        rows = [{"region": each} for each in REGIONS_OF_ROWS]
        async with engine.begin() as connection:
            await connection.execute(insert(Order), rows)
            assert Counter(orders.asked) == Counter([(3, 7), (2, 0)])
            await connection.execute(insert(Order.__table__).values(rows[:4]))  # type: ignore[arg-type]
            items = [{"customer_id": each} for each in range(20)]
            await connection.execute(insert(Item), items)
            found = (await connection.execute(select(Item.id, Item.customer_id))).all()
        assert sorted(await rows_of(engine)) == sorted(
            (each, each) for each in REGIONS_OF_ROWS + REGIONS_OF_ROWS[:4]
        )
        assert len(found) == 20
        assert all(shards([new_id]) == [customer % 8] for new_id, customer in found)

    async def test_two_columns_with_one_default(self, engine: AsyncEngine, orders: Asked) -> None:
        """Each has ids of its own, in the order of the rows."""
        async with engine.begin() as connection:
            await connection.execute(insert(Twice), [{"region": each} for each in REGIONS_OF_ROWS])
            rows = (await connection.execute(select(Twice))).all()
        assert all(shards([row.id, row.number]) == [row.region] * 2 for row in rows)
        assert len({each for row in rows for each in (row.id, row.number)}) == 12

    @pytest.mark.parametrize("model", [Late, LateToo])
    async def test_a_shard_that_is_a_default_itself(
        self, engine: AsyncEngine, orders: Asked, model: type[Base]
    ) -> None:
        async with engine.begin() as connection:
            await connection.execute(insert(model), [{"title": f"{n}"} for n in range(4)])
        found = await rows_of(engine, model)
        assert sorted(found) == [(1, 1), (2, 2), (3, 3), (3, 3)]

    async def test_a_row_without_its_shard(
        self, engine: AsyncEngine, sessions: async_sessionmaker[Any], orders: Asked
    ) -> None:
        """Also one outside of the bits: nothing is written, and no id is taken."""
        for wrong in (None, 4096):
            said = rf"region, the shard of order\.id, .* from 0 to 4095, not {wrong}"
            async with sessions() as session:
                session.add_all([Order(region=1), Order(region=2), Order(region=wrong)])
                with pytest.raises(InvalidArgumentError, match=said):
                    await session.flush()
            async with engine.begin() as connection:
                with pytest.raises(InvalidArgumentError, match=said):
                    await connection.execute(insert(Order), [{"region": 1}, {"region": wrong}])
        async with engine.begin() as connection:
            with pytest.raises(InvalidArgumentError, match=r"order\.id 'region' is not set"):
                await connection.execute(insert(Order), [{"title": "a"}, {"title": "b"}])
        assert orders.statistics().ids_handed_out == 0
        assert await rows_of(engine) == []

    async def test_texts(self, sessions: async_sessionmaker[Any], orders: Asked) -> None:
        """The shard ends the text; given before the flush, too."""
        async with sessions.begin() as session:
            session.add_all(some := [Texts(region=each) for each in (7, 0, 7)])
            await session.flush()
            session.add_all(more := [Texts(region=each) for each in (4095, 3)])
            assert await assign_ids(session) == 2
        told = [each.id[-4:] for each in (*some, *more)]
        assert told == ["0007", "0000", "0007", "4095", "0003"]

    async def test_a_default_that_comes_too_late(self, engine: AsyncEngine, orders: Asked) -> None:
        """A column behind the id: its default was not asked yet."""
        async with engine.begin() as connection:
            with pytest.raises(InvalidArgumentError, match=r"behind\.id 'region' is not set"):
                await connection.execute(insert(Behind), [{"title": "a"}, {"title": "b"}])
        assert orders.statistics().ids_handed_out == 0

    async def test_what_has_no_shard(
        self, sessions: async_sessionmaker[Any], orders: Asked
    ) -> None:
        async with sessions() as session:
            session.add(Wrong(region=1))
            with pytest.raises(
                InvalidArgumentError, match=r"wrong\.id, 1 cannot be .* carry no shard"
            ):
                await session.flush()
        async with sessions() as session:
            session.add(Wrong(id=1, region=1))
            with pytest.raises(InvalidArgumentError, match=r"number 'regoin' is not set"):
                await session.flush()

    async def test_ids_before_the_flush(
        self, engine: AsyncEngine, sessions: async_sessionmaker[Any], orders: Asked
    ) -> None:
        """From a default and from a mark, of all new objects at once."""
        async with sessions() as session:
            many: list[Any] = [Order(region=1), Marked(region=2), Order(region=2), Marked(region=1)]
            session.add_all(many)
            assert await assign_ids(session) == 4
            assert shards([each.id for each in many]) == [1, 2, 2, 1]
            assert Counter(orders.asked) == Counter([(2, 1), (2, 2)])
        assign_ids_before_flush(sessions)
        async with sessions.begin() as session:
            session.add_all([Marked(region=3), Marked(region=6)])
        assert sorted(await rows_of(engine, Marked)) == [(3, 3), (6, 6)]


class Ids:
    """For threads."""

    def __init__(self) -> None:
        self.sequence = 0
        self.asked: list[tuple[int, int]] = []

    def next_id(self, sharding_id: int = 0) -> int:
        return self.next_ids(1, sharding_id)[0]

    def next_ids(self, n: int, sharding_id: int = 0) -> list[int]:
        self.asked.append((n, sharding_id))
        self.sequence += n
        first = self.sequence - n + 1
        return [LAYOUT.compose(1_700_000_000, sharding_id, first + each) for each in range(n)]


async def test_without_asyncio(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    Base.metadata.create_all(engine)
    ids = Ids()
    with aiocosid.use_provider(Named(order=ids)), Session(engine) as session:
        session.add(one := Order(region=5))
        session.flush()
        session.add_all(many := [Order(region=each) for each in REGIONS_OF_ROWS])
        session.commit()
        assert shards([one.id]) == [5]
        assert shards([each.id for each in many]) == REGIONS_OF_ROWS
        assert ids.asked == [(1, 5), (3, 7), (2, 0), (1, 4095)]
        session.add_all([Order(region=1), Order(region=None)])
        with pytest.raises(InvalidArgumentError, match="not None"):
            session.flush()
    engine.dispose()


class TestModels:
    async def test_one_call_for_each_shard(self, orders: Asked) -> None:
        parcels = [Parcel(each) for each in REGIONS_OF_ROWS]
        assert await ensure_ids([*parcels, Parcel(None, id=4711)]) == 6
        assert shards([each.id for each in parcels]) == REGIONS_OF_ROWS
        assert Counter(orders.asked) == Counter([(3, 7), (2, 0), (1, 4095)])
        assert parcels[0].id < parcels[2].id < parcels[5].id

    @pytest.mark.parametrize("wrong", [None, 4096])
    async def test_one_bad_object_costs_no_id(self, orders: Asked, wrong: int | None) -> None:
        parcels = [Parcel(1), Parcel(wrong), Parcel(2)]
        said = rf"region, the shard of .*Parcel\.id, must be .* 0 to 4095, not {wrong}"
        with pytest.raises(InvalidArgumentError, match=said):
            await ensure_ids(parcels)
        assert orders.asked == []
        assert [each.id for each in parcels] == [0, 0, 0]

    async def test_marks_and_defaults_agree(self) -> None:
        class Other(DeclarativeBase):
            pass

        class Two(Other):
            __tablename__ = "two"
            id: Mapped[Annotated[int, GeneratedId("order")]] = mapped_column(
                BigInteger, primary_key=True, default=cosid_default("order", shard="region")
            )

        with pytest.raises(InvalidArgumentError, match="several names or shards"):
            await ensure_ids(Two())
