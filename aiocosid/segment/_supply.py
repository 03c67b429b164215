"""The calls of one opening to its store: one at a time, owned by no caller, and never torn."""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from .._life.clock import as_cosid_error
from .._life.store_calls import LAST_BACKOFF, OpeningCalls, back_off, unavailable
from ..abc import MAX_ID
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
from .chain import IdSegment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..abc import IdSegmentDistributor
    from ._stock import Stock
    from .options import SegmentOptions
    from .pace import Pace

__all__ = ("FLIGHT", "Reply", "Supply")

logger = logging.getLogger("aiocosid")

FLIGHT: Final = 0  # the key of the one task that calls
BACKOFF_SHARE: Final = 0.2  # of wait_timeout: who begins to wait during a pause sees an attempt


class Reply(NamedTuple):
    """What one call to the store came to.

    Attributes:
        answer: the new maximum, or a block's ranges, not looked at yet; or why there is none.
        ids: how many were asked for.
        sent_at: when, in seconds on the monotonic clock.
    """

    answer: object
    ids: int
    sent_at: float


class Supply:
    """Asks the store, and judges its answers.

    Attributes:
        at_once: the store is in this process and needs no flight.
        calls: the flight, if there is one: a task that asks until nothing is missing.
        sent: calls sent, answered or not.
        distributor: asks the store.
        attempt: calls that failed in a row.
        last_error: the latest failure; None after a success.
        last_max_id: the counter after the latest segment; None before the first.
        fetches: answers that were segments.
        failures: calls that failed.
        used_up: the last id below the limit has been linked.
    """

    __slots__ = (
        *("_asked", "_clock", "_hand", "_life", "_most", "_next", "_options", "_pace"),
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
        self._most = MAX_ID  # fewer from when the counter had no room for as many
        self._asked = 0  # by the latest call

    # Asking.

    @property
    def is_under_way(self) -> bool:
        """Whether there is a flight."""
        return bool(self.calls.under_way)

    @property
    def most(self) -> int:
        """Ids to ask for at most: a store that grants fewer would give the rest to others."""
        return min(self._most, self.distributor.step_limit or MAX_ID)

    def ask_now(self, segments: int) -> Reply | None:
        """Ask a store in this process; None if asking takes a flight."""
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
            self.at_once = True
        return Reply(answer, count, sent_at)

    def _ids_of(self, segments: int) -> int:
        """Return how many ids to ask for: less than one segment close to the counter's end."""
        return min(segments * self._pace.step, self.most)

    async def fetch(self, segments: int) -> Reply:
        """Make one call to the store."""
        count = self._ids_of(segments)
        sent_at = self._clock.monotonic()
        self.sent += 1
        answer: object = await self.calls.call(
            FLIGHT, self.distributor.store, partial(self._ask, count)
        )
        if isinstance(answer, tuple):
            answer, count = answer
        return Reply(answer, count, sent_at)

    async def _ask(self, count: int) -> tuple[object, int]:
        """Return the new maximum or a block, and how many ids were asked for.

        Of a counter with a step of its own in the store no less than that, read just before, if
        there is room for it and one call grants so many.
        """
        if self._row_step is not None:
            self._pace.keep_to(await self._row_step())
            count = min(max(count, self._pace.step), self.most)
        self._asked = count
        return await self._next(count), count

    async def back_off(self) -> None:
        """Sleep: longer after each failure, and not in step with other processes."""
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing
        await self._life.sleep_for(self._pause * jitter)

    @property
    def _pause(self) -> float:
        """Seconds until the store is asked again at most, after a failure."""
        return back_off(self.attempt, min(LAST_BACKOFF, self._options.wait_timeout * BACKOFF_SHARE))

    # Judging.

    def judge(self, reply: Reply) -> list[IdSegment] | CosIdError:
        """Return the segments that a reply brings, at least one, or what is wrong."""
        max_id, count = reply.answer, reply.ids
        if isinstance(max_id, CosIdError):
            return max_id
        if isinstance(max_id, Block):
            return self._judge_block(max_id, reply)
        if type(max_id) is not int:  # bool and float pass for integers, and ids would be such
            return self._corrupt(f"{max_id!r} of type {type(max_id).__name__}")
        distributor, last = self.distributor, self._hand.floor
        if last is not None and max_id <= last + (count - 1) * distributor.stride:
            return StoreRolledBackError(
                distributor.store,
                namespace=distributor.namespace,
                name=distributor.name,
                seen=max_id,
                expected=last + (count - 1) * distributor.stride + 1,
            )
        if max_id < 1:
            return self._corrupt(f"{max_id}, below the first id")
        return [IdSegment(max_id, count, reply.sent_at, self._options.lifetime, distributor.stride)]

    def _judge_block(self, block: Block, reply: Reply) -> list[IdSegment] | CosIdError:
        last, ttl = self._hand.floor or 0, self._options.lifetime
        for each in block.ranges:
            if each[0] <= last:
                # Of a clock that has stepped back, behind a server that was started anew.
                reason = f"its ids have to be above {last}, and begin with {each[0]}"
                remedy = "wait until the server's clock has caught up; it is asked again"
                return StoreUnavailableError(self.distributor.store, reason, remedy=remedy)
            last = each[-1]
        return [
            IdSegment(each[-1], len(each), reply.sent_at, ttl, each.step) for each in block.ranges
        ]

    def _corrupt(self, found: str) -> CosIdError:
        counter = self.distributor.namespaced_name
        return CorruptCounterError(self.distributor.store, counter=counter, found=found)

    def note_segment(self, fetched: IdSegment) -> None:
        """Take note of a call that brought a segment."""
        self.last_max_id = fetched.max_id
        self.used_up = fetched.max_id >= self._options.max_id
        self.last_error = None
        self.attempt = 0
        self.fetches += 1

    def note_overflow(self) -> None:
        """Take note that the counter has no room for so many: half may fit, or there are no more.

        Where a range of fixed size is granted for any number of ids, half does not fit either.
        """
        self._most = self._asked // 2
        self.used_up = self._most == 0

    def note_failure(self, error: CosIdError) -> None:
        """Take note of a call that failed."""
        self.last_error = error
        self.failures += 1
        self.attempt += 1
        if self.attempt == 1 or isinstance(error, StoreRolledBackError):
            logger.warning("%s: cannot fetch a segment: %s", self._life.label, error)

    @property
    def fails_fast(self) -> bool:
        """Whether callers are told of a second failure at once."""
        root, fails_fast = self._life.root, self._options.fail_fast
        return fails_fast if fails_fast is not None else root is not None and root.fail_fast

    def overflow(self) -> CosIdError:
        """Return the error of a counter that has no more ids."""
        limit = min(self._options.max_id, MAX_ID)
        return IdOverflowError(self.distributor.namespaced_name, limit=limit)

    def no_segment(self, waited: float = 0, reason: str = "", remedy: str = "") -> CosIdError:
        """Return the error of a caller that gets no ids, with the store's own as its cause."""
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
