"""Keeps a chain supplied: one flight to the store at a time, owned, never torn."""

from __future__ import annotations

import logging
import random
from math import inf
from typing import TYPE_CHECKING, Final

import anyio

from .._component import Component
from ..abc import MAX_ID, IdSegmentDistributor
from ..errors import (
    CorruptCounterError,
    CosIdError,
    ForkedError,
    IdOverflowError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    WouldBlock,
)
from ..events import (
    DistanceChanged,
    Event,
    FetchFailed,
    IdsDiscarded,
    SegmentFetched,
    Starved,
)
from ._chain import IdSegmentChain
from ._segment import IdSegment
from ._statistics import RateMeter
from ._waiters import WaiterQueue

if TYPE_CHECKING:
    from ..abc import Clock
    from ._options import SegmentOptions
    from ._pace import Pace

logger = logging.getLogger("aiocosid")

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 1.0  # seconds; an outage is over for us at most this long after it ended


class Supply(Component):
    """Everything between a generator and its store.

    The consumer's side, `_install`, is the subclass's.
    """

    __slots__ = (
        "_at_once",
        "_attempt",
        "_chain",
        "_discarded",
        "_distributor",
        "_dry_at",
        "_failures",
        "_fetched",
        "_fetches",
        "_flight",
        "_hungry",
        "_in_flight",
        "_landed",
        "_last_error",
        "_last_max_id",
        "_meter",
        "_one_by_one",
        "_options",
        "_pace",
        "_starvations",
        "_starved",
        "_stock",
        "_timers",
        "_used_up",
        "_waiters",
        "_waits",
        "_watched",
    )

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        options: SegmentOptions,
        pace: Pace,
        clock: Clock | None,
    ) -> None:
        self._distributor = distributor
        self._options = options
        self._pace = pace
        self._timers: list[anyio.CancelScope] | None = None
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        """Forget an earlier life: counts start anew with each opening."""
        self._chain = IdSegmentChain()
        self._waiters = WaiterQueue()
        self._meter = RateMeter(self._clock.monotonic())
        self._pace.rest()
        self._last_max_id: int | None = None
        self._last_error: Exception | None = None
        self._used_up = False  # the last id below the limit has been linked
        self._one_by_one = False  # close to 2^63-1 more than one segment does not fit
        self._at_once = False  # the store is in this process and needs no flight
        self._in_flight = False
        self._watched = False  # the quiet timer is running
        self._hungry = False  # somebody found the chain dry, and nothing came since
        self._dry_at = 0.0  # when that was
        self._stock = 0  # ids in hand when the flight took off
        self._starved = False  # a starvation was counted, and nothing came since
        self._flight: anyio.CancelScope | None = None
        self._landed: anyio.Event | None = None
        self._attempt = self._starvations = self._waits = 0
        self._fetches = self._failures = self._fetched = self._discarded = 0

    @property
    def close_timeout(self) -> float:  # type: ignore[override]  # read-only here
        """Seconds that closing may take."""
        return self._options.close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self._distributor.namespaced_name}"

    # The consumer's side.

    def _left(self) -> int:
        """Count the ids of the piece in hand."""
        raise NotImplementedError

    def _install(self) -> None:
        """Put the next piece in hand if there is none."""
        raise NotImplementedError

    def _take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids, the piece in hand first; there have to be that many."""
        raise NotImplementedError

    def _handed_out(self) -> int:
        return self._fetched - self._discarded - self._chain.remaining - self._left()

    # Ordering.

    def _order(self, at_least: int = 0) -> None:
        """See that a flight is under way if segments are missing.  Quick, and never waits."""
        while not self._in_flight and (segments := self._missing() or at_least):
            at_least = 0
            count = segments * self._pace.step
            now = self._clock.monotonic()
            self._stock = self._chain.remaining + self._left()
            try:
                max_id = self._distributor.next_max_id_nowait(count)
            except WouldBlock:
                self._take_off(segments)
            except CosIdError as error:
                if not self._fail(error, segments, now):
                    return
            else:
                self._at_once = True
                self._land(max_id, count, now)

    def _missing(self) -> int:
        """Count the segments to buy now."""
        if self._unusable is not None or self._used_up:
            return 0
        waiters = self._waiters
        ahead = self._chain.remaining + self._left()
        if self._at_once and ahead > waiters.wanted:
            return 0  # it can be asked when the last id is gone: fewer, longer segments
        segments = self._pace.missing(ahead, waiters.wanted)
        if segments == 0 and waiters:
            return 1  # somebody waits for anything at all
        return min(segments, 1 if self._one_by_one else MAX_ID // self._pace.step)

    def _take_off(self, segments: int) -> None:
        root = self._root
        if root is not None and root.is_alive:
            self._in_flight = True
            root.start_soon(self._fly, segments, name=f"aiocosid prefetch {self._label()}")

    async def _fly(self, segments: int) -> None:
        """Fetch until nothing is missing; ends, and is started anew when something is."""
        life = self._chain
        try:
            while segments and self._chain is life:
                demand = self._handed_out()
                if not await self._fetch(segments):
                    await self._back_off()
                    # Nobody took an id meanwhile: the next one who does starts us again.
                    if not self._waiters and self._handed_out() == demand:
                        break
                segments = self._missing()
        finally:
            if self._chain is life:
                self._in_flight = False
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
        max_id: int | None = None
        try:
            with self._clock.move_on_after(self._options.fetch_timeout, shield=True) as scope:
                self._flight = scope
                max_id = await self._distributor.next_max_id(count)
        except CosIdError as error:
            return self._fail(error, segments, sent_at)
        except Exception as error:  # noqa: BLE001 - a stranger's distributor; it has to go on
            failure = StoreError(self._distributor.store, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            return self._fail(failure, segments, sent_at)
        finally:
            self._flight = None
        if max_id is None:
            reason = f"no answer within {self._options.fetch_timeout:g} s"
            late = StoreUnavailableError(self._distributor.store, reason)
            return self._fail(late, segments, sent_at)
        if self._chain is life:  # else closed without waiting for us, and opened anew
            self._land(max_id, count, sent_at)
        return True

    async def _back_off(self) -> None:
        """Sleep: longer after each failure, and not in step with other processes."""
        delay = min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(self._attempt - 1, 10))
        await self._sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing

    # Landing.

    def _land(self, max_id: int, count: int, sent_at: float) -> None:
        """Link what arrived, serve the waiters from it, then put the rest in hand."""
        if self._unusable is not None:
            return  # closed meanwhile: the range is a gap
        last = self._last_max_id
        if last is not None and max_id < last + count:
            self._retire(
                StoreRolledBackError(
                    self._distributor.store,
                    counter=self._distributor.namespaced_name,
                    seen=max_id,
                    expected=last + count,
                )
            )
            return
        fetched = IdSegment(max_id, count, sent_at, self._options.ttl)
        segment = fetched.clipped(lowest=1, highest=self._options.max_id)
        self._used_up = max_id >= self._options.max_id
        if segment is None and not self._used_up:
            self._fail(self._not_positive(max_id), 1, sent_at)
            return
        self._link(segment, fetched)

    def _link(self, segment: IdSegment | None, fetched: IdSegment) -> None:
        now = self._clock.monotonic()
        starved = self._starved
        self._adapt(fetched.fetched_at, now)
        self._last_max_id = fetched.max_id
        self._last_error = None
        self._attempt = 0
        self._hungry = self._starved = False
        self._fetches += 1
        self._fetched += fetched.step
        if segment is not None:
            self._chain.link(segment)
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
            waiters.serve(self._chain.remaining + self._left(), self._take)
            if self._used_up and waiters:
                waiters.fail(self._overflow)
        if not waiters:
            self._install()

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
        if self._attempt == 1:
            logger.warning("%s: cannot fetch a segment: %s", self._label(), error)
        took = self._clock.monotonic() - sent_at
        self._emit(FetchFailed, error=error, attempt=self._attempt, took=took)
        if isinstance(error, StoreRolledBackError):
            self._retire(error)
        elif not error.retryable:
            self._waiters.fail(self._unavailable)
        return False

    def _not_positive(self, max_id: int) -> CosIdError:
        return CorruptCounterError(
            self._distributor.store,
            counter=self._distributor.namespaced_name,
            found=f"{max_id}, below the first id",
        )

    def _overflow(self) -> CosIdError:
        limit = min(self._options.max_id, MAX_ID)
        return IdOverflowError(self._distributor.namespaced_name, limit=limit)

    def _unavailable(self) -> CosIdError:
        raise NotImplementedError

    # Hunger and quiet.

    def _starve(self, *, waiting: bool) -> None:
        """Somebody found the chain dry: keep more ahead from the next landing on."""
        if waiting and not self._starved:
            self._starved = True
            self._starvations += 1
            self._emit(Starved)
        if not self._hungry:
            self._hungry = True
            self._dry_at = self._clock.monotonic()

    def _adapt(self, sent_at: float, now: float) -> None:
        """Fit the distance to what was taken while the flight was under way."""
        taken = demand = self._stock - self._chain.remaining - self._left()
        if self._hungry:
            if self._attempt:
                return  # the store was down: no distance would have been long enough
            lasted = self._dry_at - sent_at
            demand = taken * (now - sent_at) / lasted if taken and lasted > 0 else inf
        before = self._pace.distance
        if not self._pace.landed(taken=taken, demand=demand, starved=self._hungry):
            return
        self._emit(DistanceChanged, before=before, after=self._pace.distance)
        root = self._root
        if not self._watched and root is not None and root.is_alive:
            self._watched = True
            root.start_soon(self._watch_quiet, name=f"aiocosid quiet {self._label()}")

    async def _watch_quiet(self) -> None:
        """Halve the distance after each quiet period; exists only while it is grown."""
        try:
            while self._pace.is_grown and self._unusable is None:
                demand = self._handed_out() + self._waits
                await self._sleep(self._options.quiet_period)
                idle = demand == self._handed_out() + self._waits and not self._waiters
                before = self._pace.distance
                if self._pace.end_period(self._chain.remaining + self._left(), idle=idle):
                    self._emit(DistanceChanged, before=before, after=self._pace.distance)
        finally:
            self._watched = False

    async def _sleep(self, seconds: float) -> None:
        """Sleep until then, or until the generator is closed."""
        with anyio.CancelScope() as scope:
            if self._timers is None:
                self._timers = []
            self._timers.append(scope)
            try:
                await self._clock.sleep(seconds)
            finally:
                self._timers.remove(scope)
                if not self._timers:
                    self._timers = None

    # Giving up.

    def _discard(self, count: int, reason: str) -> None:
        if count:
            self._discarded += count
            self._emit(IdsDiscarded, count=count, reason=reason)

    def _stop(self, reason: CosIdError) -> None:
        dropped = self._chain.clear()
        if isinstance(reason, ForkedError):
            return  # nobody in this process waits, and the parent's loop is not ours to touch
        self._discard(dropped, "closed")
        self._waiters.fail(reason.again)
        for timer in tuple(self._timers or ()):
            timer.cancel()

    async def _drain(self) -> None:
        """Await the flight; after the close timeout tear it, and its connection with it."""
        if self._in_flight:
            self._landed = anyio.Event()
            with anyio.move_on_after(self.close_timeout):
                await self._landed.wait()
            if self._flight is not None:
                self._flight.cancel()
                with anyio.move_on_after(self.close_timeout):
                    await self._landed.wait()
        await self._distributor.aclose()

    def _emit(self, kind: type[Event], **facts: object) -> None:
        if self._options.instrument is None:
            return
        about = {"namespace": self._distributor.namespace, "name": self._distributor.name}
        try:
            self._options.instrument.on_event(kind(**about, **facts))  # type: ignore[arg-type]  # facts fit the kind
        except Exception:
            logger.exception("%s: the instrument failed", self._label())
