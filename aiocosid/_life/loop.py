"""The running event loop, and a component's root: tasks on it that belong to no caller."""

from __future__ import annotations

import os
import sys
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio

from ..errors import ClosedError, ForkedError, WrongLoopError
from . import fork

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable

    from anyio.abc import TaskGroup

__all__ = (
    "CheckedIds",
    "TaskRoot",
    "Tenant",
    "Wakeup",
    "asyncio_loop",
    "call_in_a_task",
    "in_a_task",
    "is_dead",
    "is_stray_cancellation",
    "loop_check",
    "loop_finder",
    "new_wakeup",
    "no_loop",
    "nothing",
    "running_loop",
    "start_root_task",
    "wake",
)

START_TIMEOUT = 10.0  # seconds; a root task needs one loop turn


def asyncio_loop() -> Any:  # noqa: ANN401 - a loop, as sys.modules gives it
    """Return the asyncio loop that runs in this thread, or None."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def loop_finder() -> Callable[[], object | None]:
    """Return a function that finds the running loop, for the kind of loop that runs in this thread.

    The function returns an identity to compare, or None; cheap enough for every segment boundary.
    """
    if asyncio_loop() is not None:
        finder: Callable[[], object | None] = sys.modules["asyncio"]._get_running_loop
        return finder
    if "trio" in sys.modules:
        return _trio_loop
    return no_loop


def no_loop() -> None:
    """Find no loop: for a component that is not open."""


def running_loop() -> object | None:
    """Return the loop that runs in this thread right now, or None."""
    return loop_finder()()


def _trio_loop() -> object | None:
    try:
        return sys.modules["trio"].lowlevel.current_trio_token()  # type: ignore[no-any-return]
    except RuntimeError:
        return None


def loop_check(loop: object, home: Any) -> Callable[[], None] | None:  # noqa: ANN401 - a `Home`
    """Return a check to call before each id, or None; it raises `WrongLoopError` off the loop.

    ``AIOCOSID_DEBUG`` or asyncio's debug mode turns it on.  Otherwise a wrong loop is found only at
    the end of a piece of ids.
    """
    from ..abc.variables import DEBUG, PREFIX, truth  # noqa: PLC0415 - needed to open alone

    switched_on = truth(os.environ.get(f"{PREFIX}{DEBUG}".upper(), ""))
    if not (switched_on or getattr(loop, "get_debug", bool)()):
        return None

    def check() -> None:
        if running_loop() is not loop:
            raise WrongLoopError(home.label) if home.ended is None else home.ended.again()

    return check


class CheckedIds:
    """An iterator over ids that calls a function before each of them."""

    __slots__ = ("_check", "_ids")

    def __init__(self, check: Callable[[], None], ids: Iterable[int]) -> None:
        self._check, self._ids = check, iter(ids)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        self._check()
        return next(self._ids)

    def __length_hint__(self) -> int:
        return length_hint(self._ids)


def is_dead(loop: object) -> bool:
    """Tell whether a loop that once ran can never run again."""
    is_closed: Callable[[], bool] | None = getattr(loop, "is_closed", None)
    return is_closed is not None and is_closed()


def is_stray_cancellation(error: BaseException) -> bool:
    """Tell whether an error is a CancelledError although the calling task was not cancelled.

    Then a driver's own task or future was cancelled.  On trio that cannot happen.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task() if asyncio_loop() is not None else None
    return task is not None and task.cancelling() == 0


def in_a_task() -> bool:
    """Tell whether a task runs, not a callback, nor a signal handler while the loop is idle."""
    if asyncio_loop() is not None:
        return sys.modules["asyncio"].current_task() is not None
    try:
        sys.modules["trio"].lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def call_in_a_task(loop: Any, function: Callable[[], None]) -> None:  # noqa: ANN401 - of either kind
    """Call a function in a task of the loop, soon; an idle loop is woken for it."""
    if hasattr(loop, "run_sync_soon"):  # trio's, which calls in a task of its own
        loop.run_sync_soon(function)
        return

    async def main() -> None:
        function()

    # asyncio holds tasks weakly; this one ends with its first step, which is already scheduled.
    loop.call_soon_threadsafe(start_root_task, main, "aiocosid start")


class Wakeup(Protocol):
    """What one task awaits, once: a future on asyncio, or its equivalent on trio."""

    def done(self) -> bool:
        """Tell whether no task needs to be woken."""
        ...

    def set_result(self, result: None, /) -> None:
        """Wake the task."""

    def get_loop(self) -> object:
        """Return the event loop."""
        ...

    def __await__(self) -> Generator[Any, Any, None]:
        """Suspend the task."""
        ...


class _TrioWakeup:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    def set_result(self, _result: None, /) -> None:
        self._event.set()

    def get_loop(self) -> None:
        """Return None, which is never dead, since trio ends its tasks before it ends."""

    def __await__(self) -> Generator[Any, Any, None]:
        return self._event.wait().__await__()


def new_wakeup() -> Wakeup:
    """Return an object that one task awaits until `wake`, at a fifth of the cost of an event."""
    if (loop := asyncio_loop()) is not None:
        return loop.create_future()  # type: ignore[no-any-return]
    return _TrioWakeup()


def wake(wakeup: Wakeup) -> None:
    """Wake the task that awaits it, or will; harmless twice, and on a dead loop."""
    if not wakeup.done():
        try:
            wakeup.set_result(None)
        except RuntimeError:
            if not is_dead(wakeup.get_loop()):
                raise


def nothing() -> None:
    """Do nothing."""


def start_root_task(
    main: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    *,
    unstarted: Callable[[], object] = nothing,
) -> object:
    """Start ``main`` as a task of its own, outside every cancel scope of the caller.

    Keep the result for as long as the task runs, because asyncio holds it weakly.

    Args:
        main: what the task does.
        name: the task's name.
        unstarted: does what ``main`` does at its end.  When asyncio ends a loop, it cancels all
            tasks, and one that has not begun never runs a line of ``main``.  It is also called
            after ``main`` has ended, so calling it twice must be harmless.
    """
    if (loop := asyncio_loop()) is not None:
        task = loop.create_task(main(), name=name)

        def done(_task: object) -> None:
            unstarted()

        task.add_done_callback(done)
        return task
    trio = sys.modules["trio"]
    return trio.lowlevel.spawn_system_task(main, name=name)


class Tenant(Protocol):
    """A component that has tasks in a root."""

    def _lose(self, root: TaskRoot, reason: type[ClosedError | ForkedError]) -> object:
        """End, if it is still in that root, which has ended for this reason."""


class TaskRoot:
    """Owns the task group in which the tasks of one component, or of a whole provider, run.

    Attributes:
        loop: the event loop, as `running_loop` returns it.
        task: the root task, kept here because asyncio holds it weakly; None in the user's own task.
        tenants: returns the components whose tasks run here.
        fail_fast: whether callers fail soon while the store is down, if a generator does not say.
    """

    __slots__ = (
        *("__weakref__", "_close", "_ended", "_group", "_late", "_unstarted"),
        *("fail_fast", "loop", "task", "tenants"),
    )

    def __init__(self, tenants: Callable[[], Iterable[Tenant]]) -> None:
        self.loop = running_loop()
        self.tenants = tenants
        self.fail_fast = False
        self._group: TaskGroup | None = None
        self._close = anyio.Event()
        self._ended = anyio.Event()
        self._late: list[Callable[[], object]] = []  # tasks that wait for a task to start them
        # Tasks that have not begun, each with what to call if it never begins.
        self._unstarted: dict[Coroutine[Any, Any, None], Callable[[], object]] = {}
        self.task: object = None
        fork.watch(self)

    async def start(self, name: str) -> None:
        """Start the root task; returns when tasks can be started in it."""
        ready = anyio.Event()
        self.launch(name, ready.set, ready.set)
        # It takes one loop turn; shielded, so that a cancelled opener cannot leave half a root.
        with anyio.move_on_after(START_TIMEOUT, shield=True):
            await ready.wait()

    def launch(
        self, name: str, on_ready: Callable[[], object], unstarted: Callable[[], object]
    ) -> None:
        """Start the root task, and do not wait.

        Args:
            name: the task's name.
            on_ready: called in the task, when tasks can be started in it.
            unstarted: called if the event loop ends before that, and perhaps later as well.
        """

        def never_ran() -> None:
            self._ended.set()
            unstarted()

        self.task = start_root_task(partial(self.hold, on_ready), name, unstarted=never_ran)

    async def hold(
        self,
        on_ready: Callable[[], object],
        opening: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Own the group in the calling task until `aclose`; ``opening`` runs inside it."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    if opening is not None:
                        await opening()
                    on_ready()
                    await self._close.wait()
                finally:
                    # Done at once, because a shielded fetch may keep the group from ending.
                    self._retire_tenants(ClosedError)
                    self._start_late()  # callers that close wait for these tasks to end
                    self._group = None
                # Only timers still run, or a fetch that was abandoned.
                group.cancel_scope.cancel()
        finally:
            self._group = None
            for task, unstarted in self._unstarted.items():  # the loop was ended before they began
                task.close()
                unstarted()
            self._ended.set()

    @property
    def is_alive(self) -> bool:
        """Whether tasks can be started."""
        return self._group is not None

    def start_soon(
        self,
        func: Callable[..., Coroutine[Any, Any, None]],
        *args: object,
        name: str,
        unstarted: Callable[[], object] = nothing,
    ) -> None:
        """Start a task in the group, if there still is one.

        Only a task can start another one in a group.  In a callback of the loop, or in a signal
        handler while the loop is idle, there is none, so one is created for that.

        Args:
            func: what the task does.
            args: its arguments.
            name: the task's name.
            unstarted: called instead if the event loop ends before the task has begun.
        """
        if self._group is None:
            return
        start = partial(self._start_task, self._group, partial(func, *args), name, unstarted)
        if in_a_task():
            start()
        else:
            self._late.append(start)
            call_in_a_task(self.loop, self._start_late)

    def _start_task(
        self,
        group: TaskGroup,
        main: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        unstarted: Callable[[], object],
    ) -> None:
        async def run() -> None:
            self._unstarted.pop(task, None)
            await main()

        task = run()
        self._unstarted[task] = unstarted
        group.start_soon(lambda: task, name=name)

    def _start_late(self) -> None:
        while self._late:
            self._late.pop(0)()

    def end(self) -> None:
        """Make the group end soon."""
        self._close.set()

    async def aclose(self, close_timeout: float) -> None:
        """End the group and wait for its end, at most ``close_timeout`` seconds; idempotent."""
        self.end()
        if self.task is not None:
            with anyio.move_on_after(close_timeout, shield=True):
                await self._ended.wait()

    def _forget(self) -> None:
        self._group = None
        self._late = []
        self._retire_tenants(ForkedError)

    def _retire_tenants(self, reason: type[ClosedError | ForkedError]) -> None:
        for tenant in tuple(self.tenants()):
            tenant._lose(self, reason)
