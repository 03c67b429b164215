"""Leaf's table on real databases: what a row means, old nodes beside, and rows that are no good.

The rows that are expected come from Leaf itself: its number is the first id of the next segment,
and a grant owns ``[old, old + step)``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from aiocosid import SegmentId
from aiocosid._life import fork
from aiocosid.abc import MAX_ID
from aiocosid.compat._table_store import rows_of
from aiocosid.compat.leaf import LeafStore
from aiocosid.errors import (
    CorruptCounterError,
    CosIdError,
    CounterMissingError,
    ForkedError,
    IdOverflowError,
    InvalidArgumentError,
    SchemaMissingError,
    StoreError,
    StoreRolledBackError,
)
from tests.servers import MariadbServer

from ._other_tables import TURNS, Execute, take_turns

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

INSERT = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (:tag, :max_id, :step)"
SAMPLE = {"tag": "leaf-segment-test", "max_id": 1, "step": 2000}  # what Leaf ships


@pytest_asyncio.fixture
async def store(engine: AsyncEngine) -> LeafStore:
    """A store on it, with Leaf's table."""
    store = LeafStore(engine)
    await store.create_schema()
    return store


async def row_of(execute: Execute, tag: str) -> tuple[Any, ...]:
    (row,) = await execute("SELECT max_id, step FROM leaf_alloc WHERE biz_tag = :tag", tag=tag)
    return tuple(row)


# What a row means.


async def test_rows_before_and_after(store: LeafStore, execute: Execute) -> None:
    """Row before, first id, last id, row after: half-open, and never an id of 0."""
    golden = {
        "leaf-segment-test": (1, 2000, 1, 2000, 2001),
        "old": (4001, 100, 4001, 4100, 4101),
        "zero": (0, 10, 1, 10, 11),  # Leaf would hand out 0
    }
    for tag, (before, step, first, last, after) in golden.items():
        await execute(INSERT, tag=tag, max_id=before, step=step)
        async with SegmentId(await store.tag(tag)) as ids:
            assert await ids.next_ids(step) == list(range(first, last + 1))
        assert await row_of(execute, tag) == (after, step)


async def test_a_step_of_our_own(store: LeafStore, execute: Execute) -> None:
    """It may be another one than the row's, and the row's stays what it is."""
    await execute(INSERT, **SAMPLE)
    tag = store.segment_distributor(name="leaf-segment-test", step=7)
    assert [await tag.next_max_id(7), await tag.next_max_id(50)] == [7, 57]
    assert await row_of(execute, "leaf-segment-test") == (58, 2000)


async def test_the_time_of_the_last_grant_is_kept(store: LeafStore, execute: Execute) -> None:
    """As MySQL does by itself: a Leaf node shows it."""
    await execute(INSERT, **SAMPLE)
    await execute("UPDATE leaf_alloc SET update_time = '2020-01-01 00:00:00'")
    (before,) = await store.counters()
    await store.segment_distributor(name="leaf-segment-test").next_max_id(1)
    (after,) = await store.counters()
    assert before.last_fetch_time is not None
    assert after.last_fetch_time is not None
    assert after.last_fetch_time - before.last_fetch_time > 5 * 365 * 86400


async def test_a_tag_is_created_once(store: LeafStore, execute: Execute) -> None:
    """On demand alone, and one that is there stays as it is."""
    for step in (20, 30):
        await store.create_tag("order", step=step, above=99, description="the shop's")
    assert await row_of(execute, "order") == (100, 20)
    assert await (await store.tag("order")).next_max_id(20) == 119
    for step, above in ((0, 0), (2**31, 0), (1, -1)):
        with pytest.raises(InvalidArgumentError):
            await store.create_tag("other", step=step, above=above)
    with pytest.raises(IdOverflowError):
        await store.create_tag("other", step=1, above=MAX_ID - 1)
    with pytest.raises(InvalidArgumentError):
        await store.create_tag("x" * 129, step=1)


async def test_a_floor_is_in_ids(store: LeafStore, execute: Execute) -> None:
    """The next id is above it; it never lowers; a tag that is missing stays so."""
    await execute(INSERT, **SAMPLE)
    for above, last in ((500, 500), (400, 500), (MAX_ID - 1, MAX_ID - 1)):
        counter = await store.set_floor(name="leaf-segment-test", above=above)
        assert counter.last_max_id == last
        assert await row_of(execute, "leaf-segment-test") == (last + 1, 2000)
    with pytest.raises(IdOverflowError):
        await store.set_floor(name="leaf-segment-test", above=MAX_ID)
    with pytest.raises(CounterMissingError, match="biz_tag is 'nobody'"):
        await store.set_floor(name="nobody", above=1)
    assert len(await execute("SELECT * FROM leaf_alloc")) == 1


async def test_what_a_check_reads(store: LeafStore, execute: Execute) -> None:
    """Every tag with what it means and what is wrong with it; nothing is written."""
    rows = [("good", 2001, 10), ("bad step", 5, 0), ("low", -1, 10), ("end", MAX_ID, 10)]
    for tag, max_id, step in rows:
        await execute(INSERT, tag=tag, max_id=max_id, step=step)
    written = await execute("SELECT * FROM leaf_alloc ORDER BY biz_tag")
    found = {each.name: each for each in await store.examine()}
    assert list(found) == ["bad step", "end", "good", "low"]
    good = found["good"]
    assert (good.stored, good.next_id, good.problems) == (2001, 2001, ())
    assert good.meaning == "the next id to be handed out"
    assert found["bad step"].problems == ("step is 0, but must be at least 1",)
    assert found["low"].problems == ("max_id is -1, no number from 0 to 2^63-1",)
    assert found["end"].problems == ("it is used up: 10 more ids would pass 2^63-1",)
    assert {found[name].next_id for name in ("bad step", "low", "end")} == {None}
    counters = {each.namespaced_name: each.last_max_id for each in await store.counters()}
    assert counters["cosid.good"] == 2000
    assert "cosid.low" not in counters
    assert await execute("SELECT * FROM leaf_alloc ORDER BY biz_tag") == written


# Rows that are no good.


async def test_bad_rows_are_refused_and_left_alone(store: LeafStore, execute: Execute) -> None:
    """A step that would stop or lower the number, a number that is none, the end of int64."""
    bad: list[tuple[str, int, int, type[CosIdError]]] = [
        ("step-0", 5, 0, CorruptCounterError),
        ("step-negative", 5, -100, CorruptCounterError),
        ("negative", -5, 100, CorruptCounterError),
        ("end", MAX_ID - 98, 100, IdOverflowError),
    ]
    for tag, max_id, step, kind in bad:
        await execute(INSERT, tag=tag, max_id=max_id, step=step)
        with pytest.raises(kind, match=tag):
            await store.segment_distributor(name=tag, step=100).next_max_id(100)
        assert await row_of(execute, tag) == (max_id, step)
    for tag in ("step-0", "negative"):
        with pytest.raises(CorruptCounterError):
            await store.tag(tag)
    with pytest.raises(CorruptCounterError):
        await store.set_floor(name="negative", above=7)
    assert await row_of(execute, "negative") == (-5, 100)


async def test_a_missing_tag_is_not_made(store: LeafStore, execute: Execute) -> None:
    """Leaf inserts none either; whoever waits is told at once, and a retry would not mend it."""
    for call in (
        store.segment_distributor(name="nobody").next_max_id(1),
        store.tag("nobody"),
    ):
        with pytest.raises(CounterMissingError, match=r"create it with .*create_tag") as caught:
            await call
        assert (caught.value.table, caught.value.counter) == ("leaf_alloc", "nobody")
        assert not caught.value.retryable
    assert await execute("SELECT * FROM leaf_alloc") == []


async def test_a_missing_table_is_named(engine: AsyncEngine) -> None:
    with pytest.raises(SchemaMissingError) as caught:
        await LeafStore(engine).segment_distributor(name="order").next_max_id(1)
    assert caught.value.table == "leaf_alloc"


async def test_columns_of_other_types(store: LeafStore, execute: Execute) -> None:
    """A home-made table: numbers with a fraction, NULL, no key, and beyond int64."""
    await execute("DROP TABLE leaf_alloc")
    number = "numeric(30,5)" if rows_of(store).executor.dialect_name != "sqlite" else "blob"
    await execute(
        f"CREATE TABLE leaf_alloc (biz_tag varchar(128), max_id {number}, step bigint, "
        "update_time timestamp NULL)"
    )
    insert = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('{}', {}, 10)"
    for tag, number in (
        *(("half", "5.5"), ("null", "NULL"), ("great", "92233720368547758080")),
        *(("twice", "1"), ("twice", "1001"), ("good", "4001")),
    ):
        await execute(insert.format(tag, number))
    for tag in ("half", "null", "great"):
        with pytest.raises(CorruptCounterError, match=tag):
            await store.segment_distributor(name=tag).next_max_id(1)
    with pytest.raises(CorruptCounterError, match="2 rows"):
        await store.segment_distributor(name="twice").next_max_id(1)
    assert await store.segment_distributor(name="good").next_max_id(10) == 4010
    problems = {each.name: each.problems for each in await store.examine()}
    assert problems["null"] == ("max_id is NULL",)
    assert problems["good"] == ()


@pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
async def test_a_session_that_cuts_numbers(engine: AsyncEngine, execute: Execute) -> None:
    """A narrow column, and an engine of the user's that is not strict: no id comes twice."""

    @event.listens_for(engine.sync_engine, "connect")
    def be_lax(connection: Any, record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET sql_mode = ''")

    store = LeafStore(engine)
    await store.create_schema()
    for kind, top in (("int", 2**31 - 1), ("decimal(10, 0)", 10**10 - 1), ("bigint", MAX_ID)):
        await execute("DELETE FROM leaf_alloc")
        await execute(f"ALTER TABLE leaf_alloc MODIFY max_id {kind} NOT NULL")
        await execute(INSERT, tag="order", max_id=top - 1500, step=1000)
        assert await store.segment_distributor(name="order").next_max_id(1000) == top - 501
        for _ in range(2):
            with pytest.raises(IdOverflowError, match="order"):
                await store.segment_distributor(name="order").next_max_id(1000)
        if kind == "int":
            with pytest.raises(IdOverflowError, match="order"):
                await store.set_floor(name="order", above=top + 1)


async def test_there_are_no_machine_ids(store: LeafStore) -> None:
    with pytest.raises(StoreError, match="hands out no machine ids"):
        store.machine_id_distributor()


async def test_a_number_that_went_back_is_noticed(store: LeafStore, execute: Execute) -> None:
    await execute(INSERT, **SAMPLE)
    tag = store.segment_distributor(name="leaf-segment-test")
    await tag.next_max_id(1000)
    await execute("UPDATE leaf_alloc SET max_id = 1")
    with pytest.raises(StoreRolledBackError):
        await tag.next_max_id(1000)


@pytest.mark.parametrize("engine", ["mariadb", "sqlite"], indirect=True)
async def test_a_forked_child_takes_no_ids(
    store: LeafStore, execute: Execute, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the parent's engine never; from a URL once it is opened anew, above what it has seen."""
    await execute(INSERT, **SAMPLE)
    borrowed = store.segment_distributor(name="leaf-segment-test")
    url = engine.url.render_as_string(hide_password=False)
    own_store = LeafStore.from_url(url)
    own = own_store.segment_distributor(name="leaf-segment-test")
    for each, due in ((borrowed, 10), (own, 20)):
        assert await each.next_max_id(10) == due
    await own_store.aclose()
    monkeypatch.setattr(fork, "generation", fork.generation + 1)
    for each in (borrowed, own):
        with pytest.raises(ForkedError):
            await each.next_max_id(10)
    with pytest.raises(ForkedError):
        await borrowed.aopen()
    await own.aopen()
    assert await own.next_max_id(10) == 30
    await own_store.aclose()


async def test_an_engine_has_to_be_one() -> None:
    for engine in ("mysql://localhost/leaf", None):
        with pytest.raises(InvalidArgumentError, match="AsyncEngine"):
            LeafStore(engine)  # type: ignore[arg-type]


# Old nodes.


class OldNode:
    """A Leaf node by its own statements: an UPDATE, then a SELECT, in one transaction.

    It takes the row's step twice, and doubles it from then on, to at most a million.
    """

    def __init__(self, server: MariadbServer, database: str, tag: str) -> None:
        self.connection = server.connect(database)
        self.tag = tag
        self.loads = self.step = 0

    def load(self) -> range:
        """Take a segment."""
        self.loads += 1
        with self.connection.cursor() as cursor:
            self.connection.begin()
            if self.loads <= 2:
                cursor.execute(
                    "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = %s", (self.tag,)
                )
            else:
                self.step = self.step if self.step * 2 > 1_000_000 else self.step * 2
                cursor.execute(
                    "UPDATE leaf_alloc SET max_id = max_id + %s WHERE biz_tag = %s",
                    (self.step, self.tag),
                )
            cursor.execute(
                "SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = %s", (self.tag,)
            )
            _, max_id, step = cursor.fetchone()
            self.connection.commit()
        self.step = self.step or step
        return range(max_id - self.step, max_id)

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


async def tiles(ranges: Sequence[range], execute: Execute, tag: str) -> None:
    """Check that they follow each other from 1 to the row's number, without overlap or hole."""
    ranges = sorted(ranges, key=lambda each: each.start)
    assert [each.start for each in ranges] == [1, *(each.stop for each in ranges[:-1])]
    assert await row_of(execute, tag) == (ranges[-1].stop, 2000)


@TURNS
@pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
async def test_an_old_node_and_ours_take_turns(
    store: LeafStore, execute: Execute, engine: AsyncEngine, mariadb: MariadbServer, turns: int
) -> None:
    """On one row, with steps of our own that differ from its."""
    await execute(INSERT, **SAMPLE)
    ours = store.segment_distributor(name="leaf-segment-test")
    with closing(OldNode(mariadb, str(engine.url.database), "leaf-segment-test")) as old:
        ranges = await take_turns(turns, ours, old.load, (1, 7, 2000, 999_999))
    await tiles(ranges, execute, "leaf-segment-test")


@pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
async def test_old_nodes_and_ours_at_once(
    store: LeafStore, execute: Execute, engine: AsyncEngine, mariadb: MariadbServer
) -> None:
    """Two of each, nobody waiting for the other."""
    await execute(INSERT, **SAMPLE)
    database = str(engine.url.database)
    ranges: list[range] = []

    def old() -> None:
        with closing(OldNode(mariadb, database, "leaf-segment-test")) as node:
            ranges.extend(node.load() for _ in range(100))

    async def ours(step: int) -> None:
        tag = store.segment_distributor(name="leaf-segment-test", step=step)
        for _ in range(100):
            max_id = await tag.next_max_id(step)
            ranges.append(range(max_id - step + 1, max_id + 1))

    await asyncio.gather(asyncio.to_thread(old), asyncio.to_thread(old), ours(3), ours(500))
    await tiles(ranges, execute, "leaf-segment-test")
