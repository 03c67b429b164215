"""The stores' own statements on a SQLAlchemy engine."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import StoreUnavailableError
from ._durability import DurabilityCheck
from ._engine import SqlExecutor, in_worker
from ._engine_errors import errno
from ._executor import Executor
from ._mysql import IS_UNDONE, MYSQL, in_foreign_session
from ._mysql import SETTINGS as MYSQL_SETTINGS
from ._mysql import run as run_mysql
from ._mysql import weaknesses_of as weaknesses_of_mysql
from ._mysql_machines import MYSQL_MACHINES
from ._postgres import POSTGRES, SETTINGS
from ._postgres import weaknesses_of as weaknesses_of_postgres
from ._postgres_machines import POSTGRES_MACHINES
from ._sqlite import SQLITE, check_version, prepare, run, weaknesses_of
from ._sqlite_door import in_use
from ._sqlite_identity import IDENTITY, tell_identity
from ._sqlite_machines import SQLITE_MACHINES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from ._durability import Durability
    from ._engine import DialectName
    from ._executor import Row, Value
    from ._machine_tables import MachineDialect
    from ._sql_dialect import Dialect

__all__ = ("Dialects", "EngineStoreExecutor", "dialects_of")

ATTEMPTS: Final = 20  # at a statement that MySQL undoes, because of what others do

_PREPARED: Final = "aiocosid"  # in the facts that SQLAlchemy keeps of a connection


class Dialects(NamedTuple):
    """The statements of one database."""

    segments: Dialect
    machines: MachineDialect


_DIALECTS: Final[dict[DialectName, Dialects]] = {
    "mysql": Dialects(MYSQL, MYSQL_MACHINES),
    "postgresql": Dialects(POSTGRES, POSTGRES_MACHINES),
    "sqlite": Dialects(SQLITE, SQLITE_MACHINES),
}


class EngineStoreExecutor(Executor):
    """Runs statements as the store of the same database has them, in its driver's notation."""

    __slots__ = ("_durability", "_is_own", "_sql", "dialects")

    def __init__(
        self, sql: SqlExecutor, durability: Durability = "warn", client: object = None
    ) -> None:
        """Work on an engine.

        Args:
            sql: runs what is translated.
            durability: what to do about settings that may lose grants.
            client: the user's engine, if it is one.

        Raises:
            InvalidArgumentError: it is none of the words.
        """
        super().__init__(sql.label)
        self.dialects = dialects_of(sql)
        self._sql = sql
        self._is_own = client is None
        self._durability = DurabilityCheck(durability, client)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        if self._durability.is_due:
            self._durability.judge(self.label, await self._weaknesses())
        if self._sql.dialect_name == "sqlite":
            return await self._sql.spawn(self._sqlite_step, statement, values)
        if self._sql.dialect_name == "mysql":
            return await self._mysql(statement, values)
        return (await self._sql.run(*_named(statement), **_numbered(values))).rows

    async def _weaknesses(self) -> list[str]:
        if self._sql.dialect_name == "sqlite":
            return await self._sql.spawn(in_worker, self._sqlite_weaknesses)
        if self._sql.dialect_name == "mysql":
            return weaknesses_of_mysql(*(await self._mysql(MYSQL_SETTINGS, {}))[0])
        return weaknesses_of_postgres(*(await self._sql.run(SETTINGS)).rows[0])

    async def _mysql(self, statement: str, values: Mapping[str, Value]) -> list[Row]:
        if not self._is_own:
            statement = in_foreign_session(statement)
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._sql.spawn(_mysql_step, statement, values)
            except StoreUnavailableError as error:
                if errno(error.__cause__) not in IS_UNDONE:
                    raise
        return await self._sql.spawn(_mysql_step, statement, values)

    def _sqlite_step(
        self, connection: Connection, statement: str, values: Mapping[str, Value]
    ) -> list[Row]:
        """Run the very statement, in the worker of a connection that is prepared once."""
        facts = connection.info

        def step(database: sqlite3.Connection) -> list[Any]:
            with in_use():
                if _PREPARED not in facts:
                    self._sqlite_prepare(database)
                    facts[_PREPARED] = True
                # Others count in the file that lies there now, if this one was replaced.
                run(database, self.label, f"SELECT {IDENTITY}", {})
                return run(database, self.label, statement, values)

        return in_worker(connection, step)

    def _sqlite_prepare(self, database: sqlite3.Connection) -> None:
        if self._is_own:
            prepare(database)
        else:
            run(database, self.label, SQLITE.create_table, {})
            tell_identity(database)

    def _sqlite_weaknesses(self, database: sqlite3.Connection) -> list[str]:
        if self._is_own:
            return []  # each is prepared
        with in_use():
            return weaknesses_of(database)

    async def aopen(self) -> None:
        await self._sql.aopen()

    async def aclose(self) -> None:
        await self._sql.aclose()


def dialects_of(sql: SqlExecutor) -> Dialects:
    """Return the statements of the database that an engine is on."""
    if sql.dialect_name == "sqlite":
        check_version()
    return _DIALECTS[sql.dialect_name]


# MySQL: the very statements, several in one text, on a cursor of the driver's.


def _mysql_step(connection: Connection, statement: str, values: Mapping[str, Value]) -> list[Row]:
    adapted: Any = connection.connection.dbapi_connection

    async def call(driver: Any) -> list[Row]:  # noqa: ANN401 - asyncmy's or aiomysql's
        cursors = import_module(f"{type(driver).__module__.partition('.')[0]}.cursors")
        return await run_mysql(cursors.Cursor(driver), statement, values)

    try:
        rows: list[Row] = adapted.run_async(call)
    except BaseException:
        # It may be in a transaction, have a reply to come, or lead to a replica by now.
        connection.invalidate()
        raise
    return rows


# PostgreSQL: ``$1`` becomes ``:v1``, and every other colon is one.


@lru_cache(maxsize=256)
def _named(statement: str) -> tuple[str]:
    return (re.sub(r"\$([0-9]+)", r":v\1", statement.replace(":", r"\:")),)


def _numbered(values: Mapping[str, Value]) -> dict[str, Value]:
    return {f"v{number}": value for number, value in enumerate(values.values(), 1)}
