"""What a component has from one opening to its end."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from ..errors import ClosedError
from .loop import is_dead, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextlib import AbstractContextManager
    from typing import Any

    from ..abc import Clock
    from ..abc.events import Event, Instrument
    from ..errors import CosIdError
    from .loop import Root

__all__ = ("Home", "OpenState")

logger = logging.getLogger("aiocosid")


class Home:
    """What a component and one opening of it share.

    Attributes:
        clock: the component's.
        ended: why the component cannot be used, and the opening is over; None while it lasts.
        label: names it in messages.
        root: where its tasks run; None before it is open and once it is over.
        scopes: what is slept in; None if nothing is.
    """

    __slots__ = ("clock", "ended", "label", "root", "scopes")

    def __init__(
        self, clock: Clock, label: str, root: Root | None, ended: CosIdError | None
    ) -> None:
        self.clock = clock
        self.ended = ended
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
    def root(self) -> Root | None:
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
