"""The life of everything that is opened and closed: generators and providers.

A component never enters a cancel scope in the task that opens it: a task group entered in
``__aenter__`` breaks in async-generator fixtures, on ``aclose()`` from another task and on closing
out of order.  Instead it starts one root task, which owns the group and waits to be told to end.
Only `run` uses the caller's task.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

import anyio

from ..abc.checks import check_loop
from ..errors import (
    BusyError,
    ClosedError,
    CosIdError,
    ForkedError,
    NotOpenError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from . import fork
from .clock import SYSTEM_CLOCK
from .fork import refuse_copy
from .loop import (
    TaskRoot,
    is_dead,
    loop_check,
    loop_finder,
    no_loop,
    running_loop,
    start_root_task,
)
from .open_state import Home

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType

    from anyio.abc import TaskStatus

    from ..abc import Clock

__all__ = (
    "NO_GIL",
    "RESOLUTION",
    "WITH_GIL",
    "Component",
    "drain",
    "drain_all",
    "has_to_drain",
    "label_of",
    "leave_root",
    "open_in",
    "release",
    "retire",
    "root_of",
    "why_unusable",
)

RELEASE_TIMEOUT = 3.0  # seconds to close connections; our own stores need at most 2
END_TIMEOUT = 1.0  # seconds for a root task to end, once there is nothing to wait for
RESOLUTION = 0.001
"""Seconds.  Timers may be as coarse as this (uvloop's are); a task that waits for less may be woken
again and again before the clock has moved."""


NO_GIL = (
    "this free-threaded Python: without the GIL, threads that share an iterator may get one value "
    "twice (cpython issue 120496)"
)
WITH_GIL = "use the build with the GIL, or PYTHON_GIL=1"


CONDITIONS: dict[type[CosIdError], str] = {NotOpenError: "not open", ClosedError: "closed"}
"""The usual conditions of a component that is not open, by its error."""


class _Closing:
    """A closing under way, for all callers that wait for its end.

    Attributes:
        root: the root in which the component was open.
        ended: set at the end, whatever the outcome.
        error: what went wrong.
        task: the task that closes; kept here because asyncio holds it weakly.
    """

    __slots__ = ("ended", "error", "root", "task")

    def __init__(self, root: TaskRoot) -> None:
        self.root = root
        self.ended = anyio.Event()
        self.error: Exception | None = None
        self.task: object = None


class Component:
    """Opened by ``async with`` or `run`, closed by `aclose` from any task.

    A subclass defines what opening and closing mean, with `_reset` and `_start`, `_stop`, `_drain`
    and `_release`.
    """

    __slots__ = (
        "_before",
        "_clock",
        "_closing",
        "_find_loop",
        "_fork_generation",
        "_home",
        "_loop",
        "_opening",
        "_owns_root",
        "_root",
    )

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Refuse to be copied or pickled."""
        refuse_copy(self)

    def __init__(self, clock: Clock | None) -> None:
        self._clock: Clock = clock or SYSTEM_CLOCK
        self._root: TaskRoot | None = None
        self._owns_root = False
        self._closing: _Closing | None = None
        self._loop: object = None
        self._find_loop: Callable[[], object | None] = no_loop
        self._fork_generation = fork.generation
        self._before: Callable[[], Awaitable[None]] | None = None  # runs before each opening
        self._opening: Any = None  # the state of one opening, if it has an object of its own
        self._home = Home(self._clock, self._label(), None, NotOpenError(self._label()))

    def __repr__(self) -> str:
        """Show the name, and whether it is open."""
        return f"<{self._label()} {self._condition}>"

    @property
    def _condition(self) -> str:
        """Its state for `repr`: open, or why not; for a failure the name of the error."""
        why = self._unusable
        return "open" if why is None else CONDITIONS.get(type(why), type(why).__name__)

    # What subclasses implement.

    def _label(self) -> str:
        """Return the component's name for messages."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Reset the state of earlier openings.  It is usable from here on, even before `_start`."""
        raise NotImplementedError

    async def _start(self) -> None:
        """Prepare for use; the root already exists."""
        await self._opening.start()

    def _stop(self, reason: CosIdError) -> None:
        """Discard buffered ids and fail waiting callers.  Synchronous and quick."""
        self._opening.stop(reason)

    async def _drain(self) -> None:
        """Wait for calls under way, as long as the close timeout; then cancel them."""
        await self._opening.drain()

    @property
    def _has_to_drain(self) -> bool:
        """Whether closing must wait for calls under way."""
        return True

    async def _release(self) -> None:
        """Close the connections that it owns."""
        raise NotImplementedError

    # Public methods.

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

    async def run(self, *, task_status: TaskStatus[object] = anyio.TASK_STATUS_IGNORED) -> None:
        """Open in the calling task's own group, and stay until closed or cancelled."""
        await self._end_earlier_life()
        root = TaskRoot(lambda: (self,))
        self._claim(root)
        self._owns_root = True
        refused: list[CosIdError] = []

        async def opening() -> None:
            # Kept out of the group, which would wrap the error in an ExceptionGroup.
            try:
                await self._begin()
            except CosIdError as error:
                refused.append(error)
                root.end()

        def ready() -> None:
            if not refused:
                task_status.started(self)

        try:
            await root.hold(ready, opening)
        finally:
            if self._root is root:  # otherwise it is already closed, and perhaps reopened
                await self.aclose()
        if refused:
            raise refused[0]

    async def aclose(self) -> None:
        """Close; idempotent, from any task, in any order and in a cancelled scope.

        Each caller waits for the end, also a second one.  Calls under way have the close timeout,
        twice that if they ignore cancellation, and connections have a few seconds.
        """
        closing, root = self._closing, self._held_in
        if root is None or self._fork_generation != fork.generation:
            return  # already closed, or the parent's, whose sockets and tasks must stay
        if is_dead(root.loop):
            self._root = self._closing = None  # asyncio.run() has already ended the tasks
            return
        if running_loop() is not root.loop:
            check_loop(self._label())
            raise WrongLoopError(self._label())
        if closing is None:
            closing = self._closing = _Closing(root)
            self._root = None
            self._retire(ClosedError(self._label()))
            # It runs in a task of its own, so that cancelling the caller does not interrupt it.
            name = f"aiocosid close {self._label()}"
            closing.task = start_root_task(
                partial(self._end, closing), name, unstarted=closing.ended.set
            )
        limit = self.close_timeout * 2 + RELEASE_TIMEOUT + END_TIMEOUT * 2
        with anyio.move_on_after(limit, shield=True):
            await closing.ended.wait()
        if closing.error is not None:
            raise closing.error

    async def _end(self, closing: _Closing) -> None:
        """Do each step of closing within its time, even if the step before has failed."""
        try:
            try:
                with anyio.move_on_after(self.close_timeout * 2, shield=True):
                    await self._drain()
            finally:
                try:
                    with anyio.move_on_after(RELEASE_TIMEOUT, shield=True):
                        await self._release()
                finally:
                    if self._owns_root:
                        await closing.root.aclose(END_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - raised to all callers that close
            closing.error = error
        finally:
            if self._closing is closing:  # not if its loop died and it was opened on another
                self._closing = None
            closing.ended.set()

    @property
    def _held_in(self) -> TaskRoot | None:
        """The root in which it is open, or is being closed."""
        return self._root if self._closing is None else self._closing.root

    async def _begin(self) -> None:
        if self._before is not None:
            await self._before()
        await self._start()

    # For the rest of the package.

    async def _open(self, root: TaskRoot | None) -> None:
        """Open in the given root, or in one of its own."""
        await self._end_earlier_life()
        mine = root or TaskRoot(lambda: (self,))
        self._claim(mine)
        self._owns_root = root is None
        try:
            if root is None:
                await mine.start(f"aiocosid {self._label()}")
            await self._begin()
        except BaseException:
            # Otherwise another task closes it, and need not be waited for, or has reopened it.
            if self._closing is None and self._root is mine:
                await self.aclose()
            raise

    async def _end_earlier_life(self) -> None:
        """Close what has ended by itself, for example after a roll-back: its root still exists."""
        root = self._root
        if self._unusable is not None and root is not None and root.loop is running_loop():
            await self.aclose()

    def _claim(self, root: TaskRoot | None = None) -> None:
        """Check that it may be opened here and now, and take it over, with its root."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise UnsupportedRuntimeError(NO_GIL, remedy=WITH_GIL)
        check_loop(self._label())
        forked = self._fork_generation != fork.generation
        held = self._root if self._unusable is None else None
        if self._closing is not None:
            held = self._closing.root
        # If the loop died, its root task died with it and could not report that.
        if held is not None and not is_dead(held.loop) and not forked:
            reason = "is being closed" if self._closing is not None else "is open already"
            remedy = "open it once, and close it before you open it again"
            raise BusyError(self._label(), reason=reason, remedy=remedy)
        self._find_loop = loop_finder()
        self._loop = self._find_loop()
        self._fork_generation = fork.generation
        self._closing = None
        self._root = root
        # A new home has no sleeps: those of the old one are the parent's, or of a dead loop.
        self._home = Home(self._clock, self._label(), root, self._unusable)
        self._home.loop_check = loop_check(self._loop, self._home)
        self._reset()
        self._home.ended = None

    @property
    def _unusable(self) -> CosIdError | None:
        """Why it cannot be used; None while it can.  An opening may have set it, too."""
        return self._home.ended

    def _retire(self, reason: CosIdError) -> None:
        """Make it unusable from now on, for the given reason; the first reason stays."""
        if self._unusable is None or isinstance(reason, ForkedError):
            self._home.ended = reason
            self._stop(reason)

    def _lose(self, root: TaskRoot, reason: type[ClosedError | ForkedError]) -> None:
        """Make it unusable if it is still open in a root that has ended."""
        if self._root is root:
            self._retire(reason(self._label()))

    async def _sleep(self, seconds: float) -> None:
        """Sleep that long, until woken, or until it is closed."""
        if self._unusable is None:
            await self._home.sleep_for(seconds)

    def _wake(self) -> None:
        """End all sleeps."""
        self._home.wake()

    def _check_usable(self) -> None:
        """Raise unless it is open, in the right process and on the right loop."""
        unusable = self._home.ended
        if unusable is not None:
            raise unusable.again()
        if self._find_loop() is not self._loop:
            check_loop(self._label())
            raise WrongLoopError(self._label())


# What a host does with the components that it opens and closes; users do not call these.


async def open_in(component: Component, root: TaskRoot | None) -> None:
    """Open a component in a root, or in one of its own."""
    await component._open(root)


def root_of(component: Component) -> TaskRoot | None:
    """Return the root in which a component's tasks run; None if it is not open."""
    return component._root


def leave_root(component: Component) -> None:
    """Take a component out of its root; from here on only its host closes it."""
    component._root = None


def why_unusable(component: Component) -> CosIdError | None:
    """Return why a component cannot be used; None while it is open."""
    return component._unusable


def label_of(component: Component) -> str:
    """Return a component's name for messages."""
    return component._label()


def retire(component: Component, reason: CosIdError) -> None:
    """Make a component unusable from now on, for the given reason."""
    component._retire(reason)


def has_to_drain(component: Component) -> bool:
    """Tell whether closing a component must wait for calls under way."""
    return component._has_to_drain


async def drain(component: Component) -> None:
    """Wait for what is under way in a component, as long as its close timeout."""
    await component._drain()


async def drain_all(components: Iterable[Component]) -> None:
    """Wait for what is under way in all of them at once; raise the first of their errors."""
    errors: list[Exception] = []

    async def drained(component: Component) -> None:
        try:
            await drain(component)
        except Exception as error:  # noqa: BLE001 - raised when all are drained
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for each in components:
            if has_to_drain(each):  # a task for each would be too many when most are idle
                tasks.start_soon(drained, each)
    if errors:
        raise errors[0]


async def release(component: Component) -> None:
    """Close the connections that a component owns."""
    await component._release()
