"""One opening of a segment generator: what is in hand, who waits, and how far ahead to buy.

Made when the generator is opened and thrown away when it is closed: a task or a caller that is left
over from an earlier opening finds its own one, which is over.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from anyio.lowlevel import checkpoint

from .._life import fork
from .._life.atomic_step import atomic_step
from .._life.callers import STRETCH, TurnLine, suspend
from .._life.component import RESOLUTION
from .._life.loop import nothing
from .._life.open_state import OpenState
from .._life.waiting_line import Waiter, WaiterQueue
from ..abc.events import (
    DistanceChanged,
    FetchFailed,
    IdsDiscarded,
    SegmentFetched,
    Starved,
    WaitTimedOut,
)
from ..errors import (
    ClosedError,
    CosIdError,
    ForkedError,
    IdOverflowError,
    StoreRolledBackError,
    WouldBlock,
)
from ._supply import Supply
from .chain import FOREVER, IdsInHand
from .pace import RateMeter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._statistics import SegmentStatistics
    from ._supply import Reply
    from .chain import IdSegment
    from .generator import SegmentGenerator

__all__ = ("SegmentOpening",)


SHORT_PIECE: Final = 1000  # ids between two turns for the loop while the chain is too short
LONG_PIECE: Final = STRETCH  # ids between two turns at most, about a millisecond


class SegmentOpening(OpenState):
    """Serves the callers of one opening from the ids in hand, and orders what is missing.

    Attributes:
        generator: whose opening it is.
        options: the generator's.
        distributor: asks the store.
        pace: how far ahead to buy.
        hand: the ids in hand.
        line: callers that wait.
        supply: the calls to the store.
        busy: a step is under way; see `atomic_step`.
        ahead_at_takeoff: ids in hand when the latest call to the store was sent.
        waits: callers that had to wait.
    """

    __slots__ = (
        "__weakref__",
        "_discarded",
        "_dry_at",
        "_expires_at",
        "_expiry_watched",
        "_fetched",
        "_gives_up_later",
        "_hungry",
        "_meter",
        "_oldest",
        "_since_turn",
        "_starvations",
        "_starved",
        "_turns",
        "_watched",
        "ahead_at_takeoff",
        "busy",
        "distributor",
        "generator",
        "hand",
        "line",
        "options",
        "pace",
        "supply",
        "waits",
    )

    def __init__(self, generator: SegmentGenerator, before: SegmentOpening | None) -> None:
        distributor = generator._distributor
        super().__init__(
            generator._home,
            before,
            namespace=distributor.namespace,
            name=distributor.name,
            instrument=generator._options.instrument,
        )
        self.generator = generator
        self.options = generator._options
        self.distributor = distributor
        self.pace = generator._pace.at_rest()
        self.hand = IdsInHand()
        self.line = WaiterQueue()
        self.supply = Supply(self)
        self.busy = False
        self.ahead_at_takeoff = 0
        self.waits = 0
        self._turns = TurnLine()
        self._oldest = 0  # the number of the fetch that the first id in hand comes from
        self._since_turn = 0  # ids put in hand since the loop last had a turn
        self._expires_at = FOREVER
        self._expiry_watched = False
        self._meter = RateMeter(self.clock.monotonic())
        self._hungry = False  # somebody found the chain dry, and nothing came since
        self._dry_at = 0.0  # when that was
        self._starved = False  # a starvation was counted, and nothing came since
        self._starvations = 0
        self._watched = False  # the quiet timer is running
        self._fetched = 0
        self._discarded = 0
        self._gives_up_later = False  # closed in the middle of a step

    @property
    def handed_out(self) -> int:
        """Ids that callers have got."""
        return self._fetched - self._discarded - self.hand.ahead

    def check(self) -> None:
        """Raise unless a caller may go on."""
        self.generator._check_usable()
        super().check()  # it has ended since the line above, or was opened anew

    # The boundary of a piece.

    async def cross(self) -> None:
        """Give the loop a turn if one is due, and put the next piece in hand.

        An ``await`` that does not suspend never lets the loop run.  A consumer in a tight loop
        would keep the prefetcher from the reply that it waits for itself.
        """
        self.check()  # first: a thread without a loop has nothing to suspend
        while self.busy:  # begun by an instrument, as an eager task
            await checkpoint()
            self.check()
        if self.pace.keeps_none and not self.hand.ahead and not self.supply.at_once:
            return  # there is nothing to put in hand: the caller orders when it lines up
        if not self.hand.left:
            self.pace.note(self.hand.chain.remaining, self.clock.monotonic())
            if not self.supply.at_once:
                self.order()  # before the turn, so that it is on its way meanwhile
        again = False
        while self._is_turn_spent():
            if self.supply.at_once and self.pace.target < LONG_PIECE:
                # The whole distance, several times over, before the loop had a turn: hunger,
                # although a store in this process has hidden it.
                self._starve(waiting=False)
            if await self._turns.wait(self._is_turn_spent, again=again):
                self._since_turn = self.hand.left  # put in hand meanwhile, and for this turn
            self.check()
            again = True
        self._refill()

    def _is_turn_spent(self) -> bool:
        """Tell whether the next piece has to wait for a turn of the loop."""
        if self.hand.left:
            return False
        if self.supply.at_once:
            return self._since_turn >= LONG_PIECE
        remaining = self.hand.chain.remaining
        limit = SHORT_PIECE if remaining < self.pace.target else LONG_PIECE
        # With none left the caller has to wait for the store, which is a turn and more.
        return self._since_turn >= limit and remaining > 0

    def cross_now(self) -> None:
        """Put the next piece in hand, for a caller that cannot wait for a turn; order if it is dry.

        Raises:
            IdOverflowError: there are no more ids.
            WouldBlock: in the middle of a step.
        """
        self.check()
        if self.busy:
            raise WouldBlock
        if self._since_turn >= LONG_PIECE:
            self._since_turn = 0
        self._refill()
        if self.hand.left:
            return
        if self.supply.used_up:
            raise self.supply.overflow()
        self._starve(waiting=False)
        self.order(0 if self.pace.keeps_none else 1)

    @atomic_step
    def _refill(self) -> None:
        """Put the next piece in hand if the last one is used up, and order what is missing."""
        if self.options.ttl != FOREVER:
            self._drop_expired()
        if not self.hand.left:
            self.order()
            self._install()

    def _install(self) -> None:
        """Put the next piece in hand if there is none and nobody waits."""
        chain = self.hand.chain
        if self.pace.keeps_none:
            # What a caller that gave up leaves behind was fetched before the next caller asked.
            self.discard(chain.clear(), "order")
            return
        if self.hand.left or self.line:
            return
        # What this turn has left; who finds it spent waits for the next one.
        size = LONG_PIECE - self._since_turn
        if self.pace.distance and not self.supply.at_once:
            size = min(size, self.pace.piece(chain.remaining, SHORT_PIECE))
        segment = self.hand.cut(size)
        if segment is not None:
            self._since_turn += self.hand.left
            if segment.ttl != FOREVER:
                self._watch_expiry(segment.expires_at)

    # Taking several.

    @atomic_step
    def take_now(self, n: int) -> list[range] | None:
        """Take ``n`` ids if there are so many and nobody waits for them."""
        if self.line or self.hand.ahead < n:
            return None
        pieces = self._take(n)
        self._expect(n)
        self.order()
        return pieces

    def _take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids; there have to be that many.

        Part of a step, as everything that counts ids and then takes them.
        """
        self._since_turn += max(0, n - self.hand.left)
        return self.hand.take(n)

    # Waiting.

    async def wait(self, n: int) -> list[range]:
        """Stand in line for ``n`` ids, for as long as ``wait_timeout``; 0 takes none."""
        process, due = fork.generation, self.clock.monotonic() + self.options.wait_timeout
        waiter = Waiter(n, nothing, self.supply.sent, due)
        self._line_up(waiter)
        try:
            if not waiter.is_done:
                await suspend(waiter, self.line, self.clock, self._seconds_left, self._time_out)
            elif n:
                await self._let_others_run(n)
        except BaseException:
            self._leave(waiter)
            raise
        fork.ensure_own(process, self.label)
        if waiter.pieces is not None:
            return waiter.pieces
        raise waiter.error or WouldBlock

    def _seconds_left(self, waiter: Waiter) -> float:
        return waiter.due - self.clock.monotonic()

    @atomic_step
    def _time_out(self) -> None:
        """Fail the first in line, whose time is up."""
        self.emit(WaitTimedOut, waited=self.options.wait_timeout)
        self.line.fail_first(self.supply.unavailable(self.options.wait_timeout))
        self._serve()  # there may be enough for whoever stood behind

    @atomic_step
    def _line_up(self, waiter: Waiter) -> None:
        self.check()  # a store in this process may have ended us a moment ago
        in_hand = self.hand.ahead
        wanted = waiter.n or 1
        if self.supply.used_up and in_hand < wanted:
            raise self.supply.overflow()
        if len(self.line) >= self.options.max_waiters:
            reason = f"{len(self.line)} callers wait already, and max_waiters is as many"
            remedy = "try again, or raise max_waiters"
            raise self.supply.unavailable(reason=reason, remedy=remedy)
        self.waits += waiter.n > 0
        self.line.add(waiter)
        if in_hand >= wanted:
            self._serve()  # a signal handler has had them brought a moment ago
        elif in_hand == 0 and waiter.n and not self._starved:
            self._starve(waiting=True)
        self._expect(waiter.n)
        if not self.supply.is_under_way:
            self.order()

    async def _let_others_run(self, n: int) -> None:
        """Served at once by a store in this process: give the loop its turn all the same."""
        if self._since_turn >= LONG_PIECE:
            self._since_turn = self.hand.left + n  # all of it is for the next turn
            await self._turns.wait(self._is_turn_spent)

    def _leave(self, waiter: Waiter) -> None:
        """Give up a place in the line, or the ids that were delivered in the same turn.

        Those are never put back: ids above them may have been handed out.
        """
        if self.generator._opening is not self:
            return  # opened anew since, by a forked child or on another loop
        if waiter.pieces is not None:
            self.discard(waiter.n, "cancelled")
        elif waiter.error is None:
            self._step_out(waiter)

    @atomic_step
    def _step_out(self, waiter: Waiter) -> None:
        held_up = self.line.is_first(waiter)
        self.line.discard(waiter)
        if held_up:
            self._serve()  # there may be enough for whoever stood behind

    def _serve(self) -> None:
        """Serve whom the ids in hand can serve; what is left over goes in hand if nobody waits."""
        line, supply = self.line, self.supply
        if line:
            if self.options.ttl != FOREVER:
                self._drop_expired()  # what was fresh when they began to wait
            sent = self._oldest if self.pace.keeps_none else None
            line.serve(self.hand.ahead, self._take, sent)
            if supply.used_up and line:
                line.fail(supply.overflow)
        if not line:
            self._install()
        elif self.pace.keeps_none and line.first.since >= self._oldest:
            # They asked after the call was sent for somebody who has left since.
            self.discard(self.hand.chain.clear(), "order")

    # Ordering.

    @atomic_step
    def order(self, at_least: int = 0) -> None:
        """See that a flight is under way if segments are missing.  Quick, and never waits.

        Args:
            at_least: segments to ask for if none is missing.
        """
        supply = self.supply
        while not supply.is_under_way and (segments := self.missing(at_least)):
            at_least = 0
            self.ahead_at_takeoff = self.hand.ahead
            reply = supply.ask_now(segments)
            if reply is None:
                supply.take_off(segments)
                return
            if not self.take_in(reply):
                if self.line and isinstance(reply.answer, CosIdError):
                    supply.take_off(segments)  # a flight goes on asking
                return

    def missing(self, at_least: int = 0) -> int:
        """Count the segments to buy now."""
        supply, pace, wanted = self.supply, self.pace, self.line.wanted
        if self.ended is not None or supply.used_up:
            return 0
        now, handed_out = self.clock.monotonic(), self.handed_out
        self._meter.note(now, handed_out)
        space = self.options.max_id - (supply.last_max_id or 0)
        pace.plan(now, self._meter.sustained(now, handed_out), space)
        ahead = self.hand.ahead
        if supply.at_once and ahead > wanted:
            return 0  # it can be asked when the last id is gone: fewer, longer segments
        segments = pace.missing(ahead, wanted) or at_least
        if segments == 0 and self.line:
            return 1  # somebody waits for anything at all
        return min(segments, max(1, supply.most // pace.step))

    @atomic_step
    def take_in(self, reply: Reply) -> bool:
        """Link what came, or take note of the failure; tell whether to go on without a pause."""
        found = self.supply.judge(reply)
        if isinstance(found, CosIdError):
            return self._fail(found, reply)
        self._link(found)
        return True

    def _link(self, fetched: Sequence[IdSegment]) -> None:
        now, pace, last = self.clock.monotonic(), self.pace, fetched[-1]
        starved, distance = self._starved, pace.distance
        count = left_out = sum(each.step for each in fetched)
        pace.loaded(count, now)
        self._adapt(last.fetched_at, now)
        self.supply.note_segment(last)
        self._hungry = self._starved = False
        self._fetched += count
        if not self.hand.ahead:
            self._oldest = self.supply.sent
        for each in fetched:
            segment = each.clipped(lowest=1, highest=self.options.max_id)
            if segment is not None:
                self.hand.chain.link(segment)
                left_out -= segment.step
        # Told from here on, when the state is whole.
        if pace.distance > distance:
            self._note_growth(distance)
        self.discard(left_out, "limit")
        if self.is_observed:
            self.emit(
                SegmentFetched,
                max_id=last.max_id,
                count=count,
                took=now - last.fetched_at,
                starved=starved,
            )
        self._meter.note(now, self.handed_out)
        self._serve()

    def _fail(self, error: CosIdError, reply: Reply) -> bool:
        """Decide who has to know of a failure."""
        supply = self.supply
        if isinstance(error, IdOverflowError):
            supply.note_overflow()
            self._serve()
            return True
        supply.note_failure(error)
        took = self.clock.monotonic() - reply.sent_at
        self.emit(FetchFailed, error=error, attempt=supply.attempt, took=took)
        if isinstance(error, StoreRolledBackError):
            self.generator._retire(error)
        elif not error.retryable or (supply.attempt > 1 and self._fails_fast):
            self.line.fail(supply.unavailable)
        return False

    @property
    def _fails_fast(self) -> bool:
        root, fails_fast = self.root, self.options.fail_fast
        return fails_fast if fails_fast is not None else root is not None and root.fail_fast

    # Hunger and quiet.

    def _expect(self, n: int) -> None:
        """Keep enough ahead for callers that take ``n`` ids at once."""
        before = self.pace.distance
        if self.pace.asked_for(n):
            self._note_growth(before)

    def _starve(self, *, waiting: bool) -> None:
        """Somebody found the chain dry: keep more ahead from the next landing on."""
        if not self.supply.fetches:
            return  # a new group's: nothing has been there yet
        if waiting and not self._starved:
            self._starved = True
            self._starvations += 1
            self.emit(Starved)
        if not self._hungry:
            self._hungry = True
            self._dry_at = self.clock.monotonic()

    def _adapt(self, sent_at: float, now: float) -> None:
        """Fit the distance to what was taken while the flight was under way."""
        taken = self.ahead_at_takeoff - self.hand.ahead
        demand: float = taken
        if self._hungry:
            if self.supply.attempt:
                return  # the store was down: no distance would have been long enough
            lasted = self._dry_at - sent_at
            demand = taken * (now - sent_at) / lasted if taken and lasted > 0 else inf
        self.pace.landed(taken=taken, demand=demand, starved=self._hungry)

    def _note_growth(self, before: int) -> None:
        """The distance has grown: say so, and watch for quiet."""
        self.emit(DistanceChanged, before=before, after=self.pace.distance)
        if not self._watched:
            self._watched = True  # first: an eager task may end before the call returns
            if not self.start_soon(self._watch_quiet, task="quiet"):
                self._watched = False

    async def _watch_quiet(self) -> None:
        """Halve the distance after each quiet period; exists only while it is grown."""
        pace = self.pace
        try:
            while pace.is_grown:
                demand = self.handed_out + self.waits
                await self.sleep_for(self.options.quiet_period)
                if self.ended is not None:
                    break
                idle = demand == self.handed_out + self.waits and not self.line
                before = pace.distance
                if pace.end_period(self.hand.ahead, idle=idle):
                    self.emit(DistanceChanged, before=before, after=pace.distance)
        finally:
            self._watched = False

    # Expiry.

    def _drop_expired(self) -> None:
        """Give up what is too old, in hand and in the chain."""
        now = self.clock.monotonic()
        if now > self._expires_at:
            self._drop_piece()
        self.discard(self.hand.chain.drop_expired(now), "expired")

    @atomic_step
    def _drop_piece(self) -> None:
        self.discard(self.hand.drop_piece(), "expired")

    def _watch_expiry(self, expires_at: float) -> None:
        self._expires_at = expires_at
        if not self._expiry_watched:
            self._expiry_watched = True  # first, as above
            if not self.start_soon(self._expire_in_time, task="ttl"):
                self._expiry_watched = False

    async def _expire_in_time(self) -> None:
        """Take what is too old out of the hand; wakes once for a ttl, and fetches nothing."""
        try:
            while self.hand.left and self.ended is None:
                now = self.clock.monotonic()
                if now >= self._expires_at:
                    self._drop_piece()
                else:
                    await self.sleep_for(max(self._expires_at - now, RESOLUTION))
        finally:
            self._expiry_watched = False
        if self.hand.left and self.ended is None:
            self._watch_expiry(self._expires_at)  # put in hand meanwhile, by a signal handler

    # The end.

    @property
    def has_to_drain(self) -> bool:
        """Whether its end has to be waited for."""
        return self.busy or self._gives_up_later or self.supply.is_under_way

    def stop(self, reason: CosIdError) -> None:
        """End it: fail the callers, and give up what is in hand."""
        self.end(reason)
        if isinstance(reason, ClosedError) and self.busy:
            # By a signal handler or an instrument, and the step counts on what it has counted.
            # `drain` does it after that.
            self._gives_up_later = True
        else:
            self._give_up(reason)
        if not isinstance(reason, ForkedError):
            self._turns.release()

    @atomic_step
    def _give_up(self, reason: CosIdError) -> None:
        self._gives_up_later = False
        dropped = self.hand.clear()
        if isinstance(reason, ForkedError):
            return  # nobody in this process waits, and the parent's loop is not ours to touch
        self.discard(dropped, "closed")
        self.line.fail(reason.again)
        self.wake()

    async def drain(self) -> None:
        """Give up what is left, and wait for the flight."""
        while self.busy:  # closed in the middle of a step, and run at once as an eager task
            await checkpoint()
        reason = self.generator._unusable
        if reason is not None:
            # What the step has left, or has brought after it was closed just before.
            self._give_up(reason)
        await self.supply.drain()

    # Events and statistics.

    def discard(self, count: int, reason: str) -> None:
        """Take note of ids that nobody gets."""
        if count:
            self._discarded += count
            self.emit(IdsDiscarded, count=count, reason=reason)

    @property
    def refusal(self) -> CosIdError | None:
        """Why no id comes any more, if so."""
        is_used_up = self.supply.used_up and not self.hand.ahead
        return self.generator._unusable or (self.supply.overflow() if is_used_up else None)

    @property
    def head_sequence(self) -> int | None:
        """The id before the next one; None before the first fetch."""
        before = self.hand.before_next
        return self.supply.last_max_id if before is None else before

    def statistics(self, kind: str) -> SegmentStatistics:
        """Return a frozen picture; cheap, and never waits."""
        from ._statistics import SegmentStatistics

        distributor, pace, supply, hand = self.distributor, self.pace, self.supply, self.hand
        handed_out, now = self.handed_out, self.clock.monotonic()
        wall = self.clock.now_ms() / 1000
        rate, head = self._meter.rate(now, handed_out), hand.head
        return SegmentStatistics(
            kind=kind,
            namespace=distributor.namespace,
            name=distributor.name,
            step=pace.step,
            head_sequence=self.head_sequence,
            head_offset=None if head is None else head.offset,
            head_max_id=None if head is None else head.max_id,
            fetch_time=None if head is None else int(wall - (now - head.fetched_at)),
            is_expired=head is not None and head.is_expired(now),
            max_id=supply.last_max_id,
            remaining=hand.ahead,
            safe_distance=pace.safe_distance,
            prefetch_distance=pace.distance,
            starvations=self._starvations,
            waits=self.waits,
            waiting=len(self.line),
            fetches=supply.fetches,
            failures=supply.failures,
            ids_fetched=self._fetched,
            ids_handed_out=handed_out,
            ids_discarded=self._discarded,
            rate=rate,
            seconds_left=hand.ahead / rate if rate > 0 else None,
            last_error=supply.last_error,
            ended=self.refusal,
            endurance=pace.endurance,
            distributor=distributor.statistics(),
        )
