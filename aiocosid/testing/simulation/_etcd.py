"""etcd in the world: members that die and come back, and a leader that is lost now and then."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ._errors import RefusedError
from ._faults import draw_between

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...stores.etcd._link import OwnedLink
    from ._etcd_state import Snapshot
    from ._faults import Faults
    from ._node import Node
    from ._process import Process
    from ._world import World

__all__ = ("ETCD_ACTS", "EtcdAct", "SimulatedEtcd", "etcd_trouble")

EtcdAct: TypeAlias = Literal["kill", "outage", "election"]

ETCD_ACTS: Final[tuple[EtcdAct, ...]] = ("kill", "outage", "election")
"""All that may happen to an etcd."""

PREFIX: Final = "/cosid"
EXTRA: Final = 1.0  # seconds by which a new leader makes leases longer: an election's
SWEEP: Final = 0.5  # seconds by which a leader may be late to take leases away
DOWN: Final = (0.01, 2.0)  # seconds
WAIT: Final = (0.01, 1.0)  # seconds until a member gives a call up
LOGGED: Final = frozenset({"Txn", "LeaseGrant", "LeaseRevoke"})
UNTOLD: Final = (
    ("UNKNOWN", "context deadline exceeded"),
    ("UNAVAILABLE", "etcdserver: leader changed"),
    ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure"),
)
"""What is said of calls that may be carried out all the same."""


class SimulatedEtcd:
    """An etcd in virtual time, on which the shipped distributors run: all that lies above grpc.

    What it has confirmed it never forgets, unless it is restored.

    Attributes:
        members: how many there are; they are numbered from 0.
        leader: who leads; None if nothing can be agreed on.
        down: who does not answer, or knows of no leader.
    """

    def __init__(self, world: World, *, members: int = 3) -> None:
        """Start the members.

        Args:
            world: where they run; its clock is the leader's.
            members: how many.

        Raises:
            MissingExtraError: aetcd is not installed.
        """
        from ._etcd_grants import EtcdGrants  # noqa: PLC0415 - needs the driver
        from ._etcd_state import EtcdState  # noqa: PLC0415 - as above

        self.members = members
        self.leader: int | None = 0
        self.down: set[int] = set()
        self._world = world
        self._state = EtcdState(lambda: world.rng.uniform(0.0, SWEEP))
        self._grants = EtcdGrants(self._state, world.ledger)
        self._undecided: list[Callable[[], object]] = []

    # For nodes.

    def client(self, node: Node, *, faults: Faults | None = None) -> OwnedLink:
        """Return connections for the process that runs on a node, on a link of their own.

        Args:
            node: where they are used, given to a distributor as its client.
            faults: what may go wrong on the link; the node's by default.
        """
        from ._etcd_channel import open_link  # noqa: PLC0415 - needs the driver

        order = self._world.rng.sample(range(self.members), self.members)
        return open_link(self, node, node.link(faults), order)

    async def serve(self, member: int, process: Process, call: str, request: Any) -> Any:  # noqa: ANN401 - the driver's
        """Do what has arrived at a member.

        Raises:
            RefusedError: it is refused, or nobody knows what becomes of it.
        """
        rng = self._world.rng
        if member in self.down:
            text = rng.choice(("connection refused", "etcdserver: no leader"))
            raise RefusedError("UNAVAILABLE", text)
        if self.leader is not None:
            return self._answer(process, call, request)
        if rng.random() < 0.5:
            raise RefusedError("UNAVAILABLE", "etcdserver: no leader")
        if call in LOGGED:
            self._undecided.append(partial(self._answer, process, call, request))
        await self._world.sleep(draw_between(rng, WAIT))
        raise RefusedError(*rng.choice(UNTOLD))

    def _answer(self, process: Process, call: str, request: Any) -> Any:  # noqa: ANN401 - the driver's
        now, state = self._world.time, self._state
        state.sweep(now)
        before = state.keys
        reply = state.answer(call, request, now)
        if call == "Txn" and reply.succeeded:
            self._grants.note(request, before, process)
        self._grants.tell()
        return reply

    # For the scenario.

    def mark_machines(self, namespace: str = "cosid") -> None:
        """Do as ``aiocosid init``: say that no machine id was forgotten."""
        from ._etcd_grants import marking  # noqa: PLC0415 - needs the driver

        self._state.answer("Txn", marking(self._state, PREFIX, namespace), self._world.time)

    def stop(self, *members: int) -> None:
        """Have members die, or be cut off from the others; a leader that does is lost."""
        self._world.note("etcd", "loses members", f"{members}")
        self.down.update(members)
        if self.leader in self.down or not self._can_elect:
            self.leader = None

    def depose(self) -> None:
        """Have no leader until `elect`, although all members are there."""
        self._world.note("etcd", "loses its leader")
        self.leader = None

    def elect(self) -> None:
        """Have a new leader, if a majority is there; all leases begin anew.

        Of what was asked for meanwhile some is carried out.
        """
        if not self._can_elect:
            return
        world, rng = self._world, self._world.rng
        self.leader = rng.choice([each for each in range(self.members) if each not in self.down])
        self._state.lead(world.time, EXTRA)
        world.note("etcd", "elects", f"member {self.leader}")
        undecided, self._undecided = self._undecided, []
        for answer in undecided:
            if rng.random() < 0.5:
                with suppress(RefusedError):
                    answer()
        self._grants.tell()

    def save(self) -> Snapshot:
        """Take a snapshot."""
        return self._state.save()

    def restore(self, saved: Snapshot) -> None:
        """Put another cluster in its place, made of a snapshot; what was asked for is forgotten."""
        self._world.note("etcd", "is restored", f"to revision {saved.revision}")
        self._undecided.clear()
        self._state.restore(saved)
        self.leader = None
        self.mend()

    def mend(self) -> None:
        """Have all members run, and a leader."""
        self.down.clear()
        if self.leader is None:
            self.elect()

    @property
    def _can_elect(self) -> bool:
        return 2 * len(self.down) < self.members


async def etcd_trouble(
    world: World,
    etcd: SimulatedEtcd,
    *,
    seconds: float,
    every: float = 1.0,
    acts: Sequence[EtcdAct] = ETCD_ACTS,
) -> None:
    """Do something to an etcd, now and then; have it run in the end.

    Args:
        world: the world.
        etcd: whom.
        seconds: for how long.
        every: seconds between two acts, on average.
        acts: what may be done: a ``kill`` of one member, for seconds; an ``outage`` of all; an
            ``election`` while all are there.
    """
    rng, end = world.rng, world.time + seconds
    while (rest := rng.expovariate(1 / every)) < end - world.time:
        await world.sleep(rest)
        await _DO[rng.choice(acts)](world, etcd)
    await world.sleep(max(0.0, end - world.time))
    etcd.mend()


async def _kill(world: World, etcd: SimulatedEtcd) -> None:
    etcd.stop(world.rng.randrange(etcd.members))
    await _rest(world)
    if etcd.leader is None:
        etcd.elect()
        await _rest(world)
    etcd.mend()


async def _outage(world: World, etcd: SimulatedEtcd) -> None:
    etcd.stop(*range(etcd.members))
    await _rest(world)
    etcd.mend()


async def _election(world: World, etcd: SimulatedEtcd) -> None:
    etcd.depose()
    await _rest(world)
    etcd.elect()


async def _rest(world: World) -> None:
    await world.sleep(draw_between(world.rng, DOWN))


_DO: Final[dict[EtcdAct, Callable[[World, SimulatedEtcd], Awaitable[None]]]] = {
    "kill": _kill,
    "outage": _outage,
    "election": _election,
}
