"""PostgreSQL fails: torn calls harm nobody, and outages pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.postgres import PostgresStore
from tests.servers import (
    GUEST,
    GUEST_PASSWORD,
    HOST,
    FaultProxy,
    PgBouncerServer,
    PostgresServer,
    eventually,
    free_port,
)

from ._clients import pool_of
from ._sql import proxied, within

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


driver: Any = asyncpg  # its annotations stop half-way


Connection = Any


WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest_asyncio.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    """A store in a database of the test's own, with its table."""
    async with PostgresStore.from_url(postgres_database) as store:
        await store.create_schema()
        yield store


@pytest_asyncio.fixture
async def raw(postgres_database: str) -> AsyncIterator[Connection]:
    """A connection behind everybody's back."""
    connection = await driver.connect(postgres_database)
    yield connection
    await connection.close(timeout=5)


class TestTornCalls:
    """A cancelled call, a lost reply: a gap at most, and nobody else's reply."""

    @pytest.mark.parametrize("own", [True, False])
    async def test_cancelled_while_the_row_is_locked(
        self, store: PostgresStore, raw: Connection, postgres_database: str, own: bool
    ) -> None:
        """The server is told as well: calls that nobody waits for do not pile up there."""
        async with pool_of(postgres_database) as pool:
            mine = PostgresStore.from_url(postgres_database) if own else PostgresStore(pool)
            counter = mine.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10

            async def waiting() -> int:
                return int((await store._backend.link.fetch_rows(WAITING))[0][0])

            async def waits() -> bool:
                return await waiting() == 1

            async with raw.transaction():
                await raw.execute("SELECT FROM cosid FOR UPDATE")
                for _ in range(5):
                    torn = asyncio.ensure_future(counter.next_max_id(10))
                    await eventually(waits)
                    torn.cancel()
                    await asyncio.wait([torn])
                    assert torn.cancelled()
                    assert await waiting() == 0
            assert await within(5, counter.next_max_id(10)) == 20
            await mine.aclose()

    async def test_cancelled_on_a_silent_server(
        self, store: PostgresStore, postgres: PostgresServer, postgres_database: str
    ) -> None:
        """The farewell is bounded, and a second cancellation ends it at once."""
        async with (
            proxied(postgres, postgres_database) as (proxy, url),
            pool_of(url) as pool,
        ):
            counter = PostgresStore(pool).segment_distributor(name="order")
            for cancellations in (1, 2):
                assert await within(5, counter.next_max_id(1)) >= 1
                proxy.blackhole(requests=True)
                sent = proxy.next_request()
                torn = asyncio.ensure_future(counter.next_max_id(1))
                await sent
                for _ in range(cancellations):
                    torn.cancel()
                    await asyncio.wait([torn], timeout=0.05)
                await asyncio.wait([torn], timeout=2)
                assert torn.cancelled()
                assert pool.get_size() == 0
                proxy.heal()

    async def test_cancelled_while_the_pool_cleans_the_connection(
        self, store: PostgresStore, postgres: PostgresServer, postgres_database: str
    ) -> None:
        """The answer is lost with it, but the pool's only connection is not."""
        async with (
            proxied(postgres, postgres_database) as (proxy, url),
            pool_of(url) as pool,
        ):
            counter = PostgresStore(pool).segment_distributor(name="order")
            assert await counter.next_max_id(1) == 1
            cleaning = proxy.next_request(b"UNLISTEN")
            proxy.swallow_replies(1, to=b"UNLISTEN", reset=False)
            torn = asyncio.ensure_future(counter.next_max_id(1))
            await cleaning
            torn.cancel()
            await asyncio.wait([torn])
            assert pool.get_size() == 0, "it is cleaned on in the background"
            assert await within(5, counter.next_max_id(1)) == 3

    async def test_a_pool_that_cannot_clean_keeps_no_answer_back(
        self, store: PostgresStore, postgres: PostgresServer, postgres_database: str
    ) -> None:
        """The grant has been made; what becomes of the connection is the pool's business."""
        async with (
            proxied(postgres, postgres_database) as (proxy, url),
            pool_of(url) as pool,
        ):
            counter = PostgresStore(pool).segment_distributor(name="order")
            proxy.swallow_replies(1, to=b"UNLISTEN")
            assert await within(5, counter.next_max_id(1)) == 1
            assert await within(5, counter.next_max_id(1)) == 2

    async def test_a_grant_takes_two_round_trips(
        self, store: PostgresStore, postgres: PostgresServer, postgres_database: str
    ) -> None:
        """One to prepare, which a bouncer asks for, one to run; none to clean up."""
        async with (
            proxied(postgres, postgres_database) as (proxy, url),
            PostgresStore.from_url(url) as own,
        ):
            counter = own.segment_distributor(name="order")
            assert await counter.next_max_id(1) == 1
            before = proxy.requests
            assert await counter.next_max_id(1) == 2
            assert proxy.requests == before + 2


class TestOutages:
    """A server that is away comes back; a server that refuses is told apart."""

    async def test_a_server_that_dies_and_comes_back(
        self, postgres_factory: Callable[..., PostgresServer]
    ) -> None:
        """Refused, starting, back: retryable all the time, and nothing is repeated."""
        server = postgres_factory()
        store = PostgresStore.from_url(server.url)
        await store.create_schema()
        counter = store.segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        server.kill()
        with pytest.raises(StoreUnavailableError):
            await counter.next_max_id(10)
        with pytest.raises(StoreUnavailableError) as caught:
            await counter.next_max_id(10)
        assert isinstance(caught.value.__cause__, OSError)
        server.spawn()
        again = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
        assert again == 20
        await store.aclose()

    async def test_a_standby(self, store: PostgresStore, raw: Connection) -> None:
        """Read-only, as after a failover: another server will take over, or this one recover."""
        database = await raw.fetchval("SELECT current_database()")
        await raw.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        await store.aclose()
        with pytest.raises(StoreUnavailableError, match="read-only") as caught:
            await store.segment_distributor(name="order").next_max_id(10)
        assert caught.value.retryable
        # Whoever takes over is asked by a new session: the old one stays where it is.
        await raw.execute("SET default_transaction_read_only = off")
        await raw.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
        assert await store.segment_distributor(name="order").next_max_id(10) == 10

    async def test_strict_isolation(self, store: PostgresStore, raw: Connection) -> None:
        """Where a conflict is an error it is a retryable one, and wrote nothing."""
        database = await raw.fetchval("SELECT current_database()")
        level = "ALTER DATABASE \"{}\" SET default_transaction_isolation = 'serializable'"
        await raw.execute(level.format(database))
        await store.aclose()
        counter = store.segment_distributor(name="order")
        calls = [counter.next_max_id(1) for _ in range(50)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        granted = [each for each in ended if isinstance(each, int)]
        assert sorted(granted) == list(range(1, len(granted) + 1))
        failed = {type(each) for each in ended if not isinstance(each, int)}
        assert failed <= {StoreUnavailableError}

    async def test_too_many_connections(
        self, postgres: PostgresServer, postgres_database: str, namespace: str
    ) -> None:
        """Others may leave: retryable."""
        postgres.execute(f'ALTER DATABASE "{namespace}" CONNECTION LIMIT 0')
        url = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        with pytest.raises(StoreUnavailableError, match="too many connections"):
            await PostgresStore.from_url(url).counters()

    @pytest.mark.parametrize("hosts", ["mute,{0}", "gone,mute,{0}", "{0},mute", "db.invalid,{0}"])
    async def test_of_several_hosts_one_is_silent(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str, hosts: str
    ) -> None:
        """The next one is asked within the 2 s that a generator gives a call."""
        async with FaultProxy(postgres.host, postgres.port) as mute:
            mute.blackhole(requests=True)
            netloc = hosts.format(f"{postgres.host}:{postgres.port}")
            netloc = netloc.replace("mute", f"{mute.host}:{mute.port}")
            netloc = netloc.replace("gone", f"{HOST}:{free_port()}")
            url = f"postgresql://postgres@{netloc}/{namespace}?target_session_attrs=read-write"
            async with PostgresStore.from_url(url) as own:
                assert await within(1.9, own.segment_distributor(name="order").next_max_id(1)) == 1

    async def test_all_hosts_are_silent(self, postgres: PostgresServer) -> None:
        """Said in time for the generator to hear it."""
        async with FaultProxy(postgres.host, postgres.port) as mute:
            mute.blackhole(requests=True)
            host = f"{mute.host}:{mute.port}"
            for netloc in (host, f"{host},{host}"):
                async with PostgresStore.from_url(f"postgresql://postgres@{netloc}/x") as own:
                    counter = own.segment_distributor(name="order")
                    with pytest.raises(StoreUnavailableError, match="no answer"):
                        await within(1.9, counter.next_max_id(1))


class TestPgBouncer:
    """Behind PgBouncer in transaction mode, where each statement may run in another session."""

    async def test_200_calls_from_a_url(
        self, store: PostgresStore, pgbouncer: PgBouncerServer, namespace: str
    ) -> None:
        """Nothing of a call relies on the session of the one before it."""
        async with PostgresStore.from_url(pgbouncer.url_for(database=namespace)) as bounced:
            await bounced.create_schema()
            counter = bounced.segment_distributor(name="order")
            ends = await asyncio.gather(*(counter.next_max_id(10) for _ in range(200)))
            assert sorted(ends) == list(range(10, 2001, 10))
            assert [each.last_max_id for each in await bounced.counters()] == [2000]

    async def test_200_calls_on_a_users_pool(
        self, store: PostgresStore, pgbouncer: PgBouncerServer, namespace: str
    ) -> None:
        """With the one option that its docstring asks for."""
        url = pgbouncer.url_for(database=namespace)
        async with pool_of(url, max_size=10, statement_cache_size=0) as pool:
            counter = PostgresStore(pool).segment_distributor(name="order")
            ends = await asyncio.gather(*(counter.next_max_id(10) for _ in range(200)))
            assert sorted(ends) == list(range(10, 2001, 10))
