"""The ids of one opening: their counts, how fast they are taken, and the calls to the store.

One task at a time calls the store.  It belongs to no caller.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from .._life.atomic_step import atomic_step
from .._life.clock import as_cosid_error
from .._life.component import RESOLUTION
from .._life.open_state import LAST_BACKOFF, OpeningCalls, back_off, unavailable
from ..abc import MAX_ID
from ..abc.checks import check_max_id
from ..abc.events import DistanceChanged, IdsDiscarded, Starved
from ..errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    SegmentUnavailableError,
    StoreRolledBackError,
    StoreUnavailableError,
    WouldBlock,
)
from .blocks import Block, BlockDistributor
from .chain import FOREVER, IdSegment
from .pace import RateMeter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .._life.open_state import OpenState
    from .._life.waiting_line import WaiterQueue
    from ..abc import IdSegmentDistributor
    from .chain import IdsInHand
    from .options import SegmentOptions
    from .pace import Pace

__all__ = ("FETCH", "Demand", "Expiry", "Reply", "Stock", "Supply")

logger = logging.getLogger("aiocosid")

FETCH: Final = 0  # key of the single fetch task
BACKOFF_SHARE: Final = 0.2  # of wait_timeout: caps the back-off, so that every waiter sees a retry


class Stock:
    """Counts the ids that come and go.

    Attributes:
        life: the opening's state.
        hand: the buffered ids.
        fetched: ids received from the store.
        discarded: ids that were discarded.
        oldest: the number of the fetch that brought the first buffered id.
        since_turn: ids exposed since the loop last had a turn.
    """

    __slots__ = ("discarded", "fetched", "hand", "life", "oldest", "since_turn")

    def __init__(self, life: OpenState, hand: IdsInHand) -> None:
        self.life = life
        self.hand = hand
        self.fetched = self.discarded = self.oldest = self.since_turn = 0

    @property
    def handed_out(self) -> int:
        """Ids that callers have received."""
        return self.fetched - self.discarded - self.hand.ahead

    def link(self, fetched: Sequence[IdSegment], sent: int, max_id: int) -> int:
        """Add the segments of a fetch; return how many of their ids are outside 1 to max_id."""
        count = left_out = sum(each.step for each in fetched)
        self.fetched += count
        if not self.hand.ahead:
            self.oldest = sent
        for each in fetched:
            segment = each.clipped(lowest=1, highest=max_id)
            if segment is not None:
                self.hand.chain.link(segment)
                left_out -= segment.step
        return left_out

    def take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids; at least that many must be buffered.

        Call it within a step, like everything that counts ids and then takes them.
        """
        self.since_turn += max(0, n - self.hand.left)
        return self.hand.take(n)

    def discard(self, count: int, reason: str) -> None:
        """Count discarded ids, and emit an event with the reason."""
        if count:
            self.discarded += count
            self.life.emit(IdsDiscarded, count=count, reason=reason)


class Expiry:
    """Discards expired ids, also between calls."""

    __slots__ = ("_expires_at", "_is_watched", "_stock", "hand", "life")

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self.hand = stock.hand
        self.life = stock.life
        self._expires_at = FOREVER
        self._is_watched = False

    def drop_old(self) -> None:
        """Discard expired ids, exposed or in the chain."""
        now = self.life.clock.monotonic()
        if now > self._expires_at:
            self._drop_piece()
        self._stock.discard(self.hand.chain.drop_expired(now), "expired")

    @atomic_step
    def _drop_piece(self) -> None:
        self._stock.discard(self.hand.drop_piece(), "expired")

    def watch(self, expires_at: float) -> None:
        """Make sure that the exposed piece is discarded in time."""
        self._expires_at = expires_at
        if not self._is_watched:
            self._is_watched = True  # first: an eager task may end before the call returns
            if not self.life.start_soon(self._expire_in_time, task="ttl"):
                self._is_watched = False

    async def _expire_in_time(self) -> None:
        """Discard the exposed piece when it expires; wakes once per ttl, and fetches nothing."""
        life, hand = self.life, self.hand
        try:
            while hand.left and life.ended is None:
                now = life.clock.monotonic()
                if now >= self._expires_at:
                    self._drop_piece()
                else:
                    await life.sleep_for(max(self._expires_at - now, RESOLUTION))
        finally:
            self._is_watched = False
        if hand.left and life.ended is None:
            self.watch(self._expires_at)  # a signal handler has exposed another piece meanwhile


class Demand:
    """Adapts the pace to starvation, batch sizes and quiet periods.

    Attributes:
        is_starved: whether a starvation was counted and no ids have come since.
        starvations: how many there were.
    """

    __slots__ = (
        *("_ahead_at_fetch", "_dry_at", "_found_none", "_life", "_line", "_meter", "_pace"),
        *("_quiet_period", "_stock", "_watched", "is_starved", "starvations"),
    )

    def __init__(self, stock: Stock, line: WaiterQueue, pace: Pace, quiet_period: float) -> None:
        self._life = stock.life
        self._stock = stock
        self._line = line
        self._pace = pace
        self._quiet_period = quiet_period
        self._meter = RateMeter(self._life.clock.monotonic())
        self._ahead_at_fetch = 0  # buffered ids when the latest call to the store was sent
        self._found_none = False  # a caller found no id, and none have come since
        self._dry_at = 0.0  # when that was
        self._watched = False  # whether the quiet timer is running
        self.is_starved = False
        self.starvations = 0

    def plan(self, space: int) -> None:
        """Adapt the pace to the rate before counting what is missing; ``space`` ids are left."""
        now, handed_out = self._life.clock.monotonic(), self._stock.handed_out
        self._meter.note(now, handed_out)
        self._pace.plan(now, self._meter.sustained(now, handed_out), space)

    def rate(self, now: float) -> float:
        """Return the recent rate in ids per second."""
        return self._meter.rate(now, self._stock.handed_out)

    def expect(self, n: int) -> None:
        """Keep enough ahead for callers that take ``n`` ids at once."""
        before = self._pace.distance
        if self._pace.asked_for(n):
            self.tell_growth(before)

    def find_dry(self, *, waiting: bool) -> None:
        """Record that a caller found no id: the next fetch makes the distance longer."""
        if not self._stock.fetched:
            return  # nothing was fetched yet: a new group starts empty
        if waiting and not (self.is_starved or self._pace.keeps_none):
            self.is_starved = True
            self.starvations += 1
            self._life.emit(Starved)
        if not self._found_none:
            self._found_none = True
            self._dry_at = self._life.clock.monotonic()

    def start_fetch(self) -> None:
        """Record that a call to the store is sent."""
        self._ahead_at_fetch = self._stock.hand.ahead

    def land(self, sent_at: float, now: float, *, was_down: bool) -> None:
        """Adapt the distance to what was taken while a fetch was under way.

        An outage is ignored: while the store was down, no distance would have been long enough.
        """
        was_dry = self._found_none
        if not (was_dry and was_down):
            taken = self._ahead_at_fetch - self._stock.hand.ahead
            demand: float = taken
            if was_dry:
                lasted = self._dry_at - sent_at
                demand = taken * (now - sent_at) / lasted if taken and lasted > 0 else inf
            self._pace.landed(taken=taken, demand=demand, starved=was_dry)
        self._found_none = self.is_starved = False

    def note(self, now: float) -> None:
        """Take a sample of the rate."""
        self._meter.note(now, self._stock.handed_out)

    def tell_growth(self, before: int) -> None:
        """Emit that the distance has grown, and start the quiet timer."""
        self._life.emit(DistanceChanged, before=before, after=self._pace.distance)
        if not self._watched:
            self._watched = True  # first: an eager task may end before the call returns
            if not self._life.start_soon(self._watch_quiet, task="quiet"):
                self._watched = False

    async def _watch_quiet(self) -> None:
        """Halve the distance after each quiet period; runs only while the distance is grown."""
        life, line, pace, stock = self._life, self._line, self._pace, self._stock
        try:
            while pace.is_grown:
                demand = stock.handed_out + line.waits
                await life.sleep_for(self._quiet_period)
                if life.ended is not None:
                    break
                idle = demand == stock.handed_out + line.waits and not line
                before = pace.distance
                if pace.end_period(stock.hand.ahead, idle=idle):
                    life.emit(DistanceChanged, before=before, after=pace.distance)
        finally:
            self._watched = False


class Reply(NamedTuple):
    """The outcome of one call to the store.

    Attributes:
        answer: the new maximum or a block's ranges, not validated yet; or the error.
        ids: how many were requested.
        sent_at: when it was sent, in seconds on the monotonic clock.
    """

    answer: object
    ids: int
    sent_at: float


class Supply:
    """Calls the store, and validates its answers.

    Attributes:
        at_once: whether the store is in this process and answers without a fetch.
        calls: the fetch, if one runs: a task that calls the store until nothing is missing.
        sent: calls sent, answered or not.
        distributor: sends the calls.
        attempt: calls that failed in a row.
        last_error: the latest failure; None after a success.
        last_max_id: the counter after the latest segment; None before the first.
        fetches: calls that brought ids.
        failures: calls that failed.
        used_up: whether the last id below the limit was fetched.
    """

    __slots__ = (
        *("_asked", "_clock", "_fetches", "_hand", "_life", "_most", "_next", "_options", "_pace"),
        *("_row_step", "at_once", "attempt", "calls", "distributor", "failures", "fetches"),
        *("last_error", "last_max_id", "sent", "used_up"),
    )

    def __init__(
        self,
        stock: Stock,
        distributor: IdSegmentDistributor,
        options: SegmentOptions,
        pace: Pace,
        row_step: Callable[[], Awaitable[int]] | None,
    ) -> None:
        self._life, self._hand = stock.life, stock.hand
        self._clock = stock.life.clock
        self.distributor = distributor
        self._options = options
        self._pace = pace
        self._row_step = row_step
        self._next: Callable[[int], Awaitable[object]] = distributor.next_max_id
        if isinstance(distributor, BlockDistributor):
            self._next = distributor.next_block
        self.calls = OpeningCalls(
            stock.life, timeout=options.call_timeout, close_timeout=options.close_timeout
        )
        self.at_once = self.used_up = False
        self.sent = self.attempt = self.fetches = self.failures = 0
        self.last_error: CosIdError | None = None
        self.last_max_id: int | None = None
        self._most = MAX_ID  # lowered when the counter cannot grant that many
        self._asked = 0  # ids that the latest call requested
        self._fetches = 0  # calls in a row that needed a fetch

    # Calling the store.

    @property
    def is_under_way(self) -> bool:
        """Whether a fetch is under way."""
        return bool(self.calls.under_way)

    @property
    def most(self) -> int:
        """Most ids to request at once: a store that grants fewer gives the rest to others."""
        return min(self._most, self.distributor.step_limit or MAX_ID)

    def ask_now(self, segments: int) -> Reply | None:
        """Call a store that is in this process; return None if the call needs a fetch.

        After two calls in a row that needed a fetch, the store is no longer called this way.
        """
        if self._fetches > 1:
            return None
        count = self._asked = self._ids_of(segments)
        sent_at = self._clock.monotonic()
        self.sent += 1
        try:
            answer: object = self.distributor.next_max_id_nowait(count)
        except WouldBlock:
            self.at_once = False
            return None
        except Exception as error:  # noqa: BLE001 - as in fetch
            answer = as_cosid_error(self.distributor.store, error)
        else:
            self.at_once, self._fetches = True, 0
        return Reply(answer, count, sent_at)

    def _ids_of(self, segments: int) -> int:
        """Return how many ids to request: less than a segment close to the counter's end."""
        return min(segments * self._pace.step, self.most)

    async def fetch(self, segments: int) -> Reply:
        """Make one call to the store."""
        count = self._ids_of(segments)
        sent_at = self._clock.monotonic()
        self.sent += 1
        answer: object = await self.calls.call(
            FETCH, self.distributor.store, partial(self._ask, count)
        )
        if isinstance(answer, tuple):
            answer, count = answer
            self._fetches += 1
        return Reply(answer, count, sent_at)

    async def _ask(self, count: int) -> tuple[object, int]:
        """Return the new maximum or a block, and how many ids were requested.

        If the store sets a step, it is read just before, and at least that many ids are requested,
        unless the counter has fewer left or one call grants fewer.
        """
        if self._row_step is not None:
            self._pace.keep_to(await self._row_step())
            count = min(max(count, self._pace.step), self.most)
        self._asked = count
        return await self._next(count), count

    async def back_off(self) -> None:
        """Sleep before the next attempt: longer after each failure, with jitter."""
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing
        await self._life.sleep_for(self._pause * jitter)

    @property
    def _pause(self) -> float:
        """Longest pause before the next attempt, in seconds."""
        return back_off(self.attempt, min(LAST_BACKOFF, self._options.wait_timeout * BACKOFF_SHARE))

    # Validating answers.

    def judge(self, reply: Reply) -> list[IdSegment] | CosIdError:
        """Return the segments of a reply, at least one, or the error."""
        max_id, count = reply.answer, reply.ids
        if isinstance(max_id, CosIdError):
            return max_id
        if isinstance(max_id, Block):
            return self._judge_block(max_id, reply)
        if type(max_id) is not int:  # a bool or a float compares like an int, but makes bad ids
            return self._corrupt(f"{max_id!r} of type {type(max_id).__name__}")
        distributor, last = self.distributor, self._hand.floor
        try:
            span = (count - 1) * distributor.stride + 1
            check_max_id(distributor, max_id, baseline=last, step=span)
        except StoreRolledBackError as error:
            return error
        if max_id < 1:
            return self._corrupt(f"{max_id}, below the first id")
        return [IdSegment(max_id, count, reply.sent_at, self._options.lifetime, distributor.stride)]

    def _judge_block(self, block: Block, reply: Reply) -> list[IdSegment] | CosIdError:
        last, ttl = self._hand.floor or 0, self._options.lifetime
        for each in block.ranges:
            if each[0] <= last:
                # The server was restarted, and its clock has stepped back.
                reason = f"its ids must be above {last}, but begin with {each[0]}"
                remedy = "wait until the server's clock has caught up; it is called again"
                return StoreUnavailableError(self.distributor.store, reason, remedy=remedy)
            last = each[-1]
        return [
            IdSegment(each[-1], len(each), reply.sent_at, ttl, each.step) for each in block.ranges
        ]

    def _corrupt(self, found: str) -> CosIdError:
        counter = self.distributor.namespaced_name
        return CorruptCounterError(self.distributor.store, counter=counter, found=found)

    def note_segment(self, fetched: IdSegment) -> None:
        """Record a call that brought a segment."""
        self.last_max_id = fetched.max_id
        self.used_up = fetched.max_id >= self._options.max_id
        self.last_error = None
        self.attempt = 0
        self.fetches += 1

    def note_overflow(self) -> None:
        """Record that the counter cannot grant that many: half may fit, or there are no more.

        Where the store grants ranges of a fixed size for any number of ids, half does not fit
        either.
        """
        self._most = self._asked // 2
        self.used_up = self._most == 0

    def note_failure(self, error: CosIdError) -> None:
        """Record a call that failed."""
        self.last_error = error
        self.failures += 1
        self.attempt += 1
        if self.attempt == 1 or isinstance(error, StoreRolledBackError):
            logger.warning("%s: cannot fetch a segment: %s", self._life.label, error)

    @property
    def fails_fast(self) -> bool:
        """Whether callers fail at once after a second failure in a row."""
        root, fails_fast = self._life.root, self._options.fail_fast
        return fails_fast if fails_fast is not None else root is not None and root.fail_fast

    def overflow(self) -> CosIdError:
        """Return the error of a counter that has no more ids."""
        limit = min(self._options.max_id, MAX_ID)
        return IdOverflowError(self.distributor.namespaced_name, limit=limit)

    @property
    def ended(self) -> CosIdError | None:
        """Why no more ids come; None while some do."""
        is_used_up = self.used_up and not self._hand.ahead
        return self._life.ended or (self.overflow() if is_used_up else None)

    @property
    def head_sequence(self) -> int | None:
        """The id before the next one; None before the first fetch."""
        before = self._hand.before_next
        return self.last_max_id if before is None else before

    def no_segment(self, waited: float = 0, reason: str = "", remedy: str = "") -> CosIdError:
        """Return the error of a caller that gets no ids; the store's own error is its cause."""
        cause = self.last_error
        retryable = cause is None or cause.retryable
        facts = {"reason": reason, "remedy": remedy}
        return unavailable(
            SegmentUnavailableError,
            self.distributor.namespaced_name,
            cause,
            waited=waited,
            retryable=retryable,
            retry_after=self._pause if retryable else None,
            **{name: text for name, text in facts.items() if text},
        )
