"""A database of a test's own, and how it is reached behind a store's back."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import pytest

from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlite import SqliteStore
from tests.servers import (
    EXECUTED,
    GUEST,
    GUEST_PASSWORD,
    PROCESSES,
    FaultProxy,
    MariadbServer,
    PostgresServer,
)

from ._clients import pool_of
from ._engines import SERVERS

SqlStore: TypeAlias = SqliteStore | PostgresStore | MysqlStore


@asynccontextmanager
async def proxied(
    server: PostgresServer | MariadbServer, url: str
) -> AsyncGenerator[tuple[FaultProxy, str]]:
    """A proxy in front of a server, and the URL through it."""
    async with FaultProxy(server.host, server.port) as proxy:
        yield proxy, url.replace(f":{server.port}/", f":{proxy.port}/")


async def within(seconds: float, call: Awaitable[int]) -> int:
    """The result of a call that must not hang."""
    return await asyncio.wait_for(call, seconds)


class Database(ABC):
    """One of a kind; made for one test.

    Attributes:
        store_type: of the store on it.
        now: the time there, in seconds, in SQL.
        loose: the statement after which a counter may be another number, or none.
        damages: such values in SQL, and how an error names them.
        odd_pool: options of a user's pool that takes texts otherwise.
    """

    store_type: ClassVar[type[SqlStore]]
    now: ClassVar[str]
    loose: ClassVar[str]
    damages: ClassVar[dict[str, str]]
    odd_pool: ClassVar[dict[str, str]] = {}
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
    loose = "select 1"  # it is loose
    damages: ClassVar[dict[str, str]] = {
        "'many'": "many",
        "1.5": "1.5",
        "1e300": "1e+300",
        "x'0001'": "",
        "'1x'": "1x",
    }

    def __init__(self, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue("tmp_path")
        self.path = folder / "ids.db"
        self.path.touch()
        self.url = f"sqlite:///{self.path}"

    def execute(self, sql: str) -> str:
        with closing(sqlite3.connect(self.path)) as database, database:
            rows = database.execute(sql).fetchall()
        return "\n".join("|".join(map(str, row)) for row in rows)


class OnServer(Database):
    """An empty database of the session's server.

    Attributes:
        acted: which replies of the server tell that it has counted, for a proxy.
        sessions: the statement that gives the sessions of the others there.
    """

    server: PostgresServer | MariadbServer
    acted: ClassVar[dict[str, Any]]
    sessions: ClassVar[str]

    def execute(self, sql: str) -> str:
        return self.server.execute(sql, database=self.url.rpartition("/")[2])

    @asynccontextmanager
    async def proxied(self) -> AsyncGenerator[tuple[FaultProxy, str]]:
        """A proxy in front of the server, and the URL through it."""
        async with proxied(self.server, self.url) as both:
            yield both

    @abstractmethod
    def end_sessions(self) -> None:
        """End those of all others, as an administrator does."""

    @contextmanager
    def guest(self) -> Generator[str]:
        """Let somebody use the counters who may do nothing else; the URL."""
        name = self.url.rpartition("/")[2]
        of = "cosid, aiocosid_cell" if self.store_type is PostgresStore else f"`{name}`.*"
        self.execute(f"grant select, insert, update on {of} to {GUEST}")
        yield self.server.url_for(user=GUEST, password=GUEST_PASSWORD, database=name)
        if self.store_type is MysqlStore:  # in PostgreSQL it ends with the database
            self.execute(f"revoke all on {of} from {GUEST}")


class PostgresDatabase(OnServer):
    """In PostgreSQL."""

    store_type = PostgresStore
    now = "extract(epoch from now())::bigint"
    loose = "alter table cosid alter last_max_id type numeric"
    acted: ClassVar[dict[str, Any]] = {"matching": EXECUTED}
    sessions = "pid from pg_stat_activity where datname = current_database()"
    damages: ClassVar[dict[str, str]] = {
        "1.5": "1.5",
        "'NaN'": "NaN",
        "'Infinity'": "Infinity",
    }

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("postgres")
        self.url = request.getfixturevalue("postgres_database")

    def end_sessions(self) -> None:
        others = f"from (select {self.sessions} and pid <> pg_backend_pid()) as others"
        self.execute(f"select pg_terminate_backend(pid) {others}")


class MariadbDatabase(OnServer):
    """In MariaDB."""

    store_type = MysqlStore
    now = "unix_timestamp()"
    loose = "alter table cosid modify last_max_id decimal(20, 1) not null"
    acted: ClassVar[dict[str, Any]] = {"to": b"UPDATE"}
    sessions = f"id from {PROCESSES} where db = database()"
    damages: ClassVar[dict[str, str]] = {"1.5": "1.5"}
    odd_pool: ClassVar[dict[str, str]] = {"sql_mode": "'NO_BACKSLASH_ESCAPES'"}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("mariadb")
        self.url = request.getfixturevalue("mariadb_database")

    def end_sessions(self) -> None:
        for session in self.execute(f"select {self.sessions} and id <> connection_id()").split():
            self.execute(f"kill {session}")


DATABASES: Final[dict[str, type[Database]]] = {
    "sqlite": SqliteFile,
    "postgres": PostgresDatabase,
    "mariadb": MariadbDatabase,
}


def own_url_of(request: pytest.FixtureRequest, name: str) -> str:
    """Return the URL of a database of the test's own: a kind's name, or that of a driver."""
    kind = "sqlite" if name == "aiosqlite" else SERVERS.get(name, name)
    url = DATABASES[kind](request).url
    return url if name == kind else url.replace(":", f"+{name}:", 1)


def everything(error: BaseException | None) -> str:
    """All that an error and what is behind it could tell."""
    told = ""
    while error is not None:
        told += f"{error!r} {error} {vars(error)} "
        error = error.__cause__ or error.__context__
    return told
