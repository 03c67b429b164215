"""Counters in this process's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from .. import _fork
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID, IdSegmentDistributor
from ..errors import IdOverflowError, InvalidArgumentError, WouldBlock
from ._arguments import check_step
from ._give_back import GrantRun

if TYPE_CHECKING:
    from .memory import MemoryStore

__all__ = ("URLS", "MemoryIdSegmentDistributor")

URLS: Final = ("memory://", "memory:")
"""What names the store that all distributors of this process share."""


class MemoryIdSegmentDistributor(IdSegmentDistributor):
    """A counter in memory, shared by all distributors of the same store and name."""

    __slots__ = ("_counters", "_key", "_run", "_store")

    store = "memory"

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
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        self._store = _shared() if memory is None else memory
        self._counters = self._store._counters
        self._key = self.namespaced_name
        self._run = GrantRun()

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
        if url not in URLS:
            raise InvalidArgumentError("url", url, expected=URLS[0])
        return cls(namespace=namespace, name=name, offset=offset, step=step)

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`."""
        return self.next_max_id_nowait(step)  # nobody drives a coroutine in a signal handler

    def next_max_id_nowait(self, step: int) -> int:
        """Advance the counter without a suspension: it is in this process.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1.
            IdOverflowError: the counter would pass 2^63-1.
            WouldBlock: a signal handler or finalizer asks while the counters are being changed.
            ForkedError: the counter is the parent's; another process counts on it.
        """
        check_step(step)
        store, key = self._store, self._key
        if store._born != _fork.generation:
            store._refuse_child()
        with store._lock:
            if store._busy:  # in this very thread, between two of these lines
                raise WouldBlock
            try:
                store._busy = True
                max_id = self._counters.get(key, self.offset) + step
                if max_id > MAX_ID:
                    raise IdOverflowError(key, limit=MAX_ID)
                self._counters[key] = max_id
                if self._run.is_noted:
                    self._note(max_id, max_id - step)
            finally:
                store._busy = False
        return max_id

    def _note(self, max_id: int, base: int) -> None:
        note, notes = self._run.note(), self._store._notes
        nonce, top, begun_at = notes.get(self._key, ("", 0, 0))
        if nonce == note.previous != "" and top == base:
            base = begun_at
        notes[self._key] = note.nonce, max_id, base
        self._run.granted(note, max_id, base)

    def allow_give_back(self) -> bool:
        """Have every grant from now on noted: this store takes ids back."""
        self._run.is_noted = True
        return True

    async def give_back(self, max_id: int, unused: int) -> int:
        """Lower the counter; see `aiocosid.abc.IdSegmentDistributor.give_back`.

        Raises:
            ForkedError: the counter is the parent's.
        """
        store, key = self._store, self._key
        store._refuse_child()
        offer = self._run.offer(max_id, unused)
        if offer is None:
            return 0
        with store._lock:
            nonce, top, base = store._notes.get(key, ("", 0, 0))
            if (nonce, top) != (offer.nonce, self._counters.get(key)) or base > offer.lower:
                return 0
            try:
                store._busy = True
                self._counters[key] = offer.lower
                del store._notes[key]
            finally:
                store._busy = False
        return max_id - offer.lower

    async def aopen(self) -> None:
        """Refuse a forked child: it would count on from where the parent was.

        Raises:
            ForkedError: the counter is the parent's.
        """
        self._store._refuse_child()


def _shared() -> MemoryStore:
    from .memory import MemoryStore  # noqa: PLC0415 - it imports us

    return MemoryStore.from_url(URLS[0])
