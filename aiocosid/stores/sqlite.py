"""Counters and machine ids in a SQLite file that the processes of one machine share."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import aiosqlite
import anyio

from ..errors import CorruptCounterError, InvalidArgumentError, StoreError, StoreUnavailableError
from ._connection import CLOSE_TIMEOUT, BorrowedConnection, OwnedConnection
from ._durability import DurabilityCheck
from ._executor import Executor, as_store_error
from ._sequence_rules import SequenceState
from ._sql import SHOWN, SqlBackend
from ._sqlite import (
    IDENTITY,
    SEQUENCE,
    SQLITE,
    Door,
    check_version,
    create_file,
    in_use,
    path_of,
    prepare,
    run,
    tell_identity,
)
from .sequences import SequenceBackend, SequenceStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Thread

    from ._dialect import Value
    from ._durability import Durability
    from ._executor import Row
    from ._sequence_rules import SequenceAnswer, SequenceRequest

__all__ = ("SqliteStore",)

_T = TypeVar("_T")


class _SqliteBackend(SqlBackend, SequenceBackend):
    """The tables, and sequences of a second in one cell for each name."""

    __slots__ = ()

    async def grant_sequences(self, name: str, request: SequenceRequest) -> SequenceAnswer:
        cell = f"sequence/{name}"
        [row] = await self._fetch_rows(SEQUENCE, name=cell, **asdict(request))
        try:
            return SequenceState.read(row[0])[1]
        except ValueError:
            found = f"{row[0]!r:.{SHOWN}}"
            raise CorruptCounterError(self.label, counter=cell, found=found) from None


class SqliteStore(SequenceStore[_SqliteBackend]):
    """The counters and machine ids in one SQLite file, in CosId's tables, which the store creates.

    Runs on asyncio.  Any number of processes on one machine may share the file, which must not be
    on a network file system.  The process that creates the tables for machine ids also writes
    the marker.
    """

    __slots__ = ()

    def __init__(
        self, connection: aiosqlite.Connection, *, durability: Durability = "warn"
    ) -> None:
        """Use your own connection; nothing is sent yet.

        Args:
            connection: your own connection, which the store never closes; its journal mode,
                ``synchronous`` setting and timeout apply.  While it has an open transaction, it
                grants no ids.
            durability: what to do about a connection whose settings may lose grants: ``"warn"``
                logs one warning, ``"refuse"`` issues no ids, and ``"ignore"`` does nothing.

        Raises:
            InvalidArgumentError: ``connection`` is not an aiosqlite connection, or ``durability``
                is not one of the three words.
        """
        executor = _Borrowed(connection)
        check = DurabilityCheck(durability, connection)
        self._backend = _SqliteBackend(executor, SQLITE, check)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use a connection of its own, opened on first use and again after `aclose`.

        Every commit is synced to the file itself, so neither a power cut nor moving the file
        without its journal loses a grant.  A file that has several hard links, or is itself a mount
        point, for example of a container's volume, is refused with `StoreError`.

        Only `create_schema` creates the file; if it is missing, every other call raises
        `StoreError`.

        Args:
            url: ``sqlite:///ids.db``, relative to the current working directory, or
                ``sqlite:////var/lib/ids.db``; percent-encode ``?``, ``#`` and ``%`` in the path.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no file.
        """
        return cls._on(_SqliteBackend(_Own(path_of(url)), SQLITE), url)


class _Borrowed(Executor):
    """Runs statements on the user's connection, and leaves its settings unchanged."""

    __slots__ = ("_is_prepared",)

    def __init__(self, connection: object) -> None:
        if not isinstance(connection, aiosqlite.Connection):
            rule = "must be an aiosqlite.Connection; use from_url() for a URL"
            raise InvalidArgumentError("connection", type(connection), rule)
        check_version()
        super().__init__("sqlite", BorrowedConnection("the connection", connection))
        self._is_prepared = False

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        connection = await self._connection.ready()

        def step() -> list[Row]:
            with in_use():
                database = connection._conn
                if not self._is_prepared:
                    tell_identity(database, self.label)
                    self._is_prepared = True
                # If the file was replaced, other processes count in the new file.
                run(database, self.label, f"SELECT {IDENTITY}", {})
                return run(database, self.label, statement, values)

        return await _call(self.label, connection, step)


class _Line(NamedTuple):
    """One of the store's own connections, with its worker and the file."""

    connection: aiosqlite.Connection
    door: Door


class _Own(Executor):
    """Runs statements on its own connection to a file."""

    __slots__ = ("_own", "_path")

    def __init__(self, path: str) -> None:
        check_version()
        self._own = OwnedConnection[_Line](
            f"the connection to sqlite {path}",
            connect=self._connect,
            disconnect=_disconnect,
            salvage=_salvage,
        )
        super().__init__(f"sqlite {path}", self._own)
        self._path = path

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        line = await self._own.ready()

        def step(database: sqlite3.Connection) -> list[Row] | None:
            file = line.door.file
            if file is None or not file.is_there():
                return None
            return run(database, self.label, statement, values)

        rows = await _call(self.label, line.connection, partial(line.door.run, step))
        if rows is None:
            # Other processes count in the file that is there now.
            if self._own.holds(line):
                await self.aclose()
            reason = "the file or its log was replaced or deleted"
            remedy = "try again, which opens the one that is there"
            raise StoreUnavailableError(self.label, reason, remedy=remedy)
        return rows

    async def create_file(self) -> None:
        await anyio.to_thread.run_sync(create_file, self._path)

    async def _connect(self) -> _Line:
        door = Door(self._path)
        connection = aiosqlite.Connection(door.open, iter_chunk_size=64)
        # Otherwise a store that was never closed would keep the interpreter from ending.
        with suppress(RuntimeError):  # a sub-interpreter has no such threads
            _worker(connection).daemon = True
        try:
            connection = await connection
        except asyncio.CancelledError:
            door.close()
            raise
        except sqlite3.Error as exc:
            # The worker still sends replies to the loop, which must not be closed before that.
            await anyio.to_thread.run_sync(_worker(connection).join, CLOSE_TIMEOUT)
            error = await anyio.to_thread.run_sync(as_store_error, self.label, exc, self._path)
            raise error from exc
        line = _Line(connection, door)

        try:
            step = partial(prepare, label=self.label)
            await _call(self.label, connection, partial(door.run, step))
        except BaseException:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await _disconnect(line)
            raise
        return line


async def _disconnect(line: _Line) -> None:
    worker = cast("Any", line.connection)
    with suppress(ValueError):  # the connection is closed already
        await worker._execute(line.door.close)
    await line.connection.close()


def _salvage(line: _Line) -> _Line | None:
    # A reply to a closed loop ends the worker.
    return line if _worker(line.connection).is_alive() else None


def _worker(connection: aiosqlite.Connection) -> Thread:
    """Return the connection's thread; before aiosqlite 0.22 that was the connection itself."""
    return cast("Thread", getattr(connection, "_thread", connection))


async def _call(label: str, connection: aiosqlite.Connection, step: Callable[[], _T]) -> _T:
    """Run a function in the connection's worker, uninterrupted.

    Each of the connection's public methods is a separate step, and a transaction could begin
    between two of them.
    """
    try:
        return cast("_T", await cast("Any", connection)._execute(step))
    except sqlite3.Error as exc:
        raise as_store_error(label, exc) from exc
    except ValueError as exc:
        reason, remedy = "the connection is closed, or was never opened", "give it an open one"
        raise StoreError(label, reason, remedy=remedy) from exc
