"""What a store's settings say of whether it keeps what it grants: warned of once, or refused."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import pytest
from asyncmy.pool import Pool
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid import store_from_url
from aiocosid.abc import MachineIdDistributor, Store
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdQuarantineError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from aiocosid.stores.sqlite import SqliteStore
from tests.servers import MariadbServer, PostgresServer, ValkeyServer

driver: Any = asyncpg

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


def database_of(url: str) -> str:
    """The name of the database in a URL."""
    return url.rpartition("/")[2]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged since the last call."""
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return found


async def test_redis(
    valkey_factory: Callable[..., ValkeyServer], caplog: pytest.LogCaptureFixture, namespace: str
) -> None:
    """A server without a log of its writes, and one that evicts."""
    server = valkey_factory()
    async with store_from_url(server.url) as store:
        each = [store.segment_distributor(name=name) for name in "abcde"]
        await asyncio.gather(*(one.next_max_id(1) for one in each))
        await each[0].next_max_id(1)
        (told,) = warnings(caplog)
        assert told.startswith("redis: appendonly is no: a crash loses")
        assert told.endswith("set it to yes, or durability='ignore'")
    client = Redis.from_url(server.url)
    for name in "abc":
        await RedisStore(client).segment_distributor(name=name).next_max_id(1)
    assert len(warnings(caplog)) == 1, "once for a client, however many are on it"
    with pytest.raises(StoreError, match="appendonly is no"):
        await RedisStore(client, durability="refuse").segment_distributor(name="a").next_max_id(1)
    server.call("CONFIG", "SET", "maxmemory", "1gb")
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    async with store_from_url(f"{server.url}?durability=refuse") as store:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"maxmemory-policy is allkeys-lru.*appendonly"):
                await store.segment_distributor(name="a").next_max_id(1)
        assert server.call("GET", "cosid:{cosid.a}.adder") == "3"
    await RedisStore(client, durability="ignore").segment_distributor(name="a").next_max_id(1)
    server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    server.call("CONFIG", "SET", "appendonly", "yes")
    await client.aclose()
    assert not warnings(caplog)


async def test_a_log_on_redis(
    valkey_factory: Callable[..., ValkeyServer], caplog: pytest.LogCaptureFixture, namespace: str
) -> None:
    """Only one that is synced at each write, and is never loaded in part; proved, not supposed."""
    server = valkey_factory("--appendonly", "yes")
    server.call("ACL", "SETUSER", namespace, "on", ">x", "~cosid:*", "~aiocosid:*", "+@all")
    url = server.url_for(username=namespace, password="x")  # noqa: S106 - the test's

    async def grant(demand: str = "refuse") -> int:
        async with store_from_url(f"{url}?durability={demand}") as store:
            return await store.segment_distributor(name="a").next_max_id(1)

    with pytest.raises(StoreError, match=r"appendfsync is everysec.*aof-load-truncated is yes"):
        await grant()
    assert await grant("warn") == 1
    assert len(warnings(caplog)) == 2
    server.call("CONFIG", "SET", "appendfsync", "always", "aof-load-truncated", "no")
    assert await grant() == 2
    for hidden, named in (("config", "appendfsync"), ("info", "appendonly")):
        server.call("ACL", "SETUSER", namespace, f"-{hidden}")
        with pytest.raises(StoreError, match=f"{named} cannot be read"):
            await grant()
    assert await grant("warn") == 3
    assert not warnings(caplog)


async def test_postgres(
    postgres: PostgresServer, postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What counts is the session: a role or a URL may set it. The test's server has no fsync."""
    async with store_from_url(postgres_database) as store:
        await store.create_schema()
        await store.segment_distributor(name="a").next_max_id(1)
        (told,) = warnings(caplog)
        place = postgres_database.rpartition("@")[2]
        assert told.startswith(f"postgres {place}: fsync is off: a power cut may damage the data")
    for value in ("off", "local", "remote_write"):
        weak = f"{postgres_database}?durability=refuse&synchronous_commit={value}"
        async with store_from_url(weak) as store:
            for _ in range(2):
                with pytest.raises(StoreError, match=rf"commit is {value}.*fsync is off"):
                    await store.segment_distributor(name="a").next_max_id(1)
    postgres.execute("ALTER TABLE cosid SET UNLOGGED", database=database_of(postgres_database))
    async with store_from_url(f"{postgres_database}?durability=refuse") as store:
        with pytest.raises(StoreError, match=r"table cosid is unlogged: .*SET LOGGED") as found:
            await store.segment_distributor(name="a").next_max_id(1)
    assert not re.search("synchronous_commit|full_page|aiocosid_", str(found.value))
    postgres.execute("ALTER TABLE cosid SET LOGGED", database=database_of(postgres_database))
    async with driver.create_pool(postgres_database, min_size=1) as pool:
        with pytest.raises(StoreError, match="fsync is off"):
            await PostgresStore(pool, durability="refuse").counters()
        distributor = PostgresStore(pool, durability="ignore").segment_distributor(name="a")
        assert await distributor.next_max_id(1) == 2
        assert not warnings(caplog)
        many = [PostgresStore(pool).segment_distributor(name=name) for name in "abcde"]
        await asyncio.gather(*(one.next_max_id(1) for one in many))
        assert len(warnings(caplog)) == 1
    for wrong in ("maybe", ""):
        with pytest.raises(InvalidArgumentError, match="warn, refuse or ignore for durability"):
            store_from_url(f"{postgres_database}?durability={wrong}")


async def test_sqlite(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user's connection may have been made faster than it is safe; ours never is."""
    path = tmp_path / "ids.db"
    cases = (
        ("DELETE", "FULL", 1),
        ("DELETE", "EXTRA", 0),
        ("WAL", "NORMAL", 1),
        ("WAL", "FULL", 0),
        ("WAL", "OFF", 1),
        ("DELETE", "NORMAL", 1),
        ("TRUNCATE", "FULL", 0),
        ("MEMORY", "FULL", 1),
        ("OFF", "OFF", 2),
    )
    for mode, level, count in cases:
        async with aiosqlite.connect(path) as connection:
            await connection.execute(f"PRAGMA journal_mode = {mode}")
            await connection.execute(f"PRAGMA synchronous = {level}")
            store = SqliteStore(connection)
            for name in ("a", "b"):
                await store.segment_distributor(name=name).next_max_id(1)
                await SqliteStore(connection).segment_distributor(name=name).next_max_id(1)
            assert len(warnings(caplog)) == count, (mode, level)
            strict = SqliteStore(connection, durability="refuse").segment_distributor(name="a")
            call = strict.next_max_id(1)
            if count:
                with pytest.raises(StoreError, match="durability='refuse'"):
                    await call
            else:
                await call
    async with aiosqlite.connect(":memory:") as connection:
        await SqliteStore(connection).segment_distributor(name="a").next_max_id(1)
    async with store_from_url(f"sqlite:///{path}") as own:
        await own.segment_distributor(name="a").next_max_id(1)
    assert not warnings(caplog)


async def test_machine_ids(
    mariadb_alone: MariadbServer,
    mariadb_alone_database: str,
    postgres_database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A holder may outlive the crash that has taken its id back: told as for counters."""
    for url in (mariadb_alone_database, postgres_database):
        async with store_from_url(f"{url}?durability=ignore") as store:
            await store.create_schema()
    engine = create_async_engine(mariadb_alone_database.replace(":", "+asyncmy:", 1))
    login: dict[str, Any] = {"host": engine.url.host, "port": engine.url.port}
    login |= {"user": engine.url.username, "database": engine.url.database}
    mysql_pool = Pool(0, 1, **login)
    mariadb_alone.execute("set global innodb_flush_log_at_trx_commit = 2")
    try:
        async with (
            driver.create_pool(postgres_database, min_size=1) as pool,
            aiosqlite.connect(tmp_path / "ids.db") as connection,
        ):
            await connection.execute("PRAGMA synchronous = OFF")
            makes: tuple[Callable[..., Store], ...] = (
                partial(MysqlStore, mysql_pool),
                partial(SqlAlchemyStore, engine),
                partial(PostgresStore, pool),
                partial(SqliteStore, connection),
            )
            for make in makes:
                await _ask(make(durability="ignore").machine_id_distributor())
                assert not warnings(caplog)
                with pytest.raises(StoreError, match="durability='refuse'"):
                    await _ask(make(durability="refuse").machine_id_distributor())
                await _ask(make().machine_id_distributor())
                await _ask(make().machine_id_distributor())
                assert len(warnings(caplog)) == 1, make
    finally:
        mariadb_alone.execute("set global innodb_flush_log_at_trx_commit = 1")
        mysql_pool.close()
        await mysql_pool.wait_closed()
        await engine.dispose()


async def _ask(machine: MachineIdDistributor) -> None:
    """Ask for a machine id, of which there is none yet."""
    with suppress(MachineIdQuarantineError):
        await machine.distribute(10, now_ms=1, latest_ms=1)


async def test_other_isolation_levels(postgres_database: str) -> None:
    """A call may fail there, and be tried again; no range is given twice, none is lost."""
    for level in ("repeatable read", "serializable"):
        options: Any = {"server_settings": {"default_transaction_isolation": level}}
        options |= {"min_size": 1, "max_size": 8}
        async with driver.create_pool(postgres_database, **options) as pool:
            store = PostgresStore(pool, durability="ignore")
            await store.create_schema()
            distributor = store.segment_distributor(name=level)
            answers: list[Any] = await asyncio.gather(
                *(distributor.next_max_id(1) for _ in range(60)), return_exceptions=True
            )
            errors = {type(each) for each in answers if not isinstance(each, int)}
            granted = sorted(each for each in answers if isinstance(each, int))
            assert errors <= {StoreUnavailableError}
            assert granted == list(range(1, len(granted) + 1))
            assert granted
