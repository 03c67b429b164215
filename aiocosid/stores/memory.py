"""Counters and machine ids in this process's memory, for tests, demos and a single process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from .. import _fork
from .._clock import SYSTEM_CLOCK
from .._instance_id import as_instance_id
from .._uncopied import Uncopied
from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_MAX_SEQUENCE,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
    DEFAULT_TOLERANCE,
    Counter,
    InstanceId,
    MachineGrant,
    MachineIdDistributor,
)
from ..errors import ForkedError, InvalidArgumentError, WouldBlock
from ._arguments import check_above
from ._memory_machine_store import MemoryMachineStore
from ._memory_machines import MachinePool
from ._memory_marker import Claim
from ._memory_segments import MemorySegments
from ._memory_sequences import MemorySequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Clock

__all__ = (
    "MemoryIdSegmentDistributor",
    "MemoryMachineIdDistributor",
    "MemorySequenceDistributor",
    "MemoryStore",
)


class MemoryIdSegmentDistributor(MemorySegments):
    """A counter in memory, shared by all distributors of the same store and name."""

    __slots__ = ()

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
        memory: MemoryStore | None = None,
    ) -> None:
        """Describe a counter; see `aiocosid.abc.IdSegmentDistributor`.

        Args:
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.
            memory: where the counter lies; by default in the one store that all distributors of
                this process share.
        """
        where = _SHARED if memory is None else memory
        super().__init__(where, namespace=namespace, name=name, offset=offset, step=step)

    @classmethod
    def from_url(
        cls,
        url: str = "memory://",
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> Self:
        """Describe a counter in the process's shared store, as ``memory://`` names it.

        Raises:
            InvalidArgumentError: the URL names something else.
        """
        memory = MemoryStore.from_url(url)
        return cls(namespace=namespace, name=name, offset=offset, step=step, memory=memory)


class MemorySequenceDistributor(MemorySequences):
    """Counters in memory, one for each second; all generators that are given this object share it.

    Never beside processes that count elsewhere.
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
        """Describe the counters; see `aiocosid.abc.SequenceDistributor`.

        Args:
            namespace: groups the names of one system.
            name: the name; sequences are unique under it.
            max_sequence: the highest sequence.
            tolerance: whole seconds by which a second may differ from the clock.
            clock: time; the system's by default.
        """
        super().__init__(
            clock or SYSTEM_CLOCK,
            namespace=namespace,
            name=name,
            max_sequence=max_sequence,
            tolerance=tolerance,
        )


class MemoryMachineIdDistributor(Uncopied, MachineIdDistributor):
    """Machine ids in memory, which all instances on the same store share.

    For the instances of one process: another process has a memory, and machine ids, of its own.
    """

    __slots__ = ("_claim", "_pool", "_store", "_token")

    store = "memory"

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        memory: MemoryStore | None = None,
    ) -> None:
        """Describe who asks; see `aiocosid.abc.MachineIdDistributor`.

        Args:
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            memory: where the machine ids lie; by default in the one store that this process shares.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self._store = _SHARED if memory is None else memory
        self._token: object = None  # of the last call that was handed an id
        self._claim: Claim | None = None  # what that call was
        with self._store._lock:
            self._pool = self._store._pools.setdefault(namespace, MachinePool(namespace))

    @classmethod
    def from_url(
        cls,
        url: str = "memory://",
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> Self:
        """Describe who asks in the process's shared store, as ``memory://`` names it.

        Raises:
            InvalidArgumentError: the URL names something else, or as for the class itself.
        """
        return cls(
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            memory=MemoryStore.from_url(url),
        )

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id without a suspension; see `aiocosid.abc.MachineIdDistributor`.

        Raises:
            MachineBitsMismatchError: the namespace has another width.
            MachineIdOverflowError: all ``2^bits`` are held.
            MachineIdQuarantineError: a test made the store forget.
            InvalidArgumentError: ``bits`` is outside its range.
            ForkedError: the machine ids are the parent's; another process goes on with them.
        """
        self._store._refuse_child()
        token = object()
        with self._store._lock:
            grant = self._pool.distribute(
                self.instance_id,
                bits,
                now_ms=now_ms,
                latest_ms=latest_ms,
                seen=self._store._clock.monotonic(),
                safe_guard=self.safe_guard,
                token=token,
            )
        self._token = token
        self._claim = Claim(self.instance_id.text, token, now_ms, bits, grant.machine_id)
        return grant

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life, and raise the time mark, without a suspension.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody.
            MachineIdQuarantineError: a test made the store forget.
            ForkedError: the machine ids are the parent's.
        """
        self._guard(machine_id, now_ms, mark_ms, None)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody.
            MachineIdQuarantineError: a test made the store forget, and this object was not handed
                the id, or gave it back.
            ForkedError: the machine ids are the parent's.
        """
        self._guard(machine_id, now_ms, mark_ms, self._claim if self._claims(machine_id) else None)

    def _claims(self, machine_id: int) -> bool:
        return self._claim is not None and self._claim.machine_id == machine_id

    def _guard(self, machine_id: int, now_ms: int, mark_ms: int, claim: Claim | None) -> None:
        self._store._refuse_child()
        with self._store._lock:
            self._pool.guard(
                self.instance_id,
                machine_id,
                now_ms=now_ms,
                mark_ms=mark_ms,
                seen=self._store._clock.monotonic(),
                safe_guard=self.safe_guard,
                token=self._token,
                claim=claim,
            )

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Give the id back without a suspension; does nothing if it is not ours any more.

        Raises:
            ForkedError: the machine ids are the parent's.
        """
        self._store._refuse_child()
        if self._claims(machine_id):
            self._claim = None
        with self._store._lock:
            self._pool.revert(self.instance_id, machine_id, last_ms=last_ms, token=self._token)

    async def aopen(self) -> None:
        """Refuse a forked child.

        Raises:
            ForkedError: the machine ids are the parent's.
        """
        self._store._refuse_child()


class MemoryStore(Uncopied, MemoryMachineStore):
    """Counters and machine ids in memory; several stores know nothing of each other.

    The event loops of several threads may share one.
    """

    __slots__ = (
        "__weakref__",
        "_born",
        "_busy",
        "_clock",
        "_counters",
        "_lock",
        "_notes",
        "_pools",
    )

    machine_distributor = MemoryMachineIdDistributor

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Make an empty store.

        Args:
            clock: tells how long an instance has been silent; for tests.
        """
        self._counters: dict[str, int] = {}
        self._notes: dict[str, tuple[str, int, int]] = {}  # nonce, top, base: see _give_back
        self._pools: dict[str, MachinePool] = {}
        self._clock = clock or SYSTEM_CLOCK
        self._born = _fork.generation
        self._lock = threading.RLock()  # held for a few steps of Python, never across an await
        self._busy = False  # whether counters are being changed
        _fork.watch(self)

    @classmethod
    def from_url(cls, url: str) -> MemoryStore:
        """Return the store that all ``memory://`` URLs of this process share.

        Raises:
            InvalidArgumentError: the URL names something else.
        """
        if url not in {"memory:", "memory://"}:
            # Not what was given: it may be another store's URL, with a password.
            raise InvalidArgumentError("url", "...", expected="memory://")
        return _SHARED

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> MemoryIdSegmentDistributor:
        """Return a distributor on this store's counter."""
        return MemoryIdSegmentDistributor(
            namespace=namespace, name=name, offset=offset, step=step, memory=self
        )

    async def create_schema(self) -> None:
        """Do nothing: there are no tables."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name."""
        prefix = "" if namespace is None else f"{namespace}."
        with self._lock:
            found = sorted(self._counters.items())
        return [
            Counter(namespaced_name=name, last_max_id=max_id)
            for name, max_id in found
            if name.startswith(prefix)
        ]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter to ``above`` if it is lower.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            ForkedError: the counters are the parent's.
            WouldBlock: called in the middle of a grant, by a signal handler's eager task.
        """
        self._refuse_child()
        check_above(above)
        key = self.segment_distributor(namespace=namespace, name=name).namespaced_name
        with self._lock:
            if self._busy:  # an eager task of a signal handler's, in the middle of a grant
                raise WouldBlock
            try:
                self._busy = True
                self._counters[key] = max_id = max(self._counters.get(key, 0), above)
                self._notes.pop(key, None)
            finally:
                self._busy = False
        return Counter(namespaced_name=key, last_max_id=max_id)

    async def aclose(self) -> None:
        """Keep the counters: what shares this store goes on with them."""

    def _forget(self) -> None:
        self._busy = False
        self._lock = threading.RLock()  # another thread of the parent's may have held the old one

    def _refuse_child(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(
                "the memory store", remedy="use a store that both processes can reach"
            )


_SHARED = MemoryStore()
