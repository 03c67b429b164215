"""MySQL and MariaDB fail: torn calls harm nobody, and outages pass."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pytest
import pytest_asyncio

from aiocosid._life import fork
from aiocosid.errors import ForkedError, MachineIdQuarantineError, StoreUnavailableError
from aiocosid.stores import _executor
from aiocosid.stores import mysql as module
from aiocosid.stores._connection import CLOSE_TIMEOUT
from aiocosid.stores._store import CounterDistributor
from aiocosid.stores.mysql import MysqlStore
from aiocosid.testing import settle
from tests.servers import HOST, FaultProxy, MariadbServer, eventually, free_port
from tests.servers.mariadb import GUEST, GUEST_PASSWORD

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = 10**12  # where the second of two counters starts: no reply fits both
T0 = 1_700_000_000_000


@pytest_asyncio.fixture
async def store(mariadb_database: str) -> AsyncIterator[MysqlStore]:
    """A store in a database of the test's own, with its tables."""
    async with MysqlStore.from_url(mariadb_database) as store:
        await store.create_schema()
        yield store


@asynccontextmanager
async def pool_of(url: str, **options: Any) -> AsyncGenerator[Any]:
    """A user's pool."""
    parts = urlsplit(url)
    login: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    login |= {"minsize": 0, "maxsize": 1, "database": parts.path[1:]}
    pool = await asyncmy.create_pool(**login | options)
    try:
        yield pool
    finally:
        pool.close()
        await asyncio.wait_for(pool.wait_closed(), 10)


@asynccontextmanager
async def proxied(server: MariadbServer, url: str) -> AsyncGenerator[tuple[FaultProxy, str]]:
    """A proxy in front of the server, and the URL through it."""
    async with FaultProxy(server.host, server.port) as proxy:
        yield proxy, url.replace(f":{server.port}/", f":{proxy.port}/")


@asynccontextmanager
async def both(url: str) -> AsyncGenerator[tuple[MysqlStore, MysqlStore]]:
    """A store of its own connections, and one on a user's pool, which has one."""
    async with MysqlStore.from_url(url) as own, pool_of(url) as pool:
        yield own, MysqlStore(pool, durability="ignore")


async def within(seconds: float, call: Awaitable[int]) -> int:
    """The result of a call that must not hang."""
    return await asyncio.wait_for(call, seconds)


async def waiting(server: MariadbServer) -> bool:
    """Whether somebody waits for a lock."""
    found = server.execute("show status like 'Innodb_row_lock_current_waits'")
    return not found.endswith("|0")


def counter_of(
    store: MysqlStore, name: str, *, offset: int = 0, noted: bool = False
) -> CounterDistributor:
    """A counter, of either kind of grant."""
    made = store.segment_distributor(name=name, offset=offset)
    if noted:
        made.allow_give_back()
    return made


class TestTornCalls:
    """A cancelled call, a lost reply: a gap at most, and nobody else's reply."""

    @pytest.mark.both_loops
    @pytest.mark.parametrize("noted", [False, True])
    async def test_one_connection_two_counters_cancelled_at_every_await(
        self, store: MysqlStore, mariadb_database: str, noted: bool
    ) -> None:
        """Each counter sees only its own replies, in order, and nothing hangs."""
        async with pool_of(mariadb_database) as pool:
            mine = MysqlStore(pool)
            near = counter_of(mine, "near", noted=noted)
            far = counter_of(mine, "far", offset=FAR, noted=noted)
            seen: list[int] = []
            for turns in range(40):
                torn = asyncio.ensure_future(near.next_max_id(1))
                for _ in range(turns % 20):
                    await asyncio.sleep(0)
                other = asyncio.ensure_future(far.next_max_id(1))
                torn.cancel()
                assert await within(5, other) > FAR
                await asyncio.wait([torn])
                seen.append(await within(5, near.next_max_id(1)))
            assert pool.size == 1
        assert seen == sorted(set(seen))
        assert seen[-1] <= 80

    @pytest.mark.both_loops
    async def test_a_storm_on_a_pool_of_ours(self, store: MysqlStore) -> None:
        """The same with many at once, on the connections of a store made from a URL."""
        near, far = counter_of(store, "near"), counter_of(store, "far", offset=FAR, noted=True)
        for turns in range(0, 40, 3):
            calls = [asyncio.ensure_future(each.next_max_id(1)) for each in (near, far) * 5]
            for _ in range(turns):
                await asyncio.sleep(0)
            for call in calls[turns % 3 :: 2]:
                call.cancel()
            ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
            for call, result in zip(calls, ended, strict=True):
                if not isinstance(result, asyncio.CancelledError):
                    assert isinstance(result, int)
                    assert (result > FAR) is (calls.index(call) % 2 == 1)
        assert await near.next_max_id(1) <= 71
        assert FAR < await far.next_max_id(1) <= FAR + 71

    @pytest.mark.both_loops
    async def test_cancelled_while_it_connects(
        self, store: MysqlStore, mariadb_database: str
    ) -> None:
        """Nothing is left open of a connection that was cancelled on its way, and others come."""
        for turns in range(20):
            async with MysqlStore.from_url(mariadb_database) as new:
                counter = new.segment_distributor(name="order")
                torn = asyncio.ensure_future(counter.next_max_id(1))
                for _ in range(turns):
                    await asyncio.sleep(0)
                torn.cancel()
                assert await within(5, counter.next_max_id(1)) <= 2 * turns + 2
                await asyncio.wait([torn])
        gc.collect()

    @pytest.mark.parametrize("noted", [False, True])
    async def test_after_the_server_acted(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str, noted: bool
    ) -> None:
        """A reply that is lost, or late, reaches nobody; its range is a gap."""
        async with proxied(mariadb, mariadb_database) as (proxy, url), both(url) as stores:
            for number, mine in enumerate(stores):
                near = counter_of(mine, f"near{number}", noted=noted)
                far = counter_of(mine, f"far{number}", offset=FAR, noted=noted)
                assert await near.next_max_id(10) == 10
                proxy.swallow_replies(1, to=b"UPDATE")
                with pytest.raises(StoreUnavailableError) as caught:
                    await near.next_max_id(10)
                assert caught.value.retryable
                assert await near.next_max_id(10) == 30
                back = await near.give_back(30, 15)
                assert back == (10 if noted else 0), "not what nobody knows of"
                proxy.swallow_replies(1, to=b"UPDATE", reset=False)
                torn = asyncio.ensure_future(near.next_max_id(10))
                acted = proxy.next_reply()
                await acted
                torn.cancel()
                await asyncio.wait([torn])
                assert await within(5, far.next_max_id(1)) == FAR + 1
                assert await within(5, near.next_max_id(1)) == 41 - back

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
                    await node.guard(number, now_ms=T0 + 2, mark_ms=T0 + 9)
                await node.guard(number, now_ms=T0 + 3, mark_ms=T0 + 4)
                (found,) = [each for each in await store.machines() if each.machine_id == number]
                assert (found.last_timestamp_ms, found.mark_ms) == (T0 + 3, T0 + 9)

    async def test_a_call_is_one_round_trip(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """Whatever it takes: nobody is waited for in the middle."""
        await store.mark_machines(namespace="cosid")
        async with proxied(mariadb, mariadb_database) as (proxy, url), both(url) as stores:
            for mine in stores:
                node = mine.machine_id_distributor(instance_id="node")
                counters = [counter_of(mine, "order", noted=noted) for noted in (False, True)]
                await counters[0].next_max_id(1)
                grant = await node.distribute(3, now_ms=T0, latest_ms=T0)
                for call, trips in (
                    (counters[0].next_max_id(1), 1),
                    (counters[1].next_max_id(1), 1),
                    (mine.set_floor(name="order", above=1), 1),
                    (node.guard(grant.machine_id, now_ms=T0 + 1, mark_ms=T0 + 2), 1),
                    (node.guard(grant.machine_id, now_ms=T0 + 2, mark_ms=T0 + 3), 1),
                    (node.revert(grant.machine_id, last_ms=T0 + 3), 2),  # it reads first
                ):
                    before = proxy.requests
                    await call
                    assert proxy.requests == before + trips

    async def test_forked_while_it_waits_for_a_connection(
        self, store: MysqlStore, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the child nothing is sent on the connection, which is the parent's."""
        async with pool_of(mariadb_database) as pool:
            counter = MysqlStore(pool, durability="ignore").segment_distributor(name="order")
            held = await pool.acquire()
            waits = asyncio.ensure_future(counter.next_max_id(10))
            await settle()
            with monkeypatch.context() as patch:
                patch.setattr(fork, "generation", fork.generation + 1)
                pool.release(held)
                with pytest.raises(ForkedError):
                    await waits
            assert await store.counters() == []
            pool.release(fork.abandoned.pop())

    async def test_a_silent_server(
        self,
        store: MysqlStore,
        mariadb: MariadbServer,
        mariadb_database: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A caller without a deadline of its own gets an answer all the same, and can close."""
        async with proxied(mariadb, mariadb_database) as (proxy, url):
            mine = MysqlStore.from_url(url)
            counter = mine.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            monkeypatch.setattr(_executor, "CALL_TIMEOUT", 0.2)
            proxy.blackhole(requests=True)
            for _ in range(2):  # the second does not get as far as a greeting
                with pytest.raises(StoreUnavailableError, match="no answer"):
                    await counter.next_max_id(10)
            monkeypatch.undo()
            proxy.heal()
            assert await within(5, counter.next_max_id(10)) in (20, 30)
            proxy.blackhole(requests=True, replies=True)
            await mine.aclose()  # a farewell is not waited for
            monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.1)
            with pytest.raises(StoreUnavailableError, match="no answer"):
                await counter.next_max_id(10)
            await asyncio.wait_for(mine.aclose(), CLOSE_TIMEOUT + 2)


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
        await node.guard(0, now_ms=T0 + 1, mark_ms=T0 + 2)

        # What a dump holds, read in again: the tables are others.
        asked = "select convert(name using utf8mb4), value, written_ms from aiocosid_cell"
        cells = server.rows(asked)
        assert {"marker", "space/cosid", "note/cosid.00000000"} <= {each[0] for each in cells}
        was = server.execute("select unix_timestamp()")

        async def is_later() -> bool:
            return server.execute("select unix_timestamp()") != was

        await eventually(is_later)
        server.execute("drop table aiocosid_cell")
        await store.create_schema()
        server.execute(f"insert into aiocosid_cell values {', '.join(map(repr, cells))}")
        with pytest.raises(MachineIdQuarantineError):
            await node.guard(0, now_ms=T0 + 1, mark_ms=T0 + 2)
        await store.initialize()
        await node.guard(0, now_ms=T0 + 1, mark_ms=T0 + 2)
        server.stop()
        assert shutil.move(server.directory / "data", tmp_path / "data")
        server.directory, old = tmp_path, server.directory
        server.start()
        with pytest.raises(MachineIdQuarantineError):
            await eventually(
                lambda: node.guard(0, now_ms=T0 + 1, mark_ms=T0 + 2), StoreUnavailableError
            )
        await store.aclose()
        server.stop()
        server.directory = old

    async def test_sessions_that_are_ended_by_the_administrator(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """Idle connections that were cut are replaced before anybody notices."""
        counter = store.segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        database = mariadb_database.rpartition("/")[2]
        asked = f"select id from information_schema.processlist where db = '{database}'"
        for (session,) in mariadb.rows(asked):
            mariadb.execute(f"kill {session}")
        again = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
        assert again == 20

    async def test_a_replica(
        self, store: MysqlStore, mariadb: MariadbServer, namespace: str
    ) -> None:
        """Read-only, as after a failover: whoever takes over is asked by a new session."""
        mariadb.execute(f"grant select, insert, update on `{namespace}`.* to {GUEST}")
        url = mariadb.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with proxied(mariadb, url) as (proxy, through), MysqlStore.from_url(through) as own:
            counter = counter_of(own, "order")
            assert await counter.next_max_id(10) == 10
            mariadb.execute("set global read_only = 1")
            try:
                for _ in range(2):
                    with pytest.raises(StoreUnavailableError, match="read-only"):
                        await counter.next_max_id(10)
            finally:
                mariadb.execute("set global read_only = 0")
            before = proxy.connections
            assert await counter.next_max_id(10) == 20
            assert proxy.connections == before + 1
        mariadb.execute(f"revoke all on `{namespace}`.* from {GUEST}")

    async def test_a_deadlock(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """The server undoes ours, and it is sent again at once."""
        counter = counter_of(store, "order", noted=True)
        assert await counter.next_max_id(10) == 10
        database = mariadb_database.rpartition("/")[2]

        with closing(mariadb.connect(database)) as raw, raw.cursor() as cursor:
            cursor.execute("begin")
            for number in range(20):  # the more is written, the less likely it is undone
                cursor.execute(f"insert into cosid values ('{number}', 1, 1)")
            cursor.execute("update aiocosid_grant set top = top + 0, nonce = 'x'")
            call = asyncio.ensure_future(counter.next_max_id(10))
            await eventually(lambda: waiting(mariadb))
            await asyncio.to_thread(cursor.execute, "update cosid set last_fetch_time = 7")
            raw.commit()
            assert await within(5, call) == 20

    async def test_a_java_node_that_makes_the_row_at_the_same_moment(
        self, store: MysqlStore, mariadb: MariadbServer, mariadb_database: str
    ) -> None:
        """Its row stays, and ours is the next."""
        await store.mark_machines(namespace="dev")
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
        asked = f"select count(*) from information_schema.processlist where db = '{database}'"
        async with both(mariadb_database) as stores:
            for mine in stores:
                assert await counter_of(mine, "order").next_max_id(10) > 0
            with closing(mariadb.connect(database)) as raw, raw.cursor() as cursor:
                cursor.execute("begin")
                cursor.execute("update cosid set last_fetch_time = 7")
                for mine in stores:
                    with pytest.raises(StoreUnavailableError, match="Lock wait"):
                        await within(6, counter_of(mine, "order").next_max_id(10))
                torn = asyncio.ensure_future(counter_of(store, "order").next_max_id(10))
                await asyncio.wait([torn], timeout=0.2)
                torn.cancel()
                await asyncio.wait([torn])

                async def is_gone() -> bool:
                    return mariadb.execute(asked) == "1"

                await eventually(is_gone)
                raw.rollback()
            assert await counter_of(store, "order").next_max_id(10) == 30

    async def test_too_many_connections(self, mariadb: MariadbServer, namespace: str) -> None:
        """Others may leave: retryable."""
        mariadb.execute(f"create user {namespace} with max_user_connections 1")
        mariadb.execute(f"grant select on test.* to {namespace}")
        url = mariadb.url_for(user=namespace)
        async with pool_of(url, minsize=1):
            with pytest.raises(StoreUnavailableError, match="max_user_connections"):
                await MysqlStore.from_url(url).counters()
        mariadb.execute(f"drop user {namespace}")

    async def test_nobody_there(self) -> None:
        """A port that refuses, a host that is none: retryable, with the system's own words."""
        for host in (f"{HOST}:{free_port()}", "no-such-host.invalid"):
            store = MysqlStore.from_url(f"mysql://me:secret@{host}/x")
            with pytest.raises(StoreUnavailableError, match="connect to MySQL") as caught:
                await store.counters()
            assert "secret" not in f"{caught.value} {caught.value.__cause__}"
