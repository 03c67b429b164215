"""The rules of machine ids: who holds which, who gets the next one, and when none is granted.

Each function reads a `Snapshot` and returns a `Decision`: what to write, and the caller's answer.
If another process commits first, the function is called again with a new snapshot.  Pure: no store,
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
    MachineRecord,
    MachineSlot,
    NamespaceCount,
    NamespaceRecord,
    Owner,
    ReadRequest,
    freed,
)
from .losses import (
    Caller,
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
    "Caller",
    "Decision",
    "GrantReceipt",
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
"""Milliseconds between the fence and the stamp of an id that is released while its owner may still
use it.
"""

MOST_AHEAD_MS: Final = 24 * 3600 * 1000
"""Milliseconds that a guest's or an operator's fence may be ahead; the id is unusable that long."""

MOST_SKEW_MS: Final = 60_000
"""Milliseconds that a guest's clock may be ahead of the store's."""

HOLDERS_NAMED: Final = 5
"""How many holders of a full pool the error names."""


@dataclass(frozen=True, slots=True)
class GrantReceipt:
    """What a caller was granted; with it the caller reclaims its id in a quarantine.

    Attributes:
        machine_id: the id.
        requested_ms: when it requested the id, by its own clock.
        bits: the width of the namespace.
        token: the token of the call.
        region_code: the region of the namespace in this store; 1 for no regions.
    """

    machine_id: int
    requested_ms: int
    bits: int
    token: str
    region_code: int = 1


# Guests: callers of a server.


def is_its_own(slot: MachineSlot, caller: Caller) -> bool:
    """Return whether the caller's access took the id; always true without access control."""
    token = "" if slot.record is None else slot.record.token
    return not caller.owner or token.partition("@")[2] == caller.owner


def _refusal(
    snapshot: Snapshot, caller: Caller, *, now_ms: int = -1, fence_ms: int = -1
) -> CosIdError | None:
    """Return the error for a guest whose times are too far ahead of the store's clock.

    No renewal lowers an id's floor, so a clock that counts microseconds would make the id useless.
    """
    ahead_ms = max(now_ms, fence_ms - MOST_AHEAD_MS) - max(snapshot.now_ms, caller.clock_ms)
    if not caller.is_guest or ahead_ms <= MOST_SKEW_MS:
        return None
    return ClockSkewError(snapshot.store, ahead=ahead_ms // 1000, tolerance=MOST_SKEW_MS // 1000)


def _careful(snapshot: Snapshot, caller: Caller) -> Caller:
    """Return a guest with the safe guard of the namespace or the server, if its own is shorter."""
    if not caller.is_guest:
        return caller
    guards = caller.guard_ms, caller.least_guard_ms, (snapshot.space or NamespaceRecord()).guard_ms
    return replace(caller, guard_ms=max(guards))


def _stranger(snapshot: Snapshot, caller: Caller) -> CosIdError | None:
    """Return the error for a guest whose instance holds an id that another access has taken.

    A process of that name may be running.  After the safe guard without a renewal, it is not.
    """
    for machine_id, slot in snapshot.slots.items():
        if caller.instance in slot.holders and not (
            is_its_own(slot, caller) or _is_expired(snapshot, slot, caller, spares_stable=False)
        ):
            return MachineIdInUseError(
                f"instance id {caller.instance!r} of namespace {snapshot.namespace!r}",
                holder="a process with another token, or one that uses the store directly",
                remedy="take another instance id, or wait for the safe guard after its last "
                f"renewal; 'aiocosid machines evict {machine_id} --namespace "
                f"{quote(snapshot.namespace)} --store URL' frees its id if that process is dead",
            )
    return None


# Granting.


def hand_out(
    snapshot: Snapshot,
    caller: Caller,
    *,
    bits: int,
    now_ms: int,
    latest_ms: int,
    token: str,
    spread: int = 0,
    region_code: int = 1,
) -> Decision:
    """Grant a machine id: the caller's own, or else a released one, a new one, or an expired one.

    An id whose floor is later than ``latest_ms`` is taken only if there is no other, and then the
    one with the lowest floor.  If the caller's own id has such a floor, it is released in exchange
    for another one, unless the caller is stable.

    Args:
        snapshot: complete, or a sample; if a sample does not suffice, the decision needs a complete
            one.
        caller: the caller.
        bits: width of the machine id.
        now_ms: the caller's wall clock.
        latest_ms: the highest floor for which the caller need not wait.
        token: names this call; it is stored with the id.
        spread: how many equally good ids are skipped, after conflicts over the first ones.
        region_code: the region of the namespace in this store; 1 for no regions.
    """
    if not (snapshot.is_complete or snapshot.is_sample) or is_uncounted(snapshot):
        return Decision(need=need_whole(caller))
    if (damage := _own_damage(snapshot, caller.instance)) is not None:
        return Decision(error=damage)
    found = examine(snapshot, caller)
    if found.left_ms:
        return refused(snapshot, found)
    named_ms, caller = caller.guard_ms, _careful(snapshot, caller)
    refusal = _refusal(snapshot, caller, now_ms=now_ms) or _stranger(snapshot, caller)
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
    pool = _Pool(snapshot, caller, ids, latest_ms)
    number = _choose(pool, spread)
    is_unclear = found.is_recounted or is_split or not _is_enough(snapshot, pool, number)
    if snapshot.is_sample and is_unclear:
        return Decision(need=need_whole(caller))
    if refusal is not None or number is None:
        holders = holders_of(snapshot)
        overflow = MachineIdOverflowError(snapshot.namespace, size=len(ids), holders=holders)
        return Decision(error=refusal or overflow)
    changes = _taking(snapshot, caller, number, token=token, now_ms=now_ms)
    gaps = _return_skipped(snapshot, changes, range(ids.start, number), now_ms)
    space = replace(space, bits=bits, region_code=region_code, gaps=space.gaps or gaps)
    changes.space = space_written(snapshot, remembering(space, named_ms))
    recount(snapshot, changes, in_full=found.is_recounted)
    slot = snapshot.slots.get(number, MachineSlot())
    is_fenced = slot.record is not None or not slot.owners
    return Decision(changes, MachineGrant(number, slot.floor_ms, is_fenced=is_fenced))


def _outsiders(snapshot: Snapshot, ids: range) -> CosIdError | None:
    """Return the error for a namespace that gets regions while ids outside its region are held."""
    slots = [slot for number, slot in snapshot.slots.items() if number not in ids and slot.is_held]
    holders = [each for slot in slots for each in slot.holders or ("an unknown instance",)]
    what = "another region"
    return bits_in_use(snapshot.namespace, None, holders, what=what) if holders else None


def need_whole(caller: Caller, machine_id: int | None = None) -> ReadRequest:
    """Return a request for all cells, for a decision that depends on what is missing."""
    return ReadRequest(caller.instance, machine_id, is_complete=True, namespaces=True)


def _own_damage(snapshot: Snapshot, instance: str) -> CorruptMachineStateError | None:
    for each in snapshot.damages:
        if each.instance == instance:
            return CorruptMachineStateError(snapshot.store, place=each.place, found=each.found)
    return None


def holders_of(snapshot: Snapshot) -> tuple[str, ...]:
    held = [text for _, slot in sorted(snapshot.slots.items()) for text in slot.holders]
    return tuple(held[:HOLDERS_NAMED])


class _Pool:
    """The ids that can be taken, in CosId's order.

    Attributes:
        ids: the numbers of the namespace, or of its region.
        own: the number that the caller holds, or None.
        keeps_own: whether the caller keeps its own number in any case.
        latest_ms: the highest floor for which the caller need not wait.
    """

    def __init__(self, snapshot: Snapshot, caller: Caller, ids: range, latest_ms: int) -> None:
        self._snapshot, self._caller = snapshot, caller
        self.ids = ids
        self.latest_ms = latest_ms
        own = _own(snapshot, caller.instance)
        self.own = own if own is not None and own in ids else None
        self.keeps_own = caller.stable and self.own is not None
        self._others = [
            (number, slot)
            for number, slot in snapshot.slots.items()
            if number in ids and number != own
        ]

    def kinds(self) -> Iterator[Iterable[int]]:
        """Yield three kinds of numbers: released ones; new ones, lowest first; expired ones."""
        yield (number for number, slot in self._others if slot.owners and not slot.is_held)
        yield self._new()
        others, caller = self._others, self._caller
        yield (number for number, slot in others if _is_expired(self._snapshot, slot, caller))

    def _new(self) -> Iterator[int]:
        """Yield numbers that no process ever had, up to `MOST_NEW` of them."""
        snapshot = self._snapshot
        last = snapshot.last_new
        has_gaps = snapshot.space is not None and snapshot.space.gaps
        begin = max(snapshot.first_new if last is None else last + 1, self.ids.start)
        begin = self.ids.start if has_gaps and begin >= self.ids.stop else begin
        found = 0
        for number in count(begin):
            is_unread = snapshot.is_sample and number not in snapshot.slots
            if number >= self.ids.stop or found >= MOST_NEW or is_unread:
                return
            slot = snapshot.slots.get(number)
            if slot is None or not (slot.owners or slot.is_damaged):
                found += 1
                yield number

    def floor_ms(self, number: int) -> int:
        """Return the time that ids of a number must be above."""
        return self._snapshot.slots.get(number, MachineSlot()).floor_ms

    def is_early(self, number: int) -> bool:
        """Return whether a number can be used without waiting."""
        return self.floor_ms(number) <= self.latest_ms


MOST_NEW: Final = 1024
"""How many new numbers are considered: as many as processes may start at the same time."""


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
    """Return whether a number can be taken, whatever the sample leaves out."""
    counted, last_new = snapshot.count, snapshot.last_new
    if counted is None or counted.marker_id != marker_id_of(snapshot):
        return False  # all of them must be counted
    if number is None or (last_new is not None and snapshot.cells > last_new + 1 - pool.ids.start):
        return False  # a number is held that was not granted yet
    if number == pool.own and pool.keeps_own:
        return True
    slot = snapshot.slots.get(number, MachineSlot())
    record = slot.record or MachineRecord()
    # A record without CosId's cell for its instance may be a holder's, whose cell was lost.
    is_nobodys = not record.instance and bool(slot.owners or not record.token)
    return pool.is_early(number) and (number == pool.own or is_nobodys)


def _own(snapshot: Snapshot, instance: str) -> int | None:
    numbers = [number for number, slot in snapshot.slots.items() if instance in slot.holders]
    return min(numbers, default=None)


def peer_of(snapshot: Snapshot, instance: str) -> str | None:
    """Return an owner other than the instance that is CosId on Java; it keeps no record here."""
    for slot in snapshot.slots.values():
        for owner in slot.owners:
            record = slot.record_about(owner.instance)
            if owner.instance not in {"", instance} and (record is None or not record.token):
                return owner.instance
    return None


def _is_expired(
    snapshot: Snapshot, slot: MachineSlot, caller: Caller, *, spares_stable: bool = True
) -> bool:
    """Return whether no holder has renewed a number for as long as the caller's safe guard."""
    if not slot.holders or slot.is_damaged or caller.guard_ms >= ENDLESS_MS:
        return False
    silent_since_ms = snapshot.now_ms - caller.guard_ms
    for owner in (each for each in slot.owners if each.instance):
        record = slot.record_about(owner.instance)
        is_kept = record is not None and record.stable and spares_stable
        # A peer that takes an id from the pool of ZooKeeper keeps the stamp that it finds there.
        if is_kept or slot.seen_ms > silent_since_ms:
            return False
        # This is by the owner's clock, which may be slow; CosId stores nothing else.
        if snapshot.stamps_tell and owner.stamp_ms > silent_since_ms:
            return False
    return True


def _taking(snapshot: Snapshot, caller: Caller, number: int, *, token: str, now_ms: int) -> Changes:
    """Make the caller the holder of this number, and of no other."""
    changes = Changes(caller.instance, guard_ms=caller.guard_ms, signed=number)
    for other, slot in snapshot.slots.items():
        if caller.instance in slot.holders and other != number:
            changes.slots[other] = _left_by(slot, caller.instance)
    before = snapshot.slots.get(number, MachineSlot())
    record = before.record or MachineRecord()
    changes.slots[number] = MachineSlot(
        (Owner(caller.instance, max(before.stamp_ms, now_ms)),),
        MachineRecord(
            caller.instance,
            stable=caller.stable,
            fence_ms=record.fence_ms,
            token=token,
            version=record.version + 1,
            requested_ms=max(0, before.floor_ms) if caller.is_guest else 0,
        ),
        snapshot.now_ms,
    )
    for holder in before.holders:
        changes.own[holder] = None
    changes.own[caller.instance] = number
    if snapshot.last_new is not None and number > snapshot.last_new:
        changes.last_new = number
    return changes


def _return_skipped(snapshot: Snapshot, changes: Changes, lower: range, now_ms: int) -> bool:
    """Release the skipped numbers below a new one, since CosId continues from the new one.

    ``lower`` contains those of its region.  Return whether numbers of lower regions were left out.
    """
    if changes.last_new is None or snapshot.last_new is None:
        return False
    first = snapshot.last_new + 1
    for skipped in lower[max(0, first - lower.start) :]:
        slot = snapshot.slots.get(skipped, MachineSlot())
        if not (slot.owners or slot.is_damaged):
            # A peer keeps this stamp until its first renewal, so no wrong clock may set it.
            changes.slots[skipped] = replace(
                slot, owners=(Owner("", min(now_ms, snapshot.now_ms)),)
            )
    return first < lower.start


def _left_by(slot: MachineSlot, instance: str) -> MachineSlot:
    """Return a slot without one of its owners, which may still use the machine id until its fence.

    The next owner may be CosId: it ignores the fence, and issues ids in the millisecond or the
    second of the stamp.
    """
    others = tuple(each for each in slot.owners if each.instance not in {instance, ""})
    if others:  # two owners hold it, through a fault of another program
        return replace(slot, owners=others)
    return _left(slot)


def _left(slot: MachineSlot) -> MachineSlot:
    """Return a slot as released although its owner may use it until its fence."""
    stamp_ms = slot.stamp_ms
    if slot.fence_ms >= 0:
        stamp_ms = max(stamp_ms, min(slot.fence_ms + RELEASE_STAMP_MARGIN, MAX_MS))
    return freed(slot, stamp_ms)


def recount(snapshot: Snapshot, changes: Changes, *, in_full: bool) -> None:
    """Update the count of machine ids that have a record: add one, or count all again."""
    noted, before = noted_in(snapshot, changes), noted_in(snapshot)
    if in_full or noted > before:
        if snapshot.is_sample and snapshot.count is not None:
            noted += snapshot.count.ids - before
        space = changes.space or snapshot.space or NamespaceRecord()
        changes.count = Count(space.marker_id, noted)
        there = snapshot.counted
        if snapshot.count is None and there is not None and there >= 0:
            # If it still has machine ids, it is one of the missing ones and was counted before.
            # Otherwise it counts as new, or it would hide that another one is missing.
            counted, has_ids = snapshot.namespaces or NamespaceCount(), bool(snapshot.slots)
            number = max(counted.number + (not has_ids), there + 1)
            changes.namespaces = NamespaceCount(number)


# Renewing.


def renew(
    snapshot: Snapshot,
    caller: Caller,
    machine_id: int,
    *,
    now_ms: int,
    fence_ms: int,
    token: str,
    taken: GrantReceipt | None = None,
) -> Decision:
    """Renew an id and raise its fence; in a quarantine, reclaim it.

    Args:
        snapshot: has at least that machine id; complete where something is wrong.
        caller: the caller.
        machine_id: the id that the caller was granted.
        now_ms: the caller's wall clock.
        fence_ms: no id with a later time will be issued before the next renewal.
        token: the token of the call that was granted it, as it is stored; empty if not known.
        taken: what the caller was granted, if its lease is certainly valid.
    """
    slot = snapshot.slots.get(machine_id, MachineSlot())
    is_ours = caller.instance in slot.holders and _is_latest(slot, caller, token)
    is_sound = is_known(snapshot) and not (snapshot.space or NamespaceRecord()).quarantine
    is_enough = snapshot.is_complete and not is_uncounted(snapshot)
    if not (is_ours and is_sound) and not is_enough:
        return Decision(need=need_whole(caller, machine_id))
    # A guest that holds nothing must not prolong a quarantine.
    is_stranger = caller.is_guest and taken is None and not is_ours
    found = examine(snapshot, replace(caller, guard_ms=0) if is_stranger else caller)
    if found.left_ms and taken is None:
        return refused(snapshot, found)
    refusal = _refusal(snapshot, caller, now_ms=now_ms, fence_ms=fence_ms)
    if not (is_ours or found.left_ms):
        reason = _loss(slot, caller.instance)
        refusal = MachineIdLostError(snapshot.namespace, machine_id, reason=reason)
    if refusal is not None:
        return Decision(error=refusal)
    if found.left_ms and taken is not None:
        return _assert(snapshot, caller, taken, found, now_ms=now_ms, fence_ms=fence_ms)
    changes = Changes(caller.instance, guard_ms=caller.guard_ms, signed=machine_id)
    token, at = (slot.record or MachineRecord()).token or token, snapshot.now_ms
    signed = _signed(slot, caller, now_ms=now_ms, fence_ms=fence_ms, token=token, at=at)
    changes.slots[machine_id] = signed
    changes.space = space_written(snapshot, remembering(found.space, caller.guard_ms))
    if found.is_recounted:
        recount(snapshot, changes, in_full=True)
    return Decision(changes)


def _is_latest(slot: MachineSlot, caller: Caller, token: str) -> bool:
    """Return whether the call with that token was the last one that was granted the number.

    A guest must know the token.  A process on the store itself may renew an id that CosId has given
    to its instance, which has no token.
    """
    found = "" if slot.record is None else slot.record.token
    return found == token if found else not caller.is_guest


def _loss(slot: MachineSlot, instance: str) -> str:
    if instance in slot.holders:
        return f"it was handed out again to the same instance {instance}, which is running twice"
    return f"{slot.holders[0]} holds it" if slot.holders else "no instance holds it"


def _signed(
    slot: MachineSlot, caller: Caller, *, now_ms: int, fence_ms: int, token: str, at: int
) -> MachineSlot:
    record = slot.record or MachineRecord()
    owners = tuple(
        Owner(each.instance, max(each.stamp_ms, now_ms))
        if each.instance == caller.instance
        else each
        for each in slot.owners
    )
    record = replace(
        record,
        instance=caller.instance,
        stable=caller.stable,
        fence_ms=max(record.fence_ms, fence_ms),
        token=token,
        version=record.version + 1,
    )
    return MachineSlot(owners, record, at)


def _assert(
    snapshot: Snapshot,
    caller: Caller,
    taken: GrantReceipt,
    found: Soundness,
    *,
    now_ms: int,
    fence_ms: int,
) -> Decision:
    """Give an id back to its owner, unless another instance has a better claim."""
    space, number = found.space, taken.machine_id
    before = snapshot.slots.get(number, MachineSlot())
    holder = _rival(snapshot, caller, taken, space.quarantine)
    if holder is None:
        holder = _living_peer(snapshot, before, caller.instance, space)
    if holder is not None:
        reason = _loss(MachineSlot((Owner(holder, 0),)), caller.instance)
        error = MachineIdLostError(snapshot.namespace, number, reason=reason)
        changes = Changes(space=space_written(snapshot, space))
        return Decision(changes, error=error, is_alarm=found.is_alarm)
    changes = _taking(snapshot, caller, number, token=taken.token, now_ms=now_ms)
    slot = changes.slots[number]
    record = replace(
        slot.record or MachineRecord(),
        fence_ms=max(before.fence_ms, fence_ms),
        claimed=space.quarantine,
        requested_ms=taken.requested_ms,
    )
    changes.slots[number] = replace(slot, record=record)
    # Other processes that have not renewed yet may hold the numbers in between.
    gaps = space.gaps or changes.last_new is not None
    space = replace(space, bits=taken.bits, region_code=taken.region_code, gaps=gaps)
    changes.space = space_written(snapshot, space)
    return Decision(changes, is_alarm=found.is_alarm)


def _rival(snapshot: Snapshot, caller: Caller, taken: GrantReceipt, quarantine: str) -> str | None:
    """Return the instance that reclaimed an id and has a better claim than this call, if any."""
    for number, slot in snapshot.slots.items():
        claim = slot.record
        if claim is None or claim.claimed != quarantine or not claim.instance:
            continue
        is_rival = number == taken.machine_id or claim.instance == caller.instance
        if is_rival and _keeps_it(claim, caller.instance, taken, is_proven=bool(caller.owner)):
            return claim.instance
    return None


def _keeps_it(claim: MachineRecord, instance: str, taken: GrantReceipt, *, is_proven: bool) -> bool:
    """Return whether the instance that has reclaimed an id keeps it.

    Of two instances, the earlier one wins, then the one with the lower text; it is the other way
    round if a receipt proves when it took the id.  Of two processes of one instance, the later one
    wins.
    """
    if claim.instance == instance:
        return claim.token != taken.token and claim.requested_ms >= taken.requested_ms
    claimed = (claim.requested_ms, claim.instance.encode())
    # By the server's times, the later instance took it after the other lease was over.
    is_earlier = claimed < (taken.requested_ms, instance.encode())
    return is_earlier is not is_proven


def _living_peer(
    snapshot: Snapshot, slot: MachineSlot, instance: str, space: NamespaceRecord
) -> str | None:
    """Return the CosId peer that holds an id: it ignores quarantines and would not yield."""
    if not snapshot.stamps_tell:
        return None
    is_unknown = slot.record is None or not slot.record.token
    for owner in slot.owners:
        if owner.instance in {"", instance}:
            continue
        claim = slot.record_about(owner.instance)
        if claim is not None and claim.claimed == space.quarantine:
            continue
        if is_unknown or owner.stamp_ms >= space.since_ms:
            return owner.instance
    return None


# Releasing.


def give_back(
    snapshot: Snapshot, caller: Caller, machine_id: int, *, last_ms: int, token: str
) -> Decision:
    """Release an id; do nothing if it is no longer the caller's, or was granted again.

    Args:
        snapshot: has at least that machine id.
        caller: the caller; a stable one stays the owner.
        machine_id: the id that the caller was granted.
        last_ms: no id with a later time was issued; -1 if none was.
        token: the token of the call that was granted it.
    """
    if (refusal := _refusal(snapshot, caller, fence_ms=last_ms)) is not None:
        return Decision(error=refusal)
    slot = snapshot.slots.get(machine_id, MachineSlot())
    if caller.instance not in slot.holders or not _is_latest(slot, caller, token):
        return Decision()
    record = slot.record or MachineRecord()
    # A guest cannot lower the fence below the former owner's; a process on the store can.
    least_ms = record.requested_ms if caller.is_guest else -1
    fence_ms = min(max(last_ms, least_ms), record.fence_ms) if last_ms >= 0 else record.fence_ms
    stamp_ms = max(slot.stamp_ms, last_ms)  # the next owner may be CosId, which ignores the fence
    changes = Changes(caller.instance)
    if caller.stable:
        record = replace(record, fence_ms=fence_ms, version=record.version + 1)
        owners = (Owner(caller.instance, stamp_ms),)
        changes.slots[machine_id] = MachineSlot(owners, record, slot.seen_ms)
    else:
        changes.slots[machine_id] = freed(slot, stamp_ms, fence_ms=fence_ms)
        changes.own[caller.instance] = None
    return Decision(changes)


def take_away(snapshot: Snapshot, machine_id: int) -> Decision:
    """Take an id from its holder, on an operator's command; its fence stays."""
    slot = snapshot.slots.get(machine_id, MachineSlot())
    if not slot.holders:
        rule = f"is not held in namespace {snapshot.namespace!r}"
        return Decision(error=InvalidArgumentError("machine_id", machine_id, rule))
    changes = Changes()
    changes.slots[machine_id] = _left(slot)
    for holder in slot.holders:
        changes.own[holder] = None
    return Decision(changes)


def raise_mark(snapshot: Snapshot, machine_id: int, above_ms: int) -> Decision:
    """Let the next owner of an id begin above a time, on an operator's command.

    A number that no process ever had is written as released.  The stamp is raised as well, because
    CosId ignores the fence, and a holder that releases the id lowers it.  So a dead holder's id
    expires later.  The answer says whether the floor was lower.

    Args:
        snapshot: has at least that machine id.
        machine_id: the id; on a store with CosId's adder at most the next new one.
        above_ms: unix time in milliseconds.
    """
    slot = snapshot.slots.get(machine_id, MachineSlot())
    if slot.is_damaged:
        place = f"machine id {machine_id} of namespace {snapshot.namespace!r}"
        found = "a cell that cannot be read"
        return Decision(error=CorruptMachineStateError(snapshot.store, place=place, found=found))
    record = slot.record or MachineRecord()
    if min(record.fence_ms, slot.stamp_ms) >= above_ms:
        return Decision(answer=False)
    changes = Changes()
    owners = tuple(
        Owner(each.instance, max(each.stamp_ms, above_ms))
        for each in slot.owners or (Owner("", above_ms),)
    )
    record = replace(record, fence_ms=max(record.fence_ms, above_ms), version=record.version + 1)
    changes.slots[machine_id] = MachineSlot(owners, record, slot.seen_ms)
    if snapshot.last_new is not None and machine_id > snapshot.last_new:
        changes.last_new = machine_id
    return Decision(changes, slot.floor_ms < above_ms)


# Reading.


def seconds_left(snapshot: Snapshot) -> float:
    """Return the seconds left of a quarantine; its whole length if one is about to begin."""
    if not snapshot.space and not snapshot.is_marked:
        return 0.0
    return examine(snapshot, Caller("")).left_ms / 1000


def list_machines(snapshot: Snapshot) -> Iterator[Machine]:
    """Yield all ids that were ever granted, by number."""
    for number, slot in sorted(snapshot.slots.items()):
        owners = [each for each in slot.owners if each.instance] or list(slot.owners)[:1]
        for owner in owners:
            record = slot.record_about(owner.instance)
            yield Machine(
                namespace=snapshot.namespace,
                machine_id=number,
                instance_id=owner.instance,
                last_timestamp_ms=owner.stamp_ms,
                fence_ms=record.fence_ms if record is not None else -1,
                stable=bool(record is not None and record.stable and owner.instance),
            )
