"""Counters and machine ids in a SQLite file that the processes of one machine share."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import aiosqlite
import anyio

from ..errors import InvalidArgumentError, StoreError, StoreUnavailableError
from ._connection import CLOSE_TIMEOUT, BorrowedConnection, OwnedConnection
from ._durability import DurabilityCheck
from ._executor import Executor
from ._sql import SqlBackend
from ._sql_errors import as_store_error
from ._sqlite import (
    SQLITE,
    check_version,
    identity,
    is_missing,
    path_of,
    prepare,
    prepare_foreign,
    run,
)
from ._sqlite_door import Door, in_use
from ._store import BackendStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from threading import Thread

    from ._durability import Durability
    from ._executor import Row, Value

__all__ = ("SqliteStore",)

_T = TypeVar("_T")


class SqliteStore(BackendStore[SqlBackend]):
    """The counters and machine ids in one SQLite file, in CosId's tables, which it creates.

    Runs on asyncio.  Safe with any number of processes of one machine on one file, which may not
    lie on a network file system.  A file in which nobody was handed a machine id yet is marked as
    initialised by whoever creates the tables.
    """

    __slots__ = ()

    def __init__(
        self, connection: aiosqlite.Connection, *, durability: Durability = "warn"
    ) -> None:
        """Work on your own connection; nothing is sent yet.

        Args:
            connection: stays yours to close; its journal mode, ``synchronous`` and timeout apply.
                While it has a transaction open no ids are granted on it.
            durability: what to do about a connection whose settings may lose grants: ``"warn"`` in
                the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: it is no connection of aiosqlite's, or ``durability`` none of the
                words.
        """
        executor = _Borrowed(connection)
        check = DurabilityCheck(durability, connection)
        self._backend = SqlBackend(executor, SQLITE, check)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on a connection of its own, opened on first use and anew after `aclose`.

        The file is kept in WAL mode and synced at every commit, so that a power cut takes no grant
        back.

        Args:
            url: ``sqlite:///ids.db``, a path below the present working directory, or
                ``sqlite:////var/lib/ids.db``; ``?``, ``#`` and ``%`` in it percent-encoded.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no file.
        """
        store = cls.__new__(cls)
        store._backend = SqlBackend(_Own(path_of(url)), SQLITE)
        return store


class _Borrowed(Executor):
    """On the user's connection, whose settings are left as they are."""

    __slots__ = ("_has_table",)

    def __init__(self, connection: object) -> None:
        if not isinstance(connection, aiosqlite.Connection):
            expected = "an aiosqlite.Connection; from_url() takes a URL"
            raise InvalidArgumentError("connection", type(connection), expected=expected)
        check_version()
        super().__init__("sqlite", BorrowedConnection("the connection", connection))
        self._has_table = False

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        connection = await self._connection.ready()
        if not self._has_table:
            await _call(self.label, connection, _guarded, prepare_foreign, self.label)
            self._has_table = True
        return await _call(self.label, connection, _guarded, run, self.label, statement, values)


class _Line(NamedTuple):
    """A connection of our own: its worker, and the file."""

    connection: aiosqlite.Connection
    door: Door


class _Own(Executor):
    """On a connection to a file."""

    __slots__ = ("_file", "_own", "_path")

    def __init__(self, path: str) -> None:
        check_version()
        self._own = OwnedConnection[_Line](
            f"the connection to sqlite {path}",
            connect=self._connect,
            disconnect=self._disconnect,
            salvage=self._salvage,
        )
        super().__init__(f"sqlite {path}", self._own)
        self._path = path
        self._file: tuple[int, int] | None = None

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        line = await self._connection.ready()
        rows = await self._do(line, self._run, statement, values)
        if rows is None:
            # Others count in the file that lies there now.
            if self._own.holds(line):
                await self.aclose()
            raise StoreUnavailableError(self.label, "the file was replaced; it is opened anew")
        return rows

    async def ensure_there(self) -> None:
        """Raise `StoreError` instead of making the file."""
        if await anyio.to_thread.run_sync(is_missing, self._path):
            raise StoreError(self.label, "there is no such file; 'aiocosid init' makes it")

    def _run(
        self, database: sqlite3.Connection, statement: str, values: Mapping[str, Value]
    ) -> list[Row] | None:
        if identity(self._path) != self._file:
            return None
        return run(database, self.label, statement, values)

    async def _do(self, line: _Line, function: Callable[..., _T], *args: object) -> _T:
        def run(_: object) -> _T:
            return line.door.run(lambda database: function(database, *args))

        return await _call(self.label, line.connection, run)

    async def _connect(self) -> _Line:
        door = Door(self._path)
        connection = aiosqlite.Connection(door.open, iter_chunk_size=64)
        # Else the interpreter would not end before a store that nobody has closed.
        _worker(connection).daemon = True
        try:
            connection = await connection
        except asyncio.CancelledError:
            door.close()
            raise
        except sqlite3.Error as exc:
            made = await anyio.to_thread.run_sync(as_store_error, self.label, exc, self._path)
            raise made from exc
        line = _Line(connection, door)
        try:
            self._file = await self._do(line, self._prepare)
        except BaseException:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._disconnect(line)
            raise
        return line

    def _prepare(self, database: sqlite3.Connection) -> tuple[int, int] | None:
        prepare(database)
        return identity(self._path)

    async def _disconnect(self, client: _Line) -> None:
        worker = cast("Any", client.connection)
        with suppress(ValueError):  # it is closed
            await worker._execute(client.door.close)
        await client.connection.close()

    def _salvage(self, client: _Line) -> _Line | None:
        # A reply to a loop that has ended kills the worker.
        return client if _worker(client.connection).is_alive() else None


def _worker(connection: aiosqlite.Connection) -> Thread:
    """Return its thread; before aiosqlite 0.22 that was the connection itself."""
    return cast("Thread", getattr(connection, "_thread", connection))


def _guarded(database: sqlite3.Connection, function: Callable[..., _T], *args: object) -> _T:
    with in_use():
        return function(database, *args)


async def _call(
    label: str,
    connection: aiosqlite.Connection,
    function: Callable[..., _T],
    *args: object,
) -> _T:
    """Run a function in the connection's worker, where nothing can come in between.

    Of the connection's public methods each is a step of its own, and none can tell whether a
    transaction has been begun by then.
    """
    worker = cast("Any", connection)
    try:
        return cast("_T", await worker._execute(lambda: function(worker._conn, *args)))
    except sqlite3.Error as exc:
        raise as_store_error(label, exc) from exc
    except ValueError as exc:
        raise StoreError(label, "the connection is closed, or was never opened") from exc
