"""What a segment generator holds, counts and tells, and its flights to the store.

One flight is under way at a time; it belongs to all callers and to none, and is never torn.
"""

from __future__ import annotations

import logging
import random
from functools import partial, wraps
from math import inf
from operator import length_hint
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from .._life.component import Component
from .._life.foreign_calls import as_cosid_error, call_bounded
from .._life.waiting_line import WaiterQueue
from ..abc import MAX_ID
from ..errors import (
    ClosedError,
    CorruptCounterError,
    CosIdError,
    ForkedError,
    IdOverflowError,
    InvalidArgumentError,
    SegmentUnavailableError,
    StoreRolledBackError,
    WouldBlock,
)
from ..events import (
    DistanceChanged,
    Event,
    FetchFailed,
    IdsDiscarded,
    IdsGivenBack,
    SegmentFetched,
    Starved,
)
from ._chain import IdSegmentChain
from ._segment import FOREVER, IdSegment
from ._statistics import RateMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..abc import Clock, IdSegmentDistributor
    from ._options import SegmentOptions
    from ._pace import Pace

__all__ = ("EMPTY", "Supply", "atomic_step", "logger")

logger = logging.getLogger("aiocosid")

EMPTY: Final[Iterator[int]] = iter(range(0))

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 1.0  # seconds; an outage is over for us at most this long after it ended
BACKOFF_SHARE: Final = 0.2  # of wait_timeout: who begins to wait during a pause sees an attempt

S = TypeVar("S", bound="Supply")
P = ParamSpec("P")
R = TypeVar("R")


def atomic_step(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Keep a step from those who would take an id in the middle of it.

    Python runs signal handlers, finalizers, log filters and instruments between any two lines of
    it.  Meanwhile there is nothing to take, and `next_id_nowait` raises WouldBlock.
    """

    @wraps(method)
    def step(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._busy:  # a step within a step, or in the last line of one
            self._exposed = EMPTY
            return method(self, *args, **kwargs)
        try:
            self._busy = True
            self._exposed = EMPTY
            return method(self, *args, **kwargs)
        finally:  # no calls: a handler may raise in each, and out of recursion all of them fail
            # Python may have forked meanwhile; what is in hand is the parent's then.
            self._exposed = self._current if self._unusable is None else EMPTY
            self._busy = False

    return step


class Supply(Component):
    """The chain, who waits for it, and the counts; hunger and quiet; flights; what is given up.

    Everything between a generator and its store; the consumer's side is the subclass's.
    """

    __slots__ = (
        "__weakref__",
        "_ahead_at_takeoff",
        "_at_once",
        "_attempt",
        "_busy",
        "_chain",
        "_current",
        "_discarded",
        "_distributor",
        "_dry_at",
        "_exposed",
        "_failures",
        "_fetched",
        "_fetches",
        "_flight",
        "_floor",
        "_given_back",
        "_gives_up_later",
        "_hungry",
        "_in_flight",
        "_landed",
        "_last_error",
        "_last_max_id",
        "_meter",
        "_one_by_one",
        "_options",
        "_pace",
        "_sent",
        "_starvations",
        "_starved",
        "_unused",
        "_used_up",
        "_waiters",
        "_waits",
        "_watched",
    )

    _in_store_order = False
    """Whether a fetch is only for those who asked before it was sent."""

    def __init__(
        self,
        distributor: IdSegmentDistributor,
        options: SegmentOptions,
        pace: Pace,
        clock: Clock | None,
    ) -> None:
        if options.give_back and not distributor.allow_give_back():
            expected = f"False: {type(distributor).__name__} takes no ids back"
            raise InvalidArgumentError("give_back", options.give_back, expected=expected)
        self._distributor = distributor
        self._options = options
        self._pace = pace
        # The last max id of all lives, less what may have gone back: a sound store answers above.
        self._floor: int | None = None
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        """Forget an earlier life: counts start anew with each opening."""
        self._chain = IdSegmentChain()
        self._current: Iterator[int] = EMPTY  # the piece in use
        self._exposed: Iterator[int] = EMPTY  # the same for who takes an id; empty during a step
        self._busy = False  # a step is under way
        self._gives_up_later = False  # closed in the middle of one
        self._waiters = WaiterQueue()
        self._meter = RateMeter(self._clock.monotonic())
        self._pace.rest()
        self._last_max_id: int | None = None
        self._last_error: CosIdError | None = None
        self._used_up = False  # the last id below the limit has been linked
        self._one_by_one = False  # close to 2^63-1 more than one segment does not fit
        self._at_once = False  # the store is in this process and needs no flight
        self._sent: int = 0  # fetches sent, answered or not
        self._in_flight = False
        self._flight: anyio.CancelScope | None = None
        self._landed: anyio.Event | None = None  # set at the landing, for who waits to close
        self._ahead_at_takeoff = 0  # ids in hand when the flight took off
        self._hungry = False  # somebody found the chain dry, and nothing came since
        self._dry_at = 0.0  # when that was
        self._starved = False  # a starvation was counted, and nothing came since
        self._watched = False  # the quiet timer is running
        self._attempt: int = 0  # fetches that failed in a row
        self._starvations: int = 0
        self._waits: int = 0
        self._fetches: int = 0
        self._failures: int = 0
        self._fetched: int = 0
        self._discarded: int = 0
        self._given_back: int = 0
        self._unused: range | None = None  # what is to be given back

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    @property
    def name(self) -> str:
        """The counter's name in its namespace."""
        return self._distributor.name

    @property
    def _detail(self) -> str:
        return f"step {self._pace.step}"

    @property
    def _has_to_drain(self) -> bool:
        return self._busy or self._gives_up_later or self._in_flight or self._unused is not None

    def _reached(self) -> int | None:
        """Return how far it has come, for its successor: a sound store answers above that."""
        return self._floor

    def _resume(self, reached: int | None) -> None:
        """Go on above what `_reached` returned."""
        self._floor = reached
        if reached is not None:
            self._distributor.resume_above(reached)

    def _label(self) -> str:
        return f"{type(self).__name__} {self._distributor.namespaced_name}"

    # The consumer's side.

    def _left(self) -> int:
        """Count the ids of the piece in hand."""
        return length_hint(self._current)

    def _install(self) -> None:
        """Put the next piece in hand if there is none."""
        raise NotImplementedError

    def _take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids, the piece in hand first; there have to be that many.

        Part of a step, as everything that counts ids and then takes them.
        """
        raise NotImplementedError

    def _drop_expired(self) -> None:
        """Give up what is too old, in hand and in the chain."""
        raise NotImplementedError

    def _handed_out(self) -> int:
        gone = self._discarded + self._given_back
        return self._fetched - gone - self._chain.remaining - self._left()

    # Hunger and quiet.

    def _starve(self, *, waiting: bool) -> None:
        """Somebody found the chain dry: keep more ahead from the next landing on."""
        if not self._fetches:
            return  # a new group's: nothing has been there yet
        if waiting and not self._starved:
            self._starved = True
            self._starvations += 1
            self._emit(Starved)
        if not self._hungry:
            self._hungry = True
            self._dry_at = self._clock.monotonic()

    def _adapt(self, sent_at: float, now: float) -> None:
        """Fit the distance to what was taken while the flight was under way."""
        taken = self._ahead_at_takeoff - self._chain.remaining - self._left()
        demand: float = taken
        if self._hungry:
            if self._attempt:
                return  # the store was down: no distance would have been long enough
            lasted = self._dry_at - sent_at
            demand = taken * (now - sent_at) / lasted if taken and lasted > 0 else inf
        self._pace.landed(taken=taken, demand=demand, starved=self._hungry)

    def _tell_growth(self, before: int) -> None:
        """The distance has grown: tell it, and watch for quiet."""
        self._emit(DistanceChanged, before=before, after=self._pace.distance)
        root = self._root
        if not self._watched and root is not None and root.is_alive:
            self._watched = True
            root.start_soon(self._watch_quiet, name=f"aiocosid quiet {self._label()}")

    async def _watch_quiet(self) -> None:
        """Halve the distance after each quiet period; exists only while it is grown."""
        try:
            while self._pace.is_grown:
                demand = self._handed_out() + self._waits
                await self._sleep(self._options.quiet_period)
                if self._unusable is not None:
                    break
                idle = demand == self._handed_out() + self._waits and not self._waiters
                before = self._pace.distance
                if self._pace.end_period(self._chain.remaining + self._left(), idle=idle):
                    self._emit(DistanceChanged, before=before, after=self._pace.distance)
        finally:
            self._watched = False

    # Giving up.

    def _discard(self, count: int, reason: str) -> None:
        if count:
            self._discarded += count
            self._emit(IdsDiscarded, count=count, reason=reason)

    def _stop(self, reason: CosIdError) -> None:
        if isinstance(reason, ClosedError) and self._busy:
            # By a signal handler or an instrument, and the step counts on what it has counted.
            # `_drain` does it after that, and gives nothing back: the floor may be remembered.
            self._gives_up_later = True
            return
        self._give_up(reason, keeps=isinstance(reason, ClosedError))

    @atomic_step
    def _give_up(self, reason: CosIdError, *, keeps: bool) -> None:
        self._gives_up_later = False
        kept = 0
        if keeps and self._options.give_back and not self._in_flight:
            kept = self._set_aside()
        dropped = self._left() + self._chain.clear()
        self._current = EMPTY
        if isinstance(reason, ForkedError):
            return  # nobody in this process waits, and the parent's loop is not ours to touch
        self._discard(dropped - kept, "closed")
        self._waiters.fail(reason.again)
        self._wake()

    def _set_aside(self) -> int:
        """Keep the ids below the last max id, which nobody has and nobody gets, to be given back.

        Return how many they are.

        The floor is lowered at once, and stays so: whoever is opened next may come before or after.
        """
        # The very iterator is used up: whoever has a hand on it finds it empty.
        in_hand = list(self._current)
        unused = self._chain.unbroken(in_hand)
        self._current = iter(in_hand)
        if unused and unused.stop - 1 == self._last_max_id:
            self._unused, self._floor = unused, unused.start - 1
            self._given_back = len(unused)
            return len(unused)
        return 0

    def _emit(self, kind: type[Event], **facts: object) -> None:
        if self._options.instrument is None:
            return
        about = {"namespace": self._distributor.namespace, "name": self._distributor.name}
        try:
            self._options.instrument.on_event(kind(**about, **facts))  # type: ignore[arg-type]  # facts
        except Exception:
            logger.exception("%s: the instrument failed", self._label())

    # Ordering.

    @atomic_step
    def _order(self, at_least: int = 0) -> None:
        """See that a flight is under way if segments are missing.  Quick, and never waits."""
        while not self._in_flight and (segments := self._missing(at_least)):
            at_least = 0
            count = segments * self._pace.step
            now = self._clock.monotonic()
            self._ahead_at_takeoff = self._chain.remaining + self._left()
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
        self._ahead_at_takeoff = self._chain.remaining + self._left()
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
