"""Columns of `TypedId` on SQLite and PostgreSQL, and the migrations that Alembic makes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, ForeignKey, MetaData, create_engine, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import aiocosid
import aiocosid.sync
from aiocosid import IdProvider
from aiocosid.abc import MAX_ID
from aiocosid.converter import Radix62IdConverter, TypedId
from aiocosid.errors import InvalidIdError
from aiocosid.integrations.alembic import render_item
from aiocosid.integrations.sqlalchemy import (
    TypedIdType,
    assign_ids,
    cosid_default,
)
from aiocosid.provider.models import GeneratedId
from aiocosid.stores.memory import MemoryStore

pytestmark = [pytest.mark.integration]


class OrderId(TypedId, prefix="ord"):
    """Of an order."""


class ItemId(TypedId, prefix="item"):
    """Of an item."""


class CodeId(TypedId, inner=Radix62IdConverter()):
    """Without a prefix."""


class Base(DeclarativeBase):
    type_annotation_map = {ItemId: TypedIdType(ItemId)}  # noqa: RUF012 - SQLAlchemy's own way


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[OrderId] = mapped_column(
        TypedIdType(OrderId), primary_key=True, default=cosid_default("order")
    )
    parent: Mapped[OrderId | None] = mapped_column(TypedIdType(OrderId))
    text: Mapped[str | None] = mapped_column(TypedIdType(CodeId))


class Item(Base):
    __tablename__ = "items"

    id: Mapped[Annotated[ItemId, GeneratedId("item")]] = mapped_column(primary_key=True)
    order_id: Mapped[OrderId] = mapped_column(ForeignKey("orders.id"))


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


@pytest_asyncio.fixture
async def ids() -> AsyncIterator[IdProvider]:
    async with aiocosid.connect(MemoryStore()) as ids:
        await ids.segment_chain("order")
        await ids.segment_chain("item")
        with aiocosid.use_provider(ids):
            yield ids


async def test_objects_and_rows_have_typed_ids(engine: AsyncEngine, ids: IdProvider) -> None:
    """The default's numbers too, for one object and for many rows, before anything is loaded."""
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    async with sessions.begin() as session:
        session.add(order := Order())
        await session.flush()
        assert repr(order.id) == "OrderId('ord_0000000000001')"
        item = Item(order_id=order.id)
        session.add(item)
        assert await assign_ids(session) == 1
        assert repr(item.id) == "ItemId('item_0000000000001')"
        session.add_all(pair := [Order(parent=order.id), Order(parent=order.id)])
        await session.flush()
        assert [type(each.id) for each in pair] == [OrderId] * 2
        await session.execute(insert(Order), [{"parent": order.id}] * 2)
        session.add(Order(id=OrderId(MAX_ID)))
    async with sessions() as session:
        found = (await session.scalars(select(Order).order_by(Order.id))).all()
        assert [int(each.id) for each in found] == [1, 2, 3, 4, 5, MAX_ID]
        assert [type(each.id) for each in found] == [OrderId] * 6
        assert found[1].parent == order.id
        again = await session.get(Order, str(order.id))
        assert again is not None
        assert again is await session.get(Order, order.id)
        stored = await session.execute(text("SELECT id FROM orders ORDER BY id DESC"))
        assert stored.scalars().all()[0] == MAX_ID


async def test_what_is_no_id_of_the_column_is_refused(engine: AsyncEngine) -> None:
    """A number too: of what?  In a comparison it means the number itself."""
    sessions = async_sessionmaker(engine)
    wrong: Any
    async with sessions() as session:
        for wrong, said in {7: "a string such as", ItemId(7): "starts with 'ord_'"}.items():
            with pytest.raises(InvalidIdError, match=said):
                await session.get(Order, wrong)
        for where in (Order.id == OrderId(7), Order.id > 7, Order.id.in_([str(OrderId(7))])):
            assert (await session.scalars(select(Order).where(where))).all() == []


async def test_asyncpg_takes_an_id_without_a_type(engine: AsyncEngine) -> None:
    """And aiosqlite: in SQL of one's own the id is its number."""
    async with engine.begin() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        if engine.dialect.name == "postgresql":
            await driver.execute("INSERT INTO orders (id) VALUES ($1)", OrderId(42))
            found = await driver.fetchval("SELECT id FROM orders WHERE id = $1", OrderId(42))
        else:
            await driver.execute("INSERT INTO orders (id) VALUES (?)", (OrderId(42),))
            cursor = await driver.execute("SELECT id FROM orders WHERE id = ?", (OrderId(42),))
            [[found]] = await cursor.fetchall()
            await cursor.close()
        assert found == 42


def test_without_asyncio_ids_come_from_a_thread(tmp_path: Path) -> None:
    plain = create_engine(f"sqlite:///{tmp_path}/plain.db")

    class Own(DeclarativeBase):
        pass

    with aiocosid.sync.connect("memory://", namespace="typed") as ids:

        class Bill(Own):
            __tablename__ = "bill"

            id: Mapped[OrderId] = mapped_column(
                TypedIdType(OrderId),
                primary_key=True,
                default=cosid_default(ids.segment_chain("bill")),
            )

        Own.metadata.create_all(plain)
        with Session(plain) as session:
            session.add_all([Bill(), one := Bill()])
            session.flush()
            assert type(one.id) is OrderId
            session.rollback()
    plain.dispose()


async def test_alembic_writes_what_the_database_has(engine: AsyncEngine) -> None:
    """The migration imports nothing of the application, and runs; then nothing differs."""

    def migrate(connection: Connection) -> str:
        Base.metadata.drop_all(connection)
        context = MigrationContext.configure(
            connection, opts={"render_item": render_item, "compare_type": True}
        )
        script = produce_migrations(context, Base.metadata)
        assert script.upgrade_ops is not None
        code = render_python_code(script.upgrade_ops, render_item=render_item)
        imports = "import sqlalchemy as sa\n"
        source = f"{imports}def upgrade(op):\n    {code}\n"
        names: dict[str, Any] = {}
        exec(source, names)  # noqa: S102 - what Alembic has written
        names["upgrade"](Operations(context))
        assert compare_metadata(context, Base.metadata) == []
        return code

    async with engine.begin() as connection:
        code = await connection.run_sync(migrate)
    assert code.count("sa.BigInteger().with_variant(sa.Integer(), 'sqlite')") == 5
    assert "aiocosid" not in code


async def test_alembic_sees_a_column_of_another_type(engine: AsyncEngine) -> None:
    """A text that becomes a typed id is a change."""
    if engine.dialect.name == "sqlite":
        return  # its columns take every type

    def changes(connection: Connection) -> list[Any]:
        connection.execute(text("ALTER TABLE orders ALTER parent TYPE varchar(32)"))
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))

    async with engine.begin() as connection:
        [[change]] = await connection.run_sync(changes)
    assert change[0] == "modify_type"
    assert (change[2], change[3]) == ("orders", "parent")
    no_context: Any = None
    for kind, item in (("column", Order.__table__.c.id), ("type", MetaData())):
        assert render_item(kind, item, no_context) is False
