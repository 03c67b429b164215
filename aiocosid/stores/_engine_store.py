"""The stores' own statements on a SQLAlchemy engine."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ._engine import OwnEngineExecutor, in_worker
from ._executor import PARAMETER, Executor
from ._mysql import MYSQL, in_foreign_session
from ._mysql import run as run_mysql
from ._postgres import POSTGRES
from ._sqlite import IDENTITY, SQLITE, check_version, prepare, prepare_foreign, run
from ._sqlite_door import in_use

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from ._engine import DialectName, SqlExecutor
    from ._executor import Row, Value
    from ._sql import Dialect

__all__ = ("EngineStoreExecutor", "dialect_on")

_PREPARED: Final = "aiocosid"  # in the facts that SQLAlchemy keeps of a connection


_DIALECTS: Final[dict[DialectName, Dialect]] = {
    "mysql": MYSQL,
    "postgresql": POSTGRES,
    "sqlite": SQLITE,
}


class EngineStoreExecutor(Executor):
    """Runs statements as the store of the same database has them, in its driver's notation."""

    __slots__ = ("_is_own", "_sql")

    def __init__(self, sql: SqlExecutor) -> None:
        """Work on an engine.

        Args:
            sql: runs what is translated.
        """
        super().__init__(sql.label)
        self._sql = sql
        self._is_own = isinstance(sql, OwnEngineExecutor)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        if self._sql.dialect_name == "sqlite":
            return await self._sql.spawn(self._sqlite_step, statement, values)
        if self._sql.dialect_name == "mysql":
            if not self._is_own:
                statement = in_foreign_session(statement)
            return await self._sql.spawn(_mysql_step, statement, values)
        return (await self._sql.run(_marked(statement), **values)).rows

    def _sqlite_step(
        self, connection: Connection, statement: str, values: Mapping[str, Value]
    ) -> list[Row]:
        """Run the very statement, in the worker of a connection that is prepared once."""
        facts = connection.info

        def step(database: sqlite3.Connection) -> list[Any]:
            with in_use():
                if _PREPARED not in facts:
                    if self._is_own:
                        prepare(database)
                    else:
                        prepare_foreign(database, self.label)
                    facts[_PREPARED] = True
                # Others count in the file that lies there now, if this one was replaced.
                run(database, self.label, f"SELECT {IDENTITY}", {})
                return run(database, self.label, statement, values)

        return in_worker(connection, step)

    async def aopen(self) -> None:
        await self._sql.aopen()

    async def aclose(self) -> None:
        await self._sql.aclose()


def dialect_on(sql: SqlExecutor) -> Dialect:
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


# PostgreSQL: whatever is no parameter, as a cast, is marked.


@lru_cache(maxsize=256)
def _marked(statement: str) -> str:
    return re.sub(rf"{PARAMETER.pattern}|:", lambda each: each[0] if each[1] else r"\:", statement)
