"""The rules of machine ids: who holds which, who gets the next one, and when none is handed out.

Each function reads a `Snapshot` and returns a `Decision`: what to write, and the caller's answer.
If another process commits first, the function is called again on a new snapshot.  Pure: no store,
no clock, no randomness; random values are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, count, islice
from shlex import quote
from typing import TYPE_CHECKING, Final

from ..abc import Machine, MachineGrant
from ..abc.machines import bits_in_use, region_ids
from ..errors import (
    ClockSkewError,
    CorruptMachineStateError,
    CosIdError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
)
from .cells import (
    ENDLESS_MS,
    MAX_MS,
    Changes,
    Count,
    NamespaceCount,
    Need,
    Note,
    Owner,
    Seat,
    Space,
    freed,
)
from .losses import (
    Asker,
    Decision,
    Soundness,
    check_format,
    examine,
    is_initialized,
    is_known,
    is_uncounted,
    marker_id_of,
    noted_in,
    quarantine_ms,
    refused,
    remembering,
    space_written,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .cells import Snapshot

__all__ = (
    "MOST_AHEAD_MS",
    "Asker",
    "Decision",
    "Taken",
    "check_format",
    "give_back",
    "hand_out",
    "is_initialized",
    "is_its_own",
    "list_machines",
    "peer_of",
    "quarantine_ms",
    "raise_mark",
    "renew",
    "seconds_left",
    "take_away",
)

RELEASE_STAMP_MARGIN: Final = 1000
"""Milliseconds between the mark and the stamp of an id that is released while its owner may still
use it.
"""

MOST_AHEAD_MS: Final = 24 * 3600 * 1000
"""Milliseconds that a guest's time mark, or an operator's, may be ahead: it stops an id so long."""

MOST_SKEW_MS: Final = 60_000
"""Milliseconds that a guest's clock may be ahead of the store's."""

HOLDERS_NAMED: Final = 5
"""How many holders of a full pool the error names."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a caller was given; with it the caller asserts its id in a quarantine.

    Attributes:
        machine_id: the id.
        born_ms: when it asked for the id, by its own clock.
        bits: the width of the namespace.
        token: the token of the call.
        region_code: the region of the namespace in this store; 1 for no regions.
    """

    machine_id: int
    born_ms: int
    bits: int
    token: str
    region_code: int = 1


# Guests: callers of a server.


def is_its_own(seat: Seat, asker: Asker) -> bool:
    """Return whether the access that took an id is the guest's; anybody's guest may be anybody."""
    token = "" if seat.note is None else seat.note.token
    return not asker.owner or token.partition("@")[2] == asker.owner


def _refusal(
    snapshot: Snapshot, asker: Asker, *, now_ms: int = -1, mark_ms: int = -1
) -> CosIdError | None:
    """Return the error for a guest whose times are too far ahead of the store's clock.

    No renewal lowers an id's floor: a clock that counts microseconds would make the id useless.
    """
    ahead_ms = max(now_ms, mark_ms - MOST_AHEAD_MS) - max(snapshot.now_ms, asker.clock_ms)
    if not asker.is_guest or ahead_ms <= MOST_SKEW_MS:
        return None
    return ClockSkewError(snapshot.store, ahead=ahead_ms // 1000, tolerance=MOST_SKEW_MS // 1000)


def _careful(snapshot: Snapshot, asker: Asker) -> Asker:
    """Return a guest with the safe guard of the namespace or the server, if its own is shorter."""
    if not asker.is_guest:
        return asker
    guards = asker.guard_ms, asker.least_guard_ms, (snapshot.space or Space()).guard_ms
    return replace(asker, guard_ms=max(guards))


def _stranger(snapshot: Snapshot, asker: Asker) -> CosIdError | None:
    """Return the error for a guest whose instance holds an id that another access has taken.

    A process of that name may be running.  Once it was silent for the safe guard it is over.
    """
    for machine_id, seat in snapshot.seats.items():
        if asker.instance in seat.holders and not (
            is_its_own(seat, asker) or _is_expired(snapshot, seat, asker, spares_stable=False)
        ):
            return MachineIdInUseError(
                f"instance id {asker.instance!r} of namespace {snapshot.namespace!r}",
                holder="a process with another token, or one without the server",
                remedy="take another instance id, or wait for the safe guard after its last "
                f"renewal; 'aiocosid machines revert {machine_id} --namespace "
                f"{quote(snapshot.namespace)} --store URL' takes its id if it is dead",
            )
    return None


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
    region_code: int = 1,
) -> Decision:
    """Hand out a machine id: the asker's own, else one given back, a new one, or an expired one.

    An id with a floor later than ``latest_ms`` is taken only if there is no other, and then the one
    with the lowest floor.  If the asker's own id has such a floor, it is given back for another
    one, unless the asker is stable.

    Args:
        snapshot: complete, or a sample; if a sample does not suffice, the decision needs a complete
            one.
        asker: the caller.
        bits: width of the machine id.
        now_ms: the asker's wall clock.
        latest_ms: the highest floor for which the asker need not wait.
        token: names this call; it is stored with the id.
        spread: how many equally good ids are skipped, after conflicts over the first ones.
        region_code: the region of the namespace in this store; 1 for no regions.
    """
    if not (snapshot.is_complete or snapshot.is_sample) or is_uncounted(snapshot):
        return Decision(need=need_whole(asker))
    if (damage := _own_damage(snapshot, asker.instance)) is not None:
        return Decision(error=damage)
    found = examine(snapshot, asker)
    if found.left_ms:
        return refused(snapshot, found)
    named_ms, asker = asker.guard_ms, _careful(snapshot, asker)
    refusal = _refusal(snapshot, asker, now_ms=now_ms) or _stranger(snapshot, asker)
    ids, space = region_ids(bits, region_code), found.space
    if space.bits and (space.bits, space.region_code) != (bits, region_code):
        raise MachineBitsMismatchError(
            snapshot.namespace,
            bits=bits,
            found=space.bits,
            region_code=region_code,
            found_region=space.region_code,
        )
    is_split = region_code > 1 and not space.bits
    refusal = refusal or (_outsiders(snapshot, ids) if is_split else None)
    pool = _Pool(snapshot, asker, ids, latest_ms)
    number = _choose(pool, spread)
    is_unclear = found.is_recounted or is_split or not _is_enough(snapshot, pool, number)
    if snapshot.is_sample and is_unclear:
        return Decision(need=need_whole(asker))
    if refusal is not None or number is None:
        holders = holders_of(snapshot)
        overflow = MachineIdOverflowError(snapshot.namespace, size=len(ids), holders=holders)
        return Decision(error=refusal or overflow)
    changes = _taking(snapshot, asker, number, token=token, now_ms=now_ms)
    gaps = _return_skipped(snapshot, changes, range(ids.start, number), now_ms)
    space = replace(space, bits=bits, region_code=region_code, gaps=space.gaps or gaps)
    changes.space = space_written(snapshot, remembering(space, named_ms))
    recount(snapshot, changes, is_anew=found.is_recounted)
    seat = snapshot.seats.get(number, Seat())
    is_marked = seat.note is not None or not seat.owners
    return Decision(changes, MachineGrant(number, seat.floor_ms, is_marked=is_marked))


def _outsiders(snapshot: Snapshot, ids: range) -> CosIdError | None:
    """Return the error for a namespace that gets regions while ids outside its region are held."""
    seats = [seat for number, seat in snapshot.seats.items() if number not in ids and seat.is_held]
    holders = [each for seat in seats for each in seat.holders or ("an unknown instance",)]
    what = "another region"
    return bits_in_use(snapshot.namespace, None, holders, what=what) if holders else None


def need_whole(asker: Asker, machine_id: int | None = None) -> Need:
    """Return the need of everything, for a decision that rests on what is missing."""
    return Need(asker.instance, machine_id, is_complete=True, namespaces=True)


def _own_damage(snapshot: Snapshot, instance: str) -> CorruptMachineStateError | None:
    for each in snapshot.damages:
        if each.instance == instance:
            return CorruptMachineStateError(snapshot.store, place=each.place, found=each.found)
    return None


def holders_of(snapshot: Snapshot) -> tuple[str, ...]:
    held = [text for _, seat in sorted(snapshot.seats.items()) for text in seat.holders]
    return tuple(held[:HOLDERS_NAMED])


class _Pool:
    """The ids that can be taken, in CosId's order.

    Attributes:
        ids: the numbers of the namespace, or of its region.
        own: the number that the asker holds, or None.
        keeps_own: whether the own number is taken in any case.
        latest_ms: the highest floor for which the asker need not wait.
    """

    def __init__(self, snapshot: Snapshot, asker: Asker, ids: range, latest_ms: int) -> None:
        self._snapshot, self._asker = snapshot, asker
        self.ids = ids
        self.latest_ms = latest_ms
        own = _own(snapshot, asker.instance)
        self.own = own if own in ids else None
        self.keeps_own = asker.stable and self.own is not None
        self._others = [
            (number, seat)
            for number, seat in snapshot.seats.items()
            if number in ids and number != own
        ]

    def kinds(self) -> Iterator[Iterable[int]]:
        """Yield numbers given back; new ones, lowest first; expired ones."""
        yield (number for number, seat in self._others if seat.owners and not seat.is_held)
        yield self._new()
        others, asker = self._others, self._asker
        yield (number for number, seat in others if _is_expired(self._snapshot, seat, asker))

    def _new(self) -> Iterator[int]:
        """Yield numbers that no process ever had, as many as are considered."""
        snapshot = self._snapshot
        last = snapshot.last_new
        has_gaps = snapshot.space is not None and snapshot.space.gaps
        begin = max(snapshot.first_new if last is None else last + 1, self.ids.start)
        begin = self.ids.start if has_gaps and begin >= self.ids.stop else begin
        found = 0
        for number in count(begin):
            is_unread = snapshot.is_sample and number not in snapshot.seats
            if number >= self.ids.stop or found >= MOST_NEW or is_unread:
                return
            seat = snapshot.seats.get(number)
            if seat is None or not (seat.owners or seat.is_damaged):
                found += 1
                yield number

    def floor_ms(self, number: int) -> int:
        """Return the time that ids of a number have to be above."""
        return self._snapshot.seats.get(number, Seat()).floor_ms

    def is_early(self, number: int) -> bool:
        """Return whether a number can be used without waiting."""
        return self.floor_ms(number) <= self.latest_ms


MOST_NEW: Final = 1024
"""How many new numbers are considered: as many as processes may start at one time."""


def _choose(pool: _Pool, spread: int) -> int | None:
    """Return the number to take, or None if all are held."""
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
    """Return whether a number can be taken whatever the sample leaves out."""
    counted, last_new = snapshot.count, snapshot.last_new
    if counted is None or counted.marker_id != marker_id_of(snapshot):
        return False  # all of them have to be counted
    if number is None or (last_new is not None and snapshot.cells > last_new + 1 - pool.ids.start):
        return False  # a number is held that was not handed out yet
    if number == pool.own and pool.keeps_own:
        return True
    seat = snapshot.seats.get(number, Seat())
    note = seat.note or Note()
    # A note that names an instance may be a holder's; without CosId's cell beside it, that cell was
    # lost.
    is_nobodys = not note.instance and bool(seat.owners or not note.token)
    return pool.is_early(number) and (number == pool.own or is_nobodys)


def _own(snapshot: Snapshot, instance: str) -> int | None:
    numbers = [number for number, seat in snapshot.seats.items() if instance in seat.holders]
    return min(numbers, default=None)


def peer_of(snapshot: Snapshot, instance: str) -> str | None:
    """Return an owner that is CosId on Java, which keeps no notes of ours; not the instance."""
    for seat in snapshot.seats.values():
        for owner in seat.owners:
            note = seat.note_about(owner.instance)
            if owner.instance not in {"", instance} and (note is None or not note.token):
                return owner.instance
    return None


def _is_expired(
    snapshot: Snapshot, seat: Seat, asker: Asker, *, spares_stable: bool = True
) -> bool:
    """Return whether no holder of a number has renewed it for the asker's safe guard."""
    if not seat.holders or seat.is_damaged or asker.guard_ms >= ENDLESS_MS:
        return False
    silent_since_ms = snapshot.now_ms - asker.guard_ms
    for owner in seat.owners:
        note = seat.note_about(owner.instance)
        if not owner.instance:
            continue
        is_kept = note is not None and note.stable and spares_stable
        # A peer that takes an id from the pool of ZooKeeper keeps the stamp that it finds there.
        if is_kept or seat.seen_ms > silent_since_ms:
            return False
        # By the owner's clock, which may be slow: CosId stores nothing else.
        if snapshot.stamps_tell and owner.stamp_ms > silent_since_ms:
            return False
    return True


def _taking(snapshot: Snapshot, asker: Asker, number: int, *, token: str, now_ms: int) -> Changes:
    """Make the asker the holder of this number, and of no other."""
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
            born_ms=max(0, before.floor_ms) if asker.is_guest else 0,
        ),
        snapshot.now_ms,
    )
    for holder in before.holders:
        changes.own[holder] = None
    changes.own[asker.instance] = number
    if snapshot.last_new is not None and number > snapshot.last_new:
        changes.last_new = number
    return changes


def _return_skipped(snapshot: Snapshot, changes: Changes, lower: range, now_ms: int) -> bool:
    """Give back the skipped numbers below a new one: CosId counts on from the new one.

    ``lower`` has those of its region.  Returns whether those of lower regions were left out.
    """
    if changes.last_new is None or snapshot.last_new is None:
        return False
    first = snapshot.last_new + 1
    for skipped in lower[max(0, first - lower.start) :]:
        seat = snapshot.seats.get(skipped, Seat())
        if not (seat.owners or seat.is_damaged):
            # The present, for a peer keeps it until its first renewal; but by no wrong clock.
            changes.seats[skipped] = replace(
                seat, owners=(Owner("", min(now_ms, snapshot.now_ms)),)
            )
    return first < lower.start


def _left_by(seat: Seat, instance: str) -> Seat:
    """Return a seat as released by an owner that may use it until its mark.

    The next owner may be CosId: it ignores the mark, and issues ids in the millisecond or the
    second of the stamp.
    """
    others = tuple(each for each in seat.owners if each.instance not in {instance, ""})
    if others:  # held by two owners, by a fault of another program
        return replace(seat, owners=others)
    return _left(seat)


def _left(seat: Seat) -> Seat:
    """Return a seat as released although its owner may use it until its mark."""
    stamp_ms = seat.stamp_ms
    if seat.mark_ms >= 0:
        stamp_ms = max(stamp_ms, min(seat.mark_ms + RELEASE_STAMP_MARGIN, MAX_MS))
    return freed(seat, stamp_ms)


def recount(snapshot: Snapshot, changes: Changes, *, is_anew: bool) -> None:
    """Update the count of machine ids that have a note of ours: add one, or count all again."""
    noted, before = noted_in(snapshot, changes), noted_in(snapshot)
    if is_anew or noted > before:
        if snapshot.is_sample and snapshot.count is not None:
            noted += snapshot.count.ids - before
        space = changes.space or snapshot.space or Space()
        changes.count = Count(space.marker_id, noted)
        there = snapshot.counted
        if snapshot.count is None and there is not None and there >= 0:
            # If it still has machine ids it is one of those that are missing, and was counted.
            # Otherwise it counts as new: it must not hide that another one is missing.
            counted, has_ids = snapshot.namespaces or NamespaceCount(), bool(snapshot.seats)
            number = max(counted.number + (not has_ids), there + 1)
            changes.namespaces = NamespaceCount(number)


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
    """Renew an id and raise its mark; in a quarantine assert that it was taken.

    Args:
        snapshot: has at least that machine id; complete where something is wrong.
        asker: the caller.
        machine_id: the id that the asker was given.
        now_ms: the asker's wall clock.
        mark_ms: no id with a later time will be issued before the next renewal.
        token: the token of the call that handed it out, as it is stored; empty if it is not known.
        taken: what the asker was given, if its lease is certainly valid.
    """
    seat = snapshot.seats.get(machine_id, Seat())
    is_ours = asker.instance in seat.holders and _is_latest(seat, asker, token)
    is_sound = is_known(snapshot) and not (snapshot.space or Space()).quarantine
    is_enough = snapshot.is_complete and not is_uncounted(snapshot)
    if not (is_ours and is_sound) and not is_enough:
        return Decision(need=need_whole(asker, machine_id))
    # A guest that holds nothing does not prolong a quarantine.
    is_stranger = asker.is_guest and taken is None and not is_ours
    found = examine(snapshot, replace(asker, guard_ms=0) if is_stranger else asker)
    if found.left_ms and taken is None:
        return refused(snapshot, found)
    refusal = _refusal(snapshot, asker, now_ms=now_ms, mark_ms=mark_ms)
    if not (is_ours or found.left_ms):
        reason = _loss(seat, asker.instance)
        refusal = MachineIdLostError(snapshot.namespace, machine_id, reason=reason)
    if refusal is not None:
        return Decision(error=refusal)
    if found.left_ms and taken is not None:
        return _assert(snapshot, asker, taken, found, now_ms=now_ms, mark_ms=mark_ms)
    changes = Changes(asker.instance, guard_ms=asker.guard_ms, signed=machine_id)
    note = seat.note or Note()
    changes.seats[machine_id] = _signed(
        seat, asker, now_ms=now_ms, mark_ms=mark_ms, token=note.token or token, at=snapshot.now_ms
    )
    space = remembering(found.space, asker.guard_ms)
    changes.space = space_written(snapshot, space)
    if found.is_recounted:
        recount(snapshot, changes, is_anew=True)
    return Decision(changes)


def _is_latest(seat: Seat, asker: Asker, token: str) -> bool:
    """Return whether the call with that token was the last one that got the number.

    A guest has to know the token.  A process on the store itself may renew what CosId has handed to
    its instance, which has none.
    """
    found = "" if seat.note is None else seat.note.token
    return found == token if found else not asker.is_guest


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
    found: Soundness,
    *,
    now_ms: int,
    mark_ms: int,
) -> Decision:
    """Give an id to its owner again, unless another instance has a better claim."""
    space, number = found.space, taken.machine_id
    before = snapshot.seats.get(number, Seat())
    holder = _rival(snapshot, asker, taken, space)
    if holder is None:
        holder = _living_peer(snapshot, before, asker.instance, space)
    if holder is not None:
        reason = _loss(Seat((Owner(holder, 0),)), asker.instance)
        error = MachineIdLostError(snapshot.namespace, number, reason=reason)
        changes = Changes(space=space_written(snapshot, space))
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
    # The numbers between may be held by others that have not renewed yet.
    gaps = space.gaps or changes.last_new is not None
    space = replace(space, bits=taken.bits, region_code=taken.region_code, gaps=gaps)
    changes.space = space_written(snapshot, space)
    return Decision(changes, is_alarm=found.is_alarm)


def _rival(snapshot: Snapshot, asker: Asker, taken: Taken, space: Space) -> str | None:
    """Return the instance whose own assertion comes before this one, if there is one."""
    for number, seat in snapshot.seats.items():
        claim = seat.note
        if claim is None or claim.claimed != space.quarantine or not claim.instance:
            continue
        is_rival = number == taken.machine_id or claim.instance == asker.instance
        if is_rival and _keeps_it(claim, asker.instance, taken, is_proven=bool(asker.owner)):
            return claim.instance
    return None


def _keeps_it(claim: Note, instance: str, taken: Taken, *, is_proven: bool) -> bool:
    """Return whether the instance that has asserted an id keeps it.

    Of two instances the earlier one wins, then the one with the lower text; the other way round if
    a receipt proves when it took it; of two processes of one instance the later one.
    """
    if claim.instance == instance:
        return claim.token != taken.token and claim.born_ms >= taken.born_ms
    claimed = (claim.born_ms, claim.instance.encode())
    # By the server's times the later one took it after the other lease was over.
    is_earlier = claimed < (taken.born_ms, instance.encode())
    return is_earlier is not is_proven


def _living_peer(snapshot: Snapshot, seat: Seat, instance: str, space: Space) -> str | None:
    """Return the CosId peer that holds an id: it ignores quarantines and would not yield."""
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
    """Give an id back; nothing if it is not the asker's any more, or was handed out again.

    Args:
        snapshot: has at least that machine id.
        asker: the caller; a stable one stays the owner.
        machine_id: the id that the asker was given.
        last_ms: no id with a later time was issued; -1 if none was.
        token: the token of the call that handed it out.
    """
    if (refusal := _refusal(snapshot, asker, mark_ms=last_ms)) is not None:
        return Decision(error=refusal)
    seat = snapshot.seats.get(machine_id, Seat())
    if asker.instance not in seat.holders or not _is_latest(seat, asker, token):
        return Decision()
    note = seat.note or Note()
    # A guest leaves the mark of the former owner; a process on the store itself tells the truth.
    least_ms = note.born_ms if asker.is_guest else -1
    mark_ms = min(max(last_ms, least_ms), note.mark_ms) if last_ms >= 0 else note.mark_ms
    stamp_ms = max(seat.stamp_ms, last_ms)  # the next owner may be CosId, which ignores the mark
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
    """Take an id from its holder, on an operator's command; its mark stays."""
    seat = snapshot.seats.get(machine_id, Seat())
    if not seat.holders:
        expected = f"one that is held in namespace {snapshot.namespace!r}"
        return Decision(error=InvalidArgumentError("machine_id", machine_id, expected=expected))
    changes = Changes()
    changes.seats[machine_id] = _left(seat)
    for holder in seat.holders:
        changes.own[holder] = None
    return Decision(changes)


def raise_mark(snapshot: Snapshot, machine_id: int, above_ms: int) -> Decision:
    """Let the next owner of an id begin above a time, on an operator's command.

    A number that nobody ever had is written as given back.  The stamp is raised as well: CosId
    ignores the mark, and a holder that gives the id back lowers it.  So a dead holder's id expires
    later.  Answers whether the floor was lower.

    Args:
        snapshot: has at least that machine id.
        machine_id: the id; on a store with CosId's adder at most the next new one.
        above_ms: unix time in milliseconds.
    """
    seat = snapshot.seats.get(machine_id, Seat())
    if seat.is_damaged:
        place = f"machine id {machine_id} of namespace {snapshot.namespace!r}"
        found = "a cell that cannot be read"
        return Decision(error=CorruptMachineStateError(snapshot.store, place=place, found=found))
    note = seat.note or Note()
    if min(note.mark_ms, seat.stamp_ms) >= above_ms:
        return Decision(answer=False)
    changes = Changes()
    owners = tuple(
        Owner(each.instance, max(each.stamp_ms, above_ms))
        for each in seat.owners or (Owner("", above_ms),)
    )
    note = replace(note, mark_ms=max(note.mark_ms, above_ms), turn=note.turn + 1)
    changes.seats[machine_id] = Seat(owners, note, seat.seen_ms)
    if snapshot.last_new is not None and machine_id > snapshot.last_new:
        changes.last_new = machine_id
    return Decision(changes, seat.floor_ms < above_ms)


# Looking.


def seconds_left(snapshot: Snapshot) -> float:
    """Return the seconds left of a quarantine; its whole length, if one is about to begin."""
    if not snapshot.space and not snapshot.is_marked:
        return 0.0
    return examine(snapshot, Asker("")).left_ms / 1000


def list_machines(snapshot: Snapshot) -> Iterator[Machine]:
    """Yield all ids that were ever handed out, by number."""
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
