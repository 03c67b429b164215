"""The generator of Snowflake ids: what it is made of, its hot path, and its life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._life import fork
from .._life.callers import MAX_BATCH, expand_ranges
from .._life.component import Component
from ..abc import IdGenerator, MachineIdDistributor
from ..abc.checks import check_text
from ..errors import InvalidArgumentError, MachineBitsMismatchError, WouldBlock
from ._layout import COSID_MS
from ._options import StampOptions
from ._sequencer import Sequencer
from ._stamping import Stamping

if TYPE_CHECKING:
    from ..abc import Clock
    from ..abc.events import Instrument
    from ..machine import MachineIdLease
    from ._layout import SnowflakeLayout
    from ._statistics import SnowflakeStatistics

__all__ = ("SnowflakeId",)


class SnowflakeId(Component, IdGenerator):
    """Ids made of the time, a leased machine id and a sequence: no store is asked for an id.

    Calls wait while the clock is behind, or the tick is used up.  Ids are unique across owners
    because of the tick: no id is later than the lease's time mark, and the machine id's next owner
    begins above the mark.

    Attributes:
        layout: the layout of the ids.
        name: generators of one name, lease and layout share one sequence.
    """

    _opening: Stamping

    __slots__ = ("__weakref__", "_lease", "_options", "layout", "name")

    def __init__(
        self,
        machine: MachineIdDistributor | MachineIdLease,
        *,
        name: str = "__share__",
        layout: SnowflakeLayout = COSID_MS,
        broken_threshold: float | None = 2.0,
        max_forward_jump: float | None = None,
        sequence_reset_threshold: int | None = -1,
        random_start: int | None = None,
        wait_timeout: float = 5.0,
        close_timeout: float = 5.0,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator; nothing is sent yet.

        Args:
            machine: the source of the machine id.  Generators with the same distributor, or the
                same lease, share one machine id.
            name: the generator's name.  Its ids are unique under it; generators of two names may
                issue equal ids.
            layout: the layout of the ids.
            broken_threshold: seconds that a call waits for a clock that stepped back; None for no
                limit.  CosId's is 0.5.
            max_forward_jump: seconds by which the wall clock may run ahead of the monotonic one
                between two ids; None for any.
            sequence_reset_threshold: the sequence restarts with a new tick once it has reached
                this, 0 to the highest sequence; -1 for CosId's default, ``2^(sequence_bits-1) -
                1``; None to begin each tick at 0, as Twitter's does.
            random_start: the first sequence of a tick is random, from 0 to below this limit, so
                that ``id % n`` is spread evenly at a low rate: 100 as in Leaf.  A tick has up to
                ``random_start - 1`` ids fewer, half of that on average; a tick after a used-up one
                begins at 0.  None for the threshold above.
            wait_timeout: seconds that a call waits for a lease that allows no ids: while the store
                cannot be reached, or the machine id is lost.
            close_timeout: seconds that closing may take.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            MachineBitsMismatchError: the lease has machine ids of another width.
        """
        from ..machine import MachineIdLease, lease_of

        check_text("name", name)
        if not isinstance(machine, MachineIdDistributor | MachineIdLease):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            expected = "a MachineIdDistributor or a MachineIdLease"  # type: ignore[unreachable]
            raise InvalidArgumentError("machine", machine, expected=expected)
        options = StampOptions(
            name=name,
            layout=layout,
            broken_threshold=broken_threshold,
            max_forward_jump=max_forward_jump,
            sequence_reset_threshold=sequence_reset_threshold,
            random_start=random_start,
            wait_timeout=wait_timeout,
            close_timeout=close_timeout,
            instrument=instrument,
        )
        if isinstance(machine, MachineIdDistributor):
            lease = lease_of(
                machine,
                bits=layout.machine_bits,
                broken_threshold=broken_threshold,
                instrument=instrument,
                clock=clock,
            )
        else:
            lease = machine
        if lease.bits != layout.machine_bits:
            raise MachineBitsMismatchError(
                lease.namespace, bits=layout.machine_bits, found=lease.bits
            )
        self.layout: SnowflakeLayout = layout
        self.name: str = name
        self._lease = lease
        self._options = options.fitted()
        super().__init__(clock)
        self._reset()

    # The hot path.

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`.

        Raises:
            ClockTooManyBackwardsError: the clock is behind by more than the broken threshold.
            MachineIdUnavailableError: the lease allowed no id within ``wait_timeout``.
            MachineIdLostError: the machine id was lost, and ``on_lost`` is ``"raise"``.
            LayoutExpiredError: the layout has ended.
            ClosedError: the generator was closed, also while this call waited.
        """
        opening = self._opening
        sequencer = opening.sequencer
        if sequencer.begin_ns <= opening.read_ns() < sequencer.until_ns:
            for new_id in sequencer.piece:
                return new_id
        return await self._next_id_slow()

    def next_id_nowait(self) -> int:
        """Return the next id if there is one now; raises `WouldBlock` otherwise."""
        opening = self._opening
        sequencer = opening.sequencer
        if sequencer.begin_ns <= opening.read_ns() < sequencer.until_ns:
            for new_id in sequencer.piece:
                return new_id
        return self._next_id_nowait_slow()

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, 1 to 10 million; see `aiocosid.abc.IdGenerator.next_ids`.

        Whole ticks are used at once, including up to three unused ones in the past.
        """
        process = fork.generation
        ids = await expand_ranges(await self._next_ranges(n))
        fork.ensure_own(process, self._home.label)
        return ids

    async def _next_ranges(self, n: int) -> list[range]:
        """Return ``n`` ids as ranges."""
        if type(n) is not int or not 1 <= n <= MAX_BATCH:
            raise InvalidArgumentError("n", n, expected=f"an integer from 1 to {MAX_BATCH}")
        self._check_usable()
        return await self._opening.take(n)

    # The boundary.

    async def _next_id_slow(self) -> int:
        self._check_usable()
        opening = self._opening
        if not opening.callers.line:
            await opening.callers.take_turn(opening)
            if not opening.callers.line and opening.install() is None:
                for new_id in opening.sequencer.piece:
                    return new_id
        return (await opening.callers.wait(1, opening))[0][0]

    def _next_id_nowait_slow(self) -> int:
        self._check_usable()
        opening = self._opening
        opening.install_nowait()
        for new_id in opening.sequencer.piece:
            return new_id
        raise WouldBlock

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    @property
    def _has_to_drain(self) -> bool:
        return self._opening.has_joined

    def _label(self) -> str:
        return f"{type(self).__name__} {self._lease.namespace}.{self.name}"

    def _reset(self) -> None:
        self._opening = Stamping(self._home, self._opening, self._lease, self._options)

    async def _release(self) -> None:
        """Nothing to release: the lease has everything."""

    # Statistics.

    def statistics(self) -> SnowflakeStatistics:
        """Return the generator's statistics; cheap, and never waits."""
        from ._statistics import SnowflakeStatistics

        opening, layout = self._opening, self.layout
        sequencer = opening.sequencer
        machine = self._lease.statistics()
        machine_id, handed_out, last_ms = None, 0, -1
        if isinstance(sequencer, Sequencer):
            machine_id, handed_out = machine.machine_id, sequencer.handed_out
            last_ms = layout.ms_of(layout.tick_at(sequencer.last_ms)) if handed_out else -1
        return SnowflakeStatistics(
            kind=type(self).__name__,
            namespace=self._lease.namespace,
            name=self.name,
            layout=repr(layout),
            epoch_ms=layout.epoch_ms,
            unit_ms=layout.unit_ms,
            timestamp_bits=layout.timestamp_bits,
            machine_bits=layout.machine_bits,
            sequence_bits=layout.sequence_bits,
            is_javascript_safe=layout.is_javascript_safe,
            machine_id=machine_id,
            last_timestamp_ms=last_ms,
            ids_handed_out=handed_out,
            waiting=len(opening.callers.line),
            waits_for_tick=opening.waits_for_tick,
            waits_for_clock=opening.waits_for_clock,
            waits_for_lease=opening.waits_for_lease,
            longest_backwards=opening.longest_backwards,
            last_instant=layout.last_instant_text,
            machine=machine,
        )

    def __repr__(self) -> str:
        """Show the generator and how many callers wait."""
        state = "open" if self._unusable is None else type(self._unusable).__name__
        return (
            f"<{self._label()} {state} machine_id={self._lease.machine_id} "
            f"waiting={len(self._opening.callers.line)}>"
        )
