"""Keeps a chain supplied: one flight to the store at a time, owned, never torn."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from .._life.foreign_calls import as_cosid_error, call_bounded
from ..abc import MAX_ID
from ..errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    SegmentUnavailableError,
    StoreRolledBackError,
    WouldBlock,
)
from ..events import FetchFailed, IdsGivenBack, SegmentFetched
from ._segment import FOREVER, IdSegment
from ._stock import Stock, atomic_step, logger

__all__ = ("Supply",)

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 1.0  # seconds; an outage is over for us at most this long after it ended
BACKOFF_SHARE: Final = 0.2  # of wait_timeout: who begins to wait during a pause sees an attempt


class Supply(Stock):
    """Everything between a generator and its store.  The consumer's side is the subclass's."""

    __slots__ = ()

    _in_store_order = False
    """Whether a fetch is only for those who asked before it was sent."""

    # Ordering.

    @atomic_step
    def _order(self, at_least: int = 0) -> None:
        """See that a flight is under way if segments are missing.  Quick, and never waits."""
        while not self._in_flight and (segments := self._missing(at_least)):
            at_least = 0
            count = segments * self._pace.step
            now = self._clock.monotonic()
            self._stock = self._chain.remaining + self._left()
            self._sent += 1
            try:
                max_id = self._distributor.next_max_id_nowait(count)
            except WouldBlock:
                self._at_once = False
                self._take_off(segments)
                return
            except Exception as error:  # noqa: BLE001 - as in _fetch
                if not self._fail(as_cosid_error(self._distributor.store, error), segments, now):
                    if self._waiters:
                        self._take_off(segments)  # a flight goes on asking
                    return
            else:
                self._at_once = True
                if not self._land(max_id, count, now):
                    return

    def _missing(self, at_least: int = 0) -> int:
        """Count the segments to buy now."""
        if self._unusable is not None or self._used_up:
            return 0
        waiters = self._waiters
        ahead = self._chain.remaining + self._left()
        if self._at_once and ahead > waiters.wanted:
            return 0  # it can be asked when the last id is gone: fewer, longer segments
        segments = self._pace.missing(ahead, waiters.wanted) or at_least
        if segments == 0 and waiters:
            return 1  # somebody waits for anything at all
        most = self._distributor.step_limit or MAX_ID
        return min(segments, 1 if self._one_by_one else max(1, most // self._pace.step))

    def _take_off(self, segments: int) -> None:
        root = self._root
        if root is not None and root.is_alive:
            self._in_flight = True
            try:
                root.start_soon(self._fly, segments, name=f"aiocosid prefetch {self._label()}")
            except BaseException:
                self._in_flight = False  # else nobody would ever fetch again
                raise

    async def _fly(self, segments: int) -> None:
        """Fetch until nothing is missing; ends, and is started anew when something is."""
        life = self._chain
        try:
            while segments and self._chain is life:
                demand = self._handed_out()
                if not await self._fetch(segments) and self._unusable is None:
                    await self._back_off()
                    # Nobody took an id meanwhile: the next one who does starts us again.
                    if not self._waiters and self._handed_out() == demand:
                        break
                segments = self._missing()
        finally:
            if self._chain is life:
                self._in_flight = False
                self._flight = None
                if self._landed is not None:
                    self._landed.set()

    async def _fetch(self, segments: int) -> bool:
        """Make one call to the store; tell whether to go on without a pause.

        The call is shielded: it belongs to all callers and to none, and a torn one would leave its
        reply on the connection.
        """
        count, life = segments * self._pace.step, self._chain
        sent_at = self._clock.monotonic()
        self._stock = self._chain.remaining + self._left()
        self._sent += 1
        answer = await call_bounded(
            partial(self._answer, count),
            store=self._distributor.store,
            clock=self._clock,
            within=self._options.fetch_timeout,
            shield=True,
            began=self._took_off,
        )
        if self._chain is not life or self._unusable is not None:
            return True  # closed meanwhile, perhaps opened anew: the range is a gap
        self._flight = None
        if isinstance(answer, CosIdError):
            return self._fail(answer, segments, sent_at)
        return self._land(answer, count, sent_at)

    def _took_off(self, flight: anyio.CancelScope) -> None:
        self._flight = flight

    async def _answer(self, count: int) -> int:
        """Ask the store."""
        return await self._distributor.next_max_id(count)

    async def _back_off(self) -> None:
        """Sleep: longer after each failure, and not in step with other processes."""
        longest = min(LAST_BACKOFF, self._options.wait_timeout * BACKOFF_SHARE)
        delay = min(longest, FIRST_BACKOFF * 2 ** min(self._attempt - 1, 10))
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing
        await self._sleep(delay * jitter)

    # Landing.

    @atomic_step
    def _land(self, max_id: int, count: int, sent_at: float) -> bool:
        """Link what arrived, serve the waiters, put the rest in hand; answers as `_fetch` does."""
        if type(max_id) is not int:  # bool and float pass for integers, and ids would be such
            found = f"{max_id!r} of type {type(max_id).__name__}"
            return self._fail(self._corrupt(found), 1, sent_at)
        stride, last = self._distributor.stride, self._floor
        if last is not None and max_id <= last + (count - 1) * stride:
            went_back = StoreRolledBackError(
                self._distributor.store,
                namespace=self._distributor.namespace,
                name=self._distributor.name,
                seen=max_id,
                expected=last + (count - 1) * stride + 1,
            )
            return self._fail(went_back, 1, sent_at)
        fetched = IdSegment(max_id, count, sent_at, self._options.ttl, stride)
        segment = fetched.clipped(lowest=1, highest=self._options.max_id)
        self._used_up = max_id >= self._options.max_id
        if segment is None and not self._used_up:
            return self._fail(self._corrupt(f"{max_id}, below the first id"), 1, sent_at)
        self._link(segment, fetched)
        return True

    def _link(self, segment: IdSegment | None, fetched: IdSegment) -> None:
        now = self._clock.monotonic()
        starved, distance = self._starved, self._pace.distance
        self._adapt(fetched.fetched_at, now)
        self._last_max_id = self._floor = fetched.max_id
        self._last_error = None
        self._attempt = 0
        self._hungry = self._starved = False
        self._fetches += 1
        self._fetched += fetched.step
        if segment is not None:
            self._chain.link(segment)
        # Told from here on, when the state is whole.
        if self._pace.distance > distance:
            self._tell_growth(distance)
        if segment is not fetched:
            self._discard(fetched.step - (segment.step if segment else 0), "limit")
        if self._options.instrument is not None:
            self._emit(
                SegmentFetched,
                max_id=fetched.max_id,
                count=fetched.step,
                took=now - fetched.fetched_at,
                starved=starved,
            )
        self._meter.note(now, self._handed_out())
        self._serve()

    def _serve(self) -> None:
        """Serve whom the chain can serve; what is left over goes in hand when nobody waits."""
        waiters = self._waiters
        if waiters:
            if self._options.ttl != FOREVER:
                self._drop_expired()  # what was fresh when they began to wait
            sent = self._sent if self._in_store_order else None
            waiters.serve(self._chain.remaining + self._left(), self._take, sent)
            if self._used_up and waiters:
                waiters.fail(self._overflow)
        if not waiters:
            self._install()

    @atomic_step
    def _fail(self, error: CosIdError, segments: int, sent_at: float) -> bool:
        """Take note of a failure; decide who has to know, and whether to go on without a pause."""
        if isinstance(error, IdOverflowError):
            # Many segments do not fit below 2^63-1: one may.  After the last one there is no more.
            self._used_up = segments == 1
            self._one_by_one = True
            self._serve()
            return True
        self._last_error = error
        self._failures += 1
        self._attempt += 1
        went_back = isinstance(error, StoreRolledBackError)
        if self._attempt == 1 or went_back:
            logger.warning("%s: cannot fetch a segment: %s", self._label(), error)
        took = self._clock.monotonic() - sent_at
        self._emit(FetchFailed, error=error, attempt=self._attempt, took=took)
        if went_back:
            self._retire(error)
        elif not error.retryable:
            self._waiters.fail(self._unavailable)
        return False

    def _corrupt(self, found: str) -> CosIdError:
        return CorruptCounterError(
            self._distributor.store,
            counter=self._distributor.namespaced_name,
            found=found,
        )

    def _ended(self) -> CosIdError | None:
        """Return why no id comes any more, if so."""
        is_used_up = self._used_up and not self._chain.remaining + self._left()
        return self._unusable or (self._overflow() if is_used_up else None)

    def _overflow(self) -> CosIdError:
        limit = min(self._options.max_id, MAX_ID)
        return IdOverflowError(self._distributor.namespaced_name, limit=limit)

    def _unavailable(self, waited: float = 0) -> CosIdError:
        cause = self._last_error
        error = SegmentUnavailableError(
            self._distributor.namespaced_name,
            waited=waited,
            reason=str(cause or ""),
            retryable=cause is None or cause.retryable,
        )
        error.__cause__ = cause
        return error

    # Closing.

    async def _drain(self) -> None:
        """Await the flight; after the close timeout tear it, and its connection with it."""
        while self._busy:  # closed in the middle of a step, and run at once as an eager task
            await checkpoint()
        if self._unusable is not None:
            # What the step has left, or has brought after it was closed just before.
            self._give_up(self._unusable, keeps=False)
        unused, self._unused = self._unused, None
        if unused is not None:
            await self._give_back(unused)
        if not self._in_flight:
            return
        # Two may drain at once: its own closing, and its provider's.
        landed = self._landed = self._landed or anyio.Event()
        try:
            with self._clock.move_on_after(self.close_timeout):
                await landed.wait()
        finally:
            if self._flight is not None:
                self._flight.cancel()
        with self._clock.move_on_after(self.close_timeout):
            await landed.wait()

    async def _give_back(self, unused: range) -> None:
        """Give back what was set aside; a flight of its own, and asked for once.

        Torn, it may have taken effect or not: a gap at worst.
        """
        life, back = self._chain, 0
        self._in_flight = True
        try:
            with self._clock.move_on_after(self.close_timeout) as scope:
                self._flight = scope
                back = await self._distributor.give_back(unused.stop - 1, len(unused))
            if scope.cancelled_caught:
                logger.warning("%s: cannot give ids back: no answer", self._label())
        except BaseException as error:  # noqa: BLE001 - as in _fetch; closing goes on
            told = as_cosid_error(self._distributor.store, error)
            logger.warning("%s: cannot give ids back: %s", self._label(), told)
        finally:
            if self._chain is life:  # else opened anew meanwhile
                self._gave_back(len(unused), back)

    def _gave_back(self, unused: int, back: int) -> None:
        self._in_flight = False
        self._flight = None
        if self._landed is not None:
            self._landed.set()
        self._given_back = back
        self._discard(unused - back, "closed")
        if back:
            self._emit(IdsGivenBack, count=back)

    async def _release(self) -> None:
        await self._distributor.aclose()
