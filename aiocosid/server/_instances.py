"""Machine ids for callers that know only their own name, such as CosId's clients.

All state is in the store: another server, or this one after a restart, can renew the machine ids
that this server granted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .._life.clock import SYSTEM_CLOCK
from ..abc import InstanceId
from ..errors import MachineIdLostError, UnsupportedByStoreError
from ..machine import rules
from ..machine.cells import MAX_MS, MachineRecord, Owner, ReadRequest
from ..machine.distributor import CellMachineIdDistributor, guard_ms_of, nonce, transact, twin
from ..machine.operations import TakeOperation
from ..machine.rules import RELEASE_STAMP_MARGIN, Caller, Decision, GrantReceipt
from . import _machines
from ._problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..abc import MachineGrant
    from ..machine.cells import MachineSlot, Snapshot
    from ._service import Service
    from ._tokens import Access

    Rule: TypeAlias = Callable[[Snapshot, int, MachineSlot], Decision]

__all__ = ("UNKNOWN", "InstanceMachines")

UNKNOWN: Final = "unknown-instance"

RESTING_MS: Final = 1000
"""Milliseconds from the last renewal of a machine id to the answer to its next owner.

A client may issue ids in the very second in which it receives the answer.
"""

LONGEST_WAIT_MS: Final = 5000
"""Milliseconds that a request waits until its id can be used; if that takes longer, it is refused.

A client that is told a time later than its clock's waits for at most 500 ms.  If more is needed,
its start fails, and the id stays taken until the safe guard has passed.
"""

SHORT_WAIT_MS: Final = 2000
"""An id that can be used within this time is preferred to a new id; the caller waits for it."""

MOST_GUARD_MS: Final = 3_600_000
"""Milliseconds: the longest safe guard of a caller that the namespace records.

It applies to all instances: with an endless one, no machine id of the namespace would ever expire
again.
"""

SIGN: Final = "cosid-"
"""The prefix of the tokens of ids that were taken here; their callers know no token."""

REMEMBERED: Final = 10_000


class InstanceMachines:
    """Takes, renews and releases the machine id of an instance, given only its instance id.

    With an ``owner``, its callers, which show no token, never hold an id that others have taken.

    A caller names neither its machine id nor a token, and keeps no fence.  So its id belongs to the
    access that took it, and within that access it is treated like CosId's own processes on the
    store: only time protects its id.  It loses the id if it has not renewed for the safe guard of
    the instance that takes it, and two callers with one instance id share an id without noticing.
    Otherwise the rules for all machine ids apply: a stable instance keeps its id, a namespace has
    one width, and after a loss of the store's data no machine id is granted before the quarantine
    has ended.

    The state kept here only distinguishes "lost" from "unknown"; both are refusals.
    """

    __slots__ = ("_owner", "_seen", "_service")

    def __init__(self, service: Service, *, owner: str = "") -> None:
        self._service, self._owner = service, owner
        # The key includes the owner.
        self._seen: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    async def take(
        self, access: Access, namespace: str, who: InstanceId, *, bits: int, safe_guard: float
    ) -> MachineGrant:
        """Take a machine id: the instance's own, else a released, a new, or an expired one.

        Args:
            access: the caller's access.
            namespace: the namespace of the machine ids.
            who: the instance.
            bits: the width, 1 to 31.
            safe_guard: seconds without a renewal after which an id may be taken from its holder;
                ``inf`` for never.  The namespace records at most an hour.

        Returns:
            The id.  All times up to its floor, and the second after the floor, have passed.

        Raises:
            Problem: the former owner's ids are too far ahead.
            MachineIdOverflowError: all machine ids are held.
            CosIdError: an argument is not valid; the store refuses or cannot be reached.
            Problem: the id could not be renewed.
        """
        self._machines(namespace, who)
        now_ms = SYSTEM_CLOCK.now_ms()
        asked = TakeOperation(
            instance=who.text,
            stable=who.stable,
            guard_ms=min(guard_ms_of(safe_guard), MOST_GUARD_MS),
            least_guard_ms=guard_ms_of(safe_guard),  # it takes no other instance's id before
            bits=bits,
            now_ms=now_ms,
            latest_ms=now_ms + SHORT_WAIT_MS,
            token=SIGN + nonce(),
            owner=self._owner,
        )
        took = await _machines.take(self._service, access, namespace, asked)
        if took.twin_ms:
            raise twin(namespace, who.text, took)
        self._remember(namespace, self._caller(access, who), took.machine_id)
        if took.floor_ms >= 0:
            await self._rest(access, namespace, who, took.floor_ms + RESTING_MS)
        return took.grant

    async def _rest(self, access: Access, namespace: str, who: InstanceId, until_ms: int) -> None:
        """Wait until an id that was taken can be used; release it if that takes too long."""
        left_ms = until_ms - SYSTEM_CLOCK.now_ms()
        if left_ms > LONGEST_WAIT_MS:
            await self.release(access, namespace, who)
            left = left_ms // 1000 + 1
            detail = f"the free machine id can be used in {left} s, after its former owner's ids"
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "no-id-now", detail, retry_after=float(left)
            )
        while left_ms > 0:
            await SYSTEM_CLOCK.sleep(left_ms / 1000)
            left_ms = until_ms - SYSTEM_CLOCK.now_ms()

    async def renew(
        self, access: Access, namespace: str, who: InstanceId, *, safe_guard: float
    ) -> int:
        """Renew the id that the instance holds, and return it.

        In a quarantine it reclaims the id, like a process that renews in the store itself.

        Raises:
            Problem: the instance holds no id; the problem is of kind `UNKNOWN`.
            MachineIdLostError: the instance held an id and has lost it.
            CosIdError: an argument is not valid; the store refuses or cannot be reached.
        """
        guard_ms = min(guard_ms_of(safe_guard), MOST_GUARD_MS)
        caller = self._caller(access, who, guard_ms)
        now_ms = SYSTEM_CLOCK.now_ms()

        def rule(snapshot: Snapshot, number: int, slot: MachineSlot) -> Decision:
            token = (slot.record or MachineRecord()).token  # the caller has no token
            bits = 0 if snapshot.space is None else snapshot.space.bits
            taken = GrantReceipt(number, max(slot.stamp_ms, 0), bits, token)
            return rules.renew(
                snapshot, caller, number, now_ms=now_ms, fence_ms=-1, token=token, taken=taken
            )

        number = await self._change(namespace, caller, rule)
        self._remember(namespace, caller, number)
        return number

    async def release(self, access: Access, namespace: str, who: InstanceId) -> None:
        """Release the id that the instance holds; a stable instance stays its holder.

        An id that has been lost can be released once.  An id that was taken with a lease is left
        unchanged, because its holder releases it with the lease's token.  The fence stays, because
        it belongs to an earlier holder.

        Raises:
            Problem: the instance holds no id; the problem is of kind `UNKNOWN`.
            CosIdError: an argument is not valid; the store refuses or cannot be reached.
        """
        caller = self._caller(access, who)
        now_ms = SYSTEM_CLOCK.now_ms()

        def rule(snapshot: Snapshot, number: int, slot: MachineSlot) -> Decision:
            token = (slot.record or MachineRecord()).token
            stamp_ms = max(slot.stamp_ms, now_ms)
            if slot.fence_ms >= 0:
                stamp_ms = max(stamp_ms, min(slot.fence_ms + RELEASE_STAMP_MARGIN, MAX_MS))
            owners = tuple(Owner(each.instance, stamp_ms) for each in slot.owners)
            stamped = {**snapshot.slots, number: replace(slot, owners=owners)}
            found = replace(snapshot, slots=stamped)
            return rules.give_back(found, caller, number, last_ms=-1, token=token)

        was = self._seen.pop((caller.owner, namespace, who.text), None)
        try:
            await self._change(namespace, caller, rule, is_right=_is_given_here)
        except Problem as error:
            if was is None or error.kind != UNKNOWN:
                raise

    async def _change(
        self,
        namespace: str,
        caller: Caller,
        rule: Rule,
        *,
        is_right: Callable[[MachineSlot], bool] = lambda _: True,
    ) -> int:
        instance = caller.instance
        machines = self._machines(namespace, InstanceId(instance, stable=caller.stable))
        was = self._seen.get((caller.owner, namespace, instance))
        own: list[int] = []

        def decide(snapshot: Snapshot, _: int) -> Decision:
            held = (
                number
                for number, slot in snapshot.slots.items()
                if instance in slot.holders and rules.is_its_own(slot, caller) and is_right(slot)
            )
            number = min(held, default=None)
            if number is None:
                if was is not None:
                    reason = "another instance holds it, or none does"
                    return Decision(error=MachineIdLostError(namespace, was, reason=reason))
                raise Problem(HTTPStatus.NOT_FOUND, UNKNOWN, "the instance holds no machine id")
            own[:] = [number]
            return rule(snapshot, number, snapshot.slots[number])

        await transact(machines._backend, namespace, ReadRequest(instance), decide)
        return own[0]

    def _machines(self, namespace: str, who: InstanceId) -> CellMachineIdDistributor:
        """Return a distributor that finds an instance's machine id by its name."""
        store = self._service.store
        found = store.machine_id_distributor(namespace=namespace, instance_id=who)
        if not isinstance(found, CellMachineIdDistributor):
            raise UnsupportedByStoreError(
                type(store).__name__, "it cannot look up a single machine id"
            )
        if found.is_remote:
            detail = "this server's store is another server: ask that one for machine ids"
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "not-supported", detail)
        return found

    def _caller(self, access: Access, who: InstanceId, guard_ms: int = 0) -> Caller:
        owner = _machines.owner_of(access, self._owner)
        return Caller(who.text, who.stable, guard_ms, owner, nonce=nonce())

    def _remember(self, namespace: str, caller: Caller, machine_id: int) -> None:
        key = caller.owner, namespace, caller.instance
        self._seen[key] = machine_id
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


def _is_given_here(slot: MachineSlot) -> bool:
    """Return whether an id was taken here, or by a CosId process on the store itself."""
    token = "" if slot.record is None else slot.record.token
    return not token or token.startswith(SIGN)
