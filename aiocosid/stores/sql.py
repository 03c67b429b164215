"""SQL on a SQLAlchemy ``AsyncEngine``, also for stores with their own tables (`aiocosid.compat`).

Requires the ``sqlalchemy`` extra.  Each statement is its own transaction on every driver.

The tables of other systems need more than an `Executor` returns: the number of rows that a
statement matched, and the number that the database generated.  `SqlExecutor.run` returns both, on
every driver.
"""

# ruff: noqa: PLC0414 - names are re-exported

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakSet, ref

import anyio

from .._life import fork
from ..errors import (
    InvalidArgumentError,
    MissingExtraError,
    StoreError,
    StoreUnavailableError,
    WrongLoopError,
)
from ._connection import (
    CALL_TIMEOUT,
    BorrowedConnection,
    CallTasks,
    OwnedConnection,
    running_loop,
    silence,
    translate_errors,
)
from ._dialect import Value as Value
from ._engine_url import DialectName as DialectName
from ._engine_url import dialect_of, engine_of, label_of
from ._executor import (
    PARAMETER,
    TEAR_TIMEOUT,
    Executor,
    as_store_error,
    code_of,
    confirmed,
    is_stale,
)
from ._executor import OutOfRangeError as OutOfRangeError
from ._executor import Row as Row
from ._mysql import COMMIT, in_foreign_session
from ._mysql import run as run_mysql
from ._sqlite import (
    IDENTITY,
    alone,
    create_file,
    ensure_own,
    ensure_shared,
    file_of,
    in_use,
    inherit,
    limited_wait,
    prepare,
    run,
    tell_identity,
)
from ._url import address_of

try:
    from sqlalchemy import event, text
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.pool import NullPool, StaticPool
    from sqlalchemy.util import greenlet_spawn
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import URL, Engine, Pool
    from sqlalchemy import Connection as SyncConnection

    from ._connection import Connection

__all__ = (
    "DialectName",
    "Executor",
    "OutOfRangeError",
    "Outcome",
    "Row",
    "SqlExecutor",
    "Value",
    "executor_of",
    "executor_on",
)

T = TypeVar("T")

# Keys in the `info` of a SQLAlchemy connection to a SQLite file.
_PREPARED: Final = "aiocosid"
_SHARED: Final = "aiocosid.shared"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a statement.

    Attributes:
        rows: the rows, as tuples of columns.
        matched: how many rows the WHERE clause matched, or how many were inserted; below 0 if the
            driver cannot tell.  On MySQL a row that an UPDATE leaves unchanged counts only if
            SQLAlchemy itself creates the connections, not with ``async_creator``; so make every
            UPDATE change something.
        inserted_id: MySQL's AUTO_INCREMENT value, or the value of ``LAST_INSERT_ID(expr)``; on
            SQLite the rowid of an INSERT.  None if there is none, and always on PostgreSQL.
    """

    rows: Sequence[Row]
    matched: int
    inserted_id: int | None


class Line:
    """An engine, its running calls and, for an engine that aiocosid created, its open connections.

    Attributes:
        engine: the user's engine, or one that aiocosid created.
        calls: the tasks of the running calls; no other code references them.
        lent: the driver's connections on which a call is running.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.calls = CallTasks()
        self.lent: set[Any] = set()
        self._records: WeakSet[Any] = WeakSet()

    def watch(self) -> Self:
        """Record the connections that the engine opens; it must be aiocosid's own."""
        event.listen(self.engine.sync_engine, "connect", self._connected)
        return self

    def _connected(self, _: object, record: object) -> None:
        self._records.add(record)

    async def close(self) -> None:
        """Wait for the running calls, and close all connections."""
        try:
            with suppress(Exception):
                if self.calls:
                    await asyncio.wait(self.calls)
                await self.engine.dispose()
        finally:
            self.terminate()

    def terminate(self) -> None:
        """Drop all connections without closing them properly; the event loop may be closed."""
        for connection in self._opened():
            # The transport complains that the loop is closed, although it has aborted; or it cannot
            # abort.
            with suppress(RuntimeError, NotImplementedError):
                if hasattr(connection, "terminate"):
                    connection.terminate()
                else:  # psycopg
                    connection.driver_connection.pgconn.finish()
        self.engine.sync_engine.dispose(close=False)

    def _opened(self) -> list[Any]:
        found = (record.dbapi_connection for record in tuple(self._records))
        return [connection for connection in found if connection is not None]

    def silence(self) -> None:
        """Keep the parent's connections from sending anything in a forked child."""
        drivers = {connection.driver_connection for connection in self._opened()}
        silence(drivers | self.lent)
        if self.engine.url.get_backend_name() == "sqlite":
            inherit(f"{self.engine.url.database}")


class SqlExecutor(Executor):
    """Runs SQL on the user's engine (`executor_on`) or on its own engine (`executor_of`).

    Each statement is its own transaction, separate from the user's, so ids survive a rollback.

    Attributes:
        dialect_name: the SQL dialect; ``mysql`` for MariaDB too.
        address: the database as a URL without credentials; empty for a user's engine.
        is_own: whether the engine is the executor's own; its sessions then have aiocosid's
            settings.
    """

    __slots__ = ("_path", "address", "dialect_name", "is_own")

    def __init__(self, url: URL, connection: Connection[Line], *, address: str = "") -> None:
        super().__init__(label_of(url), connection)
        self.dialect_name: DialectName = dialect_of(url)
        self.address: str = address
        self.is_own: bool = isinstance(connection, OwnedConnection)
        is_file = self.is_own and self.dialect_name == "sqlite"
        self._path = os.path.abspath(f"{url.database}") if is_file else ""  # noqa: PTH100

    async def create_file(self) -> None:
        """Create the SQLite file if it is missing; do nothing for a server."""
        if self._path:
            await anyio.to_thread.run_sync(create_file, self._path)

    async def run(self, statement: str, /, **values: object) -> Outcome:
        r"""Run one statement, in autocommit.

        A cancelled call may have taken effect; no later call receives its reply.

        The session has the settings of its engine.  Aiocosid's own MySQL sessions are strict.  A
        user's session may truncate a number to fit its column, so the WHERE clause must check the
        limit.

        Args:
            statement: the statement, with ``:name`` for parameters; write any other colon before a
                letter as ``\:``.
            **values: the parameters by name.

        Raises:
            OutOfRangeError: a result does not fit its column; nothing was written.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer; or the
                pool had no free connection in time.
            StoreError: the store refuses.
            ForkedError: the engine belongs to the parent process.
            WrongLoopError: the engine is in use on another event loop.
        """
        step = self._sqlite_step if self.dialect_name == "sqlite" else _step
        return await self.spawn(step, statement, values)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run a statement of the SQL stores, in the notation of the database's own driver.

        `run` takes SQLAlchemy's notation instead.
        """
        if self.dialect_name == "sqlite":
            return await self.spawn(self._sqlite_rows, statement, values)
        if self.dialect_name == "mysql":
            if not self.is_own:
                statement = in_foreign_session(statement)
            return await self.spawn(_mysql_rows, statement, values)
        return (await self.run(_marked(statement), **values)).rows

    async def spawn(self, function: Callable[..., T], /, *args: object) -> T:
        """Call a function with a connection of the engine, in autocommit mode, and the arguments.

        It runs in SQLAlchemy's greenlet, where it may call functions that wait, in its own task.
        If the caller is cancelled, the task is cancelled once.  A cancel scope would cancel every
        further wait too, including the one in which SQLAlchemy closes a connection, which would
        then stay open.

        Raises:
            StoreError: as for `run`.
        """
        line: Line = await self._connection.ready()
        if self.dialect_name == "sqlite":
            ensure_own(f"{line.engine.url.database}")
        call = line.calls.start(_in_greenlet(self.label, line, function, *args))
        try:
            await asyncio.wait((call,))
        except BaseException:
            call.cancel()
            with anyio.move_on_after(TEAR_TIMEOUT, shield=True):
                await asyncio.wait((call,))
            raise
        if call.cancelled():
            raise StoreUnavailableError(
                self.label, "the call was cancelled from outside", remedy="try again"
            )
        try:
            return call.result()
        except StoreError as error:
            cause: Any = error.__cause__
            if not self._path or code_of(cause) != sqlite3.SQLITE_CANTOPEN:
                raise
            tell_why = partial(as_store_error, self.label, cause, self._path)
            raise await anyio.to_thread.run_sync(tell_why) from cause

    def _sqlite_step(
        self, connection: SyncConnection, statement: str, values: Mapping[str, object]
    ) -> Outcome:
        facts = connection.info

        def step(database: sqlite3.Connection) -> Outcome:
            if _SHARED not in facts:
                ensure_shared(file_of(database), self.label)
                facts[_SHARED] = True
            with in_use(), alone(database, self.label) as cursor:
                rows = cursor.execute(statement.replace("\\:", ":"), values).fetchall()
                is_insert = statement.lstrip()[:6].lower() == "insert"
                # After any other statement, ``lastrowid`` belongs to an earlier INSERT.
                return Outcome(rows, cursor.rowcount, cursor.lastrowid if is_insert else None)

        return _in_worker(connection, step)

    def _sqlite_rows(
        self, connection: SyncConnection, statement: str, values: Mapping[str, Value]
    ) -> list[Row]:
        """Run the statement unchanged, in the worker of a connection that is prepared once."""
        facts = connection.info

        def step(database: sqlite3.Connection) -> list[Row]:
            with in_use():
                if _PREPARED not in facts:
                    if self.is_own:
                        prepare(database, self.label)
                    else:
                        tell_identity(database, self.label)
                    facts[_PREPARED] = True
                with limited_wait(database):
                    # If the file was replaced, other processes count in the new file.
                    run(database, self.label, f"SELECT {IDENTITY}", {})
                    return run(database, self.label, statement, values)

        return _in_worker(connection, step)


class _UsersEngine(BorrowedConnection[Line]):
    """The user's engine: its pool belongs to one event loop; `dispose` creates another pool."""

    __slots__ = ("_pool",)

    remedy = "create it again on an engine of this process"

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(f"the connection to {label_of(engine.url)}", Line(engine))
        self._pool: ref[object] | None = None
        fork.watch(self)

    def ensure_usable(self) -> None:
        """Raise `WrongLoopError` if another loop has used the pool, unless the pool is empty."""
        self._ensure_own()
        loop, pool = running_loop(self.what), self.client.engine.pool
        if self._pool is None or self._pool() is not pool:
            self._pool, self._loop = ref(pool), loop
        elif self._loop is not loop and not isinstance(pool, NullPool):
            raise WrongLoopError("the engine")

    async def aopen(self) -> None:
        """Raise `ForkedError` in a child; the first call checks the loop."""
        self._ensure_own()

    def _forget(self) -> None:
        if self._pool is not None:
            self.client.silence()


def _check(engine: object) -> None:
    if not isinstance(engine, AsyncEngine):
        rule = "must be a SQLAlchemy AsyncEngine; use from_url() for a URL"
        raise InvalidArgumentError("engine", type(engine), rule)
    if isinstance(engine.pool, StaticPool):
        rule = "must have a connection for each transaction: all share one on this engine"
        raise InvalidArgumentError("engine", engine, rule)


async def _in_greenlet(label: str, line: Line, function: Callable[..., T], *args: object) -> T:
    with translate_errors(partial(as_store_error, label)):
        async with asyncio.timeout(CALL_TIMEOUT):
            return await greenlet_spawn(_called, label, line, function, *args)


def _called(label: str, line: Line, function: Callable[..., T], *args: object) -> T:
    """Call a function with a connection, in SQLAlchemy's greenlet."""
    engine = line.engine.sync_engine
    born, what, pool = fork.generation, f"the connection to {label}", engine.pool
    connection = engine.connect()
    driver = connection.connection.driver_connection
    try:
        fork.ensure_own(born, what)  # the process may have forked during the wait
        line.lent.add(driver)
        with confirmed(label, driver):
            result = function(connection, *args)
        fork.ensure_own(born, what)
    except BaseException as exc:
        if born != fork.generation:
            fork.abandoned.append(connection)
        else:
            _give_back(connection, engine, pool, is_useless=is_stale(exc))
        raise
    finally:
        line.lent.discard(driver)
    _give_back(connection, engine, pool)
    return result


def _give_back(
    connection: SyncConnection, engine: Engine, pool: Pool, *, is_useless: bool = False
) -> None:
    """Return a connection to its pool, or close it, once the call on it has ended."""
    try:
        if is_useless:
            connection.invalidate()
        connection.close()
    except Exception:  # noqa: BLE001 - any driver's error
        connection.invalidate()
        connection.close()
    if engine.pool is not pool:  # the engine was disposed: its old pool is not used again
        with suppress(Exception):
            pool.dispose()


def _step(connection: SyncConnection, statement: str, values: Mapping[str, object]) -> Outcome:
    connection = connection.execution_options(preserve_rowcount=True)
    adapted: Any = connection.connection.dbapi_connection
    if not connection.dialect.detect_autocommit_setting(adapted):
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
    result = connection.execute(_text(statement), values)
    rows = result.fetchall() if result.returns_rows else ()
    dialect = dialect_of(connection.engine.url)  # SQLAlchemy's own name may be "mariadb"
    inserted_id = None if dialect == "postgresql" else result.lastrowid
    outcome = Outcome(rows, result.rowcount, inserted_id or None)
    if dialect == "mysql" and adapted.driver_connection.get_transaction_status():
        connection.exec_driver_sql(COMMIT)  # an earlier statement implicitly began a transaction
    return outcome


_text: Final = lru_cache(maxsize=512)(text)


def _in_worker(connection: SyncConnection, function: Callable[[sqlite3.Connection], T]) -> T:
    """Call a function in the worker thread of a SQLite connection, without interruption."""
    adapted: Any = connection.connection.dbapi_connection

    async def call(driver: Any) -> T:  # noqa: ANN401 - aiosqlite's
        found: T = await driver._execute(lambda: function(driver._conn))
        return found

    result: T = adapted.run_async(call)
    return result


def _mysql_rows(
    connection: SyncConnection, statement: str, values: Mapping[str, Value]
) -> list[Row]:
    """Run the statement unchanged, or several in one text, on a cursor of the driver."""
    adapted: Any = connection.connection.dbapi_connection

    async def call(driver: Any) -> list[Row]:  # noqa: ANN401 - asyncmy's or aiomysql's
        cursors = import_module(f"{type(driver).__module__.partition('.')[0]}.cursors")
        return await run_mysql(cursors.Cursor(driver), statement, values)

    try:
        rows: list[Row] = adapted.run_async(call)
    except BaseException:
        # The connection may be in a transaction, have an unread reply, or lead to a replica by now.
        connection.invalidate()
        raise
    return rows


@lru_cache(maxsize=256)
def _marked(statement: str) -> str:
    """Escape each colon that does not begin a parameter, for example in PostgreSQL's casts."""
    return re.sub(rf"{PARAMETER.pattern}|:", lambda each: each[0] if each[1] else r"\:", statement)


def executor_of(url: str) -> SqlExecutor:
    """Return an executor with its own engine, opened on first use, closed by `Executor.aclose`.

    The engine has up to four connections.

    Args:
        url: a SQLAlchemy URL, or one without a driver as for `aiocosid.connect`.  The default
            drivers are asyncmy for ``mysql`` and ``mariadb``, asyncpg for ``postgresql``, aiosqlite
            for ``sqlite``.

    Raises:
        InvalidArgumentError: the URL is malformed, or names an unsupported database or driver.
        MissingExtraError: the driver is not installed.
    """
    engine = engine_of(url)  # created now, so that errors in the URL are raised here

    async def connect() -> Line:
        return Line(engine_of(url)).watch()

    connection = OwnedConnection[Line](
        f"the connection to {label_of(engine.url)}",
        connect=connect,
        disconnect=Line.close,
        salvage=Line.terminate,
        silence=Line.silence,
    )
    return SqlExecutor(engine.url, connection, address=address_of(url))


def executor_on(engine: AsyncEngine | SqlExecutor) -> SqlExecutor:
    """Return an executor on the user's engine, which it never disposes; or the given executor.

    Raises:
        InvalidArgumentError: ``engine`` is not an ``AsyncEngine`` on PostgreSQL, MySQL, MariaDB or
            a SQLite file; or all its users share one connection, for example on ``:memory:``, where
            rolling back a transaction would undo grants.
    """
    if isinstance(engine, SqlExecutor):
        return engine
    _check(engine)
    return SqlExecutor(engine.url, _UsersEngine(engine))
