"""The callers of one opening: how they take turns, wait in line, and are served.

A long list of ids is made in stretches, with a turn of the loop between them.

If each of a thousand busy tasks took a piece whenever the loop comes to it, one turn of the loop
would hand out a million ids, and the reply from the store would wait behind them.  So the ids that
one turn may hand out are limited, and those who come too late stand in line.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from anyio.lowlevel import checkpoint

from ..errors import (
    CosIdError,
    SegmentUnavailableError,
    SequenceUnavailableError,
    WouldBlock,
)
from . import fork
from .component import RESOLUTION
from .loop import new_wakeup, nothing, wake
from .waiting_line import Waiter, WaiterQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..abc import Clock
    from .loop import Wakeup

__all__ = (
    "MAX_BATCH",
    "STRETCH",
    "Callers",
    "Supplier",
    "TurnLine",
    "expand_ranges",
    "in_stretches",
)

T = TypeVar("T")

MAX_BATCH: Final = 10_000_000
"""Ids that one ``next_ids`` call may ask for; a list of them takes 400 MB."""

STRETCH: Final = 10_000
"""Ids between two turns of the event loop at most, about a millisecond."""

TIMED_OUT_PER_TURN: Final = 100
"""Callers that fail in one turn because their time is up, in about a millisecond."""


async def expand_ranges(pieces: Sequence[range]) -> list[int]:
    """Make a list of ranges, with a turn for the loop between long stretches."""
    if len(pieces) == 1 and len(pieces[0]) <= STRETCH:
        return list(pieces[0])
    ids: list[int] = []
    turn_at = STRETCH
    for piece in pieces:
        for start in range(0, len(piece), STRETCH):
            if len(ids) >= turn_at:
                await checkpoint()
                turn_at += STRETCH
            ids += piece[start : start + STRETCH]
    return ids


async def in_stretches(
    ids: Sequence[int], make: Callable[[Sequence[int]], list[T]], stretch: int
) -> list[T]:
    """Make something of each id, with a turn for the loop between long stretches."""
    made = make(ids[:stretch])
    for start in range(stretch, len(ids), stretch):
        await checkpoint()
        made += make(ids[start : start + stretch])
    return made


class TurnLine:
    """Lets callers go on, at least one turn of the loop later, in the order in which they came.

    They are woken in rounds: one caller while a round uses up what a turn may hand out, and twice
    as many each time otherwise.
    """

    __slots__ = ("_awake", "_is_new_round", "_line", "_width")

    def __init__(self) -> None:
        # Whoever leaves is found at once.  Made when it is needed: most never do.
        self._line: OrderedDict[Wakeup, None] | None = None
        self._awake = 0  # callers of this round that have not run yet
        self._is_new_round = False
        self._width = 1

    async def wait(self, is_spent: Callable[[], bool], *, again: bool = False) -> bool:
        """Suspend the caller for at least one turn of the loop.

        Args:
            is_spent: tells whether this turn has handed out all that it may.
            again: the caller has been in line already, and goes to the front.

        Returns:
            Whether the caller is the first of its round, and a new turn begins with it.
        """
        if not self._awake:  # then nobody is in line either
            self._awake = 1
            self._is_new_round = True
            try:
                await checkpoint()
            except BaseException:
                self._go_on(is_spent)
                raise
            return self._go_on(is_spent)
        if self._line is None:
            self._line = OrderedDict()
        line, place = self._line, new_wakeup()
        line[place] = None
        if again:
            line.move_to_end(place, last=False)
        try:
            await place
        except BaseException:
            if place in line:
                del line[place]
            else:
                self._go_on(is_spent)
            raise
        return self._go_on(is_spent)

    def release(self) -> None:
        """Let all of them go on: there is nothing more to wait for."""
        self._wake(len(self._line or ()))

    def _go_on(self, is_spent: Callable[[], bool]) -> bool:
        """One of the round runs; the last one wakes the next round."""
        first, self._is_new_round = self._is_new_round, False
        self._awake -= 1
        if not self._awake and self._line:
            self._width = 1 if is_spent() else self._width * 2
            self._wake(min(self._width, len(self._line)))
        return first

    def _wake(self, count: int) -> None:
        for _ in range(count):
            if self._line:
                self._is_new_round = True
                self._awake += 1
                wake(self._line.popitem(last=False)[0])


class Supplier(Protocol):
    """An opening that hands out ids, as its callers see it."""

    @property
    def label(self) -> str:
        """The name of the component in messages."""
        ...

    async def line_up(self, waiter: Waiter) -> None:
        """Put a caller in line, and serve it if that is possible now.

        Served at once, it lets others run before it goes on.

        Raises:
            CosIdError: the opening is over, or cannot let it wait.
        """

    def step_out(self, waiter: Waiter) -> None:
        """Let a caller leave that has got nothing; serve those behind it if it held them up."""

    def drop(self, count: int) -> None:
        """Count ids that a cancelled caller has left: a gap."""

    def time_out(self) -> None:
        """Fail the first in line, whose time is up; serve those behind it if that is possible."""


class Pumped(Supplier, Protocol):
    """A supplier that limits the ids of a turn, and whose line is served by a task."""

    @property
    def handed_out(self) -> int:
        """How many ids were handed out so far."""
        ...

    def check(self) -> None:
        """Raise if it is over."""

    def has_ended(self) -> bool:
        """Tell whether it is over."""
        ...

    async def pause(self) -> None:
        """Wait until more of them may be served."""

    def serve(self) -> None:
        """Serve the callers in line for which there are ids now."""


def _no_more(_n: int) -> list[range]:
    return []


class Callers:
    """Those who want ids of one opening, and the ids that are set aside for the first in line.

    It does not hold the supplier, which holds it.

    Attributes:
        line: those that wait for ids, in the order in which they came.
        turns: those that wait for a turn of the loop.
        is_pumped: whether a task goes on serving them.
    """

    __slots__ = (
        *("_clock", "_per_turn", "_pool", "_served_at", "_turn_mark", "_wait_timeout"),
        *("is_pumped", "line", "turns"),
    )

    def __init__(self, clock: Clock, per_turn: int, wait_timeout: float = inf) -> None:
        """Begin with nobody in line.

        Args:
            clock: counts the seconds that they wait.
            per_turn: how many ids are handed out in one turn of the event loop.
            wait_timeout: seconds that a caller waits since it came, or since an earlier one was
                served from the ids set aside; infinite if the supplier decides how long.
        """
        self.line = WaiterQueue()
        self.turns = TurnLine()
        self.is_pumped = False
        self._clock = clock
        self._wait_timeout = wait_timeout
        self._pool: list[range] = []  # set aside for the first in line, which needs more
        self._served_at = -inf  # by the monotonic clock: when one of them last got an id
        self._per_turn = per_turn
        self._turn_mark = 0  # the number of ids handed out when the loop last had a turn

    # Turns of the event loop.

    def begin_turn(self, handed_out: int) -> None:
        """Count the ids of this turn of the loop from here on."""
        self._turn_mark = handed_out

    def left_of_turn(self, handed_out: int) -> int:
        """Return how many ids this turn may still hand out.

        A turn's worth if it is used up: the caller cannot be made to wait.
        """
        left = self._per_turn - (handed_out - self._turn_mark)
        return left if left > 0 else self._per_turn

    async def take_turn(self, supplier: Pumped) -> None:
        """Yield to the loop after so many ids: an await that does not suspend does not yield."""

        def is_spent() -> bool:
            return supplier.handed_out - self._turn_mark >= self._per_turn

        while is_spent():
            if await self.turns.wait(is_spent):
                self._turn_mark = supplier.handed_out
            supplier.check()

    # The line.

    async def wait(self, n: int, supplier: Supplier) -> list[range]:
        """Wait in line for ``n`` ids; 0 waits until there are any, and takes none.

        A cancelled caller leaves the line at once; ids that it was given already are dropped.

        Args:
            n: the number of ids.
            supplier: serves the line.

        Raises:
            CosIdError: the supplier's, if it fails the line, is over, or takes too long.
            ForkedError: the caller was suspended in the parent process.
        """
        process = fork.generation
        waiter = Waiter(n, nothing, self._clock.monotonic())
        try:
            await supplier.line_up(waiter)
            if not waiter.is_done:
                await self._suspend(waiter, supplier)
        except BaseException:
            # What it was given is never put back: ids above may have been handed out.
            if waiter.pieces is not None:
                supplier.drop(n)
            elif waiter.error is None:
                supplier.step_out(waiter)
            raise
        fork.ensure_own(process, supplier.label)
        if waiter.pieces is not None:
            return waiter.pieces
        raise waiter.error or WouldBlock

    async def wait_for_first(self, supplier: Supplier) -> None:
        """Wait until there are ids; raise what the store said if no retry mends that."""
        try:
            await self.wait(0, supplier)
        except (SegmentUnavailableError, SequenceUnavailableError) as error:
            cause = error.__cause__
            if isinstance(cause, CosIdError) and not cause.retryable:
                raise cause from cause.__cause__
            raise

    async def _suspend(self, waiter: Waiter, supplier: Supplier) -> None:
        """Suspend a caller until it is served or failed, or finds itself in a child of its process.

        One timer is enough for a line: the time of each caller is up before that of the next one.
        The first one has the timer: it fails the callers whose time is up, and wakes its successor
        when it leaves.
        """
        process, line = fork.generation, self.line
        try:
            while True:
                wakeup = new_wakeup()
                # First: a signal handler may serve it meanwhile.
                waiter.wake = partial(wake, wakeup)
                if waiter.is_done or process != fork.generation:
                    break
                is_first = line.is_first(waiter)
                waiter.keeps_time |= is_first
                left = self._seconds_left(waiter) if is_first else inf
                if left == inf:
                    await wakeup
                elif left > RESOLUTION:
                    with self._clock.move_on_after(left):
                        await wakeup
                else:
                    self._time_out(supplier)
                if waiter.pieces is not None:
                    break
        finally:
            if waiter.keeps_time:
                line.pass_timer_on(waiter)
            if process != fork.generation:
                line.discard(waiter)  # in the child nothing else does it

    def _time_out(self, supplier: Supplier) -> None:
        """Fail those whose time is up; the next turns of the loop are for more than a few."""
        for _ in range(TIMED_OUT_PER_TURN):
            if not self.line or self._seconds_left(self.line.first) > RESOLUTION:
                break
            supplier.time_out()

    def seconds_waited(self, waiter: Waiter) -> float:
        """Return for how long a caller has waited, or how long ago another was served."""
        return self._clock.monotonic() - max(waiter.since, self._served_at)

    def _seconds_left(self, waiter: Waiter) -> float:
        return self._wait_timeout - self.seconds_waited(waiter)

    async def pump(self, supplier: Pumped) -> None:
        """Serve those in line, one after the other; ends with the last one."""
        try:
            while self.line and not supplier.has_ended():
                await supplier.pause()
                if not supplier.has_ended():
                    supplier.serve()
        except CosIdError as error:
            self.fail(error.again)
        finally:
            self.is_pumped = False

    # Serving.

    @property
    def pooled(self) -> int:
        """How many ids are set aside for the first in line."""
        return sum(map(len, self._pool))

    def set_aside(self, pieces: list[range]) -> None:
        """Keep ids for the first in line; nobody else gets them."""
        if pieces:
            self._pool.extend(pieces)
            self._served_at = self._clock.monotonic()

    def hand_out(self, in_hand: int = 0, take: Callable[[int], list[range]] = _no_more) -> bool:
        """Serve the line from the front, with the ids set aside and further ones.

        Args:
            in_hand: how many further ids there are.
            take: takes so many of those.

        Returns:
            Whether anybody was served.
        """
        available = self.pooled + in_hand
        if not self.line or available < max(1, self.line.first.n):
            return False
        self._served_at = self._clock.monotonic()
        self.line.serve(available, partial(self._take, take=take))
        return True

    def _take(self, n: int, take: Callable[[int], list[range]]) -> list[range]:
        pieces: list[range] = []
        while n and self._pool:
            piece = self._pool.pop(0)
            if len(piece) > n:
                self._pool.insert(0, piece[n:])
                piece = piece[:n]
            pieces.append(piece)
            n -= len(piece)
        return pieces + take(n) if n else pieces

    def empty_pool(self) -> int:
        """Give up the ids that are set aside; return how many that were."""
        pooled = self.pooled
        self._pool.clear()
        return pooled

    # Failing.

    def fail_first(self, error: CosIdError) -> int:
        """Fail the first in line; return how many ids were set aside for it: a gap."""
        pooled = self.empty_pool()
        self.line.fail_first(error)
        return pooled

    def fail(self, make_error: Callable[[], CosIdError]) -> int:
        """Fail everybody in line, each with an error of its own; return as `fail_first`."""
        pooled = self.empty_pool()
        self.line.fail(make_error)
        return pooled
