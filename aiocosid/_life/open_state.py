"""What a component has from one opening to its end; its calls to a store among that."""

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
LAST_BACKOFF: Final = 1.0  # seconds; an outage is over for us at most this long after it ended

E = TypeVar("E", bound="CosIdError")
T = TypeVar("T")


class Home:
    """What a component and one opening of it share.

    Attributes:
        clock: the component's.
        ended: why the component cannot be used, and the opening is over; None while it lasts.
        loop_check: as `loop.loop_check` returns it.
        label: names it in messages.
        root: where its tasks run; None before it is open and once it is over.
        scopes: what is slept in; None if nothing is.
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
        self.scopes: list[anyio.CancelScope] | None = None  # an idle component is to be small

    async def sleep_for(self, seconds: float) -> None:
        """Sleep for so many seconds, or until woken."""
        with self.until_woken():
            await self.clock.sleep(max(0.0, seconds))

    @contextmanager
    def until_woken(self) -> Generator[anyio.CancelScope]:
        """Return a scope that `wake` ends."""
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

    The component makes a new one whenever it is opened.  Tasks, callers and calls to the store hold
    on to the one they belong to: what outlasts its end reaches no later opening.  An opening does
    not hold its component, which would then be freed by the garbage collector alone.

    Attributes:
        clock: the component's clock.
        ended: why it is over; None while it lasts.
        home: what the component shares with it.
        label: names the component in messages.
        namespace: names it in events.
        name: the same.
        root: where its tasks run; None before it is open and once it is over.
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
        """Begin.

        Args:
            home: what the component gives to it.
            before: the component's last opening.
            namespace: for events.
            name: for events.
            instrument: receives the events.
        """
        if before is not None and before.ended is None:
            before.home.ended = ClosedError(before.label)  # its loop has died, and could not tell
        self.clock = home.clock
        self.label: str = home.label
        self.home: Home = home
        self.namespace = namespace
        self.name = name
        self._instrument = instrument
        self._instrument_errors: tuple[type[Exception], ...] = ()

    @property
    def ended(self) -> CosIdError | None:
        """Why it is over; None while it lasts."""
        return self.home.ended

    @property
    def root(self) -> TaskRoot | None:
        """Where its tasks run; None before it is open and once it is over."""
        return self.home.root

    def check(self) -> None:
        """Raise if it is over."""
        ended = self.home.ended
        if ended is not None:
            raise ended.again()

    def has_ended(self) -> bool:
        """Tell whether it is over, perhaps while the caller was suspended."""
        return self.ended is not None

    def end(self, reason: CosIdError) -> None:
        """Note that it is over.  Wakes nobody: the loop may be a parent process's."""
        self.home.ended = reason
        self.home.root = None  # which holds the component

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
        """Start a task, named after what it does; return False where none can be started.

        ``unstarted`` is called instead if the event loop is ended before the task has begun.
        """
        root = self.root
        if root is None or not self.is_alive:
            return False
        name = f"aiocosid {task} {self.label}"
        root.start_soon(func, *args, name=name, unstarted=unstarted)
        return True

    async def sleep_for(self, seconds: float) -> None:
        """Sleep for so many seconds, until woken, or until it is over."""
        if self.ended is None:
            await self.home.sleep_for(seconds)

    def until_woken(self) -> AbstractContextManager[anyio.CancelScope]:
        """Return a scope that `wake` ends."""
        return self.home.until_woken()

    def wake(self) -> None:
        """End all sleeps."""
        self.home.wake()

    @property
    def is_observed(self) -> bool:
        """Whether anybody receives events."""
        return self._instrument is not None

    def emit(self, kind: Callable[..., Event], **facts: object) -> None:
        """Tell the instrument of an event; a kind of error that it raises is logged once."""
        if self._instrument is None:
            return
        event = kind(namespace=self.namespace, name=self.name, **facts)
        try:
            self._instrument.on_event(event)
        except Exception as error:
            if type(error) not in self._instrument_errors:  # it might fail with each request
                self._instrument_errors += (type(error),)
                logger.exception("%s: the instrument failed", self.label)


class OpeningCalls:
    """Makes the calls of an opening, in tasks of its root.

    A call is shielded: it belongs to all callers and to none, and a torn one would leave its reply
    on the connection.  Only its timeout ends it, or the end of the opening.

    Attributes:
        under_way: the calls whose tasks run, by a key; each with its scope while it is sent.
    """

    __slots__ = ("_all_ended", "_close_timeout", "_life", "_timeout", "under_way")

    def __init__(self, life: OpenState, *, timeout: float, close_timeout: float) -> None:
        """Begin without a call.

        Args:
            life: the opening.
            timeout: seconds of one call.
            close_timeout: seconds that `drain` waits before it cancels a call.
        """
        self._life = life
        self._timeout = timeout
        self._close_timeout = close_timeout
        self.under_way: dict[int, anyio.CancelScope | None] = {}
        self._all_ended: anyio.Event | None = None  # made and awaited by `drain`

    def start(
        self, key: int, main: Callable[..., Coroutine[Any, Any, None]], *args: object, task: str
    ) -> bool:
        """Start a task that makes calls and then says so to `end`; return whether there is one."""
        started = False
        self.under_way[key] = None  # first: an eager task may end before the call returns
        try:
            unstarted = partial(self.end, key)
            started = self._life.start_soon(main, *args, task=task, unstarted=unstarted)
        finally:
            if not started:
                self.under_way.pop(key, None)  # else none would be started any more
        return started

    async def call(self, key: int, store: str, call: Callable[[], Awaitable[T]]) -> T | CosIdError:
        """Make one call of a task; return what the store answers, or why it does not."""
        return await call_bounded(
            call,
            store=store,
            clock=self._life.clock,
            within=self._timeout,
            shield=True,
            began=partial(self.under_way.__setitem__, key),
        )

    def end(self, key: int) -> None:
        """Take note that a task makes no more calls; harmless twice."""
        self.under_way.pop(key, None)
        if not self.under_way and self._all_ended is not None:
            self._all_ended.set()

    async def drain(self) -> None:
        """Await the calls; after the close timeout tear them, and their connections with them."""
        if not self.under_way:
            return
        clock = self._life.clock
        # Two may drain at once: its own closing, and its provider's.
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
    """Return seconds until the store is asked again at most, after so many failures in a row."""
    return min(longest, FIRST_BACKOFF * 2.0 ** min(max(0, attempt - 1), 10))


def unavailable(make: Callable[..., E], name: str, cause: Exception | None, **facts: object) -> E:
    """Return the error of a caller that gets nothing, with the store's own as its cause.

    Args:
        make: the error's class.
        name: what the caller asked for.
        cause: the store's latest error; None if it did not answer.
        facts: further arguments of the class, also for reason and remedy if not the cause's.
    """
    of_cause = {"reason": str(cause or ""), "remedy": getattr(cause, "remedy", "")}
    error = make(name, **{**of_cause, **facts})
    error.__cause__ = cause
    return error
