"""tinyid's tables on real databases: what a row means, old nodes beside, and rows that are no good.

The rows that are expected come from tinyid itself: ``max_id`` is the end of the last segment, a
grant owns ``(old, new]``, and of that only the ids that are ``remainder`` modulo ``delta``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

import aiocosid
from aiocosid import SegmentId
from aiocosid.abc import MAX_ID, IdSegmentDistributor
from aiocosid.compat._table_store import rows_of
from aiocosid.compat.tinyid import (
    TinyidGroupStore,
    TinyidStore,
    TinyidTokens,
)
from aiocosid.errors import (
    CorruptCounterError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.testing import ManualClock
from tests.servers import MariadbServer

from ._other_tables import TURNS, Execute, assert_disjoint

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

INSERT = """
INSERT INTO tiny_id_info (biz_type, begin_id, max_id, step, delta, remainder)
VALUES (:name, 1, :max_id, :step, :delta, :remainder)
"""


@pytest_asyncio.fixture
async def store(engine: AsyncEngine) -> TinyidStore:
    """A store on it, with tinyid's table."""
    store = TinyidStore(engine)
    await store.create_schema()
    await store.create_schema()
    return store


async def insert(  # noqa: PLR0917 - a row's columns
    execute: Execute,
    name: str,
    max_id: int = 1,
    step: int | None = 100_000,
    delta: int | None = 1,
    remainder: int | None = 0,
) -> None:
    """Add a row; as tinyid ships them, if not told otherwise."""
    await execute(INSERT, name=name, max_id=max_id, step=step, delta=delta, remainder=remainder)


async def row_of(execute: Execute, name: str) -> tuple[int, int]:
    statement = "SELECT max_id, version FROM tiny_id_info WHERE biz_type = :name"
    (row,) = await execute(statement, name=name)
    return row  # type: ignore[no-any-return]


# What a row means.


async def test_rows_before_and_after(store: TinyidStore, execute: Execute) -> None:
    """Row before, first id, last id, row after, for a tinyid server's own segment."""
    golden = {
        "test": ((1, 100_000, 1, 0), range(2, 100_002), 100_001),
        "test_odd": ((1, 100_000, 2, 1), range(3, 100_002, 2), 100_001),
        "even": ((1, 10, 2, 0), range(2, 12, 2), 11),
        "thirds": ((1000, 999, 3, 0), range(1002, 2000, 3), 1999),
        "new": ((0, 10, 1, 0), range(1, 11), 10),
    }
    for name, (before, ids, after) in golden.items():
        await insert(execute, name, *before)
        async with SegmentId(await store.biz_type(name)) as generator:
            assert await generator.next_ids(len(ids)) == list(ids)
        assert await row_of(execute, name) == (after, 1)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_every_step_is_exact(store: TinyidStore, execute: Execute) -> None:
    """As many ids as asked for, above the old number and up to the new one, wherever it was."""
    for delta in (1, 3):
        for remainder in range(delta):
            name = f"{delta}-{remainder}"
            await insert(execute, name, 5 * delta + remainder, 10, delta, remainder)
            ours = store.segment_distributor(name=name)
            for step in (1, 4):
                await execute(
                    "UPDATE tiny_id_info SET max_id = max_id + 1 WHERE biz_type = :name", name=name
                )
                old = (await row_of(execute, name))[0]
                last = await ours.next_max_id(step)
                new = (await row_of(execute, name))[0]
                ids = range(last - (step - 1) * ours.stride, last + 1, ours.stride)
                assert list(ids) == [n for n in range(old + 1, new + 1) if n % delta == remainder]
                assert len(ids) == step


async def test_by_address(store: TinyidStore, execute: Execute, engine: AsyncEngine) -> None:
    """Under the name of the system, with a chain."""
    await insert(execute, "test_odd", 1, 100_000, 2, 1)
    url = engine.url.render_as_string(hide_password=False).replace("+asyncmy", "")
    async with aiocosid.connect(f"tinyid+{url}") as ids:
        chain = await ids.segment_chain("test_odd", step=10)
        assert await chain.next_ids(25) == list(range(3, 53, 2))
    async with TinyidStore.from_url(url) as own:
        alone = own.segment_distributor(name="test_odd", step=10)
        assert (alone.stride, alone.store) == (0, alone.store)
        assert await alone.next_max_id(1) % 2 == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_nobody_told_the_delta(store: TinyidStore, execute: Execute) -> None:
    """A home-made table: NULL is what tinyid takes it for."""
    await execute("DROP TABLE tiny_id_info")
    await execute(
        "CREATE TABLE tiny_id_info (biz_type varchar(63), begin_id int, max_id bigint, step int, "
        "delta int, remainder int, update_time timestamp NULL, version bigint DEFAULT 0)"
    )
    await insert(execute, "order", 7, 10, None, None)
    assert await store.segment_distributor(name="order").next_max_id(3) == 10
    await insert(execute, "order", 7, 10, 1, 0)
    with pytest.raises(CorruptCounterError, match="2 rows"):
        await store.segment_distributor(name="order").next_max_id(3)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_delta_that_is_changed(store: TinyidStore, execute: Execute) -> None:
    """As when a second database is added: the next segment has the new one."""
    await insert(execute, "order", 100, 10)
    ours = store.segment_distributor(name="order")
    assert (await ours.next_max_id(5), ours.stride) == (105, 1)
    await execute("UPDATE tiny_id_info SET delta = 2, remainder = 1")
    last = await ours.next_max_id(5)
    assert (last, ours.stride) == (115, 2)
    assert await row_of(execute, "order") == (115, 2)
    await execute("UPDATE tiny_id_info SET delta = 3")
    assert (await ours.next_max_id(5), ours.stride) == (130, 3)


async def test_what_a_check_reads(store: TinyidStore, execute: Execute) -> None:
    await insert(execute, "a", 1, 100_000)
    await insert(execute, "b", 1, 100_000, 2, 1)
    await insert(execute, "c", 1, 0, 2, 2)
    await insert(execute, "d", MAX_ID - 5, 10)
    a, b, c, d = await store.examine()
    assert (a.stored, a.next_id, a.meaning) == (1, 2, "the last id handed out")
    assert (b.stored, b.next_id) == (1, 3)
    only = "only ids with remainder 1 modulo 2 are handed out"
    assert b.meaning == f"the end of the last segment; {only}"
    assert c.problems == (
        "step is 0, but must be at least 1",
        "remainder is 2, but must be from 0 to 1, below delta",
    )
    assert (c.next_id, d.next_id) == (None, None)
    assert d.problems == ("it is used up: 10 more ids would pass 2^63-1",)
    assert await execute("SELECT sum(version) FROM tiny_id_info") == [(0,)]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_floor(store: TinyidStore, execute: Execute) -> None:
    """The next id is above it, and of the same class."""
    await insert(execute, "order", 1, 10, 2, 1)
    assert (await store.set_floor(name="order", above=500)).last_max_id == 500
    assert (await store.set_floor(name="order", above=400)).last_max_id == 500
    assert await row_of(execute, "order") == (500, 1)
    assert await store.segment_distributor(name="order").next_max_id(1) == 501


# Rows that are no good.


async def test_bad_rows_are_refused_and_left_alone(store: TinyidStore, execute: Execute) -> None:
    bad: dict[str, tuple[int, int, int, int]] = {
        "delta is 0": (5, 10, 0, 0),
        "delta is -2": (5, 10, -2, 0),
        "remainder is 2": (5, 10, 2, 2),
        "remainder is -1": (5, 10, 2, -1),
        "step is 0": (5, 0, 1, 0),
        "step is -10": (5, -10, 1, 0),
        "max_id is -5": (-5, 10, 1, 0),
    }
    for what, row in bad.items():
        await insert(execute, what, *row)
        ours = store.segment_distributor(name=what)
        for call in (ours.next_max_id(10), store.biz_type(what)):
            with pytest.raises(CorruptCounterError, match=what):
                await call
        assert await row_of(execute, what) == (row[0], 0)
    # Bad since it was seen.
    await insert(execute, "order", 1, 10)
    ours = store.segment_distributor(name="order")
    await ours.next_max_id(10)
    await execute("UPDATE tiny_id_info SET delta = 0 WHERE biz_type = 'order'")
    with pytest.raises(CorruptCounterError, match="delta is 0"):
        await ours.next_max_id(10)
    assert await row_of(execute, "order") == (11, 1)
    with pytest.raises(CounterMissingError, match="biz_type is 'nobody'"):
        await store.segment_distributor(name="nobody").next_max_id(1)


@pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
async def test_the_end_of_int64(store: TinyidStore, execute: Execute) -> None:
    """All ids of a call fit, or none is granted."""
    await insert(execute, "order", MAX_ID - 7, 1, 3, 0)
    ours = store.segment_distributor(name="order")
    for step in (3, 2**62, MAX_ID):
        with pytest.raises(IdOverflowError):
            await ours.next_max_id(step)
    assert await row_of(execute, "order") == (MAX_ID - 7, 0)
    assert await ours.next_max_id(2) <= MAX_ID
    with pytest.raises(IdOverflowError):
        await ours.next_max_id(1)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_number_that_went_back(store: TinyidStore, execute: Execute) -> None:
    await insert(execute, "order", 1, 10, 3, 1)
    ours = store.segment_distributor(name="order")
    await ours.next_max_id(5)
    await execute("UPDATE tiny_id_info SET max_id = max_id - 15")
    with pytest.raises(StoreRolledBackError):
        await ours.next_max_id(5)


# Old nodes.


class OldNode:
    """A tinyid server by its own statements: it reads the row, then compares number and version."""

    def __init__(self, server: MariadbServer, database: str) -> None:
        self.connection = server.connect(database)

    def load(self, name: str) -> range:
        """Take a segment, and give the ids of it that are ours, as its alignment finds them."""
        for _ in range(3):
            with self.connection.cursor() as cursor:
                cursor.execute(
                    "select id, biz_type, max_id, step, delta, remainder, version "
                    "from tiny_id_info where biz_type = %s",
                    (name,),
                )
                key, biz_type, max_id, step, delta, remainder, version = cursor.fetchone()
                new = max_id + step
                updated = cursor.execute(
                    "update tiny_id_info set max_id=%s, update_time=now(), version=version+1 "
                    "where id=%s and max_id=%s and version=%s and biz_type=%s",
                    (new, key, max_id, version, biz_type),
                )
            if updated == 1:
                first = next(n for n in range(max_id + 1, new + 2) if n % delta == remainder)
                return range(first, new + 1, delta)
        raise AssertionError("get next segmentId conflict")

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


@TURNS
@pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
async def test_an_old_node_and_ours_take_turns(
    store: TinyidStore, execute: Execute, engine: AsyncEngine, mariadb: MariadbServer, turns: int
) -> None:
    """On rows of every kind; its steps are no multiple of the delta."""
    rows = {"all": (1, 7, 1, 0), "odd": (1, 9, 2, 1), "thirds": (5, 10, 3, 2)}
    for name, row in rows.items():
        await insert(execute, name, *row)
    ours = {name: store.segment_distributor(name=name) for name in rows}
    ranges: dict[str, list[range]] = {name: [] for name in rows}
    with closing(OldNode(mariadb, str(engine.url.database))) as old:
        for turn in range(turns):
            name = [*rows][turn // 2 % 3]
            if turn % 2:
                ranges[name].append(old.load(name))
                continue
            step = (1, 2, 5, 13)[turn // 2 % 4]
            last, stride = await ours[name].next_max_id(step), ours[name].stride
            ranges[name].append(range(last - (step - 1) * stride, last + 1, stride))
    for name, (start, _, delta, remainder) in rows.items():
        assert_disjoint(ranges[name])
        end = (await row_of(execute, name))[0]
        due = {n for n in range(start + 1, end + 1) if n % delta == remainder}
        assert {n for each in ranges[name] for n in each} == due


@pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
async def test_an_old_node_and_ours_at_once(
    store: TinyidStore, execute: Execute, engine: AsyncEngine, mariadb: MariadbServer
) -> None:
    """Ours comes between its two statements: its comparison has to fail."""
    await insert(execute, "order", 1, 10, 2, 1)
    ours = store.segment_distributor(name="order")
    with closing(mariadb.connect(str(engine.url.database))) as old, old.cursor() as cursor:
        cursor.execute("select id, max_id, version from tiny_id_info where biz_type = 'order'")
        key, max_id, version = cursor.fetchone()
        await ours.next_max_id(5)
        updated = cursor.execute(
            "update tiny_id_info set max_id=%s, update_time=now(), version=version+1 "
            "where id=%s and max_id=%s and version=%s and biz_type='order'",
            (max_id + 10, key, max_id, version),
        )
        assert updated == 0
        # Even where somebody has put the number back.
        cursor.execute("update tiny_id_info set max_id = 1")
        updated = cursor.execute(
            "update tiny_id_info set max_id=%s, update_time=now(), version=version+1 "
            "where id=%s and max_id=%s and version=%s and biz_type='order'",
            (max_id + 10, key, max_id, version),
        )
        assert updated == 0


# Several databases.


@pytest_asyncio.fixture
async def pair(tmp_path: Any) -> AsyncIterator[tuple[list[TinyidStore], list[Execute]]]:
    """Two databases, of the odd ids and of the even ones."""
    stores, does = [], []
    for number in range(2):
        store = TinyidStore.from_url(f"sqlite:///{tmp_path}/{number}.db")
        await store.create_schema()
        execute = _on_store(store)
        await execute(INSERT, name="order", max_id=1, step=10, delta=2, remainder=number)
        stores.append(store)
        does.append(execute)
    yield stores, does
    for store in stores:
        await store.aclose()


@pytest.fixture
def group_url(tmp_path: Any) -> str:
    """The address of both."""
    urls = [quote(f"sqlite:///{tmp_path}/{number}.db", safe="") for number in range(2)]
    return "striped:?" + "&".join(f"store={url}" for url in urls)


def _on_store(store: TinyidStore) -> Execute:
    async def execute(statement: str, **values: Any) -> Sequence[Any]:
        done = await rows_of(store).executor.run(statement, **values)
        return done.rows

    return execute


def group_of(stores: Sequence[TinyidStore], clock: ManualClock) -> IdSegmentDistributor:
    executors: Any = [rows_of(store).executor for store in stores]
    return TinyidGroupStore(executors, clock=clock).segment_distributor(name="order", step=5)


async def test_any_database_is_enough(
    pair: tuple[list[TinyidStore], list[Execute]], caplog: pytest.LogCaptureFixture
) -> None:
    """While one is away the other goes on; ids rise, and keep the class of their database."""
    stores, does = pair
    clock = ManualClock()
    group = group_of(stores, clock)
    last = [await group.next_max_id(5)]
    home = last[0] % 2
    await does[home]("ALTER TABLE tiny_id_info RENAME TO away")
    with caplog.at_level(logging.WARNING, "aiocosid"):
        last += [await group.next_max_id(5) for _ in range(50)]
    assert last[-1] % 2 != home
    assert sum("is failing, so others are called" in each.message for each in caplog.records) == 1
    await does[home]("ALTER TABLE away RENAME TO tiny_id_info")
    await clock.advance(60)
    last += [await group.next_max_id(5) for _ in range(50)]
    assert last[-1] % 2 == home
    assert last == sorted(set(last))


async def test_a_group_by_address(
    pair: tuple[list[TinyidStore], list[Execute]], group_url: str
) -> None:
    _, does = pair
    await does[0]("UPDATE tiny_id_info SET max_id = 100")
    async with aiocosid.connect(f"tinyid-group+{group_url}&store_timeout=5") as ids:
        orders = await ids.segment_chain("order", step=5)
        assert await orders.next_id() in (3, 102), "of one of them"
    async with TinyidGroupStore.from_url(group_url) as store:
        assert [each.namespaced_name for each in await store.counters()] == ["cosid.order"]
        raised = await store.set_floor(name="order", above=1000)
        last = await store.segment_distributor(name="order", step=5).next_max_id(5)
        assert last > raised.last_max_id >= 1000
        assert await store.segment_distributor(name="order").next_max_id(5) > 1000
    for wrong in ("striped:?", group_url.replace("striped", "tiered"), f"{group_url}&x=1"):
        with pytest.raises(InvalidArgumentError, match=r"tinyid-group\+striped:\?store=URL"):
            TinyidGroupStore.from_url(wrong)
    for bad in ("soon", "nan", "-1"):
        with pytest.raises(InvalidArgumentError, match=f"store_timeout must .*, not '?{bad}"):
            TinyidGroupStore.from_url(f"{group_url}&store_timeout={bad}")


async def test_rows_of_several_databases_are_examined(
    pair: tuple[list[TinyidStore], list[Execute]], group_url: str
) -> None:
    _, does = pair
    async with TinyidGroupStore.from_url(group_url) as store:
        found = [(each.name, each.next_id, each.problems) for each in await store.examine()]
        assert found == [("order@0", 2, ()), ("order@1", 3, ())]
        await does[1]("UPDATE tiny_id_info SET remainder = 2, delta = 4")
        same = ("database 0 has ids that are 0 modulo 2: some are the same",)
        found = [(each.name, each.next_id, each.problems) for each in await store.examine()]
        assert found == [("order@0", 2, ()), ("order@1", None, same)]


async def test_no_database_answers(pair: tuple[list[TinyidStore], list[Execute]]) -> None:
    stores, does = pair
    group = group_of(stores, ManualClock())
    for execute in does:
        await execute("UPDATE tiny_id_info SET step = 0")
    with pytest.raises(CorruptCounterError, match="step is 0"):
        await group.next_max_id(5)
    for execute in does:
        await execute("DELETE FROM tiny_id_info")
    with pytest.raises(StoreError, match=r"no database answers: .*no row") as caught:
        await group_of(stores, ManualClock()).next_max_id(5)
    assert not isinstance(caught.value, StoreUnavailableError)
    with pytest.raises(InvalidArgumentError):
        TinyidGroupStore([])


async def test_databases_that_share_ids(pair: tuple[list[TinyidStore], list[Execute]]) -> None:
    """Two rows of one class: no object gets an id, whichever database it would ask first."""
    stores, does = pair
    await does[1]("UPDATE tiny_id_info SET remainder = 0")
    for _ in range(4):
        group = group_of(stores, ManualClock())
        for _ in range(2):
            with pytest.raises(CorruptCounterError, match=r"0 modulo 2, and database \d has"):
                await group.next_max_id(5)
    assert [await execute("SELECT max_id FROM tiny_id_info") for execute in does] == [[(1,)]] * 2


async def test_shared_ids_that_are_put_right(
    pair: tuple[list[TinyidStore], list[Execute]],
) -> None:
    """Whichever of the rows it is, with the object that has seen them wrong."""
    stores, does = pair
    for number in (0, 1):
        for execute in does:
            await execute("UPDATE tiny_id_info SET max_id = 1, remainder = 0")
        for _ in range(3):  # it has an order of its own
            group = group_of(stores, ManualClock())
            await does[number]("UPDATE tiny_id_info SET remainder = 0")
            with pytest.raises(CorruptCounterError, match="0 modulo 2, and database"):
                await group.next_max_id(5)
            await does[number]("UPDATE tiny_id_info SET remainder = 1")
            last = await group.next_max_id(5)
            assert await group.next_max_id(5) == last + 10
        rows = [(await execute("SELECT max_id FROM tiny_id_info"))[0][0] for execute in does]
        assert sum(rows) == 2 + 3 * 20, "a failure has written"


async def test_databases_that_change_places(
    pair: tuple[list[TinyidStore], list[Execute]],
) -> None:
    """The first call may find one row new and remember the other's; then both are read anew."""
    stores, does = pair
    group = group_of(stores, ManualClock())
    ids = [await group.next_max_id(5)]
    for remainders in ((1, 0), (0, 1)):
        for execute, remainder in zip(does, remainders, strict=True):
            await execute("UPDATE tiny_id_info SET remainder = :it", it=remainder)
        with pytest.raises(CorruptCounterError, match="has some of them, too"):
            await group.next_max_id(5)
        ids += [await group.next_max_id(5) for _ in range(2)]
    assert ids == sorted(set(ids))


async def test_shared_ids_of_a_database_that_comes_back(
    pair: tuple[list[TinyidStore], list[Execute]],
) -> None:
    """It was away when the others were looked at: it is looked at before it is asked."""
    stores, does = pair
    clock = ManualClock()
    group = group_of(stores, clock)
    await does[1]("UPDATE tiny_id_info SET remainder = 0")
    await does[1]("ALTER TABLE tiny_id_info RENAME TO away")
    assert await group.next_max_id(5) == 10
    await does[1]("ALTER TABLE away RENAME TO tiny_id_info")
    assert await group.next_max_id(5) == 20, "in quarantine: nobody asks it"
    await does[0]("ALTER TABLE tiny_id_info RENAME TO away")
    with pytest.raises(StoreError, match="and database 0 has"):
        await group.next_max_id(5)  # the last resort, still in quarantine
    await clock.advance(60)
    with pytest.raises(CorruptCounterError, match="and database 0 has"):
        await group.next_max_id(5)
    assert await does[1]("SELECT max_id FROM tiny_id_info") == [(1,)]


async def test_a_database_that_lost_writes(pair: tuple[list[TinyidStore], list[Execute]]) -> None:
    """Is not asked any more; the others go on above what it has granted."""
    stores, does = pair
    group = group_of(stores, ManualClock())
    last = await group.next_max_id(5)
    await does[last % 2]("UPDATE tiny_id_info SET max_id = 1")
    after = await group.next_max_id(5)
    assert after % 2 != last % 2
    assert after - 4 * 2 > last
    await does[after % 2]("UPDATE tiny_id_info SET max_id = 1")
    with pytest.raises(StoreRolledBackError):
        await group.next_max_id(5)
    with pytest.raises(StoreRolledBackError):
        await group.next_max_id(5)


# Tokens.


ALLOW = "INSERT INTO tiny_id_token (token, biz_type) VALUES (:who, :name)"


async def test_the_schema_has_the_table_of_tokens(store: TinyidStore, execute: Execute) -> None:
    """As tinyid's: a row is a token, a name and what it is for."""
    tokens = TinyidTokens(store)
    assert not await tokens.allows("secret", "test")
    await execute(ALLOW, who="secret", name="test")
    assert await TinyidTokens(store).allows("secret", "test")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_tokens(store: TinyidStore, execute: Execute, caplog: Any) -> None:
    """One may be for several names; without one nobody gets in; read at most every 60 s."""
    caplog.set_level(logging.DEBUG)
    await execute("DROP TABLE tiny_id_token")
    await execute("CREATE TABLE tiny_id_token (token varchar(255), biz_type varchar(63))")
    for token, name in (("secret", "test"), ("secret", "odd"), ("", "odd"), (None, "odd")):
        await execute(ALLOW, who=token, name=name)
    clock = ManualClock()
    tokens = TinyidTokens(store, clock=clock)
    asked = [("secret", "test"), ("secret", "odd"), ("secret", "x"), ("", "odd"), (None, "odd")]
    assert [await tokens.allows(*each) for each in asked] == [True, True, False, False, False]
    await execute("DELETE FROM tiny_id_token")
    await clock.advance(59.9)
    assert await tokens.allows("secret", "test")
    await clock.advance(0.1)
    assert not await tokens.allows("secret", "test")
    assert "secret" not in repr(tokens)
    told = [each.getMessage() for each in caplog.records if each.name == "aiocosid"]
    assert "secret" not in "".join(told)
