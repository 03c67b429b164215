"""The machine ids of one namespace in memory: who holds which, and which comes next."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from ..abc import DEFAULT_SAFE_GUARD, Machine, MachineGrant
from ..abc._machine import bits_in_use, check_machine_bits, check_same_bits
from ..errors import (
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
)
from ._memory_marker import Claim, Marker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..abc import InstanceId

__all__ = ("MachinePool",)

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
        seen: when it last gave a sign of life, on the store's own monotonic clock, in seconds.
        stamp_ms: the latest time that it told.
        mark_ms: no id was issued with a later time.
        token: of the call that took it; an earlier one under the same text had another.
    """

    machine_id: int
    holder: str = ""
    stable: bool = False
    seen: float = 0.0
    stamp_ms: int = -1
    mark_ms: int = -1
    token: object = None

    @property
    def floor_ms(self) -> int:
        """Above which time the next owner's ids have to be."""
        return max(self.stamp_ms, self.mark_ms)

    def let_go(self) -> None:
        """Belong to nobody, and remember the times."""
        self.holder, self.stable = "", False


class MachinePool:
    """What the memory store knows of one namespace.

    Who is silent is judged by the store's monotonic clock: its users' wall clocks may be wrong, and
    are only remembered.

    Attributes:
        bits: the width of the machine ids, once one was handed out.
        marker: whether all is known; only a test makes it say no.
    """

    __slots__ = ("bits", "entries", "marker", "namespace")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.bits: int | None = None
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
        own = self._own(who)
        best: Entry | None = None
        for entry in self._candidates(own, size, silent_since=seen - safe_guard):
            if best is None or entry.floor_ms < best.floor_ms:
                best = entry
            if entry.floor_ms <= latest_ms or (entry is own and who.stable):
                best = entry
                break
        if best is None:
            raise MachineIdOverflowError(self.namespace, size=size, holders=self._holders())
        if own is not None and own is not best:
            own.let_go()
        grant = MachineGrant(best.machine_id, best.floor_ms)
        self.marker.remember(safe_guard)
        best.holder, best.stable, best.seen = who.text, who.stable, seen
        best.stamp_ms = max(best.stamp_ms, now_ms)
        best.token = token
        self.entries[best.machine_id] = best
        self.bits = bits
        return grant

    def set_bits(self, bits: int, *, seen: float) -> None:
        """Change the width, while nobody holds a machine id.

        Raises:
            MachineIdInUseError: somebody does.
            MachineIdQuarantineError: the store forgot.
            InvalidArgumentError: the width is outside its range.
        """
        check_machine_bits(bits)
        if bits == self.bits:
            return
        self._check_marker(seen, 0.0)
        if holders := self._holders():
            raise bits_in_use(self.namespace, self.bits, holders)
        self.bits = bits

    def guard(
        self,
        who: InstanceId,
        machine_id: int,
        *,
        now_ms: int,
        mark_ms: int,
        seen: float,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        token: object = None,
        claim: Claim | None = None,
    ) -> None:
        """Give a sign of life, and raise the mark; with a claim assert it in a quarantine.

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
            reason = f"{entry.holder} holds it" if entry and entry.holder else "nobody holds it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        self.marker.remember(safe_guard)
        entry.seen = seen
        entry.stamp_ms = max(entry.stamp_ms, now_ms)
        entry.mark_ms = max(entry.mark_ms, mark_ms)

    def revert(
        self, who: InstanceId, machine_id: int, *, last_ms: int, token: object = None
    ) -> None:
        """Lower the mark, and let the id go unless its owner is stable; nothing if not ours.

        Nor if it was handed out since, under the same text: then this call comes too late.
        """
        entry = self.entries.get(machine_id)
        if entry is None or entry.holder != who.text or entry.token is not token:
            return
        if last_ms >= 0:
            entry.mark_ms = last_ms
        if not who.stable:
            entry.let_go()

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
            own.let_go()
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

    def take_away(self, machine_id: int) -> None:
        """Let an id go, whoever holds it.

        Raises:
            InvalidArgumentError: nobody holds it.
        """
        entry = self.entries.get(machine_id)
        if entry is None or not entry.holder:
            expected = f"one that somebody holds in namespace {self.namespace!r}"
            raise InvalidArgumentError("machine_id", machine_id, expected=expected)
        entry.let_go()

    def machines(self) -> Iterator[Machine]:
        """Give all ids that were handed out once, by number."""
        for _, entry in sorted(self.entries.items()):
            yield Machine(
                namespace=self.namespace,
                machine_id=entry.machine_id,
                instance_id=entry.holder,
                last_timestamp_ms=entry.stamp_ms,
                mark_ms=entry.mark_ms,
                stable=entry.stable,
            )

    def _own(self, who: InstanceId) -> Entry | None:
        return next((each for each in self.entries.values() if each.holder == who.text), None)

    def _candidates(self, own: Entry | None, size: int, *, silent_since: float) -> Iterator[Entry]:
        """Give what might be taken, in CosId's order: own, given back, new, expired."""
        # A wider layout's ids are in the namespace, but not in this one's reach.
        known = [each for number, each in sorted(self.entries.items()) if number < size]
        yield from (each for each in known if each is own)
        yield from (each for each in known if not each.holder)
        new = next(number for number in count() if number not in self.entries)
        if new < size:
            yield Entry(new)
        yield from (
            each
            for each in known
            if each.holder and each is not own and not each.stable and each.seen <= silent_since
        )

    def _holders(self) -> tuple[str, ...]:
        held = (each.holder for _, each in sorted(self.entries.items()) if each.holder)
        return tuple(text for text, _ in zip(held, range(HOLDERS_NAMED), strict=False))
