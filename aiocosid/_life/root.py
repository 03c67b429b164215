"""The task group in which a component's tasks run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from ..errors import ClosedError, ForkedError
from . import fork
from .loop import call_in_a_task, in_a_task, running_loop, start_root_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from anyio.abc import TaskGroup

    from .component import Component

__all__ = ("Root",)

START_TIMEOUT = 10.0  # seconds; a root task needs one turn of the loop


class Root:
    """Owns the task group in which the tasks of one component, or of a whole provider, run.

    Attributes:
        loop: the event loop, as `running_loop` tells it.
        task: the root task, kept from the garbage collector; None in the user's own task.
        tenants: gives the components whose tasks run here.
    """

    __slots__ = ("__weakref__", "_close", "_ended", "_group", "_late", "loop", "task", "tenants")

    def __init__(self, tenants: Callable[[], Iterable[Component]]) -> None:
        self.loop = running_loop()
        self.tenants = tenants
        self._group: TaskGroup | None = None
        self._close = anyio.Event()
        self._ended = anyio.Event()
        self._late: list[Callable[[], object]] = []  # starts that wait for a task to do them
        self.task: object = None
        fork.watch(self)

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
                    self._start_late()  # who waits to close waits for their ends
                    self._group = None
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
        """Start a task in the group, if there is still one.

        A group needs a task that starts one.  There is none in a callback of the loop, nor in a
        signal handler while the loop is idle: one is made then.
        """
        if self._group is None:
            return
        start: Callable[[], object] = partial(self._group.start_soon, func, *args, name=name)
        if in_a_task():
            start()
        else:
            self._late.append(start)
            call_in_a_task(self.loop, self._start_late)

    def _start_late(self) -> None:
        while self._late:
            self._late.pop(0)()

    async def aclose(self, close_timeout: float) -> None:
        """End the group and wait for its end, at most ``close_timeout`` seconds; idempotent."""
        self._close.set()
        if self.task is not None:
            with anyio.move_on_after(close_timeout, shield=True):
                await self._ended.wait()

    def _forget(self) -> None:
        self._group = None
        self._late = []
        self._retire_tenants(ForkedError)

    def _retire_tenants(self, reason: type[ClosedError | ForkedError]) -> None:
        for tenant in tuple(self.tenants()):
            if tenant._root is self:  # else opened anew since, in another root
                tenant._retire(reason(tenant._label()))
