"""The seam between SQL of ours and a SQLAlchemy ``AsyncEngine``.  Needs the ``sqlalchemy`` extra.

What other systems' tables need beyond rows, `Executor` has not: how many rows a statement matched,
and the number that the database made.  `EngineExecutor.run` answers both, on any of the drivers.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from weakref import ref

import anyio

from .. import _fork
from ..errors import (
    CosIdError,
    ForkedError,
    InvalidArgumentError,
    MissingExtraError,
    StoreUnavailableError,
    WrongLoopError,
)
from ._connection import OwnedConnection, running_loop
from ._engine_line import Line, lent
from ._engine_url import dialect_of, engine_of, label_of
from ._executor import CALL_TIMEOUT, Executor
from ._mysql import COMMIT
from ._sql_errors import as_store_error, is_stale
from ._sqlite import alone
from ._sqlite_door import ensure_own, in_use, inherit

try:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.pool import NullPool, StaticPool
    from sqlalchemy.util import greenlet_spawn
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Engine, Pool, TextClause

    from ._executor import Row, Value

__all__ = ("DialectName", "EngineExecutor", "Outcome", "OwnEngineExecutor", "SqlExecutor")

T = TypeVar("T")

DialectName: TypeAlias = Literal["mysql", "postgresql", "sqlite"]

TEAR_TIMEOUT: Final = 0.5  # seconds; how long a driver may hold up a caller that is cancelled


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement has come to.

    Attributes:
        rows: what it answers; their columns by number.
        matched: how many rows its WHERE matched, or how many it inserted; below 0 if the driver
            cannot tell.  On MySQL a row that an UPDATE leaves as it was counts only where
            SQLAlchemy makes the connections itself, and not ``async_creator``: let it change one.
        inserted_id: what MySQL made by AUTO_INCREMENT, or was given by ``LAST_INSERT_ID(expr)``; on
            SQLite the rowid of an INSERT; None if there is none, and on PostgreSQL.
    """

    rows: Sequence[Row]
    matched: int
    inserted_id: int | None


class SqlExecutor(Executor):
    """Runs SQL on an engine; either the user's, `EngineExecutor`, or one of its own.

    A statement is a transaction of its own, outside of all of the user's: ids survive a rollback.

    Attributes:
        dialect_name: which SQL it is; ``mysql`` for MariaDB too.
    """

    __slots__ = ()

    dialect_name: DialectName

    async def run(self, statement: str, /, **values: object) -> Outcome:
        r"""Run one statement, in autocommit.

        A cancelled call may have taken effect, but no later call gets to see its reply.

        The session is as its engine has made it; ours on MySQL are strict.  One of the user's may
        cut a number to its column: the WHERE has to look for the limit.

        Args:
            statement: with ``:name`` for parameters; any other colon before a letter is written
                ``\:``.
            **values: by name, each of them once.

        Raises:
            OutOfRangeError: a result does not fit its column; nothing was written.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer; or the
                pool had no connection to lend in time.
            StoreError: the store refuses.
            ForkedError: the engine is the parent process's.
            WrongLoopError: the engine is in use on another event loop.
        """
        step = _sqlite_step if self.dialect_name == "sqlite" else _step
        return await self.spawn(step, self.label, statement, values)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run one statement and return its rows; see `run`."""
        return (await self.run(statement, **values)).rows

    @abstractmethod
    async def spawn(self, function: Callable[..., T], /, *args: object) -> T:
        """Call a function with a connection of the engine's, in autocommit, and the arguments.

        It runs as SQLAlchemy's own code does, and may call what waits.

        Raises:
            StoreError: as for `run`.
        """


class EngineExecutor(SqlExecutor):
    """On the user's engine, which is never disposed."""

    __slots__ = ("_born", "_engine", "_used", "dialect_name")

    def __init__(self, engine: AsyncEngine) -> None:
        """Describe whom to ask; nothing is sent yet.

        Args:
            engine: stays yours; on PostgreSQL, MySQL, MariaDB, or a SQLite file.

        Raises:
            InvalidArgumentError: it is no ``AsyncEngine`` of those; or it has a single connection
                for all, as one on ``:memory:`` has, where ids would be taken back with the rest of
                a transaction.
        """
        _check(engine)
        self.dialect_name = dialect_of(engine.url)
        super().__init__(label_of(engine.url))
        self._engine = engine
        self._born = _fork.generation
        self._used: tuple[ref[object], object] | None = None
        _fork.watch(self)

    async def spawn(self, function: Callable[..., T], /, *args: object) -> T:
        self._check_process()
        self._check_loop()
        return await _spawned(self.label, self._engine.sync_engine, function, *args)

    async def aopen(self) -> None:
        self._check_process()

    def _check_process(self) -> None:
        if self._born != _fork.generation:
            remedy = "make it anew on an engine of this process"
            raise ForkedError(f"the connection to {self.label}", remedy=remedy)

    def _check_loop(self) -> None:
        """Raise `WrongLoopError` unless the pool is empty, was never used, or only on this loop."""
        loop, pool = running_loop(self.label), self._engine.pool
        if self._used is None or self._used[0]() is not pool:
            self._used = ref(pool), loop  # dispose() makes another pool
        elif self._used[1] is not loop and not isinstance(pool, NullPool):
            raise WrongLoopError("the engine")

    def _forget(self) -> None:
        if self.dialect_name == "sqlite" and self._used is not None:
            inherit(f"{self._engine.url.database}")


def _check(engine: object) -> None:
    if not isinstance(engine, AsyncEngine):
        expected = "a SQLAlchemy AsyncEngine; from_url() takes a URL"
        raise InvalidArgumentError("engine", type(engine), expected=expected)
    if isinstance(engine.pool, StaticPool):
        expected = "an engine with a connection for each transaction: all share one here"
        raise InvalidArgumentError("engine", engine, expected=expected)


class OwnEngineExecutor(SqlExecutor):
    """On an engine of its own, of up to four connections."""

    __slots__ = ("_connection", "dialect_name")

    def __init__(self, url: str) -> None:
        """Describe whom to ask; nothing is sent yet.

        Args:
            url: as SQLAlchemy understands it.  Without a driver it is asyncmy for ``mysql`` and
                ``mariadb``, asyncpg for ``postgresql``, aiosqlite for ``sqlite``.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no database or driver of those.
            MissingExtraError: the driver is not installed.
        """
        engine = engine_of(url)  # to be told now what is wrong with it
        self.dialect_name = dialect_of(engine.url)
        super().__init__(label_of(engine.url))

        async def connect() -> Line:
            return Line(engine_of(url))

        self._connection = OwnedConnection[Line](
            f"the connection to {self.label}",
            connect=connect,
            disconnect=Line.close,
            salvage=Line.terminate,
            silence=_silence,
        )

    async def spawn(self, function: Callable[..., T], /, *args: object) -> T:
        line = await self._connection.ready()
        with line.in_use():
            return await _spawned(self.label, line.engine.sync_engine, function, *args)

    async def aopen(self) -> None:
        self._connection.aopen()

    async def aclose(self) -> None:
        await self._connection.aclose()


def _silence(line: Line) -> None:
    _fork.silence(line.sockets())
    if dialect_of(line.engine.url) == "sqlite":
        inherit(f"{line.engine.url.database}")


async def _spawned(label: str, engine: Engine, function: Callable[..., T], *args: object) -> T:
    """Call a function in a task of its own, which is cancelled once if the caller is.

    A cancel scope strikes at each wait, also at those in which SQLAlchemy closes a connection: it
    would never be closed then.
    """
    if engine.url.get_backend_name() == "sqlite":
        ensure_own(f"{engine.url.database}")
    call = asyncio.ensure_future(_in_greenlet(label, engine, function, *args))
    try:
        await asyncio.wait((call,))
    except BaseException:
        call.cancel()
        _torn.add(call)
        call.add_done_callback(_ended)
        with anyio.move_on_after(TEAR_TIMEOUT, shield=True):
            await asyncio.wait((call,))
        raise
    if call.cancelled():
        raise StoreUnavailableError(label, "somebody else has cancelled the call")
    return call.result()


_torn: Final[set[asyncio.Future[Any]]] = set()  # else nobody would hold them


def _ended(call: asyncio.Future[Any]) -> None:
    """Let be what a call came to that nobody waits for."""
    _torn.discard(call)
    if not call.cancelled():
        call.exception()


async def _in_greenlet(label: str, engine: Engine, function: Callable[..., T], *args: object) -> T:
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            return await greenlet_spawn(_called, label, engine, function, *args)
    except CosIdError:
        raise
    except Exception as exc:
        raise as_store_error(label, exc) from exc


def _called(label: str, engine: Engine, function: Callable[..., T], *args: object) -> T:
    """Call a function with a connection, in SQLAlchemy's greenlet."""
    born, pool = _fork.generation, engine.pool
    connection = engine.connect()
    try:
        _ensure_same(born, label)  # it may have been forked while it waited
        with lent(connection):
            result = function(connection, *args)
        _ensure_same(born, label)
    except BaseException as exc:
        if born != _fork.generation:
            _fork.abandoned.append(connection)
        else:
            _give_back(connection, engine, pool, is_useless=is_stale(exc))
        raise
    _give_back(connection, engine, pool)
    return result


def _ensure_same(born: int, label: str) -> None:
    if born != _fork.generation:
        raise ForkedError(f"the connection to {label}")


def _give_back(
    connection: Connection, engine: Engine, pool: Pool, *, is_useless: bool = False
) -> None:
    """Return a connection to its pool, or close it: what was called has ended by now."""
    try:
        if is_useless:
            connection.invalidate()
        connection.close()
    except Exception:  # noqa: BLE001 - of any driver
        connection.invalidate()
        connection.close()
    if engine.pool is not pool:  # the user has disposed of it meanwhile, and nobody asks it again
        with suppress(Exception):
            pool.dispose()


def _step(connection: Connection, _: str, statement: str, values: Mapping[str, object]) -> Outcome:
    connection = connection.execution_options(preserve_rowcount=True)
    adapted: Any = connection.connection.dbapi_connection
    if not connection.dialect.detect_autocommit_setting(adapted):
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
    result = connection.execute(_text(statement), values)
    rows = result.fetchall() if result.returns_rows else ()
    dialect = dialect_of(connection.engine.url)  # SQLAlchemy's own may be called "mariadb"
    made = None if dialect == "postgresql" else result.lastrowid
    outcome = Outcome(rows, result.rowcount, made or None)
    if dialect == "mysql" and adapted.driver_connection.get_transaction_status():
        connection.exec_driver_sql(COMMIT)  # an earlier one has begun it by itself
    return outcome


@lru_cache(maxsize=512)
def _text(statement: str) -> TextClause:
    return text(statement)


def _sqlite_step(
    connection: Connection, label: str, statement: str, values: Mapping[str, object]
) -> Outcome:
    def run(database: sqlite3.Connection) -> Outcome:
        with in_use(), alone(database, label) as cursor:
            rows = cursor.execute(statement.replace("\\:", ":"), values).fetchall()
            # After any other statement it is the one of an earlier INSERT.
            made = cursor.lastrowid if statement.lstrip()[:6].lower() == "insert" else None
            return Outcome(rows, cursor.rowcount, made)

    return in_worker(connection, run)


def in_worker(connection: Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    """Call a function in the worker of a SQLite connection, where nothing can come in between."""
    adapted: Any = connection.connection.dbapi_connection

    async def call(driver: Any) -> T:  # noqa: ANN401 - aiosqlite's
        found: T = await driver._execute(lambda: function(driver._conn))
        return found

    result: T = adapted.run_async(call)
    return result
