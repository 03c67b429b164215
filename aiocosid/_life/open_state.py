"""The state of a component between one opening and its end, including its calls to a store."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from ..errors import ClosedError
from .clock import call_bounded
from .loop import is_dead, nothing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from contextlib import AbstractContextManager

    from ..abc import Clock
    from ..abc.events import Event, Instrument
    from ..errors import CosIdError
    from .loop import TaskRoot

__all__ = (
    "FIRST_BACKOFF",
    "LAST_BACKOFF",
    "Home",
    "OpenState",
    "OpeningCalls",
    "back_off",
    "unavailable",
)

logger = logging.getLogger("aiocosid")

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 1.0  # seconds; the end of an outage is noticed at most this much later

E = TypeVar("E", bound="CosIdError")
T = TypeVar("T")


class Home:
    """What a component and one opening of it share.

    Attributes:
        clock: the component's clock.
        ended: why the component cannot be used, and the opening has ended; None before that.
        loop_check: as `loop.loop_check` returns it.
        label: names the component in messages.
        root: where its tasks run; None before it is open and once it has ended.
        scopes: the scopes of its sleeps; None if there are none.
    """

    __slots__ = ("clock", "ended", "label", "loop_check", "root", "scopes")

    def __init__(
        self, clock: Clock, label: str, root: TaskRoot | None, ended: CosIdError | None
    ) -> None:
        self.clock = clock
        self.ended = ended
        self.loop_check: Callable[[], None] | None = None
        self.label = label
        self.root = root
        self.scopes: list[anyio.CancelScope] | None = None  # keeps an idle component small

    async def sleep_for(self, seconds: float) -> None:
        """Sleep for that many seconds, or until woken."""
        with self.until_woken():
            await self.clock.sleep(max(0.0, seconds))

    @contextmanager
    def until_woken(self) -> Generator[anyio.CancelScope]:
        """Return a scope that `wake` cancels."""
        with anyio.CancelScope() as scope:
            scopes = self.scopes = self.scopes or []
            scopes.append(scope)
            try:
                yield scope
            finally:
                scopes.remove(scope)
                if not scopes:
                    self.scopes = None

    def wake(self) -> None:
        """End all sleeps."""
        for scope in tuple(self.scopes or ()):
            scope.cancel()


class OpenState:
    """The state of a component from one opening to its end.

    The component creates a new one each time it is opened.  Tasks, callers and calls to the store
    keep the one to which they belong, so whatever outlasts its end never reaches a later opening.
    An opening does not refer to its component, because then only the garbage collector could free
    the component.

    Attributes:
        clock: the component's clock.
        ended: why it has ended; None before that.
        home: what the component shares with it.
        label: names the component in messages.
        namespace: the component's namespace in events.
        name: the component's name in events.
        root: where its tasks run; None before it is open and once it has ended.
    """

    __slots__ = (
        *("_instrument", "_instrument_errors"),
        *("clock", "home", "label", "name", "namespace"),
    )

    def __init__(
        self,
        home: Home,
        before: OpenState | None,
        *,
        namespace: str,
        name: str,
        instrument: Instrument | None,
    ) -> None:
        """Start an opening.

        Args:
            home: what the component shares with it.
            before: the component's previous opening.
            namespace: for events.
            name: for events.
            instrument: receives the events.
        """
        if before is not None and before.ended is None:
            before.home.ended = ClosedError(before.label)  # its loop died without ending it
        self.clock = home.clock
        self.label: str = home.label
        self.home: Home = home
        self.namespace = namespace
        self.name = name
        self._instrument = instrument
        self._instrument_errors: tuple[type[Exception], ...] = ()

    @property
    def ended(self) -> CosIdError | None:
        """Why it has ended; None before that."""
        return self.home.ended

    @property
    def root(self) -> TaskRoot | None:
        """Where its tasks run; None before it is open and once it has ended."""
        return self.home.root

    def check(self) -> None:
        """Raise if it has ended."""
        ended = self.home.ended
        if ended is not None:
            raise ended.again()

    def has_ended(self) -> bool:
        """Tell whether it has ended, perhaps while the caller was suspended."""
        return self.ended is not None

    def end(self, reason: CosIdError) -> None:
        """Record that it has ended.  Wakes no task: the loop may belong to a parent process."""
        self.home.ended = reason
        self.home.root = None  # the root refers to the component

    @property
    def is_alive(self) -> bool:
        """Whether tasks can be started."""
        root = self.root
        return root is not None and root.is_alive and not is_dead(root.loop)

    def start_soon(
        self,
        func: Callable[..., Coroutine[Any, Any, None]],
        *args: object,
        task: str,
        unstarted: Callable[[], object] = nothing,
    ) -> bool:
        """Start a task, named after what it does; return False if none can be started.

        ``unstarted`` is called instead if the event loop ends before the task has begun.
        """
        root = self.root
        if root is None or not self.is_alive:
            return False
        name = f"aiocosid {task} {self.label}"
        root.start_soon(func, *args, name=name, unstarted=unstarted)
        return True

    async def sleep_for(self, seconds: float) -> None:
        """Sleep for that many seconds, until woken, or until it has ended."""
        if self.ended is None:
            await self.home.sleep_for(seconds)

    def until_woken(self) -> AbstractContextManager[anyio.CancelScope]:
        """Return a scope that `wake` cancels."""
        return self.home.until_woken()

    def wake(self) -> None:
        """End all sleeps."""
        self.home.wake()

    @property
    def is_observed(self) -> bool:
        """Whether an instrument receives events."""
        return self._instrument is not None

    def emit(self, kind: Callable[..., Event], **facts: object) -> None:
        """Send an event to the instrument; each kind of error that it raises is logged once."""
        if self._instrument is None:
            return
        event = kind(namespace=self.namespace, name=self.name, **facts)
        try:
            self._instrument.on_event(event)
        except Exception as error:
            if type(error) not in self._instrument_errors:  # it might fail for each request
                self._instrument_errors += (type(error),)
                logger.exception("%s: the instrument failed", self.label)


class OpeningCalls:
    """Makes the calls of an opening, in tasks of its root.

    A call is shielded, because it belongs to all callers and to none, and an interrupted one would
    leave its reply on the connection.  Only its timeout or the end of the opening ends it.

    Attributes:
        under_way: the calls whose tasks run, by a key; each with its scope while it is sent.
    """

    __slots__ = ("_all_ended", "_close_timeout", "_life", "_timeout", "under_way")

    def __init__(self, life: OpenState, *, timeout: float, close_timeout: float) -> None:
        """Start without a call.

        Args:
            life: the opening.
            timeout: seconds for one call.
            close_timeout: seconds that `drain` waits before it cancels a call.
        """
        self._life = life
        self._timeout = timeout
        self._close_timeout = close_timeout
        self.under_way: dict[int, anyio.CancelScope | None] = {}
        self._all_ended: anyio.Event | None = None  # created and awaited by `drain`

    def start(
        self, key: int, main: Callable[..., Coroutine[Any, Any, None]], *args: object, task: str
    ) -> bool:
        """Start a task that makes calls and then calls `end`; return whether it was started."""
        started = False
        self.under_way[key] = None  # first, because an eager task may end before the call returns
        try:
            unstarted = partial(self.end, key)
            started = self._life.start_soon(main, *args, task=task, unstarted=unstarted)
        finally:
            if not started:
                self.under_way.pop(key, None)  # otherwise no task would ever be started again
        return started

    async def call(self, key: int, store: str, call: Callable[[], Awaitable[T]]) -> T | CosIdError:
        """Make one call of a task; return the store's answer, or the error."""
        return await call_bounded(
            call,
            store=store,
            clock=self._life.clock,
            within=self._timeout,
            shield=True,
            began=partial(self.under_way.__setitem__, key),
        )

    def end(self, key: int) -> None:
        """Record that a task makes no more calls; harmless twice."""
        self.under_way.pop(key, None)
        if not self.under_way and self._all_ended is not None:
            self._all_ended.set()

    async def drain(self) -> None:
        """Wait for the calls; after the close timeout cancel them, and lose their connections."""
        if not self.under_way:
            return
        clock = self._life.clock
        # Two callers may drain at once: the component's closing, and its provider's.
        ended = self._all_ended = self._all_ended or anyio.Event()
        try:
            with clock.move_on_after(self._close_timeout):
                await ended.wait()
        finally:
            for scope in tuple(self.under_way.values()):
                if scope is not None:
                    scope.cancel()
        with clock.move_on_after(self._close_timeout):
            await ended.wait()


def back_off(attempt: int, longest: float = LAST_BACKOFF) -> float:
    """Return the longest pause before the next call, in seconds, after failures in a row."""
    return min(longest, FIRST_BACKOFF * 2.0 ** min(max(0, attempt - 1), 10))


def unavailable(make: Callable[..., E], name: str, cause: Exception | None, **facts: object) -> E:
    """Return the error of a caller that gets nothing; the store's own error is its cause.

    Args:
        make: the error's class.
        name: what the caller requested.
        cause: the store's latest error; None if it did not answer.
        facts: further arguments of the class; reason and remedy override those of the cause.
    """
    of_cause = {"reason": str(cause or ""), "remedy": getattr(cause, "remedy", "")}
    error = make(name, **{**of_cause, **facts})
    error.__cause__ = cause
    return error
