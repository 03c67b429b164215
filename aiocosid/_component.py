"""The life of everything that is opened and closed: generators and providers.

A component never enters a cancel scope in the task that opens it: a task group entered in
``__aenter__`` breaks in async-generator fixtures, on ``aclose()`` from another task and on closing
out of order.  It starts one root task that owns the group and waits to be told to end.  Only `run`
uses the caller's task.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

import anyio

from . import _fork
from ._clock import SYSTEM_CLOCK
from ._loop import is_dead, loop_finder, no_loop, running_loop, start_root_task
from .errors import (
    BusyError,
    ClosedError,
    CosIdError,
    ForkedError,
    NotOpenError,
    UnsupportedRuntimeError,
    WrongLoopError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from types import TracebackType

    from anyio.abc import TaskGroup, TaskStatus

    from .abc import Clock

__all__ = ("Component", "Root")

START_TIMEOUT = 10.0  # seconds; a root task needs one turn of the loop


class Root:
    """Owns the task group in which the tasks of one component, or of a whole provider, run.

    Attributes:
        loop: the event loop, as `running_loop` tells it.
        task: the root task, kept from the garbage collector; None in the user's own task.
        tenants: gives the components whose tasks run here.
    """

    __slots__ = ("__weakref__", "_close", "_ended", "_group", "loop", "task", "tenants")

    def __init__(self, tenants: Callable[[], Iterable[Component]]) -> None:
        self.loop = running_loop()
        self.tenants = tenants
        self._group: TaskGroup | None = None
        self._close = anyio.Event()
        self._ended = anyio.Event()
        self.task: object = None
        _fork.watch(self)

    async def start(self, name: str) -> None:
        """Start the root task; returns when tasks can be started in it."""
        ready = anyio.Event()

        async def main() -> None:
            await self.hold(ready.set)

        self.task = start_root_task(main, name)
        # One turn of the loop; shielded, so that a cancelled opener cannot leave half a root.
        with anyio.move_on_after(START_TIMEOUT, shield=True):
            await ready.wait()

    async def hold(
        self,
        on_ready: Callable[[], object],
        opening: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Own the group in the calling task until `aclose`; ``opening`` runs inside of it."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    if opening is not None:
                        await opening()
                    on_ready()
                    await self._close.wait()
                finally:
                    # At once: a flight, which is shielded, may keep the group from ending.
                    self._retire_tenants(ClosedError)
                # What still runs is timers, or a flight that was given up.
                group.cancel_scope.cancel()
        finally:
            self._group = None
            self._ended.set()

    @property
    def is_alive(self) -> bool:
        """Whether tasks can be started."""
        return self._group is not None

    def start_soon(
        self, func: Callable[..., Coroutine[Any, Any, None]], *args: object, name: str
    ) -> None:
        """Start a task in the group, if there is still one."""
        if self._group is not None:
            self._group.start_soon(func, *args, name=name)

    async def aclose(self, close_timeout: float) -> None:
        """End the group and wait for its end, at most ``close_timeout`` seconds; idempotent."""
        self._close.set()
        if self.task is not None:
            with anyio.move_on_after(close_timeout, shield=True):
                await self._ended.wait()

    def _forget(self) -> None:
        self._group = None
        self._retire_tenants(ForkedError)

    def _retire_tenants(self, reason: type[ClosedError | ForkedError]) -> None:
        for tenant in tuple(self.tenants()):
            if tenant._root is self:  # else opened anew since, in another root
                tenant._retire(reason(tenant._label()))


class Component:
    """Opened by ``async with`` or `run`, closed by `aclose` from anywhere.

    A subclass says what opening and closing mean: `_start`, `_retired`, `_drain`.
    """

    __slots__ = (
        "_born",
        "_clock",
        "_closing",
        "_find_loop",
        "_loop",
        "_owns_root",
        "_root",
        "_unusable",
    )

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        raise NotImplementedError

    def __init__(self, clock: Clock | None) -> None:
        self._clock: Clock = clock or SYSTEM_CLOCK
        self._root: Root | None = None
        self._owns_root = False
        self._closing = False
        self._loop: object = None
        self._find_loop: Callable[[], object | None] = no_loop
        self._born = _fork.generation
        self._unusable: CosIdError | None = NotOpenError(self._label())

    # What a subclass fills in.

    def _label(self) -> str:
        """Name the component for messages."""
        raise NotImplementedError

    async def _start(self) -> None:
        """Get ready for use; the root is there already."""
        raise NotImplementedError

    def _stop(self, reason: CosIdError) -> None:
        """Give up what is in hand and fail whoever waits.  Synchronous and quick."""
        raise NotImplementedError

    async def _drain(self) -> None:
        """Wait for what is under way, within the close timeout, and release what is owned."""
        raise NotImplementedError

    # The public life.

    async def __aenter__(self) -> Self:
        await self._open(None)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        """Open in the calling task's own group, and stay until closed or cancelled."""
        self._claim()
        root = self._root = Root(lambda: (self,))
        self._owns_root = True
        refused: list[CosIdError] = []

        async def opening() -> None:
            # Kept out of the group, which would wrap it in an ExceptionGroup.
            try:
                await self._start()
            except CosIdError as error:
                refused.append(error)
                root._close.set()

        def ready() -> None:
            if not refused:
                task_status.started(self)

        try:
            await root.hold(ready, opening)
        finally:
            if self._root is root:  # else closed already, and perhaps opened anew
                await self.aclose()
        if refused:
            raise refused[0]

    async def aclose(self) -> None:
        """Close; idempotent, from any task, in any order; bounded by the close timeout."""
        root = self._root
        if root is None or self._born != _fork.generation:
            return  # closed already, or the parent's: its sockets and tasks are not ours to end
        if is_dead(root.loop):
            self._root = None  # asyncio.run() has ended the tasks already
            return
        if running_loop() is not root.loop:
            raise WrongLoopError(self._label())
        self._retire(ClosedError(self._label()))
        self._root = None
        self._closing = True
        try:
            with anyio.move_on_after(self.close_timeout * 2, shield=True):
                await self._drain()
                if self._owns_root:
                    await root.aclose(self.close_timeout)
        finally:
            self._closing = False

    # For the rest of the package.

    async def _open(self, root: Root | None) -> None:
        """Open in the given root, or in one of its own."""
        self._claim()
        self._owns_root = root is None
        self._root = root or Root(lambda: (self,))
        try:
            if root is None:
                await self._root.start(f"aiocosid {self._label()}")
            await self._start()
        except BaseException:
            await self.aclose()
            raise

    def _claim(self) -> None:
        """Make sure that it may be opened here and now, and mark it as ours."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise UnsupportedRuntimeError("a free-threaded build; ids are taken under the GIL")
        forked = self._born != _fork.generation
        # A loop that died took its root task with it, and could not tell.
        in_use = self._unusable is None and self._root and not is_dead(self._root.loop)
        if (in_use or self._closing) and not forked:
            raise BusyError(self._label(), reason="is open already")
        self._find_loop = loop_finder()
        self._loop = self._find_loop()
        self._born = _fork.generation
        self._unusable = None

    def _retire(self, reason: CosIdError) -> None:
        """Make it unusable from this moment on, for the given reason; the first reason stays."""
        if self._unusable is None or isinstance(reason, ForkedError):
            self._unusable = reason
            self._stop(reason)

    def _check_usable(self) -> None:
        """Raise unless it is open, in the right process and on the right loop."""
        if self._unusable is not None:
            raise self._unusable.again()
        if self._find_loop() is not self._loop:
            raise WrongLoopError(self._label())
