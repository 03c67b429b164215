"""The way to a server: whose the client is, on which loop, and how a call on it ends."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio

from ... import _fork
from ..._loop import is_dead
from ..._uncopied import Uncopied
from ...errors import (
    ForkedError,
    InvalidArgumentError,
    MissingExtraError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from .._durability import DurabilityCheck
from ._demands import Demands
from ._errors import STORE

try:
    from redis.exceptions import ReadOnlyError, RedisError, ResponseError
except ModuleNotFoundError as _exc:
    raise MissingExtraError("redis", extra="redis") from _exc

from ._client import SOCKET_TIMEOUT, make_clients
from ._url import Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

__all__ = ("BorrowedLink", "Link", "OwnedLink", "RedisClient")

CALL_TIMEOUT: Final = 30.0  # seconds; the last resort of callers that set no deadline themselves
CALLS_AT_ONCE: Final = 32  # on one client; what comes above waits its turn, not for a connection
TEARS: Final = 4  # times that a call is told to end before it is left to itself
TEAR_PAUSE: Final = 0.25  # seconds between them
CLOSE_TIMEOUT: Final = 2.0  # seconds that farewells may take

T = TypeVar("T")


class RedisClient(Protocol):
    """What is needed of a client: redis-py's and valkey-py's asyncio ones have it."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]:  # noqa: ANN401
        """Send one command and return its reply."""
        raise NotImplementedError

    def aclose(self) -> Awaitable[None]:
        """Close the connections."""
        raise NotImplementedError


class Session:
    """One client on one loop, and our calls that are under way on it."""

    __slots__ = ("_calls", "_clients", "_turns")

    def __init__(self, *clients: Any, turns: anyio.Semaphore) -> None:  # noqa: ANN401
        self._clients = clients
        self._turns = turns
        self._calls: set[asyncio.Task[Any]] = set()

    async def call(self, command: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Run a command in a task of its own; when the caller is cancelled, tear it.

        A task, because the driver cleans up with awaits of its own, which a cancelled scope of the
        caller's would cut, and because on Python 3.11 it may swallow a cancellation.
        """
        generation = _fork.generation
        async with self._turns:
            if not self._clients:
                raise StoreUnavailableError(STORE, "closed while the call waited")
            _ensure_own(generation)
            task = asyncio.create_task(_run(command, self._clients[0], generation))
            self._calls.add(task)
            task.add_done_callback(self._ended)
            try:
                await asyncio.wait((task,))
            except BaseException:
                if generation == _fork.generation:
                    await _tear(task)
                raise
        _ensure_own(generation)  # the reply was, or will be, the parent's
        if task.cancelled():
            raise StoreUnavailableError(STORE, "closed while the call was under way")
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # of a torn call nobody else asks

    async def aclose(self) -> None:
        """Tear what is under way and close the connections; bounded, also in a cancelled scope."""
        clients, self._clients = self._clients, ()
        await _tear(*self._calls)
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            for client in clients:
                with contextlib.suppress(RedisError, OSError):
                    await _close(client)

    def silence(self) -> None:
        """Keep the connections from saying anything.  Runs in a forked child, first."""
        _fork.silence(
            connection._writer.get_extra_info("socket")
            for client in self._clients
            for connection in _connections(client)
            if connection._writer is not None
        )


def _connections(client: Any) -> Iterator[Any]:  # noqa: ANN401 - one of the driver's
    nodes = getattr(client, "nodes_manager", None)
    if nodes is None:
        yield from client.connection_pool._available_connections
        yield from client.connection_pool._in_use_connections
        return
    for node in (*nodes.nodes_cache.values(), *nodes.startup_nodes.values()):
        yield from node._connections


def _ensure_own(generation: int) -> None:
    if generation != _fork.generation:
        raise ForkedError("the call")


async def _run(
    command: Callable[[Any], Coroutine[Any, Any, T]],
    client: Any,  # noqa: ANN401 - one of the driver's
    generation: int,
) -> T:
    _ensure_own(generation)
    if hasattr(client, "nodes_manager"):
        # A cluster client that has not seen the slots yet sends calls anywhere, is redirected for
        # each, and after some of that closes the connections under all of them.
        await client.initialize()
        _ensure_own(generation)
    return await command(client)


async def _close(client: Any) -> None:  # noqa: ANN401 - one of the driver's
    await client.aclose()
    if (nodes := getattr(client, "nodes_manager", None)) is not None:
        # After an error a cluster client thinks of itself as closed, and leaves these open.
        await nodes.aclose("nodes_cache")
        await nodes.aclose("startup_nodes")


async def _tear(*calls: asyncio.Task[Any]) -> None:
    """Have the driver drop the connection; it does so on a cancellation, with its reply pending.

    More than once only because it may swallow one.
    """
    left = set(calls)
    with anyio.CancelScope(shield=True):
        for _ in range(TEARS):
            if not left:
                return
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=TEAR_PAUSE)


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedRuntimeError("the drivers of Redis run on asyncio only") from None


class Link(Uncopied, ABC):
    """A way to a server that stores and distributors share.

    Attributes:
        demands: what is asked of the server.
        durability: whether that was looked at.
    """

    __slots__ = ("__weakref__", "_born", "demands", "durability")

    def __init__(self, demands: Demands, client: object = None) -> None:
        self._born = _fork.generation
        self.demands = demands
        self.durability = DurabilityCheck(demands.durability, client)

    async def call(
        self, command: Callable[[Any], Coroutine[Any, Any, T]], *, may_last: bool = False
    ) -> T:
        """Run ``command(client)``; cancelled, its connection is never used again.

        Args:
            command: what to run.
            may_last: whether it may take more than `CALL_TIMEOUT`.

        Raises:
            StoreUnavailableError: it took longer.
            ForkedError: the connections are the parent's.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        with anyio.move_on_after(None if may_last else CALL_TIMEOUT):
            return await self._call(command)
        raise StoreUnavailableError(STORE, f"no answer within {CALL_TIMEOUT:g} s")

    async def _call(self, command: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        return await self._session().call(command)

    @abstractmethod
    def _session(self) -> Session:
        """Return what to call on, now and here."""

    @abstractmethod
    def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what was opened here."""


class BorrowedLink(Link):
    """On the user's client, which stays open, and stays the parent's after a fork."""

    __slots__ = ("_made",)

    def __init__(self, client: RedisClient, demands: Demands | None = None) -> None:
        # Not the synchronous client: it has no aclose, and would block the loop.
        if not all(callable(getattr(client, name, None)) for name in ("execute_command", "aclose")):
            raise InvalidArgumentError("client", type(client), expected="a client of redis.asyncio")
        super().__init__(demands or Demands(), _pool_of(client))
        kwargs = getattr(_pool_of(client), "connection_kwargs", {})
        _check_wait(self.demands, kwargs.get("socket_timeout"))
        self._made = Session(client, turns=_turns_on(client))

    def _session(self) -> Session:
        self.aopen()
        return self._made

    def aopen(self) -> None:
        _running_loop()
        if self._born != _fork.generation:
            remedy = "make it anew on a client of this process"
            raise ForkedError("the Redis client", remedy=remedy)

    async def aclose(self) -> None:
        """Leave the user's client open."""


def _check_wait(demands: Demands, socket_timeout: float | None) -> None:
    """Refuse a wait for replicas that the driver would cut short."""
    if demands.replicas and socket_timeout and demands.replica_timeout >= socket_timeout:
        expected = f"less than socket_timeout, {socket_timeout:g} s"
        raise InvalidArgumentError("replica_timeout", demands.replica_timeout, expected=expected)


def _pool_of(client: Any) -> Any:  # noqa: ANN401 - whatever the user has
    return getattr(client, "connection_pool", client)


_turns: WeakKeyDictionary[Any, anyio.Semaphore] = WeakKeyDictionary()


def _turns_on(client: Any) -> anyio.Semaphore:  # noqa: ANN401 - whatever the user has
    """Return the turns for a client's pool, the same for all who use it.

    Waiting here and not in the pool, which raises when it is used up, or on Python before 3.13 may
    lose the wake-up of a waiter that is cancelled.
    """
    pool = _pool_of(client)
    if pool not in _turns:
        limit = getattr(pool, "max_connections", None)
        limit = limit or getattr(client, "connection_kwargs", {}).get("max_connections")
        _turns[pool] = _semaphore(min(limit or CALLS_AT_ONCE, CALLS_AT_ONCE))
    return _turns[pool]


def _semaphore(at_once: int) -> anyio.Semaphore:
    return anyio.Semaphore(at_once, fast_acquire=True)


def _says_read_only(exc: ResponseError) -> bool:
    # The driver knows the word at the beginning; in a script a server before 7 says it later.
    return isinstance(exc, ReadOnlyError) or "READONLY" in str(exc)


class OwnedLink(Link):
    """On clients made from a URL: connected on first use, and anew after closing or a fork."""

    __slots__ = ("_current", "_loop", "_target")

    def __init__(self, url: str) -> None:
        self._target = Target.of(url)
        super().__init__(self._target.demands)
        _check_wait(self.demands, self._target.options.get("socket_timeout", SOCKET_TIMEOUT))
        self._current: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        _fork.watch(self)

    def __str__(self) -> str:
        return str(self._target)

    async def _call(self, command: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        session = self._session()
        try:
            return await session.call(command)
        except ResponseError as exc:
            # The server has become a replica: the name may lead to another one by now.
            if session is self._current and _says_read_only(exc):
                await self.aclose()
            raise

    def _session(self) -> Session:
        loop = _running_loop()
        if self._born != _fork.generation:
            raise ForkedError("the Redis connection")
        self._check_loop()
        if self._current is None:
            self._loop = loop
            at_once = self._target.options.get("max_connections", CALLS_AT_ONCE)
            self._current = Session(*make_clients(self._target), turns=_semaphore(at_once))
        return self._current

    def _check_loop(self) -> None:
        """Forget connections of a loop that is gone; refuse to share those of another one."""
        if self._current is not None and self._loop is not asyncio.get_running_loop():
            if not is_dead(self._loop):
                raise WrongLoopError("the Redis connection")
            self._current = None

    def aopen(self) -> None:
        _running_loop()
        self._born = _fork.generation

    async def aclose(self) -> None:
        """Close the connections; the next call opens new ones."""
        if self._born == _fork.generation:
            self._check_loop()
            session, self._current = self._current, None
            if session is not None:
                await session.aclose()

    def _forget(self) -> None:
        # Kept, and not closed: the sockets are the parent's, and so is what watches them.
        if self._current is not None:
            self._current.silence()
            _fork.abandoned.append(self._current)
            self._current = None
