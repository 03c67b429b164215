"""The rules of machine ids for operators: mark, forget, set the width, repair.

As `_rules`, each function reads a `Snapshot` and returns a `Decision`, and is pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..abc import MachineMarker
from ..abc.machines import bits_in_use
from ..errors import InvalidArgumentError
from .cells import Changes, Marker, NamespaceCount, Need, Note, Owner, Space
from .losses import (
    Asker,
    Decision,
    examine,
    is_known,
    is_uncounted,
    missing_namespaces,
    refused,
    remembering,
    sound_space,
    space_written,
)
from .rules import (
    MOST_AHEAD_MS,
    MOST_SKEW_MS,
    RELEASE_STAMP_MARGIN,
    holders_of,
    list_machines,
    need_whole,
    recount,
)

if TYPE_CHECKING:
    from .cells import Snapshot

__all__ = ("forget", "is_used", "mark", "mark_store", "repair", "set_bits")


def repair(snapshot: Snapshot, asker: Asker, *, clock_ms: int) -> Decision:
    """Lower the floors of free ids that are so far ahead that only a wrong clock can be the cause.

    Then the next owner begins a minute ahead of now.  Answers what was too far ahead, as it was; an
    id that is held was left alone, because its holder issues ids up to its mark.

    Args:
        snapshot: complete.
        asker: the caller, an operator.
        clock_ms: the wall clock, for stores that have none.
    """
    if not snapshot.is_complete:
        return Decision(need=need_whole(asker))
    now_ms = max(snapshot.now_ms, clock_ms) + MOST_SKEW_MS
    far_ms = now_ms + MOST_AHEAD_MS + RELEASE_STAMP_MARGIN
    spoilt = {number: seat for number, seat in snapshot.seats.items() if seat.floor_ms > far_ms}
    changes = Changes()
    for number, seat in spoilt.items():
        if seat.is_held:
            continue
        note = seat.note
        if note is not None:
            note = replace(note, mark_ms=min(note.mark_ms, now_ms), turn=note.turn + 1)
        owners = tuple(Owner("", min(each.stamp_ms, now_ms)) for each in seat.owners)
        changes.seats[number] = replace(seat, owners=owners, note=note)
    return Decision(changes, [*list_machines(replace(snapshot, seats=spoilt))])


def set_bits(snapshot: Snapshot, asker: Asker, bits: int, region_code: int = 1) -> Decision:
    """Change the width and the region, if no id is held.

    All seats and the count are written unchanged, so that the commit fails if an id is taken
    meanwhile.
    """
    if not snapshot.is_complete or is_uncounted(snapshot):
        return Decision(need=need_whole(asker))
    space = snapshot.space or Space()
    if (space.bits, space.region_code) == (bits, region_code):
        return Decision()
    found = examine(snapshot, asker)
    if found.left_ms:
        return refused(snapshot, found)
    if any(seat.is_held for seat in snapshot.seats.values()):
        holders = holders_of(snapshot)
        return Decision(error=bits_in_use(snapshot.namespace, found.space.bits or None, holders))
    changes = Changes(space=replace(found.space, bits=bits, region_code=region_code))
    for number, seat in snapshot.seats.items():
        note = seat.note or Note()
        changes.seats[number] = replace(seat, note=replace(note, turn=note.turn + 1))
    recount(snapshot, changes, is_anew=True)
    return Decision(changes)


def is_used(snapshot: Snapshot) -> bool:
    """Return whether a process ever held a machine id of the namespace, as far as is known.

    One that has only asked for one, and was refused, has left the namespace's cell.
    """
    space = snapshot.space
    was_marked = space is not None and not space.is_new
    return bool(snapshot.seats or snapshot.damages or snapshot.count or was_marked)


def mark_store(snapshot: Snapshot, asker: Asker, *, after_loss: bool = False) -> Decision:
    """Write the store's marker, which says that it has lost nothing in any namespace.

    Every namespace is sound from then on, and running quarantines end.

    Args:
        snapshot: one of any namespace.
        asker: its nonce becomes the marker's id.
        after_loss: only allow that counters are created; the machine ids of all namespaces are in
            quarantine from then on.
    """
    if snapshot.counted == -1:
        return Decision(need=Need(namespaces=True))
    changes = Changes(marker=Marker("" if after_loss else snapshot.identity, asker.nonce))
    if snapshot.counted is not None:
        changes.namespaces = NamespaceCount(snapshot.counted)
    return Decision(changes)


def forget(snapshot: Snapshot) -> Decision:
    """Stop to miss a namespace whose cells were removed, on an operator's command.

    Args:
        snapshot: that namespace's, complete.
    """
    if not snapshot.is_complete or snapshot.counted == -1:
        return Decision(need=Need(is_complete=True, namespaces=True))
    number, name = missing_namespaces(snapshot), snapshot.namespace
    if snapshot.count is not None or any(seat.is_held for seat in snapshot.seats.values()):
        expected = f"one whose machine ids were removed from the store; {name!r} still has some"
        return Decision(error=InvalidArgumentError("namespace", name, expected=expected))
    if number <= 0 or snapshot.namespaces is None:
        return Decision(answer=False)
    counted = NamespaceCount(snapshot.namespaces.number - 1)
    return Decision(Changes(namespaces=counted), answer=True)


def mark(snapshot: Snapshot, asker: Asker, *, is_new: bool) -> Decision:
    """Mark one namespace as complete, whatever the store's marker says.

    Args:
        snapshot: complete.
        asker: the caller; its safe guard is the longest known one, 0 for none.
        is_new: mark it again even if it is marked, and end a quarantine.
    """
    is_uncounted = snapshot.counted == -1 and snapshot.count is None
    if not snapshot.is_complete or is_uncounted:
        return Decision(need=need_whole(asker))
    is_there = snapshot.space is not None or snapshot.is_marked
    if is_there and not is_new:
        return _look_at_marker(snapshot, asker)
    changes = Changes(space=sound_space(snapshot, guard_ms=asker.guard_ms))
    recount(snapshot, changes, is_anew=True)
    return Decision(changes, MachineMarker(namespace=snapshot.namespace, is_new=True))


def _look_at_marker(snapshot: Snapshot, asker: Asker) -> Decision:
    runs = is_known(snapshot) and bool((snapshot.space or Space()).quarantine)
    # A caller that holds no id does not prolong a running quarantine.
    found = examine(snapshot, replace(asker, guard_ms=0) if runs else asker)
    space = found.space
    if not found.left_ms:
        space = remembering(space, asker.guard_ms)
    changes = Changes(space=space_written(snapshot, space))
    if found.is_recounted:
        recount(snapshot, changes, is_anew=True)
    marker = MachineMarker(namespace=snapshot.namespace, seconds_left=found.left_ms / 1000)
    return Decision(changes, marker, is_alarm=found.is_alarm)
