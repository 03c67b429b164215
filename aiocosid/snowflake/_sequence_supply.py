"""Supplies sequences of a second: calls to the store, its fence, and the fallback without it."""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from .._life.component import Component
from .._life.foreign_calls import as_cosid_error, call_bounded
from ..abc import SecondFenced, SecondSpent, SequenceGrant
from ..errors import (
    ClockSkewError,
    ClosedError,
    CosIdError,
    ForkedError,
    SequenceUnavailableError,
)
from ..events import FetchFailed, IdsDiscarded, SegmentFetched
from ._availability import StoreAvailability
from ._batch_size import BatchSize
from ._lane import Guess, Lane
from ._replies import validated_reply
from ._seconds_in_hand import NS, SecondsInHand
from ._sharded_options import lane_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Clock, SequenceDistributor
    from ..events import Event
    from ..machine import MachineIdLease
    from ._lane import Fallback
    from ._sharded_layout import ShardedLayout
    from ._sharded_options import ShardedOptions

__all__ = ("SequenceSupply",)

logger = logging.getLogger("aiocosid")

MOST_FLIGHTS: Final = (
    4  # each of another second: the oldest may hang because the store does not answer
)
PREFETCH_RATE: Final = (
    1000  # ids per second from which on those of the next second are fetched in advance
)
PREFETCH_AT: Final = (0.5, 0.9)  # of a second; random, to differ from other nodes
MS: Final = 1000


class SequenceSupply(Component):
    """The part between a generator and its store.  The subclass serves the callers."""

    __slots__ = (
        "__weakref__",
        "_availability",
        "_batch",
        "_discarded",
        "_distributor",
        "_dropped_reported",
        "_failures",
        "_fallback",
        "_fenced",
        "_flights",
        "_granted",
        "_grants",
        "_grounded",
        "_has_joined",
        "_lease",
        "_options",
        "_planned",
        "_read_ns",
        "_seconds",
        "_size",
        "_skewed",
        "_spent",
        "_undelivered",
        "layout",
    )

    def __init__(
        self,
        distributor: SequenceDistributor,
        layout: ShardedLayout,
        options: ShardedOptions,
        lease: MachineIdLease | None,
        clock: Clock | None,
    ) -> None:
        self._distributor = distributor
        self.layout: ShardedLayout = layout
        self._options = options
        self._lease = lease
        self._batch = BatchSize(options.most(distributor.max_sequence), options.batch)
        if lease is not None:
            lane_width(layout, distributor, lease)  # raises
        self._seconds = SecondsInHand(layout, options.broken_threshold)
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        """Reset the state of an earlier opening, but not its position."""
        self._seconds = self._seconds.successor()
        self._read_ns: Callable[[], int] = self._clock.wall_reader()
        self._fallback: Fallback | None = None
        self._has_joined = False  # whether it has joined the lease of the lanes
        # By second; None before the call has begun.
        self._flights: dict[int, anyio.CancelScope | None] = {}
        self._grounded: anyio.Event | None = None  # set when all calls have ended, for closing
        self._availability = StoreAvailability()
        self._planned = -1  # the last second in which a prefetch of the next one was planned
        self._size = 0
        self._dropped_reported: int = 0  # dropped ids that the instrument was told of
        self._discarded: int = 0
        self._undelivered: int = 0  # of those, how many had been handed out
        self._grants: int = 0
        self._granted: int = 0
        self._failures: int = 0
        self._spent: int = 0
        self._fenced: int = 0
        self._skewed: int = 0

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    @property
    def name(self) -> str:
        """The name under which sequences are granted."""
        return self._distributor.name

    @property
    def _has_to_drain(self) -> bool:
        return self._has_joined or bool(self._flights)

    def _label(self) -> str:
        return f"{type(self).__name__} {self._distributor.namespaced_name}"

    # Implemented by the subclass.

    def _serve(self) -> None:
        """Serve the callers that can be served now."""
        raise NotImplementedError

    def _fail_all(self, make_error: Callable[[], CosIdError]) -> None:
        """Fail all waiting callers."""
        raise NotImplementedError

    # Requesting.

    def _order(self, wanted: int) -> None:
        """Start a call to the store if it is useful now.  Quick, and never waits.

        Raises:
            LayoutExpiredError: the layout has ended.
            InvalidArgumentError: the layout has not begun.
        """
        target = self._seconds.target(self._read_ns())
        second = self._availability.to_ask(target, self._clock.monotonic())
        if second is None:
            return
        if not self.layout.epoch_second <= second <= self.layout.last_second:
            self.layout.check_usable(second * MS)  # raises
        if self._seconds.is_open(second):
            self._take_off(second, wanted, ahead=False)

    def _take_off(self, second: int, wanted: int, *, ahead: bool) -> None:
        root, flights = self._root, self._flights
        if second in flights or len(flights) >= MOST_FLIGHTS or root is None or not root.is_alive:
            return
        flights[second] = None
        size = self._size = self._batch.size(second, wanted)
        try:
            name = f"aiocosid grant {self._label()}"
            root.start_soon(self._fly, second, size, ahead, name=name)
        except BaseException:
            flights.pop(second, None)
            raise

    async def _fly(self, second: int, size: int, ahead: bool) -> None:  # noqa: FBT001 - of a task
        """Make one call, shielded: it serves all callers, and no single one may cancel it."""
        life, flights, sent_at = self._seconds, self._flights, self._clock.monotonic()
        try:
            answer = await call_bounded(
                partial(self._distributor.grant, second, size),
                store=self._distributor.store,
                clock=self._clock,
                within=self._options.fetch_timeout,
                shield=True,
                began=partial(flights.__setitem__, second),
            )
        finally:
            flights.pop(second, None)
            if not flights and self._grounded is not None:
                self._grounded.set()
        if (
            self._seconds is life and self._unusable is None
        ):  # otherwise closed, perhaps opened again
            self._landed(answer, second, ahead=ahead, took=self._clock.monotonic() - sent_at)

    # Landing.

    def _landed(self, answer: object, second: int, *, ahead: bool, took: float) -> None:
        try:
            self._take_in(answer, second, ahead=ahead, took=took)
        except Exception as error:  # noqa: BLE001 - a stranger's answer must not end the root
            error = as_cosid_error(self._distributor.store, error)
            self._failed(error, ahead=ahead, took=took)
        self._serve()
        self._wake()  # the waiting task checks again

    def _take_in(self, answer: object, second: int, *, ahead: bool, took: float) -> None:
        above = self._seconds.top(second, granted=True)
        found = validated_reply(answer, second, above, self._distributor)
        if isinstance(found, CosIdError):
            if isinstance(answer, SequenceGrant):
                self._seconds.mark_spent(second)
            self._failed(found, ahead=ahead, took=took)
        else:
            self._availability.answered(found, self._distributor.tolerance, self._clock.monotonic())
            self._note_answer(found, ahead=ahead, took=took)

    def _note_answer(
        self, answer: SequenceGrant | SecondSpent | SecondFenced, *, ahead: bool, took: float
    ) -> None:
        if isinstance(answer, SecondSpent):
            self._spent += 1
            self._seconds.mark_spent(answer.second)
        elif isinstance(answer, SecondFenced):
            self._fenced += 1
        else:
            count = answer.last - answer.first + 1
            self._seconds.land(answer, self._read_ns(), ahead=ahead, fallback=False)
            self._grants += 1
            self._granted += count
            facts = {"max_id": answer.last, "count": count, "took": took, "starved": not ahead}
            self._emit(SegmentFetched, **facts)

    def _failed(self, error: CosIdError, *, ahead: bool, took: float) -> None:
        """Record a failure, and decide which callers fail."""
        standing, is_skew = self._availability, isinstance(error, ClockSkewError)
        self._failures += 1
        self._skewed += is_skew
        self._emit(FetchFailed, error=error, attempt=standing.attempt + 1, took=took)
        if ahead:
            return  # a caller that needs one requests it again
        if is_skew:
            standing.answered(None, 0, 0)
            standing.last_error = error
            self._fail_all(error.again)
            return
        if not standing.attempt:
            logger.warning("%s: no sequence is granted: %s", self._label(), error)
        in_a_hurry = self._options.on_unavailable == "raise"
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing
        standing.failed(error, self._clock.monotonic(), in_a_hurry=in_a_hurry, jitter=jitter)
        if not error.retryable or (in_a_hurry and not self._seconds.ahead):
            self._fail_all(self._unavailable)

    def _unavailable(self, waited: float = 0) -> CosIdError:
        cause = self._availability.last_error
        error = SequenceUnavailableError(
            self._distributor.namespaced_name,
            waited=waited,
            reason=str(cause or ""),
            retryable=cause is None or cause.retryable,
        )
        error.__cause__ = cause
        return error

    # Without the store.

    def _fall_back(self, now_ns: int, wanted: int) -> bool:
        """Add sequences that the store has not granted, if configured and due."""
        fallback, seconds = self._fallback, self._seconds
        standing, second = self._availability, seconds.target(now_ns)
        is_due = standing.is_away or (isinstance(fallback, Lane) and standing.opens > second)
        if fallback is None or not is_due or seconds.ahead:
            return False
        if seconds.is_spent(second):
            return False
        grant = fallback.take(second, wanted, seconds.top(second))
        if grant is None:
            return False
        return seconds.land(grant, now_ns, ahead=False, fallback=True)

    # The next second.

    def _plan(self, now_ns: int) -> None:
        """Record the demand; prefetch the next second's ids if it is high."""
        seconds, root = self._seconds, self._root
        self._batch.note(now_ns // NS, seconds.issued)
        if seconds.dropped > self._dropped_reported:
            count, self._dropped_reported = (
                seconds.dropped - self._dropped_reported,
                seconds.dropped,
            )
            self._emit(IdsDiscarded, count=count, reason="expired")
        now = now_ns // NS
        if now <= self._planned or self._batch.rate < PREFETCH_RATE or seconds.ahead:
            return
        if root is not None and root.is_alive and self._unusable is None:
            self._planned = now
            root.start_soon(self._prefetch, now, name=f"aiocosid prefetch {self._label()}")

    async def _prefetch(self, second: int) -> None:
        """Request the next second's ids, at a random time in this one."""
        life = self._seconds
        moment = second + random.uniform(*PREFETCH_AT)  # noqa: S311 - as in _failed
        while self._seconds is life and not self._has_ended():
            left = moment - self._read_ns() / NS
            if left > 0:
                await self._sleep(min(left, 1.0))
                continue
            after = life.target(self._read_ns()) + 1
            if not life.ahead and after <= self.layout.last_second:
                self._take_off(after, 0, ahead=True)
            return

    # Opening and closing.

    async def _start(self) -> None:
        self.layout.check_usable(self._clock.now_ms())
        await self._distributor.aopen()
        if self._options.on_unavailable == "random_unsafe":
            logger.warning(
                "%s: on_unavailable='random_unsafe' guesses sequences while the store is away; "
                "ids will repeat",
                self._label(),
            )
            self._fallback = Guess(self._distributor.max_sequence)
        if self._lease is not None:
            await self._join(self._lease)

    async def _join(self, lease: MachineIdLease) -> None:
        life = self._seconds
        with self._woken() as scope:
            await lease.join()
        if scope.cancelled_caught:
            raise ClosedError(self._label())
        if self._seconds is not life or self._has_ended():  # closed, perhaps opened again
            await lease.leave()
            raise ClosedError(self._label())
        self._has_joined = True
        width = lane_width(self.layout, self._distributor, lease)
        base, name = self._distributor.max_sequence, self._distributor.namespaced_name
        self._fallback = Lane.of(lease, base, width, name)

    def _stop(self, reason: CosIdError) -> None:
        self._seconds, dropped = self._seconds.shut()
        if isinstance(reason, ForkedError):
            return  # no caller in this process waits
        self._discard(dropped, "closed")
        self._fail_all(reason.again)
        self._wake()

    async def _drain(self) -> None:
        """Await the calls under way; cancel them after the close timeout."""
        self._fallback = None
        if self._has_joined and self._lease is not None:
            self._has_joined = False
            await self._lease.leave()
        if not self._flights:
            return
        grounded = self._grounded = self._grounded or anyio.Event()
        try:
            with self._clock.move_on_after(self.close_timeout):
                await grounded.wait()
        finally:
            for flight in tuple(self._flights.values()):
                if flight is not None:
                    flight.cancel()
        with self._clock.move_on_after(self.close_timeout):
            await grounded.wait()

    async def _release(self) -> None:
        await self._distributor.aclose()

    # Events.

    def _discard(self, count: int, reason: str) -> None:
        if count:
            self._discarded += count
            self._undelivered += count if reason == "cancelled" else 0
            self._emit(IdsDiscarded, count=count, reason=reason)

    def _emit(self, make: Callable[..., Event], **facts: object) -> None:
        instrument = self._options.instrument
        if instrument is None:
            return
        try:
            labels = {"namespace": self._distributor.namespace, "name": self._distributor.name}
            instrument.on_event(make(**labels, **facts))
        except Exception:
            logger.exception("%s: the instrument failed", self._label())
