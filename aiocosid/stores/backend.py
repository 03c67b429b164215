"""The contract between a store and its server: counters, cells, and a lifecycle.

A backend reads and writes; it makes no decisions.  It advances a counter in one round trip, with
one native atomic operation on CosId's own key, row or node.  Cells are used rarely: the backend
reads them, `machine._rules` decides, and the backend commits the changes if no cell has changed
meanwhile; see `machine.cells`.
"""

# ruff: noqa: ARG002 - a default implementation may ignore an argument that its overrides need

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from .._life.fork import NotCopyable
from ..abc import MAX_ID, Counter, IdSegmentDistributor, ServerInfo
from ..errors import (
    CounterMissingError,
    IdOverflowError,
    NameTooLongError,
    UnsupportedByStoreError,
    WouldBlock,
)
from ..errors.base import REOPEN
from ..machine.administration import is_used
from ..machine.cells import ReadRequest
from ._durability import DurabilityCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..machine.cells import Changes, Snapshot

__all__ = ("MISSING", "Backend", "after_add", "after_raise", "as_integer", "counters_of")

MISSING: Final = -1
"""Returned instead of a counter's value: the counter is missing, and was not created."""


def after_add(found: int | None, by: int, *, first: int | None, store: str, name: str) -> int:
    """Return a counter's value after `Backend.add`, for servers without an atomic addition.

    Raises:
        CounterMissingError: the counter is missing, and ``first`` is None.
        IdOverflowError: the counter would pass 2^63-1.
    """
    if found is None and first is None:
        raise CounterMissingError(store, counter=name)
    max_id = (first or 0) if found is None else found + by
    if max_id > MAX_ID:
        raise IdOverflowError(name, limit=MAX_ID)
    return max_id


def after_raise(found: int | None, above: int, *, create: bool) -> int:
    """Return a counter's value after `Backend.raise_to`, or `MISSING` if there is none."""
    return MISSING if found is None and not create else max(found or 0, above)


def as_integer(value: object) -> int | None:
    """Return a column's value as an integer, or None if it is not one."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)  # a numeric column
    return value if type(value) is int else None


def counters_of(found: Iterable[tuple[str, int | None]], prefix: str) -> list[Counter]:
    """Return the counters whose names have a prefix, except damaged ones, whose value is None."""
    return [
        Counter(namespaced_name=name, last_max_id=max_id)
        for name, max_id in found
        if max_id is not None and name.startswith(prefix)
    ]


class Backend(NotCopyable, ABC):
    """One server, file or cluster, on a client that was passed in or on its own connections.

    All distributors of a store share one backend.  Each atomic step is safe to apply twice.  A
    cancelled call may have taken effect; its reply is never mistaken for the reply to another call.
    A driver's exception never escapes: it becomes the ``__cause__`` of an aiocosid error.

    Attributes:
        label: the server's or file's name in messages, without credentials.
        link: the connections, with ``aopen`` and ``aclose`` methods; None if there are none.
        name: the servers' names where a store is displayed, without credentials.
        name_width: the maximum length of a counter's ``{namespace}.{name}`` in characters; None for
            no limit.
        fork_remedy: the remedy for a forked child, in messages.
        is_local: whether the data lives in this process, so that calls finish without suspending.
        durability: checks the server's settings; for servers without such settings, a check that
            ignores them.
        has_clock: whether a snapshot contains the time on the server's wall clock.
        has_marker: whether one marker covers all namespaces; False where a commit cannot span
            namespaces.
        has_witness: whether the store still remembers that it had data after all of the data is
            lost.
        order_risk: why a later `add` may return a lower value; empty for linearizable counters.
        address: the URL without the login; empty for a client that was passed in.
        is_disposable: where there is no witness: whether this process created the store for tests.
    """

    __slots__ = ("__weakref__", "address", "is_disposable", "label", "link", "name")

    link: Any

    name_width: int | None = None
    fork_remedy: str = REOPEN
    is_local: bool = False
    durability: DurabilityCheck = DurabilityCheck("ignore")
    has_clock: bool = True
    has_marker: bool = True
    has_witness: bool = False
    order_risk: str = IdSegmentDistributor.order_risk

    def __init__(self, label: str, link: object = None, *, name: str = "") -> None:
        self.label: str = label
        self.link = link
        self.name: str = name or label
        self.address: str = ""
        self.is_disposable: bool = False

    # Lifecycle.

    async def aopen(self) -> None:
        """Get ready in this process and on this loop; connections are opened on first use.

        Raises:
            ForkedError: the client belongs to the parent process.
        """
        await self.link.aopen()

    async def aclose(self) -> None:
        """Close the connections that it opened, never a user's client.  It can be reopened."""
        await self.link.aclose()

    async def ask_server(self) -> ServerInfo:
        """Ask the server for its version and settings; see `aiocosid.abc.Store.ask_server`.

        It takes one round trip.  The default, for servers that do not tell, reads a missing
        counter.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self.peek("aiocosid.nothing")
        return ServerInfo(version="")

    # Schema.

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        """Create what never existed; concurrent calls are safe.

        Args:
            disposable: the store is for tests, so anything that is lost may be created again.
            after_loss: also create what existed and was lost, without a marker.

        Returns:
            Whether the store is disposable; without a witness, the value that the caller passed.

        Raises:
            SchemaDroppedError: something that existed is missing, and the store is not disposable.
            StoreError: the store refuses or cannot be reached.
        """
        return disposable

    # Counters, by their full name ``{namespace}.{name}``.

    def check_counter(self, counter: IdSegmentDistributor) -> None:
        """Raise unless the store can hold a counter with that name.

        Raises:
            InvalidArgumentError: the name is not valid.
            NameTooLongError: it is longer than the store can hold.
        """
        if self.name_width is not None and len(counter.namespaced_name) > self.name_width:
            raise NameTooLongError(counter.namespaced_name, limit=self.name_width)

    @abstractmethod
    async def add(self, name: str, by: int, *, first: int | None) -> int:
        """Add to a counter in one atomic step.

        Args:
            name: the counter.
            by: how many ids; 0 only creates a missing counter.
            first: the value of a missing counter after this call; None creates no counter.  A
                counter is created only if the store has a marker.

        Returns:
            The counter after the addition.

        Raises:
            CounterMissingError: the counter is missing, and ``first`` is None.
            CounterNotCreatedError: the counter is missing, and the store may have lost it.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: the counter holds no integer; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """

    def add_nowait(self, name: str, by: int, *, first: int | None) -> int:
        """Do the same as `add` without suspending, if the store lives in this process.

        Raises:
            WouldBlock: this store must be awaited (the default).
        """
        raise WouldBlock

    async def begin(self, name: str, at: int) -> int:
        """Create a counter with this value if the store has its marker; return an existing value.

        Raises:
            CounterNotCreatedError: the counter is missing, and the store may have lost it.
            StoreError: the store refuses or cannot be reached.
        """
        return await self.add(name, 0, first=at)

    @abstractmethod
    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        """Raise a counter to ``above`` if it is lower, in one atomic step.

        Returns:
            The counter's new value; None if it is missing and ``create`` is False.

        Raises:
            CounterNotCreatedError: ``create`` is True, but the store knows that it had counters and
                lost all of them.
            CorruptCounterError: the counter holds no integer; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def counters(self, prefix: str) -> Sequence[Counter]:
        """Return the counters whose names have the prefix, in any order, without damaged ones."""

    async def peek(self, name: str) -> int | None:
        """Return a counter's value without changing it; None if it is missing.

        Raises:
            UnsupportedByStoreError: this store cannot read a counter without changing it (the
                default).
            CorruptCounterError: the counter holds no integer.
            StoreError: the store refuses or cannot be reached.
        """
        raise UnsupportedByStoreError(self.label, "it cannot read a counter without changing it")

    # Cells: see `aiocosid.machine.cells.CellBackend`.

    async def is_counting(self) -> bool:
        """Return whether counters may be created, where each namespace has its own marker.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return False

    async def mark_counters(self) -> None:
        """Allow counters to be created, where each namespace has its own marker.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        """Read a namespace's cells; see `CellBackend.read`."""
        raise self._has_no_machine_ids()

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        """Write all changes, or none if a cell has changed meanwhile; see `CellBackend.commit`."""
        raise self._has_no_machine_ids()

    async def namespaces(self) -> Sequence[str]:
        """Return the namespaces that have machine ids or cells, in any order."""
        raise self._has_no_machine_ids()

    async def is_in_use(self) -> bool:
        """Return whether there are counters, or machine ids that were ever held, even CosId's."""
        if await self.counters(""):
            return True
        for name in await self.namespaces():
            if is_used(await self.read(name, ReadRequest(is_complete=True))):
                return True
        return False

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        return UnsupportedByStoreError(self.label, "this store hands out no machine ids")
