"""How an open Snowflake generator issues ids: lease, clock, ticks, waiting callers."""

from __future__ import annotations

import random
from math import inf
from typing import TYPE_CHECKING, Final, cast

from .._life.callers import Callers
from .._life.component import RESOLUTION
from .._life.open_state import unavailable
from ..abc.events import ClockBackwards, SnowflakeOpened, WaitTimedOut
from ..abc.machines import RELEASE_MARGIN
from ..errors import (
    BusyError,
    ClockTooFarForwardError,
    ClockTooManyBackwardsError,
    ClosedError,
    CosIdError,
    MachineIdUnavailableError,
    WouldBlock,
)
from ._sequencer import PIECE, SHUT, Behind, Full, Limited, Sequencer, Shut
from ._stamped import StampOpening

if TYPE_CHECKING:
    from .._life.open_state import Home
    from ..machine import MachineIdLease
    from ._layout import SnowflakeLayout
    from ._sequencer import Refusal
    from .options import CachedIdOptions, SnowflakeIdOptions

__all__ = ("MS", "NS_PER_MS", "SnowflakeOpening")

NS_PER_MS: Final = 1_000_000
MS: Final = 1000
LOOK: Final = 0.1  # seconds between two readings of a clock that is behind; it may be corrected


class SnowflakeOpening(StampOpening[Sequencer | Shut]):
    """One opening of a `SnowflakeId`: issues ids at once, or when clock, tick and lease allow it.

    Attributes:
        lag_ms: milliseconds that ids are behind a clock that has jumped, at the last reading.
        longest_backwards: the most seconds that the clock was behind.
        waits_for_tick: how often callers found the current tick used up.
        waits_for_clock: how often callers found the clock behind.
        waits_for_lease: how often the lease allowed callers no id.
    """

    __slots__ = (
        *("_last_seen", "_lease", "_options", "_refusal", "lag_ms", "layout"),
        *("longest_backwards", "waits_for_clock", "waits_for_lease", "waits_for_tick"),
    )

    def __init__(
        self,
        home: Home,
        before: SnowflakeOpening | None,
        lease: MachineIdLease,
        options: SnowflakeIdOptions | CachedIdOptions,
    ) -> None:
        """Start an opening; ``before`` is the generator's previous one."""
        super().__init__(
            home,
            before,
            SHUT,  # until it is open, and after it has ended
            callers=Callers(home.clock, PIECE),  # no timeout: it depends on what they wait for
            namespace=lease.namespace,
            name=options.name,
            instrument=options.instrument,
        )
        self.layout: SnowflakeLayout = options.layout
        self._lease = lease
        self._options = options
        self.lag_ms = 0
        self._refusal: Refusal | None = None  # why there are no ids now, or None
        self._last_seen: tuple[int, float] | None = None
        self.longest_backwards = 0.0
        self.waits_for_tick = self.waits_for_clock = self.waits_for_lease = 0

    # Without waiting.

    def install(self) -> bool:
        """Install a piece of ids; return whether there is one."""
        self._check_lease()
        sequencer = self.open_sequencer
        size = self.callers.left_of_turn(sequencer.handed_out)
        now_ms, limit_ms = self.now_and_limit()
        self._refusal = sequencer.install(now_ms, limit_ms, size, self.lag_ms)
        return self._refusal is None

    def install_nowait(self) -> None:
        """Install a piece for a caller that does not wait.

        Raises:
            WouldBlock: there is none now.
            ClockTooManyBackwardsError: there is none, and none will come soon.
        """
        if self.callers.line:
            raise WouldBlock
        if self.install():
            return
        refusal = self._refusal
        if isinstance(refusal, Behind):
            if (error := self._too_far_behind(refusal)) is not None:
                raise error
        elif isinstance(refusal, Limited):
            self._ask_for_more(refusal)
        raise WouldBlock

    def _take_now(self, n: int) -> list[range] | None:
        self._check_lease()
        pieces, refusal = self.open_sequencer.take(n, *self.now_and_limit())
        if refusal is None:
            return pieces
        self.callers.set_aside(pieces)
        return None

    @property
    def open_sequencer(self) -> Sequencer:
        """The sequencer; raises if the generator is not open."""
        sequencer = self.hand
        if isinstance(sequencer, Shut):
            self.check()
            raise BusyError(self.label, reason="is being opened", remedy="wait until it is open")
        return sequencer

    def now_and_limit(self) -> tuple[int, int]:
        """Return the clock's time and the latest time that the lease allows, in milliseconds.

        A clock past the limit that the record in a ``state_dir`` sets is read as `lag_ms` earlier.
        Past a fence, `lag_ms` is 0, and ids wait for the next renewal.
        """
        now_ms = self.read_ns() // NS_PER_MS
        jump = self._options.max_forward_jump
        if jump is not None:
            monotonic = self.clock.monotonic()
            seen_ms, seen_at = self._last_seen or (now_ms, monotonic)
            forward = (now_ms - seen_ms) / MS - (monotonic - seen_at)
            if forward > jump:
                raise ClockTooFarForwardError(forward=forward, limit=jump)
            self._last_seen = now_ms, monotonic
        limit_ms = self._lease.limit_ms()
        self.lag_ms = 0 if now_ms <= limit_ms else self._lease.lag_ms(now_ms, limit_ms)
        return now_ms - self.lag_ms, limit_ms

    def _check_lease(self) -> None:
        """Follow the lease into a new term, but not into a new opening."""
        lost = self._lease.lost
        if lost is not None:
            raise lost.again()
        lease, sequencer = self._lease, self.open_sequencer
        if lease.issuers.get(self.name) is not sequencer:
            # The lease was closed and reopened; others may issue ids under this name by now.
            raise ClosedError(self.label)
        if sequencer.term != lease.term and lease.machine_id >= 0:
            sequencer.move(lease.machine_id, self._floor_tick())
            sequencer.term = lease.term

    def _floor_tick(self) -> int:
        lease, tick_at = self._lease, self.layout.tick_at
        return max(tick_at(lease.floor_ms), tick_at(lease.taken_ms) - 1)

    # For callers in line.

    def _timed_out(self, waited: float) -> CosIdError:
        """Report a caller that has waited too long for the lease; return its error."""
        self.emit(WaitTimedOut, waited=self._options.wait_timeout)
        lease, waited = self._lease, round(waited, 3)
        return unavailable(
            MachineIdUnavailableError, lease.namespace, lease.last_error, waited=waited
        )

    def serve(self) -> None:
        """Serve callers from the front; record what the others must wait for."""
        callers, self._refusal = self.callers, None
        if not callers.line:
            return
        try:
            self._check_lease()
            wanted = callers.line.wanted - callers.pooled
            pieces, self._refusal = self.open_sequencer.take(wanted, *self.now_and_limit())
        except WouldBlock:
            return  # a signal handler has called this during a step; the task serves them
        except CosIdError as error:
            self._fail_all(error.again)
        else:
            callers.set_aside(pieces)
            callers.hand_out()

    async def pause(self) -> None:
        """Wait for what the callers in line need."""
        refusal = self._refusal
        if isinstance(refusal, Full):
            self.waits_for_tick += 1
            until_ns = (refusal.until_ms + self.lag_ms) * NS_PER_MS
            await self.sleep_for((until_ns - self.read_ns()) / (NS_PER_MS * MS))
        elif isinstance(refusal, Behind):
            self.waits_for_clock += 1
            await self._wait_for_clock(refusal)
        elif refusal is not None:
            self.waits_for_lease += 1
            await self._wait_for_lease()

    async def _wait_for_clock(self, refusal: Behind) -> None:
        """Wait until the clock has caught up, for all callers, at most as long as the threshold."""
        began = self.clock.monotonic()
        self.emit(ClockBackwards, backwards=refusal.by_ms / MS)
        behind: Refusal | None = refusal
        while isinstance(behind, Behind) and self.ended is None:
            waited = self.clock.monotonic() - began
            error = self._too_far_behind(behind, waited)
            if error is not None:
                self._fail_all(error.again)
                return
            threshold = self._threshold(behind)
            left = inf if threshold is None else threshold - waited
            await self.sleep_for(min(behind.by_ms / MS, left, LOOK))
            if self.ended is None:
                behind = self.open_sequencer.check(*self.now_and_limit())

    async def _wait_for_lease(self) -> None:
        """Wait until the lease allows ids again; each caller for at most ``wait_timeout``.

        That time counts from when the caller came, or from when an earlier caller got an id.
        """
        lease, callers = self._lease, self.callers
        while callers.line and self.ended is None and lease.lost is None:
            on_change = lease.on_change()
            # The clock is read again: it may have jumped meanwhile, and may be right again.
            limited = self.open_sequencer.check(*self.now_and_limit())
            if not isinstance(limited, Limited):
                return
            self._ask_for_more(limited)
            waited = callers.seconds_waited(callers.line.first)
            left = self._options.wait_timeout - waited
            if left <= RESOLUTION:
                self.drop(callers.fail_first(self._timed_out(waited)))
                continue
            with self.clock.move_on_after(left), self.until_woken():
                await on_change()

    def _ask_for_more(self, refusal: Limited) -> None:
        if self._lease.machine_id >= 0:
            self._lease.ask(refusal.needed_ms)

    def _threshold(self, refusal: Behind) -> float | None:
        """Return seconds to wait; a former owner's fence may be ahead of a correct clock."""
        if self._options.broken_threshold is not None and refusal.is_floor:
            return self._options.broken_threshold + self._lease.lead + RELEASE_MARGIN
        return self._options.broken_threshold

    def _too_far_behind(self, refusal: Behind, waited: float = 0) -> CosIdError | None:
        """Record how far the clock is behind; return an error if that is too far."""
        if not refusal.is_floor:
            self.longest_backwards = max(self.longest_backwards, refusal.by_ms / MS)
        by, threshold = refusal.by_ms / MS, self._threshold(refusal)
        if threshold is None or (by <= threshold and waited < threshold - RESOLUTION):
            return None
        return ClockTooManyBackwardsError(backwards=by, threshold=threshold)

    # Start and end.

    async def start(self) -> None:
        """Join the lease, and use the sequencer of this name."""
        self.layout.check_usable(self.clock.now_ms())
        await self._join(self._lease)
        self.hand = self._attached()
        self.callers.begin_turn(self.hand.handed_out)
        self.emit(SnowflakeOpened, machine_id=self._lease.machine_id)

    def _attached(self) -> Sequencer:
        """Return the one sequencer of this lease and name."""
        made = self._make_sequencer()
        sequencer = cast("Sequencer", self._lease.issuers.setdefault(self.name, made))
        if sequencer.rules != made.rules:
            raise BusyError(
                self.label,
                reason="is in use with another layout, threshold or ring",
                remedy="give both generators the same ones, or another name",
            )
        return sequencer

    def _make_sequencer(self) -> Sequencer:
        """Return a new sequencer that begins above all ids of its machine id."""
        lease, options = self._lease, self._options
        return Sequencer(
            self.layout,
            machine_id=lease.machine_id,
            floor_tick=self._floor_tick(),
            reset_threshold=options.reset_threshold,
            term=lease.term,
            random_start=options.random_start,
            draw=random.randrange,
        )

    def _shut(self) -> int:
        self.hand = SHUT
        return 0  # a Snowflake's discarded ids are not counted
