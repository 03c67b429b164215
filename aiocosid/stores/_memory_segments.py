"""Counters in this process's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _fork
from ..abc import MAX_ID, IdSegmentDistributor
from ..errors import IdOverflowError, WouldBlock
from ._arguments import check_step
from ._give_back import GrantRun

if TYPE_CHECKING:
    from .memory import MemoryStore

__all__ = ("MemorySegments",)


class MemorySegments(IdSegmentDistributor):
    """What `MemoryIdSegmentDistributor` does with a counter."""

    __slots__ = ("_counters", "_key", "_run", "_store")

    store = "memory"

    def __init__(
        self, memory: MemoryStore, *, namespace: str, name: str, offset: int, step: int
    ) -> None:
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        self._store = memory
        self._counters = memory._counters
        self._key = self.namespaced_name
        self._run = GrantRun()

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
            if store._busy:  # an eager task of a signal handler's, in the middle of a grant
                return 0
            try:
                store._busy = True
                nonce, top, base = store._notes.get(key, ("", 0, 0))
                if (nonce, top) != (offer.nonce, self._counters.get(key)) or base > offer.lower:
                    return 0
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
