"""Wrappers around any distributor that fail on demand.

They must be awaited even around the memory store: ``next_max_id_nowait`` raises `WouldBlock`, so a
generator behaves as with a server.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

from .._life.clock import SYSTEM_CLOCK
from ..abc import IdSegmentDistributor
from ..errors import CosIdError, StoreUnavailableError

if TYPE_CHECKING:
    from ..abc import Clock

__all__ = (
    "UNPLUGGED",
    "FailingDistributor",
    "Failure",
    "GatedDistributor",
    "LossyDistributor",
    "RolledBackDistributor",
    "SlowDistributor",
    "WrappedDistributor",
)

UNPLUGGED: Final = "it is unplugged"


class Failure:
    """Whether calls fail now, and with which error; switched by a test."""

    __slots__ = ("_error", "_times")

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._times: int | None = 0

    def begin(self, error: Exception, times: int | None) -> None:
        """Let this many calls fail from now on; None for all until `end`."""
        self._error, self._times = error, times

    def end(self) -> None:
        """Let no more calls fail."""
        self._times = 0

    def meet(self) -> None:
        """Raise if this call must fail."""
        if self._times == 0 or self._error is None:
            return
        if self._times is not None:
            self._times -= 1
        raise self._error.again() if isinstance(self._error, CosIdError) else self._error


class WrappedDistributor(IdSegmentDistributor):
    """Passes all calls on, and records them.

    Attributes:
        inner: the distributor that does the work.
        steps: the step of every call, including failed calls.
        opened: how often a generator was opened on it.
        closed: how often a generator was closed on it.
    """

    __slots__ = ("closed", "inner", "opened", "steps")

    def __init__(self, inner: IdSegmentDistributor) -> None:
        """Wrap a distributor, and copy its namespace, name, offset and step."""
        super().__init__(
            namespace=inner.namespace, name=inner.name, offset=inner.offset, step=inner.step
        )
        self.inner: IdSegmentDistributor = inner
        self.steps: list[int] = []
        self.opened: int = 0
        self.closed: int = 0

    @property
    def store(self) -> str:  # type: ignore[override]  # the inner one's
        """The kind of store, for error messages."""
        return self.inner.store

    @property
    def stride(self) -> int:  # type: ignore[override]  # the inner one's
        """The distance from one id to the next."""
        return self.inner.stride

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the inner one's
        """The maximum number of ids in one call."""
        return self.inner.step_limit

    @property
    def order_risk(self) -> str:  # type: ignore[override]  # the inner one's
        """Why a call may return lower ids than a call that ended before it."""
        return self.inner.order_risk

    @property
    def calls(self) -> int:
        """How many calls there were, including failed calls."""
        return len(self.steps)

    async def next_max_id(self, step: int) -> int:
        """Pass the call on."""
        self.steps.append(step)
        return await self.inner.next_max_id(step)

    async def peek(self) -> int | None:
        """Pass the call on, without delay or failure."""
        return await self.inner.peek()

    def resume_above(self, reached: int) -> None:
        """Pass the call on."""
        self.inner.resume_above(reached)

    async def aopen(self) -> None:
        """Pass the call on."""
        self.opened += 1
        await self.inner.aopen()

    async def aclose(self) -> None:
        """Pass the call on."""
        self.closed += 1
        await self.inner.aclose()


class SlowDistributor(WrappedDistributor):
    """Delays each call, half of the time before the store acts and half after.

    Attributes:
        latency: seconds that a call takes.
    """

    __slots__ = ("_clock", "latency")

    def __init__(
        self, inner: IdSegmentDistributor, *, latency: float, clock: Clock | None = None
    ) -> None:
        """Make a distributor slow.

        Args:
            inner: the distributor that does the work.
            latency: seconds that a call takes.
            clock: the time source; the system's clock by default.
        """
        super().__init__(inner)
        self.latency: float = latency
        self._clock = clock or SYSTEM_CLOCK

    async def next_max_id(self, step: int) -> int:
        """Pass the call on, slowly."""
        self.steps.append(step)
        await self._clock.sleep(self.latency / 2)
        max_id = await self.inner.next_max_id(step)
        await self._clock.sleep(self.latency / 2)
        return max_id


class FailingDistributor(WrappedDistributor):
    """Fails on demand, before anything is written."""

    __slots__ = ("_failure",)

    def __init__(self, inner: IdSegmentDistributor) -> None:
        """Wrap a distributor; it works until `fail` is called."""
        super().__init__(inner)
        self._failure = Failure()

    def fail(self, error: Exception | None = None, *, times: int | None = None) -> None:
        """Let calls fail from now on.

        Args:
            error: the error that they raise; by default that the store cannot be reached.
            times: the number of calls; None for all until `recover`.
        """
        self._failure.begin(error or StoreUnavailableError(self.store, UNPLUGGED), times)

    def recover(self) -> None:
        """Let calls through again."""
        self._failure.end()

    async def next_max_id(self, step: int) -> int:
        """Fail, or pass the call on."""
        self.steps.append(step)
        self._failure.meet()
        return await self.inner.next_max_id(step)


class GatedDistributor(WrappedDistributor):
    """Holds each call at a gate until it is let through, first come, first served."""

    __slots__ = ("_arrivals", "_holds_replies", "_is_open", "_passes", "_waiting", "_watchers")

    def __init__(self, inner: IdSegmentDistributor, *, holds_replies: bool = False) -> None:
        """Put a closed gate before a distributor.

        Args:
            inner: the distributor that does the work.
            holds_replies: hold the reply instead of the call; the store has then already carried
                out a call that is at the gate.
        """
        super().__init__(inner)
        self._holds_replies = holds_replies
        self._is_open = False
        self._passes = 0
        self._arrivals = 0
        self._waiting: deque[anyio.Event] = deque()
        self._watchers: list[tuple[int, anyio.Event]] = []

    @property
    def held(self) -> int:
        """How many calls are waiting at the gate now."""
        return len(self._waiting)

    def open(self) -> None:
        """Let all calls through from now on."""
        self._is_open = True
        self.let_through(len(self._waiting))

    def close(self) -> None:
        """Hold all calls from now on."""
        self._is_open = False
        self._passes = 0

    def let_through(self, calls: int = 1) -> None:
        """Let some calls through, first those at the gate; then close the gate again."""
        while calls and self._waiting:
            self._waiting.popleft().set()
            calls -= 1
        self._passes += calls

    async def arrived(self, calls: int = 1) -> None:
        """Wait until that many calls have arrived at the gate, counted from the first call ever."""
        if self._arrivals < calls:
            event = anyio.Event()
            self._watchers.append((calls, event))
            await event.wait()

    async def next_max_id(self, step: int) -> int:
        """Wait at the gate before the call, or with its reply."""
        if self._holds_replies:
            max_id = await super().next_max_id(step)
            await self._pass()
            return max_id
        self.steps.append(step)
        await self._pass()
        return await self.inner.next_max_id(step)

    async def _pass(self) -> None:
        self._arrivals += 1
        for calls, event in self._watchers:
            if self._arrivals >= calls:
                event.set()
        if self._is_open:
            return
        if self._passes:
            self._passes -= 1
            return
        gate = anyio.Event()
        self._waiting.append(gate)
        try:
            await gate.wait()
        finally:
            if not gate.is_set():
                self._waiting.remove(gate)


class LossyDistributor(WrappedDistributor):
    """Loses replies: the store carries out the call, but the caller gets an error."""

    __slots__ = ("_times",)

    def __init__(self, inner: IdSegmentDistributor, *, times: int | None = 0) -> None:
        """Wrap a distributor.

        Args:
            inner: the distributor that does the work.
            times: how many replies to lose; None for all.
        """
        super().__init__(inner)
        self._times = times

    def lose(self, times: int | None = 1) -> None:
        """Lose the next replies; None for all from now on, 0 to stop."""
        self._times = times

    async def next_max_id(self, step: int) -> int:
        """Pass the call on, and perhaps lose its reply."""
        max_id = await super().next_max_id(step)
        if self._times == 0:
            return max_id
        if self._times is not None:
            self._times -= 1
        raise StoreUnavailableError(self.store, "the connection was lost before the reply")


class RolledBackDistributor(WrappedDistributor):
    """Answers like a store that lost its last writes, such as an emptied Redis."""

    __slots__ = ("_behind",)

    def __init__(self, inner: IdSegmentDistributor) -> None:
        """Wrap a distributor; it is correct until `set_back` is called."""
        super().__init__(inner)
        self._behind = 0

    def set_back(self, ids: int) -> None:
        """Set the counter back by ``ids``; the store continues to count from there."""
        self._behind += ids

    async def next_max_id(self, step: int) -> int:
        """Pass the call on, and answer like a store that was set back."""
        return await super().next_max_id(step) - self._behind
