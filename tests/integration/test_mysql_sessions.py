"""What a server, a user's pool or a user's engine may set in a session of MySQL or MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from asyncmy.pool import Pool
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.errors import StoreUnavailableError
from aiocosid.stores._executor import code_of
from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.sql import executor_on
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from tests.servers import IS_MYSQL, MariadbServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T0 = 1_700_000_000_000
DRIVERS = ("asyncmy", "aiomysql")
LOCK_WAIT_TIMEOUT = 1205  # the server's code


@contextmanager
def setting(server: MariadbServer, name: str, value: str, back: str) -> Generator[None]:
    """A setting of the server's, for new sessions."""
    server.execute(f"set global {name} = {value}")
    try:
        yield
    finally:
        server.execute(f"set global {name} = {back}")


def by(driver: str, url: str) -> str:
    """The same database for SQLAlchemy."""
    return url.replace(":", f"+{driver}:", 1)


def pool_of(url: str, **options: Any) -> Pool:
    """A user's pool of one connection."""
    parts = urlsplit(url)
    login: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    return Pool(0, 1, **login, database=parts.path[1:], **options)


async def closed(pool: Pool) -> None:
    """Close a user's pool."""
    pool.close()
    await asyncio.wait_for(pool.wait_closed(), 10)


@pytest.fixture
def mariadb(mariadb_alone: MariadbServer) -> MariadbServer:
    """One whose global settings the tests change."""
    return mariadb_alone


@pytest_asyncio.fixture
async def execute(mariadb: MariadbServer, mariadb_database: str) -> Callable[[str], str]:
    """Run SQL behind everybody's back, on the stores' tables and one of a user's."""
    async with MysqlStore.from_url(mariadb_database) as store:
        await store.create_schema()
    database = mariadb_database.rpartition("/")[2]
    mariadb.execute("create table theirs (a int)", database=database)
    return lambda sql: mariadb.execute(sql, database=database)


@pytest.fixture
def chained(mariadb: MariadbServer, execute: object) -> Iterator[None]:
    """Each COMMIT begins the next transaction, in new sessions."""
    with setting(mariadb, "completion_type", "CHAIN", "NO_CHAIN"):
        yield


@pytest.mark.usefixtures("chained")
class TestChains:
    """What is in a transaction that nobody asked for is lost with its connection."""

    async def test_connections_of_ours(self, mariadb_database: str) -> None:
        """One process after the other: nobody is granted what the one before had."""
        urls = [mariadb_database, *(by(each, mariadb_database) for each in DRIVERS)]
        for number, url in enumerate(urls * 2):
            async with store_from_url(url) as store:
                assert await self._ends(store) == [40 * number + end for end in (10, 20, 30, 40)]

    async def _ends(self, store: Store) -> list[int]:
        """Grants by the statement that may create a counter, and by the other one."""
        counters = [store.segment_distributor(name="order") for _ in range(2)]
        ends = [await each.next_max_id(10) for each in counters * 2]
        await store.set_floor(name="another", above=5)
        return ends

    async def test_a_users_pool(self, mariadb_database: str, execute: Callable[[str], str]) -> None:
        """What the user writes on the connection that we had is kept as well.

        Where COMMIT is set to end the session, ours does not.
        """
        modes = (False, "CHAIN"), (True, "CHAIN"), (True, "RELEASE")
        for number, (commits, kind) in enumerate(modes):
            pool = pool_of(mariadb_database, autocommit=commits)
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute(f"SET completion_type = {kind!r}")
            ends = await self._ends(MysqlStore(pool))
            assert ends == [40 * number + end for end in (10, 20, 30, 40)]
            async with pool.acquire() as connection, connection.cursor() as cursor:
                assert not connection.get_transaction_status()
                await cursor.execute("SELECT @@completion_type")
                assert await cursor.fetchone() == (kind,)
                await cursor.execute("INSERT INTO theirs VALUES (1)")
            await closed(pool)
        assert execute("select count(*) from theirs") == "2"

    async def test_a_users_engine(
        self, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """The same; one in autocommit mode keeps what its user writes."""
        modes: tuple[dict[str, Any], ...] = (
            {},
            {"isolation_level": "AUTOCOMMIT"},
            {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True},
        )
        urls = [by(each, mariadb_database) for each in DRIVERS]
        for number, (options, url) in enumerate(product(modes, urls)):
            engine = create_async_engine(url, pool_size=1, max_overflow=0, **options)
            ends = await self._ends(SqlAlchemyStore(engine))
            assert ends == [40 * number + end for end in (10, 20, 30, 40)]
            async with engine.connect() as connection:
                await connection.execute(text("INSERT INTO theirs VALUES (1)"))
                if not options:
                    await connection.commit()
            await engine.dispose()
            if not options or "skip_autocommit_rollback" in options:
                assert execute("select count(*) from theirs") == "1"
            execute("delete from theirs")

    async def test_others_tables(
        self, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """A statement on a user's engine in autocommit mode is committed."""
        urls = [by(each, mariadb_database) for each in DRIVERS]
        if not IS_MYSQL:
            urls += [each.replace("mysql+", "mariadb+", 1) for each in urls]
        for url in urls:
            engine = create_async_engine(url, isolation_level="AUTOCOMMIT", pool_size=1)
            sql = executor_on(engine)
            for _ in range(3):
                outcome = await sql.run("INSERT INTO theirs VALUES (1)")
                assert outcome.matched == 1
            await engine.dispose()
            assert execute("select count(*) from theirs") == "3"
            execute("delete from theirs")


class TestOddSessions:
    """What else may be set."""

    async def test_a_table_of_another_character_set(
        self, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """Names are listed by their letters, not by the table's bytes; in any session's, too."""
        execute("alter table cosid convert to character set latin1")
        pool = pool_of(mariadb_database, charset="latin1")
        async with MysqlStore.from_url(mariadb_database) as own:
            for store in (own, MysqlStore(pool)):
                await store.segment_distributor(namespace="café", name="order").next_max_id(10)
                (found,) = await store.counters(namespace="café")
                assert found.namespaced_name == "café.order"
        await closed(pool)

    async def test_how_many_rows_a_select_returns(
        self, mariadb: MariadbServer, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """All; and the session is left as it was."""
        url = by("asyncmy", mariadb_database)
        for number in (1, 0):
            command = f"SET sql_select_limit = {number}"
            pool = pool_of(mariadb_database, init_command=command)
            engine = create_async_engine(url, connect_args={"init_command": command})
            await self._list(MysqlStore(pool))
            if number:  # else SQLAlchemy itself finds nothing
                await self._list(SqlAlchemyStore(engine))
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute("SET @found = @@sql_select_limit, sql_select_limit = 9")
                await cursor.execute("SELECT @found")
                assert await cursor.fetchone() == (number,)
            await closed(pool)
            await engine.dispose()
        with setting(mariadb, "sql_select_limit", "1", "18446744073709551615"):
            for each in (mariadb_database, *(by(driver, mariadb_database) for driver in DRIVERS)):
                async with store_from_url(each) as own:
                    await self._list(own)

    async def test_a_lock_on_a_table_does_not_last_a_day(
        self, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """Another session keeps a table from being made; the session is left as it was."""
        url, wait = by("asyncmy", mariadb_database), "SET lock_wait_timeout = 77"
        execute("drop view aiocosid_witness")  # else it is a loss
        execute("drop table cosid_machine")
        pool = pool_of(mariadb_database, init_command=wait)
        engine = create_async_engine(url, connect_args={"init_command": wait})
        holder = pool_of(mariadb_database)
        async with holder.acquire() as other, other.cursor() as cursor:
            await cursor.execute("BACKUP LOCK cosid_machine")
            for store in (MysqlStore(pool), SqlAlchemyStore(engine)):
                with pytest.raises(StoreUnavailableError) as caught:
                    await store.create_schema()
                assert code_of(caught.value.__cause__) == LOCK_WAIT_TIMEOUT
            await cursor.execute("BACKUP UNLOCK")
        for store in (MysqlStore(pool), SqlAlchemyStore(engine)):
            await store.create_schema()
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute("SELECT @@lock_wait_timeout")
            assert await cursor.fetchone() == (77,)
        async with engine.connect() as theirs:
            assert (await theirs.execute(text("SELECT @@lock_wait_timeout"))).scalar() == 77
        for each in (pool, holder):
            await closed(each)
        await engine.dispose()

    async def _list(self, store: Store) -> None:
        for name in "ab":
            await store.segment_distributor(name=name).next_max_id(10)
        assert [each.namespaced_name for each in await store.counters()] == ["cosid.a", "cosid.b"]
        await store.initialize_namespace(confirm_no_holders=True, safe_guard=10.0)
        for name in "ab":
            machine = store.machine_id_distributor(instance_id=name)
            await machine.distribute(4, now_ms=T0, latest_ms=T0)
        assert [each.machine_id for each in await store.machines()] == [0, 1]
