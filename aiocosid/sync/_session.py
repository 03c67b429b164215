"""Keeps a generator or provider open on the background loop, in one task."""

from __future__ import annotations

import asyncio
import atexit
import logging
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

from .._life import fork
from .._life.clock import SYSTEM_CLOCK
from .._life.fork import NotCopyable
from .._life.loop import running_loop
from ..abc.checks import check_loop
from ..errors import ClosedError, CosIdError, SegmentUnavailableError, WouldBlock
from ._steps import locked_step
from ._thread import LoopThread, shared_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

__all__ = ("LoopSession", "allow_waiting", "may_wait", "refuse_on_a_loop")

logger = logging.getLogger("aiocosid")

T = TypeVar("T")
R = TypeVar("R")

EXIT_TIMEOUT: Final = 5.0  # seconds for which the end of the process may be delayed
JOIN_TIMEOUT: Final = 1.0  # seconds for a loop to end once nothing is open on it

NOTEBOOK: Final = "in a notebook, call aiocosid.sync.allow_waiting() once"

_sessions: Final[set[LoopSession[Any]]] = set()  # sessions that have a thread
_patient: Final[WeakSet[object]] = WeakSet()  # event loops that calls may block


class _Holder(Protocol):
    def _drop(self) -> None:
        """Drop the buffered ids; part of a step."""


def allow_waiting() -> None:
    """Let calls wait although the event loop of this thread runs, for notebooks.

    Call it once, in the notebook.  The cells run on the kernel's loop, and a call without ``await``
    blocks that loop until it returns, for example ``time.sleep``, or an id that must be fetched.
    From then on, calls in coroutines and callbacks on this loop block it too, so use the
    asynchronous generator there.  Without a running loop, for example in a script, it does nothing.
    """
    loop = running_loop()
    if loop is not None:
        _patient.add(loop)


def may_wait() -> bool:
    """Return whether the calling thread may wait: it runs no loop, or one that may be blocked."""
    loop = running_loop()
    return loop is None or loop in _patient


def refuse_on_a_loop(what: str, instead: str) -> None:
    """Raise WouldBlock if the calling thread runs an event loop, which must not be blocked.

    An integration may refuse the loop with its own error.
    """
    if not may_wait():
        check_loop("aiocosid.sync")
        error = WouldBlock()
        sentence = f"{what} would block the event loop that runs in this thread"
        error.args = (f"{sentence}; {instead}, or call it in another thread; {NOTEBOOK}",)
        raise error


class _Life(Generic[T]):
    """One opening of a session on one loop, where all of its code runs."""

    __slots__ = ("_ending", "_error", "_make", "_opened", "_task", "_value", "is_over")

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._make = make
        self._opened = asyncio.Event()
        self._ending = asyncio.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None
        self.is_over = False

    async def live(self) -> None:
        """Open, stay open and close in one task, as task groups and cancel scopes require."""
        try:
            async with self._make() as value:
                self._value = value
                self._opened.set()
                await self._ending.wait()
        except BaseException as error:
            self._error = self._error or error
            if self._opened.is_set() or not isinstance(error, Exception):
                raise
        finally:
            self.is_over = True
            self._opened.set()

    async def do(self, work: Callable[[T], Awaitable[R]]) -> R:
        """Open it unless another task does so, wait until it is open, and do the work."""
        if self._task is None:
            self._task = asyncio.create_task(self.live())
        await self._opened.wait()
        if self._error is not None:
            error = self._error
            raise error.again() if isinstance(error, CosIdError) else error
        return await work(self._value)  # type: ignore[arg-type]  # it is open

    async def end(self, label: str) -> None:
        """Close it, or stop opening it; raise any error of closing."""
        task = self._task
        self._ending.set()
        if task is None or task.done():
            return
        if not self._opened.is_set():
            self._error = ClosedError(label)
            task.cancel()
        await asyncio.wait([task])
        self._opened.set()  # a task that never started has not set it
        if not task.cancelled():
            task.result()


class LoopSession(NotCopyable, Generic[T]):
    """Opens a context manager on the background loop at the first use, and keeps it open.

    `close` closes it.  In a forked child the first use opens it again.

    Attributes:
        timeout: maximum seconds of each wait.
        holders: the generators with buffered ids, which closing drops.
        make: returns the context manager.
    """

    __slots__ = (
        "__weakref__",
        "_closing",
        "_is_closed",
        "_life",
        "_thread",
        "holders",
        "label",
        "make",
        "timeout",
    )

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[T]],
        *,
        label: str,
        timeout: float,
    ) -> None:
        self.make = make
        self._life: _Life[T] | None = None
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._closing: Future[None] | None = None
        self.holders: WeakSet[_Holder] = WeakSet()
        self.label = label
        self.timeout = timeout
        fork.watch(self)

    def _forget(self) -> None:
        if self._life is not None:
            fork.abandoned.append(self._life)
        self._life = self._thread = self._closing = None
        _sessions.discard(self)

    @property
    def is_alive(self) -> bool:
        """Whether submitted work may still be done."""
        return self._thread is not None and self._thread.is_alive

    @property
    def condition(self) -> str:
        """Whether it is open, for a repr; it opens at its first use."""
        return "closed" if self._is_closed else "not open" if self._life is None else "open"

    def check_open(self) -> None:
        """Raise `ClosedError` if the session was closed."""
        if self._is_closed:
            raise ClosedError(self.label)

    # Parts of a step.

    def submit(self, work: Callable[[T], Awaitable[R]]) -> Future[R]:
        """Start the work on the loop, on the open object; never waits.

        Raises:
            ClosedError: the session was closed.
            UnsupportedRuntimeError: no loop can be started.
            SegmentUnavailableError: the loop has just died; the next call starts another one.
        """
        self.check_open()
        thread = self._thread
        if thread is None or not thread.is_alive:
            thread = shared_thread()
            thread.users += 1  # first: an interruption must not end a loop that others use
            self._life = None
            _sessions.add(self)
            self._thread = thread
        life = self._life
        if life is None or life.is_over:
            life = self._life = _Life(self.make)
        future = thread.submit(lambda: life.do(work))
        if future is None:
            raise self.lost()
        return future

    def leave(self) -> tuple[Future[None] | None, LoopThread | None]:
        """Start to close; return the future to wait for, and the thread that was used."""
        life, thread = self._life, self._thread
        self._is_closed = True
        for holder in tuple(self.holders):
            holder._drop()
        if life is not None and thread is not None:
            self._closing = thread.submit(lambda: life.end(self.label))
        _sessions.discard(self)
        self._life = self._thread = (
            None  # last, so that after an interruption it can be closed again
        )
        return self._closing, thread

    def lost(self) -> SegmentUnavailableError:
        """Return the error of a call whose loop has died."""
        remedy = "try again, which starts another one"
        return SegmentUnavailableError(
            self.label, waited=0, reason="its event loop has ended", remedy=remedy
        )

    # Methods for threads.

    @locked_step
    def start(self, work: Callable[[T], Awaitable[R]]) -> Future[R]:
        """Call `submit` as a step of its own."""
        return self.submit(work)

    @locked_step
    def allow(self) -> None:
        """Allow it to be opened again after it was closed."""
        if self._is_closed:
            _, thread = self.leave()  # finishes an interrupted `close`
            if thread is not None:
                thread.users -= 1
        self._is_closed = False
        self._closing = None

    def call(self, work: Callable[[T], Awaitable[R]]) -> R:
        """Start the work on the loop, and wait for it up to the timeout."""
        deadline = SYSTEM_CLOCK.monotonic() + self.timeout
        return self.outcome(self.start(work), deadline)

    def outcome(self, future: Future[R], deadline: float) -> R:
        """Wait for submitted work, until a moment of the monotonic clock.

        Raises:
            SegmentUnavailableError: the deadline has passed, or the loop has died.
            ClosedError: the session was closed meanwhile.
        """
        left = deadline - SYSTEM_CLOCK.monotonic()
        try:
            error = future.exception(max(0.0, left))
        except TimeoutError:
            raise SegmentUnavailableError(
                self.label,
                waited=self.timeout,
                reason="that is the timeout of the waiting thread",
                remedy="try again, or allow a longer timeout",
            ) from None
        except CancelledError:
            raise ClosedError(self.label) if self._is_closed else self.lost() from None
        if isinstance(error, CosIdError):
            raise error.again()  # several threads may wait for the same future
        if error is not None and not isinstance(error, Exception):
            raise self.lost() from error  # it ended the loop, and is not meant for this thread
        return future.result()

    def close(self) -> None:
        """Close the session, and wait for that up to the timeout; idempotent."""
        refuse_on_a_loop(f"close() of {self.label}", "close the asynchronous object itself")
        deadline = SYSTEM_CLOCK.monotonic() + self.timeout
        future, thread = locked_step(self.leave)()
        try:
            if future is not None:
                self._await_end(future, deadline)
        finally:
            if thread is not None and _release_thread(thread):
                thread.join(JOIN_TIMEOUT)

    def _await_end(self, future: Future[None], deadline: float) -> None:
        try:
            self.outcome(future, deadline)
        except SegmentUnavailableError:
            logger.warning("%s did not close within %g s", self.label, self.timeout)
        except ClosedError:
            return  # the loop and everything on it died


@locked_step
def _release_thread(thread: LoopThread) -> bool:
    thread.users -= 1
    if thread.users == 0:
        thread.stop()
    return thread.users == 0


@atexit.register
def _close_all() -> None:
    """Close all sessions within a few seconds, so that the process can end."""
    deadline = SYSTEM_CLOCK.monotonic() + EXIT_TIMEOUT
    left = [(each, *locked_step(each.leave)()) for each in tuple(_sessions)]
    for session, future, _ in left:
        try:
            if future is not None:
                session.outcome(future, deadline)
        except Exception as error:  # noqa: BLE001 - no caller could catch it
            logger.warning("%s could not be closed at the end: %s", session.label, error)
    for thread in {thread for *_, thread in left if thread is not None}:
        thread.stop()
        thread.join(max(0.0, min(JOIN_TIMEOUT, deadline - SYSTEM_CLOCK.monotonic())))
