"""The seam between the SQL stores and a driver, and the life of connections made from a URL."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from .. import _fork
from .._loop import is_dead
from .._uncopied import Uncopied
from ..errors import ForkedError, StoreError, UnsupportedRuntimeError, WrongLoopError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

__all__ = (
    "CLOSE_TIMEOUT",
    "Executor",
    "OutOfRangeError",
    "OwnExecutor",
    "Row",
    "Value",
    "running_asyncio_loop",
)

CLOSE_TIMEOUT: Final = 2.0  # seconds; how long a silent server may hold up closing

Row = Any
"""What a driver calls a row; its columns by number."""

Value = str | int
"""What a statement is given."""

C = TypeVar("C")


def running_asyncio_loop(label: str) -> asyncio.AbstractEventLoop:
    """Return the running loop, or raise `UnsupportedRuntimeError` where it is not asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedRuntimeError(f"{label} needs asyncio's event loop") from None


class OutOfRangeError(StoreError):
    """A number does not fit its column; nothing was written.  Never leaves the stores."""


class Executor(Uncopied, ABC):
    """Runs one statement and gives its rows.  A driver needs nothing else to become a store.

    A statement is a transaction of its own, and is durable when the call returns.  A cancelled
    call may have taken effect, but no later call gets to see its reply.

    Attributes:
        label: names the server or file in messages, without credentials.
    """

    __slots__ = ("__weakref__", "_born", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        self._born = _fork.generation

    @abstractmethod
    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run one statement and return all its rows.

        Args:
            statement: in the driver's own notation.
            **values: by name; a driver that counts its parameters takes them in this order.

        Raises:
            OutOfRangeError: a result does not fit its column.
            StoreUnavailableError: the store cannot be reached or does not answer.
            StoreError: the store refuses.
            ForkedError: the connection is the parent process's.
            WrongLoopError: the connection is in use on another event loop.
        """

    async def fetch_row(self, statement: str, **values: Value) -> Row | None:
        """Run one statement and return its first row, or None."""
        rows = await self.fetch_rows(statement, **values)
        return rows[0] if rows else None

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the connection is the user's, and was made in the parent process.
        """
        self._check_process("make it on a new client")

    async def aclose(self) -> None:
        """Close what this executor has opened itself."""

    def _check_process(self, remedy: str = "open it anew in this process") -> None:
        if self._born != _fork.generation:
            raise ForkedError(f"the connection to {self.label}", remedy=remedy)


class OwnExecutor(Executor, Generic[C]):
    """Opens what it needs on first use, for the event loop it is used on, and closes it.

    It may be used again after `aclose`, after its loop has ended and, once opened anew, in a
    forked child.
    """

    __slots__ = ("_client", "_life", "_lock", "_loop")

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._client: C | None = None
        self._life: AsyncGenerator[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock: asyncio.Lock | None = None
        _fork.watch(self)

    # What an adapter fills in.

    @abstractmethod
    async def _connect(self) -> C:
        """Open a client; a cancelled call leaves nothing open."""

    @abstractmethod
    async def _disconnect(self, client: C) -> None:
        """Close a client within `CLOSE_TIMEOUT`, also in a cancelled scope."""

    @abstractmethod
    def _salvage(self, client: C) -> C | None:
        """Return the client of a dead event loop if it can go on; else let go of it."""

    def _silence(self) -> None:
        """Keep the parent's client from saying anything.  Runs in a forked child, first."""

    # The life of a client.

    async def aopen(self) -> None:
        """Get ready in this process; connects when the first statement is run."""
        self._born = _fork.generation

    async def aclose(self) -> None:
        """Close the client, if there is one; the next statement opens another.

        Raises:
            WrongLoopError: it is in use on another event loop.
        """
        if self._born != _fork.generation or not self._is_in_use:
            return
        lock = self._settle()
        # Whoever opens it now would leave it open.
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            async with lock:
                pass
        await self._end()

    async def _ready(self) -> C:
        self._check_process()
        lock = self._settle()
        async with lock:
            self._check_process()  # it may have been forked while it waited
            if self._client is None:
                self._client = await self._connect()
            client = self._client
            if self._life is None:
                self._life = self._live(client)
                await anext(self._life)
            return client

    @property
    def _is_in_use(self) -> bool:
        """Whether a client is open, or being opened."""
        return self._client is not None or (self._lock is not None and self._lock.locked())

    def _settle(self) -> asyncio.Lock:
        """Make the running loop ours, if it was another one that is dead by now."""
        loop = running_asyncio_loop(self.label)
        if self._lock is None or self._loop is not loop:
            if self._is_in_use and not is_dead(self._loop):
                raise WrongLoopError(f"the connection to {self.label}")
            if self._client is not None:
                self._client, self._life = self._salvage(self._client), None
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _live(self, client: C) -> AsyncGenerator[None]:
        """Hold the client until `aclose`, or until the event loop ends.

        An async generator is what a loop closes by itself before it ends: asyncio.run() leaves no
        connection behind, even of an object that nobody has closed.
        """
        born = _fork.generation
        try:
            yield
        finally:
            if self._client is client:
                self._client = self._life = None
            if born == _fork.generation:
                await self._disconnect(client)

    async def _end(self) -> None:
        client, self._client = self._client, None
        life, self._life = self._life, None
        if life is not None:
            await life.aclose()
        elif client is not None:  # of a dead loop, salvaged and not used since
            await self._disconnect(client)

    def _forget(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._silence()
            _fork.abandoned.append((client, self._life))
        self._life = self._loop = self._lock = None
