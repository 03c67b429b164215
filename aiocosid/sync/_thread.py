"""The background loop: one for the whole process, which runs as long as a session uses it."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import Context
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from .._life import fork
from .._life.component import NO_GIL, WITH_GIL
from ..errors import UnsupportedRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

__all__ = ("LoopThread", "shared_thread")

R = TypeVar("R")

# Otherwise this is imported at the first use.  On the background loop that could happen during a
# fork, and the child would then wait for an import in a thread that it does not have.
import_module("anyio._backends._asyncio")
for _module in ("abc.variables", "machine._lease", "segment._statistics", "snowflake._statistics"):
    import_module(f"aiocosid.{_module}")


class LoopThread:
    """An event loop in a daemon thread, which ends with its last user.

    When Python exits, it first waits for all threads except daemons, then runs the functions of
    `atexit`.  So a program's other threads may use ids until they end, and the loop is closed after
    them.

    Attributes:
        users: how many sessions use it.
    """

    __slots__ = ("_ended", "_loop", "_stop", "_thread", "users")

    def __init__(self) -> None:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise UnsupportedRuntimeError(NO_GIL, remedy=WITH_GIL)
        self.users = 0
        self._ended = False
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        try:
            self._thread = threading.Thread(target=self._run, name="aiocosid sync", daemon=True)
            self._thread.start()
        except RuntimeError as error:
            self._loop.close()
            reason = f"no thread for an event loop: {error}"
            raise UnsupportedRuntimeError(reason, remedy="allow more threads") from error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                try:
                    runner.run(self._wait())
                finally:
                    self._ended = True
        finally:
            self._ended = True

    async def _wait(self) -> None:
        await self._stop.wait()

    @property
    def is_alive(self) -> bool:
        """Whether work can still be submitted to it."""
        return self._thread.is_alive() and not self._ended

    def submit(self, func: Callable[[], Coroutine[Any, Any, R]]) -> Future[R] | None:
        """Start a coroutine on the loop; None if the loop has just died."""
        work = func()
        try:
            # The work has its own context, because what continues here is not part of the caller's
            # request.
            return Context().run(asyncio.run_coroutine_threadsafe, work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            return None

    def stop(self) -> None:
        """End the loop and cancel what still runs there; never waits."""
        self._ended = True
        try:
            self._loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:  # the loop is closed
            return

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, at most ``timeout`` seconds."""
        self._thread.join(timeout)


class _Shared:
    __slots__ = ("__weakref__", "thread")

    def __init__(self) -> None:
        self.thread: LoopThread | None = None
        fork.watch(self)

    def _forget(self) -> None:
        # No part of it may be destroyed in the child, because that would affect the parent's loop.
        if self.thread is not None:
            fork.abandoned.append(self.thread)
        self.thread = None


_shared = _Shared()


def shared_thread() -> LoopThread:
    """Return the process's loop thread, and start it if there is none; part of a step."""
    if _shared.thread is None or not _shared.thread.is_alive:
        _shared.thread = LoopThread()
    return _shared.thread
