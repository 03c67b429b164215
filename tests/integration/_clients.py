"""Pools and clients as users make them, by the scheme of a URL, and what is behind a store.

The scripts of forked processes import it as well, so it imports no more than they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from tests.servers import PROCESSES

SESSION: Final = {
    "postgresql": "SELECT pg_backend_pid()",
    "mysql": "SELECT CONNECTION_ID()",
    "sqlite": "SELECT 1",  # a file has no sessions
}
SESSIONS: Final = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
    "mysql": f"SELECT count(*) FROM {PROCESSES} WHERE db = database()",  # noqa: S608 - ours
}


def scheme_of(url: str) -> str:
    """Return what kind of database a URL names, without the driver."""
    return urlsplit(url).scheme.partition("+")[0]


async def make_pool(url: str, **options: Any) -> Any:
    """Make a user's pool of one connection; of SQLite a connection, with a driver an engine.

    Of a store that is no SQL database, what a user has there: a client.
    """
    parts = urlsplit(url)
    if (make := CLIENTS.get(parts.scheme)) is not None:
        return await make(url)
    if "+" in parts.scheme:
        from sqlalchemy.ext.asyncio import create_async_engine

        return create_async_engine(url, **{"pool_size": 1, "max_overflow": 0} | options)
    if parts.scheme == "sqlite":
        import aiosqlite

        return await aiosqlite.connect(url.removeprefix("sqlite:///"), **options)
    if parts.scheme == "postgresql":
        import asyncpg

        driver: Any = asyncpg  # its annotations stop half-way
        return await driver.create_pool(url, **{"min_size": 0, "max_size": 1} | options)
    import asyncmy

    login: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    login |= {"minsize": 0, "maxsize": 1, "database": parts.path[1:]}
    return await asyncmy.create_pool(**login | options)


async def _redis(url: str) -> Any:
    from redis.asyncio import Redis

    return Redis.from_url(url)


async def _http(url: str) -> Any:
    import httpx

    return httpx.AsyncClient(base_url=url.removeprefix("cosid+"))


async def _nats(url: str) -> Any:
    from nats.aio.client import Client

    client = Client()
    await client.connect(url)
    return client


async def _zookeeper(url: str) -> Any:
    from kazoo.client import KazooClient  # type: ignore[import-untyped]

    client = KazooClient(url.removeprefix("zookeeper://"))
    client.start()
    return client


CLIENTS: Final[dict[str, Any]] = {
    "redis": _redis,
    "cosid+http": _http,
    "nats": _nats,
    "zookeeper": _zookeeper,
}


async def close_pool(pool: Any) -> None:
    """Close it, or fail after ten seconds."""
    if hasattr(pool, "add_listener"):  # ZooKeeper's, which waits by itself
        pool.stop()
        pool.close()
        return
    names = ("dispose", "aclose", "close")
    closing = getattr(pool, next(each for each in names if hasattr(pool, each)))()
    if closing is None:
        closing = pool.wait_closed()
    await asyncio.wait_for(closing, 10)


STORES: Final = {
    "redis": ("redis", "RedisStore"),
    "httpx": ("http", "HttpStore"),
    "nats": ("nats", "NatsStore"),
    "kazoo": ("zookeeper", "ZookeeperStore"),
}


@asynccontextmanager
async def pool_of(url: str, **options: Any) -> AsyncGenerator[Any]:
    """Make a pool and close it."""
    pool = await make_pool(url, **options)
    try:
        yield pool
    finally:
        await close_pool(pool)


def store_on(pool: Any) -> Any:
    """Return a store on a user's pool, which does not mind how durable the server is."""
    room = type(pool).__module__.partition(".")[0]
    if room == "asyncpg":
        from aiocosid.stores.postgres import PostgresStore

        return PostgresStore(pool, durability="ignore")
    if room == "asyncmy":
        from aiocosid.stores.mysql import MysqlStore

        return MysqlStore(pool, durability="ignore")
    if room == "aiosqlite":
        from aiocosid.stores.sqlite import SqliteStore

        return SqliteStore(pool)
    if room in STORES:
        module, name = STORES[room]
        return getattr(import_module(f"aiocosid.stores.{module}"), name)(pool)
    from aiocosid.stores.sqlalchemy import SqlAlchemyStore

    return SqlAlchemyStore(pool, durability="ignore")


async def fetch(store: Any, statement: str) -> Any:
    """Run a statement on a connection of a store's; the first value of the first row."""
    return (await store._backend.link.fetch_rows(statement))[0][0]


async def session_of(store: Any, url: str, key: str = "") -> Any:
    """Return which session of the server a store has; of a cluster, with the key's node."""
    backend, scheme = store._backend, scheme_of(url)
    if scheme in SESSION:
        return await fetch(store, SESSION[scheme])
    if scheme == "zookeeper":
        return backend.session
    if scheme == "nats":
        return (await backend.link.ready()).client_id

    def ask(client: Any) -> Any:
        if not hasattr(client, "nodes_manager"):
            return client.client_id()
        node = client.get_node_from_key(f"cosid:{{{key}}}.adder")
        return client.execute_command("CLIENT ID", target_nodes=node)

    return await backend.link.call(ask) if scheme in {"redis", "unix"} else None
