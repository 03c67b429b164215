"""uid-generator's worker ids on real databases, with old nodes beside.

An old node is played by its own statement, from WORKER_NODE.xml; what it gets is the generated key.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from aiocosid import connect
from aiocosid.abc import MachineIdDistributor
from aiocosid.compat.uid_generator import UidGeneratorStore
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdLostError,
    SchemaMissingError,
    StoreError,
    UnsupportedByStoreError,
    WorkerIdsUsedUpError,
)
from aiocosid.snowflake import UID_GENERATOR_2016_09, CachedSnowflakeId, SnowflakeId
from aiocosid.stores._connection import OwnedConnection
from aiocosid.stores.sql import SqlExecutor
from aiocosid.testing import ManualClock
from tests.unit.machine.test_lease_fork import in_child

from ._other_tables import Execute

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

OLD_NODE = """INSERT INTO WORKER_NODE (HOST_NAME, PORT, TYPE, LAUNCH_DATE, MODIFIED, CREATED)
VALUES ('10.0.0.1', '1479102834-77', 2, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"""
LAST = "SELECT MAX(ID) FROM WORKER_NODE"


@pytest_asyncio.fixture
async def store(engine: AsyncEngine) -> UidGeneratorStore:
    """A store on it, with the table."""
    store = UidGeneratorStore(engine)
    await store.create_schema()
    await store.create_schema()
    return store


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock()


async def worker_id(machine: MachineIdDistributor, bits: int = 22) -> int:
    return (await machine.distribute(bits, now_ms=1_790_000_000_000, latest_ms=0)).machine_id


async def test_a_start_is_a_row(
    store: UidGeneratorStore, engine: AsyncEngine, execute: Execute
) -> None:
    """Row before, worker id, row after; the number is the database's, and the row is theirs."""
    await execute(OLD_NODE)
    machine = store.machine_id_distributor(host="web-1", port=8080, container=True)
    assert await worker_id(machine) == 2
    assert await worker_id(store.machine_id_distributor(host="web-2")) == 3
    rows = await execute("SELECT ID, HOST_NAME, PORT, TYPE FROM WORKER_NODE ORDER BY ID")
    assert [tuple(row) for row in rows[:2]] == [
        (1, "10.0.0.1", "1479102834-77", 2),
        (2, "web-1", "8080", 1),
    ]
    assert rows[2][1:4:2] == ("web-2", 2)
    assert rows[2][2].startswith("1790000000000-")
    (times,) = await execute("SELECT COUNT(*) FROM WORKER_NODE WHERE LAUNCH_DATE = CURRENT_DATE")
    assert times[0] == 3
    assert machine.is_leased is False


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_old_nodes_beside(
    rounds: int, engine: AsyncEngine, store: UidGeneratorStore, execute: Execute
) -> None:
    """Starts of each in turn, and twenty at once: no number twice: N12."""
    if engine.dialect.name == "sqlite":
        rounds = min(rounds, 100)  # each commit waits for the disk
    taken: list[int] = []
    for _ in range(rounds):
        taken.append(await worker_id(store.machine_id_distributor(host="a")))
        await execute(OLD_NODE)
        taken.append((await execute(LAST))[0][0])
    assert taken == list(range(1, rounds * 2 + 1))
    machines = [store.machine_id_distributor(host="b") for _ in range(20)]
    at_once = await asyncio.gather(*map(worker_id, machines))
    assert sorted(at_once) == list(range(rounds * 2 + 1, rounds * 2 + 21))


async def test_generators_on_it(store: UidGeneratorStore, clock: ManualClock) -> None:
    """Each start has a worker id of its own; a generator that is opened again keeps it."""
    machine = store.machine_id_distributor(host="a")
    ids: list[int] = []
    gen = CachedSnowflakeId(machine, layout=UID_GENERATOR_2016_09, max_borrow=3600, clock=clock)
    for _ in range(2):
        async with gen:
            ids += await gen.next_ids(8192 * 5)
    other = SnowflakeId(
        store.machine_id_distributor(host="a"),
        layout=UID_GENERATOR_2016_09,
        sequence_reset_threshold=None,
        clock=clock,
    )
    async with other:
        (its,) = await other.next_ids(1)
    assert ids == sorted(set(ids))
    parts = UID_GENERATOR_2016_09.parse(its)
    assert (parts.machine_id, parts.sequence, parts.timestamp_ms) == (2, 0, clock.now_ms())
    assert {UID_GENERATOR_2016_09.parse(each).machine_id for each in ids[::1000]} == {1}


async def test_numbers_that_do_not_fit(store: UidGeneratorStore, execute: Execute) -> None:
    """No modulo, no 0, no number that nobody made: an error that says what to do: N11, N16."""
    await execute(OLD_NODE.replace("(HOST", "(ID, HOST").replace("('10", "(1022, '10"))
    if "postgresql" in repr(store):
        await execute("SELECT setval(pg_get_serial_sequence('worker_node', 'id'), 1022)")
    assert await worker_id(store.machine_id_distributor(host="a"), 10) == 1023
    machine = store.machine_id_distributor(host="a")
    with pytest.raises(
        WorkerIdsUsedUpError, match="1024, which does not fit 10 machine bits"
    ) as caught:
        await worker_id(machine, 10)
    assert (caught.value.worker_id, caught.value.size, caught.value.retryable) == (
        1024,
        1024,
        False,
    )
    assert str(caught.value.again()) == str(caught.value)
    assert await worker_id(machine, 11) == 1025
    async with SnowflakeId(machine, layout=UID_GENERATOR_2016_09) as gen:
        assert UID_GENERATOR_2016_09.parse(await gen.next_id()).machine_id == 1025


async def test_a_table_without_numbers(engine: AsyncEngine, execute: Execute) -> None:
    """As one whose ID somebody forgot to have made: every process would be worker 0."""
    columns = "HOST_NAME VARCHAR(64), PORT VARCHAR(64), TYPE INT, LAUNCH_DATE DATE"
    columns += ", MODIFIED TIMESTAMP NULL, CREATED TIMESTAMP NULL"
    no_number = "ID BIGINT DEFAULT 0"
    await execute(f"CREATE TABLE WORKER_NODE ({no_number}, {columns})")
    if engine.dialect.name != "sqlite":  # which gives its own row number
        with pytest.raises(StoreError, match="let the database generate its ID"):
            await worker_id(UidGeneratorStore(engine).machine_id_distributor(host="a"))


async def test_what_it_answers_to_others(store: UidGeneratorStore) -> None:
    """Signs of life go nowhere; an id of somebody else is not ours."""
    machine = store.machine_id_distributor(host="a")
    with pytest.raises(MachineIdLostError):
        await machine.renew(1, now_ms=1, fence_ms=1)
    mine = await worker_id(machine)
    await machine.renew(mine, now_ms=1, fence_ms=50)
    grant = await machine.distribute(22, now_ms=1, latest_ms=0)
    assert (grant.machine_id, grant.floor_ms) == (mine, 50)
    await machine.release(mine, last_ms=20)
    await machine.release(mine + 1, last_ms=10)
    await machine.release(mine, last_ms=-1)
    assert (await machine.distribute(22, now_ms=1, latest_ms=0)).floor_ms == 20
    with pytest.raises(MachineIdLostError):
        await machine.renew(mine + 1, now_ms=1, fence_ms=1)
    with pytest.raises(InvalidArgumentError):
        await machine.distribute(0, now_ms=1, latest_ms=0)
    assert await store.counters() == ()
    with pytest.raises(UnsupportedByStoreError):
        store.segment_distributor(name="a")
    with pytest.raises(UnsupportedByStoreError):
        await store.set_floor(name="a", above=1)


async def test_what_migrate_check_reads(store: UidGeneratorStore, execute: Execute) -> None:
    """How many starts there were, and which numbers fit no more; nothing is written."""
    (seen,) = await store.examine()
    assert (seen.stored, seen.next_id, seen.problems) == (None, 1, ())
    await execute(OLD_NODE)
    (seen,) = await store.examine()
    assert (seen.stored, seen.next_id, seen.problems) == (1, 2, ())
    assert "1 starts" in seen.meaning
    await execute(OLD_NODE.replace("(HOST", "(ID, HOST").replace("('10", f"({2**22}, '10"))
    await execute(OLD_NODE.replace("(HOST", "(ID, HOST").replace("('10", "(-1, '10"))
    (seen,) = await store.examine()
    assert (seen.stored, len(seen.problems)) == (2**22, 2)
    assert (await execute("SELECT COUNT(*) FROM WORKER_NODE"))[0][0] == 3


async def test_by_url(store: UidGeneratorStore, engine: AsyncEngine, execute: Execute) -> None:
    """With connections of its own, and from the front door."""
    url = engine.url.render_as_string(hide_password=False)
    own = UidGeneratorStore.from_url(f"uid-generator+{url}")
    assert await worker_id(own.machine_id_distributor(host="a")) == 1
    await own.aclose()
    executor = own._door
    assert isinstance(executor, SqlExecutor)
    assert executor.is_own
    connection = executor._connection
    assert isinstance(connection, OwnedConnection)
    assert connection._client is None
    async with connect(f"uid-generator+{url}") as ids:
        gen = await ids.snowflake("order", layout=UID_GENERATOR_2016_09)
        assert UID_GENERATOR_2016_09.parse(await gen.next_id()).machine_id == 2
    await execute("DROP TABLE WORKER_NODE")
    with pytest.raises(SchemaMissingError):
        await worker_id(store.machine_id_distributor(host="a"))
    with pytest.raises(SchemaMissingError):
        await store.examine()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_forked_child_is_a_start_of_its_own(tmp_path: Path) -> None:
    """Its parent's number is not its own, nor is what its parent has used of it: N21."""
    url = f"sqlite:///{tmp_path}/uid.db"
    store = UidGeneratorStore.from_url(url)
    await store.create_schema()
    machine = store.machine_id_distributor(host="a")
    assert await worker_id(machine) == 1

    async def child() -> int:
        await machine.aopen()  # as a lease does
        return await worker_id(machine)

    await store.aclose()  # no child can use a SQLite file that was open
    assert in_child(child) == 2
    assert await worker_id(machine) == 1
    await store.aclose()
