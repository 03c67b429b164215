"""Leaf's tags while they come and go."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
import pytest_asyncio

from aiocosid.abc import IdSegmentDistributor
from aiocosid.compat.leaf import (
    REFRESH_INTERVAL,
    LeafStore,
    LeafTags,
    TableDistributor,
)
from aiocosid.errors import (
    ClosedError,
    CorruptCounterError,
    CounterMissingError,
    InvalidArgumentError,
    InvalidSettingsError,
    NotOpenError,
    SchemaMissingError,
    SegmentUnavailableError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.provider import configure
from aiocosid.provider.settings import configured_stores
from aiocosid.segment import LeafSegmentId, SegmentChainId
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    ManualClock,
    WrappedDistributor,
    settle,
)
from tests.servers import MariadbServer, eventually

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

Execute: TypeAlias = Callable[..., Any]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leaf.db"


@pytest.fixture
def execute(file: Path) -> Execute:
    """Run SQL in the file, by nobody's leave."""

    def execute(sql: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(sql, values).fetchall()

    return execute


@pytest_asyncio.fixture
async def store(file: Path) -> AsyncIterator[LeafStore]:
    async with LeafStore.from_url(f"leaf+sqlite:///{file}") as store:
        await store.create_schema()
        yield store


async def looked(tags: LeafTags[Any], clock: ManualClock, names: set[str]) -> None:
    """Let an interval pass, and wait for what is read."""
    await clock.advance(REFRESH_INTERVAL)

    async def have_names() -> bool:
        await settle()
        return set(tags.names) == names

    await eventually(have_names)


async def test_tags_come_and_go(store: LeafStore, execute: Execute, clock: ManualClock) -> None:
    """One that is new can be used at once; one that was removed is closed, and an error."""
    await store.create_tag("order", step=10)
    await store.create_tag("idle", step=10)
    async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
        assert set(tags.names) == {"order", "idle"}
        assert not tags.generators
        assert [await tags.next_id("order") for _ in range(3)] == [1, 2, 3]
        order = await tags.get("order")
        assert await tags.get("order") is order
        assert order.statistics().name == "order"

        await store.create_tag("new", step=10, above=100)
        assert await tags.next_id("new") == 101
        assert "new" not in tags.names
        await looked(tags, clock, {"order", "idle", "new"})
        assert await tags.next_id("new") == 102, "it is there: nobody has touched it"

        execute("DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
        await looked(tags, clock, {"idle", "new"})
        assert set(tags.generators) == {"new"}
        for call in (order.next_id, lambda: tags.next_id("order")):
            with pytest.raises((ClosedError, CounterMissingError)):
                await call()
        assert execute("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'idle'") == [(1,)]
    with pytest.raises(ClosedError):
        await tags.next_id("new")


async def test_an_empty_table(store: LeafStore, execute: Execute, clock: ManualClock) -> None:
    """Leaf keeps its tags then; here they are gone, and come back."""
    async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
        assert not tags.names
        await store.create_tag("order", step=10)
        assert await tags.next_id("order") == 1
        await looked(tags, clock, {"order"})
        execute("DELETE FROM leaf_alloc")
        await looked(tags, clock, set())
        assert not tags.generators
        with pytest.raises(CounterMissingError):
            await tags.next_id("order")


async def test_a_tag_that_is_made_anew(
    store: LeafStore, execute: Execute, clock: ManualClock
) -> None:
    """With a smaller number after it was seen to be gone: it begins where its row says."""
    await store.create_tag("order", step=10, above=5000)
    async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
        assert await tags.next_id("order") == 5001
        execute("DELETE FROM leaf_alloc")
        await looked(tags, clock, set())
        await store.create_tag("order", step=10)
        assert await tags.next_id("order") == 1


async def test_a_number_that_was_lowered(
    store: LeafStore, execute: Execute, clock: ManualClock
) -> None:
    """Nobody saw the tag gone, so writes may have been lost: no cached id is handed out any more.

    Nor is the row advanced by those who ask, until it is above what was seen.
    """
    await store.create_tag("order", step=10, above=5000)
    await store.create_tag("other", step=10)
    async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
        order = await tags.get("order")
        execute("UPDATE leaf_alloc SET max_id = 7 WHERE biz_tag = 'order'")
        await clock.advance(REFRESH_INTERVAL)

        await until(lambda: not tags.generators)
        with pytest.raises(ClosedError):
            await order.next_id()
        for _ in range(3):
            with pytest.raises(StoreRolledBackError, match="set-floor order"):
                await tags.next_id("order")
        assert execute("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'order'") == [(7,)]
        await store.set_floor(name="order", above=5010)
        assert await tags.next_id("order") == 5011


async def test_a_generator_that_has_ended_is_opened_anew(
    store: LeafStore, execute: Execute, clock: ManualClock
) -> None:
    """Closed by somebody, or by a number that went back: above all that it handed out."""
    await store.create_tag("order", step=10)
    async with LeafTags(store, SegmentChainId, clock=clock) as tags:
        first = await tags.get("order")
        assert await first.next_id() == 1
        await first.aclose()
        assert await tags.next_id("order") > 1
        assert await tags.get("order") is not first


async def test_one_that_has_ended_by_itself_is_closed(
    store: LeafStore, execute: Execute, clock: ManualClock
) -> None:
    """Or each one would leave its tasks and its distributor behind."""
    made: list[WrappedDistributor] = []

    def make(distributor: IdSegmentDistributor) -> SegmentChainId:
        made.append(WrappedDistributor(distributor))
        return SegmentChainId(made[-1], clock=clock)

    await store.create_tag("order", step=10, above=5000)
    async with LeafTags(store, make, clock=clock) as tags:
        first = await tags.get("order")
        execute("UPDATE leaf_alloc SET max_id = 7")
        with pytest.raises(StoreRolledBackError):
            await first.next_ids(1000)
        await store.set_floor(name="order", above=9000)
        assert await tags.next_id("order") == 9001

        await until(lambda: [each.closed for each in made] == [1, 0])


async def test_who_waits_for_an_opening_that_fails_fails_with_it(
    store: LeafStore, clock: ManualClock
) -> None:
    """At once, and not each after a deadline of its own, one after the other."""
    made: list[FailingDistributor] = []

    def make(distributor: IdSegmentDistributor) -> LeafSegmentId:
        made.append(FailingDistributor(distributor))
        made[-1].fail()
        return LeafSegmentId(made[-1], clock=clock)

    await store.create_tag("order", step=10)
    async with LeafTags(store, make, clock=clock) as tags:
        asking = [asyncio.create_task(tags.next_id("order")) for _ in range(20)]

        async def have_failed() -> bool:
            await clock.advance(1)
            return all(each.done() for each in asking)

        await eventually(have_failed)
        errors = [each.exception() for each in asking]
        assert {type(each) for each in errors} == {SegmentUnavailableError}
        assert len({id(each) for each in errors}) == 20, "each has a traceback of its own"
        assert len(made) == 1


async def test_a_row_that_nobody_answers_for(
    store: LeafStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a deadline; and if who reads it is cancelled, the next one does."""
    read, asked = TableDistributor.row, list[anyio.Event]()

    async def held(self: TableDistributor) -> Any:
        asked.append(anyio.Event())
        await asked[-1].wait()
        return await read(self)

    async def are_asked(count: int) -> None:
        async def is_so() -> bool:
            await settle()
            return len(asked) == count

        await eventually(is_so)

    monkeypatch.setattr(TableDistributor, "row", held)
    await store.create_tag("order", step=10)
    async with LeafTags(store, SegmentChainId, clock=clock) as tags:
        asking = [asyncio.create_task(tags.next_id("order")) for _ in range(3)]
        await are_asked(1)
        await clock.advance(10)
        await asyncio.wait(asking, timeout=10)
        for each in asking:
            assert isinstance(each.done() and each.exception(), StoreUnavailableError)
        assert len(asked) == 1
        asking = [asyncio.create_task(tags.next_id("order")) for _ in range(3)]
        await are_asked(2)
        asking[0].cancel()
        await are_asked(3)
        asked[-1].set()
        assert sorted(await asyncio.gather(*asking[1:])) == [1, 2]


async def test_a_slow_tag_keeps_nobody_waiting(store: LeafStore, clock: ManualClock) -> None:
    """Not while it opens, not while it is used, not while it is looked at."""
    gates: dict[str, GatedDistributor] = {}

    def make(distributor: IdSegmentDistributor) -> LeafSegmentId:
        gates[distributor.name] = gate = GatedDistributor(distributor)
        if distributor.name == "fast":
            gate.open()
        return LeafSegmentId(gate)

    for name in ("slow", "fast"):
        await store.create_tag(name, step=10)
    async with LeafTags(store, make, clock=clock) as tags, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(tags.next_id, "slow")

        await until(lambda: "slow" in gates and gates["slow"].held == 1)
        assert [await tags.next_id("fast") for _ in range(25)] == list(range(1, 26))
        await store.create_tag("new", step=10)
        await looked(tags, clock, {"slow", "fast", "new"})
        assert gates["slow"].held == 1, "three callers, one generator, one call"
        gates["slow"].open()


async def test_many_ask_at_once(store: LeafStore, execute: Execute, clock: ManualClock) -> None:
    await store.create_tag("order", step=100)
    async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
        ids = await asyncio.gather(*(tags.next_id("order") for _ in range(50)))
        assert sorted(ids) == list(range(1, 51))
    assert execute("SELECT max_id FROM leaf_alloc") in ([(101,)], [(201,)])


async def test_bad_rows_and_missing_tables(
    store: LeafStore, execute: Execute, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that is no good is its callers' error; a table that is away is told once."""
    execute("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('bad', 1, 0)")
    async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
        for _ in range(2):
            with pytest.raises(CorruptCounterError, match="step is 0"):
                await tags.next_id("bad")
        await store.create_tag("order", step=1000)
        assert await tags.next_id("order") == 1
        execute("ALTER TABLE leaf_alloc RENAME TO away")
        for _ in range(3):
            await tags._refresh()
        assert await tags.next_id("order") == 2
        execute("ALTER TABLE away RENAME TO leaf_alloc")
        await looked(tags, clock, {"bad", "order"})
        assert await tags.next_id("order") == 3
    assert [r.message for r in caplog.records if "cannot read the tags" in r.message][1:] == []
    execute("DROP TABLE leaf_alloc")
    with pytest.raises(SchemaMissingError):
        await tags.__aenter__()


async def test_its_life(store: LeafStore, clock: ManualClock) -> None:
    """Not open, open, closed while somebody opens a tag, opened anew; in a task group too."""
    await store.create_tag("order", step=10)
    tags = LeafTags(store, LeafSegmentId, clock=clock)
    with pytest.raises(NotOpenError):
        await tags.next_id("order")
    async with tags:
        asking = asyncio.create_task(tags.next_id("order"))
        await asyncio.sleep(0)
        await tags.aclose()
        with pytest.raises(ClosedError):
            await asking
    assert dict(tags.generators) == {}
    async with anyio.create_task_group() as group:
        assert await group.start(tags.run) is tags
        assert await tags.next_id("order") >= 1
        group.cancel_scope.cancel()
    with pytest.raises(ClosedError):
        await tags.next_id("order")
    with pytest.raises(InvalidArgumentError, match="make"):
        LeafTags(store, None)  # type: ignore[arg-type]
    for interval in (0, -1, float("inf")):
        with pytest.raises(InvalidArgumentError, match="interval"):
            LeafTags(store, LeafSegmentId, interval=interval)


async def test_on_mysql_names_differ_in_more_than_case(
    mariadb: MariadbServer, mariadb_database: str, clock: ManualClock
) -> None:
    """Leaf's table as shipped finds one row under both, so both take ids of it, and live on."""
    async with LeafStore.from_url(mariadb_database) as store:
        await store.create_schema()
        await store.create_tag("order", step=10)
        async with LeafTags(store, LeafSegmentId, clock=clock) as tags:
            ids = [await tags.next_id(name) for name in ("order", "Order", "order", "Order")]
            assert len(set(ids)) == 4
            await store.create_tag("new", step=10)
            await looked(tags, clock, {"order", "new"})
            assert set(tags.generators) == {"order", "Order"}


# By settings.


async def test_by_settings(store: LeafStore, execute: Execute, clock: ManualClock) -> None:
    """They are open while the provider is, on the store at the top or one of their own."""
    await store.create_tag("order", step=10)
    await store.create_tag("late", step=10)
    given: dict[str, Any] = {"store": store, "leaf_tags": {"interval": REFRESH_INTERVAL}}
    elsewhere = {"store": "memory:", "leaf_tags": {"store": store}}
    for settings in (given, elsewhere):
        ids = configure(settings, default=False, clock=clock)
        tags = ids.leaf_tags
        assert tags is not None
        async with ids:
            order = await tags.get("order")
            assert isinstance(order, LeafSegmentId)
            ids.fail_fast()
            for generator in (order, await tags.get("late")):
                root = generator._root
                assert root is not None
                assert root.fail_fast
            await store.create_tag("new", step=10)
            assert await tags.next_id("new") >= 1
            await looked(tags, clock, {"order", "late", "new"})
            execute("DELETE FROM leaf_alloc WHERE biz_tag = 'new'")
            await looked(tags, clock, {"order", "late"})
            with pytest.raises(CounterMissingError):
                await tags.next_id("new")
        with pytest.raises(ClosedError):
            await order.next_id()
        with pytest.raises(ClosedError):
            await tags.next_id("order")
        async with ids:
            assert await tags.next_id("order") > 1
    execute("DROP TABLE leaf_alloc")
    with pytest.raises(SchemaMissingError):
        await configure(given, default=False).__aenter__()


@pytest.mark.parametrize(
    ("settings", "place", "reason"),
    [
        ({"store": "memory:", "leaf_tags": {}}, "leaf_tags.store", "must be Leaf's"),
        ({"leaf_tags": {}}, "leaf_tags", "needs a store"),
        ({"leaf_tags": {"store": "nope"}}, "leaf_tags.store", "is not a name in"),
        ({"store": "memory:", "leaf_tags": {"interval": 0}}, "leaf_tags.interval", "greater than"),
        ({"store": "memory:", "leaf_tags": {"inerval": 1}}, "leaf_tags.inerval", "interval?"),
    ],
)
async def test_settings_that_are_wrong(settings: Any, place: str, reason: str) -> None:
    with pytest.raises(InvalidSettingsError) as error:
        configure(settings)
    (problem,) = error.value.problems
    assert problem.key == place
    assert reason in problem.reason


async def test_their_store_is_one_of_the_settings(tmp_path: Path) -> None:
    """Which ``aiocosid init --config`` prepares."""
    url = f"leaf+sqlite:///{tmp_path / 'leaf.db'}"
    assert [each[0] for each in configured_stores({"leaf_tags": {"store": url}})] == [url]
