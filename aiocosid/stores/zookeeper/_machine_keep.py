"""How an instance keeps a machine id, asserts it in a quarantine, and gives it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ._machine_nodes import Noted
from ._machine_texts import (
    Claim,
    Entry,
    Note,
    count_data,
    count_of,
    next_floor,
    state_data,
)
from ._nodes import delete, write

if TYPE_CHECKING:
    from ...abc import InstanceId
    from ._machine_nodes import Look, MachineNodes
    from ._nodes import Change, Nodes

__all__ = (
    "NEVER",
    "NOTHING",
    "TAKEN_AWAY",
    "Lost",
    "Sign",
    "Taken",
    "Written",
    "give_back",
    "keep",
)

TAKEN_AWAY: Final = -2
"""Instead of the time of the last id: its owner may go on until its mark."""


class Taken(NamedTuple):
    """What a call was handed, to be told once more.

    Attributes:
        machine_id: the id; -1 for none.
        born_ms: when we asked for it, by our clock.
        bits: the width of the namespace.
    """

    machine_id: int
    born_ms: int
    bits: int


NOTHING: Final = Taken(-1, -1, 0)


class Written(NamedTuple):
    """When the server has noted last that an id is ours.

    Attributes:
        transaction: its number; 0 for none.
        seen_ms: the server's clock; -1 for never.
    """

    transaction: int
    seen_ms: int


NEVER: Final = Written(0, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A sign of life.

    Attributes:
        who: who gives it.
        machine_id: for which id.
        now_ms: its wall clock.
        mark_ms: no id with a later time will be issued before the next one.
        token: of the call that was handed the id; empty if that is not known.
        guard_ms: the safe guard.
        taken: what may be asserted.
        written: when we know that the id was noted to be ours.
    """

    who: InstanceId
    machine_id: int
    now_ms: int
    mark_ms: int
    token: str
    guard_ms: int
    taken: Taken
    written: Written


class Lost(NamedTuple):
    """That the id is not ours.

    Attributes:
        holder: who has it; empty if nobody.
    """

    holder: str


@dataclass(slots=True)
class _Held:
    """What was read of an instance and an id: the entry, the note, what lies in the pool."""

    look: Look
    own: Entry | None
    noted: Noted
    pooled: Entry | None


async def _read(nodes: Nodes, at: MachineNodes, instance: str, machine_id: int) -> _Held:
    paths = at.entry(instance), at.note(machine_id), at.pooled(machine_id)
    look = await at.look(nodes, *paths)
    entry, note, pooled = look.nodes
    return _Held(
        look,
        Entry.of(paths[0], entry, instance) if entry and entry.data else None,
        Noted(paths[1], note, Note.of(paths[1], note)),
        Entry.of(paths[2], pooled) if pooled else None,
    )


async def keep(nodes: Nodes, at: MachineNodes, sign: Sign) -> Written | Lost | None:
    """Raise the stamp and the mark; in a quarantine assert the id, if that is allowed.

    Returns:
        When it was written, or that the id is lost; None if somebody else was faster.

    Raises:
        MachineIdQuarantineError: the tree may have forgotten that somebody else has the id.
        CorruptMachineStateError: a node is damaged; nothing was written.
    """
    held = await _read(nodes, at, sign.who.text, sign.machine_id)
    node, marker = held.noted.node, held.look.marker
    is_old = node is None or node.changed < sign.written.transaction
    if sign.taken is not NOTHING and marker.since_ms is None and is_old:
        # What the server has confirmed to us is not there: it was put back to an older state.
        marker.identity = ""
    left = await at.quarantine(nodes, held.look, sign.guard_ms)
    if left is None:
        return None
    if left:
        if sign.taken is NOTHING:
            raise at.quarantined(left)
        done = await _Asserting(nodes, at, sign, held).run()
    else:
        done = await _renew(nodes, at, sign, held)
    return Written(done, held.look.clock_ms) if isinstance(done, int) else done


async def _renew(nodes: Nodes, at: MachineNodes, sign: Sign, held: _Held) -> int | Lost | None:
    own, noted = held.own, held.noted
    if own is None or own.machine_id != sign.machine_id or not noted.note.is_latest(sign.token):
        entries = await at.all_entries(nodes)
        holders = (each.instance for each in entries if each.machine_id == sign.machine_id)
        return Lost(next(holders, ""))
    stamp_ms = max(own.stamp_ms, sign.now_ms)
    held.look.marker.remember(sign.guard_ms)
    _raise(noted.note, sign, held.look)
    return await nodes.commit(
        write(own.path, state_data(own.machine_id, stamp_ms), own.node),
        noted.change(),
        at.seen(held.look),
    )


def _raise(note: Note, sign: Sign, look: Look) -> None:
    note.seen_ms = look.clock_ms
    note.mark_ms = max(note.mark_ms, sign.mark_ms)


class _Asserting:
    """One attempt to have the tree know again what it may have forgotten."""

    def __init__(self, nodes: Nodes, at: MachineNodes, sign: Sign, held: _Held) -> None:
        self._nodes = nodes
        self._at = at
        self._sign = sign
        self._held = held
        self._marker = held.look.marker
        self._claim = Claim(sign.taken.born_ms, sign.token, sign.who.text)
        self._changes: list[Change] = []

    async def run(self) -> int | Lost | None:
        """Write all of it, unless somebody has a better claim."""
        others = [
            each
            for each in await self._at.all_entries(self._nodes)
            if each.path != self._at.entry(self._sign.who.text)
        ]
        rival = self._better_claim() or self._handed_since() or self._living_peer(others)
        if rival is not None:
            return Lost(rival)
        mine = [each for each in others if each.machine_id == self._sign.machine_id]
        self._changes += (delete(each.path, each.node) for each in mine)
        await self._let_go_of_another(others)
        await self._count()
        self._take(max((each.stamp_ms for each in mine), default=-1))
        return await self._nodes.commit(*self._changes)

    def _better_claim(self) -> str | None:
        for number, claim in self._marker.claims.items():
            is_rival = number == self._sign.machine_id or claim.instance == self._claim.instance
            if is_rival and claim.stands_against(self._claim):
                return claim.instance
        return None

    def _handed_since(self) -> str | None:
        """Return who was handed the id since we were heard of: by a tree that had forgotten us.

        It goes on until its own next sign of life, and we are silent: our session was interrupted.
        """
        note, claim = self._held.noted.note, self._marker.claims.get(self._sign.machine_id)
        if note.token in {"", self._sign.token, claim.token if claim else ""}:
            return None  # who has asserted it is judged by that
        return note.holder if note.seen_ms >= self._sign.written.seen_ms else None

    def _living_peer(self, others: list[Entry]) -> str | None:
        """Return CosId's process that holds the id; it sees no quarantine, and would not yield."""
        claim = self._marker.claims.get(self._sign.machine_id)
        since_ms = self._marker.since_ms or 0
        for each in others:
            if each.machine_id != self._sign.machine_id:
                continue
            has_claimed = claim is not None and claim.instance == each.instance
            is_unknown = not self._held.noted.note.token
            if not has_claimed and (is_unknown or each.stamp_ms >= since_ms):
                return each.instance
        return None

    async def _let_go_of_another(self, others: list[Entry]) -> None:
        """Give back what an earlier life held, of which the tree was restored."""
        own = self._held.own
        if own is None or own.machine_id == self._sign.machine_id:
            return
        noted = (await self._at.notes_on(self._nodes, own.machine_id))[own.machine_id]
        floor_ms = next_floor(own.stamp_ms, noted.note.mark_ms)
        noted.note.is_stable, noted.note.seen_ms = False, -1
        self._changes.append(noted.change())
        self._marker.claims.pop(own.machine_id, None)
        if all(each.machine_id != own.machine_id for each in others):
            path = self._at.pooled(own.machine_id)
            (node,) = await self._nodes.get(path)
            self._changes.append(write(path, state_data(own.machine_id, floor_ms), node))

    async def _count(self) -> None:
        """Have CosId's count be above the id, or it would not know that it is held."""
        machine_id = self._sign.machine_id
        (node,) = await self._nodes.get(self._at.counter)
        count = count_of(self._at.counter, node)
        self._marker.fill(machine_id)
        if machine_id >= count:
            self._marker.leave_out(count, machine_id - 1)
            self._changes.append(write(self._at.counter, count_data(machine_id + 1), node))

    def _take(self, highest_ms: int) -> None:
        sign, held = self._sign, self._held
        if held.pooled is not None:
            self._changes.append(delete(held.pooled.path, held.pooled.node))
            highest_ms = max(highest_ms, held.pooled.stamp_ms)
        if held.own is not None and held.own.machine_id == sign.machine_id:
            highest_ms = max(highest_ms, held.own.stamp_ms)
        note = held.noted.note
        _raise(note, sign, held.look)
        note.token, note.holder, note.is_stable = sign.token, sign.who.text, sign.who.stable
        self._marker.claims[sign.machine_id] = self._claim
        self._marker.bits = sign.taken.bits
        state = state_data(sign.machine_id, max(highest_ms, sign.now_ms))
        self._changes += (
            write(
                self._at.entry(sign.who.text),
                state,
                None if held.own is None else held.own.node,
            ),
            held.noted.change(),
            self._at.marked(held.look),
        )


async def give_back(
    nodes: Nodes,
    at: MachineNodes,
    *,
    instance: str,
    machine_id: int,
    last_ms: int,
    is_stable: bool,
    token: str,
) -> bool | None:
    """Give an id back, if the instance still holds it; a stable one stays its owner.

    Args:
        nodes: the tree.
        at: where the namespace lies.
        instance: who holds it.
        machine_id: the id.
        last_ms: no id was issued with a later time; -1: none at all; or `TAKEN_AWAY`.
        is_stable: whether it stays the owner.
        token: of the call that was handed the id; empty if that is not known.

    Returns:
        Whether it was ours to give; None if somebody else was faster.

    Raises:
        CorruptMachineStateError: a node is damaged; nothing was written.
    """
    held = await _read(nodes, at, instance, machine_id)
    own, note, marker = held.own, held.noted.note, held.look.marker
    if own is None or own.machine_id != machine_id or not note.is_latest(token):
        return False
    # Never below an issued id, for the next owner may be CosId's, who knows no mark.
    stamp_ms = max(own.stamp_ms, last_ms)
    if last_ms == TAKEN_AWAY:
        stamp_ms = next_floor(own.stamp_ms, note.mark_ms)
    if 0 <= last_ms < note.mark_ms:
        note.mark_ms = last_ms
    changes = [held.noted.change()]
    if is_stable:
        changes.append(write(own.path, state_data(machine_id, stamp_ms), own.node))
    else:
        note.is_stable, note.seen_ms = False, -1
        marker.claims.pop(machine_id, None)
        changes = [held.noted.change(), delete(own.path, own.node)]
        changes.append(_pooled(at, held.pooled, machine_id, stamp_ms))
    if held.look.marker_node is not None:
        changes.append(at.marked(held.look))
    return None if await nodes.commit(*changes) is None else True


def _pooled(at: MachineNodes, before: Entry | None, machine_id: int, stamp_ms: int) -> Change:
    """Have an id lie in the pool, with the higher stamp."""
    if before is None:
        return write(at.pooled(machine_id), state_data(machine_id, stamp_ms), None)
    return write(before.path, state_data(machine_id, max(stamp_ms, before.stamp_ms)), before.node)
