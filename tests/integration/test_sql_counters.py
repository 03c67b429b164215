"""Counters in SQLite, PostgreSQL, MySQL and MariaDB: the row, its ends, and clear refusals."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.abc import MAX_ID, Counter
from aiocosid.errors import (
    CorruptCounterError,
    IdOverflowError,
    InvalidArgumentError,
    NameTooLongError,
    SchemaDroppedError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
)
from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.postgres import PostgresStore
from tests.servers import GUEST

from ._clients import store_on
from ._sql import DATABASES, Database, OnServer, SqliteFile, SqlStore, everything

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

WRONG_URLS = (
    *("{}:///qqq#zzz", "{}://me:qqq#zzz@host/db", "{}://me:qqq/zzz@host/db"),
    *("{}://me:qqq?zzz@host/db", "{}://me:qqq[zzz@host/db", "{}://me:qqq@host:port/db"),
    *("{}://me:qqq@host:543210/db", "{}:qqq/zzz", "redis://me:qqq@host/db", None),
)
WRONG_TO_POSTGRES = (
    *("{}://me:1?zzz@host/db", "{}://me:1/zzz@host/db", "{}://me:qqq@host:5432,host:x/db"),
    *("{}://me:qqq@host/db?sslmode=zzz", "me:qqq@host/db", "{}:/qqq/zzz", "{}:host/qqq//zzz"),
    *("{}://me:qqq@host,/zzz", "{}://me:qqq@,host/zzz", "{}://me:qqq@host,:5432/zzz"),
)
WRONG_TO_MYSQL = ("{}://me:qqq@host/zzz/qqq", "{}://me:qqq@host/", "{}://me:qqq@host")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Database:
    """A database of one kind after the other."""
    return DATABASES[request.param](request)


@pytest.fixture(params=["postgres", "mariadb"])
def on_server(request: pytest.FixtureRequest) -> Database:
    """One of a server's."""
    return DATABASES[request.param](request)


@pytest_asyncio.fixture
async def store(database: Database) -> AsyncIterator[SqlStore]:
    """A store with its tables."""
    async with database.open() as store:
        await store.create_schema()
        yield store


class TestCounter:
    """One counter and its row."""

    async def test_the_row_is_cosids(self, store: SqlStore, database: Database) -> None:
        """Name, max id and unix seconds lie where CosId's JDBC store has them."""
        counter = store.segment_distributor(namespace="ns", name="order", offset=7, step=10)
        assert await counter.next_max_id(10) == 17
        row = database.execute(
            f"select name, last_max_id, {database.now} - last_fetch_time from cosid"
        )
        *known, age = row.split("|")
        assert known == ["ns.order", "17"]
        assert 0 <= int(age) < 30

    async def test_int64_is_exact(self, store: SqlStore, database: Database) -> None:
        """What does not fit is refused whole; the last id is 2^63-1 exactly."""
        await store.set_floor(name="end", above=MAX_ID - 10)
        for _ in range(2):
            counter = store.segment_distributor(name="end")
            database.execute(f"update cosid set last_max_id = {MAX_ID - 10}, last_fetch_time = 5")
            with pytest.raises(IdOverflowError) as caught:
                await counter.next_max_id(11)
            assert caught.value.limit == MAX_ID
            row = database.execute("select last_max_id, last_fetch_time from cosid")
            assert row == f"{MAX_ID - 10}|5"
            assert await counter.next_max_id(9) == MAX_ID - 1
            assert await counter.next_max_id(1) == MAX_ID
            for step in (1, MAX_ID, MAX_ID + 1):
                with pytest.raises(IdOverflowError):
                    await counter.next_max_id(step)
            assert database.execute("select last_max_id from cosid") == f"{MAX_ID}"

    async def test_a_start_above_int64(self, store: SqlStore) -> None:
        """An offset that leaves no room for the first step is the end already."""
        counter = store.segment_distributor(name="order", offset=MAX_ID - 1)
        with pytest.raises(IdOverflowError):
            await counter.next_max_id(2)
        assert await counter.next_max_id(1) == MAX_ID

    async def test_a_name_that_is_too_long(self, store: SqlStore) -> None:
        """More characters than the column holds are refused on creation; 100 are fine."""
        longest = store.segment_distributor(namespace="n", name="ä" * 98)
        assert await longest.next_max_id(1) == 1
        with pytest.raises(NameTooLongError) as caught:
            store.segment_distributor(namespace="n", name="a" * 99)
        assert caught.value.limit == 100
        with pytest.raises(NameTooLongError):
            await store.set_floor(namespace="n", name="a" * 99, above=1)
        with pytest.raises(InvalidArgumentError):
            store.segment_distributor(namespace="n", name="\ud800")

    async def test_a_counter_that_went_back(self, store: SqlStore, database: Database) -> None:
        """A store that lost writes ends it, naming seen and due; a raised floor mends it."""
        counter = store.segment_distributor(name="order")
        assert [await counter.next_max_id(100) for _ in range(3)] == [100, 200, 300]
        database.execute("update cosid set last_max_id = 50")
        with pytest.raises(StoreRolledBackError) as caught:
            await counter.next_max_id(100)
        assert (caught.value.seen, caught.value.expected) == (150, 400)
        if isinstance(database, SqliteFile):
            assert caught.value.store == f"sqlite {database.path}", "as other errors name it"
        await store.set_floor(name="order", above=300)
        assert await counter.next_max_id(100) == 400

    async def test_a_value_that_is_no_integer(self, store: SqlStore, database: Database) -> None:
        """It is named as what it is by every call, stays so, and hides no other."""
        await store.set_floor(name="sound", above=7)
        counter = store.segment_distributor(namespace="ns", name="order")
        await counter.next_max_id(10)
        database.execute(database.loose)
        for value, said in database.damages.items():
            database.execute(
                f"update cosid set last_max_id = {value}, last_fetch_time = 5 "
                "where name = 'ns.order'"
            )
            for call in (
                counter.next_max_id(10),
                store.set_floor(namespace="ns", name="order", above=5),
            ):
                with pytest.raises(CorruptCounterError) as caught:
                    await call
                assert said in str(caught.value)
                assert caught.value.counter == "ns.order"
                assert not caught.value.retryable
            left = f"select name from cosid where last_max_id = {value} and last_fetch_time = 5"
            assert database.execute(left) == "ns.order"
            assert [each.namespaced_name for each in await store.counters()] == ["cosid.sound"]


class TestRefusals:
    """What retrying does not mend."""

    async def test_who_may_not(self, on_server: OnServer) -> None:
        """A wrong password, an unknown user, no such database; nothing secret is told."""
        for user in (GUEST, "nobody"):
            url = on_server.server.url_for(user=user, password="wr0ng")  # noqa: S106
            store = on_server.store_type.from_url(url)
            with pytest.raises(StoreAuthenticationError, match=r"denied|password") as caught:
                await store.counters()
            assert not caught.value.retryable
            made = repr(store) + repr(store.segment_distributor(name="x"))
            assert "wr0ng" not in everything(caught.value) + made
        nowhere = on_server.server.url_for(database="nowhere")
        with pytest.raises(StoreError, match="nowhere") as error:
            await on_server.store_type.from_url(nowhere).counters()
        assert type(error.value) is StoreError
        assert not error.value.retryable

    @pytest.mark.parametrize(
        ("store_type", "scheme", "urls"),
        [
            (PostgresStore, "postgresql", WRONG_URLS + WRONG_TO_POSTGRES),
            (MysqlStore, "mysql", WRONG_URLS + WRONG_TO_MYSQL),
        ],
    )
    async def test_wrong_urls(
        self, store_type: type[PostgresStore | MysqlStore], scheme: str, urls: tuple[Any, ...]
    ) -> None:
        """Refused with the right form, on creation or first use, without a word of the URL."""
        for url in urls:
            with pytest.raises(
                InvalidArgumentError, match=r"percent-encoded|for sslmode"
            ) as caught:
                await store_type.from_url(url and url.format(scheme)).counters()
            assert caught.value.argument == "url"
            told = everything(caught.value)
            assert "qqq" not in told
            assert "zzz" not in told

    async def test_not_a_pool(self, on_server: OnServer) -> None:
        """A URL goes to from_url; a pool that was closed is not opened by a retry."""
        wrongs: tuple[Any, ...] = (on_server.url, None)
        for wrong in wrongs:
            with pytest.raises(InvalidArgumentError, match=r"\.Pool.*from_url") as caught:
                on_server.store_type(wrong)
            assert on_server.url not in str(caught.value)
        async with on_server.pool() as pool:
            store = store_on(pool)
        with pytest.raises(StoreError, match="closed") as error:
            await store.counters()
        assert not error.value.retryable


class TestSchema:
    """The tables that are missing."""

    async def test_a_missing_table(self, on_server: OnServer) -> None:
        """Named, with the step that makes it; it is not made behind the operator's back."""
        async with on_server.open() as store:
            counter = store.segment_distributor(name="order")
            for call in (
                counter.next_max_id(10),
                store.counters(),
                store.set_floor(name="order", above=1),
            ):
                with pytest.raises(SchemaMissingError, match="aiocosid init") as caught:
                    await call
                assert caught.value.table == "cosid"
            await store.create_schema()
            assert (await store.set_floor(name="order", above=1)).last_max_id == 1
            on_server.execute("drop table aiocosid_cell")
            with pytest.raises(SchemaDroppedError, match="'aiocosid_cell'"):
                await store.machine_markers()

    async def test_it_need_not_be_creatable_once_it_is_there(self, on_server: OnServer) -> None:
        """An application without the right to create tables may ask for it all the same."""
        async with on_server.open() as store:
            await store.create_schema()
        with on_server.guest() as url:
            async with on_server.store_type.from_url(url) as guest:
                await guest.create_schema()
                assert await guest.segment_distributor(name="order").next_max_id(10) == 10
                on_server.execute("drop view aiocosid_witness")  # else it is a loss
                on_server.execute("drop table cosid_machine")
                with pytest.raises(StoreAuthenticationError, match="denied"):
                    await guest.create_schema()


class TestStore:
    """What an operator does."""

    async def test_set_floor_only_raises(self, store: SqlStore, database: Database) -> None:
        """Compare-and-raise: it creates, raises, and never lowers; a fetch time stays a fetch's."""
        created = await store.set_floor(namespace="ns", name="order", above=100)
        assert (created.namespaced_name, created.last_max_id) == ("ns.order", 100)
        database.execute("update cosid set last_fetch_time = 5")
        for above, due in ((50, 100), (100, 100), (101, 101), (MAX_ID, MAX_ID)):
            raised = await store.set_floor(namespace="ns", name="order", above=above)
            assert raised == Counter(namespaced_name="ns.order", last_max_id=due, last_fetch_time=5)

    async def test_counters_of_a_namespace(self, store: SqlStore) -> None:
        """Ordered by name, whatever the collation; a namespace is all its letters."""
        for namespace in ("b", "a", "A", "a_", "ab", "a.c"):
            await store.set_floor(namespace=namespace, name="x", above=1)
        names = [each.namespaced_name for each in await store.counters()]
        assert names == ["A.x", "a.c.x", "a.x", "a_.x", "ab.x", "b.x"]
        mine = [each.namespaced_name for each in await store.counters(namespace="a")]
        assert mine == ["a.c.x", "a.x"]
        assert await store.counters(namespace="%") == []

    async def test_create_schema_may_be_repeated(self, store: SqlStore) -> None:
        """It leaves what is there."""
        await store.set_floor(name="order", above=5)
        await store.create_schema()
        assert [each.last_max_id for each in await store.counters()] == [5]
