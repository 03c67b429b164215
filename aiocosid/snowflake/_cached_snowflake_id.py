"""uid-generator's cached generator: ids of seconds, prepared ahead of the clock."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from ..abc.checks import check_seconds
from ..abc.events import RingEmptied, RingFilled
from ..errors import InvalidArgumentError, RingEmptyError
from ._layout import UID_GENERATOR_HA
from ._ring import SECOND_MS, Ring, RingOptions
from ._sequencer import Behind, Full, Limited
from ._snowflake_id import SnowflakeId
from ._stamping import NS_PER_MS, Stamping
from ._statistics import CachedSnowflakeStatistics, SnowflakeStatistics

if TYPE_CHECKING:
    from .._life.open_state import Home
    from ..abc import Clock, MachineIdDistributor
    from ..abc.events import Instrument
    from ..machine import MachineIdLease
    from ._layout import SnowflakeLayout
    from ._options import StampOptions
    from ._sequencer import Refusal

__all__ = ("CachedSnowflakeId", "OnEmpty")

OnEmpty: TypeAlias = Literal["wait", "raise"]
"""What a `CachedSnowflakeId` does when its ring is empty."""

ON_EMPTY: Final = get_args(OnEmpty)

FIGURES: Final = tuple(field.name for field in fields(SnowflakeStatistics))


class RingStamping(Stamping):
    """One opening of a `CachedSnowflakeId`: keeps a ring filled, and asks the lease in time."""

    __slots__ = ("_fills_reported", "_raises", "_refill_interval", "_ring_options")

    def __init__(
        self,
        home: Home,
        before: Stamping | None,
        lease: MachineIdLease,
        options: StampOptions,
        *,
        ring_options: RingOptions,
        refill_interval: float | None,
        raises: bool,
    ) -> None:
        """Begin; ``before`` is the generator's last opening."""
        super().__init__(home, before, lease, options)
        self._ring_options = ring_options
        self._refill_interval = refill_interval
        self._raises = raises
        self._fills_reported = 0

    def now_and_limit(self) -> tuple[int, int]:
        """Return the clock's time and the latest one that the lease allows; fill the ring."""
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
        """Take ``n`` ids, after those who came before; none of too few, if nobody is to wait."""
        ring = self.hand
        if self._raises and isinstance(ring, Ring) and not self.callers.line:
            now_ms, limit_ms = self.now_and_limit()
            refusal = ring.check(now_ms, limit_ms)
            if not isinstance(refusal, Behind) and ring.available(now_ms, limit_ms) < n:
                raise self._emptied(ring, refusal)
        return await super().take(n)

    async def pause(self) -> None:
        """Wait for what those in line have to wait for; or fail them, if nobody is to wait."""
        ring, refusal = self.hand, self._refusal
        if isinstance(ring, Ring) and isinstance(refusal, Full | Limited):
            error = self._emptied(ring, refusal)
            if self._raises:
                self._fail_all(error.again)
                return
        await super().pause()

    def _emptied(self, ring: Ring, refusal: Refusal | None) -> RingEmptyError:
        """Report that callers find too few ids; return the error for those who do not wait."""
        borrowed = ring.borrowed(self.clock.now_ms())
        self.emit(RingEmptied, borrowed=borrowed)
        if isinstance(refusal, Limited):
            self._ask_for_more(refusal)
        error = RingEmptyError(f"{self.namespace}.{self.name}", borrowed=borrowed)
        error.__cause__ = self._lease.last_error
        return error

    async def start(self) -> None:
        """Join the lease with a mark that is far enough ahead, and fill the ring."""
        ahead = min(2 * self._ring_options.seconds, int(self._ring_options.max_borrow))
        self._lease.ask(self.clock.now_ms() + ahead * SECOND_MS)
        await super().start()
        self._refill(self.read_ns() // NS_PER_MS, self._lease.limit_ms())
        if self._refill_interval is not None:
            self.start_soon(self._refill_at_intervals, self._refill_interval, task="refill")

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

    uid-generator's CachedUidGenerator, with its ring of ``2^sequence_bits << boost`` ids.
    Differences:

    * no id is ahead of the clock by more than ``max_borrow``; then callers wait, in order;
    * ids return to the clock: unused ids of a second that has passed are dropped;
    * borrowed seconds are below the lease's time mark, so the machine id's next owner, or this
    process after a crash, begins above them, unless the mark is lost;
    * callers wait if the ring is empty, unless ``on_empty`` says otherwise, and the layout's end is
      an error, never a negative id.

    Ids of a second are a range, so filling costs almost nothing.  The slow part, writing the mark
    ahead of them, happens in the background.
    """

    __slots__ = ("_on_empty", "_refill_interval", "_ring_options")

    def __init__(
        self,
        machine: MachineIdDistributor | MachineIdLease,
        *,
        name: str = "__share__",
        layout: SnowflakeLayout = UID_GENERATOR_HA,
        boost: int = 3,
        padding_factor: int = 50,
        max_borrow: float = 60.0,
        refill_interval: float | None = None,
        on_empty: OnEmpty = "wait",
        broken_threshold: float | None = 2.0,
        max_forward_jump: float | None = None,
        wait_timeout: float = 5.0,
        close_timeout: float = 5.0,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator; nothing is sent yet.

        Args:
            machine: the source of the machine id, as for `SnowflakeId`; its store has to keep time
                marks, which a CosId proxy does not.
            name: the generator's name.  Its ids are unique under it; generators of two names may
                issue equal ids.
            layout: the layout of the ids, with ticks of seconds.  By default 8192 ids per second of
                1024 machines, until the year 36858.
            boost: the ring holds the ids of ``2^boost`` seconds, 1 to 16; uid-generator's
                ``boostPower``.
            padding_factor: percent, 1 to 99; the ring is filled when it holds fewer ids.
            max_borrow: seconds that ids may be ahead of the clock, at least ``2^boost`` and at most
                0.9 of the machine id's safe guard.  Callers do not wait for a clock that steps back
                by less.  After a crash in a burst only another `CachedSnowflakeId` can use the
                machine id at once; other generators wait as long.  If the mark is lost, ids may
                repeat for as long: when the ``state_dir`` of a chosen machine id is lost, clean
                close or not (any generator may then repeat ids of one tick), and after a crash in a
                Java peer of the same stable instance, which does not read the mark.
            refill_interval: seconds between two fillings of the ring while no ids are requested, so
                that a burst finds it full; None for none.  uid-generator's default, when enabled,
                is 300.
            on_empty: what a call does that finds too few ids, since all that may be borrowed is
                used up, or the lease allows no later ones yet: ``"wait"`` for them, in order, or
                ``"raise"`` `RingEmptyError` and take none, as uid-generator's default handler of an
                empty ring does.  A full ring needs no policy: nothing is put into it then.
            broken_threshold: seconds that a call waits for a clock that stepped back further than
                may be borrowed; None for no limit.
            max_forward_jump: seconds by which the wall clock may run ahead of the monotonic one
                between two ids; None for any.
            wait_timeout: seconds that a call waits for a lease that allows no ids.
            close_timeout: seconds that closing may take.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the layout is not in seconds,
                or the machine id's store keeps no time marks: the next owner would begin within the
                borrowed seconds.
            MachineBitsMismatchError: the lease has machine ids of another width.
        """
        if layout.unit_ms != SECOND_MS:
            raise InvalidArgumentError("layout", layout, expected="a layout of seconds")
        if refill_interval is not None:
            check_seconds("refill_interval", refill_interval)
        if on_empty not in ON_EMPTY:
            raise InvalidArgumentError("on_empty", on_empty, expected=f"one of {ON_EMPTY}")
        self._on_empty = on_empty
        self._ring_options = RingOptions(
            boost=boost, padding_factor=padding_factor, max_borrow=max_borrow
        )
        self._refill_interval = refill_interval
        super().__init__(
            machine,
            name=name,
            layout=layout,
            broken_threshold=broken_threshold,
            max_forward_jump=max_forward_jump,
            sequence_reset_threshold=None,
            wait_timeout=wait_timeout,
            close_timeout=close_timeout,
            instrument=instrument,
            clock=clock,
        )
        self._lease.let_borrow(max_borrow)

    def _reset(self) -> None:
        self._opening = RingStamping(
            self._home,
            self._opening,
            self._lease,
            self._options,
            ring_options=self._ring_options,
            refill_interval=self._refill_interval,
            raises=self._on_empty == "raise",
        )

    # Statistics.

    def statistics(self) -> CachedSnowflakeStatistics:
        """Return the generator's statistics; cheap, and never waits."""
        seen, ring, now_ms = super().statistics(), self._opening.hand, self._clock.now_ms()
        filled = fills = borrowed = 0
        if isinstance(ring, Ring):
            filled, fills, borrowed = ring.filled(now_ms), ring.fills, ring.borrowed(now_ms)
        return CachedSnowflakeStatistics(
            **{name: getattr(seen, name) for name in FIGURES},
            capacity=self.layout.ids_per_tick * self._ring_options.seconds,
            filled=filled,
            fills=fills,
            borrowed=borrowed,
        )
