"""The calls of one opening to its store: owned by no caller, bounded in time, and never torn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from .clock import call_bounded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from ..errors import CosIdError
    from .open_state import OpenState

__all__ = ("FIRST_BACKOFF", "LAST_BACKOFF", "OpeningCalls", "back_off", "unavailable")

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 1.0  # seconds; an outage is over for us at most this long after it ended

E = TypeVar("E", bound="CosIdError")
T = TypeVar("T")


class OpeningCalls:
    """Makes the calls of an opening, in tasks of its root.

    A call is shielded: it belongs to all callers and to none, and a torn one would leave its reply
    on the connection.  Only its timeout ends it, or the end of the opening.

    Attributes:
        under_way: the calls whose tasks run, by a key; each with its scope while it is sent.
    """

    __slots__ = ("_all_ended", "_close_timeout", "_life", "_timeout", "under_way")

    def __init__(self, life: OpenState, *, timeout: float, close_timeout: float) -> None:
        """Begin without a call.

        Args:
            life: the opening.
            timeout: seconds of one call.
            close_timeout: seconds that `drain` waits before it cancels a call.
        """
        self._life = life
        self._timeout = timeout
        self._close_timeout = close_timeout
        self.under_way: dict[int, anyio.CancelScope | None] = {}
        self._all_ended: anyio.Event | None = None  # for who waits to close

    def start(
        self, key: int, main: Callable[..., Coroutine[Any, Any, None]], *args: object, task: str
    ) -> bool:
        """Start a task that makes calls and then says so to `end`; return whether there is one."""
        started = False
        self.under_way[key] = None  # first: an eager task may end before the call returns
        try:
            unstarted = partial(self.end, key)
            started = self._life.start_soon(main, *args, task=task, unstarted=unstarted)
        finally:
            if not started:
                self.under_way.pop(key, None)  # else none would be started any more
        return started

    async def call(self, key: int, store: str, call: Callable[[], Awaitable[T]]) -> T | CosIdError:
        """Make one call of a task; return what the store answers, or why it does not."""
        return await call_bounded(
            call,
            store=store,
            clock=self._life.clock,
            within=self._timeout,
            shield=True,
            began=partial(self.under_way.__setitem__, key),
        )

    def end(self, key: int) -> None:
        """Take note that a task makes no more calls; harmless twice."""
        self.under_way.pop(key, None)
        if not self.under_way and self._all_ended is not None:
            self._all_ended.set()

    async def drain(self) -> None:
        """Await the calls; after the close timeout tear them, and their connections with them."""
        if not self.under_way:
            return
        clock = self._life.clock
        # Two may drain at once: its own closing, and its provider's.
        ended = self._all_ended = self._all_ended or anyio.Event()
        try:
            with clock.move_on_after(self._close_timeout):
                await ended.wait()
        finally:
            for scope in tuple(self.under_way.values()):
                if scope is not None:
                    scope.cancel()
        with clock.move_on_after(self._close_timeout):
            await ended.wait()


def back_off(attempt: int, longest: float = LAST_BACKOFF) -> float:
    """Return seconds until the store is asked again at most, after so many failures in a row."""
    return min(longest, FIRST_BACKOFF * 2.0 ** min(max(0, attempt - 1), 10))


def unavailable(make: Callable[..., E], name: str, cause: Exception | None, **facts: object) -> E:
    """Return the error of a caller that gets nothing, with the store's own as its cause.

    Args:
        make: the error's class.
        name: what the caller asked for.
        cause: the store's latest error; None if it did not answer.
        facts: further arguments of the class, also for reason and remedy if not the cause's.
    """
    of_cause = {"reason": str(cause or ""), "remedy": getattr(cause, "remedy", "")}
    error = make(name, **{**of_cause, **facts})
    error.__cause__ = cause
    return error
