"""The contract between a store and its server: counters, cells, and a lifecycle.

A backend reads and writes; it decides nothing.  A counter is advanced in one round trip, by one
native atomic operation on CosId's own key, row or node.  Cells are used rarely: they are read,
`machine._rules` decides, and the changes are committed if no cell has changed; see `machine.cells`.
"""

# ruff: noqa: ARG002 - a default may do without an argument that its overrides need

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
"""Instead of a counter's value: the counter is missing, and was not created."""


def after_add(found: int | None, by: int, *, first: int | None, store: str, name: str) -> int:
    """Return a counter's value after `Backend.add`, for servers that cannot add by themselves.

    Raises:
        CounterMissingError: the counter is missing, and ``first`` is None.
        IdOverflowError: it would pass 2^63-1.
    """
    if found is None and first is None:
        raise CounterMissingError(store, counter=name)
    max_id = (first or 0) if found is None else found + by
    if max_id > MAX_ID:
        raise IdOverflowError(name, limit=MAX_ID)
    return max_id


def after_raise(found: int | None, above: int, *, create: bool) -> int:
    """Return a counter's value after `Backend.raise_to`; `MISSING` if it is missing."""
    return MISSING if found is None and not create else max(found or 0, above)


def as_integer(value: object) -> int | None:
    """Return a column's value, or None if it is no integer."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)  # of a numeric column
    return value if type(value) is int else None


def counters_of(found: Iterable[tuple[str, int | None]], prefix: str) -> list[Counter]:
    """Return the counters whose names have a prefix, without damaged ones, whose value is None."""
    return [
        Counter(namespaced_name=name, last_max_id=max_id)
        for name, max_id in found
        if max_id is not None and name.startswith(prefix)
    ]


class Backend(NotCopyable, ABC):
    """One server, file or cluster, on a user's client or on connections of its own.

    All distributors of a store share it.  An atomic step is safe to be applied twice.  A cancelled
    call may have taken effect; its reply is never taken for another call's.  A driver's exception
    never escapes: it is the ``__cause__`` of an error of ours.

    Attributes:
        label: names the server or file in messages, without credentials.
        link: the connections, which have an ``aopen`` and an ``aclose``; None if there are none.
        name: names the servers where a store is shown, without credentials.
        name_width: the maximum length of a counter's ``{namespace}.{name}`` in characters; None for
            no limit.
        fork_remedy: the remedy for a forked child, in messages.
        is_local: whether it lives in this process, and answers without a suspension.
        durability: the check of the server's settings; one that ignores them where there is none.
        has_clock: whether a snapshot has the server's wall clock.
        has_marker: whether it keeps a marker for all namespaces; False where no commit can span
            them.
        has_witness: whether it remembers that there was something, if all of that is lost.
        order_risk: why a later `add` may return a lower value; empty for linearizable counters.
        address: the URL without the login; empty for a user's client.
        is_disposable: without a witness, whether this process has created it for tests.
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
        """Get ready in this process and on this loop; connects on first use.

        Raises:
            ForkedError: it lives on a client of the parent process.
        """
        await self.link.aopen()

    async def aclose(self) -> None:
        """Close the connections that it opened; never a user's client.  It may be used again."""
        await self.link.aclose()

    async def ask_server(self) -> ServerInfo:
        """Ask the server who it is, in one round trip; see `aiocosid.abc.Store.ask_server`.

        Where it does not tell, a counter that is missing is read (the default).

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self.peek("aiocosid.nothing")
        return ServerInfo(version="")

    # Schema.

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        """Create what was never there; concurrent calls are safe.

        Args:
            disposable: the store is for tests: whatever is lost in it may be made again.
            after_loss: create also what was there and is lost, without a marker.

        Returns:
            Whether the store is disposable; without a witness it is what the caller says.

        Raises:
            SchemaDroppedError: what is missing was there, and the store is not disposable.
            StoreError: the store refuses or cannot be reached.
        """
        return disposable

    # Counters, by their full name ``{namespace}.{name}``.

    def check_counter(self, counter: IdSegmentDistributor) -> None:
        """Raise unless the store can hold a counter of that name.

        Raises:
            InvalidArgumentError: the name is refused.
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
            first: the value of a missing counter after this call; None to create none.  It is
                created only if the store has a marker.

        Returns:
            The counter after the addition.

        Raises:
            CounterMissingError: the counter is missing, and ``first`` is None.
            CounterNotCreatedError: it is missing, and the store may have lost it.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            CorruptCounterError: it holds no integer; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """

    def add_nowait(self, name: str, by: int, *, first: int | None) -> int:
        """Do the same without a suspension, if the store lives in this process.

        Raises:
            WouldBlock: this store has to be awaited (the default).
        """
        raise WouldBlock

    async def begin(self, name: str, at: int) -> int:
        """Create a counter with this value under the marker; return that of one that exists.

        Raises:
            CounterNotCreatedError: it is missing, and the store may have lost it.
            StoreError: the store refuses or cannot be reached.
        """
        return await self.add(name, 0, first=at)

    @abstractmethod
    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        """Raise a counter to ``above`` if it is lower, in one atomic step.

        Returns:
            The counter as it is now; None if it is missing and ``create`` is False.

        Raises:
            CounterNotCreatedError: it may be created, and the store knows that it had counters and
                lost all of them.
            CorruptCounterError: it holds no integer; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """

    @abstractmethod
    async def counters(self, prefix: str) -> Sequence[Counter]:
        """Return the counters whose names have the prefix, in any order, without damaged ones."""

    async def peek(self, name: str) -> int | None:
        """Return a counter's value, and change nothing; None if it is missing.

        Raises:
            UnsupportedByStoreError: this store has no way to read it (the default).
            CorruptCounterError: it holds no integer.
            StoreError: the store refuses or cannot be reached.
        """
        raise UnsupportedByStoreError(self.label, "it cannot read a counter without changing it")

    # Cells: see `aiocosid.machine.cells.CellBackend`.

    async def is_counting(self) -> bool:
        """Whether counters may be created, where each namespace has a marker of its own.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        return False

    async def mark_counters(self) -> None:
        """Allow that counters are created, where each namespace has a marker of its own.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        """Read a namespace's cells; see `CellBackend.read`."""
        raise self._has_no_machine_ids()

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        """Write all or nothing, if nothing has changed; see `CellBackend.commit`."""
        raise self._has_no_machine_ids()

    async def namespaces(self) -> Sequence[str]:
        """Return the namespaces that have machine ids or cells, in any order."""
        raise self._has_no_machine_ids()

    async def is_in_use(self) -> bool:
        """Whether there are counters, or machine ids that were ever held, of CosId's too."""
        if await self.counters(""):
            return True
        for name in await self.namespaces():
            if is_used(await self.read(name, ReadRequest(is_complete=True))):
                return True
        return False

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        return UnsupportedByStoreError(self.label, "this store hands out no machine ids")
