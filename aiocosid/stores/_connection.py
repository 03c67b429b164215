"""Connections: their owners, the process and event loop that may use them, and calls on them.

A backend has one connection, on the user's client or on a client that it creates from a URL, and
asks it for the client at each call.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from socket import gaierror
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import anyio

from .._life import fork
from .._life.fork import NotCopyable
from .._life.loop import is_dead
from ..errors import (
    CosIdError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from ..errors.base import REOPEN

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Iterator,
    )

CALL_TIMEOUT: Final = 30.0  # seconds; for callers that set no deadline
CLOSE_TIMEOUT: Final = 2.0  # seconds that a silent server may delay closing

C = TypeVar("C")
T = TypeVar("T")


# Errors of calls.


def closed(store: str) -> StoreUnavailableError:
    """Return the error for a call whose connection was closed meanwhile."""
    return StoreUnavailableError(
        store, "closed while the call was under way", remedy="open it again to continue"
    )


_OTHER_NAME: Final = "connect with a name that the certificate has, or issue one that has this name"
_CERTIFICATES: Final = {
    "certificate is not valid for": _OTHER_NAME,  # OpenSSL's words
    "not in peer certificate": _OTHER_NAME,  # gRPC's
    "certificate has expired": "renew the server's certificate",
    "certificate is not yet valid": "set the clocks of this host and of the server right",
}
"""What to do about a certificate that a trusted authority has signed, by the refusal."""

_NO_SUCH_HOST: Final = "correct the host in the URL, or let this machine resolve its name"


def untrusted(
    store: str, text: str, remedy: str = "give its authority's certificate as ssl_ca_certs"
) -> StoreError:
    """Return the error for a server whose certificate no trusted authority has signed."""
    return StoreError(store, f"the server's certificate is not trusted ({text})", remedy=remedy)


def placed(error: CosIdError, exc: BaseException, place: str) -> CosIdError:
    """Return an error that quotes a driver, with the server's host and port if they are known.

    Args:
        error: aiocosid's error; errors with their own facts are returned unchanged.
        exc: the driver's error.
        place: the servers, without credentials; empty if they are not known.
    """
    if type(error) not in {StoreError, StoreUnavailableError, StoreAuthenticationError}:
        return error
    quoting = cast("StoreError", error)
    store = quoting.store if not place or place in str(error) else f"{quoting.store} {place}"
    remedies = (each for words, each in _CERTIFICATES.items() if words in quoting.reason)
    remedy = next(remedies, quoting.remedy)
    if error.retryable and any(isinstance(each, gaierror) for each in causes_of(exc)):
        remedy = _NO_SUCH_HOST
    return type(quoting)(store, quoting.reason, remedy=remedy)


@contextmanager
def translate_errors(
    meaning: Callable[[Any], CosIdError | None],
    *,
    kind: type[BaseException] = Exception,
    place: str = "",
) -> Generator[None]:
    """Raise an aiocosid error for each driver error, which becomes its cause; pass all others on.

    Args:
        meaning: returns the aiocosid error for a driver's error; None for any other error.
        kind: the base class of the driver's errors.
        place: the servers, without credentials, which errors name; empty if they are not known.
    """
    try:
        yield
    except CosIdError:
        raise
    except kind as exc:
        if (error := meaning(exc)) is None:
            raise
        try:
            raise placed(error, exc, place) from exc
        finally:
            del error  # its traceback has this frame, and a cycle would keep all frames alive


def causes_of(exc: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once: they may form a cycle."""
    seen: set[int] = set()
    cause: BaseException | None = exc
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


class CallTasks(set[asyncio.Future[Any]]):
    """The running calls on a client, each in its own task.

    A driver may lose a connection whose call is cancelled at the wrong await.  So a cancelled
    caller leaves its call to the client's owner, which cancels it in the way that the driver needs.
    """

    def start(
        self, call: Coroutine[Any, Any, T], on_end: Callable[[], object] = lambda: None
    ) -> asyncio.Task[T]:
        """Start a call; its error is retrieved even if no caller awaits it any longer.

        Args:
            call: the call.
            on_end: called when the call has ended.
        """
        task = asyncio.create_task(call)
        self.add(task)
        task.add_done_callback(partial(self._ended, on_end))
        return task

    def _ended(self, on_end: Callable[[], object], task: asyncio.Task[Any]) -> None:
        self.discard(task)
        on_end()
        drop_outcome(task)


def drop_outcome(call: asyncio.Future[Any]) -> None:
    """Retrieve and ignore the error of a call that no task awaits any longer."""
    if not call.cancelled():
        call.exception()


def silence(drivers: Iterable[Any]) -> None:
    """Keep the parent's connections from sending anything in a forked child.

    Args:
        drivers: connections of any driver.
    """
    fork.silence(map(socket_of, drivers))


def socket_of(driver: Any) -> Any:  # noqa: ANN401 - any driver's
    """Return the socket of a driver's connection, or None."""
    # asyncpg and asyncmy; aiomysql and redis; NATS has its own class of transports.
    found = getattr(driver, "_transport", None) or getattr(driver, "_writer", None)
    found = getattr(found, "_io_writer", found)
    if found is not None:
        return found.get_extra_info("socket")
    return driver if hasattr(driver, "pgconn") and not driver.closed else None  # psycopg


@contextmanager
def fail_if_forked() -> Generator[None]:
    """Raise at the end of a call, in a child that was forked during the call.

    Raises:
        ForkedError: the reply went, or will go, to the parent process.
    """
    generation = fork.generation
    try:
        yield
    finally:
        fork.ensure_own(generation, "the call")


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """Return the running loop; raise `UnsupportedRuntimeError` if it is not asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        reason = f"{what} needs asyncio's event loop"
        raise UnsupportedRuntimeError(reason, remedy="run it by asyncio.run()") from None


class Connection(NotCopyable, ABC, Generic[C]):
    """A client on asyncio, in one process and on one event loop at a time.

    Attributes:
        what: the connection in messages, without credentials.
    """

    __slots__ = ("__weakref__", "_fork_generation", "_loop", "what")

    remedy = REOPEN

    def __init__(self, what: str) -> None:
        self.what: str = what
        self._fork_generation = fork.generation
        self._loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def ready(self) -> C:
        """Return the client, connected on first use.

        Raises:
            ForkedError: the client belongs to the parent process.
            WrongLoopError: the client is in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """

    def ensure_usable(self) -> None:
        """Raise as `ready` does if the client cannot be used here, else bind it to this loop."""
        self._ensure_own()
        loop = running_loop(self.what)
        if self._loop is not loop:
            if self._is_in_use and not is_dead(self._loop):
                raise WrongLoopError(self.what)
            self._move_to(loop)
            self._loop = loop

    def _ensure_own(self) -> None:
        fork.ensure_own(self._fork_generation, self.what, remedy=self.remedy)

    @property
    def _is_in_use(self) -> bool:
        """Whether it must refuse every loop except the one on which it was used."""
        return self._loop is not None

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Get ready for another loop; the former loop is closed, or there was none."""

    async def aopen(self) -> None:
        """Get ready in this process, or raise as `ready` does."""
        self.ensure_usable()

    async def aclose(self) -> None:
        """Close the client if it opened that client, never a user's client."""


class BorrowedConnection(Connection[C]):
    """The user's client, which is never closed here, and belongs to the parent after a fork."""

    __slots__ = ("client",)

    remedy = "create it again on a client of this process"

    def __init__(self, what: str, client: C) -> None:
        """Use a client; nothing is sent.

        Args:
            what: the client in messages, for example "the etcd client".
            client: the user's client.
        """
        super().__init__(what)
        self.client = client

    async def ready(self) -> C:
        """Return the user's client."""
        self.ensure_usable()
        return self.client


class OwnedConnection(Connection[C]):
    """Connects on first use, on the running event loop, and closes the client again.

    It can be used again after `aclose`, after its loop has ended, and after `aopen` in a forked
    child.
    """

    __slots__ = (
        *("_client", "_connect", "_disconnect", "_is_lost", "_life", "_lock"),
        *("_salvage", "_silence"),
    )

    def __init__(
        self,
        what: str,
        *,
        connect: Callable[[], Awaitable[C]],
        disconnect: Callable[[C], Awaitable[None]],
        is_lost: Callable[[C], bool] = lambda _: False,
        salvage: Callable[[C], C | None] = lambda _: None,
        silence: Callable[[C], None] = lambda _: None,
    ) -> None:
        """Describe the client; nothing is opened yet.

        Args:
            what: the client in messages, for example "the connection to PostgreSQL".
            connect: opens a client; a cancelled call leaves nothing open.
            disconnect: closes a client; it is cancelled only after `CLOSE_TIMEOUT`.
            is_lost: returns whether a client will never work again; then another one is opened.
            salvage: returns the client of a closed event loop if it works on another loop;
                otherwise drops the client.
            silence: keeps the parent's client from sending anything; runs first in a forked child.
        """
        super().__init__(what)
        self._connect = connect
        self._disconnect = disconnect
        self._is_lost = is_lost
        self._salvage = salvage
        self._silence = silence
        self._client: C | None = None
        self._life: AsyncGenerator[None] | None = None
        self._lock = asyncio.Lock()
        fork.watch(self)

    async def ready(self) -> C:
        """Return the client; the first call connects, and concurrent calls wait for it."""
        self.ensure_usable()
        async with self._lock:
            self._ensure_own()  # the process may have forked during the wait
            if self._client is not None and self._is_lost(self._client):
                await self._close_client()
            if self._client is None:
                self._client = await self._connect()
            client = self._client
            if self._life is None:
                self._life = self._live(client)
                await anext(self._life)
            return client

    def holds(self, client: C) -> bool:
        """Return whether this is still the client."""
        return self._client is client

    @property
    def _is_in_use(self) -> bool:
        """Whether a client is open, or being opened."""
        return self._client is not None or self._lock.locked()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ARG002 - a contract
        if self._client is not None:
            self._client, self._life = self._salvage(self._client), None
        self._lock = asyncio.Lock()

    async def _live(self, client: C) -> AsyncGenerator[None]:
        """Hold the client until `aclose`, or until the event loop ends.

        This is an async generator because a loop closes its async generators before it ends, so
        asyncio.run() leaves no connection behind, even if the object was never closed.
        """
        born = fork.generation
        try:
            yield
        finally:
            if self._client is client:
                self._client = self._life = None
            if born == fork.generation:
                await self._end(client)

    async def _end(self, client: C) -> None:
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._disconnect(client)

    async def aopen(self) -> None:
        """Get ready in this process; the client connects on first use."""
        running_loop(self.what)
        self._fork_generation = fork.generation

    async def aclose(self) -> None:
        """Close the client, if there is one; the next use opens a new client.

        Raises:
            WrongLoopError: the client is in use on another event loop.
        """
        if self._fork_generation != fork.generation or not self._is_in_use:
            return
        self.ensure_usable()
        # Without waiting for the lock, a call that is just opening a client would leave it open.
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            async with self._lock:
                pass
        await self._close_client()

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        life, self._life = self._life, None
        if life is not None:
            await life.aclose()
        elif client is not None:  # salvaged from a closed loop, and unused since that loop
            await self._end(client)

    def _forget(self) -> None:
        # The client is kept and not closed, because the connection belongs to the parent.
        client, self._client = self._client, None
        if client is not None:
            self._silence(client)
            fork.abandoned.append((client, self._life))
        self._life = self._loop = None
        self._lock = asyncio.Lock()


class Link(NotCopyable, Generic[C]):
    """What a store and its distributors share: one connection, and the calls on it.

    Each driver's subclass adds the calls.
    """

    __slots__ = ("__weakref__", "_connection")

    def __init__(self, connection: Connection[C]) -> None:
        """Use a connection for calls; nothing is sent yet."""
        self._connection = connection

    async def aopen(self) -> None:
        """Get ready in this process, or raise as a call does; connects at the first call.

        Raises:
            ForkedError: the connection is the user's and was created in the parent process.
        """
        await self._connection.aopen()

    async def aclose(self) -> None:
        """Close what was opened from a URL; running calls fail, and the next call reopens it.

        Raises:
            WrongLoopError: the connection is in use on another event loop.
        """
        await self._connection.aclose()
