"""The way to a server: whose the client is, and how a call on it ends."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from ... import _fork
from ..._clock import SYSTEM_CLOCK
from ..._loop import is_dead
from ..._uncopied import Uncopied
from ...errors import (
    ForkedError,
    InvalidArgumentError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from ._errors import STORE, translated
from ._nodes import Nodes
from ._url import Target
from ._wire import Wire, wire_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ("BorrowedLink", "Link", "OwnedLink", "as_link")

CALL_TIMEOUT: Final = 30.0  # seconds; the last resort of callers that set no deadline themselves
FIRST_PAUSE: Final = 0.02  # seconds at most, after the first conflict; doubled by each further one
LAST_PAUSE: Final = 0.5  # seconds at most

T = TypeVar("T")


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedRuntimeError("the driver of ZooKeeper needs asyncio's loop") from None


class Link(Uncopied, ABC):
    """A way to a server that stores and distributors share."""

    __slots__ = ("__weakref__", "_born", "_clock")

    def __init__(self) -> None:
        self._born = _fork.generation
        self._clock = SYSTEM_CLOCK

    async def call(self, work: Callable[[Nodes], Coroutine[Any, Any, T]]) -> T:
        """Run ``work(nodes)``.

        Raises:
            StoreUnavailableError: it took longer than `CALL_TIMEOUT`, or as the server says.
            StoreError: the server refuses.
            ForkedError: the session is the parent's.
            WrongLoopError: the session is in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        with translated(), anyio.move_on_after(CALL_TIMEOUT):
            return await work(await self._nodes())
        raise StoreUnavailableError(STORE, f"not done within {CALL_TIMEOUT:g} s")

    async def until_done(self, attempt: Callable[[Nodes], Coroutine[Any, Any, T | None]]) -> T:
        """Run ``attempt(nodes)`` until it returns something: None means that others were faster.

        Each time somebody has changed what was read; so it does not go on for ever.

        Raises:
            CosIdError: as for `call`.
        """

        async def work(nodes: Nodes) -> T:
            longest = 0.0
            while (found := await attempt(nodes)) is None:
                await self._clock.sleep(random.uniform(0, longest))  # noqa: S311 - it spreads load
                longest = min(max(2 * longest, FIRST_PAUSE), LAST_PAUSE)
            return found

        return await self.call(work)

    @property
    @abstractmethod
    def session(self) -> int:
        """Another number each time that the session was interrupted; read from any thread."""

    @property
    @abstractmethod
    def session_timeout(self) -> float:
        """Seconds that a session lives without us; what is asked for, until the server has said."""

    @abstractmethod
    async def _nodes(self) -> Nodes:
        """Return the tree, by a client of this process."""

    @abstractmethod
    def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what was opened here."""


class BorrowedLink(Link):
    """On the user's client, which stays open, and stays the parent's after a fork.

    The driver's threads belong to no event loop: those of several may share it.
    """

    __slots__ = ("_wire",)

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - the driver's
        if not all(callable(getattr(client, name, None)) for name in ("get_async", "add_listener")):
            given: object = client
            raise InvalidArgumentError("client", type(given), expected="a kazoo KazooClient")
        super().__init__()
        self._wire = wire_of(client)

    def __str__(self) -> str:
        client = self._wire.client
        hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
        return f"{hosts}{client.chroot}"

    @property
    def session(self) -> int:
        return self._wire.session

    @property
    def session_timeout(self) -> float:
        return self._wire.session_timeout

    async def _nodes(self) -> Nodes:
        self.aopen()
        return Nodes(self._wire, "")

    def aopen(self) -> None:
        _running_loop()
        if self._born != _fork.generation:
            remedy = "make it anew on a client of this process"
            raise ForkedError("the ZooKeeper client", remedy=remedy)

    async def aclose(self) -> None:
        """Leave the user's client as it is."""


class OwnedLink(Link):
    """On a client made from a URL: started on first use, and anew after closing or a fork."""

    __slots__ = ("_loop", "_target", "_wire")

    def __init__(self, url: str) -> None:
        super().__init__()
        self._target = Target.of(url)
        self._wire: Wire | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        _fork.watch(self)

    def __str__(self) -> str:
        return str(self._target)

    @property
    def session(self) -> int:
        return 0 if self._wire is None else self._wire.session

    @property
    def session_timeout(self) -> float:
        return (self._wire or self._target).session_timeout

    async def _nodes(self) -> Nodes:
        loop = _running_loop()
        if self._born != _fork.generation:
            raise ForkedError("the ZooKeeper session")
        self._check_loop()
        if self._wire is None:
            self._wire = Wire(self._target.client(), is_own=True)
            self._wire.start()
        self._loop = loop  # the driver's threads go on when a loop has ended
        return Nodes(self._wire, self._target.chroot)

    def _check_loop(self) -> None:
        is_other = self._loop is not asyncio.get_running_loop()
        if self._wire is not None and is_other and not is_dead(self._loop):
            raise WrongLoopError("the ZooKeeper session")

    def aopen(self) -> None:
        _running_loop()
        self._born = _fork.generation

    async def aclose(self) -> None:
        """End the session; the next call begins another."""
        if self._born == _fork.generation:
            self._check_loop()
            wire, self._wire = self._wire, None
            if wire is not None:
                await wire.aclose()

    def _forget(self) -> None:
        # Kept, and not closed: the session is the parent's.
        if self._wire is not None:
            self._wire.forget()
            _fork.abandoned.append(self._wire)
            self._wire = None


def as_link(client: Any) -> Link:  # noqa: ANN401 - the driver's, or one of ours
    """Return a link as it is, or one on a user's client."""
    return client if isinstance(client, Link) else BorrowedLink(client)
