"""uid-generator's cached generator: ids of seconds, prepared ahead of the clock."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from ..abc.events import RingEmptied, RingFilled
from ..abc.options import takes
from ..errors import RingEmptyError
from ._ring import Ring
from ._sequencer import Behind, Full, Limited
from ._snowflake_id import SnowflakeId
from ._stamping import NS_PER_MS, SnowflakeOpening
from ._statistics import CachedSnowflakeStatistics, SnowflakeStatistics
from .options import SECOND_MS, CachedIdOptions

if TYPE_CHECKING:
    from .._life.open_state import Home
    from ..abc import MachineIdDistributor
    from ..abc.events import Event
    from ..machine import MachineIdLease
    from ._sequencer import Refusal

__all__ = ("CachedSnowflakeId",)

FIGURES: Final = tuple(field.name for field in fields(SnowflakeStatistics))


class _Handlers:
    """Passes events on, and calls the ring's handlers; their errors count as an instrument's."""

    __slots__ = ("_options",)

    def __init__(self, options: CachedIdOptions) -> None:
        self._options = options

    def on_event(self, event: Event) -> None:
        """Pass an event on, and call its handler."""
        options = self._options
        try:
            if options.instrument is not None:
                options.instrument.on_event(event)
        finally:
            if isinstance(event, RingFilled) and options.when_filled is not None:
                options.when_filled(event)
            if isinstance(event, RingEmptied) and options.when_empty is not None:
                options.when_empty(event)


class RingOpening(SnowflakeOpening):
    """One opening of a `CachedSnowflakeId`: keeps a ring filled, and renews the lease in time."""

    __slots__ = ("_fills_reported", "_ring_options")

    def __init__(
        self,
        home: Home,
        before: SnowflakeOpening | None,
        lease: MachineIdLease,
        options: CachedIdOptions,
    ) -> None:
        """Start an opening; ``before`` is the generator's previous one."""
        super().__init__(home, before, lease, options)
        if options.when_filled is not None or options.when_empty is not None:
            self._instrument = _Handlers(options)
        self._ring_options = options
        self._fills_reported = 0

    @property
    def _raises(self) -> bool:
        return self._ring_options.on_empty == "raise"

    def now_and_limit(self) -> tuple[int, int]:
        """Return the clock's time and the latest time that the lease allows; fill the ring."""
        now_ms, limit_ms = super().now_and_limit()
        self._refill(now_ms, limit_ms)
        return now_ms, limit_ms

    def _refill(self, now_ms: int, limit_ms: int) -> None:
        ring = self.hand
        if not isinstance(ring, Ring):
            return
        self._lease.prepare(now_ms, ring.wanted_ms(now_ms))
        wanted_ms = ring.refill(now_ms, limit_ms)
        if wanted_ms is not None:
            self._lease.ask(wanted_ms)
        if ring.fills != self._fills_reported and self.is_observed:
            self._fills_reported = ring.fills
            filled, borrowed = ring.filled(now_ms), ring.borrowed(now_ms)
            self.emit(RingFilled, filled=filled, borrowed=borrowed)

    async def _refill_at_intervals(self, interval: float) -> None:
        while self.ended is None:
            self._refill(self.read_ns() // NS_PER_MS, self._lease.limit_ms())
            await self.sleep_for(interval)

    async def take(self, n: int) -> list[range]:
        """Take ``n`` ids; with ``on_empty="raise"`` raise at once if there are too few."""
        ring = self.hand
        if self._raises and isinstance(ring, Ring) and not self.callers.line:
            now_ms, limit_ms = self.now_and_limit()
            refusal = ring.check(now_ms, limit_ms)
            if not isinstance(refusal, Behind) and ring.available(now_ms, limit_ms) < n:
                raise self._emptied(ring, refusal)
        return await super().take(n)

    async def pause(self) -> None:
        """Wait for what the callers in line need; with ``on_empty="raise"`` fail them."""
        ring, refusal = self.hand, self._refusal
        if isinstance(ring, Ring) and isinstance(refusal, Full | Limited):
            error = self._emptied(ring, refusal)
            if self._raises:
                self._fail_all(error.again)
                return
        await super().pause()

    def _emptied(self, ring: Ring, refusal: Refusal | None) -> RingEmptyError:
        """Report that callers find too few ids; return the error for callers that do not wait."""
        borrowed = ring.borrowed(self.clock.now_ms())
        self.emit(RingEmptied, borrowed=borrowed)
        if isinstance(refusal, Limited):
            self._ask_for_more(refusal)
        error = RingEmptyError(f"{self.namespace}.{self.name}", borrowed=borrowed)
        error.__cause__ = self._lease.last_error
        return error

    async def start(self) -> None:
        """Join the lease with a fence that is far enough ahead, and fill the ring."""
        ahead = min(2 * self._ring_options.seconds, int(self._ring_options.max_borrow))
        self._lease.ask(self.clock.now_ms() + ahead * SECOND_MS)
        await super().start()
        self._refill(self.read_ns() // NS_PER_MS, self._lease.limit_ms())
        interval = self._ring_options.refill_interval
        if interval is not None:
            self.start_soon(self._refill_at_intervals, interval, task="refill")

    def _make_sequencer(self) -> Ring:
        lease = self._lease
        return Ring(
            self.layout,
            self._ring_options,
            machine_id=lease.machine_id,
            floor_tick=self._floor_tick(),
            term=lease.term,
        )


class CachedSnowflakeId(SnowflakeId):
    """Ids of whole seconds, prepared ahead: a burst takes ids of future seconds.

    This is uid-generator's CachedUidGenerator, with its ring of ``2^sequence_bits << boost`` ids.
    The differences are:

    * No id is ahead of the clock by more than ``max_borrow``; beyond that callers wait, in order.
    * Ids return to the clock: unused ids of a second that has passed are dropped.
    * Borrowed seconds are below the lease's fence, so the machine id's next owner, or this
      process after a crash, begins above them, unless the fence is lost.
    * Callers wait if the ring is empty, unless ``on_empty`` says otherwise.  At the layout's end
      they get an error, never a negative id.

    The ids of a second are a range, so filling costs almost nothing.  The slow part, writing the
    fence ahead of them, happens in the background.
    """

    __slots__ = ()

    _options: CachedIdOptions  # pyright: ignore[reportIncompatibleVariableOverride]  # its own

    @takes(CachedIdOptions)
    def __init__(
        self, machine: MachineIdDistributor | MachineIdLease, options: CachedIdOptions, /
    ) -> None:
        """Describe a generator; nothing is sent yet.

        Args:
            machine: the source of the machine id, as for `SnowflakeId`; its store must keep fences,
                which a CosId proxy does not.
            options: the keyword arguments: see `CachedIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the layout is not in seconds,
                or the machine id's store keeps no fences: the next owner would begin within the
                borrowed seconds.
            MachineBitsMismatchError: the lease has machine ids of another width.
        """
        self._describe(machine, options)
        self._lease.let_borrow(options.max_borrow)

    def _reset(self) -> None:
        self._opening = RingOpening(self._home, self._opening, self._lease, self._options)

    # Statistics.

    def statistics(self) -> CachedSnowflakeStatistics:
        """Return the generator's statistics; cheap, and never waits."""
        seen, ring, now_ms = super().statistics(), self._opening.hand, self._clock.now_ms()
        filled = fills = borrowed = 0
        if isinstance(ring, Ring):
            filled, fills, borrowed = ring.filled(now_ms), ring.fills, ring.borrowed(now_ms)
        return CachedSnowflakeStatistics(
            **{name: getattr(seen, name) for name in FIGURES},
            capacity=self.layout.ids_per_tick * self._options.seconds,
            filled=filled,
            fills=fills,
            borrowed=borrowed,
        )
