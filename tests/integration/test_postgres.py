"""Counters in PostgreSQL: one statement each, torn calls that harm nobody, clear refusals."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from aiocosid.abc import MAX_ID, Counter
from aiocosid.errors import (
    CorruptCounterError,
    IdOverflowError,
    InvalidArgumentError,
    NameTooLongError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from aiocosid.stores import postgres as module
from aiocosid.stores._executor import CLOSE_TIMEOUT
from aiocosid.stores.postgres import PostgresIdSegmentDistributor, PostgresStore
from tests.servers import (
    EXECUTED,
    GUEST,
    GUEST_PASSWORD,
    HOST,
    FaultProxy,
    PgBouncerServer,
    PostgresServer,
    eventually,
    free_port,
)

pytestmark = [pytest.mark.integration]

driver: Any = asyncpg  # its annotations stop half-way
Connection = Any
FAR = 10**12  # where the second of two counters starts: no reply fits both
NAMES = ("a.b.c", "ns.ä€命", "it's", 'a "b"', "{a}", "a b ", "a%_", "a\\b", "?1 :name $1")


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


@asynccontextmanager
async def pool_of(url: str, **options: Any) -> AsyncGenerator[Any]:
    """A user's pool."""
    pool = await driver.create_pool(url, **{"min_size": 0, "max_size": 1, **options})
    try:
        yield pool
    finally:
        await asyncio.wait_for(pool.close(), 10)


@asynccontextmanager
async def proxied(
    postgres: PostgresServer, database: str
) -> AsyncGenerator[tuple[FaultProxy, str]]:
    """A proxy in front of the server, and the URL through it."""
    async with FaultProxy(postgres.host, postgres.port) as proxy:
        yield proxy, f"postgresql://postgres@{proxy.host}:{proxy.port}/{database}"


async def rows(raw: Connection) -> list[tuple[str, int]]:
    """What lies in the table, without the times."""
    found = await raw.fetch("SELECT name, last_max_id FROM cosid ORDER BY name")
    return [(name, last_max_id) for name, last_max_id in found]


async def within(seconds: float, call: Awaitable[int]) -> int:
    """The result of a call that must not hang."""
    return await asyncio.wait_for(call, seconds)


def ranges_of(ends: list[int], steps: list[int]) -> tuple[list[int], list[int]]:
    """The starts of the ranges, and where they have to be if the ranges tile."""
    ranges = sorted((end - step, end) for end, step in zip(ends, steps, strict=True))
    return [start for start, _ in ranges], [0, *(end for _, end in ranges[:-1])]


@pytest.mark.asyncio
class TestCounter:
    """One counter and its row."""

    async def test_the_row_is_cosids(self, store: PostgresStore, raw: Connection) -> None:
        """Name, max id and unix seconds lie where CosId's JDBC store has them."""
        counter = store.segment_distributor(namespace="ns", name="order", offset=7, step=10)
        assert await counter.next_max_id(10) == 17
        name, last_max_id, age = await raw.fetchrow(
            "SELECT name, last_max_id, extract(epoch from now())::bigint - last_fetch_time "
            "FROM cosid"
        )
        assert (name, last_max_id) == ("ns.order", 17)
        assert 0 <= age < 30

    async def test_200_concurrent_grants_are_disjoint(self, postgres_database: str) -> None:
        """However many ask at once, through however many pools, the ranges tile."""
        async with (
            PostgresStore.from_url(postgres_database) as one,
            PostgresStore.from_url(postgres_database) as other,
            pool_of(postgres_database, max_size=5) as pool,
        ):
            await one.create_schema()
            counters = [each.segment_distributor(name="order") for each in (one, other)]
            counters.append(PostgresIdSegmentDistributor(pool, name="order"))
            steps = [i % 7 + 1 for i in range(200)]
            calls = (counters[i % 3].next_max_id(step) for i, step in enumerate(steps))
            starts, due = ranges_of(await asyncio.gather(*calls), steps)
            assert starts == due

    @pytest.mark.parametrize("name", NAMES)
    async def test_names_are_only_names(
        self, store: PostgresStore, raw: Connection, name: str
    ) -> None:
        """Dots, quotes, braces, blanks and letters of any script are stored as they are."""
        counter = store.segment_distributor(namespace="n s", name=name)
        assert [await counter.next_max_id(10) for _ in range(2)] == [10, 20]
        assert await rows(raw) == [(f"n s.{name}", 20)]
        found = await store.counters(namespace="n s")
        assert [each.namespaced_name for each in found] == [f"n s.{name}"]

    async def test_int64_is_exact(self, store: PostgresStore, raw: Connection) -> None:
        """What does not fit is refused whole; the last id is 2^63-1 exactly."""
        counter = store.segment_distributor(name="end")
        await store.set_floor(name="end", above=MAX_ID - 10)
        with pytest.raises(IdOverflowError) as caught:
            await counter.next_max_id(11)
        assert caught.value.limit == MAX_ID
        assert isinstance(caught.value.__cause__, asyncpg.NumericValueOutOfRangeError)
        assert await counter.next_max_id(9) == MAX_ID - 1
        assert await counter.next_max_id(1) == MAX_ID
        for step in (1, MAX_ID, MAX_ID + 1):
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(step)
        assert await rows(raw) == [("cosid.end", MAX_ID)]

    @pytest.mark.parametrize("step", [0, -1, 1.0, True, "1", None])
    async def test_a_step_below_1(self, step: Any) -> None:
        """Refused before anything is sent: the server does not exist."""
        counter = PostgresIdSegmentDistributor.from_url(
            f"postgresql://{HOST}:{free_port()}/x", name="order"
        )
        with pytest.raises(InvalidArgumentError, match="at least 1"):
            await counter.next_max_id(step)

    async def test_a_name_that_is_too_long(self, store: PostgresStore) -> None:
        """More characters than the column holds are refused on creation; 100 are fine."""
        longest = store.segment_distributor(namespace="n", name="ä" * 98)
        assert await longest.next_max_id(1) == 1
        with pytest.raises(NameTooLongError) as caught:
            store.segment_distributor(namespace="n", name="a" * 99)
        assert caught.value.limit == 100
        with pytest.raises(NameTooLongError):
            await store.set_floor(namespace="n", name="a" * 99, above=1)

    async def test_a_value_that_is_no_integer(self, store: PostgresStore, raw: Connection) -> None:
        """Somebody's own table may hold anything; it is named as what it is."""
        counter = store.segment_distributor(namespace="ns", name="order")
        await counter.next_max_id(10)
        await raw.execute("ALTER TABLE cosid ALTER last_max_id TYPE numeric")
        await raw.execute("UPDATE cosid SET last_max_id = 1.5")
        for call in (counter.next_max_id(10), store.counters()):
            with pytest.raises(CorruptCounterError, match="Decimal") as caught:
                await call
            assert caught.value.counter == "ns.order"

    async def test_a_counter_that_went_back(self, store: PostgresStore, raw: Connection) -> None:
        """A store that lost writes ends it, naming seen and due; a raised floor mends it."""
        counter = store.segment_distributor(name="order")
        assert [await counter.next_max_id(100) for _ in range(3)] == [100, 200, 300]
        await raw.execute("UPDATE cosid SET last_max_id = 50")
        with pytest.raises(StoreRolledBackError) as caught:
            await counter.next_max_id(100)
        assert (caught.value.seen, caught.value.expected) == (150, 400)
        await store.set_floor(name="order", above=300)
        assert await counter.next_max_id(100) == 400


@pytest.mark.asyncio
class TestTornCalls:
    """A cancelled call, a lost reply: a gap at most, and nobody else's reply."""

    @pytest.mark.both_loops
    @pytest.mark.parametrize("cache", [0, 100])
    async def test_one_connection_two_counters_cancelled_at_every_await(
        self, store: PostgresStore, postgres_database: str, cache: int
    ) -> None:
        """Each counter sees only its own replies, in order, and nothing hangs."""
        async with pool_of(postgres_database, statement_cache_size=cache) as pool:
            near = PostgresIdSegmentDistributor(pool, name="near")
            far = PostgresIdSegmentDistributor(pool, name="far", offset=FAR)
            seen: list[int] = []
            for turns in range(60):
                torn = asyncio.ensure_future(near.next_max_id(1))
                for _ in range(turns % 30):
                    await asyncio.sleep(0)
                other = asyncio.ensure_future(far.next_max_id(1))
                torn.cancel()
                assert await within(5, other) > FAR
                await asyncio.wait([torn])
                seen.append(await within(5, near.next_max_id(1)))
            assert pool.get_size() == 1
        assert seen == sorted(set(seen))
        assert seen[-1] <= 120

    @pytest.mark.both_loops
    async def test_a_storm_on_a_pool_of_ours(self, store: PostgresStore) -> None:
        """The same with many at once, on the connections of a store made from a URL."""
        near = store.segment_distributor(name="near")
        far = store.segment_distributor(name="far", offset=FAR)
        for turns in range(40):
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
        assert await near.next_max_id(1) <= 201
        assert FAR < await far.next_max_id(1) <= FAR + 201

    @pytest.mark.parametrize("own", [True, False])
    async def test_cancelled_after_the_server_acted(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str, own: bool
    ) -> None:
        """The connection is terminated: its late reply reaches nobody."""
        async with proxied(postgres, namespace) as (proxy, url), pool_of(url) as pool:
            mine = PostgresStore.from_url(url) if own else PostgresStore(pool)
            near = mine.segment_distributor(name="near")
            far = mine.segment_distributor(name="far", offset=FAR)
            assert await near.next_max_id(1) == 1
            acted = proxy.next_reply(EXECUTED)
            proxy.swallow_replies(1, matching=EXECUTED, reset=False)
            torn = asyncio.ensure_future(near.next_max_id(1))
            await acted
            torn.cancel()
            await asyncio.wait([torn])
            assert torn.cancelled()
            assert await within(5, far.next_max_id(1)) == FAR + 1
            assert await within(5, near.next_max_id(1)) == 3, "the torn range is a gap"
            assert proxy.connections == 2
            await mine.aclose()

    async def test_cancelled_while_the_pool_cleans_the_connection(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str
    ) -> None:
        """The answer is lost with it, but the pool's only connection is not."""
        async with proxied(postgres, namespace) as (proxy, url), pool_of(url) as pool:
            counter = PostgresIdSegmentDistributor(pool, name="order")
            assert await counter.next_max_id(1) == 1
            cleaning = proxy.next_request(b"UNLISTEN")
            proxy.swallow_replies(1, to=b"UNLISTEN", reset=False)
            torn = asyncio.ensure_future(counter.next_max_id(1))
            await cleaning
            torn.cancel()
            await asyncio.wait([torn])
            assert await within(5, counter.next_max_id(1)) == 3

    async def test_a_pool_that_cannot_clean_keeps_no_answer_back(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str
    ) -> None:
        """The grant has been made; what becomes of the connection is the pool's business."""
        async with proxied(postgres, namespace) as (proxy, url), pool_of(url) as pool:
            counter = PostgresIdSegmentDistributor(pool, name="order")
            proxy.swallow_replies(1, to=b"UNLISTEN")
            assert await within(5, counter.next_max_id(1)) == 1
            assert await within(5, counter.next_max_id(1)) == 2

    @pytest.mark.parametrize("own", [True, False])
    async def test_a_lost_reply_is_a_gap(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str, own: bool
    ) -> None:
        """The connection breaks after the effect: retryable, and the range is given to nobody."""
        async with proxied(postgres, namespace) as (proxy, url), pool_of(url) as pool:
            mine = PostgresStore.from_url(url) if own else PostgresStore(pool)
            counter = mine.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            proxy.swallow_replies(1, matching=EXECUTED)
            with pytest.raises(StoreUnavailableError) as caught:
                await counter.next_max_id(10)
            assert caught.value.retryable
            assert await counter.next_max_id(10) == 30
            await mine.aclose()

    async def test_a_silent_server(
        self,
        store: PostgresStore,
        postgres: PostgresServer,
        namespace: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A caller without a deadline of its own gets an answer all the same."""
        async with proxied(postgres, namespace) as (proxy, url):
            counter = PostgresIdSegmentDistributor.from_url(url, name="order")
            assert await counter.next_max_id(10) == 10
            monkeypatch.setattr(module, "CALL_TIMEOUT", 0.2)
            proxy.blackhole(requests=True)
            with pytest.raises(StoreUnavailableError, match="no answer"):
                await counter.next_max_id(10)
            with pytest.raises(StoreUnavailableError, match="no answer"):
                await counter.next_max_id(10)  # it did not get as far as connecting
            monkeypatch.undo()
            proxy.heal()
            assert await within(5, counter.next_max_id(10)) in (20, 30)
            proxy.blackhole(requests=True)
            await asyncio.wait_for(counter.aclose(), CLOSE_TIMEOUT + 2)


@pytest.mark.asyncio
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

    async def test_sessions_that_are_ended_by_the_administrator(
        self, store: PostgresStore, raw: Connection
    ) -> None:
        """Idle connections that were cut are replaced before anybody notices."""
        counter = store.segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        await raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        again = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
        assert again == 20

    async def test_a_standby(self, store: PostgresStore, raw: Connection) -> None:
        """Read-only, as after a failover: another server will take over, or this one recover."""
        database = await raw.fetchval("SELECT current_database()")
        await raw.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        await store.aclose()
        with pytest.raises(StoreUnavailableError, match="read-only") as caught:
            await store.segment_distributor(name="order").next_max_id(10)
        assert caught.value.retryable

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

    async def test_nobody_there(self) -> None:
        """A port that refuses, a host that is none: retryable, with the system's own words."""
        for host in (f"{HOST}:{free_port()}", "no-such-host.invalid"):
            store = PostgresStore.from_url(f"postgresql://me:secret@{host}/x")
            with pytest.raises(StoreUnavailableError) as caught:
                await store.counters()
            assert isinstance(caught.value.__cause__, OSError)
            assert "secret" not in _everything(caught.value)


@pytest.mark.asyncio
class TestRefusals:
    """What retrying does not mend."""

    async def test_a_wrong_password(self, postgres: PostgresServer) -> None:
        """Authentication; the password is in no word of it."""
        url = postgres.url_for(user=GUEST, password="wr0ng")  # noqa: S106
        store = PostgresStore.from_url(url)
        with pytest.raises(StoreAuthenticationError, match="password") as caught:
            await store.counters()
        assert not caught.value.retryable
        told = _everything(caught.value) + repr(store) + repr(store.segment_distributor(name="x"))
        assert "wr0ng" not in told

    async def test_a_right_password(
        self, postgres: PostgresServer, postgres_database: str, namespace: str
    ) -> None:
        """With ':' and '/' in it, percent-encoded."""
        url = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with PostgresStore.from_url(url) as store:
            with pytest.raises(SchemaMissingError):
                await store.counters()

    async def test_an_unknown_user(self, postgres: PostgresServer) -> None:
        """Authentication as well."""
        url = postgres.url_for(user="nobody", password="x")  # noqa: S106
        with pytest.raises(StoreAuthenticationError):
            await PostgresStore.from_url(url).counters()

    async def test_an_unknown_database(self, postgres: PostgresServer) -> None:
        """Named, and not retryable."""
        with pytest.raises(StoreError, match="nowhere") as caught:
            await PostgresStore.from_url(postgres.url_for(database="nowhere")).counters()
        assert type(caught.value) is StoreError

    async def test_missing_rights(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str
    ) -> None:
        """A user without rights on the table is refused; so is one who may only read."""
        url = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with PostgresStore.from_url(url) as guest:
            counter = guest.segment_distributor(name="order")
            for grant in ("", f"GRANT SELECT ON cosid TO {GUEST}"):
                postgres.execute(grant, database=namespace)
                with pytest.raises(StoreAuthenticationError, match="permission denied") as caught:
                    await counter.next_max_id(10)
                assert not caught.value.retryable
            postgres.execute(f"GRANT INSERT, UPDATE ON cosid TO {GUEST}", database=namespace)
            assert await counter.next_max_id(10) == 10

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql:///qqq#zzz",
            "postgresql://me:qqq#zzz@host/db",
            "postgresql://me:qqq/zzz@host/db",
            "postgresql://me:qqq?zzz@host/db",
            "postgresql://me:1?zzz@host/db",
            "postgresql://me:qqq[zzz@host/db",
            "postgresql://me:qqq@host:port/db",
            "postgresql://me:qqq@host:543210/db",
            "postgresql://me:qqq@host:5432,host:x/db",
            "postgresql://me:qqq@host/db?sslmode=zzz",
            "redis://me:qqq@host/db",
            "me:qqq@host/db",
        ],
    )
    async def test_wrong_urls(self, url: str) -> None:
        """Refused with the right form, on creation or first use, without a word of the URL."""
        with pytest.raises(InvalidArgumentError, match="percent-encoded") as caught:
            await PostgresStore.from_url(url).counters()
        assert caught.value.argument == "url"
        told = _everything(caught.value)
        assert "qqq" not in told
        assert "zzz" not in told

    async def test_not_a_pool(self, postgres_database: str, raw: Connection) -> None:
        """A single connection runs one query at a time, and its transactions take grants back."""
        for wrong in (raw, postgres_database, None):
            with pytest.raises(InvalidArgumentError, match=r"asyncpg\.Pool.*from_url") as caught:
                PostgresIdSegmentDistributor(wrong, name="order")  # type: ignore[arg-type]  # on purpose
            assert postgres_database not in str(caught.value)

    async def test_a_closed_pool(self, postgres_database: str) -> None:
        """The user has closed it: no retry will open it."""
        async with pool_of(postgres_database) as pool:
            store = PostgresStore(pool)
        with pytest.raises(StoreError, match="closed") as caught:
            await store.counters()
        assert not caught.value.retryable


@pytest.mark.asyncio
class TestSchema:
    """The table: ours, CosId's, or none."""

    async def test_a_missing_table(self, postgres_database: str) -> None:
        """Named, with the step that makes it; it is not made behind the operator's back."""
        async with PostgresStore.from_url(postgres_database) as store:
            calls = (
                store.segment_distributor(name="order").next_max_id(10),
                store.counters(),
                store.set_floor(name="order", above=1),
            )
            for call in calls:
                with pytest.raises(SchemaMissingError, match="aiocosid init") as caught:
                    await call
                assert caught.value.table == "cosid"

    async def test_many_create_it_at_once(self, postgres_database: str, raw: Connection) -> None:
        """Deployments start together; none of them fails."""
        stores = [PostgresStore.from_url(postgres_database) for _ in range(10)]
        await asyncio.gather(*(store.create_schema() for store in stores * 2))
        assert await rows(raw) == []
        for store in stores:
            await store.aclose()

    async def test_it_need_not_be_creatable_once_it_is_there(
        self, store: PostgresStore, postgres: PostgresServer, namespace: str
    ) -> None:
        """An application without the right to create tables may ask for it all the same."""
        url = postgres.url_for(user=GUEST, password=GUEST_PASSWORD, database=namespace)
        async with PostgresStore.from_url(url) as guest:
            await guest.create_schema()
            await store._executor.fetch_rows("DROP TABLE cosid")
            with pytest.raises(StoreAuthenticationError, match="permission denied"):
                await guest.create_schema()

    async def test_somebodys_narrow_column(self, postgres_database: str, raw: Connection) -> None:
        """A column of 32 bits ends earlier, and is full then, not broken."""
        await raw.execute(
            "CREATE TABLE cosid "
            "(name varchar(100) PRIMARY KEY, last_max_id int, last_fetch_time int)"
        )
        async with PostgresStore.from_url(postgres_database) as store:
            counter = store.segment_distributor(name="order", offset=2**31 - 11)
            assert await counter.next_max_id(10) == 2**31 - 1
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(1)


@pytest.mark.asyncio
class TestStore:
    """What an operator does."""

    async def test_set_floor_only_raises(self, store: PostgresStore, raw: Connection) -> None:
        """Compare-and-raise: it creates, raises, and never lowers; a fetch time stays a fetch's."""
        created = await store.set_floor(namespace="ns", name="order", above=100)
        assert (created.namespaced_name, created.last_max_id) == ("ns.order", 100)
        await raw.execute("UPDATE cosid SET last_fetch_time = 5")
        for above, due in ((50, 100), (100, 100), (101, 101), (MAX_ID, MAX_ID)):
            raised = await store.set_floor(namespace="ns", name="order", above=above)
            assert raised == Counter(namespaced_name="ns.order", last_max_id=due, last_fetch_time=5)

    async def test_counters_of_a_namespace(self, store: PostgresStore) -> None:
        """Ordered by name, whatever the database's collation; a namespace is all its letters."""
        for namespace in ("b", "a", "A", "a_", "ab", "a.c"):
            await store.set_floor(namespace=namespace, name="x", above=1)
        names = [each.namespaced_name for each in await store.counters()]
        assert names == ["A.x", "a.c.x", "a.x", "a_.x", "ab.x", "b.x"]
        mine = [each.namespaced_name for each in await store.counters(namespace="a")]
        assert mine == ["a.c.x", "a.x"]
        assert await store.counters(namespace="%") == []


@pytest.mark.asyncio
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
            counter = PostgresIdSegmentDistributor(pool, name="order")
            ends = await asyncio.gather(*(counter.next_max_id(10) for _ in range(200)))
            assert sorted(ends) == list(range(10, 2001, 10))


class TestLoops:
    """One object, several event loops one after the other."""

    def test_closed_and_used_again(self, postgres_database: str) -> None:
        """After aclose, also in another asyncio.run, it connects anew."""
        counter = made(postgres_database)

        async def life() -> int:
            first = await counter.next_max_id(10)
            await counter.aclose()
            await counter.aclose()
            assert await counter.next_max_id(10) == first + 10
            await counter.aclose()
            return first

        assert [asyncio.run(life()) for _ in range(3)] == [10, 30, 50]

    def test_never_closed(self, postgres_database: str, postgres: PostgresServer) -> None:
        """The connections end with their loop, politely; the next loop gets others."""
        counter = made(postgres_database)
        assert [asyncio.run(counter.next_max_id(10)) for _ in range(3)] == [10, 20, 30]

    def test_a_loop_that_ends_without_a_word(self, postgres_database: str) -> None:
        """A loop closed by hand leaves a connection behind; the next one does not hang on it."""
        asyncio.run(_create_schema(postgres_database))
        assert run_python(DEAD_LOOPS, postgres_database) == [10, 20, 30]

    def test_two_live_loops(self, postgres_database: str) -> None:
        """A second loop is refused while the first one lives."""
        counter = made(postgres_database)
        with asyncio.Runner() as one, asyncio.Runner() as other:
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            assert one.run(counter.next_max_id(10)) == 20
            one.run(counter.aclose())
            assert other.run(counter.next_max_id(10)) == 30

    def test_a_users_pool_on_another_loop(self, postgres_database: str) -> None:
        """A pool lives on its own loop; the error says so, and the pool goes on there."""
        asyncio.run(_create_schema(postgres_database))
        with asyncio.Runner() as one, asyncio.Runner() as other:
            pool_context = pool_of(postgres_database)
            pool = one.run(pool_context.__aenter__())
            counter = PostgresIdSegmentDistributor(pool, name="order")
            assert one.run(counter.next_max_id(10)) == 10
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            assert one.run(counter.next_max_id(10)) == 20
            one.run(pool_context.__aexit__(None, None, None))

    def test_not_under_trio(self, postgres_database: str) -> None:
        """The driver runs on asyncio only, and the error says so."""
        import trio

        counter = PostgresIdSegmentDistributor.from_url(postgres_database, name="order")
        with pytest.raises(UnsupportedRuntimeError, match="asyncio"):
            trio.run(counter.next_max_id, 10)


class TestFork:
    """A forked child starts over."""

    @pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_a_forked_child(self, postgres_database: str, loop: str, ending: str) -> None:
        """It neither uses nor ends the parent's sessions, and may open its own."""
        code = FORK.replace("ENDING", ending).replace("LOOP", loop)
        told = run_python(code, postgres_database)
        assert told == {
            "refused": ["ForkedError"] * 4,
            "borrowed opened": "ForkedError",
            "child": [30, 40, 50],
            "another session": True,
            "parent": [10, 20, 60, 70],
            "same session": True,
        }

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_a_child_that_does_nothing(self, postgres_database: str, loop: str) -> None:
        """Its mere end, destructors and all, leaves the parent's sessions alone."""
        code = FORK.replace("LOOP", loop).replace("ENDING", "sys.exit(0)")
        code = code.replace("asyncio.run(child(*objects))", "{}")
        told = run_python(code, postgres_database)
        assert told == {"parent": [10, 20, 30, 40], "same session": True}


def made(url: str) -> PostgresIdSegmentDistributor:
    """A counter from a URL, whose table is there."""
    asyncio.run(_create_schema(url))
    return PostgresIdSegmentDistributor.from_url(url, name="order")


async def _create_schema(url: str) -> None:
    async with PostgresStore.from_url(url) as store:
        await store.create_schema()


def _everything(error: BaseException | None) -> str:
    """All that an error and what is behind it could tell."""
    told = ""
    while error is not None:
        told += f"{error!r} {error} {vars(error)} "
        error = error.__cause__ or error.__context__
    return told


DEAD_LOOPS = """
import asyncio, json, sys
from aiocosid.stores.postgres import PostgresIdSegmentDistributor

counter = PostgresIdSegmentDistributor.from_url(sys.argv[1], name="order")
granted = []
for _ in range(3):
    loop = asyncio.new_event_loop()
    granted.append(loop.run_until_complete(asyncio.wait_for(counter.next_max_id(10), 5)))
    loop.close()
asyncio.run(counter.aclose())
print(json.dumps(granted))
"""

FORK = """
import asyncio, ctypes, gc, json, os, sys
import asyncpg, uvloop
from aiocosid.stores.postgres import PostgresIdSegmentDistributor, PostgresStore

url = sys.argv[1]
new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}["LOOP"]

async def outcome(awaitable):
    try:
        return await awaitable
    except Exception as exc:
        return type(exc).__name__

async def session(of):
    return (await of._executor.fetch_row("SELECT pg_backend_pid()"))[0]

async def child(counter, store, borrowed, before):
    refused = [await outcome(each) for each in (
        counter.next_max_id(10), store.counters(), borrowed.next_max_id(10),
        store.segment_distributor(name="order").next_max_id(10))]
    told = {"refused": refused, "borrowed opened": await outcome(borrowed.aopen())}
    gc.collect()
    await counter.aopen()
    granted = [await counter.next_max_id(10)]
    told["another session"] = await session(counter) != before
    await counter.aclose()
    async with store:
        mine = store.segment_distributor(name="order")
        granted += [await mine.next_max_id(10), await mine.next_max_id(10)]
    return told | {"child": granted}

async def main():
    pool = await asyncpg.create_pool(url, min_size=0, max_size=1)
    counter = PostgresIdSegmentDistributor.from_url(url, name="order")
    store = PostgresStore.from_url(url)
    await store.create_schema()
    borrowed = PostgresIdSegmentDistributor(pool, name="order")
    granted = [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    before = await session(counter), await session(store)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The user's own pool says good-bye by itself; that is none of ours.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
        return theirs, counter, store, borrowed, before[0]
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status == 0, status
    granted += [await counter.next_max_id(10), await borrowed.next_max_id(10)]
    same = before == (await session(counter), await session(store))
    await counter.aclose()
    await store.aclose()
    await pool.close()
    told = json.loads(os.read(ours, 10_000))
    print(json.dumps(told | {"parent": granted, "same session": same}))

runner = asyncio.Runner(loop_factory=new_loop)
forked = runner.run(main())
if forked:
    theirs, *objects = forked
    os.write(theirs, json.dumps(asyncio.run(child(*objects))).encode())
    ENDING
runner.close()
"""


def run_python(code: str, *arguments: str) -> Any:
    """Run a script in a process of its own and return what it prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)
