"""What the registries on a server have in common: one time beside each number is the fence."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ... import _fork
from ..._uncopied import Uncopied
from ...abc import InstanceId, MachineGrant, MachineIdDistributor
from ...abc._ids import check_integer
from ...abc._machine import check_machine_bits
from ...errors import ForkedError, MachineIdLostError
from ...stores._arguments import MAX_MS
from ._stamps import LIVES, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ._place import Place

__all__ = ("INTERVAL", "Entry", "StampedMachineIdDistributor")

INTERVAL: Final = 3.0
"""Seconds; Leaf reports its time as often."""

At = TypeVar("At")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A worker id as it was read.

    Attributes:
        worker_id: the number.
        stamp: the time beside it; -1 if there is none.
        owner: ``ip:port`` of who holds it; empty if nobody does.
        about: where it lies, for whoever writes it.
    """

    worker_id: int
    stamp: int
    owner: str
    about: Any = None


class StampedMachineIdDistributor(Uncopied, MachineIdDistributor, Generic[At]):
    """A worker id in one of Leaf's registries; see `_stamps` for how it is fenced.

    ``At`` is what an attempt works on: the tree, or the database.
    """

    __slots__ = ("_born", "_floor_ms", "_life", "_place", "_stamps", "_worker_id")

    is_leased = False

    def _describe(self, place: Place, *, namespace: str, safe_guard: float = inf) -> None:
        super().__init__(
            namespace=namespace,
            instance_id=InstanceId(str(place), stable=True),
            safe_guard=safe_guard,
            interval=INTERVAL,
        )
        self._place = place
        self._born = _fork.generation
        self._forget()

    def _forget(self) -> None:
        self._worker_id = self._floor_ms = self._life = -1
        self._stamps: set[int] = set()  # those of ours, one of which lies there if it is ours still

    # What a registry does.

    @abstractmethod
    async def _run(self, attempt: Callable[[At], Coroutine[Any, Any, T | None]]) -> T:
        """Run an attempt until it returns something: None means that others were faster."""

    @abstractmethod
    async def _take(
        self, at: At, bits: int, now_ms: int, latest_ms: int
    ) -> tuple[Entry, int] | None:
        """Find an entry, and claim it; return it as it was, and the claim."""

    @abstractmethod
    async def _read(self, at: At, worker_id: int) -> Entry | None:
        """Read an entry; None if there is none."""

    @abstractmethod
    async def _write(self, at: At, entry: Entry, new: int) -> bool:
        """Replace the time of an entry of ours that was read; False if it has changed since."""

    async def _let_go(self, at: At, entry: Entry, new: int) -> bool:
        """Write the last time; False if the entry has changed since."""
        return await self._write(at, entry, new)

    # The contract.

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a worker id; its floor is the time that is stored beside it.

        The address's own if there is one.  A life before us under the same address has lost it
        then, and hears so at its next sign of life; ours are above all times that it may use.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            LeafWorkerIdsUsedUpError: its number does not fit ``bits``.
            MachineIdOverflowError: all of a pool are held.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreError: the store refuses or cannot be reached.
            ForkedError: the address is the parent's.
        """
        check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        self._ensure_own()

        async def attempt(at: At) -> tuple[Entry, int] | None:
            return await self._take(at, bits, now_ms, latest_ms)

        entry, claimed = await self._run(attempt)
        self._ensure_own()
        self._worker_id, self._life, self._stamps = entry.worker_id, claimed, {claimed}
        self._floor_ms = entry.stamp
        return MachineGrant(entry.worker_id, entry.stamp)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Raise the stored time to the mark; it is never lowered by this.

        Leaf writes its clock.  The mark is ahead of it, so that a Leaf node that starts under our
        address after a crash waits for it.

        Raises:
            MachineIdLostError: somebody else has it; nothing was written.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the entry is damaged; nothing was written.
            StoreError: the store refuses or cannot be reached.
            ForkedError: the address is the parent's.
        """
        check_integer("machine_id", machine_id, at_least=0)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS - LIVES)
        self._ensure_own()
        if machine_id != self._worker_id:
            raise self._lost(machine_id, "this object does not hold it")

        async def attempt(at: At) -> bool | None:
            entry = self._check_ours(machine_id, await self._read(at, machine_id), now_ms)
            new = stamp(self._life, max(now_ms, mark_ms, entry.stamp + 1))
            stamps = self._stamps
            stamps.add(new)  # it may be written although no answer comes
            if not await self._write(at, entry, new):
                return None
            if stamps is self._stamps:  # else it was taken anew meanwhile
                self._stamps = {new}
            return True

        await self._run(attempt)
        self._ensure_own()

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Lower the stored time to the last that was used; nothing if it is not ours any more.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            StoreError: the store refuses or cannot be reached.
        """
        check_integer("machine_id", machine_id, at_least=0)
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS - LIVES)
        if self._born != _fork.generation or machine_id != self._worker_id:
            return
        stamps, floor_ms, life = self._stamps, self._floor_ms, self._life

        async def attempt(at: At) -> bool | None:
            entry = await self._read(at, machine_id)
            if entry is None or not self._is_ours(entry, stamps):
                return True
            least = entry.stamp if last_ms < 0 else max(last_ms, floor_ms)
            return await self._let_go(at, entry, stamp(life, least)) or None

        await self._run(attempt)
        if stamps is self._stamps:
            self._forget()

    def _is_ours(self, entry: Entry, stamps: set[int]) -> bool:
        return entry.owner == str(self._place) and entry.stamp in stamps

    def _is_silent(self, entry: Entry, now_ms: int) -> bool:  # noqa: ARG002 - most are for good
        """Whether others may take it over by now, and leave our time in it while they do."""
        return False

    def _check_ours(self, worker_id: int, entry: Entry | None, now_ms: int) -> Entry:
        if entry is None:
            raise self._lost(worker_id, "its entry is gone")
        if entry.owner != str(self._place):
            raise self._lost(worker_id, f"{entry.owner or 'nobody'} holds it")
        if entry.stamp not in self._stamps:
            raise self._lost(worker_id, f"another process goes by {self._place}, too")
        if self._is_silent(entry, now_ms):
            raise self._lost(worker_id, "it was silent for so long that others may take it over")
        return entry

    def _lost(self, worker_id: int, reason: str) -> MachineIdLostError:
        return MachineIdLostError(self.namespace, worker_id, reason=reason)

    def _ensure_own(self) -> None:
        if self._born != _fork.generation:
            remedy = "make a distributor with another port in this process"
            raise ForkedError(repr(self), remedy=remedy)
