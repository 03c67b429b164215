"""Pools as users make them, by the scheme of a URL, and what is behind a store.

The scripts of forked processes import it as well, so it imports no more than they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

SESSION: Final = {
    "postgresql": "SELECT pg_backend_pid()",
    "mysql": "SELECT CONNECTION_ID()",
    "sqlite": "SELECT 1",  # a file has no sessions
}
SESSIONS: Final = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = database()",
}


def scheme_of(url: str) -> str:
    """Return what kind of database a URL names, without the driver."""
    return urlsplit(url).scheme.partition("+")[0]


async def make_pool(url: str, **options: Any) -> Any:
    """Make a user's pool of one connection; of SQLite a connection, with a driver an engine."""
    parts = urlsplit(url)
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


async def close_pool(pool: Any) -> None:
    """Close it, or fail after ten seconds."""
    closing = pool.dispose() if hasattr(pool, "dispose") else pool.close()
    if closing is None:
        closing = pool.wait_closed()
    await asyncio.wait_for(closing, 10)


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
    from aiocosid.stores.sqlalchemy import SqlAlchemyStore

    return SqlAlchemyStore(pool, durability="ignore")


async def fetch(store: Any, statement: str) -> Any:
    """Run a statement on a connection of a store's; the first value of the first row."""
    return (await store._backend.link.fetch_rows(statement))[0][0]


async def session_of(store: Any, url: str) -> Any:
    """Return which session of the server a store has."""
    return await fetch(store, SESSION[scheme_of(url)])
