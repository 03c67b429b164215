"""How an instance takes a machine id."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from ...abc import MachineGrant
from ...abc._machine import check_same_bits
from ...errors import MachineIdOverflowError
from ._machine_keep import Written
from ._machine_texts import ENDLESS, Entry, count_data, count_of, next_floor, state_data
from ._nodes import delete, write

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ...abc import InstanceId
    from ._machine_nodes import Look, MachineNodes, Noted
    from ._nodes import Change, Nodes

__all__ = ("Asked", "take")

HOLDERS_NAMED: Final = 5
BATCH: Final = 32  # of those given back, looked at together


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What `distribute` is asked for.

    Attributes:
        who: who asks.
        bits: the width of the machine id.
        now_ms: its wall clock.
        latest_ms: an id with a later floor is taken only if there is no other.
        guard_ms: the safe guard; `ENDLESS` for ever.
        token: of this call.
    """

    who: InstanceId
    bits: int
    now_ms: int
    latest_ms: int
    guard_ms: int
    token: str


@dataclass(slots=True)
class Candidate:
    """A machine id that may be taken.

    Attributes:
        machine_id: the number.
        stamp_ms: the former owner's last sign of life; -1 for a new one.
        noted: what is noted of it.
        changes: what has to be written so that it is nobody else's.
    """

    machine_id: int
    stamp_ms: int
    noted: Noted
    changes: list[Change] = field(default_factory=list["Change"])

    @property
    def floor_ms(self) -> int:
        """Above which time the ids have to be."""
        return max(self.stamp_ms, self.noted.note.mark_ms)


class _Taking:
    """One attempt: what is there, what is best, and what that changes."""

    def __init__(self, nodes: Nodes, at: MachineNodes, asked: Asked, look: Look) -> None:
        self._nodes = nodes
        self._at = at
        self._asked = asked
        self._look = look
        self._path = at.entry(asked.who.text)
        self._node, self._counter, self._pool = look.nodes
        self._size = 1 << asked.bits
        self._best: Candidate | None = None
        self._own: Candidate | None = None
        self._holders: list[str] = []  # of a pool that is full

    async def best(self) -> Candidate | None:
        """Return the first that need not wait, else the one that has to wait least."""
        if self._node is not None and self._node.data:
            entry = Entry.of(self._path, self._node)
            (self._own,) = await self._candidates(entry)
            if entry.machine_id < self._size:
                is_chosen = self._consider(self._own) or self._asked.who.stable
                if is_chosen:
                    return self._own
        async with aclosing(self._others()) as others:  # else a task of the loop's would do it
            async for candidate in others:
                if self._consider(candidate):
                    break
        return self._best

    def _consider(self, candidate: Candidate) -> bool:
        """Remember a candidate if it is the best so far; tell whether the search is over."""
        is_early = candidate.floor_ms <= self._asked.latest_ms
        if is_early or self._best is None or candidate.floor_ms < self._best.floor_ms:
            self._best = candidate
        return is_early

    async def _others(self) -> AsyncGenerator[Candidate]:
        """Give what might be taken, in CosId's order: given back, new, expired."""
        numbers = await self._at.pooled_numbers(self._nodes) if self._has_pool else []
        numbers = [each for each in numbers if each < self._size]
        for start in range(0, len(numbers), BATCH):
            for candidate in await self._given_back(numbers[start : start + BATCH]):
                yield candidate
        if (new := await self._new()) is not None:
            yield new
        for candidate in await self._expired():
            yield candidate

    @property
    def _has_pool(self) -> bool:
        return self._pool is not None and self._pool.children > 0

    async def _candidates(self, *entries: Entry) -> list[Candidate]:
        noted = await self._at.notes_on(self._nodes, *(each.machine_id for each in entries))
        return [
            Candidate(each.machine_id, each.stamp_ms, noted[each.machine_id]) for each in entries
        ]

    async def _given_back(self, numbers: list[int]) -> list[Candidate]:
        paths = [self._at.pooled(each) for each in numbers]
        read = zip(paths, await self._nodes.get(*paths), strict=True)
        pooled = [Entry.of(path, node) for path, node in read if node is not None]
        found = await self._candidates(*pooled)
        for candidate, entry in zip(found, pooled, strict=True):
            candidate.changes.append(delete(entry.path, entry.node))
        held = await self._held(found)
        return [each for each in found if each.machine_id not in held]

    async def _held(self, candidates: list[Candidate]) -> set[int]:
        """Return which of them are held after all, by one of ours; damage, or our own."""
        paths = [self._at.entry(each.noted.note.holder or "-") for each in candidates]
        read = zip(candidates, paths, await self._nodes.get(*paths), strict=True)
        return {
            candidate.machine_id
            for candidate, path, node in read
            if node is not None and node.data
            if Entry.of(path, node).machine_id == candidate.machine_id
        }

    async def _new(self) -> Candidate | None:
        counted = count_of(self._at.counter, self._counter)
        for number in count(counted):
            if number >= self._size:
                break
            candidate = await self._unused(number)
            if candidate is not None:
                raised = write(self._at.counter, count_data(number + 1), self._counter)
                candidate.changes.append(raised)
                return candidate
        for first, last in sorted(self._look.marker.gaps):
            if first < self._size:
                return await self._unused(min(first, last))
        return None

    async def _unused(self, number: int) -> Candidate | None:
        noted = await self._at.notes_on(self._nodes, number)
        candidate = Candidate(number, -1, noted[number])
        return None if await self._held([candidate]) else candidate

    async def _expired(self) -> list[Candidate]:
        entries = await self._at.all_entries(self._nodes)
        others = [each for each in entries if each.path != self._path]
        self._holders = [each.instance for each in others]
        if self._asked.guard_ms == ENDLESS:
            return []
        # By the owner's clock, which may be slow, and by the server's, of which CosId's owners
        # know nothing.
        expires = self._look.clock_ms - self._asked.guard_ms
        alive = {each.machine_id for each in others if each.stamp_ms > expires}
        silent = [
            each for each in others if each.machine_id < self._size and each.machine_id not in alive
        ]
        found: dict[int, Candidate] = {}
        for entry, candidate in zip(silent, await self._candidates(*silent), strict=True):
            note = candidate.noted.note
            if note.seen_ms > expires or (note.is_stable and note.holder == entry.instance):
                alive.add(entry.machine_id)
            first = found.setdefault(entry.machine_id, candidate)
            first.stamp_ms = max(first.stamp_ms, entry.stamp_ms)
            first.changes.append(delete(entry.path, entry.node))
        return [found[each] for each in sorted(found.keys() - alive)]

    def full(self) -> MachineIdOverflowError:
        """Return the error when there is none."""
        holders = tuple(self._holders[:HOLDERS_NAMED])
        return MachineIdOverflowError(self._at.namespace, size=self._size, holders=holders)

    def changes(self, best: Candidate) -> list[Change]:
        """Return all that has to be written together."""
        asked, marker = self._asked, self._look.marker
        changes = best.changes
        if self._own is not None and self._own is not best:
            changes += self._give_back(self._own)
        marker.remember(asked.guard_ms)
        marker.bits = asked.bits
        marker.fill(best.machine_id)
        note = best.noted.note
        note.token, note.holder, note.is_stable = asked.token, asked.who.text, asked.who.stable
        note.seen_ms = self._look.clock_ms
        state = state_data(best.machine_id, max(best.stamp_ms, asked.now_ms))
        entry = write(self._path, state, self._node)
        return [*changes, entry, best.noted.change(), self._at.marked(self._look)]

    def _give_back(self, own: Candidate) -> Iterator[Change]:
        """Let our own go for a better one; its ids may be issued until its mark."""
        note = own.noted.note
        floor_ms = next_floor(own.stamp_ms, note.mark_ms)
        if note.holder in {"", self._asked.who.text}:  # else somebody has it by now
            note.is_stable, note.seen_ms = False, -1
            yield own.noted.change()
            state = state_data(own.machine_id, floor_ms)
            yield write(self._at.pooled(own.machine_id), state, None)


async def take(nodes: Nodes, at: MachineNodes, asked: Asked) -> tuple[MachineGrant, Written] | None:
    """Take a machine id in one transaction; None if somebody else was faster.

    Returns:
        The grant, and when it was written.

    Raises:
        MachineBitsMismatchError: another width is noted; nothing was written.
        MachineIdOverflowError: all are held.
        MachineIdQuarantineError: the tree may have forgotten who holds which.
        CorruptMachineStateError: a node is damaged; nothing was written.
    """
    look = await at.look(nodes, at.entry(asked.who.text), at.counter, at.pool)
    left = await at.quarantine(nodes, look, asked.guard_ms)
    if left is None:
        return None
    if left:
        raise at.quarantined(left)
    check_same_bits(at.namespace, asked.bits, look.marker.bits)
    taking = _Taking(nodes, at, asked, look)
    best = await taking.best()
    if best is None:
        raise taking.full()
    grant = MachineGrant(best.machine_id, best.floor_ms)
    done = await nodes.commit(*taking.changes(best))
    return None if done is None else (grant, Written(done, look.clock_ms))
