"""How long a machine id may be used; shared by all generators that issue ids under it.

A lease ends in two ways.  By the monotonic clock it expires when another process may take the id
over; that time counts from before the last renewal was sent.  By the wall clock no id may have a
later time than the fence in the store.  No id is issued past either limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from .._life import fork
from .._life.component import Component, why_unusable
from .._life.loop import TaskRoot, is_dead, running_loop
from ..abc.options import takes
from ..errors import InvalidArgumentError, MachineIdInUseError
from ._opening import LeaseOpening
from ._options import LeaseOptions
from ._tenure import MarkDemand

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..abc import MachineIdDistributor
    from ..errors import CosIdError
    from ._tenure import Issuer

__all__ = ("MachineIdLease", "MachineIdStatistics", "lease_of")


_holders: Final[WeakKeyDictionary[MachineIdDistributor, ref[MachineIdLease]]] = WeakKeyDictionary()
"""The lease that was opened last on each distributor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdStatistics:
    """The state of a `MachineIdLease` at one moment.

    Attributes:
        namespace: the namespace of the machine id.
        instance_id: the holder.
        machine_id: the id, or None while there is none.
        bits: its width.
        term: how many ids were taken so far, counted over all openings.
        seconds_left: how long it may be used without a further renewal; ``inf`` for an id that is
            held by a lock of the operating system.
        fence_ms: no id is issued with a later time, unix time in milliseconds; -1 for none at all.
        fence_wait: seconds waited, or still to wait, until the fences of former owners have passed.
        renewals: renewals that the store has accepted.
        failures: calls to the store that failed.
        losses: how often the id was lost.
        last_error: the error of the last call, or None if it succeeded.
        quarantine_left: seconds for which the store grants no ids, because it may have lost the
            record of their holders, by its last answer; ``inf`` if that does not end by itself.
        taken_ms: when the id was taken, unix time in milliseconds; -1 while there is none.
    """

    namespace: str
    instance_id: str
    machine_id: int | None
    bits: int
    term: int
    seconds_left: float
    fence_ms: int
    fence_wait: float
    renewals: int
    failures: int
    losses: int
    last_error: Exception | None
    quarantine_left: float = 0.0
    taken_ms: int = -1


class MachineIdLease(Component):
    """A leased machine id, shared by all generators that are given this object.

    ``async with``, `run`, or the first generator that uses it opens it; whichever opened it also
    closes it.

    Attributes:
        distributor: the source of the id.
        bits: the width of the machine id.
        namespace: the namespace of the machine id.
    """

    _opening: LeaseOpening

    __slots__ = (
        *("__weakref__", "_demand", "_host", "_is_shared", "_options", "_users"),
        *("bits", "distributor", "namespace"),
    )

    @takes(LeaseOptions)
    def __init__(self, distributor: MachineIdDistributor, options: LeaseOptions, /) -> None:
        """Describe a lease; nothing is sent yet.

        Args:
            distributor: the source of the id; it names the instance and the namespace.
            options: the keyword arguments: see `LeaseOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._users = 0
        self._host: TaskRoot | None = None  # where its task runs, if a provider owns it
        self._is_shared = False  # whether a generator opened it, so that the last one closes it
        self._demand = MarkDemand()
        self.bits: int = options.bits
        self.distributor: MachineIdDistributor = distributor
        self.namespace: str = distributor.namespace
        self._options = options.fitted(distributor)
        super().__init__(options.clock)
        self._reset()

    # For generators.

    @property
    def machine_id(self) -> int:
        """The machine id; -1 while there is none."""
        return self._opening.tenure.machine_id

    @property
    def term(self) -> int:
        """How many ids were taken so far; an issuer begins each new term above `floor_ms`."""
        return self._opening.tenure.term

    @property
    def floor_ms(self) -> int:
        """Ids of this term must have a later time, in milliseconds since 1970."""
        return self._opening.tenure.floor_ms

    @property
    def taken_ms(self) -> int:
        """The wall clock when the id was taken, in milliseconds since 1970.

        No id has an earlier time, even if the former owner left no fence.
        """
        return self._opening.tenure.taken_ms

    @property
    def issuers(self) -> dict[str, Issuer]:
        """The sequencers that issue ids under this lease, by name."""
        return self._opening.tenure.issuers

    def limit_ms(self) -> int:
        """Return the latest time that ids may have now, in ms since 1970; -1 for none at all."""
        return self._opening.tenure.limit_ms()

    def lag_ms(self, now_ms: int, limit_ms: int) -> int:
        """Return by how many milliseconds ids must lag behind a clock that is past the limit.

        The answer is 0 where the limit is the fence: ids wait for the next renewal.  It is above 0
        where the record in a ``state_dir`` limits ids: the clock has jumped, and ids catch up with
        it after the next renewal.

        Args:
            now_ms: the wall clock, above the limit.
            limit_ms: what `limit_ms` has returned.
        """
        return now_ms - limit_ms if 0 <= limit_ms < self._opening.tenure.reach_ms() else 0

    def let_borrow(self, seconds: float) -> None:
        """Let an issuer run that many seconds ahead of the clock; call it before the issuer joins.

        Raises:
            InvalidArgumentError: the lease is not longer than that, so a store that lost the fence,
                or a CosId peer, could grant the machine id to another process before the time of
                those ids.  Or the store keeps no fences, so the next owner would begin among them.
        """
        if not self.distributor.keeps_fences:
            rule = "must be from a store that keeps fences, if seconds are borrowed"
            raise InvalidArgumentError("machine", self.distributor, rule)
        longest = self._options.lease_time
        if not seconds <= longest:
            rule = f"must be at most {longest:g} s (0.9 of the safe guard of {self.namespace!r})"
            raise InvalidArgumentError("max_borrow", seconds, rule)
        self._demand.borrowable = max(self._demand.borrowable, seconds)

    def ask(self, until_ms: int) -> None:
        """Request a renewal now, with a fence of at least that time, as far as borrowing allows."""
        self._demand.asked_ms = max(self._demand.asked_ms, until_ms)
        self.renew_now()

    def prepare(self, now_ms: int, until_ms: int) -> None:
        """Record how late the ids are that an issuer prepares; the next renewal allows for that."""
        self._demand.prepared_ms, self._demand.ahead_ms = now_ms, until_ms - now_ms

    def renew_now(self) -> None:
        """Request a renewal now: the clock has jumped past the fence.

        It has no effect while the store fails: the back-off decides when to try again.  It has none
        in a forked child or on another loop either, which must not wake this loop's sleep.
        """
        if self._fork_generation == fork.generation and self._find_loop() is self._loop:
            opening = self._opening
            if opening.last_error is None:
                opening.is_urgent = True
                if opening.opened.is_set():
                    opening.wake()

    def on_change(self) -> Callable[[], Coroutine[object, object, None]]:
        """Return a function that waits until the lease is next renewed, lost or taken again."""
        return self._opening.tenure.on_change.wait

    @property
    def lead(self) -> float:
        """Seconds for which callers wait for a former owner's fence that is ahead of the clock."""
        return (self._options.lead or 0.0) + self._demand.borrowable

    @property
    def lost(self) -> CosIdError | None:
        """Why it is unusable (lost, closed, or belonging to the parent process), or None."""
        return self._unusable

    @property
    def last_error(self) -> Exception | None:
        """The error of the last call to the store, or None."""
        return self._opening.last_error

    # Shared by generators.

    async def join(self) -> None:
        """Add a generator; the first one opens the lease.

        Raises:
            CosIdError: opening fails.
        """
        self._forget_dead_life()
        self._users += 1
        try:
            while self._closing is not None:
                await self.aclose()  # waits until the last opening has ended
            if self._root is None:
                self._launch()
            self._check_usable()
            await self._opening.wait_for_id()
            self._check_usable()
        except BaseException:
            await self.leave()
            raise

    def _launch(self) -> None:
        """Open it on behalf of all generators, even if one of them gives up; does not wait."""
        root = self._host or TaskRoot(lambda: (self,))
        self._claim(root)
        self._owns_root, self._is_shared = root is not self._host, True
        opening = self._opening
        begin = partial(opening.begin, partial(_take_over_distributor, self))
        if self._owns_root:
            root.launch(f"aiocosid {self._label()}", begin, opening.opened.set)
        else:
            begin()

    async def leave(self) -> None:
        """Remove a generator; the last one closes the lease if a generator opened it.

        If opening failed, the first one to leave closes it.
        """
        self._users = max(0, self._users - 1)
        if self._opening.refusal is not None or (self._users == 0 and self._is_shared):
            self._is_shared = False
            await self.aclose()

    def _is_left_by(self, bits: int) -> bool:
        """Return whether it is neither open nor opening, and of a width other than ``bits``."""
        return self.bits != bits and self._users == 0 and self._root is None

    def _live_root(self) -> TaskRoot | None:
        """Return the root it is open or closing on; None if it is the parent's or its loop died."""
        root, is_ours = self._held_in, self._fork_generation == fork.generation
        return None if root is None or not is_ours or is_dead(root.loop) else root

    def _forget_dead_life(self) -> None:
        """Reset it in a forked child, or on another loop after the last one has ended."""
        if self._held_in is not self._live_root() or self._fork_generation != fork.generation:
            self._users, self._is_shared = 0, False
            self._root = self._closing = None
            self._fork_generation = fork.generation

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self.namespace}"

    def _reset(self) -> None:
        self._opening = LeaseOpening(
            self._home,
            self._opening,
            distributor=self.distributor,
            bits=self.bits,
            options=self._options,
            demand=self._demand,
        )

    async def _start(self) -> None:
        self._opening.begin(partial(_take_over_distributor, self))
        await self._opening.wait_for_id()

    async def _release(self) -> None:
        holder = _holders.get(self.distributor)
        if holder is not None and holder() is self:  # otherwise another lease uses it
            await self.distributor.aclose()

    # Statistics.

    def statistics(self) -> MachineIdStatistics:
        """Return a snapshot of the lease; cheap, and never waits."""
        opening = self._opening
        return MachineIdStatistics(
            namespace=self.namespace,
            instance_id=self.distributor.instance_id.text,
            machine_id=self.machine_id if self.machine_id >= 0 else None,
            bits=self.bits,
            term=self.term,
            seconds_left=self._opening.tenure.seconds_left,
            fence_ms=opening.tenure.fence_ms,
            fence_wait=opening.fence_wait,
            renewals=opening.renewals,
            failures=opening.failures,
            losses=opening.losses,
            last_error=opening.last_error,
            quarantine_left=max(0.0, opening.quarantine_ends_at - self._clock.monotonic()),
            taken_ms=self.taken_ms if self.machine_id >= 0 else -1,
        )

    def __repr__(self) -> str:
        """Show the id and the seconds that the lease has left."""
        left = self._opening.tenure.seconds_left
        facts = f"machine_id={self.machine_id} seconds_left={left:g}"
        return f"<{self._label()} {self._condition} {facts}>"


async def _take_over_distributor(lease: MachineIdLease) -> None:
    """Open the distributor for this lease alone: two leases on it would get the same id."""
    distributor = lease.distributor
    while True:
        holder = _holders.get(distributor)
        other = holder() if holder is not None else None
        root = None if other is None or other is lease else other._live_root()
        if other is None or root is None:
            break
        if why_unusable(other) is None or root.loop is not running_loop():
            raise MachineIdInUseError(repr(distributor), holder=repr(other))
        await other.aclose()  # it first releases its id; other tasks may wait for that as well
    _holders[distributor] = ref(lease)
    await distributor.aopen()


_leases: Final[WeakKeyDictionary[MachineIdDistributor, ref[MachineIdLease]]] = WeakKeyDictionary()


def lease_of(distributor: MachineIdDistributor, *, bits: int, **options: Any) -> MachineIdLease:  # noqa: ANN401 - MachineIdLease's
    """Return the one lease of a distributor; create it with these options if there is none yet."""
    known = _leases.get(distributor)
    lease = known() if known is not None else None
    if lease is None or lease._is_left_by(bits):
        lease = MachineIdLease(distributor, bits=bits, **options)
        _leases[distributor] = ref(lease)
    return lease
