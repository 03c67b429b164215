"""The way to a server: whose the client is, on which loop, how a call on it ends, and scripts.

A script is one atomic step, on declared keys only.  It answers with text: a Lua number is a double
and loses what is above 2^53.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio

from ..._life import fork
from ..._life.not_copyable import NotCopyable
from ...errors import InvalidArgumentError, MissingExtraError, StoreUnavailableError
from .._connection import BorrowedConnection, Connection, OwnedConnection
from .._durability import DurabilityCheck
from .._url import StoreUrl
from ._errors import STORE, as_store_error

try:
    from redis.exceptions import ReadOnlyError, RedisError, ResponseError
except ModuleNotFoundError as _exc:
    raise MissingExtraError("redis", extra="redis") from _exc

from ._client import is_cluster, make_clients
from ._demands import Confirmed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from ._demands import Demands

__all__ = ("UNDECODED", "Grants", "RedisClient", "RedisLink", "Script", "script_of", "text_of")

CALL_TIMEOUT: Final = 30.0  # seconds; the last resort of callers that set no deadline themselves
CALLS_AT_ONCE: Final = 32  # on one client; what comes above waits its turn, not for a connection
CANCEL_ATTEMPTS: Final = 4  # times that a call is told to end before it is left to itself
CANCEL_PAUSE: Final = 0.25  # seconds between them

# The drivers' option for a reply in bytes, whatever the user's client makes of others: it may hold
# what somebody else wrote, and no text in the client's encoding.
UNDECODED: Final = {"NEVER_DECODE": True}

T = TypeVar("T")


class RedisClient(Protocol):
    """What is needed of a client: redis-py's and valkey-py's asyncio ones have it."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]:  # noqa: ANN401
        """Send one command and return its reply."""
        raise NotImplementedError

    def aclose(self) -> Awaitable[None]:
        """Close the connections."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Script:
    """A script, known to servers by its digest."""

    text: bytes  # not str, which a user's client may encode in its own way
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = sha1(self.text, usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest.encode())

    async def run(self, client: Any, *given: bytes | int) -> Any:  # noqa: ANN401 - the driver's
        """Run it on so many keys; a server that does not know it yet is sent the text."""
        try:
            return await client.execute_command("EVALSHA", self.digest, *given, **UNDECODED)
        except Exception as exc:
            # By name: valkey-py has a class of its own.
            if type(exc).__name__ != "NoScriptError":
                raise
        return await client.execute_command("EVAL", self.text, *given, **UNDECODED)


def script_of(*names: str) -> Script:
    """Return the script that is made of ``.lua`` files of this package, one after the other."""
    folder = files(__package__ or "")
    return Script(b"".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names))


def text_of(value: bytes) -> str:
    """Return a key, a field or a reply as it was written: UTF-8; what is none comes escaped."""
    return value.decode(errors="backslashreplace")


class Grants(NamedTuple):
    """What is asked of a server that grants, beside its replicas.

    Attributes:
        check: whether to look at its settings.
        weaknesses_of: says, for a client and a key, by which of them it may forget.
    """

    check: DurabilityCheck
    weaknesses_of: Callable[[Any, bytes], Awaitable[list[str]]]


class RedisSession:
    """One client on one loop, and our calls that are under way on it.

    Attributes:
        clients: the client, and what else has to be closed; none once it is closed.
    """

    __slots__ = ("_calls", "_turns", "clients")

    def __init__(self, *clients: Any, turns: anyio.Semaphore) -> None:  # noqa: ANN401
        self.clients = clients
        self._turns = turns
        self._calls: set[asyncio.Task[Any]] = set()

    async def call(self, command: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Run a command in a task of its own; when the caller is cancelled, abort it.

        A task, because the driver cleans up with awaits of its own, which a cancelled scope of the
        caller's would cut, and because on Python 3.11 it may swallow a cancellation.
        """
        generation = fork.generation

        async def run(client: Any) -> T:  # noqa: ANN401 - one of the driver's
            fork.ensure_own(generation, "the call")
            if hasattr(client, "nodes_manager"):
                # A cluster client that has not seen the slots yet sends calls anywhere, is
                # redirected for each, and after some of that closes the connections under all.
                await client.initialize()
                fork.ensure_own(generation, "the call")
            return await command(client)

        async with self._turns:
            if not self.clients:
                raise StoreUnavailableError(STORE, "closed while the call waited")
            fork.ensure_own(generation, "the call")
            task = asyncio.create_task(run(self.clients[0]))
            self._calls.add(task)
            task.add_done_callback(self._ended)
            try:
                await asyncio.wait((task,))
            except BaseException:
                if generation == fork.generation:
                    await _abort(task)
                raise
        fork.ensure_own(generation, "the call")  # the reply was, or will be, the parent's
        if task.cancelled():
            raise StoreUnavailableError(STORE, "closed while the call was under way")
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # of an aborted call nobody else asks

    async def aclose(self) -> None:
        """Abort what is under way and close the connections."""
        clients, self.clients = self.clients, ()
        await _abort(*self._calls)
        for client in clients:
            with contextlib.suppress(RedisError, OSError):
                await _close(client)

    def silence(self) -> None:
        """Keep the connections from saying anything.  Runs in a forked child, first."""
        fork.silence(
            connection._writer.get_extra_info("socket")
            for client in self.clients
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


async def _close(client: Any) -> None:  # noqa: ANN401 - one of the driver's
    await client.aclose()
    if (nodes := getattr(client, "nodes_manager", None)) is not None:
        # After an error a cluster client thinks of itself as closed, and leaves these open.
        await nodes.aclose("nodes_cache")
        await nodes.aclose("startup_nodes")


async def _abort(*calls: asyncio.Task[Any]) -> None:
    """Have the driver drop the connection; it does so on a cancellation, with its reply pending.

    More than once only because it may swallow one.
    """
    left = set(calls)
    with anyio.CancelScope(shield=True):
        for _ in range(CANCEL_ATTEMPTS):
            if not left:
                return
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_PAUSE)


class RedisLink(NotCopyable):
    """The way to the servers, which a store and its distributors share.

    On the user's client, or on clients made from a URL; see `aiocosid.stores._connection`.

    Attributes:
        demands: what is asked of the server.
        durability: whether that was looked at.
        is_cluster: whether keys lie in slots.
    """

    __slots__ = ("_connection", "_name", "demands", "durability", "is_cluster")

    def __init__(self, client: RedisClient | StoreUrl, demands: Demands) -> None:
        self._name, self.demands, pool = "on your client", demands, None
        self._connection: Connection[RedisSession]
        if isinstance(client, StoreUrl):
            self._name = f"{client.scheme} {client}"
            self.is_cluster = is_cluster(client)
            socket_timeout = client.options["socket_timeout"]

            async def connect() -> RedisSession:
                at_once = client.options["max_connections"] or CALLS_AT_ONCE
                turns = anyio.Semaphore(at_once, fast_acquire=True)
                return RedisSession(*make_clients(client), turns=turns)

            self._connection = OwnedConnection(
                "the Redis connection",
                connect=connect,
                disconnect=RedisSession.aclose,
                silence=RedisSession.silence,
            )
        else:
            # Not the synchronous client: it has no aclose, and would block the loop.
            needed = "execute_command", "aclose"
            if not all(callable(getattr(client, name, None)) for name in needed):
                expected = "a client of redis.asyncio"
                raise InvalidArgumentError("client", type(client), expected=expected)
            pool = _pool_of(client)
            self.is_cluster = hasattr(client, "nodes_manager")
            socket_timeout = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
            session = RedisSession(client, turns=_turns_on(client))
            self._connection = BorrowedConnection("the Redis client", session)
        self.durability = DurabilityCheck(demands.durability, pool)
        wait = demands.replica_timeout
        if demands.replicas and socket_timeout and wait >= socket_timeout:
            expected = f"less than socket_timeout, {socket_timeout:g} s"  # which would cut it short
            raise InvalidArgumentError("replica_timeout", wait, expected=expected)

    def __str__(self) -> str:
        """Name the servers, without credentials."""
        return self._name

    async def run(
        self,
        script: Script,
        keys: tuple[bytes, ...],
        *arguments: bytes | int,
        counter: str = "",
        grants: Grants | None = None,
    ) -> Any:  # noqa: ANN401 - the driver's
        """Run a script, as `call` does, of which errors name the counter and the first key.

        Args:
            script: what to run.
            keys: what it works on.
            *arguments: its further ones.
            counter: the ``{namespace}.{name}`` that it is about.
            grants: that it grants something, which the server may not forget, and replicas have to
                confirm, as it was demanded.
        """

        async def ask(client: Any) -> Any:  # noqa: ANN401 - the driver's
            if grants is not None and grants.check.is_due:
                grants.check.judge(STORE, await grants.weaknesses_of(client, keys[0]))
            if grants is not None and self.demands.replicas:
                client = Confirmed(client, keys[0], self.demands)
            return await script.run(client, len(keys), *keys, *arguments)

        return await self.call(ask, counter=counter, key=keys[0])

    async def call(
        self,
        command: Callable[[Any], Coroutine[Any, Any, T]],
        *,
        may_last: bool = False,
        counter: str = "",
        key: bytes = b"",
    ) -> T:
        """Run ``command(client)``; cancelled, its connection is never used again.

        Args:
            command: what to run.
            may_last: whether it may take more than `CALL_TIMEOUT`.
            counter: the ``{namespace}.{name}`` that it is about.
            key: the key that it is about.

        Raises:
            StoreUnavailableError: it took longer, or the server cannot be reached.
            StoreError: the server refuses.
            IdOverflowError: the counter would pass 2^63-1.
            CorruptCounterError: the key holds something else.
            ForkedError: the connections are the parent's.
            WrongLoopError: they are in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        seconds = None if may_last else CALL_TIMEOUT
        with as_store_error(counter, key.decode()), anyio.move_on_after(seconds):
            session = await self._connection.ready()
            try:
                return await session.call(command)
            except ResponseError as exc:
                # The server has become a replica: the name may lead to another one by now.  The
                # driver knows the word at the beginning; a server before 7 says it later.
                if session.clients and (isinstance(exc, ReadOnlyError) or "READONLY" in str(exc)):
                    await self._connection.aclose()
                raise
        raise StoreUnavailableError(STORE, f"no answer within {CALL_TIMEOUT:g} s")

    def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""
        self._connection.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL, which the next call opens anew; no user's client."""
        await self._connection.aclose()


_turns: WeakKeyDictionary[Any, anyio.Semaphore] = WeakKeyDictionary()


def _pool_of(client: Any) -> Any:  # noqa: ANN401 - whatever the user has
    return getattr(client, "connection_pool", client)


def _turns_on(client: Any) -> anyio.Semaphore:  # noqa: ANN401 - whatever the user has
    """Return the turns for a client's pool, the same for all who use it.

    Waiting here and not in the pool, which raises when it is used up, or on Python before 3.13 may
    lose the wake-up of a waiter that is cancelled.
    """
    pool = _pool_of(client)
    if pool not in _turns:
        limit = getattr(pool, "max_connections", None)
        limit = limit or getattr(client, "connection_kwargs", {}).get("max_connections")
        at_once = min(limit or CALLS_AT_ONCE, CALLS_AT_ONCE)
        _turns[pool] = anyio.Semaphore(at_once, fast_acquire=True)
    return _turns[pool]
