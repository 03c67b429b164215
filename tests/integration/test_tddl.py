"""TDDL's sequences on real databases: what a row means, old nodes beside, rows that are no good.

The rows that are expected come from TDDL itself: a grant adds ``innerStep`` for each of the
databases, and the row holds the base of its range, which is ``(new, new + innerStep]``.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import aiocosid
from aiocosid import SegmentChainId, SegmentId
from aiocosid.abc import MAX_ID
from aiocosid.compat.tddl import (
    TddlGroupStore,
    TddlStore,
)
from aiocosid.errors import (
    CorruptCounterError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreRolledBackError,
)
from aiocosid.testing import ManualClock
from tests.servers import MariadbServer

from ._other_tables import TURNS, Execute, assert_disjoint, executes, take_turns

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

INSERT = "INSERT INTO sequence (name, value, gmt_modified) VALUES (:name, :value, '2020-01-01')"
VALUE = "SELECT value FROM sequence WHERE name = :name"
HIGHEST = MAX_ID - 10**8


async def value_of(execute: Execute, name: str) -> Any:
    ((value,),) = await execute(VALUE, name=name)
    return value


# One database.


async def test_rows_before_and_after(engine: AsyncEngine, execute: Execute) -> None:
    """Row before, first id, last id, row after, by the place among the databases."""
    await TddlStore(engine).create_schema()
    golden = {
        "one": (0, 0, 1, range(1001, 2001), 1000),
        "first of two": (0, 0, 2, range(2001, 3001), 2000),
        "second of two": (1000, 1, 2, range(3001, 4001), 3000),
        "later": (7000, 1, 2, range(9001, 10001), 9000),
    }
    for name, (before, index, count, ids, after) in golden.items():
        await execute(INSERT, name=name, value=before)
        store = TddlStore(engine, index=index, count=count)
        async with SegmentId(store.segment_distributor(name=name)) as generator:
            assert await generator.next_ids(1000) == list(ids)
        assert await value_of(execute, name) == after


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_grant_is_one_range(engine: AsyncEngine, execute: Execute) -> None:
    """Fewer ids are the upper ones of it, no call may ask for more, and a segment is all of it."""
    store = TddlStore(engine, inner_step=50)
    await store.create_schema()
    await execute(INSERT, name="order", value=0)
    ours = store.segment_distributor(name="order", step=1000)
    assert (ours.step, ours.step_limit) == (50, 50)
    assert store.segment_distributor(name="order", step=20).step == 50
    assert [await ours.next_max_id(1), await ours.next_max_id(50)] == [100, 150]
    with pytest.raises(InvalidArgumentError, match="from 1 to 50"):
        await ours.next_max_id(51)
    assert await value_of(execute, "order") == 100
    async with SegmentChainId(ours) as ids:
        assert await ids.next_ids(200) == list(range(151, 351))


async def test_by_address(engine: AsyncEngine, execute: Execute) -> None:
    """Under the name of the system; what the URL tells besides is taken out of it."""
    url = engine.url.render_as_string(hide_password=False).replace("+asyncmy", "")
    url += "?inner_step=10&schema_name=shop&table=seq_of"
    store = TddlStore.from_url(url)
    await store.create_schema()
    await store.create_schema()
    insert = "INSERT INTO seq_of (schema_name, name, value) VALUES (:schema, 'order', :value)"
    await execute(insert, schema="shop", value=0)
    await execute(insert, schema="other", value=5)
    async with aiocosid.connect(f"tddl+{url}") as ids:
        orders = await ids.segment_chain("order")
        assert await orders.next_ids(3) == [11, 12, 13]
    (found,) = await store.examine()
    assert (found.name, found.problems) == ("order", ())
    assert (await store.set_floor(name="order", above=995)).last_max_id == 1000
    rows = await execute("SELECT schema_name, value FROM seq_of ORDER BY schema_name")
    assert rows == [("other", 5), ("shop", 990)]
    assert await store.segment_distributor(name="order").next_max_id(10) == 1010
    await store.aclose()
    for wrong in ("inner_step=0", "inner_step=x", "holds=it", "table=a b", "table=a&table=b"):
        with pytest.raises(InvalidArgumentError):
            TddlStore.from_url(f"sqlite:///x.db?{wrong}")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_what_a_check_reads(engine: AsyncEngine, execute: Execute) -> None:
    store = TddlStore(engine, index=1, count=2)
    await store.create_schema()
    for name, value in (("a", 3000), ("b", 4000), ("c", HIGHEST + 1), ("d", -1)):
        await execute(INSERT, name=name, value=value)
    a, b, c, d = await store.examine()
    assert (a.stored, a.next_id, a.problems) == (3000, 5001, ())
    assert a.meaning == "the base of the last range handed out, whose ids lie above it"
    assert b.problems == ("value is 4000, 0 modulo 2000; for index 1 it must be 1000",)
    assert c.problems == (f"value is {HIGHEST + 1}, above TDDL's limit of 2^63-1-10^8",)
    assert d.problems == ("value is -1, no number from 0 to 2^63-1",)
    assert {each.next_id for each in (b, c, d)} == {None}
    (counter,) = [each for each in await store.counters() if each.namespaced_name == "cosid.a"]
    assert counter.last_max_id == 4000


async def test_bad_rows_are_refused_and_left_alone(engine: AsyncEngine, execute: Execute) -> None:
    store = TddlStore(engine, index=1, count=2)
    await store.create_schema()
    bad: dict[str, tuple[int, type[StoreError | IdOverflowError]]] = {
        "another's": (2000, CorruptCounterError),
        "negative": (-1000, CorruptCounterError),
        "above": (MAX_ID, CorruptCounterError),
        "end": (HIGHEST - (HIGHEST - 1000) % 2000, IdOverflowError),
    }
    for name, (value, kind) in bad.items():
        await execute(INSERT, name=name, value=value)
        with pytest.raises(kind, match=name):
            await store.segment_distributor(name=name).next_max_id(1)
        assert await value_of(execute, name) == value
    with pytest.raises(CorruptCounterError):
        await store.set_floor(name="another's", above=10**6)
    assert await value_of(execute, "another's") == 2000
    with pytest.raises(CounterMissingError, match="name is 'nobody'"):
        await store.segment_distributor(name="nobody").next_max_id(1)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_no_id_is_above_the_highest(engine: AsyncEngine, execute: Execute) -> None:
    """The ids lie above the number: a long range may pass 2^63-1 where its number does not."""
    long = 2 * 10**9
    store = TddlStore(engine, inner_step=long)
    await store.create_schema()
    last = (MAX_ID - long) // long * long  # all ids above it fit
    await execute(INSERT, name="order", value=last - long)
    await execute(INSERT, name="above", value=last + long)
    ours = store.segment_distributor(name="order", step=long)
    assert await ours.next_max_id(long) == last + long <= MAX_ID
    with pytest.raises(IdOverflowError) as caught:
        await ours.next_max_id(1)
    assert caught.value.limit == MAX_ID
    assert await value_of(execute, "order") == last
    with pytest.raises(CorruptCounterError, match="the ids above it pass"):
        await store.segment_distributor(name="above").next_max_id(1)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_the_number_may_be_the_last_id(engine: AsyncEngine, execute: Execute) -> None:
    """Of the old DefaultSequenceDao: any step, right above the number."""
    store = TddlStore(engine, holds="last")
    await store.create_schema()
    await execute(INSERT, name="order", value=1)
    ours = store.segment_distributor(name="order", step=2500)
    assert (ours.step, ours.step_limit) == (2500, None)
    assert await ours.next_max_id(2500) == 2501
    assert await value_of(execute, "order") == 2501
    with pytest.raises(InvalidArgumentError, match="'base'"):
        TddlStore(engine, holds="last", count=2)


async def test_a_number_that_went_back(engine: AsyncEngine, execute: Execute) -> None:
    store = TddlStore(engine)
    await store.create_schema()
    await execute(INSERT, name="order", value=5000)
    ours = store.segment_distributor(name="order")
    await ours.next_max_id(1000)
    await execute("UPDATE sequence SET value = 5000")
    with pytest.raises(StoreRolledBackError):
        await ours.next_max_id(1000)


# Old nodes.


class OldNode:
    """A TDDL node by its own statements, over all databases: it draws one, reads, compares."""

    def __init__(self, server: MariadbServer, databases: Sequence[str], inner_step: int) -> None:
        self.stack = ExitStack()
        self.connections = [
            self.stack.enter_context(closing(server.connect(each))) for each in databases
        ]
        self.inner_step = inner_step
        self.outer_step = inner_step * len(databases)
        self.random = random.Random(1)  # noqa: S311 - it hides nothing

    def load(self, name: str) -> range:
        """Take a range."""
        index = self.random.randrange(len(self.connections))
        with self.connections[index].cursor() as cursor:
            cursor.execute("select value from sequence where name = %s", (name,))
            (old,) = cursor.fetchone()
            assert old % self.outer_step == index * self.inner_step
            new = old + self.outer_step
            updated = cursor.execute(
                "update sequence set value=%s, gmt_modified=now() where name=%s and value=%s",
                (new, name, old),
            )
            assert updated == 1
        return range(new + 1, new + self.inner_step + 1)

    def close(self) -> None:
        """End the connections."""
        self.stack.close()


@TURNS
@pytest.mark.parametrize("count", [1, 2])
async def test_an_old_node_and_ours_take_turns(
    mariadb: MariadbServer, namespace: str, count: int, turns: int
) -> None:
    """On one database, and on two."""
    names = [f"{namespace}{number}" for number in range(count)]
    engines = [
        create_async_engine(mariadb.create_database(name).replace("mysql:", "mysql+asyncmy:"))
        for name in names
    ]
    store = TddlGroupStore(engines, inner_step=20, store_timeout=10)
    await store.create_schema()
    for index, engine in enumerate(engines):
        await executes(engine)(INSERT, name="order", value=20 * index)
    ours = store.segment_distributor(name="order")
    with closing(OldNode(mariadb, names, 20)) as old:
        assert_disjoint(await take_turns(turns, ours, partial(old.load, "order"), [20]))
    for engine, name in zip(engines, names, strict=True):
        await engine.dispose()
        mariadb.drop_database(name)


# Several databases.


@pytest_asyncio.fixture
async def engines(tmp_path: Any) -> AsyncIterator[list[AsyncEngine]]:
    """Two databases with TDDL's table, and no row."""
    engines = [create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{n}.db") for n in range(2)]
    await TddlGroupStore(engines).create_schema()
    yield engines
    for engine in engines:
        await engine.dispose()


async def test_any_database_is_enough(engines: list[AsyncEngine]) -> None:
    """While one is away the other goes on, and ids rise over both."""
    does = [executes(engine) for engine in engines]
    for index, execute in enumerate(does):
        await execute(INSERT, name="order", value=1000 * index)
    clock = ManualClock()
    ours = TddlGroupStore(engines, clock=clock).segment_distributor(name="order")
    last = [await ours.next_max_id(1000)]
    home = (last[0] - 1) // 1000 % 2
    await does[home]("ALTER TABLE sequence RENAME TO away")
    last += [await ours.next_max_id(1000) for _ in range(5)]
    assert (last[-1] - 1) // 1000 % 2 != home
    await does[home]("ALTER TABLE away RENAME TO sequence")
    await clock.advance(60)
    last += [await ours.next_max_id(1000) for _ in range(5)]
    assert (last[-1] - 1) // 1000 % 2 == home
    assert last == sorted(set(last))
    for index, execute in enumerate(does):
        assert await value_of(execute, "order") % 2000 == 1000 * index


async def test_the_order_of_the_databases_is_checked(engines: list[AsyncEngine]) -> None:
    for index, engine in enumerate(engines):
        await executes(engine)(INSERT, name="order", value=1000 * index)
    turned = TddlGroupStore(engines[::-1])
    with pytest.raises(CorruptCounterError, match=r"index 0 it must be 0|index 1 .* 1000"):
        await turned.segment_distributor(name="order").next_max_id(1000)
    assert [await value_of(executes(each), "order") for each in engines] == [0, 1000]
    found = [(each.name, bool(each.problems)) for each in await turned.examine()]
    assert found == [("order@0", True), ("order@1", True)]


async def test_a_wrong_inner_step_is_seen_in_any_row(engines: list[AsyncEngine]) -> None:
    """The nodes have 1000: the first row fits one of 500 as well, and must not serve alone."""
    for engine, value in zip(engines, (4000, 3000), strict=True):
        await executes(engine)(INSERT, name="order", value=value)
    for _ in range(4):
        store = TddlGroupStore(engines, inner_step=500)
        for _ in range(2):
            with pytest.raises(CorruptCounterError, match=r"0 modulo 1000; for index 1"):
                await store.segment_distributor(name="order").next_max_id(500)
    assert [await value_of(executes(each), "order") for each in engines] == [4000, 3000]


async def test_a_number_of_another_database_later_on(engines: list[AsyncEngine]) -> None:
    """As of an `adjust` of a node with another inner step: no other database is asked instead."""
    for index, engine in enumerate(engines):
        await executes(engine)(INSERT, name="order", value=1000 * index)
    ours = TddlGroupStore(engines).segment_distributor(name="order")
    await ours.next_max_id(1000)
    for engine in engines:
        await executes(engine)("UPDATE sequence SET value = value + 500")
    before = [await value_of(executes(each), "order") for each in engines]
    with pytest.raises(CorruptCounterError, match="500 modulo 2000"):
        await ours.next_max_id(1000)
    assert [await value_of(executes(each), "order") for each in engines] == before


async def test_one_that_is_off_keeps_its_place(engines: list[AsyncEngine]) -> None:
    for index, engine in enumerate(engines):
        await executes(engine)(INSERT, name="order", value=1000 * index)
    store = TddlGroupStore([None, engines[1]])
    assert await store.segment_distributor(name="order").next_max_id(1000) == 4000
    assert await value_of(executes(engines[0]), "order") == 0
    with pytest.raises(InvalidArgumentError, match="not off"):
        TddlGroupStore([None])


async def test_a_group_by_address(engines: list[AsyncEngine]) -> None:
    urls = [quote(f"sqlite:///{engine.url.database}", safe="") for engine in engines]
    for index, engine in enumerate(engines):
        await executes(engine)(INSERT, name="order", value=50 * index)
    url = f"tddl-group+striped:?store={urls[0]}-OFF&store={urls[1]}&inner_step=50"
    async with aiocosid.connect(url) as ids:
        orders = await ids.segment_chain("order")
        assert await orders.next_id() == 151
    store = TddlGroupStore.from_url(url.replace("-OFF", ""))
    assert [each.namespaced_name for each in await store.counters()] == ["cosid.order"]
    raised = await store.set_floor(name="order", above=1000)
    assert await store.segment_distributor(name="order").next_max_id(50) > raised.last_max_id
    await store.aclose()
    for wrong in ("striped:?", f"tiered:?store={urls[0]}", f"striped:?store={urls[0]}&x=1"):
        with pytest.raises(InvalidArgumentError, match="tddl-group"):
            TddlGroupStore.from_url(f"tddl-group+{wrong}")


async def test_adjusted_by_hand_alone(engines: list[AsyncEngine]) -> None:
    """A missing row, and one with the other's numbers: above all ids, and only when told to."""
    store = TddlGroupStore(engines)
    await executes(engines[0])(INSERT, name="order", value=7000)  # of the other one
    with pytest.raises(CorruptCounterError, match="for index 0 it must be 0"):
        await store.segment_distributor(name="order").next_max_id(1000)
    for _ in range(2):
        await store.adjust("order")
    assert [await value_of(executes(each), "order") for each in engines] == [8000, 9000]
    alone = [TddlStore(engine, index=index, count=2) for index, engine in enumerate(engines)]
    first = [await each.segment_distributor(name="order").next_max_id(1000) for each in alone]
    assert first == [11000, 12000]
    await executes(engines[0])("UPDATE sequence SET value = -1")
    with pytest.raises(CorruptCounterError):
        await store.adjust("order")
    # At the end: no number is left for the other one.
    await executes(engines[0])("UPDATE sequence SET value = :value", value=HIGHEST // 2000 * 2000)
    await executes(engines[1])("DELETE FROM sequence")
    with pytest.raises(IdOverflowError):
        await store.adjust("order")
    assert await executes(engines[1])("SELECT * FROM sequence") == []
