"""Machine ids for callers that know nothing but their own name, as CosId's clients.

Everything is in the store: another server, or this one after a restart, renews what this one has
handed out.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Final

from .._life.clock import SYSTEM_CLOCK
from ..errors import MachineIdLostError, UnsupportedByStoreError
from ..machine import _rules
from ..machine._rules import RELEASE_STAMP_MARGIN, Asker, Decision, Taken
from ..machine.cells import MAX_MS, Need, Note, Owner
from ..machine.distributor import CellMachineIdDistributor, guard_ms_of, nonce, transact
from ._problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..abc import InstanceId, MachineGrant
    from ..machine.cells import Seat, Snapshot
    from ._service import Service

    Rule: TypeAlias = Callable[[Snapshot, int, Seat], Decision]

__all__ = ("UNKNOWN", "InstanceMachines")

UNKNOWN: Final = "unknown-instance"

CLIENT_WAITS_MS: Final = 2000
"""For so long CosId's clients wait until their clock has passed the time that they are told."""

REMEMBERED: Final = 10_000


class InstanceMachines:
    """Takes, renews and releases the machine id of an instance, by its instance id alone.

    A caller names neither its machine id nor a token, and keeps no time mark.  So it is treated as
    CosId's own processes on the store: only time protects its id.  It loses the id when it has not
    renewed for the safe guard of the instance that takes it, and two callers with one instance id
    share an id without noticing.  Beyond that the rules are those of all machine ids: a stable
    instance keeps its id, a namespace has one width, and after a loss of the store's data nobody is
    handed one before the quarantine has ended.

    What is remembered here only tells "lost" from "unknown"; both refuse.
    """

    __slots__ = ("_seen", "_service")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def take(
        self, namespace: str, who: InstanceId, *, bits: int, safe_guard: float
    ) -> MachineGrant:
        """Take a machine id: the instance's own, else one given back, a new one, an expired one.

        Args:
            namespace: the namespace of the machine ids.
            who: the instance.
            bits: the width, 1 to 31.
            safe_guard: seconds without a renewal after which an id may be taken from its holder;
                ``inf`` for never.

        Returns:
            The id; its ids have to be later than its floor.

        Raises:
            MachineIdOverflowError: all are held.
            CosIdError: an argument is refused; the store refuses or cannot be reached.
        """
        machines = self._machines(namespace, who, safe_guard)
        now_ms = SYSTEM_CLOCK.now_ms()
        latest_ms = now_ms + CLIENT_WAITS_MS
        grant = await machines.distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        self._remember(namespace, who, grant.machine_id)
        return grant

    async def renew(self, namespace: str, who: InstanceId, *, safe_guard: float) -> int:
        """Renew the id that the instance holds, and return it.

        In a quarantine it asserts the id, as a peer that renews in the store itself.

        Raises:
            Problem: the instance holds none, of kind `UNKNOWN`.
            MachineIdLostError: it held one, and has lost it.
            CosIdError: an argument is refused; the store refuses or cannot be reached.
        """
        asker = Asker(who.text, who.stable, guard_ms_of(safe_guard), nonce())
        now_ms = SYSTEM_CLOCK.now_ms()

        def rule(snapshot: Snapshot, number: int, seat: Seat) -> Decision:
            token = (seat.note or Note()).token  # the caller has none
            bits = 0 if snapshot.space is None else snapshot.space.bits
            taken = Taken(number, max(seat.stamp_ms, 0), bits, token)
            return _rules.renew(
                snapshot, asker, number, now_ms=now_ms, mark_ms=-1, token=token, taken=taken
            )

        number = await self._change(namespace, who, rule, safe_guard)
        self._remember(namespace, who, number)
        return number

    async def release(self, namespace: str, who: InstanceId) -> None:
        """Give back the id that the instance holds; a stable one stays its holder.

        The mark stays: it is that of an earlier holder, or of a process of this library.

        Raises:
            Problem: the instance holds none, of kind `UNKNOWN`.
            CosIdError: an argument is refused; the store refuses or cannot be reached.
        """
        asker = Asker(who.text, who.stable)
        now_ms = SYSTEM_CLOCK.now_ms()

        def rule(snapshot: Snapshot, number: int, seat: Seat) -> Decision:
            token = (seat.note or Note()).token
            stamp_ms = max(seat.stamp_ms, now_ms)
            if seat.mark_ms >= 0:
                stamp_ms = max(stamp_ms, min(seat.mark_ms + RELEASE_STAMP_MARGIN, MAX_MS))
            owners = tuple(Owner(each.instance, stamp_ms) for each in seat.owners)
            stamped = {**snapshot.seats, number: replace(seat, owners=owners)}
            found = replace(snapshot, seats=stamped)
            return _rules.give_back(found, asker, number, last_ms=-1, token=token)

        self._seen.pop((namespace, who.text), None)
        await self._change(namespace, who, rule, inf)

    async def _change(self, namespace: str, who: InstanceId, rule: Rule, safe_guard: float) -> int:
        machines = self._machines(namespace, who, safe_guard)
        was = self._seen.get((namespace, who.text))
        own: list[int] = []

        def decide(snapshot: Snapshot, _: int) -> Decision:
            seats = snapshot.seats
            number = min((n for n, seat in seats.items() if who.text in seat.holders), default=None)
            if number is None:
                if was is not None:
                    reason = "another instance holds it, or nobody does"
                    return Decision(error=MachineIdLostError(namespace, was, reason=reason))
                raise Problem(HTTPStatus.NOT_FOUND, UNKNOWN, "the instance holds no machine id")
            own[:] = [number]
            return rule(snapshot, number, seats[number])

        await transact(machines._backend, namespace, Need(who.text), decide)
        return own[0]

    def _machines(
        self, namespace: str, who: InstanceId, safe_guard: float
    ) -> CellMachineIdDistributor:
        """Return a new distributor: a token of an earlier call would be another server's by now."""
        store = self._service.store
        found = store.machine_id_distributor(
            namespace=namespace,
            instance_id=who,
            safe_guard=safe_guard,
            interval=None if safe_guard == inf else safe_guard / 4,
        )
        if not isinstance(found, CellMachineIdDistributor):
            raise UnsupportedByStoreError(type(store).__name__, "it shows nobody's machine id")
        return found

    def _remember(self, namespace: str, who: InstanceId, machine_id: int) -> None:
        self._seen[namespace, who.text] = machine_id
        self._seen.move_to_end((namespace, who.text))
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
