"""Cancels a call at each of its suspensions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Cancelled", "How", "cancel_at", "cancel_everywhere")

_T = TypeVar("_T")

How: TypeAlias = Literal["task", "scope", "reply"]


@dataclass(frozen=True, slots=True)
class Cancelled(Generic[_T]):
    """What came of a call that was to be cancelled.

    Attributes:
        suspensions: how often it was suspended.
        result: what it returned; None if it was cancelled.
        was_cancelled: whether it ended by being cancelled.
    """

    suspensions: int
    result: _T | None
    was_cancelled: bool


async def cancel_at(
    call: Coroutine[Any, Any, _T], suspension: int, *, how: How = "task"
) -> Cancelled[_T]:
    """Run a call in a task of its own, and cancel it while it is suspended.

    Args:
        call: the call, not awaited yet.
        suspension: at which of its suspensions, counted from 1.
        how: ``"task"`` cancels the task once, as asyncio does; ``"scope"`` cancels a scope around
            it, as anyio does: every further suspension is cancelled as well; ``"reply"`` cancels
            the task in the very turn in which it would go on.

    Raises:
        Exception: what the call raised.
    """
    loop = asyncio.get_running_loop()
    scope = anyio.CancelScope()

    def on_reply(_: object) -> None:
        task.cancel()

    def strike(awaited: object) -> None:
        if how == "scope":
            loop.call_soon(scope.cancel)
        elif how == "reply" and isinstance(awaited, asyncio.Future):
            awaited = cast("asyncio.Future[object]", awaited)
            # Before the task's own callback, which is added after we have handed the future on.
            awaited.add_done_callback(on_reply)
        else:
            loop.call_soon(task.cancel)

    counted = _Counted(call, suspension, strike)
    task = asyncio.create_task(_run(counted, scope), name=f"cancelled at {suspension}")
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    results = [] if task.cancelled() else task.result()
    if not results:
        return Cancelled(counted.suspensions, None, was_cancelled=True)
    return Cancelled(counted.suspensions, results[0], was_cancelled=False)


async def cancel_everywhere(
    make_call: Callable[[], Coroutine[Any, Any, object]], *, how: How = "task", limit: int = 100
) -> int:
    """Cancel a call at its first suspension, another one at its second, and so on.

    Args:
        make_call: makes a new call.
        how: see `cancel_at`.
        limit: the last suspension that is tried.

    Returns:
        At how many suspensions it was cancelled, before one ended without coming to the next.

    Raises:
        Exception: what a call raised.
    """
    for suspension in count(1):
        done = await cancel_at(make_call(), suspension, how=how)
        if done.suspensions < suspension or suspension > limit:
            return suspension - 1
    raise AssertionError


async def _run(counted: _Counted[_T], scope: anyio.CancelScope) -> list[_T]:
    """Return the result in a list; an empty one if the scope was cancelled."""
    with scope:
        return [await counted]
    return []


class _Counted(Awaitable[_T]):
    """Hands on what a coroutine yields, and counts."""

    def __init__(
        self, call: Coroutine[Any, Any, _T], at: int, strike: Callable[[object], None]
    ) -> None:
        self.suspensions = 0
        self._call = call
        self._at = at
        self._strike = strike

    def __await__(self) -> Generator[Any, Any, _T]:
        resume: Callable[[], Any] = lambda: self._call.send(None)  # noqa: E731 - replaced below
        while True:
            try:
                awaited = resume()
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # what the coroutine returned
            self.suspensions += 1
            if self.suspensions == self._at:
                self._strike(awaited)
            try:
                value = yield awaited
            except GeneratorExit:
                self._call.close()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                resume = _thrower(self._call, error)
            else:
                resume = _sender(self._call, value)


def _sender(call: Coroutine[Any, Any, Any], value: object) -> Callable[[], Any]:
    return lambda: call.send(value)


def _thrower(call: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: call.throw(error)
