"""Whether a store has lost machine ids, and the quarantine that follows.

Each rule of `rules` examines the snapshot first.  Pure, as those rules are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ..abc import DEFAULT_SAFE_GUARD
from ..abc.machines import QUARANTINE_MARGIN
from ..errors import (
    CosIdError,
    MachineIdQuarantineError,
    StoreFormatError,
    StoreNotInitializedError,
)
from .cells import ENDLESS_MS, FORMAT, Changes, NamespaceRecord, ReadRequest

if TYPE_CHECKING:
    from .cells import Snapshot

__all__ = (
    "UNNAMED_MS",
    "Caller",
    "Decision",
    "Requester",
    "Soundness",
    "check_format",
    "doubt",
    "examine",
    "is_initialized",
    "is_known",
    "is_uncounted",
    "marker_id_of",
    "missing_namespaces",
    "noted_in",
    "quarantine_ms",
    "refused",
    "remembering",
    "sound_space",
    "space_written",
)

MARGIN_MS: Final = int(QUARANTINE_MARGIN * 1000)
UNNAMED_MS: Final = int(DEFAULT_SAFE_GUARD * 1000)
"""The safe guard assumed for a namespace in which no process has named one."""


@dataclass(frozen=True, slots=True)
class Requester:
    """An instance that requests something, perhaps through a server.

    Attributes:
        instance: the instance id.
        stable: whether the instance keeps its id when it is closed.
        guard_ms: its safe guard, `ENDLESS_MS` for no end; 0 for a caller that holds no id.
        owner: set by a server: names the access that a guest uses; empty without access control.
        is_guest: set by a server, which trusts a guest less than a process on the store itself.
        least_guard_ms: set by a server: milliseconds without a renewal before which no guest takes
            an id over.
        clock_ms: set by a server: its wall clock; not every store has a clock.
    """

    instance: str
    stable: bool = False
    guard_ms: int = 0
    owner: str = ""
    is_guest: bool = False
    least_guard_ms: int = 0
    clock_ms: int = -1


@dataclass(frozen=True, slots=True)
class Caller(Requester):
    """The caller of one call.

    Attributes:
        nonce: a fresh name, for a quarantine that begins with this call.
    """

    nonce: str = ""

    def signed(self, token: str) -> str:
        """Return a token as it is stored: it names the access of the guest that took the id."""
        return f"{token}@{self.owner}" if token and self.owner else token


@dataclass(slots=True)
class Decision:
    """What to write, and the caller's answer after the commit.

    Attributes:
        changes: what is written; if empty, nothing is.
        answer: the caller's result.
        error: raised instead of the answer; a refusal may also write something.
        need: what must be read before a decision is possible; then all other fields are void.
        is_alarm: whether a quarantine begins because something is missing.  The cells are first
            read once more, because CosId's peers on ZooKeeper write in two steps.
    """

    changes: Changes = field(default_factory=Changes)
    answer: Any = None
    error: CosIdError | None = None
    need: ReadRequest | None = None
    is_alarm: bool = False


@dataclass(slots=True)
class Soundness:
    """What follows from the marker, the count and the namespace's cell.

    Attributes:
        space: the namespace's cell as it should be.
        left_ms: milliseconds left of a quarantine; 0 if none runs, inf if it has no end.
        is_recounted: whether the machine ids must be counted again.
        is_alarm: whether a quarantine begins because something is missing.
    """

    space: NamespaceRecord
    left_ms: float = 0.0
    is_recounted: bool = False
    is_alarm: bool = False


def check_format(snapshot: Snapshot) -> None:
    """Raise `StoreFormatError` if another version of this library keeps its cells in the store."""
    if snapshot.marker is not None and snapshot.marker.format != FORMAT:
        raise StoreFormatError(snapshot.store, found=snapshot.marker.format, expected=FORMAT)


def marker_id_of(snapshot: Snapshot) -> str:
    """Return the id of the store's marker; empty without a marker."""
    return snapshot.marker.marker_id if snapshot.marker is not None else ""


def noted_in(snapshot: Snapshot, changes: Changes | None = None) -> int:
    """Return how many machine ids have a record of aiocosid, after these changes."""
    slots = snapshot.slots if changes is None else {**snapshot.slots, **changes.slots}
    return sum(
        slot.is_noted or (number in snapshot.moving and bool(slot.record and slot.record.token))
        for number, slot in slots.items()
    )


def is_known(snapshot: Snapshot) -> bool:
    """Whether the namespace's cell was written for the store as it is now."""
    space, marker_id = snapshot.space, marker_id_of(snapshot)
    return space is not None and space.marker_id == marker_id and snapshot.knows(space.identity)


def is_newly_initialized(snapshot: Snapshot) -> bool:
    """Whether the marker was written for this store after the namespace's cell."""
    space = snapshot.space
    return is_initialized(snapshot) and (space is None or space.marker_id != marker_id_of(snapshot))


def is_uncounted(snapshot: Snapshot) -> bool:
    """Whether the namespaces must be read: this one has no count, so it is new or was lost."""
    return snapshot.counted == -1 and snapshot.count is None and snapshot.marker is not None


def is_short(snapshot: Snapshot) -> bool:
    """Whether fewer machine ids, or fewer namespaces, are there than were counted."""
    counted = snapshot.count
    if counted is None:
        return missing_namespaces(snapshot) > 0
    if counted.marker_id != marker_id_of(snapshot):
        return False
    if snapshot.is_sample:  # an upper bound; a quarantine begins only when all ids were read
        return min(snapshot.cells, snapshot.records) < counted.ids
    # A damaged cell counts as held, and may be one of the missing ids.
    return snapshot.is_complete and noted_in(snapshot) + len(snapshot.damages) < counted.ids


def missing_namespaces(snapshot: Snapshot) -> int:
    """Return how many namespaces have lost their count."""
    counted, there = snapshot.namespaces, snapshot.counted
    return 0 if counted is None or there is None or there < 0 else counted.number - there


def quarantine_ms(space: NamespaceRecord) -> float:
    """Return the length of a quarantine in milliseconds; inf if a safe guard has no end."""
    guard_ms = space.guard_ms or UNNAMED_MS
    return inf if guard_ms >= ENDLESS_MS else guard_ms + MARGIN_MS


def examine(snapshot: Snapshot, caller: Caller) -> Soundness:
    """Check that nothing was lost; begin a quarantine if something was; end one that is over."""
    now_ms = snapshot.now_ms
    found = Soundness(snapshot.space or NamespaceRecord())
    was_known = is_known(snapshot)
    if was_known and found.space.quarantine:
        if found.space.since_ms - now_ms > quarantine_ms(found.space):  # its clock was wrong
            found.space = replace(found.space, since_ms=now_ms)
        found.space = remembering(found.space, caller.guard_ms)
        found.left_ms = max(0, found.space.since_ms + quarantine_ms(found.space) - now_ms)
        if not found.left_ms:
            found.space = replace(found.space, quarantine="", since_ms=0, is_new=False)
            found.is_recounted = True
        return found
    if not was_known and is_newly_initialized(snapshot):
        found.space = sound_space(snapshot)
        found.is_recounted = was_known = True
    if was_known and not is_short(snapshot):
        return found
    found.is_alarm, found.is_recounted = was_known, False
    # If a namespace has lost its cell, its longest safe guard is lost with it.
    is_lost = snapshot.space is None and missing_namespaces(snapshot) > 0
    guard_ms = max(caller.guard_ms, UNNAMED_MS) if is_lost else caller.guard_ms
    is_new = snapshot.space is None and not snapshot.is_marked
    space = sound_space(snapshot, quarantine=caller.nonce, since_ms=now_ms, is_new=is_new)
    found.space = remembering(space, guard_ms)
    found.left_ms = quarantine_ms(found.space)
    return found


def sound_space(snapshot: Snapshot, **further: Any) -> NamespaceRecord:  # noqa: ANN401 - fields of a space
    """Return the namespace's cell as it should be for the store now, without a quarantine."""
    sound = replace(
        snapshot.space or NamespaceRecord(),
        identity=snapshot.identity,
        marker_id=marker_id_of(snapshot),
        quarantine="",
        since_ms=0,
        is_new=False,
    )
    return replace(sound, **further)


def remembering(space: NamespaceRecord, guard_ms: int) -> NamespaceRecord:
    """Return the namespace's cell with a safe guard at least that long, for later quarantines."""
    return replace(space, guard_ms=max(space.guard_ms, guard_ms))


def _quarantine_error(
    snapshot: Snapshot, space: NamespaceRecord, left_ms: float
) -> MachineIdQuarantineError:
    is_new = space.is_new and not snapshot.is_marked
    kind = StoreNotInitializedError if is_new else MachineIdQuarantineError
    return kind(snapshot.store, namespace=snapshot.namespace, seconds_left=left_ms / 1000)


def space_written(snapshot: Snapshot, space: NamespaceRecord) -> NamespaceRecord | None:
    """Return what to write of a namespace's cell; None if it is unchanged."""
    return None if space == snapshot.space else space


def refused(snapshot: Snapshot, found: Soundness) -> Decision:
    """Refuse because of a quarantine, and write that it has begun or has become longer."""
    changes = Changes(space=space_written(snapshot, found.space))
    error = _quarantine_error(snapshot, found.space, found.left_ms)
    return Decision(changes, error=error, is_alarm=found.is_alarm)


def doubt(snapshot: Snapshot) -> Decision:
    """Put the machine ids of one namespace in quarantine, on an operator's command.

    It is for a store that lost something and has no marker for all namespaces.  A namespace that
    has lost its cell is in quarantine anyway.
    """
    if snapshot.space is None:
        return Decision()
    return Decision(Changes(space=replace(snapshot.space, identity="")))


def is_initialized(snapshot: Snapshot) -> bool:
    """Return whether the marker vouches for all namespaces of the store as it is now."""
    marker = snapshot.marker
    return marker is not None and marker.identity != "" and snapshot.knows(marker.identity)
