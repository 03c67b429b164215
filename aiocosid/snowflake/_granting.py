"""How an open generator of sharded ids gets sequences, from the store or from a fallback."""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final

from .._life.callers import Callers
from .._life.clock import as_cosid_error
from .._life.component import RESOLUTION
from .._life.open_state import FIRST_BACKOFF, LAST_BACKOFF, OpeningCalls, back_off, unavailable
from ..abc import SecondFenced, SecondSpent, SequenceGrant
from ..abc.events import (
    ClockBackwards,
    FetchFailed,
    IdsDiscarded,
    SegmentFetched,
    Starved,
    WaitTimedOut,
)
from ..errors import (
    ClockSkewError,
    ClockTooManyBackwardsError,
    CosIdError,
    SequenceExhaustedError,
    SequenceUnavailableError,
)
from ._availability import StoreAvailability
from ._batch_size import BatchSize
from ._lane import Guess, Lane
from ._replies import validated_reply
from ._seconds_in_hand import NS, SecondsInHand
from ._sequencer import PIECE
from ._sharded_sequences import lane_width
from ._stamped import StampOpening

if TYPE_CHECKING:
    from .._life.open_state import Home
    from ..abc import SequenceDistributor
    from ..machine import MachineIdLease
    from ._lane import Fallback
    from ._sharded_layout import ShardedLayout
    from .options import ShardedOptions

__all__ = ("Granting",)

logger = logging.getLogger("aiocosid")

# Calls at the same time, each for another second: the oldest may hang because the store is down.
MAX_FETCHES: Final = 4
# Ids per second above which the next second's ids are fetched in advance.
PREFETCH_RATE: Final = 1000
PREFETCH_AT: Final = (0.5, 0.9)  # share of a second; random, so that nodes differ
MS: Final = 1000


class Granting(StampOpening[SecondsInHand]):
    """One opening of a `ShardedId`: requests sequences, and hands them out in order.

    Attributes:
        availability: what is known about the store.
        batch: how many sequences to request.
        calls: the calls to the store, by second.
        size: sequences in the last request.
        discarded: ids that were dropped with their caller, or at the end.
        undelivered: how many of those had been handed out.
        grants: answers that could be used.
        granted: sequences in them.
        failures: calls that failed.
        spent: answers that a second is used up.
        fenced: answers that a second's counter may have been lost.
        skewed: answers that the clocks disagree.
    """

    __slots__ = (
        *("_distributor", "_dropped_reported", "_fallback", "_lease", "_options", "_planned"),
        *("availability", "batch", "calls", "discarded", "failures", "fenced", "granted"),
        *("grants", "layout", "size", "skewed", "spent", "undelivered"),
    )

    def __init__(
        self,
        home: Home,
        before: Granting | None,
        *,
        distributor: SequenceDistributor,
        layout: ShardedLayout,
        options: ShardedOptions,
        most: int,
        lane: MachineIdLease | None,
    ) -> None:
        """Start an opening; ``before`` is the generator's previous one."""
        first = SecondsInHand(layout, options.broken_threshold)
        super().__init__(
            home,
            before,
            first if before is None else before.hand.successor(),  # its ids are not earlier
            callers=Callers(home.clock, PIECE, options.wait_timeout),
            namespace=distributor.namespace,
            name=distributor.name,
            instrument=options.instrument,
        )
        self._distributor = distributor
        self._options = options
        self._lease = lane
        self.layout = layout
        self.availability = StoreAvailability()
        self.batch = BatchSize(most, options.batch)
        self._fallback: Fallback | None = None
        self.calls = OpeningCalls(
            self, timeout=options.fetch_timeout, close_timeout=options.close_timeout
        )
        self._planned = -1  # the last second in which a prefetch of the next one was planned
        self._dropped_reported: int = 0  # dropped ids that were reported to the instrument
        self.size = self.discarded = self.undelivered = 0
        self.grants = self.granted = 0
        self.failures = self.spent = self.fenced = self.skewed = 0

    # Without waiting.

    def install(self) -> bool:
        """Install a piece; return whether there is one."""
        now_ns, seconds = self.read_ns(), self.hand
        size = self.callers.left_of_turn(self.handed_out)
        try:
            done = seconds.install(now_ns, size)
            if not done:
                self._order(1)
                done = self._fall_back(now_ns, 1) and seconds.install(now_ns, size)
        except ClockTooManyBackwardsError as error:
            self.emit(ClockBackwards, backwards=error.backwards)
            raise
        self._plan(now_ns)
        return done

    def _take_now(self, n: int) -> list[range] | None:
        """Take ``n`` ids if that many are buffered; otherwise take none."""
        now_ns = self.read_ns()
        if self.hand.in_hand(now_ns) < n:
            return None
        self._plan(now_ns)
        return self.hand.take(n, now_ns)

    # For callers in line.

    def _timed_out(self, waited: float) -> CosIdError:
        """Report a caller that has waited too long; return its error."""
        self.emit(WaitTimedOut, waited=self._options.wait_timeout)
        second, name = self.hand.target(self.read_ns()), self._distributor.namespaced_name
        waited = round(waited, 3)
        if self.availability.is_spent and not self.availability.is_away:
            reason = (
                f"all nodes together use up each second's {self._distributor.max_sequence} "
                "sequences"
            )
            remedy = "try again, split the name, or use more sequence bits"
            return SequenceExhaustedError(name, waited=waited, reason=reason, remedy=remedy)
        if self.availability.opens > second and not self.availability.is_away:
            reason = f"the store may have lost the counters before second {self.availability.opens}"
            remedy = "try again when that second has come"
            return SequenceUnavailableError(name, waited=waited, reason=reason, remedy=remedy)
        return self._unavailable(waited)

    def serve(self) -> None:
        """Serve callers from the front, and request missing ids."""
        callers, line = self.callers, self.callers.line
        try:
            while line:
                now_ns, wanted = self.read_ns(), line.first.n
                in_hand = self.hand.in_hand(now_ns)
                if callers.hand_out(in_hand, partial(self.hand.take, now_ns=now_ns)):
                    continue
                # Ids of this second stay valid once they are reserved for a caller.
                callers.set_aside(self.hand.take(wanted - callers.pooled, now_ns))
                self._order(line.wanted - callers.pooled)
                if not self._fall_back(now_ns, wanted - callers.pooled):
                    break
            self._plan(self.read_ns())
        except ClockTooManyBackwardsError as error:
            self.emit(ClockBackwards, backwards=error.backwards)
            self._fail_all(error.again)
        except CosIdError as error:
            self._fail_all(error.again)
        if line and not callers.is_pumped and self.is_alive:
            self.emit(Starved)

    async def pause(self) -> None:
        """Wait until a second begins, or the store may be called again."""
        now, next_second = self.clock.monotonic(), (NS - self.read_ns() % NS) / NS
        pauses = [next_second, self.availability.retry_at - now, self.availability.fence_at - now]
        await self.sleep_for(max(RESOLUTION, min(each for each in pauses if each > 0)))

    # Requesting.

    def _order(self, wanted: int) -> None:
        """Start a call to the store if it is useful now.  Quick, and never waits.

        Raises:
            LayoutExpiredError: the layout has ended.
            InvalidArgumentError: the layout has not begun.
        """
        target = self.hand.target(self.read_ns())
        second = self.availability.to_ask(target, self.clock.monotonic())
        if second is None:
            return
        if not self.layout.epoch_second <= second <= self.layout.last_second:
            self.layout.check_usable(second * MS)  # raises
        if self.hand.is_open(second):
            self._start_fetch(second, wanted, ahead=False)

    def _start_fetch(self, second: int, wanted: int, *, ahead: bool) -> None:
        under_way = self.calls.under_way
        if second in under_way or len(under_way) >= MAX_FETCHES or not self.is_alive:
            return
        size = self.size = self.batch.size(second, wanted)
        self.calls.start(second, self._run_fetch, second, size, ahead, task="grant")

    async def _run_fetch(self, second: int, size: int, ahead: bool) -> None:  # noqa: FBT001 - of a task
        """Make one call to the store; its sequences serve all callers."""
        sent_at = self.clock.monotonic()
        try:
            asked = self._distributor
            answer = await self.calls.call(second, asked.store, partial(asked.grant, second, size))
        finally:
            self.calls.end(second)
        if self.ended is not None:
            return
        took = self.clock.monotonic() - sent_at
        try:
            self._take_in(answer, second, ahead=ahead, took=took)
        except Exception as error:  # noqa: BLE001 - a custom store's answer must not end the root
            self._failed(as_cosid_error(asked.store, error), ahead=ahead, took=took)
        self.serve()
        self.wake()  # the waiting task checks again

    # Answers.

    def _take_in(self, answer: object, second: int, *, ahead: bool, took: float) -> None:
        above = self.hand.top(second, granted=True)
        found = validated_reply(answer, second, above, self._distributor)
        if isinstance(found, CosIdError):
            if isinstance(answer, SequenceGrant):
                self.hand.mark_spent(second)
            self._failed(found, ahead=ahead, took=took)
            return
        self.availability.answered(found, self._distributor.tolerance, self.clock.monotonic())
        if isinstance(found, SecondSpent):
            self.spent += 1
            self.hand.mark_spent(found.second)
        elif isinstance(found, SecondFenced):
            self.fenced += 1
        else:
            count = found.last - found.first + 1
            self.hand.land(found, self.read_ns(), ahead=ahead, fallback=False)
            self.grants += 1
            self.granted += count
            facts = {"max_id": found.last, "count": count, "took": took, "starved": not ahead}
            self.emit(SegmentFetched, **facts)

    def _failed(self, error: CosIdError, *, ahead: bool, took: float) -> None:
        """Record a failure, and decide which callers fail."""
        availability, is_skew = self.availability, isinstance(error, ClockSkewError)
        self.failures += 1
        self.skewed += is_skew
        self.emit(FetchFailed, error=error, attempt=availability.attempt + 1, took=took)
        if ahead:
            return  # a caller that needs that second requests it again
        if is_skew:
            availability.answered(None, 0, 0)
            availability.last_error = error
            self._fail_all(error.again)
            return
        if not availability.attempt:
            logger.warning("%s: no sequence is granted: %s", self.label, error)
        in_a_hurry = self._options.on_unavailable == "raise"
        # If callers fail at once, the next one need not wait for a long pause.
        pause = back_off(availability.attempt + 1, FIRST_BACKOFF if in_a_hurry else LAST_BACKOFF)
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing
        availability.failed(error, self.clock.monotonic() + pause * jitter)
        if not error.retryable or (in_a_hurry and not self.hand.ahead):
            self._fail_all(self._unavailable)

    def _unavailable(self, waited: float = 0) -> CosIdError:
        cause = self.availability.last_error
        return unavailable(
            SequenceUnavailableError,
            self._distributor.namespaced_name,
            cause,
            waited=waited,
            retryable=cause is None or cause.retryable,
        )

    # Without the store.

    def _fall_back(self, now_ns: int, wanted: int) -> bool:
        """Add sequences that the store has not granted, if configured and necessary."""
        fallback, seconds = self._fallback, self.hand
        availability, second = self.availability, seconds.target(now_ns)
        is_due = availability.is_away or (
            isinstance(fallback, Lane) and availability.opens > second
        )
        if fallback is None or not is_due or seconds.ahead:
            return False
        if second in seconds.spent:
            return False
        grant = fallback.take(second, wanted, seconds.top(second))
        if grant is None:
            return False
        return seconds.land(grant, now_ns, ahead=False, fallback=True)

    # The next second.

    def _plan(self, now_ns: int) -> None:
        """Record the demand; if it is high, prefetch the next second's ids."""
        seconds, now = self.hand, now_ns // NS
        self.batch.note(now, seconds.issued)
        count = seconds.dropped - self._dropped_reported
        if count > 0:
            self._dropped_reported = seconds.dropped
            self.emit(IdsDiscarded, count=count, reason="expired")
        if now <= self._planned or self.batch.rate < PREFETCH_RATE or seconds.ahead:
            return
        if self.is_alive:
            self._planned = now
            self.start_soon(self._prefetch, now, task="prefetch")

    async def _prefetch(self, second: int) -> None:
        """Request the next second's ids at a random time within this second."""
        moment = second + random.uniform(*PREFETCH_AT)  # noqa: S311 - as in _failed
        while self.ended is None:
            left = moment - self.read_ns() / NS
            if left > 0:
                await self.sleep_for(min(left, 1.0))
                continue
            after = self.hand.target(self.read_ns()) + 1
            if not self.hand.ahead and after <= self.layout.last_second:
                self._start_fetch(after, 0, ahead=True)
            return

    # Start and end.

    async def start(self) -> None:
        """Open the distributor, join the lease of the lanes, and wait for the first ids."""
        self.layout.check_usable(self.clock.now_ms())
        await self._distributor.aopen()
        if self._options.on_unavailable == "random_unsafe":
            logger.warning(
                "%s: on_unavailable='random_unsafe' guesses sequences while the store is down; "
                "ids will repeat",
                self.label,
            )
            self._fallback = Guess(self._distributor.max_sequence)
        if self._lease is not None:
            await self._join(self._lease)
            width = lane_width(self.layout, self._distributor, self._lease)
            base, name = self._distributor.max_sequence, self._distributor.namespaced_name
            self._fallback = Lane.of(self._lease, base, width, name)
        await self.callers.wait_for_first(self)

    def _shut(self) -> int:
        self.hand, dropped = self.hand.shut()
        return dropped

    @property
    def has_to_drain(self) -> bool:
        """Whether closing must wait for a lease or a call."""
        return super().has_to_drain or bool(self.calls.under_way)

    async def drain(self) -> None:
        """Leave the lease; wait for calls under way, and cancel them after the close timeout."""
        self._fallback = None
        await super().drain()
        await self.calls.drain()

    def _discard(self, count: int, reason: str) -> None:
        if count:
            self.discarded += count
            self.undelivered += count if reason == "cancelled" else 0
            self.emit(IdsDiscarded, count=count, reason=reason)
