"""The callers of one opening: how they take turns, wait in line, and are served.

A long list of ids is made in stretches, and the loop runs between them.

If each of a thousand busy tasks took a piece whenever it runs, one loop turn would hand out a
million ids, and the reply from the store would wait behind them.  So the ids that one loop turn may
hand out are limited, and callers past that limit stand in line.
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
"""Most ids that one ``next_ids`` call may request; a list of them takes 400 MB."""

STRETCH: Final = 10_000
"""Most ids between two turns of the event loop, about a millisecond."""

TIMED_OUT_PER_TURN: Final = 100
"""Most callers that time out in one loop turn, about a millisecond."""


async def expand_ranges(pieces: Sequence[range]) -> list[int]:
    """Make a list of ranges; long lists let the loop run in between."""
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
    """Convert ids in stretches, and let the loop run in between."""
    made = make(ids[:stretch])
    for start in range(stretch, len(ids), stretch):
        await checkpoint()
        made += make(ids[start : start + stretch])
    return made


class TurnLine:
    """Lets callers continue in the order in which they came, at least one loop turn later.

    They are woken in rounds.  A round wakes one caller if the last one used up what a turn may hand
    out, and otherwise twice as many callers as the last one.
    """

    __slots__ = ("_awake", "_is_new_round", "_line", "_width")

    def __init__(self) -> None:
        # Ordered, so that a caller that leaves is found at once; made on demand, since few wait.
        self._line: OrderedDict[Wakeup, None] | None = None
        self._awake = 0  # callers of this round that have not run yet
        self._is_new_round = False
        self._width = 1

    async def wait(self, is_spent: Callable[[], bool], *, again: bool = False) -> bool:
        """Suspend the caller for at least one loop turn.

        Args:
            is_spent: tells whether this turn has handed out all that it may.
            again: whether the caller has been in line before, and goes to the front.

        Returns:
            Whether the caller is the first of its round, so that a new turn begins with it.
        """
        if not self._awake:  # then the line is empty, too
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
        """Let all of them continue, since there is nothing more to wait for."""
        self._wake(len(self._line or ()))

    def _go_on(self, is_spent: Callable[[], bool]) -> bool:
        """Record that a caller of the round runs; the last one wakes the next round."""
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
        """Queue a caller, and serve it at once if possible.

        A caller that is served at once lets others run before it continues.

        Raises:
            CosIdError: the opening has ended, or cannot let the caller wait.
        """

    def step_out(self, waiter: Waiter) -> None:
        """Remove a waiting caller that has received nothing; serve those that it held up."""

    def drop(self, count: int) -> None:
        """Count ids that a cancelled caller leaves as a gap."""

    def time_out(self) -> None:
        """Fail the first caller in line, whose wait has timed out; serve others if possible."""


class Pumped(Supplier, Protocol):
    """A supplier that limits the ids of a loop turn, and whose line is served by a task."""

    @property
    def handed_out(self) -> int:
        """How many ids were handed out so far."""
        ...

    def check(self) -> None:
        """Raise if it has ended."""

    def has_ended(self) -> bool:
        """Tell whether it has ended."""
        ...

    async def pause(self) -> None:
        """Wait until more callers may be served."""

    def serve(self) -> None:
        """Serve as many callers in line as there are ids for."""


def _no_more(_n: int) -> list[range]:
    return []


class Callers:
    """The callers of one opening, and the ids that are reserved for the first one in line.

    It does not refer to the supplier, which refers to it.

    Attributes:
        line: callers that wait for ids, in the order in which they came.
        turns: callers that wait for a loop turn.
        is_pumped: whether a task is serving the line.
    """

    __slots__ = (
        *("_clock", "_per_turn", "_pool", "_served_at", "_turn_mark", "_wait_timeout"),
        *("is_pumped", "line", "turns"),
    )

    def __init__(self, clock: Clock, per_turn: int, wait_timeout: float = inf) -> None:
        """Start with an empty line.

        Args:
            clock: counts the seconds that callers wait.
            per_turn: how many ids are handed out in one turn of the event loop.
            wait_timeout: seconds that a caller waits since it came, or since an earlier one was
                served from the reserved ids; infinite if the supplier decides how long.
        """
        self.line = WaiterQueue()
        self.turns = TurnLine()
        self.is_pumped = False
        self._clock = clock
        self._wait_timeout = wait_timeout
        self._pool: list[range] = []  # reserved for the first in line, which needs more
        self._served_at = -inf  # on the monotonic clock: when a caller last got an id
        self._per_turn = per_turn
        self._turn_mark = 0  # the number of ids handed out when the loop last had a turn

    # Turns of the event loop.

    def begin_turn(self, handed_out: int) -> None:
        """Count the ids of this loop turn from here on."""
        self._turn_mark = handed_out

    def left_of_turn(self, handed_out: int) -> int:
        """Return how many ids this loop turn may still hand out.

        If the turn is used up, return a whole turn's ids, since this caller cannot wait.
        """
        left = self._per_turn - (handed_out - self._turn_mark)
        return left if left > 0 else self._per_turn

    async def take_turn(self, supplier: Pumped) -> None:
        """Let the loop run once this turn is used up; an ``await`` alone may not suspend."""

        def is_spent() -> bool:
            return supplier.handed_out - self._turn_mark >= self._per_turn

        while is_spent():
            if await self.turns.wait(is_spent):
                self._turn_mark = supplier.handed_out
            supplier.check()

    # The line.

    async def wait(self, n: int, supplier: Supplier) -> list[range]:
        """Wait in line for ``n`` ids; 0 waits until there are any, and takes none.

        A cancelled caller leaves the line at once; ids that it was already given are dropped.

        Args:
            n: the number of ids.
            supplier: serves the line.

        Raises:
            CosIdError: the supplier fails the line, has ended, or takes too long.
            ForkedError: the caller was suspended in the parent process.
        """
        process = fork.generation
        waiter = Waiter(n, nothing, self._clock.monotonic())
        try:
            await supplier.line_up(waiter)
            if not waiter.is_done:
                await self._suspend(waiter, supplier)
        except BaseException:
            # Its ids are never put back, because higher ones may have been handed out since.
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
        """Wait until there are ids; if a retry cannot help, raise the store's error itself."""
        try:
            await self.wait(0, supplier)
        except (SegmentUnavailableError, SequenceUnavailableError) as error:
            cause = error.__cause__
            if isinstance(cause, CosIdError) and not cause.retryable:
                raise cause from cause.__cause__
            raise

    async def _suspend(self, waiter: Waiter, supplier: Supplier) -> None:
        """Suspend a caller until it is served or failed, or finds itself in a forked child.

        A line needs only one timer, because callers time out in their order.  The first one has
        the timer: it fails callers that have timed out, and wakes its successor when it leaves.
        """
        process, line = fork.generation, self.line
        try:
            while True:
                wakeup = new_wakeup()
                # Set first, because a signal handler may serve the caller meanwhile.
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
                line.discard(waiter)  # nothing else removes it in the child

    def _time_out(self, supplier: Supplier) -> None:
        """Fail callers that have timed out; if there are many, later loop turns fail the rest."""
        for _ in range(TIMED_OUT_PER_TURN):
            if not self.line or self._seconds_left(self.line.first) > RESOLUTION:
                break
            supplier.time_out()

    def seconds_waited(self, waiter: Waiter) -> float:
        """Return seconds since a caller came, or since another was served if that was later."""
        return self._clock.monotonic() - max(waiter.since, self._served_at)

    def _seconds_left(self, waiter: Waiter) -> float:
        return self._wait_timeout - self.seconds_waited(waiter)

    async def pump(self, supplier: Pumped) -> None:
        """Serve the callers in line, in order; ends with the last one."""
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
        """How many ids are reserved for the first caller in line."""
        return sum(map(len, self._pool))

    def set_aside(self, pieces: list[range]) -> None:
        """Reserve ids for the first caller in line; no other caller gets them."""
        if pieces:
            self._pool.extend(pieces)
            self._served_at = self._clock.monotonic()

    def hand_out(self, in_hand: int = 0, take: Callable[[int], list[range]] = _no_more) -> bool:
        """Serve the line from the front, with the reserved ids and further ones.

        Args:
            in_hand: how many further ids there are.
            take: takes a number of those.

        Returns:
            Whether a caller was served.
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
        """Discard the reserved ids; return how many there were."""
        pooled = self.pooled
        self._pool.clear()
        return pooled

    # Failing.

    def fail_first(self, error: CosIdError) -> int:
        """Fail the first caller in line; return how many ids reserved for it become a gap."""
        pooled = self.empty_pool()
        self.line.fail_first(error)
        return pooled

    def fail(self, make_error: Callable[[], CosIdError]) -> int:
        """Fail all callers in line, each with an error of its own; return as `fail_first`."""
        pooled = self.empty_pool()
        self.line.fail(make_error)
        return pooled
