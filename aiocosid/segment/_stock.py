"""What a segment generator holds, counts and tells."""

from __future__ import annotations

import logging
from functools import wraps
from math import inf
from operator import length_hint
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from .._life.component import Component
from .._life.waiting_line import WaiterQueue
from ..errors import ClosedError, CosIdError, ForkedError, InvalidArgumentError
from ..events import DistanceChanged, Event, IdsDiscarded, Starved
from ._chain import IdSegmentChain
from ._statistics import RateMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import anyio

    from ..abc import Clock, IdSegmentDistributor
    from ._options import SegmentOptions
    from ._pace import Pace

__all__ = ("EMPTY", "Stock", "atomic_step", "logger")

logger = logging.getLogger("aiocosid")

EMPTY: Final[Iterator[int]] = iter(range(0))

S = TypeVar("S", bound="Stock")
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
            self._piece = EMPTY
            return method(self, *args, **kwargs)
        try:
            self._busy = True
            self._piece = EMPTY
            return method(self, *args, **kwargs)
        finally:  # no calls: a handler may raise in each, and out of recursion all of them fail
            # Python may have forked meanwhile; what is in hand is the parent's then.
            self._piece = self._in_hand if self._unusable is None else EMPTY
            self._busy = False

    return step


class Stock(Component):
    """The chain, who waits for it, and the counts; hunger and quiet; what is given up."""

    __slots__ = (
        "__weakref__",
        "_at_once",
        "_attempt",
        "_busy",
        "_chain",
        "_discarded",
        "_distributor",
        "_dry_at",
        "_failures",
        "_fetched",
        "_fetches",
        "_flight",
        "_floor",
        "_given_back",
        "_gives_up_later",
        "_hungry",
        "_in_flight",
        "_in_hand",
        "_landed",
        "_last_error",
        "_last_max_id",
        "_meter",
        "_one_by_one",
        "_options",
        "_pace",
        "_piece",
        "_sent",
        "_starvations",
        "_starved",
        "_stock",
        "_unused",
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
        self._in_hand: Iterator[int] = EMPTY  # the piece in use
        self._piece: Iterator[int] = EMPTY  # the same for who takes an id; empty during a step
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
        self._stock = 0  # ids in hand when the flight took off
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
        return length_hint(self._in_hand)

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
        taken = self._stock - self._chain.remaining - self._left()
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
        self._in_hand = EMPTY
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
        in_hand = list(self._in_hand)
        unused = self._chain.unbroken(in_hand)
        self._in_hand = iter(in_hand)
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
