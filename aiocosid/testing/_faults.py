"""Stores that fail on demand: wrappers around any distributor.

They have to be awaited even around the memory store: ``next_max_id_nowait`` raises `WouldBlock`, so
a generator behaves as with a server.
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
    """Whether calls fail now, and with what; switched by a test."""

    __slots__ = ("_error", "_times")

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._times: int | None = 0

    def begin(self, error: Exception, times: int | None) -> None:
        """Fail so many calls from now on; None for all until `end`."""
        self._error, self._times = error, times

    def end(self) -> None:
        """Fail no more calls."""
        self._times = 0

    def meet(self) -> None:
        """Raise if this call is to fail."""
        if self._times == 0 or self._error is None:
            return
        if self._times is not None:
            self._times -= 1
        raise self._error.again() if isinstance(self._error, CosIdError) else self._error


class WrappedDistributor(IdSegmentDistributor):
    """Passes all calls on, and records them.

    Attributes:
        inner: the distributor that does the work.
        steps: the step of every call, the failed ones included.
        opened: how often a generator was opened on it.
        closed: how often one was closed.
    """

    __slots__ = ("closed", "inner", "opened", "steps")

    def __init__(self, inner: IdSegmentDistributor) -> None:
        """Wrap a distributor; its namespace, name, offset and step are taken over."""
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
        """From one id to the next."""
        return self.inner.stride

    @property
    def step_limit(self) -> int | None:  # type: ignore[override]  # the inner one's
        """The most ids that one call may ask for."""
        return self.inner.step_limit

    @property
    def order_risk(self) -> str:  # type: ignore[override]  # the inner one's
        """Why a call may be answered with lower ids than one that ended before it."""
        return self.inner.order_risk

    @property
    def calls(self) -> int:
        """How many calls there were, the failed ones included."""
        return len(self.steps)

    async def next_max_id(self, step: int) -> int:
        """Pass the call on."""
        self.steps.append(step)
        return await self.inner.next_max_id(step)

    async def peek(self) -> int | None:
        """Pass it on; neither delayed nor failed."""
        return await self.inner.peek()

    def resume_above(self, reached: int) -> None:
        """Pass it on."""
        self.inner.resume_above(reached)

    async def aopen(self) -> None:
        """Pass it on."""
        self.opened += 1
        await self.inner.aopen()

    async def aclose(self) -> None:
        """Pass it on."""
        self.closed += 1
        await self.inner.aclose()


class SlowDistributor(WrappedDistributor):
    """Delays each call: half of the time before the store acts, half after.

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
            clock: time; the system's by default.
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
            error: what they raise; by default the store cannot be reached.
            times: how many calls; None for all until `recover`.
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
            holds_replies: hold the reply instead of the call: the store has carried out a call when
                it arrives at the gate.
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
        """How many calls are at the gate now."""
        return len(self._waiting)

    def open(self) -> None:
        """Let everybody through from now on."""
        self._is_open = True
        self.let_through(len(self._waiting))

    def close(self) -> None:
        """Hold everybody from now on."""
        self._is_open = False
        self._passes = 0

    def let_through(self, calls: int = 1) -> None:
        """Let some calls through, those at the gate first; it stays closed behind them."""
        while calls and self._waiting:
            self._waiting.popleft().set()
            calls -= 1
        self._passes += calls

    async def arrived(self, calls: int = 1) -> None:
        """Wait until that many calls have come to the gate, counted from the first one ever."""
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
    """Loses replies: the store has carried out the call, and the caller gets an error."""

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
    """Answers like a store that lost its last writes: an emptied Redis, a restored backup."""

    __slots__ = ("_behind",)

    def __init__(self, inner: IdSegmentDistributor) -> None:
        """Wrap a distributor; it is sound until `set_back` is called."""
        super().__init__(inner)
        self._behind = 0

    def set_back(self, ids: int) -> None:
        """Set the counter back by so many ids; the store goes on counting from there."""
        self._behind += ids

    async def next_max_id(self, step: int) -> int:
        """Pass the call on, and answer as a store that was set back would."""
        return await super().next_max_id(step) - self._behind
