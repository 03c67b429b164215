"""Tasks that run alongside the requests, and end with the service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ("Tasks",)


class Tasks:
    """Tasks of one service: no request waits for them, and none outlives it."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start a task, and return it."""
        task = asyncio.get_running_loop().create_task(work())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def aclose(self) -> None:
        """Cancel the running tasks, and wait until they have ended."""
        running = [*self._running]
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)
