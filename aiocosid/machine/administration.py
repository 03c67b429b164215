"""The rules of machine ids for operators: initialize, forget, set the width, repair.

Like those in `rules`, each function is pure: it reads a `Snapshot` and returns a `Decision`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..abc import MachineMarker
from ..abc.machines import bits_in_use
from ..errors import InvalidArgumentError
from .cells import (
    Changes,
    MachineRecord,
    Marker,
    NamespaceCount,
    NamespaceRecord,
    Owner,
    ReadRequest,
)
from .losses import (
    Caller,
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


def repair(snapshot: Snapshot, caller: Caller, *, clock_ms: int) -> Decision:
    """Lower the floors of free ids that are so far ahead that only a wrong clock can be the cause.

    The next owner then begins a minute ahead of now.  The answer lists all ids that were too far
    ahead, with their old floors.  A held id is left unchanged, because its holder issues ids up to
    its fence.

    Args:
        snapshot: complete.
        caller: the caller, an operator.
        clock_ms: the wall clock, for stores that have none.
    """
    if not snapshot.is_complete:
        return Decision(need=need_whole(caller))
    now_ms = max(snapshot.now_ms, clock_ms) + MOST_SKEW_MS
    far_ms = now_ms + MOST_AHEAD_MS + RELEASE_STAMP_MARGIN
    spoilt = {number: slot for number, slot in snapshot.slots.items() if slot.floor_ms > far_ms}
    changes = Changes()
    for number, slot in spoilt.items():
        if slot.is_held:
            continue
        record = slot.record
        if record is not None:
            record = replace(
                record, fence_ms=min(record.fence_ms, now_ms), version=record.version + 1
            )
        owners = tuple(Owner("", min(each.stamp_ms, now_ms)) for each in slot.owners)
        changes.slots[number] = replace(slot, owners=owners, record=record)
    return Decision(changes, [*list_machines(replace(snapshot, slots=spoilt))])


def set_bits(snapshot: Snapshot, caller: Caller, bits: int, region_code: int = 1) -> Decision:
    """Change the width and the region, if no id is held.

    All slots and the count are rewritten, so that the commit fails if an id is taken meanwhile.
    """
    if not snapshot.is_complete or is_uncounted(snapshot):
        return Decision(need=need_whole(caller))
    space = snapshot.space or NamespaceRecord()
    if (space.bits, space.region_code) == (bits, region_code):
        return Decision()
    found = examine(snapshot, caller)
    if found.left_ms:
        return refused(snapshot, found)
    if any(slot.is_held for slot in snapshot.slots.values()):
        holders = holders_of(snapshot)
        return Decision(error=bits_in_use(snapshot.namespace, found.space.bits or None, holders))
    changes = Changes(space=replace(found.space, bits=bits, region_code=region_code))
    for number, slot in snapshot.slots.items():
        record = slot.record or MachineRecord()
        changes.slots[number] = replace(slot, record=replace(record, version=record.version + 1))
    recount(snapshot, changes, in_full=True)
    return Decision(changes)


def is_used(snapshot: Snapshot) -> bool:
    """Return whether a process ever held a machine id of the namespace, as far as is known.

    The namespace's cell alone proves nothing: a process whose request was refused has left it.
    """
    space = snapshot.space
    was_marked = space is not None and not space.is_new
    return bool(snapshot.slots or snapshot.damages or snapshot.count or was_marked)


def mark_store(snapshot: Snapshot, caller: Caller, *, after_loss: bool = False) -> Decision:
    """Write the store's marker, which says that the store has lost nothing in any namespace.

    From then on every namespace is sound, and running quarantines end.

    Args:
        snapshot: a snapshot of any namespace.
        caller: its nonce becomes the marker's id.
        after_loss: only allow that counters are created; the machine ids of all namespaces are in
            quarantine from then on.
    """
    if snapshot.counted == -1:
        return Decision(need=ReadRequest(namespaces=True))
    changes = Changes(marker=Marker("" if after_loss else snapshot.identity, caller.nonce))
    if snapshot.counted is not None:
        changes.namespaces = NamespaceCount(snapshot.counted)
    return Decision(changes)


def forget(snapshot: Snapshot) -> Decision:
    """Stop counting a namespace whose cells were removed as missing, on an operator's command.

    Args:
        snapshot: that namespace's, complete.
    """
    if not snapshot.is_complete or snapshot.counted == -1:
        return Decision(need=ReadRequest(is_complete=True, namespaces=True))
    number, name = missing_namespaces(snapshot), snapshot.namespace
    if snapshot.count is not None or any(slot.is_held for slot in snapshot.slots.values()):
        rule = "still has machine ids in the store; remove them first"
        return Decision(error=InvalidArgumentError("namespace", name, rule))
    if number <= 0 or snapshot.namespaces is None:
        return Decision(answer=False)
    counted = NamespaceCount(snapshot.namespaces.number - 1)
    return Decision(Changes(namespaces=counted), answer=True)


def mark(snapshot: Snapshot, caller: Caller, *, confirm_no_holders: bool) -> Decision:
    """Declare one namespace complete, whatever the store's marker says.

    Args:
        snapshot: complete.
        caller: the caller; its safe guard is the longest known one, 0 for none.
        confirm_no_holders: declare it again even if that was done, and end a quarantine.
    """
    is_uncounted = snapshot.counted == -1 and snapshot.count is None
    if not snapshot.is_complete or is_uncounted:
        return Decision(need=need_whole(caller))
    is_there = snapshot.space is not None or snapshot.is_marked
    if is_there and not confirm_no_holders:
        return _look_at_marker(snapshot, caller)
    changes = Changes(space=sound_space(snapshot, guard_ms=caller.guard_ms))
    recount(snapshot, changes, in_full=True)
    return Decision(changes, MachineMarker(namespace=snapshot.namespace, is_created=True))


def _look_at_marker(snapshot: Snapshot, caller: Caller) -> Decision:
    runs = is_known(snapshot) and bool((snapshot.space or NamespaceRecord()).quarantine)
    # A caller that holds no id does not prolong a running quarantine.
    found = examine(snapshot, replace(caller, guard_ms=0) if runs else caller)
    space = found.space
    if not found.left_ms:
        space = remembering(space, caller.guard_ms)
    changes = Changes(space=space_written(snapshot, space))
    if found.is_recounted:
        recount(snapshot, changes, in_full=True)
    marker = MachineMarker(namespace=snapshot.namespace, seconds_left=found.left_ms / 1000)
    return Decision(changes, marker, is_alarm=found.is_alarm)
