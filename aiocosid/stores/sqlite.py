"""Counters in a SQLite file, which any number of processes of one machine may share."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import aiosqlite
import anyio

from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
)
from ..errors import InvalidArgumentError, StoreError, StoreUnavailableError
from ._durability import DurabilityCheck
from ._executor import CLOSE_TIMEOUT, Executor, OwnExecutor, running_asyncio_loop
from ._sql import SqlIdSegmentDistributor, SqlStore
from ._sql_machines import SqlMachineIdDistributor
from ._sqlite import (
    SQLITE,
    check_version,
    is_missing,
    path_of,
    prepare,
    run,
    translated,
    weaknesses_of,
)
from ._sqlite_door import Door, in_use
from ._sqlite_identity import identity, tell_identity
from ._sqlite_machines import SQLITE_MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from threading import Thread

    from ..abc import Counter, InstanceId
    from ._durability import Durability
    from ._executor import Row, Value

__all__ = ("SqliteIdSegmentDistributor", "SqliteMachineIdDistributor", "SqliteStore")

_T = TypeVar("_T")


class SqliteIdSegmentDistributor(SqlIdSegmentDistributor):
    """A counter in a SQLite file, in CosId's table ``cosid``, which it creates by itself.

    Runs on asyncio.  Safe with any number of processes on one file; not on a network file system.
    """

    __slots__ = ()

    dialect = SQLITE

    def __init__(
        self,
        connection: aiosqlite.Connection,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        durability: Durability = "warn",
    ) -> None:
        """Describe a counter on your own connection; nothing is sent yet.

        Args:
            connection: stays yours to close; its journal mode, ``synchronous`` and timeout apply.
                While it has a transaction open no ids are granted on it.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            durability: what to do about a connection whose settings may lose grants: ``"warn"`` in
                the log, once, ``"refuse"`` to hand out ids, or ``"ignore"``.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            NameTooLongError: ``{namespace}.{name}`` is longer than 100 characters.
        """
        executor = _Borrowed(connection, durability)
        super().__init__(executor, namespace=namespace, name=name, offset=offset, step=step)

    @classmethod
    def _own(cls, url: str) -> Executor:
        return _Own(path_of(url))


class SqliteMachineIdDistributor(SqlMachineIdDistributor):
    """The machine ids of one namespace in a SQLite file, in CosId's table ``cosid_machine``.

    Runs on asyncio.  For the instances of one machine: the file may not lie on a network file
    system.  Both tables, CosId's and ``aiocosid_machine`` beside it, are created on first use.
    """

    __slots__ = ()

    machine_dialect = SQLITE_MACHINES

    def __init__(
        self,
        connection: aiosqlite.Connection,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        durability: Durability = "warn",
    ) -> None:
        """Describe who asks on your own connection; nothing is sent yet.

        Args:
            connection: as for `SqliteIdSegmentDistributor`.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            durability: what to do about settings that may lose who holds which id; as for
                `SqliteIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(
            _Borrowed(connection, durability),
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    @classmethod
    def _own(cls, url: str) -> Executor:
        return _Own(path_of(url))


class SqliteStore(SqlStore):
    """The counters in one SQLite file."""

    __slots__ = ()

    distributor = SqliteIdSegmentDistributor
    machine_distributor = SqliteMachineIdDistributor

    def __init__(
        self, connection: aiosqlite.Connection, *, durability: Durability = "warn"
    ) -> None:
        """Work on your own connection, which stays yours to close; nothing is sent yet.

        Args:
            connection: as for `SqliteIdSegmentDistributor`.
            durability: what to do about a connection whose settings may lose grants; see there.

        Raises:
            InvalidArgumentError: it is no connection of aiosqlite's, or ``durability`` none of the
                words.
        """
        super().__init__(_Borrowed(connection, durability))

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
        return cls._on(cls.distributor._own(url))

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name.

        Rows that hold something else than an integer are left out.

        Args:
            namespace: only the ones whose name begins with it and a dot; None for all.

        Raises:
            StoreError: there is no such file, which is not made by looking into it; or the store
                refuses or cannot be reached.
        """
        if isinstance(self._executor, _Own):
            await self._executor.ensure_file()
        return await super().counters(namespace=namespace)


class _Borrowed(Executor):
    """On the user's connection, whose settings are left as they are."""

    __slots__ = ("_connection", "_durability", "_has_table")

    def __init__(self, connection: object, durability: Durability = "warn") -> None:
        if not isinstance(connection, aiosqlite.Connection):
            expected = "an aiosqlite.Connection; from_url() takes a URL"
            raise InvalidArgumentError("connection", type(connection), expected=expected)
        check_version()
        super().__init__("sqlite")
        self._connection = connection
        self._durability = DurabilityCheck(durability, connection)
        self._has_table = False

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        self._check_process("make a new connection in this process")
        running_asyncio_loop(self.label)
        if self._durability.is_due:
            found = await _call(self.label, self._connection, weaknesses_of)
            self._durability.judge(self.label, found)
        if not self._has_table:
            await self._do(SQLITE.create_table, {})
            await _call(self.label, self._connection, tell_identity)
            self._has_table = True
        return await self._do(statement, values)

    async def _do(self, statement: str, values: Mapping[str, Value]) -> list[Row]:
        return await _call(self.label, self._connection, _guarded, self.label, statement, values)


class _Line(NamedTuple):
    """A connection of our own: its worker, and the file."""

    connection: aiosqlite.Connection
    door: Door


class _Own(OwnExecutor[_Line]):
    """On a connection to a file."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: str) -> None:
        check_version()
        super().__init__(f"sqlite {path}")
        self._path = path
        self._file: tuple[int, int] | None = None

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        line = await self._ready()
        rows = await self._do(line, self._run, statement, values)
        if rows is None:
            # Others count in the file that lies there now.
            if self._client is line:
                await self._end()
            raise StoreUnavailableError(self.label, "the file was replaced; it is opened anew")
        return rows

    async def ensure_file(self) -> None:
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
            made = await anyio.to_thread.run_sync(translated, self.label, exc, self._path)
            raise made from exc
        line = _Line(connection, door)
        try:
            self._file = await self._do(line, self._prepare)
        except BaseException:
            await self._disconnect(line)
            raise
        return line

    def _prepare(self, database: sqlite3.Connection) -> tuple[int, int] | None:
        prepare(database)
        return identity(self._path)

    async def _disconnect(self, client: _Line) -> None:
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
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


def _guarded(
    database: sqlite3.Connection, label: str, statement: str, values: Mapping[str, Value]
) -> list[Row]:
    with in_use():
        return run(database, label, statement, values)


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
        raise translated(label, exc) from exc
    except ValueError as exc:
        raise StoreError(label, "the connection is closed, or was never opened") from exc
