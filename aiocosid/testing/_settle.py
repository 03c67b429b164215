"""Lets every other task run until all of them wait for something."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import checkpoint

from .._life.loop import asyncio_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ("settle",)

QUIET_TURNS: Final = 3
"""The consecutive loop turns without a ready task after which `settle` returns.

One is not enough: a callback may wake a future, which wakes a future, which wakes a task.
"""

MAX_TURNS: Final = 1000
"""Maximum loop turns, because a task that never waits would otherwise never let this end."""


async def settle(*, max_turns: int = MAX_TURNS) -> None:
    """Return once all other tasks of this loop wait for something, or after ``max_turns``.

    Unlike `anyio.wait_all_tasks_blocked` it never sleeps, and a busy task does not hang it.  A task
    that waits for a socket, a file or a thread counts as waiting; another task in `settle` does
    not.

    Args:
        max_turns: the maximum number of loop turns.
    """
    quiet = 0
    with _asyncio_watch() if asyncio_loop() is not None else _trio_watch() as somebody_was_ready:
        for _ in range(max_turns):
            await checkpoint()
            quiet = 0 if somebody_was_ready() else quiet + 1
            if quiet == QUIET_TURNS:
                return


@contextmanager
def _asyncio_watch() -> Generator[Callable[[], bool]]:
    import asyncio  # noqa: PLC0415 - a program on trio need not load it

    me = asyncio.current_task()

    def somebody_is_ready() -> bool:
        # This is what anyio.wait_all_tasks_blocked does; asyncio has no other way to tell.
        waits_for = [getattr(t, "_fut_waiter", None) for t in asyncio.all_tasks() if t is not me]
        return any(future is None or future.done() for future in waits_for)

    yield somebody_is_ready


class _StepCounter:
    """A trio instrument, because a task cannot see which other tasks of its batch are ready."""

    def __init__(self) -> None:
        self.steps = 0

    def before_task_step(self, task: object) -> None:  # noqa: ARG002 - trio's signature
        self.steps += 1


@contextmanager
def _trio_watch() -> Generator[Callable[[], bool]]:
    lowlevel: Any = sys.modules["trio"].lowlevel
    counter = _StepCounter()

    def somebody_ran() -> bool:
        steps, counter.steps = counter.steps, 0
        return steps > 1  # one of them is this task's

    lowlevel.add_instrument(counter)
    try:
        yield somebody_ran
    finally:
        lowlevel.remove_instrument(counter)
