"""Counters in PostgreSQL: the row, its ends, the table, and clear refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
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
)
from aiocosid.stores.postgres import PostgresStore
from tests.servers import (
    GUEST,
    GUEST_PASSWORD,
    HOST,
    PostgresServer,
    free_port,
)

pytestmark = [pytest.mark.integration]


driver: Any = asyncpg  # its annotations stop half-way


Connection = Any


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


async def rows(raw: Connection) -> list[tuple[str, int]]:
    """What lies in the table, without the times."""
    found = await raw.fetch("SELECT name, last_max_id FROM cosid ORDER BY name")
    return [(name, last_max_id) for name, last_max_id in found]


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
            counters.append(PostgresStore(pool).segment_distributor(name="order"))
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

    async def test_counters_of_one_store_share_its_connections(self, store: PostgresStore) -> None:
        """Closing one of them leaves the others theirs; the store closes them."""
        one, other = (store.segment_distributor(name=name) for name in ("one", "other"))
        assert [await each.next_max_id(1) for each in (one, other)] == [1, 1]
        before = await store._backend._executor.fetch_rows("SELECT pg_backend_pid()")
        await one.aclose()
        assert await store._backend._executor.fetch_rows("SELECT pg_backend_pid()") == before
        assert [await each.next_max_id(1) for each in (one, other)] == [2, 2]

    @pytest.mark.parametrize("step", [0, -1, 1.0, True, "1", None])
    async def test_a_step_below_1(self, step: Any) -> None:
        """Refused before anything is sent: the server does not exist."""
        counter = PostgresStore.from_url(
            f"postgresql://{HOST}:{free_port()}/x"
        ).segment_distributor(name="order")
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

    async def test_a_numeric_column(self, store: PostgresStore, raw: Connection) -> None:
        """As a table that was migrated from MySQL's unsigned integers has: the same, to the end."""
        await raw.execute(
            "ALTER TABLE cosid ALTER last_max_id TYPE numeric, ALTER last_fetch_time TYPE numeric"
        )
        counter = store.segment_distributor(name="order")
        assert [await counter.next_max_id(10) for _ in range(2)] == [10, 20]
        for above in (25, 20, MAX_ID - 10):
            raised = await store.set_floor(name="order", above=above)
            assert raised.last_max_id == max(above, 25)
        with pytest.raises(IdOverflowError):
            await counter.next_max_id(11)
        assert await counter.next_max_id(10) == MAX_ID
        for step in (1, MAX_ID):
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(step)
        with pytest.raises(IdOverflowError):
            await store.segment_distributor(name="order").next_max_id(1)
        (listed,) = await store.counters()
        assert listed.last_max_id == MAX_ID
        assert listed.last_fetch_time is not None
        assert await rows(raw) == [("cosid.order", MAX_ID)]

    @pytest.mark.parametrize("value", ["1.5", "NaN", "Infinity"])
    async def test_a_value_that_is_no_integer(
        self, store: PostgresStore, raw: Connection, value: str
    ) -> None:
        """Such a column may hold anything; it is named as what it is, and stays so."""
        counter = store.segment_distributor(namespace="ns", name="order")
        await counter.next_max_id(10)
        await raw.execute("ALTER TABLE cosid ALTER last_max_id TYPE numeric")
        damage = "UPDATE cosid SET last_max_id = $1::text::numeric, last_fetch_time = 5"
        await raw.execute(damage, value)
        for call in (
            lambda: counter.next_max_id(10),
            lambda: store.set_floor(namespace="ns", name="order", above=5),
        ):
            with pytest.raises(CorruptCounterError, match=value) as caught:
                await call()
            assert caught.value.counter == "ns.order"
        row = await raw.fetchrow("SELECT last_max_id::text, last_fetch_time FROM cosid")
        assert tuple(row) == (value, 5)

    async def test_a_damaged_row_hides_no_other(
        self, store: PostgresStore, raw: Connection
    ) -> None:
        """The list leaves it out; whoever uses it is told."""
        await store.set_floor(name="sound", above=7)
        await raw.execute("ALTER TABLE cosid ALTER last_max_id TYPE numeric")
        await raw.execute("INSERT INTO cosid VALUES ('cosid.damaged', 1.5, 0)")
        assert [each.namespaced_name for each in await store.counters()] == ["cosid.sound"]

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
            "postgresql://me:1/zzz@host/db",
            "postgresql://me:qqq[zzz@host/db",
            "postgresql://me:qqq@host:port/db",
            "postgresql://me:qqq@host:543210/db",
            "postgresql://me:qqq@host:5432,host:x/db",
            "postgresql://me:qqq@host/db?sslmode=zzz",
            "redis://me:qqq@host/db",
            "me:qqq@host/db",
            "postgresql:qqq/zzz",
            "postgresql:/qqq/zzz",
            "postgresql:host/qqq//zzz",
            "postgresql://me:qqq@host,/zzz",
            "postgresql://me:qqq@,host/zzz",
            "postgresql://me:qqq@host,:5432/zzz",
            None,
        ],
    )
    async def test_wrong_urls(self, url: Any) -> None:
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
                PostgresStore(wrong).segment_distributor(name="order")  # type: ignore[arg-type]  # on purpose
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
            await store._backend._executor.fetch_rows("DROP TABLE cosid")
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
            with pytest.raises(IdOverflowError):
                await store.set_floor(name="order", above=2**31)
            assert await rows(raw) == [("cosid.order", 2**31 - 1)]


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


def _everything(error: BaseException | None) -> str:
    """All that an error and what is behind it could tell."""
    told = ""
    while error is not None:
        told += f"{error!r} {error} {vars(error)} "
        error = error.__cause__ or error.__context__
    return told
