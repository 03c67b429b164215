"""Counters and machine ids in this process's memory, for tests, demos and a single process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING

from .._life import fork
from .._life.clock import SYSTEM_CLOCK
from ..abc import (
    DEFAULT_MAX_SEQUENCE,
    DEFAULT_NAMESPACE,
    DEFAULT_TOLERANCE,
    Counter,
    ServerInfo,
)
from ..errors import InvalidArgumentError, WouldBlock
from ..machine.cells import MachineSlot, Marker, NamespaceRecord, ReadRequest, Snapshot
from ._sequence_rules import SequenceState, grant
from .backend import after_add, counters_of
from .sequences import BackendSequenceDistributor, SequenceBackend, SequenceStore

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager

    from ..abc import Clock
    from ..machine.cells import Changes
    from ._sequence_rules import SequenceAnswer, SequenceRequest

__all__ = ("MemorySequenceDistributor", "MemoryStore")


class _Steps:
    """Short changes of the data, one after the other; none contains an await."""

    __slots__ = ("_busy", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._busy = False

    @contextmanager
    def one(self) -> Generator[None]:
        """Make other threads wait; raise `WouldBlock` inside another step of this thread."""
        with self.lock:
            if self._busy:  # called by a signal handler, a finalizer, or an eager task of one
                raise WouldBlock
            try:
                self._busy = True
                yield
            finally:
                self._busy = False


class _InProcess(SequenceBackend):
    """Sequences in a dictionary, and what all stores in memory share."""

    __slots__ = ("_clock", "_fork_generation", "_sequences", "_steps", "identity")

    def __init__(self, clock: Clock) -> None:
        super().__init__("memory")
        # The data lives as long as the process, so none of it can be lost.
        self.identity: str = "memory"
        self._sequences: dict[str, SequenceState | None] = {}
        self._clock: Clock = clock
        self._fork_generation: int = fork.generation
        self._steps: _Steps = _Steps()

    async def aopen(self) -> None:
        self._refuse_child()

    def _refuse_child(self) -> None:
        """Raise in a child before it takes the lock, which a thread of the parent may have held."""
        fork.ensure_own(self._fork_generation, "the memory store", remedy=self.fork_remedy)

    def _changing(self) -> AbstractContextManager[None]:
        """Change the data in one step."""
        self._refuse_child()
        return self._steps.one()

    async def grant_sequences(self, name: str, request: SequenceRequest) -> SequenceAnswer:
        now, new = self._clock.now_ms() // 1000, SequenceState(self.identity)
        with self._changing():
            found = self._sequences.get(name, new)
            self._sequences[name], answer = grant(found, request, self.identity, now)
        return answer


class MemoryBackend(_InProcess):
    """Counters and cells in dictionaries; the event loops of several threads may share one."""

    __slots__ = ("_counters", "_lock", "cells", "marker")

    order_risk = ""
    stamps_tell = False
    is_local = True
    has_clock = False  # its clock is monotonic
    has_witness = True  # all data is lost with the process
    fork_remedy = "use a store that both processes can reach"

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._counters: dict[str, int] = {}
        # Each snapshot is complete except for the marker; its `raw` has the machine id of each
        # instance.
        self.cells: dict[str, Snapshot] = {}
        self.marker: Marker | None = Marker(self.identity, token_hex(8))
        self._lock = self._steps.lock  # held only briefly, never across an await

    async def ask_server(self) -> ServerInfo:
        self._refuse_child()
        weakness = "counters end with this process, and their ids are issued again; use a file, as"
        return ServerInfo(version="memory", durability_warnings=(f"{weakness} sqlite:///ids.db",))

    async def aclose(self) -> None:
        """Keep all data: other generators share this store."""

    # Counters.

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        return self.add_nowait(name, by, first=first)  # a signal handler does not drive a task

    def add_nowait(self, name: str, by: int, *, first: int | None) -> int:
        """Add without suspending.

        Raises:
            WouldBlock: a signal handler or finalizer called this while the counters were being
                changed.
        """
        with self._changing():
            found = self._counters.get(name)
            max_id = after_add(found, by, first=first, store=self.label, name=name)
            self._counters[name] = max_id
        return max_id

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        with self._changing():
            found = self._counters.get(name)
            if found is None and not create:
                return None
            self._counters[name] = max_id = max(found or 0, above)
        return Counter(namespaced_name=name, last_max_id=max_id)

    async def counters(self, prefix: str) -> Sequence[Counter]:
        return counters_of(self._counters.copy().items(), prefix)  # the copy is one atomic step

    async def peek(self, name: str) -> int | None:
        self._refuse_child()
        return self._counters.get(name)

    # Cells: between a read and its commit only other threads can run.

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        self._refuse_child()
        with self._lock:
            cells = self.cells.get(namespace) or self._new(namespace)
            return replace(
                cells,
                identity=self.identity,
                now_ms=self._now_ms(),
                marker=self.marker,
                slots=dict(cells.slots),
                own=cells.raw.get(need.instance),  # `raw` is never changed, only replaced
            )

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        self._refuse_child()
        with self._lock:
            cells = self.cells_of(snapshot.namespace)
            is_same = (
                (self.identity, self.marker, cells.space)
                == (snapshot.identity, snapshot.marker, snapshot.space)
                and (changes.count is None or cells.count == snapshot.count)
                and all(
                    _value(cells.slots.get(number)) == _value(snapshot.slots.get(number))
                    for number in changes.slots
                )
                and all(cells.raw.get(who) == snapshot.raw.get(who) for who in changes.own)
            )
            if not is_same:
                return False
            now_ms = self._now_ms()
            for number, slot in changes.slots.items():
                changes.slots[number] = MachineSlot(slot.owners, slot.record, now_ms)
            snapshot.apply(changes)
            cells.apply(changes)
            self.marker = snapshot.marker
            kept = (cells.raw | changes.own).items()
            snapshot.raw = cells.raw = {who: each for who, each in kept if each is not None}
            return True

    def cells_of(self, namespace: str) -> Snapshot:
        """Return a namespace's cells, and create them if there are none yet."""
        return self.cells.setdefault(namespace, self._new(namespace))

    def _new(self, namespace: str) -> Snapshot:
        tell = self.stamps_tell
        return Snapshot(namespace, "", is_complete=True, stamps_tell=tell, raw={}, store=self.label)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    async def namespaces(self) -> Sequence[str]:
        return list(self.cells)

    def forget(self, namespace: str, *, everything: bool) -> None:
        """Drop a namespace's machine ids and sequences, or only the memory of having kept ids."""
        self._refuse_child()
        with self._lock:
            for name in self._sequences if everything else ():
                if name.startswith(f"{namespace}."):
                    self._sequences[name] = None
            cells = self.cells_of(namespace)
            longest = 0 if everything or cells.space is None else cells.space.guard_ms
            if everything:
                cells.slots, cells.raw, cells.count = {}, {}, None
            marker_id = self.marker.marker_id if self.marker is not None else ""
            cells.space = NamespaceRecord("another", marker_id, guard_ms=longest)


def _value(slot: MachineSlot | None) -> tuple[object, object] | None:
    return None if slot is None else (slot.owners, slot.record)


class MemorySequenceDistributor(BackendSequenceDistributor):
    """Sequences of a second in memory, independent of any store; generators that use it share them.

    Do not use it in several processes: each would count for itself.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
        tolerance: int = DEFAULT_TOLERANCE,
        clock: Clock | None = None,
    ) -> None:
        """Describe the sequences; see `aiocosid.abc.SequenceDistributor`.

        Args:
            namespace: a common prefix for the names of one system.
            name: the name; sequences are unique under it.
            max_sequence: the highest sequence.
            tolerance: whole seconds by which a second may differ from the clock.
            clock: the time source; the system's clock by default.
        """
        super().__init__(
            MemoryBackend(clock or SYSTEM_CLOCK),
            namespace=namespace,
            name=name,
            max_sequence=max_sequence,
            tolerance=tolerance,
        )


class MemoryStore(SequenceStore[MemoryBackend]):
    """Counters and machine ids in memory; each store has its own.

    The event loops of several threads may share one.
    """

    __slots__ = ()

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Create an empty store.

        Args:
            clock: measures the time since an instance's last renewal; for tests.
        """
        self._backend = MemoryBackend(clock or SYSTEM_CLOCK)
        self._backend.address = "memory:"

    @classmethod
    def from_url(cls, url: str = "memory://") -> MemoryStore:
        """Return the store that all ``memory://`` URLs of this process share.

        Raises:
            InvalidArgumentError: the URL names something else.
        """
        if url not in {"memory:", "memory://"}:
            # The given URL is not shown: it may be another store's, with a password.
            raise InvalidArgumentError("url", "...", "must be memory://")
        return _SHARED

    def forget_machines(
        self, *, namespace: str = DEFAULT_NAMESPACE, everything: bool = True
    ) -> None:
        """Behave like a server that lost its data; for tests.

        Args:
            namespace: the namespace whose machine ids and sequences of a second are lost.
            everything: False for a server that was restored or failed over: the data is there, but
                may be old.

        Raises:
            ForkedError: the machine ids belong to the parent process.
        """
        self._backend.forget(namespace, everything=everything)


_SHARED = MemoryStore()
