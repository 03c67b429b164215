"""Which event loop is running, and the tasks on it that belong to no caller: a component's root."""

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

START_TIMEOUT = 10.0  # seconds; a root task needs one turn of the loop


def asyncio_loop() -> Any:  # noqa: ANN401 - a loop, as sys.modules gives it
    """Return the loop of asyncio's that runs in this thread, or None."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def loop_finder() -> Callable[[], object | None]:
    """Return what finds the loop running in a thread, for the kind of loop that runs in this one.

    What it returns is an identity to compare, or None; cheap enough for every segment boundary.
    """
    if asyncio_loop() is not None:
        finder: Callable[[], object | None] = sys.modules["asyncio"]._get_running_loop
        return finder
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


def loop_check(loop: object, home: Any) -> Callable[[], None] | None:  # noqa: ANN401 - a `Home`
    """Return what raises `WrongLoopError` off a loop, for each id; None unless that is switched on.

    ``AIOCOSID_DEBUG`` does, and asyncio's debug mode.  Otherwise a boundary finds out.
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
    task = asyncio.current_task() if asyncio_loop() is not None else None
    return task is not None and task.cancelling() == 0


def in_a_task() -> bool:
    """Tell whether a task runs, and not a callback, or a signal handler while the loop is idle."""
    if asyncio_loop() is not None:
        return sys.modules["asyncio"].current_task() is not None
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


class Wakeup(Protocol):
    """What one task awaits, once: a future of asyncio's, or what does its part on trio."""

    def done(self) -> bool:
        """Tell whether there is nobody to wake any more."""
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
        """Return None, which is never dead: trio ends its tasks before it ends."""

    def __await__(self) -> Generator[Any, Any, None]:
        return self._event.wait().__await__()


def new_wakeup() -> Wakeup:
    """Return what one task awaits until `wake`: an event at a fifth of the cost."""
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
    """Start ``main`` as a task of its own, outside of every cancel scope of the caller's.

    The result has to be kept for as long as the task runs: asyncio itself holds it weakly.

    Args:
        main: what the task does.
        name: the task's name.
        unstarted: does what ``main`` does at its end.  asyncio cancels all tasks of a loop that is
            ended, and one that has not begun then never runs a line of ``main``.  Also called after
            ``main`` has ended: it must be harmless twice.
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
    """What has tasks in a root."""

    def _lose(self, root: TaskRoot, reason: type[ClosedError | ForkedError]) -> object:
        """End, if it still is in that root, which is gone for this reason."""


class TaskRoot:
    """Owns the task group in which the tasks of one component, or of a whole provider, run.

    Attributes:
        loop: the event loop, as `running_loop` tells it.
        task: the root task, kept from the garbage collector; None in the user's own task.
        tenants: gives the components whose tasks run here.
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
        self._late: list[Callable[[], object]] = []  # starts that wait for a task to do them
        # Tasks that have not begun, each with what is to be done instead if it never does.
        self._unstarted: dict[Coroutine[Any, Any, None], Callable[[], object]] = {}
        self.task: object = None
        fork.watch(self)

    async def start(self, name: str) -> None:
        """Start the root task; returns when tasks can be started in it."""
        ready = anyio.Event()
        self.launch(name, ready.set, ready.set)
        # One turn of the loop; shielded, so that a cancelled opener cannot leave half a root.
        with anyio.move_on_after(START_TIMEOUT, shield=True):
            await ready.wait()

    def launch(
        self, name: str, on_ready: Callable[[], object], unstarted: Callable[[], object]
    ) -> None:
        """Start the root task, and do not wait.

        Args:
            name: the task's name.
            on_ready: called in the task, when tasks can be started in it.
            unstarted: called if the event loop is ended before, and perhaps later as well.
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
                    # At once: a fetch, which is shielded, may keep the group from ending.
                    self._retire_tenants(ClosedError)
                    self._start_late()  # who waits to close waits for their ends
                    self._group = None
                # What still runs is timers, or a fetch that was given up.
                group.cancel_scope.cancel()
        finally:
            self._group = None
            for task, unstarted in self._unstarted.items():  # the loop was ended
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
        """Start a task in the group, if there is still one.

        A group needs a task that starts one.  There is none in a callback of the loop, nor in a
        signal handler while the loop is idle: one is made then.

        Args:
            func: what the task does.
            args: its arguments.
            name: the task's name.
            unstarted: called instead if the event loop is ended before the task has begun.
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
        """Have the group end, soon."""
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
