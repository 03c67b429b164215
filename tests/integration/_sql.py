"""A database of a test's own, and how it is reached behind a store's back."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import pytest

from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlite import SqliteStore
from tests.servers import FaultProxy, MariadbServer, PostgresServer

from ._engines import SERVERS
from ._sql_pools import pool_of

SqlStore: TypeAlias = SqliteStore | PostgresStore | MysqlStore


class Database(ABC):
    """One of a kind; made for one test."""

    store_type: ClassVar[type[SqlStore]]
    now: ClassVar[str]
    url: str

    @abstractmethod
    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Have running what has to run, by asking for its fixture."""

    def open(self) -> SqlStore:
        """Return a store on it, which has connections of its own."""
        return self.store_type.from_url(self.url)

    def pool(self, **options: Any) -> AbstractAsyncContextManager[Any]:
        """Make a user's pool on it."""
        return pool_of(self.url, **options)

    @abstractmethod
    def execute(self, sql: str) -> str:
        """Run SQL behind everybody's back: a line for each row, with ``|`` between its values."""


class SqliteFile(Database):
    """A file that is not there yet."""

    store_type = SqliteStore
    now = "strftime('%s', 'now')"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue("tmp_path")
        self.path = folder / "ids.db"
        self.url = f"sqlite:///{self.path}"

    def execute(self, sql: str) -> str:
        with closing(sqlite3.connect(self.path)) as database, database:
            rows = database.execute(sql).fetchall()
        return "\n".join("|".join(map(str, row)) for row in rows)


class OnServer(Database):
    """An empty database of the session's server."""

    server: PostgresServer | MariadbServer

    def execute(self, sql: str) -> str:
        return self.server.execute(sql, database=self.url.rpartition("/")[2])

    @asynccontextmanager
    async def proxied(self) -> AsyncGenerator[tuple[FaultProxy, str]]:
        """A proxy in front of the server, and the URL through it."""
        async with FaultProxy(self.server.host, self.server.port) as proxy:
            yield proxy, self.url.replace(f":{self.server.port}/", f":{proxy.port}/")


class PostgresDatabase(OnServer):
    """In PostgreSQL."""

    store_type = PostgresStore
    now = "extract(epoch from now())::bigint"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("postgres")
        self.url = request.getfixturevalue("postgres_database")


class MariadbDatabase(OnServer):
    """In MariaDB."""

    store_type = MysqlStore
    now = "unix_timestamp()"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("mariadb")
        self.url = request.getfixturevalue("mariadb_database")


DATABASES: Final[dict[str, type[Database]]] = {
    "sqlite": SqliteFile,
    "postgres": PostgresDatabase,
    "mariadb": MariadbDatabase,
}


def own_url_of(request: pytest.FixtureRequest, name: str) -> str:
    """Return the URL of a database of the test's own: a kind's name, or that of a driver."""
    kind = SERVERS.get(name, name)
    url = DATABASES[kind](request).url
    return url if name == kind else url.replace(":", f"+{name}:", 1)
