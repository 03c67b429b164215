"""Machine ids on a user's own asyncpg pool, and behind PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from aiocosid.abc import MachineGrant, MachineIdDistributor
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.postgres import PostgresStore
from tests.servers import PgBouncerServer, PostgresServer

from ._machine_tables import PostgresTables
from ._snowflakes import check_unique, consuming

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

driver: Any = asyncpg  # its annotations stop half-way

NOW = 1_700_000_000_000
FAR = 2 * NOW


@pytest_asyncio.fixture
async def tables(postgres: PostgresServer, postgres_database: str) -> PostgresTables:
    """The tables in a database of the test's own."""
    async with PostgresStore.from_url(postgres_database) as store:
        await store.create_schema()
        await store.initialize_namespace(namespace="dev")
    return PostgresTables(postgres, postgres_database)


@pytest_asyncio.fixture(params=["direct", "bounced"])
async def pool(
    request: pytest.FixtureRequest, tables: PostgresTables, pgbouncer: PgBouncerServer
) -> AsyncIterator[Any]:
    """A user's pool of one connection."""
    # Torn while it asks for TLS, the driver leaves an error behind that nobody hears of.
    options: dict[str, Any] = {"min_size": 0, "max_size": 1, "ssl": False}
    url = tables.url
    if request.param == "bounced":
        url = pgbouncer.url_for(database=tables.database)
        options["statement_cache_size"] = 0
    pool = await driver.create_pool(url, **options)
    yield pool
    await asyncio.wait_for(pool.close(), 10)


async def test_lives_on_a_users_pool(pool: Any, tables: PostgresTables) -> None:
    """It is shared with the user, goes on after ours are closed, and never grows."""
    async with AsyncExitStack() as stack:
        generators = []
        for number in range(4):
            machine = PostgresStore(pool).machine_id_distributor(namespace="dev", interval=0.05)
            lease = MachineIdLease(machine, bits=10)
            generators.append(await stack.enter_async_context(SnowflakeId(lease)))
            assert lease.machine_id == number
        async with consuming(*generators) as consumers:
            for each in consumers:
                await each.more(20)
            while any(each._lease.statistics().renewals < 4 for each in generators):
                assert await pool.fetchval("SELECT 7") == 7
        check_unique(*(each.ids for each in consumers))
        assert pool.get_size() == 1
    assert await pool.fetchval("SELECT 7") == 7
    assert [row["instance_id"] for row in tables.rows()] == [""] * 4


async def test_thirty_behind_a_bouncer(tables: PostgresTables, pgbouncer: PgBouncerServer) -> None:
    """On connections of ours, each statement in whichever session: all ids are different."""
    url = pgbouncer.url_for(database=tables.database)
    async with PostgresStore.from_url(url) as store:
        machines = [store.machine_id_distributor(namespace="dev") for _ in range(30)]

        async def live(machine: MachineIdDistributor) -> int:
            grant = await machine.distribute(5, now_ms=NOW, latest_ms=FAR)
            await machine.renew(grant.machine_id, now_ms=NOW + 1, fence_ms=NOW + 2)
            return grant.machine_id

        assert sorted(await asyncio.gather(*map(live, machines))) == list(range(30))
        held = {row["instance_id"]: row["machine_id"] for row in tables.rows()}
        await asyncio.gather(
            *(each.release(held[each.instance_id.text], last_ms=NOW) for each in machines)
        )
        assert {row["instance_id"] for row in tables.rows()} == {""}


class CancelledAt:
    """A call that is cancelled when it suspends for the n-th time.

    Attributes:
        suspensions: how often it did.
    """

    def __init__(self, call: Coroutine[Any, Any, Any], at: int, *, late: bool) -> None:
        """Describe it; a late cancellation comes in the turn in which the wait is over."""
        self.suspensions = 0
        self._call, self._at, self._late = call, at, late

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run the call, and see what it waits for."""
        steps = self._call.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited_for = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            self.suspensions += 1
            if self.suspensions == self._at:
                self._cancel(waited_for)
            sent = error = None
            try:
                sent = yield waited_for
            except BaseException as raised:  # noqa: BLE001 - handed on
                error = raised

    def _cancel(self, waited_for: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._late and waited_for is not None:

            def cancel(_: object) -> None:
                task.cancel()

            waited_for.add_done_callback(cancel)
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_at_each_await(pool: Any, tables: PostgresTables, late: bool) -> None:
    """The only connection is usable afterwards, and the id is found again or was given back.

    Nor does the event loop complain of an error that nobody has heard of.
    """
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    machine = PostgresStore(pool).machine_id_distributor(namespace="dev", instance_id="10.0.0.1:80")

    async def take() -> MachineGrant:
        return await machine.distribute(2, now_ms=NOW, latest_ms=FAR)

    async def renew() -> None:
        await machine.renew(0, now_ms=NOW + 1, fence_ms=NOW + 2)

    async def release() -> None:
        await machine.release(0, last_ms=NOW)

    for call in (take, renew, release):
        at, is_torn = 0, True
        while is_torn:
            at += 1
            if call is not take:
                await take()
            is_torn = await tear(call(), at, late=late)
            assert await asyncio.wait_for(pool.fetchval("SELECT 7"), 5) == 7
            held = [each["machine_id"] for each in tables.rows() if each["instance_id"]]
            assert held in ([], [0])
            assert (await take()).machine_id == 0
            await machine.release(0, last_ms=NOW)
        assert at > 2, "it was torn at several awaits"
    assert pool.get_size() == 1
    gc.collect()
    assert complaints == []


async def tear(call: Coroutine[Any, Any, Any], at: int, *, late: bool) -> bool:
    """Run a call, and tell whether it was cancelled at the given await."""
    cancelled = CancelledAt(call, at, late=late)

    async def run() -> None:
        await cancelled

    task = asyncio.ensure_future(run())
    await asyncio.wait([task], timeout=5)
    assert task.done()
    if task.cancelled():
        return True
    task.result()
    return cancelled.suspensions >= at
