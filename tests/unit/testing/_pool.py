"""Machine ids in a process's memory by rules of their own, as a stranger might write them.

The contract's tests break it in many ways; it shares no rule with `aiocosid.machine`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    Clock,
    InstanceId,
    Machine,
    MachineGrant,
    MachineIdDistributor,
)
from aiocosid.abc.checks import check_machine_bits
from aiocosid.abc.machines import QUARANTINE_MARGIN, check_same_bits
from aiocosid.errors import (
    MachineBitsMismatchError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
)
from aiocosid.machine.instance_ids import as_instance_id


@dataclass(frozen=True, slots=True)
class Claim:
    """What an instance says of the machine id that it holds.

    Attributes:
        text: who holds it.
        token: of the call that handed it out.
        requested_ms: when that was, by the owner's clock.
        bits: the width of the namespace.
        machine_id: the id.
    """

    text: str
    token: object
    requested_ms: int
    bits: int
    machine_id: int

    def yields_to(self, other: Claim) -> bool:
        """Tell whether the other one, which was asserted already, keeps the id."""
        if other.text == self.text:  # a later life took it from an earlier one
            return other.token is not self.token and other.requested_ms >= self.requested_ms
        return (other.requested_ms, other.text) < (self.requested_ms, self.text)


@dataclass(slots=True)
class Marker:
    """Whether all is known of who holds which machine id.

    Attributes:
        is_there: whether there is one.
        is_ours: whether it was written for the store as it is now.
        since: when the quarantine that runs began, by the store's monotonic clock, or None.
        longest: the longest safe guard that was ever named, in seconds; 0 if none was.
        claims: what was asserted in it, by machine id.
    """

    is_there: bool = True
    is_ours: bool = True
    since: float | None = None
    longest: float = 0.0
    claims: dict[int, Claim] = field(default_factory=dict)

    def write(self) -> None:
        """Mark the store as sound."""
        self.is_there, self.is_ours, self.since = True, True, None
        self.claims.clear()

    def look(self, now: float, safe_guard: float) -> float:
        """Begin a quarantine if all may be forgotten, or end one that is over; seconds left.

        Args:
            now: by the store's clock.
            safe_guard: seconds, of who asks; 0 for who holds no id.
        """
        if not self.is_ours:
            self.write()
            self.since = now
        if self.since is None:
            return 0.0
        self.remember(safe_guard)
        left = self.left(now)
        if not left:
            self.write()
        return left

    def remember(self, safe_guard: float) -> None:
        """Have the next quarantine last as long, if it would not anyway."""
        self.longest = max(self.longest, safe_guard)

    def mark(self, now: float, safe_guard: float, *, is_new: bool) -> bool:
        """Write it if it is missing, or in any case; tell whether that was done."""
        if is_new or not self.is_there:
            self.write()
            self.longest = safe_guard
            return True
        # One that runs is not prolonged by somebody who holds no id.
        self.look(now, safe_guard if not self.is_ours else 0.0)
        if self.since is None:
            self.remember(safe_guard)
        return False

    def left(self, now: float) -> float:
        """Return the seconds that a quarantine has left; 0.0 if none runs."""
        if self.since is None:
            return 0.0
        lasts = (self.longest or DEFAULT_SAFE_GUARD) + QUARANTINE_MARGIN
        return max(0.0, lasts - (now - self.since))  # never more than it lasts, by rounding


STORE: Final = "memory"

HOLDERS_NAMED: Final = 5
"""Of those who hold a full pool, in the error."""


@dataclass(slots=True)
class Entry:
    """One machine id that was handed out once.

    Attributes:
        machine_id: the number.
        holder: the owner's text; empty if it was given back.
        stable: whether the owner is.
        seen: when it last sent a renewal, on the store's own monotonic clock, in seconds.
        stamp_ms: the latest time that it told.
        fence_ms: no id was issued with a later time.
        token: of the call that took it; an earlier one under the same text had another.
    """

    machine_id: int
    holder: str = ""
    stable: bool = False
    seen: float = 0.0
    stamp_ms: int = -1
    fence_ms: int = -1
    token: object = None

    @property
    def floor_ms(self) -> int:
        """Above which time the next owner's ids have to be."""
        return max(self.stamp_ms, self.fence_ms)

    def release(self) -> None:
        """Belong to nobody, and remember the times."""
        self.holder, self.stable = "", False


class MachinePool:
    """What the memory store knows of one namespace.

    Who is silent is judged by the store's monotonic clock: its users' wall clocks may be wrong, and
    are only remembered.

    Attributes:
        bits: the width of the machine ids, once one was handed out.
        region: the region and its bits, from the same time on.
        marker: whether all is known; only a test makes it say no.
    """

    __slots__ = ("bits", "entries", "marker", "namespace", "region")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.bits: int | None = None
        self.region: tuple[int | None, int] | None = None
        self.entries: dict[int, Entry] = {}
        self.marker = Marker()

    def distribute(
        self,
        who: InstanceId,
        bits: int,
        *,
        now_ms: int,
        latest_ms: int,
        seen: float,
        safe_guard: float,
        token: object = None,
        region: tuple[int | None, int] = (None, 0),
    ) -> MachineGrant:
        """Take the first machine id that need not wait, else the one that has to wait least.

        Raises:
            MachineBitsMismatchError: the namespace has another width.
            MachineIdOverflowError: all of that width are held.
            MachineIdQuarantineError: the store forgot.
            InvalidArgumentError: the width is outside its range.
        """
        size = check_machine_bits(bits)
        self._check_marker(seen, safe_guard)
        check_same_bits(self.namespace, bits, self.bits)
        if region != (self.region or region):
            raise MachineBitsMismatchError(self.namespace, bits=bits, found=bits)
        own = self._own(who)
        size >>= region[1]
        ids = range((region[0] or 0) * size, ((region[0] or 0) + 1) * size)
        best: Entry | None = None
        for entry in self._candidates(own, ids, silent_since=seen - safe_guard):
            if best is None or entry.floor_ms < best.floor_ms:
                best = entry
            if entry.floor_ms <= latest_ms or (entry is own and who.stable):
                best = entry
                break
        if best is None:
            raise MachineIdOverflowError(self.namespace, size=size, holders=self._holders())
        if own is not None and own is not best:
            own.release()
        grant = MachineGrant(best.machine_id, best.floor_ms)
        self.marker.remember(safe_guard)
        best.holder, best.stable, best.seen = who.text, who.stable, seen
        best.stamp_ms = max(best.stamp_ms, now_ms)
        best.token = token
        self.entries[best.machine_id] = best
        self.bits, self.region = bits, region
        return grant

    def renew(
        self,
        who: InstanceId,
        machine_id: int,
        *,
        now_ms: int,
        fence_ms: int,
        seen: float,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        token: object = None,
        claim: Claim | None = None,
    ) -> None:
        """Send a renewal, and raise the mark; with a claim assert it in a quarantine.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody.
            MachineIdQuarantineError: the store forgot, and nothing is claimed.
        """
        if left := self.marker.look(seen, safe_guard):
            if claim is None:
                raise self._quarantine(left)
            self._assert(who, machine_id, claim)
        entry = self.entries.get(machine_id)
        if entry is None or entry.holder != who.text or entry.token is not token:
            holder = entry.holder if entry else ""
            reason = f"{holder or 'no instance'} holds it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        self.marker.remember(safe_guard)
        entry.seen = seen
        entry.stamp_ms = max(entry.stamp_ms, now_ms)
        entry.fence_ms = max(entry.fence_ms, fence_ms)

    def release(
        self, who: InstanceId, machine_id: int, *, last_ms: int, token: object = None
    ) -> None:
        """Lower the mark, and let the id go unless its owner is stable; nothing if not ours.

        Nor if it was handed out since, under the same text: then this call comes too late.
        """
        entry = self.entries.get(machine_id)
        if entry is None or entry.holder != who.text or entry.token is not token:
            return
        if last_ms >= 0:
            entry.fence_ms = last_ms
        if not who.stable:
            entry.release()

    def _assert(self, who: InstanceId, machine_id: int, claim: Claim) -> None:
        """Hand an id to its owner once more, unless somebody with a better claim has it.

        Raises:
            MachineIdLostError: somebody has.
        """
        claims = self.marker.claims
        for number, other in claims.items():
            is_rival = number == machine_id or other.text == claim.text
            if is_rival and claim.yields_to(other):
                reason = f"{other.text} holds it"
                raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        own = self._own(who)
        if own is not None and own.machine_id != machine_id:
            own.release()
            claims.pop(own.machine_id, None)
        entry = self.entries.setdefault(machine_id, Entry(machine_id))
        entry.holder, entry.stable, entry.token = who.text, who.stable, claim.token
        claims[machine_id], self.bits = claim, claim.bits

    def forget(self, *, everything: bool) -> None:
        """Lose the marker, and with it all that was known or nothing."""
        longest = 0.0 if everything else self.marker.longest
        self.marker = Marker(is_there=not everything, is_ours=False, longest=longest)
        if everything:
            self.entries.clear()
            self.bits = None

    def _check_marker(self, seen: float, safe_guard: float) -> None:
        if left := self.marker.look(seen, safe_guard):
            raise self._quarantine(left)

    def _quarantine(self, left: float) -> MachineIdQuarantineError:
        return MachineIdQuarantineError(STORE, namespace=self.namespace, seconds_left=left)

    def machines(self) -> Iterator[Machine]:
        """Give all ids that were handed out once, by number."""
        for _, entry in sorted(self.entries.items()):
            yield Machine(
                namespace=self.namespace,
                machine_id=entry.machine_id,
                instance_id=entry.holder,
                last_timestamp_ms=entry.stamp_ms,
                fence_ms=entry.fence_ms,
                stable=entry.stable,
            )

    def _own(self, who: InstanceId) -> Entry | None:
        return next((each for each in self.entries.values() if each.holder == who.text), None)

    def _candidates(self, own: Entry | None, ids: range, *, silent_since: float) -> Iterator[Entry]:
        """Give what might be taken, in CosId's order: own, given back, new, expired."""
        # A wider layout's ids are in the namespace, but not in this one's reach.
        known = [each for number, each in sorted(self.entries.items()) if number in ids]
        yield from (each for each in known if each is own)
        yield from (each for each in known if not each.holder)
        new = next(number for number in count(ids.start) if number not in self.entries)
        if new in ids:
            yield Entry(new)
        yield from (
            each
            for each in known
            if each.holder and each is not own and not each.stable and each.seen <= silent_since
        )

    def _holders(self) -> tuple[str, ...]:
        held = (each.holder for _, each in sorted(self.entries.items()) if each.holder)
        return tuple(text for text, _ in zip(held, range(HOLDERS_NAMED), strict=False))


class PoolStore:
    """The pools of all namespaces."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SYSTEM_CLOCK
        self._pools: dict[str, MachinePool] = {}
        self._lock = threading.RLock()

    def _refuse_child(self) -> None:
        """Nobody forks here."""

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        region: int | None = None,
        region_bits: int = 0,
    ) -> MachineIdDistributor:
        return PoolDistributor(
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            memory=self,
            region=region,
            region_bits=region_bits,
        )

    def forget_machines(self, *, namespace: str, everything: bool = True) -> None:
        pool = self._pools.setdefault(namespace, MachinePool(namespace))
        pool.forget(everything=everything)


class PoolDistributor(MachineIdDistributor):
    """Machine ids in memory, which all instances on the same store share.

    For the instances of one process: another process has a memory, and machine ids, of its own.
    """

    store = "memory"

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        memory: PoolStore | None = None,
        region: int | None = None,
        region_bits: int = 0,
    ) -> None:
        """Describe who asks; see `aiocosid.abc.MachineIdDistributor`.

        Args:
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a renewal after which an id may go to somebody else.
            interval: seconds between two renewals.
            memory: where the machine ids lie; by default in the one store that this process shares.
            region: whose machine ids it takes; None for all.
            region_bits: how many of the highest bits name the region.
        """
        self.region = region, region_bits
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self._store = PoolStore() if memory is None else memory
        self._token: object = None  # of the last call that was handed an id
        self._claim: Claim | None = None  # what that call was
        with self._store._lock:
            self._pool = self._store._pools.setdefault(namespace, MachinePool(namespace))

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id without a suspension; see `aiocosid.abc.MachineIdDistributor`.

        Raises:
            MachineBitsMismatchError: the namespace has another width.
            MachineIdOverflowError: all ``2^bits`` are held.
            MachineIdQuarantineError: a test made the store forget.
            InvalidArgumentError: ``bits`` is outside its range.
            ForkedError: the machine ids are the parent's; another process goes on with them.
        """
        self._store._refuse_child()
        token = object()
        with self._store._lock:
            grant = self._pool.distribute(
                self.instance_id,
                bits,
                now_ms=now_ms,
                latest_ms=latest_ms,
                seen=self._store._clock.monotonic(),
                safe_guard=self.safe_guard,
                token=token,
                region=self.region,
            )
        self._token = token
        self._claim = Claim(self.instance_id.text, token, now_ms, bits, grant.machine_id)
        return grant

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Send a renewal, and raise the fence, without a suspension.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody.
            MachineIdQuarantineError: a test made the store forget.
            ForkedError: the machine ids are the parent's.
        """
        self._guard(machine_id, now_ms, fence_ms, None)

    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody.
            MachineIdQuarantineError: a test made the store forget, and this object was not handed
                the id, or gave it back.
            ForkedError: the machine ids are the parent's.
        """
        self._guard(machine_id, now_ms, fence_ms, self._claim if self._claims(machine_id) else None)

    def _claims(self, machine_id: int) -> bool:
        return self._claim is not None and self._claim.machine_id == machine_id

    def _guard(self, machine_id: int, now_ms: int, fence_ms: int, claim: Claim | None) -> None:
        self._store._refuse_child()
        with self._store._lock:
            self._pool.renew(
                self.instance_id,
                machine_id,
                now_ms=now_ms,
                fence_ms=fence_ms,
                seen=self._store._clock.monotonic(),
                safe_guard=self.safe_guard,
                token=self._token,
                claim=claim,
            )

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Give the id back without a suspension; does nothing if it is not ours any more.

        Raises:
            ForkedError: the machine ids are the parent's.
        """
        self._store._refuse_child()
        if self._claims(machine_id):
            self._claim = None
        with self._store._lock:
            self._pool.release(self.instance_id, machine_id, last_ms=last_ms, token=self._token)

    async def aopen(self) -> None:
        """Refuse a forked child.

        Raises:
            ForkedError: the machine ids are the parent's.
        """
        self._store._refuse_child()
