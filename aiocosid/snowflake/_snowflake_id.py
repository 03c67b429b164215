"""The generator of Snowflake ids: its parts, its hot path, opening and closing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._life import fork
from .._life.callers import expand_ranges
from ..abc import MachineIdDistributor
from ..abc.options import takes
from ..errors import InvalidArgumentError, MachineBitsMismatchError
from ._sequencer import Sequencer
from ._stamped import StampGenerator
from ._stamping import SnowflakeOpening
from .options import SnowflakeIdOptions

if TYPE_CHECKING:
    from ..machine import MachineIdLease
    from ._layout import SnowflakeLayout
    from ._statistics import SnowflakeStatistics
    from .options import CachedIdOptions

__all__ = ("SnowflakeId",)


class SnowflakeId(StampGenerator):
    """Ids made of the time, a leased machine id and a sequence: no store is called for an id.

    Calls wait while the clock is behind, or the tick is used up.  Ids of different owners are
    unique because of the tick: no id has a later time than the lease's fence, and the machine id's
    next owner begins above the fence.

    Attributes:
        layout: the layout of the ids.
        name: generators of the same name, lease and layout share one sequence.
    """

    layout: SnowflakeLayout
    name: str
    _opening: SnowflakeOpening
    _options: SnowflakeIdOptions | CachedIdOptions

    __slots__ = ("_lease", "_options", "layout", "name")

    @takes(SnowflakeIdOptions)
    def __init__(
        self, machine: MachineIdDistributor | MachineIdLease, options: SnowflakeIdOptions, /
    ) -> None:
        """Describe a generator; nothing is sent yet.

        Args:
            machine: the source of the machine id.  Generators with the same distributor, or the
                same lease, share one machine id.
            options: the keyword arguments: see `SnowflakeIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the layout and the machine
                ids differ in their number of region bits.
            MachineBitsMismatchError: the lease has machine ids of another width.
        """
        self._describe(machine, options)

    def _describe(
        self,
        machine: MachineIdDistributor | MachineIdLease,
        options: SnowflakeIdOptions | CachedIdOptions,
    ) -> None:
        from ..machine import MachineIdLease, lease_of

        if not isinstance(machine, MachineIdDistributor | MachineIdLease):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            rule = "must be a MachineIdDistributor or a MachineIdLease"  # type: ignore[unreachable]
            raise InvalidArgumentError("machine", machine, rule)
        bits = options.layout.machine_bits
        if isinstance(machine, MachineIdDistributor):
            lease = lease_of(
                machine,
                bits=bits,
                broken_threshold=options.broken_threshold,
                instrument=options.instrument,
                clock=options.clock,
            )
        else:
            lease = machine
        if lease.bits != bits:
            raise MachineBitsMismatchError(lease.namespace, bits=bits, found=lease.bits)
        region_bits = lease.distributor.region_code.bit_length() - 1
        if region_bits and options.layout.region_bits not in {0, region_bits}:
            rule = f"must have region_bits={region_bits}, like the machine ids, or region_bits=0"
            raise InvalidArgumentError("layout", options.layout, rule)
        self.layout = options.layout
        self.name = options.name
        self._lease = lease
        self._options = options
        super().__init__(options.clock)
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
        sequencer = opening.hand
        if sequencer.begin_ns <= opening.read_ns() < sequencer.until_ns:
            for new_id in sequencer.piece:
                return new_id
        return await self._next_id_slow()

    def next_id_nowait(self) -> int:
        """Return the next id if there is one now; otherwise raise `WouldBlock`."""
        opening = self._opening
        sequencer = opening.hand
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

    # Opening and closing.

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self._lease.namespace}.{self.name}"

    def _reset(self) -> None:
        self._opening = SnowflakeOpening(self._home, self._opening, self._lease, self._options)

    async def _release(self) -> None:
        """Release nothing: the lease owns everything."""

    # Statistics.

    def statistics(self) -> SnowflakeStatistics:
        """Return the generator's statistics; cheap, and never waits."""
        from ._statistics import SnowflakeStatistics

        opening, layout = self._opening, self.layout
        sequencer = opening.hand
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
        """Show the generator's state and how many callers wait."""
        return (
            f"<{self._label()} {self._condition} machine_id={self._lease.machine_id} "
            f"waiting={len(self._opening.callers.line)}>"
        )
