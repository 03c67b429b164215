"""The router of docs/howto/shard-with-sqlalchemy.md on real databases: which nodes are visited."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

import aiocosid
from aiocosid.sharding import IntervalTimeline, ModCycle, Sharding, ShardRange, SnowflakeTimeKey
from aiocosid.snowflake import COSID_MS
from tests.docs._blocks import ROOT, blocks
from tests.servers import PostgresServer

pytestmark = [pytest.mark.asyncio, pytest.mark.integration]

PAGE = ROOT / "docs" / "howto" / "shard-with-sqlalchemy.md"

at = datetime.fromisoformat


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    item: Mapped[str]


@pytest.fixture(scope="module")
def router() -> Callable[[Sharding[int], Any], Any]:
    """The page's own Router."""
    names: dict[str, Any] = {}
    (source,) = (block.source for block in blocks(PAGE) if block.title == "shards.py")
    exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102 - our own documentation
    made: Callable[[Sharding[int], Any], Any] = names["Router"]
    return made


@asynccontextmanager
async def databases(urls: Mapping[str, str]) -> AsyncGenerator[dict[str, AsyncEngine]]:
    """An engine for each node, with the table."""
    async with AsyncExitStack() as stack:
        engines = {node: create_async_engine(url) for node, url in urls.items()}
        for engine in engines.values():
            stack.push_async_callback(engine.dispose)
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
        yield engines


def watch(engines: Mapping[str, AsyncEngine]) -> list[str]:
    """The nodes in the order in which statements reach them."""
    visited: list[str] = []
    for node, engine in engines.items():

        def note(*_: Any, node: str = node) -> None:
            visited.append(node)

        event.listen(engine.sync_engine, "before_cursor_execute", note)
    return visited


async def lying(engines: Mapping[str, AsyncEngine]) -> dict[str, set[int]]:
    """The ids on each node, past the router."""
    found: dict[str, set[int]] = {}
    for node, engine in engines.items():
        async with engine.connect() as connection:
            found[node] = set((await connection.execute(sa.select(Order.id))).scalars())
    return found


async def visits(
    sessions: async_sessionmaker[Any], visited: list[str], statement: Any
) -> tuple[list[str], list[int]]:
    """The nodes that a statement visits, and the ids it brings."""
    visited.clear()
    async with sessions() as session:
        found = [order.id for order in await session.scalars(statement)]
    return list(visited), found


async def check_remainders(
    engines: Mapping[str, AsyncEngine], cycle: ModCycle, made: async_sessionmaker[Any]
) -> None:
    """Snowflakes land on their nodes, and each statement visits the nodes it needs."""
    async with aiocosid.connect("memory://") as ids, made() as session:
        new_ids = await (await ids.snowflake("order")).next_ids(40)
        session.add_all(Order(id=new_id, item="tea") for new_id in new_ids)
        await session.commit()
    assert await lying(engines) == {
        node: {new_id for new_id in new_ids if cycle.exact(new_id) == node} for node in engines
    }
    visited = watch(engines)
    first, second, *_ = new_ids
    async with made() as session:
        order = await session.get(Order, first)
        assert (order.id, order.item, visited) == (first, "tea", [cycle.exact(first)])
        assert await session.get(Order, first) is order  # the identity map
        assert visited == [cycle.exact(first)]
    key, everywhere = Order.id, list(cycle.effective_nodes)
    two = [node for node in everywhere if node in (cycle.exact(first), cycle.exact(second))]
    other = aliased(Order)
    wheres: list[tuple[Any, list[str], set[int]]] = [
        (key == first, [cycle.exact(first)], {first}),
        (first == key, [cycle.exact(first)], {first}),
        (key.in_([first, second]), two, {first, second}),
        (key.between(first, first), [cycle.exact(first)], {first}),
        (sa.and_(key > first - 1, key < first + 1), [cycle.exact(first)], {first}),
        (sa.and_(key >= first, key <= first, Order.item == "tea"), [cycle.exact(first)], {first}),
        (sa.and_(key == first, key == second), everywhere[:1], set()),
        (key.in_([]), everywhere[:1], set()),
        # What the router does not understand leaves no node out.
        (sa.or_(key == first, key == second), everywhere, {first, second}),
        (sa.not_(key == first), everywhere, set(new_ids) - {first}),
        (key != first, everywhere, set(new_ids) - {first}),
        (key + 0 == first, everywhere, {first}),
        (key.in_(sa.select(other.id).where(other.id == first)), everywhere, {first}),
        (Order.item == "tea", everywhere, set(new_ids)),
    ]
    for where, nodes, ids_found in wheres:
        seen, found = await visits(made, visited, sa.select(Order).where(where))
        assert (seen, set(found)) == (nodes, ids_found), str(where)
    visited.clear()
    async with made() as session:
        await session.execute(sa.update(Order).where(key == first).values(item="milk"))
        await session.execute(sa.delete(Order).where(key == second))
        assert visited == [cycle.exact(first), cycle.exact(second)]
        with pytest.raises(TypeError, match="shard_id"):
            await session.execute(sa.insert(Order), [{"id": 1, "item": "tea"}])
        await session.commit()
    after = await lying(engines)
    assert set.union(*after.values()) == set(new_ids) - {second}


async def test_between_symmetric_leaves_no_node_out(router: Any) -> None:
    """Its ends come in either order; SQLite does not know it."""
    cycle = ModCycle(3, "orders_")
    between = sa.select(Order).where(Order.id.between(7, 6, symmetric=True))
    state = SimpleNamespace(is_insert=False, statement=between, parameters=None)
    nodes = router(cycle, Order.id).of_statement(state)
    assert nodes == ["orders_0", "orders_1", "orders_2"]


async def test_remainders_on_sqlite(tmp_path: Path, router: Any) -> None:
    cycle = ModCycle(3, "orders_")
    urls = {node: f"sqlite+aiosqlite:///{tmp_path}/{node}.db" for node in cycle.effective_nodes}
    async with databases(urls) as engines:
        await check_remainders(engines, cycle, router(cycle, Order.id).sessions(engines))


async def test_remainders_on_postgres(
    postgres: PostgresServer, namespace: str, router: Any
) -> None:
    """Two databases."""
    cycle = ModCycle(2, f"{namespace}_")
    urls = {node: postgres.create_database(node) for node in cycle.effective_nodes}
    try:
        async with databases({n: asyncpg_url(url) for n, url in urls.items()}) as engines:
            await check_remainders(engines, cycle, router(cycle, Order.id).sessions(engines))
    finally:
        for node in urls:
            postgres.drop_database(node)


def asyncpg_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://")


async def test_months_as_schemas_of_one_database(postgres_database: str, router: Any) -> None:
    """A range of Snowflakes visits the months that it touches, in their order."""
    months: IntervalTimeline[int] = IntervalTimeline(
        ShardRange.closed_open(at("2026-01-01"), at("2026-07-01")),
        "months",
        logic_name_prefix="orders_",
        suffix_pattern="yyyyMM",
        key=SnowflakeTimeKey(COSID_MS, "Asia/Shanghai"),
    )
    start = at("2026-01-01T00:00+08:00")
    made = [snowflake(start + timedelta(days=5 * step)) for step in range(36)]
    one = create_async_engine(asyncpg_url(postgres_database))
    try:
        engines = {
            node: one.execution_options(schema_translate_map={None: node})
            for node in months.effective_nodes
        }
        async with one.begin() as connection:
            for node in engines:
                await connection.execute(sa.schema.CreateSchema(node))
                moved = await connection.execution_options(schema_translate_map={None: node})
                await moved.run_sync(Base.metadata.create_all)
        sessions = router(months, Order.id).sessions(engines)
        async with sessions() as session:
            session.add_all(Order(id=new_id, item="tea") for new_id in made)
            await session.commit()
        assert await lying(engines) == {
            node: {new_id for new_id in made if months.exact(new_id) == node} for node in engines
        }
        visited: list[str] = []

        def note(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
            visited.append(sql.partition("FROM ")[2].partition(".")[0])

        event.listen(one.sync_engine, "before_cursor_execute", note)
        march = snowflake(at("2026-03-01T00:00+08:00"))
        may = snowflake(at("2026-05-01T00:00+08:00"))
        wanted = sa.select(Order).where(Order.id >= march, Order.id < may).order_by(Order.id)
        seen, found = await visits(sessions, visited, wanted)
        assert seen == ["orders_202603", "orders_202604"]
        assert found == [new_id for new_id in made if march <= new_id < may]
        late = sa.select(Order).where(Order.id > snowflake(at("2027-01-01T00:00+08:00")))
        assert (await visits(sessions, visited, late))[1] == []
    finally:
        await one.dispose()


def snowflake(moment: datetime) -> int:
    """The lowest id of a moment."""
    return COSID_MS.compose(COSID_MS.tick_at(int(moment.timestamp() * 1000)), 0, 0)
