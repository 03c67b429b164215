"""The fork's table of worker ids: one row for each address, whose number is the worker id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from ...errors import InvalidArgumentError, LeafWorkerIdsUsedUpError, StoreUnavailableError
from ...stores._engine import EngineExecutor, OwnEngineExecutor
from .._table import as_integer
from .._worker_store import WorkerIdStore
from ._place import WORKER_IDS_ALONE, Place, split_url
from ._rows import CREATE, INSERT, OLDEST, READ, SELECT, WRITE, entry_of
from ._stamped import StampedMachineIdDistributor
from ._stamps import claim

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...stores._engine import SqlExecutor
    from ._stamped import Entry

    T = TypeVar("T")

__all__ = ("LeafMysqlMachineIdDistributor", "LeafWorkerIdStore")

SCHEME: Final = "leaf-workerid"
NAMESPACE: Final = "leaf_workerid_alloc"
ATTEMPTS: Final = 20  # a row has one writer, and for a moment two


class LeafMysqlMachineIdDistributor(StampedMachineIdDistributor["SqlExecutor"]):
    """The worker id of an address in ``leaf_workerid_alloc``: the ``id`` of its row, for good.

    ``max_timestamp`` is raised every 3 s to the time up to which ids may be issued, and never
    lowered by that; it is the floor of whoever comes next under that address.  Fork nodes may run
    beside, each on an address of its own.  They write their clock there; a NULL counts as none.
    """

    __slots__ = ("_executor", "_owns_executor", "store")

    def __init__(self, engine: AsyncEngine, *, ip: str, port: int | str) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            engine: your own, on MySQL or MariaDB, which stays yours to close.
            ip: this process's address, at most 94 characters; none is guessed.  Any text that no
                other process goes by, such as a pod's stable name, does as well.
            port: this process's, 1 to 65535.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the engine is another
                database's.
        """
        self._describe_on(EngineExecutor(engine), Place.of(ip, port))

    def _describe_on(
        self, executor: SqlExecutor, place: Place, *, owns_executor: bool = False
    ) -> None:
        check_mysql(executor)
        self._describe(place, namespace=NAMESPACE)
        self.store = executor.label
        self._executor, self._owns_executor = executor, owns_executor

    @classmethod
    def _on(cls, executor: SqlExecutor, place: Place, *, owns_executor: bool = False) -> Self:
        made = cls.__new__(cls)
        made._describe_on(executor, place, owns_executor=owns_executor)
        return made

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Describe one on connections of its own, opened on first use and closed by `aclose`.

        Args:
            url: as `LeafWorkerIdStore.from_url` takes it.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no address.
            MissingExtraError: the driver is not installed.
        """
        executor, place = _read_url(url)
        return cls._on(executor, place, owns_executor=True)

    async def _run(self, attempt: Callable[[SqlExecutor], Coroutine[Any, Any, T | None]]) -> T:
        for _ in range(ATTEMPTS):
            if (found := await attempt(self._executor)) is not None:
                return found
        reason = f"others write the row of {self._place} again and again"
        raise StoreUnavailableError(self.store, reason)

    async def _take(
        self,
        at: SqlExecutor,
        bits: int,
        now_ms: int,
        latest_ms: int,  # noqa: ARG002 - there is no other
    ) -> tuple[Entry, int] | None:
        rows = (await at.run(SELECT, place=str(self._place))).rows
        if not rows:
            await self._insert(at, bits)
            return None  # it is claimed as any other: somebody else may have been faster
        entry = entry_of(self.store, rows[0])
        if entry.worker_id >> bits:
            raise await self._used_up(at, bits, entry.worker_id)
        claimed = claim(entry.stamp, now_ms)
        return (entry, claimed) if await self._write(at, entry, claimed) else None

    async def _insert(self, at: SqlExecutor, bits: int) -> None:
        """Make our row, unless the next number would not fit."""
        (oldest, *_) = (await at.run(OLDEST)).rows or [(None, None)]
        if oldest[1] is not None and int(oldest[1]) + 1 >> bits:
            raise await self._used_up(at, bits, -1)
        await at.run(INSERT, ip=self._place.ip, port=self._place.port, place=str(self._place))

    async def _used_up(self, at: SqlExecutor, bits: int, worker_id: int) -> Exception:
        rows = (await at.run(OLDEST)).rows
        fitting = (str(row[0]) for row in rows if (as_integer(row[2]) or 0) < 1 << bits)
        return LeafWorkerIdsUsedUpError(
            NAMESPACE, worker_id=worker_id, bits=bits, holders=tuple(fitting)[:3]
        )

    async def _read(self, at: SqlExecutor, worker_id: int) -> Entry | None:
        rows = (await at.run(READ, id=worker_id)).rows
        return entry_of(self.store, rows[0]) if rows else None

    async def _write(self, at: SqlExecutor, entry: Entry, new: int) -> bool:
        found = None if entry.stamp < 0 else entry.stamp
        values = {"id": entry.worker_id, "place": str(self._place), "found": found, "new": new}
        return (await at.run(WRITE, **values)).matched == 1

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the address is the parent process's.
        """
        self._ensure_own()
        await self._executor.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; an engine that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        if self._owns_executor:
            await self._executor.aclose()


class LeafWorkerIdStore(WorkerIdStore):
    """The database with ``leaf_workerid_alloc``, as a store of machine ids alone."""

    __slots__ = ("_executor",)

    _why = WORKER_IDS_ALONE

    def __init__(self, engine: AsyncEngine, *, ip: str, port: int | str) -> None:
        """Work on your own engine, which stays yours to close; nothing is sent yet.

        Args:
            engine: on MySQL or MariaDB.
            ip: this process's address; see `LeafMysqlMachineIdDistributor`.
            port: this process's.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._begin(EngineExecutor(engine), Place.of(ip, port))

    def _begin(self, executor: SqlExecutor, place: Place) -> None:
        self._executor = executor
        super().__init__(LeafMysqlMachineIdDistributor._on(executor, place))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

        Args:
            url: the database's, with the address in its query:
                ``leaf-workerid+mysql://user:password@host/leaf?ip=10.0.0.1&port=8080``.

        Raises:
            InvalidArgumentError: the URL is malformed, or names no address.
            MissingExtraError: the driver is not installed.
        """
        made = cls.__new__(cls)
        made._begin(*_read_url(url))
        return made

    async def create_schema(self) -> None:
        """Create ``leaf_workerid_alloc`` as the fork ships it, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._executor.run(CREATE)

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the engine was passed in, and is the parent's.
        """
        await self._executor.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; an engine that was passed in stays open."""
        await self._executor.aclose()


def check_mysql(executor: SqlExecutor) -> None:
    """Raise `InvalidArgumentError` unless it is MySQL or MariaDB."""
    if executor.dialect_name != "mysql":
        expected = "an engine or a URL of MySQL or MariaDB, where Leaf keeps worker ids"
        raise InvalidArgumentError("engine", executor.dialect_name, expected=expected)


def _read_url(url: str) -> tuple[SqlExecutor, Place]:
    server, told = split_url(url, SCHEME, ("ip", "port"))
    return OwnEngineExecutor(server), Place.of(told["ip"], told["port"])
