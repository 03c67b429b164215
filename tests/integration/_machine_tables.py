"""The tables of machine ids behind everybody's back, and a store's clock that a test sets."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Final

from aiocosid.abc import InstanceId
from aiocosid.stores._executor import Executor, Row, Value
from aiocosid.stores._mysql_machines import mysql_machines
from aiocosid.stores._postgres_machines import postgres_machines
from aiocosid.stores._sql_machines import SqlMachineIdDistributor
from aiocosid.stores._sqlite_machines import sqlite_machines
from aiocosid.stores.mysql import MysqlMachineIdDistributor, MysqlStore
from aiocosid.stores.postgres import PostgresMachineIdDistributor, PostgresStore
from aiocosid.stores.sqlite import SqliteMachineIdDistributor, SqliteStore
from tests.servers import MariadbServer, PostgresServer

T0: Final = 1_700_000_000_000
"""When the tests begin, by the store's clock; ms."""

CLOCK: Final = "(SELECT ms FROM test_clock)"

MACHINE_COLUMNS: Final = (
    "name",
    "namespace",
    "machine_id",
    "last_timestamp",
    "instance_id",
    "distribute_time",
    "revert_time",
)


class SetSqliteDistributor(SqliteMachineIdDistributor):
    """Believes the table instead of SQLite's clock."""

    __slots__ = ()

    machine_dialect = sqlite_machines(CLOCK)


class SetSqliteStore(SqliteStore):
    """The same."""

    __slots__ = ()

    machine_distributor = SetSqliteDistributor


class SetPostgresDistributor(PostgresMachineIdDistributor):
    """Believes the table instead of the server's clock."""

    __slots__ = ()

    machine_dialect = postgres_machines(CLOCK)


class SetPostgresStore(PostgresStore):
    """The same."""

    __slots__ = ()

    machine_distributor = SetPostgresDistributor


class SetMysqlDistributor(MysqlMachineIdDistributor):
    """Believes the table instead of the server's clock."""

    __slots__ = ()

    machine_dialect = mysql_machines(CLOCK)


class SetMysqlStore(MysqlStore):
    """The same."""

    __slots__ = ()

    machine_distributor = SetMysqlDistributor


class Tables(ABC):
    """A database with the tables, whose statements are run as text."""

    store: ClassVar[type[SqliteStore | PostgresStore | MysqlStore]]
    set_store: ClassVar[type[SqliteStore | PostgresStore | MysqlStore]]
    url: str

    @abstractmethod
    def execute(self, sql: str) -> list[list[str]]:
        """Run SQL and return its rows, all as text."""

    async def prepare(self, *namespaces: str) -> None:
        """Create the tables, marked for ``dev`` and others, and a clock that stands at `T0`."""
        async with self.store.from_url(self.url) as store:
            await store.create_schema()
            for namespace in ("dev", *namespaces):
                await store.mark_machines(namespace=namespace)
        self.execute(f"create table test_clock (ms bigint); insert into test_clock values ({T0});")

    def set_clock(self, ms: int) -> None:
        """Set the store's clock."""
        self.execute(f"update test_clock set ms = {ms}")

    def rows(self) -> list[dict[str, Any]]:
        """CosId's table as the vectors write it."""
        numbers = {"machine_id", "last_timestamp", "distribute_time", "revert_time"}
        found = self.execute(
            f"select {', '.join(MACHINE_COLUMNS)} from cosid_machine order by name"
        )
        return [
            {
                key: int(value) if key in numbers else value
                for key, value in zip(MACHINE_COLUMNS, row, strict=True)
            }
            for row in found
        ]

    def put_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replace CosId's table."""
        values = [
            ", ".join(
                f"'{row[key]}'" if isinstance(row[key], str) else f"{row[key]}"
                for key in MACHINE_COLUMNS
            )
            for row in rows
        ]
        inserts = [
            f"insert into cosid_machine ({', '.join(MACHINE_COLUMNS)}) values ({each});"
            for each in values
        ]
        self.execute("\n".join(["delete from cosid_machine;", *inserts]))

    def put_row(self, machine_id: int, holder: str, stamp: int, namespace: str = "dev") -> None:
        """Write a row as CosId would."""
        self.execute(
            "insert into cosid_machine (name, namespace, machine_id, last_timestamp, instance_id) "
            f"values ('{namespace}.{machine_id:08d}', '{namespace}', {machine_id}, {stamp}, "
            f"'{holder}')"
        )

    def note(self, machine_id: int, namespace: str = "dev") -> int | None:
        """The mark."""
        name = f"{namespace}.{machine_id:08d}"
        found = self.execute(f"select mark from aiocosid_machine where name = '{name}'")
        return int(found[0][0]) if found else None

    def holder(self, machine_id: int) -> str:
        """Who holds an id."""
        holder: str = next(
            row["instance_id"] for row in self.rows() if row["machine_id"] == machine_id
        )
        return holder

    def stamp(self, machine_id: int) -> int:
        """The last timestamp of an id."""
        stamp: int = next(
            row["last_timestamp"] for row in self.rows() if row["machine_id"] == machine_id
        )
        return stamp


class SqliteTables(Tables):
    """In a file."""

    store = SqliteStore
    set_store = SetSqliteStore

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def execute(self, sql: str) -> list[list[str]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            if sql.rstrip().endswith(";"):
                database.executescript(sql)
                return []
            return [[str(value) for value in row] for row in database.execute(sql).fetchall()]


class PostgresTables(Tables):
    """In a database of the test's own."""

    store = PostgresStore
    set_store = SetPostgresStore

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.server = server
        self.url = url
        self.database = url.rpartition("/")[2]

    def execute(self, sql: str) -> list[list[str]]:
        found = self.server.execute(sql, database=self.database)
        return [line.split("|") for line in found.splitlines()] if found else []


class MariadbTables(Tables):
    """In a database of the test's own."""

    store = MysqlStore
    set_store = SetMysqlStore

    def __init__(self, server: MariadbServer, url: str) -> None:
        self.server = server
        self.url = url
        self.database = url.rpartition("/")[2]

    def execute(self, sql: str) -> list[list[str]]:
        found = self.server.rows(sql, database=self.database)
        return [[str(value) for value in row] for row in found]


Tap = Callable[[str], Awaitable[None]]


class Tapped(Executor):
    """Calls a function before or after each statement of a distributor."""

    def __init__(
        self, inner: Executor, *, before: Tap | None = None, after: Tap | None = None
    ) -> None:
        super().__init__(inner.label)
        self.inner = inner
        self.before, self.after = before, after

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        if self.before is not None:
            await self.before(statement)
        rows = await self.inner.fetch_rows(statement, **values)
        if self.after is not None:
            await self.after(statement)
        return rows

    @classmethod
    def on(
        cls,
        distributor: SqlMachineIdDistributor,
        *,
        before: Tap | None = None,
        after: Tap | None = None,
    ) -> Tapped:
        """Put one between a distributor and its executor."""
        tables = distributor._tables
        tables.executor = tapped = cls(tables.executor, before=before, after=after)
        return tapped


def who(number: int, *, stable: bool = False) -> InstanceId:
    """One of many instances."""
    return InstanceId(f"10.0.0.{number}:8080", stable=stable)
