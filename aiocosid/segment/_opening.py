"""One opening of a segment generator: buffered ids, waiting callers, and how far to fetch ahead.

It is created when the generator is opened and discarded when it is closed.  A task or a caller of
an earlier opening keeps its old, closed opening and never touches the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio.lowlevel import checkpoint

from .._life.atomic_step import atomic_step
from .._life.callers import STRETCH, Callers
from .._life.open_state import OpenState
from ..abc.events import FetchFailed, SegmentFetched, WaitTimedOut
from ..errors import (
    ClosedError,
    CosIdError,
    ForkedError,
    IdOverflowError,
    StoreRolledBackError,
    WouldBlock,
)
from ._supply import FETCH, Demand, Expiry, Stock, Supply
from .chain import FOREVER, IdsInHand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .._life.open_state import Home
    from .._life.waiting_line import Waiter
    from ..abc import IdSegmentDistributor
    from ._supply import Reply
    from .chain import IdSegment
    from .options import SegmentOptions
    from .pace import Pace

__all__ = ("SegmentOpening",)


SHORT_PIECE: Final = 1000  # ids between two loop turns while too few are buffered
LONG_PIECE: Final = STRETCH  # most ids between two loop turns, about a millisecond


class SegmentOpening:
    """Serves the callers of one opening from buffered ids, and fetches what is missing.

    Neither it nor any of its parts refers to the generator, which takes ids from `hand` itself.

    Attributes:
        label: names the generator in messages.
        life: the state of this opening; ends with it, and then informs the generator.
        options: the generator's options.
        pace: how far to fetch ahead.
        hand: the buffered ids.
        stock: counts the ids that come and go.
        callers: wakes waiting callers and spreads their work over loop turns.
        line: the queue of waiting callers.
        demand: measures what callers take, and how often they find no id.
        supply: calls the store.
        is_replaced: whether a later opening has begun, in a forked child or on another loop.
    """

    __slots__ = (
        *("__weakref__", "_expiry", "_gives_up_later", "callers", "demand", "hand"),
        *("is_replaced", "label", "life", "line", "options", "pace", "stock", "supply"),
    )

    def __init__(
        self,
        home: Home,
        before: SegmentOpening | None,
        *,
        distributor: IdSegmentDistributor,
        options: SegmentOptions,
        pace: Pace,
        row_step: Callable[[], Awaitable[int]] | None,
    ) -> None:
        """Start an opening; ``before`` is the generator's previous one."""
        self.life: OpenState = OpenState(
            home,
            None if before is None else before.life,
            namespace=distributor.namespace,
            name=distributor.name,
            instrument=options.instrument,
        )
        self.label = self.life.label
        self.options = options
        self.pace = pace
        self.hand: IdsInHand = IdsInHand(None if before is None else before.hand.floor)
        self.stock = Stock(self.life, self.hand)
        self.callers = Callers(self.life.clock, LONG_PIECE, options.wait_timeout)
        self.line = self.callers.line
        self.demand = Demand(self.stock, self.line, pace, options.quiet_seconds)
        self.supply = Supply(self.stock, distributor, options, pace, row_step)
        self._expiry = Expiry(self.stock)
        self._gives_up_later = False  # whether it was closed in the middle of a step
        self.is_replaced = False
        if before is not None:
            before.is_replaced = True

    # The boundary of a piece.

    async def cross(self) -> None:
        """Let the loop run if a turn is due, and expose the next piece of ids.

        An ``await`` that does not suspend never lets the loop run.  So a consumer in a tight loop
        would block the prefetch task whose reply it is waiting for.
        """
        while self.hand.busy:  # an instrument started this call in mid-step, as an eager task
            await checkpoint()
            self.life.check()
        if self.pace.keeps_none and not self.hand.ahead and not self.supply.at_once:
            return  # there is no piece to expose: the caller starts a fetch when it lines up
        if not self.hand.left:
            self.pace.note(self.hand.chain.remaining, self.life.clock.monotonic())
            if not self.supply.at_once:
                self.request_missing()  # before the loop turn, so that the call is sent during it
        again = False
        while self._is_turn_spent():
            if self.supply.at_once and self.pace.target < LONG_PIECE:
                # Callers took the whole distance several times within one loop turn.  That counts
                # as starvation, although a store in this process answers too fast to show it.
                self.demand.find_dry(waiting=False)
            if await self.callers.turns.wait(self._is_turn_spent, again=again):
                self.stock.since_turn = self.hand.left  # exposed during the wait, for this turn
            self.life.check()
            again = True
        self._refill()

    def _is_turn_spent(self) -> bool:
        """Tell whether the next piece must wait for a loop turn."""
        if self.hand.left:
            return False
        if self.supply.at_once:
            return self.stock.since_turn >= LONG_PIECE
        remaining = self.hand.chain.remaining
        limit = SHORT_PIECE if remaining < self.pace.target else LONG_PIECE
        # With none left the caller must wait for the store anyway, which takes a turn or more.
        return self.stock.since_turn >= limit and remaining > 0

    def cross_now(self) -> None:
        """Expose the next piece for a caller that cannot wait; start a fetch if there is none.

        Raises:
            IdOverflowError: there are no more ids.
            WouldBlock: another step is under way.
        """
        if self.hand.busy:
            raise WouldBlock
        if self.stock.since_turn >= LONG_PIECE:
            self.stock.since_turn = 0
        self._refill()
        if self.hand.left:
            return
        if self.supply.used_up:
            raise self.supply.overflow()
        self.demand.find_dry(waiting=False)
        self.request_missing(0 if self.pace.keeps_none else 1)

    @atomic_step
    def probe(self) -> None:
        """Call the store again if it has failed and no id is left, although no caller waits."""
        if self.supply.attempt and not self.hand.ahead:
            self.request_missing(1)

    @atomic_step
    def _refill(self) -> None:
        """Expose the next piece if the last one is used up, and fetch what is missing."""
        if self.options.lifetime != FOREVER:
            self._expiry.drop_old()
        if not self.hand.left:
            self.request_missing()
            self._install()

    def _install(self) -> None:
        """Expose the next piece if there is none and no caller waits."""
        chain = self.hand.chain
        if self.pace.keeps_none:
            # Discard these ids: they were fetched before the next caller asked.
            self.stock.discard(chain.clear(), "out_of_order")
            return
        if self.hand.left or self.line:
            return
        # The rest of this turn's quota.  Callers past it wait for the next turn.
        size = LONG_PIECE - self.stock.since_turn
        if self.pace.distance and not self.supply.at_once:
            size = min(size, self.pace.piece(chain.remaining, SHORT_PIECE))
        segment = self.hand.cut(size)
        if segment is not None:
            self.stock.since_turn += self.hand.left
            if segment.ttl != FOREVER:
                self._expiry.watch(segment.expires_at)

    # Taking several.

    @atomic_step
    def take_now(self, n: int) -> list[range] | None:
        """Take ``n`` ids if that many are buffered and no caller waits for them."""
        if self.line or self.hand.ahead < n:
            return None
        pieces = self.stock.take(n)
        self.demand.expect(n)
        self.request_missing()
        return pieces

    # Waiting.

    async def wait_for_first(self) -> None:
        """Wait for the first segment, unless ids are fetched only on request."""
        if self.pace.keeps_none:
            self.request_missing()  # for callers that have lined up meanwhile
        else:
            await self.callers.wait_for_first(self)

    async def line_up(self, waiter: Waiter) -> None:
        """Queue a caller, and make sure that ids come; a caller that is served at once yields."""
        self._line_up(waiter)
        if waiter.is_done and waiter.n and self.stock.since_turn >= LONG_PIECE:
            self.stock.since_turn = self.hand.left + waiter.n  # all of it counts for the next turn
            await self.callers.turns.wait(self._is_turn_spent)

    @atomic_step
    def time_out(self) -> None:
        """Fail the first caller in line, whose wait has timed out."""
        self.life.emit(WaitTimedOut, waited=self.options.wait_timeout)
        self.line.fail_first(self.supply.no_segment(self.options.wait_timeout))
        self._serve()  # there may be enough ids for the callers behind it

    @atomic_step
    def _line_up(self, waiter: Waiter) -> None:
        waiter.sent = self.supply.sent
        self.life.check()  # a store in this process may have ended this opening a moment ago
        in_hand = self.hand.ahead
        wanted = waiter.n or 1
        if self.supply.used_up and in_hand < wanted:
            raise self.supply.overflow()
        if len(self.line) >= self.options.max_waiters:
            most = self.options.max_waiters
            reason = f"{len(self.line)} callers are waiting already (max_waiters={most})"
            remedy = "try again, or raise max_waiters"
            raise self.supply.no_segment(reason=reason, remedy=remedy)
        self.line.add(waiter)
        if in_hand >= wanted:
            self._serve()  # a signal handler has fetched them a moment ago
        elif in_hand == 0 and waiter.n:
            self.demand.find_dry(waiting=True)
        self.demand.expect(waiter.n)
        if not self.supply.is_under_way:
            self.request_missing()

    def drop(self, count: int) -> None:
        """Discard ids delivered to a caller that was cancelled in the same loop turn."""
        if not self.is_replaced:
            self.stock.discard(count, "cancelled")

    @atomic_step
    def step_out(self, waiter: Waiter) -> None:
        """Remove a waiting caller that has received nothing."""
        held_up = self.line.is_first(waiter)
        self.line.discard(waiter)
        if held_up and not self.is_replaced:
            self._serve()  # there may be enough ids for the callers behind it

    def _serve(self) -> None:
        """Serve as many callers as possible; expose the rest if none is left waiting."""
        line, supply = self.line, self.supply
        if line:
            if self.options.lifetime != FOREVER:
                self._expiry.drop_old()  # some ids were fresh when these callers began to wait
            sent = self.stock.oldest if self.pace.keeps_none else None
            line.serve(self.hand.ahead, self.stock.take, sent)
            if supply.used_up and line:
                line.fail(supply.overflow)
        if not line:
            self._install()
        elif self.pace.keeps_none and line.first.sent >= self.stock.oldest:
            # The remaining callers asked after the call was sent.  The caller that it was sent
            # for has left.
            self.stock.discard(self.hand.chain.clear(), "out_of_order")

    # Fetching.

    @atomic_step
    def request_missing(self, at_least: int = 0) -> None:
        """Make sure that a fetch is under way if segments are missing.  Quick, and never waits.

        Args:
            at_least: segments to ask for if none is missing.
        """
        supply = self.supply
        while not supply.is_under_way and (segments := self._missing(at_least)):
            self.demand.start_fetch()
            reply = supply.ask_now(segments)
            if reply is None:
                supply.calls.start(FETCH, self._run_fetch, segments, at_least, task="prefetch")
                return
            at_least = 0
            if not self._take_in(reply):
                if self.line and isinstance(reply.answer, CosIdError):
                    # A store in this process has failed; a fetch keeps trying.
                    supply.calls.start(FETCH, self._run_fetch, segments, 0, task="prefetch")
                return

    def _missing(self, at_least: int = 0) -> int:
        """Count the segments to fetch now."""
        supply, pace, wanted = self.supply, self.pace, self.line.wanted
        if self.life.ended is not None or supply.used_up:
            return 0
        self.demand.plan(self.options.max_id - (supply.last_max_id or 0))
        ahead = self.hand.ahead
        if supply.at_once and ahead > wanted:
            return 0  # it can be called when the last id is gone, so segments are fewer and longer
        segments = pace.missing(ahead, wanted) or at_least
        if segments == 0 and self.line:
            return 1  # a caller waits for any id at all
        return min(segments, max(1, supply.most // pace.step))

    async def _run_fetch(self, segments: int, at_least: int) -> None:
        """Fetch until nothing is missing; `request_missing` starts the next fetch."""
        life, supply, stock = self.life, self.supply, self.stock
        try:
            if self.pace.keeps_none:
                # Include callers that arrived after the fetch was requested.
                segments = self._missing(at_least)
            while segments and not life.has_ended():
                demand = stock.handed_out
                self.demand.start_fetch()
                reply = await supply.fetch(segments)
                # Ids that arrive after the end are a gap.
                if not (life.has_ended() or self._take_in(reply) or life.has_ended()):
                    await supply.back_off()
                    # No id was taken during the pause: the next caller starts another fetch.
                    if not self.line and stock.handed_out == demand:
                        break
                segments = self._missing()
        finally:
            supply.calls.end(FETCH)

    @atomic_step
    def _take_in(self, reply: Reply) -> bool:
        """Add the ids of a reply, or record its failure; return whether to continue at once."""
        found = self.supply.judge(reply)
        if isinstance(found, CosIdError):
            return self._fail(found, reply)
        self._link(found)
        return True

    def _link(self, fetched: Sequence[IdSegment]) -> None:
        now, pace, last = self.life.clock.monotonic(), self.pace, fetched[-1]
        demand, supply, distance = self.demand, self.supply, self.pace.distance
        starved, count = demand.is_starved, sum(each.step for each in fetched)
        pace.loaded(count, now)
        demand.land(last.fetched_at, now, was_down=supply.attempt > 0)
        supply.note_segment(last)
        self.hand.floor = last.max_id
        left_out = self.stock.link(fetched, supply.sent, self.options.max_id)
        # Events are sent only now, when the state is consistent.
        if pace.distance > distance:
            demand.tell_growth(distance)
        self.stock.discard(left_out, "limit")
        took = now - last.fetched_at
        self.life.emit(SegmentFetched, max_id=last.max_id, count=count, took=took, starved=starved)
        demand.note(now)
        self._serve()

    def _fail(self, error: CosIdError, reply: Reply) -> bool:
        """Decide which callers get an error after a failed call."""
        supply = self.supply
        if isinstance(error, IdOverflowError):
            supply.note_overflow()
            self._serve()
            return True
        supply.note_failure(error)
        took = self.life.clock.monotonic() - reply.sent_at
        self.life.emit(FetchFailed, error=error, attempt=supply.attempt, took=took)
        if isinstance(error, StoreRolledBackError):
            if self.life.ended is None:
                self.stop(error)
        elif not error.retryable or (supply.attempt > 1 and supply.fails_fast):
            self.line.fail(supply.no_segment)
        return False

    # The end.

    @property
    def has_to_drain(self) -> bool:
        """Whether closing must wait for something that is under way."""
        return self.hand.busy or self._gives_up_later or self.supply.is_under_way

    def stop(self, reason: CosIdError) -> None:
        """End the opening: fail the callers, and discard the buffered ids."""
        self.life.end(reason)
        if isinstance(reason, ClosedError) and self.hand.busy:
            # A signal handler or an instrument closed the opening in the middle of a step that
            # still uses the buffer.  `drain` discards the ids after that step.
            self._gives_up_later = True
        else:
            self._give_up(reason)
        if not isinstance(reason, ForkedError):
            self.callers.turns.release()

    @atomic_step
    def _give_up(self, reason: CosIdError) -> None:
        self._gives_up_later = False
        dropped = self.hand.clear()
        if isinstance(reason, ForkedError):
            return  # this process has no waiters, and the loop belongs to the parent
        self.stock.discard(dropped, "closed")
        self.line.fail(reason.again)
        self.life.wake()

    async def drain(self) -> None:
        """Discard what is left, and wait for the fetch to end."""
        while self.hand.busy:  # closed in the middle of a step, by an eager task
            await checkpoint()
        reason = self.life.ended
        if reason is not None:
            # Ids that the interrupted step left, or added after the close.
            self._give_up(reason)
        await self.supply.calls.drain()
