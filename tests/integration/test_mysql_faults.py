"""MySQL and MariaDB fail: torn calls harm nobody, and outages pass."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, nullcontext
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.errors import (
    MachineIdQuarantineError,
    StoreAuthenticationError,
    StoreUnavailableError,
)
from aiocosid.stores.mysql import MysqlStore
from tests.servers import IS_MYSQL, PROCESSES, MariadbServer, eventually
from tests.servers.mariadb import GUEST, GUEST_PASSWORD

from ._clients import pool_of
from ._snowflakes import until
from ._sql import proxied, within

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T0 = 1_700_000_000_000


@pytest_asyncio.fixture
async def store(mariadb_database: str) -> AsyncIterator[MysqlStore]:
    """A store in a database of the test's own, with its tables."""
    async with MysqlStore.from_url(mariadb_database) as store:
        await store.create_schema()
        yield store


@asynccontextmanager
async def both(url: str) -> AsyncGenerator[tuple[MysqlStore, MysqlStore]]:
    """A store of its own connections, and one on a user's pool, which has one."""
    async with MysqlStore.from_url(url) as own, pool_of(url) as pool:
        yield own, MysqlStore(pool, durability="ignore")


async def waiting(server: MariadbServer) -> bool:
    """Whether somebody waits for a lock."""
    found = server.execute("show status like 'Innodb_row_lock_current_waits'")
    return not found.endswith("|0")


class TestTornCalls:
    """A cancelled call, a lost reply: a gap at most, and nobody else's reply."""

    async def test_a_commit_whose_reply_is_lost(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """It has been done, as a whole; the next call finds what is its own."""
        async with proxied(mariadb, mariadb_database) as (proxy, url), both(url) as stores:
            for number, mine in enumerate(stores):
                node = mine.machine_id_distributor(namespace="dev", instance_id=f"node{number}")
                proxy.swallow_replies(1, to=b"START TRANSACTION")
                with pytest.raises(StoreUnavailableError):
                    await node.distribute(3, now_ms=T0, latest_ms=T0)
                grant = await node.distribute(3, now_ms=T0 + 1, latest_ms=T0 + 1)
                assert grant.machine_id == number
                proxy.swallow_replies(1, to=b"START TRANSACTION")
                with pytest.raises(StoreUnavailableError):
                    await node.renew(number, now_ms=T0 + 2, fence_ms=T0 + 9)
                await node.renew(number, now_ms=T0 + 3, fence_ms=T0 + 4)
                (found,) = [each for each in await store.machines() if each.machine_id == number]
                assert (found.last_timestamp_ms, found.fence_ms) == (T0 + 3, T0 + 9)

    async def test_a_call_is_one_round_trip(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """Whatever it takes: nobody is waited for in the middle of a step."""
        await store.initialize_namespace(namespace="cosid")
        async with proxied(mariadb, mariadb_database) as (proxy, url), both(url) as stores:
            for mine in stores:
                node = mine.machine_id_distributor(instance_id="node")
                counters = [mine.segment_distributor(name="order") for _ in range(2)]
                await counters[0].next_max_id(1)
                grant = await node.distribute(3, now_ms=T0, latest_ms=T0)
                for call, trips in (
                    (counters[0].next_max_id(1), 1),
                    (counters[1].next_max_id(1), 1),
                    (mine.set_floor(name="order", above=1, create=False), 1),
                    (mine.set_floor(name="order", above=1), 3),  # it asks before, and notes it
                    (node.renew(grant.machine_id, now_ms=T0 + 1, fence_ms=T0 + 2), 1),
                    (node.renew(grant.machine_id, now_ms=T0 + 2, fence_ms=T0 + 3), 1),
                    (node.release(grant.machine_id, last_ms=T0 + 3), 2),  # it reads first
                ):
                    before = proxy.requests
                    await call
                    assert proxy.requests == before + trips


class TestOutages:
    """A server that is away comes back; a server that refuses is told apart."""

    async def test_a_server_that_dies_and_comes_back(
        self, mariadb_factory: Callable[..., MariadbServer], tmp_path: Any
    ) -> None:
        """Retryable all the time, and nothing is repeated; it is the same store, a copy is not."""
        server = mariadb_factory()
        store = MysqlStore.from_url(server.url)
        await store.create_schema()
        counter, node = store.segment_distributor(name="order"), store.machine_id_distributor()
        assert await counter.next_max_id(10) == 10
        await node.distribute(3, now_ms=T0, latest_ms=T0)
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
        server.spawn()
        again = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
        assert again == 20
        await node.renew(0, now_ms=T0 + 1, fence_ms=T0 + 2)

        # What a dump holds, read in again: the tables are others.
        asked = "select convert(name using utf8mb4), value, written_ms from aiocosid_cell"
        cells = server.rows(asked)
        assert {"marker", "space/cosid", "note/cosid.00000000"} <= {each[0] for each in cells}
        was = server.execute("select unix_timestamp()")

        await until(lambda: server.execute("select unix_timestamp()") != was)
        server.execute("drop table aiocosid_cell")
        await store.create_schema(after_loss=True)
        server.execute(f"insert into aiocosid_cell values {', '.join(map(repr, cells))}")
        with pytest.raises(MachineIdQuarantineError):
            await node.renew(0, now_ms=T0 + 1, fence_ms=T0 + 2)
        await store.initialize(confirm_no_holders=True)
        await node.renew(0, now_ms=T0 + 1, fence_ms=T0 + 2)
        server.stop()
        assert shutil.move(server.directory / "data", tmp_path / "data")
        server.directory, old = tmp_path, server.directory
        server.start()
        # MySQL's identity lies in the directory.
        with nullcontext() if IS_MYSQL else pytest.raises(MachineIdQuarantineError):
            await eventually(
                lambda: node.renew(0, now_ms=T0 + 1, fence_ms=T0 + 2), StoreUnavailableError
            )
        await store.aclose()
        server.stop()
        server.directory = old

    async def test_a_replica(
        self, mariadb_alone: MariadbServer, mariadb_alone_database: str, namespace: str
    ) -> None:
        """Read-only, as after a failover: whoever takes over is asked by a new session."""
        async with MysqlStore.from_url(mariadb_alone_database) as store:
            await store.create_schema()
        mariadb_alone.execute(f"grant select, insert, update on `{namespace}`.* to {GUEST}")
        url = mariadb_alone.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with (
            proxied(mariadb_alone, url) as (proxy, through),
            MysqlStore.from_url(through) as own,
        ):
            counter = own.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            mariadb_alone.execute("set global read_only = 1")
            try:
                for _ in range(2):
                    with pytest.raises(StoreUnavailableError, match="read-only"):
                        await counter.next_max_id(10)
            finally:
                mariadb_alone.execute("set global read_only = 0")
            before = proxy.connections
            assert await counter.next_max_id(10) == 20
            assert proxy.connections == before + 1
        mariadb_alone.execute(f"revoke all on `{namespace}`.* from {GUEST}")

    async def test_tables_that_a_login_does_not_see(
        self, store: MysqlStore, mariadb: MariadbServer, namespace: str
    ) -> None:
        """They are no dropped ones: the server shows a login only what it has a right on."""
        assert store.has_witness
        for visible in ("cosid", "aiocosid_witness"):
            mariadb.execute(f"grant select on `{namespace}`.{visible} to {GUEST}")
        url = mariadb.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with MysqlStore.from_url(url) as guests:
            with pytest.raises(StoreAuthenticationError, match="denied"):
                await guests.create_schema()
        mariadb.execute(
            f"revoke select on `{namespace}`.cosid from {GUEST};"
            f"revoke select on `{namespace}`.aiocosid_witness from {GUEST}"
        )

    async def test_a_deadlock(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """The server undoes ours, and it is sent again at once."""
        counter = store.segment_distributor(name="order")
        database = mariadb_database.rpartition("/")[2]

        with closing(mariadb.connect(database)) as raw, raw.cursor() as cursor:
            cursor.execute("begin")
            for number in range(20):  # the more is written, the less likely it is undone
                cursor.execute(f"insert into cosid values ('{number}', 1, 1)")
            cursor.execute("insert into cosid values ('cosid.order', 10, 1)")
            call = asyncio.ensure_future(counter.next_max_id(10))
            await eventually(lambda: waiting(mariadb))
            await asyncio.to_thread(cursor.execute, "update aiocosid_cell set written_ms = 7")
            raw.commit()
            assert await within(5, call) == 20

    async def test_a_java_node_that_makes_the_row_at_the_same_moment(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """Its row stays, and ours is the next."""
        await store.initialize_namespace(namespace="dev")
        node = store.machine_id_distributor(namespace="dev", instance_id="ours")
        with closing(mariadb.connect(mariadb_database.rpartition("/")[2])) as raw:
            with raw.cursor() as cursor:
                cursor.execute("begin")
                cursor.execute(
                    "insert into cosid_machine (name, namespace, machine_id, last_timestamp,"
                    f"instance_id) values ('dev.00000000', 'dev', 0, {T0}, 'java')"
                )
                call = asyncio.ensure_future(node.distribute(3, now_ms=T0, latest_ms=T0))
                await eventually(lambda: waiting(mariadb))
            raw.commit()
        assert (await asyncio.wait_for(call, 5)).machine_id == 1
        found = {each.machine_id: each.instance_id for each in await store.machines()}
        assert found == {0: "java", 1: "ours"}

    @pytest.mark.stress
    async def test_a_lock_that_nobody_lets_go(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """It is not waited for without end, nor in the server when the caller has gone."""
        database = mariadb_database.rpartition("/")[2]
        asked = f"select count(*) from {PROCESSES} where db = '{database}'"
        async with both(mariadb_database) as stores:
            for mine in stores:
                assert await mine.segment_distributor(name="order").next_max_id(10) > 0
            with closing(mariadb.connect(database)) as raw, raw.cursor() as cursor:
                cursor.execute("begin")
                cursor.execute("update cosid set last_fetch_time = 7")
                for mine in stores:
                    with pytest.raises(StoreUnavailableError, match="Lock wait"):
                        await within(6, mine.segment_distributor(name="order").next_max_id(10))
                counter = store.segment_distributor(name="order")
                torn = asyncio.ensure_future(counter.next_max_id(10))
                await asyncio.wait([torn], timeout=0.2)
                torn.cancel()
                await asyncio.wait([torn])

                await until(lambda: mariadb.execute(asked) == "1")
                raw.rollback()
            assert await store.segment_distributor(name="order").next_max_id(10) == 30

    async def test_too_many_connections(self, mariadb: MariadbServer, namespace: str) -> None:
        """Others may leave: retryable."""
        mariadb.execute(f"create user {namespace} with max_user_connections 1")
        mariadb.execute(f"grant select on {mariadb.database}.* to {namespace}")
        url = mariadb.url_for(user=namespace)
        async with pool_of(url, minsize=1):
            with pytest.raises(StoreUnavailableError, match="max_user_connections"):
                await MysqlStore.from_url(url).counters()
        mariadb.execute(f"drop user {namespace}")
