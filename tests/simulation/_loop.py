"""An event loop whose time passes only when nobody has anything left to do."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextvars import ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, TypeVarTuple, cast
from weakref import ref

from ._errors import NothingLeftError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

    from ._process import Entry, Process

__all__ = ("PROCESS", "SimulatedTask", "VirtualTimeLoop")

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

PROCESS: Final[ContextVar[Process | None]] = ContextVar("PROCESS", default=None)
"""Whose callback this is.  Tasks, timers and done callbacks inherit it with their context."""

MAX_TURNS: Final = 100_000
"""Turns without time passing; beyond it somebody spins."""


class SimulatedTask(asyncio.Task[Any]):
    """A task with a hash that is the same in every run: anyio keeps tasks in sets."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, order: int, **options: Any) -> None:
        self.order = order
        self.process = PROCESS.get() if (c := options.get("context")) is None else c.get(PROCESS)
        self._known = ref(self)  # weakly: a task that failed unseen tells when it is collected
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.order

    @property
    def has_begun(self) -> bool:
        """Whether its first step has run, if it is no asynchronous generator's last."""
        coro = self.get_coro()
        if not inspect.iscoroutine(coro):
            return False
        return inspect.getcoroutinestate(coro) != inspect.CORO_CREATED


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """An asyncio event loop in virtual time, without sockets, signals or threads.

    When nothing is ready, time jumps to the next timer; when there is no timer either, it raises
    `NothingLeftError`.  Timers of one moment run in the order in which they were set, or, with
    ``rng``, in one that it draws.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        """Begin at the time 0.

        Args:
            rng: draws the order of timers that are due at the same time; None for the order in
                which they were set.
        """
        super().__init__()
        self.failure: BaseException | None = None
        self.on_idle: Callable[[], object] = lambda: None
        self.on_advance: Callable[[float], object] = lambda _: None
        self._rng = rng
        self._now = 0.0
        self._turns = 0
        self._counter = count(1)
        self._queue: deque[Entry] = deque()
        self._timers: list[tuple[float, float, int, Entry]] = []
        self._tasks: list[ref[SimulatedTask]] = []

    # What asyncio asks of a loop.

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next turn."""
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append((handle, context.get(PROCESS)))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Do the same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time."""
        context = copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        tie = self._rng.random() if self._rng is not None else 0.0
        entry = (handle, context.get(PROCESS))
        heappush(self._timers, (when, tie, next(self._counter), entry))
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: object,
    ) -> asyncio.Task[_T]:
        """Start a task; it belongs to the process that its context names."""
        order = next(self._counter)
        # asyncio's own counter would go on from world to world.
        name = name or f"task {order}"
        task = SimulatedTask(cast("Any", coro), order=order, loop=self, name=name, context=context)
        self._tasks.append(task._known)
        return cast("asyncio.Task[_T]", task)

    def run_in_executor(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a thread has no virtual time."""
        raise NotImplementedError("a simulated world has no threads")

    def __del__(self) -> None:
        """Say nothing of a loop that was not closed: it holds nothing of the system."""

    # What the world asks.

    def tasks(self, process: Process | None = None) -> list[SimulatedTask]:
        """Return the tasks that have not ended, of one process or of all, oldest first."""
        # Not asyncio.all_tasks(), which looks at those of all worlds that are not collected yet.
        alive = [task for each in self._tasks if (task := each()) is not None and not task.done()]
        self._tasks = [task._known for task in alive]
        return alive if process is None else [task for task in alive if task.process is process]

    def timers(self, process: Process) -> list[asyncio.Handle]:
        """Return the timers that a process has set and that are still to come."""
        return [
            handle for *_, (handle, owner) in self._timers
            if owner is process and not handle.cancelled()
        ]  # fmt: skip

    def requeue(self, entries: list[Entry]) -> None:
        """Run what a process could not run while it was stopped."""
        self._queue.extend(entries)

    def run_ready(self, process: Process) -> None:
        """Run what is ready of one process and of nobody else, for a child that was forked off."""
        ready = [entry for entry in self._queue if entry[1] is process]
        self._queue.clear()
        for handle, _ in ready:
            if not handle.cancelled():
                handle._run()

    def _run_once(self) -> None:
        """Run everything that is ready; time passes first if nothing is."""
        queue = self._queue
        if not queue:
            self.on_idle()
        if not queue:
            self._advance()
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._turns = 0  # whoever catches it goes on with the loop
            raise NothingLeftError(self._now, self._waiting(), reason="somebody spins")
        for _ in range(len(queue)):
            entry = queue.popleft()
            handle, process = entry
            if handle.cancelled() or not (process is None or process.admits(entry)):
                continue
            handle._run()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _advance(self) -> None:
        timers = self._timers
        while timers and self._is_idle(timers[0][-1]):
            heappop(timers)
        if not timers:
            raise NothingLeftError(self._now, self._waiting())
        when = max(timers[0][0], self._now)
        self.on_advance(when)
        if when > self._now:
            self._now = when
            self._turns = 0
        while timers and timers[0][0] <= when:
            self._queue.append(heappop(timers)[-1])

    def _is_idle(self, entry: Entry) -> bool:
        """Tell whether nothing comes of a timer: it was cancelled, or its process is dead."""
        handle, process = entry
        if process is not None and process.is_dead:
            process.parked.append(entry)
            return True
        return handle.cancelled()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to count: cancelled timers are dropped when their time comes."""

    def _waiting(self) -> list[str]:
        return [
            f"{task.process or 'world'}: {task.get_name()}"
            for task in self.tasks()
            if task.process is None or not task.process.is_dead
        ]
