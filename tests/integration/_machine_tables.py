"""The tables of machine ids behind everybody's back, and a store's clock that a test sets."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pytest

from aiocosid.abc import InstanceId
from aiocosid.machine.cells import MachineRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores._dialect import Value
from aiocosid.stores._executor import Executor, Row
from aiocosid.stores._sql import SqlBackend
from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlite import SqliteStore
from tests import sql_cells
from tests.machine_marks import mariadb_run
from tests.servers import MariadbServer, PostgresServer

from ._sql import SqlStore

AnyStore = TypeVar("AnyStore", bound=SqlStore)

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


def believe_table(store: AnyStore) -> AnyStore:
    """Have a store believe the table instead of its database's clock."""
    backend = store._backend
    assert isinstance(backend, SqlBackend)
    dialect = backend.dialect
    found = {each.name: getattr(dialect, each.name) for each in fields(dialect)}
    texts = {name: text for name, text in found.items() if isinstance(text, str)}
    asked: dict[str, Any] = {name: text.replace(dialect.now, CLOCK) for name, text in texts.items()}
    assert {asked["now"], asked["read"]}.isdisjoint(texts.values())
    backend.dialect = replace(dialect, **asked)
    return store


class Tables(ABC):
    """A database with the tables, whose statements are run as text."""

    store: ClassVar[type[SqlStore]]
    url: str

    @abstractmethod
    def execute(self, sql: str) -> list[list[str]]:
        """Run SQL and return its rows, all as text."""

    async def prepare(self) -> None:
        """Create the tables, which mark the store, and a clock that stands at `T0`."""
        self.execute(f"create table test_clock (ms bigint); insert into test_clock values ({T0});")
        async with self.store.from_url(self.url) as store:
            await store.create_schema()

    def open_set(self) -> SqlStore:
        """Return a store that believes that clock."""
        return believe_table(self.store.from_url(self.url))

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

    def put_row(self, machine_id: int, holder: str, stamp: int, namespace: str = "dev") -> None:
        """Write a row as CosId would."""
        self.execute(
            "insert into cosid_machine (name, namespace, machine_id, last_timestamp, instance_id) "
            f"values ('{namespace}.{machine_id:08d}', '{namespace}', {machine_id}, {stamp}, "
            f"'{holder}')"
        )

    def run(self, sql: str) -> Sequence[Sequence[object]]:
        """Run one statement, as `tests.sql_cells` does."""
        return self.execute(sql)

    def read_note(self, machine_id: int, namespace: str = "dev") -> MachineRecord | None:
        """Our record on an id."""
        text = sql_cells.read_cell(self.run, sql_cells.note_name(namespace, machine_id))
        return MachineRecord.read(text) if text is not None else None

    def write_note(
        self, machine_id: int, record: MachineRecord, seen_ms: int, namespace: str = "dev"
    ) -> None:
        """Write it, as of that time by the store's clock."""
        name = sql_cells.note_name(namespace, machine_id)
        sql_cells.write_cell(self.run, name, record.text(), seen_ms)

    def record(self, machine_id: int, namespace: str = "dev") -> int | None:
        """The mark."""
        found = self.read_note(machine_id, namespace)
        return found.fence_ms if found is not None else None

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

    def __init__(self, server: MariadbServer, url: str) -> None:
        self.server = server
        self.url = url
        self.database = url.rpartition("/")[2]

    def execute(self, sql: str) -> list[list[str]]:
        found = self.server.rows(sql, database=self.database)
        return [[str(value) for value in row] for row in found]

    def run(self, sql: str) -> Sequence[Sequence[object]]:
        return mariadb_run(self.server, self.database)(sql)


def tables_of(request: pytest.FixtureRequest, kind: str) -> Tables:
    """Return the tables of a database of the test's own: ``sqlite`` or a server's name."""
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return SqliteTables(folder / "ids.db")
    server, url = request.getfixturevalue(kind), request.getfixturevalue(f"{kind}_database")
    return (PostgresTables if kind == "postgres" else MariadbTables)(server, url)


Tap = Callable[[str], Awaitable[None]]


class Tapped(Executor):
    """Calls a function before or after each statement of a distributor."""

    def __init__(
        self, inner: Executor, *, before: Tap | None = None, after: Tap | None = None
    ) -> None:
        super().__init__(inner.label, inner._connection)
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
        distributor: CellMachineIdDistributor,
        *,
        before: Tap | None = None,
        after: Tap | None = None,
    ) -> Tapped:
        """Put one between a distributor and its executor; others of its store are not tapped."""
        backend = distributor._backend
        assert isinstance(backend, SqlBackend)
        tapped = cls(backend.link, before=before, after=after)
        distributor._backend = SqlBackend(tapped, backend.dialect)
        return tapped


def who(number: int, *, stable: bool = False) -> InstanceId:
    """One of many instances."""
    return InstanceId(f"10.0.0.{number}:8080", stable=stable)
