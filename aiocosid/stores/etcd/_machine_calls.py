"""How a call about machine ids is made: read, apply the rules, write if nobody else has."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import MachineIdQuarantineError
from ._driver import grpc
from ._errors import STORE
from ._machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._link import Link
    from ._machine_keys import MachineKeys
    from ._server import Member

__all__ = ("Namespace", "Outcome", "narrow", "read_state")

LONGEST_LEASE: Final = 9_000_000_000
"""Seconds; etcd's own limit.  What is longer has no end."""


class Outcome(NamedTuple):
    """What a rule has come to.

    Attributes:
        answer: for the caller.
        touched: the machine id whose owner gave a sign of life by the call, if one did.
        hands_out: whether somebody was handed an id, which nobody else may have been meanwhile.
        renews: whether the owner's lease goes on; else it gets a new one.
    """

    answer: Any = None
    touched: int | None = None
    hands_out: bool = False
    renews: bool = False


class Namespace:
    """The machine ids of one namespace on a cluster.

    Attributes:
        keys: where they lie.
    """

    __slots__ = ("_cluster", "_link", "_revision", "keys")

    def __init__(self, link: Link, keys: MachineKeys) -> None:
        self._link = link
        self.keys = keys
        self.forget()

    def forget(self) -> None:
        """Remember nothing of how far the cluster was."""
        self._cluster, self._revision = "", 0

    async def run(
        self,
        rule: Callable[[MachineState], Outcome],
        *,
        machine_id: int | None = None,
        seconds: float = 0.0,
        reads_all: bool = False,
    ) -> Any:  # noqa: ANN401 - the rule's answer
        """Apply a rule in one atomic step, which is safe to repeat; return its answer.

        Args:
            rule: changes the pool of the state, and may be called several times.
            machine_id: the one that it is about, if it is one.
            seconds: the safe guard of who gives a sign of life.
            reads_all: whether it needs all machine ids on a store that is sound as well.

        Raises:
            MachineIdQuarantineError: the rule says so; that one has begun is written.
            CosIdError: the rule's; nothing was written.
            StoreError: the cluster refuses or cannot be reached.
        """

        async def attempt(member: Member) -> Any:  # noqa: ANN401 - the rule's answer
            leases = _Leases(member, seconds)
            while True:
                state = await self._read(member, machine_id, reads_all=reads_all)
                outcome, refusal = _judged(rule, state)
                revision = await _write(member, state, outcome, leases)
                if revision is None:
                    await member.pause()
                    continue
                # After a restoration, which is noticed here, from there.
                self._cluster, self._revision = state.cluster, revision
                if refusal is not None:
                    raise refusal
                return outcome.answer

        # Those who are handed an id all write the marker; signs of life stand in nobody's way.
        if reads_all:
            return await self._link.call_in_turn(self.keys.root, attempt)
        return await self._link.call(attempt)

    async def _read(
        self, member: Member, machine_id: int | None, *, reads_all: bool
    ) -> MachineState:
        before = self._cluster, self._revision
        state = None
        if not reads_all:
            state = await narrow(member, self.keys, machine_id)
            reads_all = machine_id is not None and not (
                state.is_sound and not state.is_behind(*before)
            )
        if state is None or reads_all:
            state = await read_state(member, self.keys)
        if state.is_behind(*before):
            state.doubt()
        return state


async def narrow(member: Member, keys: MachineKeys, machine_id: int | None) -> MachineState:
    """Read the marker, and one machine id."""
    wanted = [keys.marker, keys.quarantine]
    if machine_id is not None:
        wanted += [keys.entry(machine_id), keys.alive(machine_id)]
    reply = await member.look(*wanted)
    found = [each for response in reply.responses for each in response.response_range.kvs]
    return await with_quarantine(member, MachineState(keys, reply.header, found))


async def read_state(member: Member, keys: MachineKeys) -> MachineState:
    """Read all of a namespace."""
    return await with_quarantine(member, MachineState(keys, *await member.scan(keys.root)))


async def with_quarantine(member: Member, state: MachineState) -> MachineState:
    """Ask how much of a quarantine is left."""
    if state.quarantine_lease:
        state.set_remaining(await member.remaining(state.quarantine_lease))
    return state


def _judged(
    rule: Callable[[MachineState], Outcome], state: MachineState
) -> tuple[Outcome, MachineIdQuarantineError | None]:
    try:
        return rule(state), None
    except MachineIdQuarantineError as error:
        namespace, left = error.namespace, error.seconds_left
        return Outcome(), MachineIdQuarantineError(STORE, namespace=namespace, seconds_left=left)


class _Leases:
    """The leases that one attempt needs; those that it gets in vain end by themselves."""

    def __init__(self, member: Member, seconds: float) -> None:
        self._member = member
        self._seconds = _whole(seconds)
        self._own = 0

    async def own(self, found: int | None) -> int:
        """Return a lease for the owner's safe guard that begins now or has begun in this call.

        Args:
            found: one that it may have already.
        """
        if self._seconds == 0:
            return 0
        if not self._own and found and await self._member.keep_alive(found) >= self._seconds:
            return found
        self._own = self._own or await self._member.grant(self._seconds)
        return self._own

    async def quarantine(self, seconds: float | None) -> int | None:
        """Return a lease for a quarantine that has so long from now; None for none."""
        if seconds is None:
            return None
        return await self._member.grant(whole) if (whole := _whole(seconds)) else 0

    def forget(self) -> None:
        """Get another one: it has ended meanwhile."""
        self._own = 0


def _whole(seconds: float) -> int:
    return 0 if seconds > LONGEST_LEASE else ceil(seconds)


async def _write(
    member: Member, state: MachineState, outcome: Outcome, leases: _Leases
) -> int | None:
    """Write what a rule has changed; return the cluster's revision, None if others were faster."""
    lease, touched = 0, outcome.touched
    if touched is not None:
        lease = await leases.own(state.lives.get(touched) if outcome.renews else None)
    due = await leases.quarantine(state.quarantine_due())
    compares, changes = state.entry_changes(touched, lease)
    changes += state.marker_changes(due, always=outcome.hands_out)
    if not changes:
        return state.revision
    compares += state.compares(by_value=not outcome.hands_out)
    try:
        reply = await member.change(compares, changes)
    except grpc.aio.AioRpcError as exc:
        if exc.code() is not grpc.StatusCode.NOT_FOUND:  # the lease
            raise
        leases.forget()
        return None
    return int(reply.header.revision) if reply.succeeded else None
