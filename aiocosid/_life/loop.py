"""Which event loop is running, and how a task without a parent is started on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = (
    "call_in_a_task",
    "in_a_task",
    "is_dead",
    "is_stray_cancellation",
    "loop_finder",
    "no_loop",
    "running_loop",
    "start_root_task",
)


def loop_finder() -> Callable[[], object | None]:
    """Return what finds the loop running in a thread, for the kind of loop that runs in this one.

    What it returns is an identity to compare, or None; cheap enough for every segment boundary.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio._get_running_loop  # type: ignore[no-any-return]  # sys.modules gives Any
    if "trio" in sys.modules:
        return _trio_loop
    return no_loop


def no_loop() -> None:
    """Find nothing: for what is not open."""


def running_loop() -> object | None:
    """Return the loop that runs in this thread right now, or None."""
    return loop_finder()()


def _trio_loop() -> object | None:
    try:
        return sys.modules["trio"].lowlevel.current_trio_token()  # type: ignore[no-any-return]
    except RuntimeError:
        return None


def is_dead(loop: object) -> bool:
    """Tell whether a loop that was running once can never run again."""
    is_closed: Callable[[], bool] | None = getattr(loop, "is_closed", None)
    return is_closed is not None and is_closed()


def is_stray_cancellation(error: BaseException) -> bool:
    """Tell whether an error is a CancelledError although nobody cancelled the calling task.

    A driver's own task or future was cancelled then.  On trio there is no such thing.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
    return task is not None and task.cancelling() == 0


def in_a_task() -> bool:
    """Tell whether a task runs, and not a callback, or a signal handler while the loop is idle."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task() is not None
    try:
        sys.modules["trio"].lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def call_in_a_task(loop: Any, function: Callable[[], None]) -> None:  # noqa: ANN401 - of either kind
    """Have a function called in a task of the loop, soon; also an idle loop is woken for it."""
    if hasattr(loop, "run_sync_soon"):  # trio's; it calls in a task of its own
        loop.run_sync_soon(function)
        return

    async def main() -> None:
        function()

    # asyncio holds tasks weakly; this one is over with its first step, which is due already.
    loop.call_soon_threadsafe(start_root_task, main, "aiocosid start")


def start_root_task(main: Callable[[], Coroutine[Any, Any, None]], name: str) -> object:
    """Start ``main`` as a task of its own, outside of every cancel scope of the caller's.

    The result has to be kept for as long as the task runs: asyncio itself holds it weakly.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and (loop := asyncio._get_running_loop()) is not None:
        return loop.create_task(main(), name=name)
    trio = sys.modules["trio"]
    return trio.lowlevel.spawn_system_task(main, name=name)
