"""A clock that advances only when a test says so."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from .._life.clock import SystemClock
from ..abc import Clock
from ..errors import BusyError, InvalidArgumentError
from ._settle import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ("ManualClock", "use_clock")

NS: Final = 1_000_000_000  # nanoseconds per second
NS_PER_MS: Final = 1_000_000

CLOCK_METHODS: Final = ("monotonic", "move_on_after", "now_ms", "sleep", "wall_reader")

START_MS: Final = 1_700_000_000_000
"""2023-11-14T22:13:20Z, an arbitrary date."""


@dataclass(slots=True, eq=False)
class _Timer:
    """A wake-up at a moment; ``wake`` is None once it is done or cancelled."""

    at: int
    wake: Callable[[], object] | None


class ManualClock(Clock):
    """A clock that stands still until `advance` is awaited.

    Monotonic and wall time advance together; the wall clock can also be set, as NTP and operators
    do.  It counts whole nanoseconds, so that ten times 0.1 s is 1 s.  It works on asyncio, with and
    without uvloop, and on trio.
    """

    __slots__ = ("_advancing", "_now", "_order", "_timers", "_wall")

    def __init__(self, *, wall_ms: int = START_MS) -> None:
        """Start at 0 s of monotonic time.

        Args:
            wall_ms: the wall clock at that moment, in milliseconds since 1970.
        """
        self._now = 0
        self._wall = wall_ms * NS_PER_MS  # the wall time at monotonic time 0
        self._timers: list[tuple[int, int, _Timer]] = []
        self._order = count()
        self._advancing = False

    # The contract.

    def monotonic(self) -> float:
        """Return how many seconds the clock has been advanced so far."""
        return self._now / NS

    def now_ms(self) -> int:
        """Return the wall clock's time in milliseconds since 1970."""
        return (self._wall + self._now) // NS_PER_MS

    def wall_reader(self) -> Callable[[], int]:
        """Return a function that reads the wall clock to the nanosecond."""
        return lambda: self._wall + self._now

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task until the clock was advanced by ``seconds``."""
        if seconds <= 0:
            await checkpoint()
            return
        woken = anyio.Event()
        timer = self._set(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.wake = None

    @contextmanager
    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> Generator[anyio.CancelScope]:
        """Return a cancel scope that ends its block once the clock was advanced by ``seconds``."""
        with anyio.CancelScope(shield=shield) as scope:
            timer = self._set(seconds, scope.cancel)
            try:
                yield scope
            finally:
                timer.wake = None

    # For tests.

    async def advance(self, seconds: float) -> None:
        """Advance both times, stopping at each due sleeper or deadline in order.

        At each stop all tasks run until they wait again, so timers that they set are included.  A
        task that never waits gets a thousand loop turns.

        Args:
            seconds: at least 0; 0 only lets other tasks run.

        Raises:
            InvalidArgumentError: ``seconds`` is negative.
            BusyError: another task is advancing the clock.
        """
        if self._advancing:
            raise BusyError(
                type(self).__name__,
                reason="is being advanced by another task",
                remedy="advance it from one task only",
            )
        end = self._now + _nanoseconds(seconds)
        self._advancing = True
        try:
            await settle()
            while self._wake_next(end):
                await settle()
        finally:
            self._advancing = False
        self._now = max(self._now, end)

    def stall(self, seconds: float) -> None:
        """Advance both times as if the loop had been blocked: no task runs before you await.

        Args:
            seconds: at least 0.

        Raises:
            InvalidArgumentError: ``seconds`` is negative.
        """
        end = self._now + _nanoseconds(seconds)
        self._now = end
        while self._wake_next(end):
            pass

    def step_wall_ms(self, by_ms: int) -> None:
        """Step the wall clock forward or back; the monotonic time stays unchanged."""
        self._wall += by_ms * NS_PER_MS

    def set_wall_ms(self, now_ms: int) -> None:
        """Set the wall clock; the monotonic time stays unchanged."""
        self._wall = now_ms * NS_PER_MS - self._now

    @property
    def pending(self) -> int:
        """How many sleepers and deadlines are waiting for the clock."""
        return sum(timer.wake is not None for _, _, timer in self._timers)

    def __repr__(self) -> str:
        """Show the time and the number of sleepers."""
        wall = f"wall {self.now_ms()} ms"
        return f"<ManualClock {self.monotonic():g} s, {wall}, pending {self.pending}>"

    def _set(self, seconds: float, wake: Callable[[], object]) -> _Timer:
        if seconds <= 0:
            wake()
            return _Timer(self._now, wake)
        if seconds == inf:
            return _Timer(self._now, wake)
        # This waits at least one tick, because a rounded 0 would let a loop of sleeps spin within
        # one moment.
        timer = _Timer(self._now + max(1, _nanoseconds(seconds)), wake)
        heappush(self._timers, (timer.at, next(self._order), timer))
        return timer

    def _wake_next(self, end: int) -> bool:
        """Move to the next due moment up to ``end``, and wake everything that is due."""
        timers = self._timers
        while timers and timers[0][2].wake is None:
            heappop(timers)
        if not timers or timers[0][0] > end:
            return False
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = heappop(timers)[2]
            if timer.wake is not None:
                wake, timer.wake = timer.wake, None
                wake()
        return True


@contextmanager
def use_clock(clock: Clock) -> Generator[Clock]:
    """Use this clock for everything that is opened in the block without its own clock.

    It is for code that opens its own generators.  Close them before the block ends.

    Args:
        clock: usually a `ManualClock`.
    """
    before = {name: SystemClock.__dict__[name] for name in CLOCK_METHODS}
    for name in before:
        setattr(SystemClock, name, staticmethod(getattr(clock, name)))
    try:
        yield clock
    finally:
        for name, method in before.items():
            setattr(SystemClock, name, method)


def _nanoseconds(seconds: float) -> int:
    if not 0 <= seconds < inf:
        raise InvalidArgumentError("seconds", seconds, "must be a finite number of at least 0")
    return round(seconds * NS)
