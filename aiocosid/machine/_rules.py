"""Who holds which machine id, who is handed the next one, and when nobody is: every rule, once.

Each function reads a `Snapshot` and returns a `Decision`: what is to be written, and what the
caller is told.  It is called again, on a new snapshot, if others were faster.  Pure: no store, no
clock, no randomness; what is random is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ..abc import DEFAULT_SAFE_GUARD, Machine, MachineGrant, MachineMarker
from ..abc._machine import QUARANTINE_MARGIN, bits_in_use, check_same_bits
from ..errors import (
    CorruptMachineStateError,
    CosIdError,
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    StoreNotInitializedError,
)
from .cells import (
    ENDLESS_MS,
    MAX_MS,
    Changes,
    Count,
    Marker,
    Need,
    Note,
    Owner,
    Seat,
    Space,
    freed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .cells import Snapshot

__all__ = (
    "Asker",
    "Decision",
    "Taken",
    "give_back",
    "hand_out",
    "is_initialized",
    "list_machines",
    "mark",
    "mark_store",
    "quarantine_ms",
    "renew",
    "seconds_left",
    "set_bits",
    "take_away",
)

MARGIN_MS: Final = int(QUARANTINE_MARGIN * 1000)
UNNAMED_MS: Final = int(DEFAULT_SAFE_GUARD * 1000)
"""The safe guard that counts where none was ever named."""

RELEASE_STAMP_MARGIN: Final = 1000
"""Milliseconds above its mark at which an id's stamp lies when its owner may still use it."""

HOLDERS_NAMED: Final = 5
"""Of those who hold a full pool, in the error."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who calls.

    Attributes:
        instance: the instance id.
        stable: whether that one keeps its id when it is closed.
        guard_ms: its safe guard, `ENDLESS_MS` for no end; 0 for who holds no id.
        nonce: a fresh name, for a quarantine that begins by this call.
    """

    instance: str
    stable: bool = False
    guard_ms: int = 0
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a caller was handed, by which it asserts its id in a quarantine.

    Attributes:
        machine_id: the id.
        born_ms: when it asked for it, by its own clock.
        bits: the width of the namespace.
        token: of the call.
    """

    machine_id: int
    born_ms: int
    bits: int
    token: str


@dataclass(slots=True)
class Decision:
    """What is to be written, and what the caller is told once it is.

    Attributes:
        changes: what is written; nothing, if it is empty.
        answer: for the caller.
        error: for the caller instead; a refusal may have something to write, too.
        need: what has to be seen first; then nothing else counts.
        is_alarm: whether a quarantine begins because something is missing: to be read once more
            first, for CosId's peers on ZooKeeper move in two steps.
    """

    changes: Changes = field(default_factory=Changes)
    answer: Any = None
    error: CosIdError | None = None
    need: Need | None = None
    is_alarm: bool = False


# Whether anything was forgotten.


@dataclass(slots=True)
class _Soundness:
    """What marker, count and the namespace's cell come to.

    Attributes:
        space: the namespace's cell as it is to be.
        left_ms: of a quarantine; 0 if none runs, inf if it has no end.
        is_recounted: whether the count has to be made anew.
        is_alarm: whether a quarantine begins because something is missing.
    """

    space: Space
    left_ms: float = 0.0
    is_recounted: bool = False
    is_alarm: bool = False


def _epoch(snapshot: Snapshot) -> str:
    return snapshot.marker.epoch if snapshot.marker is not None else ""


def _noted(snapshot: Snapshot) -> int:
    return sum(seat.is_noted for seat in snapshot.seats.values())


def _is_known(snapshot: Snapshot) -> bool:
    """Whether the namespace's cell speaks of the store as it is now."""
    space = snapshot.space
    return space is not None and space.epoch == _epoch(snapshot) and snapshot.knows(space.identity)


def _is_newly_initialized(snapshot: Snapshot) -> bool:
    """Whether the marker was written for this store since the namespace's cell was."""
    space = snapshot.space
    return is_initialized(snapshot) and (space is None or space.epoch != _epoch(snapshot))


def _is_short(snapshot: Snapshot) -> bool:
    """Whether machine ids are missing that were counted once."""
    counted = snapshot.count
    if counted is None or counted.epoch != _epoch(snapshot):
        return False
    if snapshot.is_sample:  # by what is there at most; nothing begins before all was read
        return min(snapshot.cells, snapshot.notes) < counted.ids
    # What cannot be read is held by somebody, and may be one of them.
    return snapshot.is_complete and _noted(snapshot) + len(snapshot.damages) < counted.ids


def quarantine_ms(space: Space) -> float:
    """Return how long a quarantine is, milliseconds; inf if a safe guard was named without end."""
    guard_ms = space.guard_ms or UNNAMED_MS
    return inf if guard_ms >= ENDLESS_MS else guard_ms + MARGIN_MS


def _examine(snapshot: Snapshot, asker: Asker) -> _Soundness:
    """Tell whether all is known; begin a quarantine if not, and end one that is over."""
    now_ms = snapshot.now_ms
    found = _Soundness(snapshot.space or Space())
    is_known = _is_known(snapshot)
    if is_known and found.space.quarantine:
        if found.space.since_ms - now_ms > quarantine_ms(found.space):  # the clock was ahead then
            found.space = replace(found.space, since_ms=now_ms)
        found.space = _remembering(found.space, asker.guard_ms)
        found.left_ms = max(0, found.space.since_ms + quarantine_ms(found.space) - now_ms)
        if not found.left_ms:
            found.space = replace(found.space, quarantine="", since_ms=0, is_new=False)
            found.is_recounted = True
        return found
    if not is_known and _is_newly_initialized(snapshot):
        found.space = replace(
            found.space,
            identity=snapshot.identity,
            epoch=_epoch(snapshot),
            quarantine="",
            since_ms=0,
            is_new=False,
        )
        found.is_recounted = is_known = True
    if is_known and not _is_short(snapshot):
        return found
    found.is_alarm, found.is_recounted = is_known, False
    found.space = _remembering(
        replace(
            found.space,
            identity=snapshot.identity,
            epoch=_epoch(snapshot),
            quarantine=asker.nonce,
            since_ms=now_ms,
            is_new=snapshot.space is None and snapshot.marker is None,
        ),
        asker.guard_ms,
    )
    found.left_ms = quarantine_ms(found.space)
    return found


def _remembering(space: Space, guard_ms: int) -> Space:
    """Have the next quarantine last as long, if it would not anyway."""
    return replace(space, guard_ms=max(space.guard_ms, guard_ms))


def _quarantine_error(snapshot: Snapshot, space: Space, left_ms: float) -> MachineIdQuarantineError:
    is_new = space.is_new and snapshot.marker is None
    kind = StoreNotInitializedError if is_new else MachineIdQuarantineError
    return kind(snapshot.store, namespace=snapshot.namespace, seconds_left=left_ms / 1000)


def _space_written(snapshot: Snapshot, space: Space) -> Space | None:
    return None if space == snapshot.space else space


def _refused(snapshot: Snapshot, found: _Soundness) -> Decision:
    """Refuse for a quarantine; that it has begun, or is longer now, is written."""
    changes = Changes(space=_space_written(snapshot, found.space))
    error = _quarantine_error(snapshot, found.space, found.left_ms)
    return Decision(changes, error=error, is_alarm=found.is_alarm)


# Handing out.


def hand_out(
    snapshot: Snapshot,
    asker: Asker,
    *,
    bits: int,
    now_ms: int,
    latest_ms: int,
    token: str,
    spread: int = 0,
) -> Decision:
    """Hand out a machine id: the own one, else one given back, else a new one, else an expired one.

    One whose floor is later than ``latest_ms`` is taken only if there is no other, and then the one
    with the lowest floor; the own one is given back for it, unless the asker is stable.

    Args:
        snapshot: complete, or a sample; if that does not suffice all is asked for.
        asker: who asks.
        bits: width of the machine id.
        now_ms: the asker's wall clock.
        latest_ms: up to which floor the asker need not wait.
        token: names this call; it is noted with the id.
        spread: how many equals are passed over, since others were faster with those before.
    """
    if not (snapshot.is_complete or snapshot.is_sample):
        return Decision(need=Need(asker.instance, is_complete=True))
    if (damage := _own_damage(snapshot, asker.instance)) is not None:
        return Decision(error=damage)
    found = _examine(snapshot, asker)
    if found.left_ms:
        return _refused(snapshot, found)
    size = 1 << bits
    check_same_bits(snapshot.namespace, bits, found.space.bits or None)
    pool = _Pool(snapshot, asker, size, latest_ms)
    number = _choose(pool, spread)
    if snapshot.is_sample and (found.is_recounted or not _is_enough(snapshot, pool, number)):
        return Decision(need=Need(asker.instance, is_complete=True))
    if number is None:
        holders = _holders(snapshot)
        error = MachineIdOverflowError(snapshot.namespace, size=size, holders=holders)
        return Decision(Changes(space=None), error=error)
    changes = _taking(snapshot, asker, number, token=token, now_ms=now_ms)
    _return_skipped(snapshot, changes, number)
    space = _remembering(replace(found.space, bits=bits), asker.guard_ms)
    changes.space = _space_written(snapshot, space)
    _recount(snapshot, changes, is_anew=found.is_recounted)
    floor_ms = snapshot.seats.get(number, Seat()).floor_ms
    return Decision(changes, MachineGrant(number, floor_ms))


def _own_damage(snapshot: Snapshot, instance: str) -> CorruptMachineStateError | None:
    for each in snapshot.damages:
        if each.instance == instance:
            return CorruptMachineStateError(snapshot.store, place=each.place, found=each.found)
    return None


def _holders(snapshot: Snapshot) -> tuple[str, ...]:
    held = [text for _, seat in sorted(snapshot.seats.items()) for text in seat.holders]
    return tuple(held[:HOLDERS_NAMED])


class _Pool:
    """What might be taken, in CosId's order.

    Attributes:
        own: the number that the asker holds, or None.
        keeps_own: whether that one is taken in any case.
        latest_ms: up to which floor nobody has to wait.
    """

    def __init__(self, snapshot: Snapshot, asker: Asker, size: int, latest_ms: int) -> None:
        self._snapshot, self._asker = snapshot, asker
        self._size = size
        self.latest_ms = latest_ms
        own = _own(snapshot, asker.instance)
        self.own = own if own is not None and own < size else None
        self.keeps_own = asker.stable and self.own is not None
        self._others = [
            (number, seat)
            for number, seat in snapshot.seats.items()
            if number < size and number != own
        ]

    def kinds(self) -> Iterator[Iterable[int]]:
        """Give numbers given back; new ones, lowest first; those whose owner is silent too long."""
        yield (number for number, seat in self._others if seat.owners and not seat.is_held)
        yield self._new()
        others, asker = self._others, self._asker
        yield (number for number, seat in others if _is_expired(self._snapshot, seat, asker))

    def _new(self) -> Iterator[int]:
        """Give the numbers that nobody had, at most as many as are looked at."""
        snapshot = self._snapshot
        last = snapshot.last_new
        has_gaps = snapshot.space is not None and snapshot.space.gaps
        begin = snapshot.first_new if last is None else last + 1
        begin = 0 if has_gaps and begin >= self._size else begin
        found = 0
        for number in count(begin):
            is_unread = snapshot.is_sample and number not in snapshot.seats
            if number >= self._size or found >= MOST_NEW or is_unread:
                return
            seat = snapshot.seats.get(number)
            if seat is None or not (seat.owners or seat.is_damaged):
                found += 1
                yield number

    def floor_ms(self, number: int) -> int:
        """Return above which time ids of a number have to be."""
        seat = self._snapshot.seats.get(number)
        return seat.floor_ms if seat is not None else -1

    def is_early(self, number: int) -> bool:
        """Tell whether nobody has to wait for a number."""
        return self.floor_ms(number) <= self.latest_ms


MOST_NEW: Final = 1024
"""How many new numbers are looked at: as many as processes may start at one time."""


def _choose(pool: _Pool, spread: int) -> int | None:
    """Return the number that is taken, or None if all are held."""
    if pool.own is not None and (pool.keeps_own or pool.is_early(pool.own)):
        return pool.own
    for kind in pool.kinds():
        early = [*islice(filter(pool.is_early, kind), spread + 1)]
        if early:
            return early[spread % len(early)]
    own = () if pool.own is None else (pool.own,)
    late = chain(own, *pool.kinds())
    return min(late, key=pool.floor_ms, default=None)


def _is_enough(snapshot: Snapshot, pool: _Pool, number: int | None) -> bool:
    """Tell whether what a sample leaves out cannot speak against taking a number."""
    counted, last_new = snapshot.count, snapshot.last_new
    if counted is None or counted.epoch != _epoch(snapshot):
        return False  # all have to be counted
    if number is None or (last_new is not None and snapshot.cells > last_new + 1):
        return False  # somebody holds a number that was not new yet
    if number == pool.own and pool.keeps_own:
        return True
    seat = snapshot.seats.get(number, Seat())
    note = seat.note or Note()
    # A note about somebody may be that of a holder; one without a cell beside it says that this
    # was lost.
    is_nobodys = not note.instance and bool(seat.owners or not note.token)
    return pool.is_early(number) and (number == pool.own or is_nobodys)


def _own(snapshot: Snapshot, instance: str) -> int | None:
    numbers = [number for number, seat in snapshot.seats.items() if instance in seat.holders]
    return min(numbers, default=None)


def _is_expired(snapshot: Snapshot, seat: Seat, asker: Asker) -> bool:
    """Tell whether all who hold a number were silent for the asker's safe guard."""
    if not seat.holders or seat.is_damaged or asker.guard_ms >= ENDLESS_MS:
        return False
    silent_since_ms = snapshot.now_ms - asker.guard_ms
    for owner in seat.owners:
        note = seat.note_about(owner.instance)
        if not owner.instance:
            continue
        if note is not None and (note.stable or seat.seen_ms > silent_since_ms):
            return False
        # By the owner's clock, which may be slow; all there is of CosId's.
        if snapshot.stamps_tell and owner.stamp_ms > silent_since_ms:
            return False
    return True


def _taking(snapshot: Snapshot, asker: Asker, number: int, *, token: str, now_ms: int) -> Changes:
    """Write that the asker holds a number, and nothing else any more."""
    changes = Changes(asker.instance, guard_ms=asker.guard_ms, signed=number)
    for other, seat in snapshot.seats.items():
        if asker.instance in seat.holders and other != number:
            changes.seats[other] = _left_by(seat, asker.instance)
    before = snapshot.seats.get(number, Seat())
    note = before.note or Note()
    changes.seats[number] = Seat(
        (Owner(asker.instance, max(before.stamp_ms, now_ms)),),
        Note(
            asker.instance,
            stable=asker.stable,
            mark_ms=note.mark_ms,
            token=token,
            turn=note.turn + 1,
        ),
        snapshot.now_ms,
    )
    for holder in before.holders:
        changes.own[holder] = None
    changes.own[asker.instance] = number
    if snapshot.last_new is not None and number > snapshot.last_new:
        changes.last_new = number
    return changes


def _return_skipped(snapshot: Snapshot, changes: Changes, number: int) -> None:
    """Give back the numbers below a new one that were passed over: CosId counts on from it."""
    if changes.last_new is None or snapshot.last_new is None:
        return
    for skipped in range(snapshot.last_new + 1, number):
        seat = snapshot.seats.get(skipped, Seat())
        if not (seat.owners or seat.is_damaged):
            changes.seats[skipped] = replace(seat, owners=(Owner("", 0),))


def _left_by(seat: Seat, instance: str) -> Seat:
    """Return a seat that goes from an owner who may use it until its mark.

    The next owner may be CosId's: it knows no mark, and issues ids of the very millisecond of the
    stamp, or of its second.
    """
    others = tuple(each for each in seat.owners if each.instance not in {instance, ""})
    if others:  # by another's fault it is held by two
        return replace(seat, owners=others)
    stamp_ms = seat.stamp_ms
    if seat.mark_ms >= 0:
        stamp_ms = max(stamp_ms, min(seat.mark_ms + RELEASE_STAMP_MARGIN, MAX_MS))
    return freed(seat, stamp_ms)


def _recount(snapshot: Snapshot, changes: Changes, *, is_anew: bool) -> None:
    """Count the machine ids that bear a note of ours, if there is one more, or all is new."""
    seats = {**snapshot.seats, **changes.seats}
    noted, before = sum(seat.is_noted for seat in seats.values()), _noted(snapshot)
    if is_anew or noted > before:
        if snapshot.is_sample and snapshot.count is not None:
            noted += snapshot.count.ids - before
        space = changes.space or snapshot.space or Space()
        changes.count = Count(space.epoch, noted)


# Renewing.


def renew(
    snapshot: Snapshot,
    asker: Asker,
    machine_id: int,
    *,
    now_ms: int,
    mark_ms: int,
    token: str,
    taken: Taken | None = None,
) -> Decision:
    """Give a sign of life, and raise the mark; in a quarantine assert what was taken.

    Args:
        snapshot: of that machine id at least; complete where something is wrong.
        asker: who calls.
        machine_id: the one that it was handed.
        now_ms: the asker's wall clock.
        mark_ms: no id with a later time will be issued before the next renewal.
        token: of the call that handed it out; empty if that is not known.
        taken: what the asker was handed, if its lease is surely good.
    """
    seat = snapshot.seats.get(machine_id, Seat())
    is_ours = asker.instance in seat.holders and _is_latest(seat, token)
    is_sound = _is_known(snapshot) and not (snapshot.space or Space()).quarantine
    if not (is_ours and is_sound) and not snapshot.is_complete:
        return Decision(need=Need(asker.instance, machine_id, is_complete=True))
    found = _examine(snapshot, asker)
    if found.left_ms and taken is None:
        return _refused(snapshot, found)
    if found.left_ms and taken is not None:
        return _assert(snapshot, asker, taken, found, now_ms=now_ms, mark_ms=mark_ms)
    if not is_ours:
        error = MachineIdLostError(
            snapshot.namespace, machine_id, reason=_loss(seat, asker.instance)
        )
        changes = Changes(space=None)
        return Decision(changes, error=error)
    changes = Changes(asker.instance, guard_ms=asker.guard_ms, signed=machine_id)
    note = seat.note or Note()
    changes.seats[machine_id] = _signed(
        seat, asker, now_ms=now_ms, mark_ms=mark_ms, token=note.token or token, at=snapshot.now_ms
    )
    space = _remembering(found.space, asker.guard_ms)
    changes.space = _space_written(snapshot, space)
    if found.is_recounted:
        _recount(snapshot, changes, is_anew=True)
    return Decision(changes)


def _is_latest(seat: Seat, token: str) -> bool:
    """Tell whether a number was not handed out since it was with that token."""
    return seat.note is None or not token or seat.note.token in {"", token}


def _loss(seat: Seat, instance: str) -> str:
    if instance in seat.holders:
        return f"it was handed out again to the same instance {instance}, which runs twice"
    return f"{seat.holders[0]} holds it" if seat.holders else "nobody holds it"


def _signed(seat: Seat, asker: Asker, *, now_ms: int, mark_ms: int, token: str, at: int) -> Seat:
    note = seat.note or Note()
    owners = tuple(
        Owner(each.instance, max(each.stamp_ms, now_ms))
        if each.instance == asker.instance
        else each
        for each in seat.owners
    )
    note = replace(
        note,
        instance=asker.instance,
        stable=asker.stable,
        mark_ms=max(note.mark_ms, mark_ms),
        token=token,
        turn=note.turn + 1,
    )
    return Seat(owners, note, at)


def _assert(
    snapshot: Snapshot,
    asker: Asker,
    taken: Taken,
    found: _Soundness,
    *,
    now_ms: int,
    mark_ms: int,
) -> Decision:
    """Hand an id to its owner once more, unless somebody with a better claim has it."""
    space, number = found.space, taken.machine_id
    for other, seat in snapshot.seats.items():
        claim = seat.note
        if claim is None or claim.claimed != space.quarantine or not claim.instance:
            continue
        is_rival = other == number or claim.instance == asker.instance
        if is_rival and _keeps_it(claim, asker.instance, taken):
            holder = Seat((Owner(claim.instance, 0),))
            reason = _loss(holder, asker.instance)
            error = MachineIdLostError(snapshot.namespace, number, reason=reason)
            changes = Changes(space=_space_written(snapshot, space))
            return Decision(changes, error=error, is_alarm=found.is_alarm)
    before = snapshot.seats.get(number, Seat())
    if (peer := _living_peer(snapshot, before, asker.instance, space)) is not None:
        error = MachineIdLostError(snapshot.namespace, number, reason=f"{peer} holds it")
        changes = Changes(space=_space_written(snapshot, space))
        return Decision(changes, error=error, is_alarm=found.is_alarm)
    changes = _taking(snapshot, asker, number, token=taken.token, now_ms=now_ms)
    seat = changes.seats[number]
    note = replace(
        seat.note or Note(),
        mark_ms=max(before.mark_ms, mark_ms),
        claimed=space.quarantine,
        born_ms=taken.born_ms,
    )
    changes.seats[number] = replace(seat, note=note)
    if changes.last_new is not None:
        # The numbers between may be held by others, who have not been heard of yet.
        space = replace(space, gaps=True)
    changes.space = _space_written(snapshot, replace(space, bits=taken.bits))
    return Decision(changes, is_alarm=found.is_alarm)


def _keeps_it(claim: Note, instance: str, taken: Taken) -> bool:
    """Tell whether who has asserted an id keeps it.

    Of two instances the earlier, then the one with the lower text; of two lives of one the later.
    """
    if claim.instance == instance:
        return claim.token != taken.token and claim.born_ms >= taken.born_ms
    claimed = (claim.born_ms, claim.instance.encode())
    return claimed < (taken.born_ms, instance.encode())


def _living_peer(snapshot: Snapshot, seat: Seat, instance: str, space: Space) -> str | None:
    """Return the peer of CosId's that holds an id, sees no quarantine, and would not yield."""
    if not snapshot.stamps_tell:
        return None
    is_unknown = seat.note is None or not seat.note.token
    for owner in seat.owners:
        if owner.instance in {"", instance}:
            continue
        claim = seat.note_about(owner.instance)
        if claim is not None and claim.claimed == space.quarantine:
            continue
        if is_unknown or owner.stamp_ms >= space.since_ms:
            return owner.instance
    return None


# Giving back.


def give_back(
    snapshot: Snapshot, asker: Asker, machine_id: int, *, last_ms: int, token: str
) -> Decision:
    """Give an id back; nothing if it is not the asker's any more, or was handed out since.

    Args:
        snapshot: of that machine id at least.
        asker: who calls; a stable one stays the owner.
        machine_id: the one that it was handed.
        last_ms: no id with a later time was issued; -1 if none was.
        token: of the call that handed it out.
    """
    seat = snapshot.seats.get(machine_id, Seat())
    if asker.instance not in seat.holders or not _is_latest(seat, token):
        return Decision()
    note = seat.note or Note()
    mark_ms = last_ms if 0 <= last_ms < note.mark_ms else note.mark_ms
    stamp_ms = max(seat.stamp_ms, last_ms)  # the next owner may be CosId's, who knows no mark
    changes = Changes(asker.instance)
    if asker.stable:
        note = replace(note, mark_ms=mark_ms, turn=note.turn + 1)
        owners = (Owner(asker.instance, stamp_ms),)
        changes.seats[machine_id] = Seat(owners, note, seat.seen_ms)
    else:
        changes.seats[machine_id] = freed(seat, stamp_ms, mark_ms=mark_ms)
        changes.own[asker.instance] = None
    return Decision(changes)


def take_away(snapshot: Snapshot, machine_id: int) -> Decision:
    """Take an id from whoever holds it, by an operator's command; its mark stays."""
    seat = snapshot.seats.get(machine_id, Seat())
    if not seat.holders:
        expected = f"one that somebody holds in namespace {snapshot.namespace!r}"
        return Decision(error=InvalidArgumentError("machine_id", machine_id, expected=expected))
    changes = Changes()
    stamp_ms = seat.stamp_ms
    if seat.mark_ms >= 0:
        stamp_ms = max(stamp_ms, min(seat.mark_ms + RELEASE_STAMP_MARGIN, MAX_MS))
    changes.seats[machine_id] = freed(seat, stamp_ms)
    for holder in seat.holders:
        changes.own[holder] = None
    return Decision(changes)


# Administration.


def set_bits(snapshot: Snapshot, asker: Asker, bits: int) -> Decision:
    """Change the width, while nobody holds an id.

    All seats and the count are written as they are: so whoever takes an id meanwhile is found out.
    """
    if not snapshot.is_complete:
        return Decision(need=Need(is_complete=True))
    if snapshot.space is not None and snapshot.space.bits == bits:
        return Decision()
    found = _examine(snapshot, asker)
    if found.left_ms:
        return _refused(snapshot, found)
    if any(seat.is_held for seat in snapshot.seats.values()):
        holders = _holders(snapshot)
        return Decision(error=bits_in_use(snapshot.namespace, found.space.bits or None, holders))
    changes = Changes(space=replace(found.space, bits=bits))
    for number, seat in snapshot.seats.items():
        note = seat.note or Note()
        changes.seats[number] = replace(seat, note=replace(note, turn=note.turn + 1))
    _recount(snapshot, changes, is_anew=True)
    return Decision(changes)


def is_initialized(snapshot: Snapshot) -> bool:
    """Tell whether the store's marker is there, and was written for the store as it is now."""
    return snapshot.marker is not None and snapshot.knows(snapshot.marker.identity)


def mark_store(snapshot: Snapshot, asker: Asker) -> Decision:
    """Write the store's marker: it has forgotten nothing, in whatever namespace.

    Every namespace is sound from then on, and a quarantine that runs is over.

    Args:
        snapshot: of any namespace.
        asker: its nonce becomes the marker's epoch.
    """
    return Decision(Changes(marker=Marker(snapshot.identity, asker.nonce)))


def mark(snapshot: Snapshot, asker: Asker, *, is_new: bool) -> Decision:
    """Mark one namespace: it has forgotten nothing, whatever the store's marker says.

    Args:
        snapshot: complete.
        asker: who calls; its safe guard is the longest one that is known, 0 for none.
        is_new: mark it although it is marked, and end a quarantine.
    """
    if not snapshot.is_complete:
        return Decision(need=Need(is_complete=True))
    is_there = snapshot.space is not None or snapshot.marker is not None
    if is_there and not is_new:
        return _look_at_marker(snapshot, asker)
    space = replace(
        snapshot.space or Space(),
        identity=snapshot.identity,
        epoch=_epoch(snapshot),
        quarantine="",
        since_ms=0,
        is_new=False,
        guard_ms=asker.guard_ms,
    )
    changes = Changes(space=space)
    _recount(snapshot, changes, is_anew=True)
    return Decision(changes, MachineMarker(namespace=snapshot.namespace, is_new=True))


def _look_at_marker(snapshot: Snapshot, asker: Asker) -> Decision:
    runs = _is_known(snapshot) and bool((snapshot.space or Space()).quarantine)
    # One that runs is not prolonged by somebody who holds no id.
    found = _examine(snapshot, replace(asker, guard_ms=0) if runs else asker)
    space = found.space
    if not found.left_ms:
        space = _remembering(space, asker.guard_ms)
    changes = Changes(space=_space_written(snapshot, space))
    if found.is_recounted:
        _recount(snapshot, changes, is_anew=True)
    left = found.left_ms / 1000
    marker = MachineMarker(namespace=snapshot.namespace, seconds_left=left)
    return Decision(changes, marker, is_alarm=found.is_alarm)


def seconds_left(snapshot: Snapshot) -> float:
    """Return the seconds that a quarantine has left; all of them, if one is due."""
    if not snapshot.space and not snapshot.marker:
        return 0.0
    return _examine(snapshot, Asker("", nonce="due")).left_ms / 1000


def list_machines(snapshot: Snapshot) -> Iterator[Machine]:
    """Give all ids that were ever handed out, by number."""
    for number, seat in sorted(snapshot.seats.items()):
        owners = [each for each in seat.owners if each.instance] or list(seat.owners)[:1]
        for owner in owners:
            note = seat.note_about(owner.instance)
            yield Machine(
                namespace=snapshot.namespace,
                machine_id=number,
                instance_id=owner.instance,
                last_timestamp_ms=owner.stamp_ms,
                mark_ms=note.mark_ms if note is not None else -1,
                stable=bool(note is not None and note.stable and owner.instance),
            )
