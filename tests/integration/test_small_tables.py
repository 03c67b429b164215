"""idleaf, Hibernate and Flickr's tickets on real databases, with old nodes beside.

The rows that are expected come from those systems: what the number means is different in each.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

import aiocosid
from aiocosid import SegmentChainId, SegmentId
from aiocosid.abc import MAX_ID
from aiocosid.compat.flickr import FlickrStore
from aiocosid.compat.hibernate import HibernateStore
from aiocosid.compat.idleaf import IdleafStore
from aiocosid.errors import (
    CorruptCounterError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    SchemaMissingError,
    UnsupportedByStoreError,
)
from tests.servers import IS_MYSQL, MariadbServer

from ._other_tables import TURNS, Execute, assert_disjoint, engine_on, take_turns

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest_asyncio.fixture(params=["sqlite"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine of the user's own, on an empty database."""
    engine = engine_on(request, request.param)
    yield engine
    await engine.dispose()


def on(*databases: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("engine", databases, indirect=True)


def address(engine: AsyncEngine) -> str:
    return engine.url.render_as_string(hide_password=False).replace("+asyncmy", "")


HAVE_SEQUENCES: Final = ("postgres",) if IS_MYSQL else ("mariadb", "postgres")


# idleaf.

TAG = "INSERT INTO id_segment (biz_tag, max_id, p_step) VALUES (:tag, :max_id, :p_step)"


@on("mariadb", "postgres", "sqlite")
async def test_idleaf(engine: AsyncEngine, execute: Execute) -> None:
    """Row before, first id, last id, row after; the two times are kept as its own nodes do."""
    store = IdleafStore(engine)
    await store.create_schema()
    golden = {"order": (0, 20, 1, 20, 20), "user": (100, 7, 101, 107, 107)}
    for tag, (before, step, first, last, after) in golden.items():
        await execute(TAG, tag=tag, max_id=before, p_step=step)
        async with SegmentId(store.segment_distributor(name=tag, step=step)) as ids:
            assert await ids.next_ids(step) == list(range(first, last + 1))
        rows = await execute("SELECT max_id, p_step FROM id_segment WHERE biz_tag = :tag", tag=tag)
        assert rows == [(after, step)]
    await execute("UPDATE id_segment SET current_update_time = '2020-01-01 00:00:00'")
    async with aiocosid.connect(f"idleaf+{address(engine)}") as ids:
        assert await (await ids.segment_chain("order", step=20)).next_id() == 21
    times = "SELECT last_update_time < '2020-02-01', current_update_time > '2021-01-01' "
    ((was, now),) = await execute(f"{times} FROM id_segment WHERE biz_tag = 'order'")
    assert (was, now) == (True, True)


async def test_bad_rows_of_idleaf(engine: AsyncEngine, execute: Execute) -> None:
    store = IdleafStore(engine)
    await store.create_schema()
    bad: dict[str, tuple[int, int, type[Exception]]] = {
        "step-0": (5, 0, CorruptCounterError),
        "negative": (-5, 10, CorruptCounterError),
        "end": (MAX_ID - 9, 10, IdOverflowError),
    }
    for tag, (max_id, step, kind) in bad.items():
        await execute(TAG, tag=tag, max_id=max_id, p_step=step)
        with pytest.raises(kind, match=tag):
            await store.segment_distributor(name=tag).next_max_id(10)
    rows = await execute("SELECT biz_tag, max_id FROM id_segment")
    assert dict(rows) == {tag: row[0] for tag, row in bad.items()}
    assert all(each.problems for each in await store.examine())
    with pytest.raises(CounterMissingError, match="biz_tag is 'nobody'"):
        await store.segment_distributor(name="nobody").next_max_id(1)


@on("mariadb")
async def test_a_session_that_cuts_numbers(engine: AsyncEngine, execute: Execute) -> None:
    """A column of 32 bits, and an engine of the user's that is not strict: no id comes twice."""

    @event.listens_for(engine.sync_engine, "connect")
    def be_lax(connection: Any, record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET sql_mode = ''")

    store = IdleafStore(engine)
    await store.create_schema()
    for kind, top in (("int", 2**31 - 1), ("decimal(10, 0)", 10**10 - 1), ("bigint", MAX_ID)):
        await execute("DELETE FROM id_segment")
        await execute(f"ALTER TABLE id_segment MODIFY max_id {kind} NOT NULL")
        await execute(TAG, tag="order", max_id=top - 1500, p_step=1000)
        assert await store.segment_distributor(name="order").next_max_id(1000) == top - 500
        for _ in range(2):
            with pytest.raises(IdOverflowError, match="order"):
                await store.segment_distributor(name="order").next_max_id(1000)
        if kind == "int":
            with pytest.raises(IdOverflowError, match="order"):
                await store.set_floor(name="order", above=top + 1)


@TURNS
@on("mariadb")
async def test_an_idleaf_node_and_ours_take_turns(
    engine: AsyncEngine, execute: Execute, mariadb: MariadbServer, turns: int
) -> None:
    store = IdleafStore(engine)
    await store.create_schema()
    await execute(TAG, tag="order", max_id=0, p_step=20)
    ours = store.segment_distributor(name="order")
    with closing(mariadb.connect(str(engine.url.database))) as old, old.cursor() as cursor:

        def load() -> range:
            cursor.execute("select max_id, p_step from id_segment where biz_tag = 'order'")
            before, step = cursor.fetchone()
            assert cursor.execute(
                "update id_segment set max_id=%s, last_update_time=current_update_time, "
                "current_update_time=now() where biz_tag='order' and max_id=%s",
                (before + step, before),
            )
            return range(before + 1, before + step + 1)

        ranges = await take_turns(turns, ours, load, (1, 7, 50))
    assert_disjoint(ranges)
    assert sum(map(len, ranges)) == max(each[-1] for each in ranges)


# Hibernate's table.

ROW = "INSERT INTO hibernate_sequences VALUES (:name, :value)"


@on("mariadb", "postgres", "sqlite")
async def test_hibernates_table(engine: AsyncEngine, execute: Execute) -> None:
    """Row before, first id, last id, row after, by what the nodes have set."""
    golden = {
        "lo": (("pooled-lo", True), 0, 1, 50, 50),
        "lo later": (("pooled-lo", True), 150, 151, 200, 200),
        "lo first value": (("pooled-lo", False), 1, 1, 50, 51),
        "hi": (("pooled", True), 100, 52, 101, 150),
        "hi first value": (("pooled", False), 101, 52, 101, 151),
    }
    await HibernateStore(engine).create_schema()
    for name, ((optimizer, last_used), before, first, last, after) in golden.items():
        await execute(ROW, name=name, value=before)
        store = HibernateStore(engine, optimizer=optimizer, store_last_used=last_used)  # type: ignore[arg-type]
        async with SegmentId(store.segment_distributor(name=name, step=50)) as ids:
            assert await ids.next_ids(50) == list(range(first, last + 1))
        statement = "SELECT next_val FROM hibernate_sequences WHERE sequence_name = :name"
        assert await execute(statement, name=name) == [(after,)]


async def test_the_optimizer_has_to_be_told(engine: AsyncEngine, execute: Execute) -> None:
    """One may look without; ids are another thing."""
    store = HibernateStore.from_url(address(engine))
    await store.create_schema()
    await execute(ROW, name="order", value=100)
    (found,) = await store.examine()
    assert (found.stored, found.next_id, found.problems) == (100, None, ())
    assert "pooled-lo" in found.meaning
    with pytest.raises(InvalidArgumentError, match="'pooled-lo' or 'pooled'"):
        store.segment_distributor(name="order")
    with pytest.raises(InvalidArgumentError, match="'pooled-lo' or 'pooled'"):
        HibernateStore(engine).segment_distributor(name="order")
    await store.aclose()
    url = f"hibernate+{address(engine)}?optimizer=pooled&increment=10&store_last_used=true"
    async with aiocosid.connect(url) as ids:
        assert await (await ids.segment_chain("order", step=10)).next_id() == 92
    for wrong in ("optimizer=hilo", "source=file", "store_last_used=1", "increment=0"):
        with pytest.raises(InvalidArgumentError):
            HibernateStore.from_url(f"{address(engine)}?{wrong}")


async def test_bad_rows_of_hibernates(engine: AsyncEngine, execute: Execute) -> None:
    store = HibernateStore(engine, optimizer="pooled")
    await store.create_schema()
    bad: dict[str, tuple[int | None, type[Exception]]] = {
        "null": (None, CorruptCounterError),
        "negative": (-5, CorruptCounterError),
        "end": (MAX_ID - 9, IdOverflowError),
    }
    for name, (value, kind) in bad.items():
        await execute(ROW, name=name, value=value)
        with pytest.raises(kind, match=name):
            await store.segment_distributor(name=name).next_max_id(10)
    rows = await execute("SELECT * FROM hibernate_sequences")
    assert dict(rows) == {name: value for name, (value, _) in bad.items()}
    with pytest.raises(CounterMissingError, match="sequence_name is 'nobody'"):
        await store.segment_distributor(name="nobody").next_max_id(1)


@TURNS
@on("mariadb")
@pytest.mark.parametrize("optimizer", ["pooled-lo", "pooled"])
async def test_a_hibernate_node_and_ours_take_turns(
    engine: AsyncEngine, execute: Execute, mariadb: MariadbServer, optimizer: Any, turns: int
) -> None:
    """Its first ids are its own: it begins on the row that it has made."""
    store = HibernateStore(engine, optimizer=optimizer, increment=10)
    await store.create_schema()
    await execute(ROW, name="order", value=0)
    ours, ranges = store.segment_distributor(name="order"), list[range]()
    with closing(mariadb.connect(str(engine.url.database))) as old, old.cursor() as cursor:

        def drawn() -> int:
            old.begin()
            cursor.execute(
                "select tbl.next_val from hibernate_sequences tbl "
                "where tbl.sequence_name='order' for update"
            )
            (value,) = cursor.fetchone()
            assert cursor.execute(
                "update hibernate_sequences set next_val=%s where next_val=%s "
                "and sequence_name='order'",
                (value + 10, value),
            )
            old.commit()
            return int(value) + 1

        def load() -> range:
            number = drawn()
            start = number if optimizer == "pooled-lo" else number - 9
            return range(start, start + 10)

        if optimizer == "pooled":
            assert drawn() == 1
            ranges.append(range(1, drawn() + 1))
        ranges += await take_turns(turns, ours, load, (1, 7, 10, 50))
    assert_disjoint(ranges)
    assert sum(map(len, ranges)) == max(each[-1] for each in ranges)


# Database sequences.


@on(*HAVE_SEQUENCES)
async def test_sequences(engine: AsyncEngine, execute: Execute) -> None:
    """What a number means: the first id of its range, or the last one."""
    for name in ("lo", "hi"):
        await execute(f"CREATE SEQUENCE {name} START WITH 1 INCREMENT BY 50")
    lo = HibernateStore(engine, optimizer="pooled-lo", source="sequence")
    hi = HibernateStore(engine, optimizer="pooled", source="sequence")
    await lo.create_schema()
    async with SegmentChainId(lo.segment_distributor(name="lo"), safe_distance=1) as ids:
        assert await ids.next_ids(120) == list(range(1, 121))
    ours = hi.segment_distributor(name="hi")
    assert (ours.step, ours.step_limit) == (50, 50)
    assert [await ours.next_max_id(50) for _ in range(2)] == [51, 101]
    url = f"hibernate+{address(engine)}?source=sequence&optimizer=pooled"
    async with aiocosid.connect(url) as ids:
        chain = await ids.segment_chain("hi")
        assert await chain.next_ids(3) == [102, 103, 104]
    with pytest.raises(UnsupportedByStoreError, match="RESTART WITH"):
        await hi.set_floor(name="hi", above=1000)
    with pytest.raises(CounterMissingError, match="name is 'nobody'"):
        await hi.segment_distributor(name="nobody").next_max_id(1)
    with pytest.raises(InvalidArgumentError):
        hi.segment_distributor(name="a b")


@on(*HAVE_SEQUENCES)
async def test_sequences_that_are_no_good(engine: AsyncEngine, execute: Execute) -> None:
    """Another increment than the nodes' is an error, and the end an end."""
    await execute("CREATE SEQUENCE other INCREMENT BY 20")
    await execute("CREATE SEQUENCE ends START WITH 1 INCREMENT BY 50 MAXVALUE 60")
    store = HibernateStore(engine, optimizer="pooled-lo", source="sequence")
    with pytest.raises(CorruptCounterError, match="an increment of 20, not 50"):
        await store.segment_distributor(name="other").next_max_id(1)
    ends = store.segment_distributor(name="ends")
    assert [await ends.next_max_id(50) for _ in range(2)] == [50, 100]
    with pytest.raises(IdOverflowError):
        await ends.next_max_id(50)
    found = {each.name: each for each in await store.examine()}
    assert list(found) == ["ends", "other"]
    assert found["other"].problems[0].startswith("its increment is 20")
    assert {each.namespaced_name for each in await store.counters()} <= {"cosid.ends"}


@on(*HAVE_SEQUENCES)
@pytest.mark.parametrize("optimizer", ["pooled-lo", "pooled"])
async def test_a_node_and_ours_on_one_sequence(
    engine: AsyncEngine, execute: Execute, optimizer: Any
) -> None:
    await execute("CREATE SEQUENCE order_seq START WITH 1 INCREMENT BY 10")
    store = HibernateStore(engine, optimizer=optimizer, increment=10, source="sequence")
    ours, ranges = store.segment_distributor(name="order_seq"), list[range]()
    name = "order_seq" if engine.dialect.name == "mysql" else "'order_seq'"

    async def drawn() -> int:
        ((value,),) = await execute(f"select nextval({name})")
        return int(value)

    if optimizer == "pooled":
        assert await drawn() == 1
        ranges.append(range(1, await drawn() + 1))
    for turn in range(60):
        if turn % 2:
            number = await drawn()
            start = number if optimizer == "pooled-lo" else number - 9
            ranges.append(range(start, start + 10))
        else:
            last = await ours.next_max_id(10)
            ranges.append(range(last - 9, last + 1))
    assert_disjoint(ranges)


def rights_on(database: str) -> str:
    """Read them from the page."""
    page = Path(__file__).parents[2] / "docs/howto/move-from-hibernate-or-tickets.md"
    (rights,) = re.findall(rf"`([A-Z, ]+)` on\s+{database}", page.read_text("utf-8"))
    return str(rights)


@on(*HAVE_SEQUENCES)
async def test_the_rights_of_the_page(engine: AsyncEngine, execute: Execute) -> None:
    """A user with those that it names for a sequence, and no others, gets ids."""
    database = {"mysql": "MariaDB", "postgresql": "PostgreSQL"}[engine.dialect.name]
    rights = rights_on(database)
    user = f"u{engine.url.database}"[:32]
    await execute("CREATE SEQUENCE drawn START WITH 1 INCREMENT BY 50")
    await execute(f"CREATE USER {user}" + (" PASSWORD 'x'" if database == "PostgreSQL" else ""))
    kind = "SEQUENCE " if database == "PostgreSQL" else ""
    await execute(f"GRANT {rights} ON {kind}drawn TO {user}")
    password = "x" if database == "PostgreSQL" else None
    url = engine.url.set(username=user, password=password)
    store = HibernateStore.from_url(
        f"{url.render_as_string(hide_password=False)}?optimizer=pooled-lo&source=sequence"
    )
    assert await store.segment_distributor(name="drawn").next_max_id(50) == 50
    await store.aclose()
    if database == "PostgreSQL":
        await execute(f"DROP OWNED BY {user}")
    await execute(f"DROP USER {user}")


# Flickr's tickets.


@TURNS
@on("mariadb")
async def test_tickets(
    engine: AsyncEngine, execute: Execute, mariadb: MariadbServer, turns: int
) -> None:
    """One id for each call, in turns with a node that sends Flickr's own two statements."""
    store = FlickrStore(engine)
    await store.create_schema()
    await store.create_schema()
    ours, ids = store.segment_distributor(name="Tickets64", step=1000), list[int]()
    assert (ours.step, ours.step_limit) == (1, 1)
    assert await ours.next_max_id(1) == 1
    assert await execute("SELECT id, stub FROM Tickets64") == [(1, "a")]
    with closing(mariadb.connect(str(engine.url.database))) as old, old.cursor() as cursor:
        for turn in range(turns):
            if turn % 2:
                cursor.execute("REPLACE INTO Tickets64 (stub) VALUES ('a')")
                cursor.execute("SELECT LAST_INSERT_ID()")
                ids.append(cursor.fetchone()[0])
            else:
                ids.append(await ours.next_max_id(1))
    assert ids == list(range(2, turns + 2))
    async with aiocosid.connect(f"flickr+{address(engine)}") as generators:
        chain = await generators.segment_chain("Tickets64")
        assert await chain.next_ids(3) == [turns + 2, turns + 3, turns + 4]
    with pytest.raises(InvalidArgumentError, match="from 1 to 1"):
        await ours.next_max_id(2)


@on("mariadb")
async def test_what_tickets_say(engine: AsyncEngine, execute: Execute) -> None:
    store = FlickrStore(engine)
    await store.create_schema()
    (found,) = await store.examine()
    assert (found.name, found.stored, found.next_id) == ("Tickets64", None, None)
    assert found.problems == ("it has no row, so the next id is unknown; take one",)
    for above, last in ((500, 501), (400, 502)):
        assert (await store.set_floor(name="Tickets64", above=above)).last_max_id == last
        assert await execute("SELECT * FROM Tickets64") == [(last, "a")]
    with pytest.raises(CounterMissingError, match="'nobody'"):
        await store.set_floor(name="nobody", above=1)
    with pytest.raises(SchemaMissingError, match="nobody"):
        await store.segment_distributor(name="nobody").next_max_id(1)
    with pytest.raises(InvalidArgumentError):
        store.segment_distributor(name="a`b")
    await execute("INSERT INTO Tickets64 (id, stub) VALUES (:id, 'b')", id=MAX_ID)
    (found,) = await store.examine()
    assert found.problems == ("it is used up: the next id would pass 2^63-1",)
    with pytest.raises(IdOverflowError):
        await store.segment_distributor(name="Tickets64").next_max_id(1)


@on("mariadb")
async def test_a_floor_never_lowers_tickets(engine: AsyncEngine, execute: Execute) -> None:
    """Whatever lies in the table: the next number may be far above it."""
    store = FlickrStore(engine)
    await store.create_schema()
    ours: Any = store.segment_distributor(name="Tickets64")
    await execute("ALTER TABLE Tickets64 AUTO_INCREMENT = 1000")
    assert [await ours.next_max_id(1) for _ in range(2)] == [1000, 1001]
    await execute("DELETE FROM Tickets64")
    assert (await store.set_floor(name="Tickets64", above=10)).last_max_id == 1002
    assert await store.segment_distributor(name="Tickets64").next_max_id(1) == 1003
    # A row that is lower than what was handed out, as if written by hand.
    await execute("UPDATE Tickets64 SET id = 5")
    assert (await store.set_floor(name="Tickets64", above=1003)).last_max_id == 1004
    await execute("UPDATE Tickets64 SET id = 5, stub = 'b'")
    assert (await store.set_floor(name="Tickets64", above=2100)).last_max_id == 2101
    await ours._raise_above(2000)  # as late as that, behind another's
    assert await execute("SELECT * FROM Tickets64 ORDER BY id") == [(5, "b"), (2101, "a")]


@on("mariadb")
async def test_two_floors_at_once(
    engine: AsyncEngine, execute: Execute, mariadb: MariadbServer
) -> None:
    """Somebody else sets a higher one in between: it stays, and a ticket above ours lies there."""
    store, floors = FlickrStore(engine), [5000]
    await store.create_schema()
    with closing(mariadb.connect(str(engine.url.database))) as other, other.cursor() as cursor:

        @event.listens_for(engine.sync_engine, "before_cursor_execute")
        def interrupt(*called: Any) -> None:
            if called[2].startswith(("ALTER", "INSERT")) and floors:
                cursor.execute(f"ALTER TABLE Tickets64 AUTO_INCREMENT = {floors.pop() + 1}")

        assert (await store.set_floor(name="Tickets64", above=1000)).last_max_id == 5001
    assert not floors
    # MySQL before 8.0 begins above it after a restart.
    assert await execute("SELECT MAX(id) FROM Tickets64") == [(5001,)]
    assert await store.segment_distributor(name="Tickets64").next_max_id(1) == 5002


@on("mariadb")
@pytest.mark.parametrize("is_lax", [False, True])
async def test_the_end_of_a_column(engine: AsyncEngine, execute: Execute, is_lax: bool) -> None:
    """Its last id is not handed out, as MySQL repeats it; a floor above it is none."""

    @event.listens_for(engine.sync_engine, "connect")
    def be_lax(connection: Any, record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET sql_mode = ''" if is_lax else "DO 0")

    store = FlickrStore(engine)
    await store.create_schema()
    ours = store.segment_distributor(name="Tickets64")
    ends = {"tinyint unsigned": 255, "int": 2**31 - 1, "bigint": MAX_ID}
    for kind, end in ends.items():
        await execute(f"ALTER TABLE Tickets64 MODIFY id {kind} NOT NULL AUTO_INCREMENT")
        if end < MAX_ID:
            for above in (end - 1, end + 9):
                with pytest.raises(IdOverflowError, match="Tickets64"):
                    await store.set_floor(name="Tickets64", above=above)
        assert (await store.set_floor(name="Tickets64", above=end - 3)).last_max_id == end - 2
        if not IS_MYSQL:  # which passes it over
            assert await ours.next_max_id(1) == end - 1
        for _ in range(3):
            with pytest.raises(IdOverflowError, match="Tickets64"):
                await ours.next_max_id(1)
    if IS_MYSQL:  # which counts integers alone
        return
    await execute("TRUNCATE Tickets64")
    await execute("ALTER TABLE Tickets64 MODIFY id double NOT NULL AUTO_INCREMENT")
    with pytest.raises(CorruptCounterError, match="of the type double"):
        await store.segment_distributor(name="Tickets64").next_max_id(1)


async def test_tickets_are_mysqls(engine: AsyncEngine) -> None:
    with pytest.raises(InvalidArgumentError, match="MySQL or MariaDB"):
        FlickrStore(engine).segment_distributor(name="Tickets64")
    with pytest.raises(InvalidArgumentError, match="PostgreSQL or MariaDB"):
        HibernateStore(engine, source="sequence")
