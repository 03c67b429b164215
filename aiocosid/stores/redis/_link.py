"""The connections to a server: the client's owner and loop, bounded calls, and scripts.

A script is one atomic step, on declared keys only.  It returns numbers as text, because a Lua
number is a double and not exact above 2^53.

The driver's errors are recognised by their class names, because valkey-py has its own classes of
the same names, and by the server's messages, because an error inside a script or from an older
driver has no specific class.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio

from ..._life import fork
from ...abc import MAX_ID
from ...errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from .._connection import (
    CALL_TIMEOUT,
    BorrowedConnection,
    CallTasks,
    Connection,
    Link,
    OwnedConnection,
    causes_of,
    closed,
    silence,
    translate_errors,
    untrusted,
)
from .._durability import DurabilityCheck, Findings
from .._url import StoreUrl
from ._demands import STORE, Confirmed

try:
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
    from redis.backoff import NoBackoff
    from redis.credentials import UsernamePasswordCredentialProvider
    from redis.exceptions import ReadOnlyError, RedisError, ResponseError
except ModuleNotFoundError as _exc:
    raise MissingExtraError("redis", extra="redis") from _exc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from contextlib import AbstractContextManager

    from ._demands import Demands

__all__ = ("UNDECODED", "Grants", "RedisClient", "RedisLink", "Script", "script_of", "text_of")

_DRIVER: Final = {
    *("RedisError", "RedisClusterException", "ValkeyError", "ValkeyClusterException", "OSError")
}
_AUTHENTICATION: Final = {
    *("AuthenticationError", "AuthorizationError", "AuthenticationWrongNumberOfArgsError"),
    "NoPermissionError",
}
_REFUSALS: Final = (
    *("NOAUTH", "WRONGPASS", "NOPERM", "ACL failure"),
    "The user executing the script",  # Redis 7.0
)
_UNAVAILABLE: Final = {
    *("ConnectionError", "TimeoutError", "BusyLoadingError", "ReadOnlyError", "OutOfMemoryError"),
    *("ClusterDownError", "ClusterError", "MasterDownError", "SlotNotCoveredError"),
}
_OUTAGES: Final = (
    *("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "OOM", "NOREPLICAS"),
    "BUSY",
    # A master became a replica before or during a WAIT.
    *("UNBLOCKED", "WAIT cannot be used"),
    # Messages of the cluster client, which has no error classes for them.
    *("cannot be connected", "slots are not covered", "could not agree"),
    # A script's message for CLUSTERDOWN.
    "while the cluster is down",
)
_ELSEWHERE: Final = (
    *("MOVED ", "ASK ", "CROSSSLOT"),
    "Keys in request don't hash to the same slot",  # CROSSSLOT, which the drivers strip
)
_MOVING: Final = (
    "TRYAGAIN",  # a script's keys are on two nodes
    "non local key",  # a script removed a key, and may not rewrite it on the old node
    "TTL exhausted",  # the cluster client was redirected too often
)


def as_store_error(name: str = "", key: str = "", place: str = "") -> AbstractContextManager[None]:
    """Translate the driver's errors; let all others pass."""
    return translate_errors(partial(_meaning, name, key), place=place)


def _meaning(namespaced_name: str, key: str, exc: Exception) -> CosIdError | None:
    text = _sentence(exc)
    if not _names(exc) & _DRIVER:
        return _slip(exc, text)
    if "would overflow" in text:
        return IdOverflowError(namespaced_name, limit=MAX_ID)
    if "not an integer" in text:
        return CorruptCounterError(STORE, counter=key, found="a text that is not a 64-bit integer")
    if "WRONGTYPE" in text:
        return CorruptCounterError(STORE, counter=key, found="a value of another type")
    if (refusal := _refusal(exc)) is not None:
        return refusal
    return _outage(exc, text) or StoreError(STORE, text)


def _outage(exc: Exception, text: str) -> StoreUnavailableError | None:
    if "TryAgainError" in _names(exc) or any(word in text for word in _MOVING):
        reason = f"a slot of the cluster is moving to another node: {text}"
        return StoreUnavailableError(STORE, reason, remedy="try again when it has moved")
    is_outage = _names(exc) & _UNAVAILABLE or any(word in text for word in _OUTAGES)
    return StoreUnavailableError(STORE, text) if is_outage else None


def _slip(exc: Exception, text: str) -> StoreError | None:
    """Translate errors that the driver does not wrap; it drops the connection, so a retry works."""
    if isinstance(exc, RuntimeError) and "loop" in text:
        return StoreUnavailableError(STORE, f"a connection of another event loop: {text}")
    if isinstance(exc, AttributeError) and "NoneType" in text:
        return StoreUnavailableError(STORE, f"a connection was closed under the call: {text}")
    return None


def _refusal(exc: Exception) -> StoreError | None:
    """Find a refusal that no retry will fix, even among the error's causes."""
    for cause in causes_of(exc):
        text = _sentence(cause)
        if _names(cause) & _AUTHENTICATION or any(word in text for word in _REFUSALS):
            return StoreAuthenticationError(STORE, text)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return untrusted(STORE, text)
    if "AskError" in _names(exc) or str(exc).startswith(_ELSEWHERE):
        remedy = "use redis+cluster:// or a RedisCluster client"
        return StoreError(STORE, "the server is part of a cluster", remedy=remedy)
    if "Cluster mode is not enabled" in str(exc):
        return StoreError(STORE, "the server is not part of a cluster", remedy="use redis://")
    return None


def _names(exc: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(exc).__mro__}


def _sentence(exc: BaseException) -> str:
    text = str(exc)
    if type(exc).__name__ == "MasterNotFoundError":
        # Old drivers list their sentinel clients after the colon, with passwords.
        text = text.partition(" : ")[0]
        exc.args = (text,)
    return text or type(exc).__name__


CALLS_AT_ONCE: Final = 32  # on one client; further calls wait for a slot, not a connection
CANCEL_ATTEMPTS: Final = 4  # how often a call is cancelled before it is abandoned
CANCEL_PAUSE: Final = 0.25  # seconds between the cancellations

# The drivers' option for a reply in bytes, whatever the user's client decodes: another program may
# have written the value, and it may not be text in the client's encoding.
UNDECODED: Final = {"NEVER_DECODE": True}

T = TypeVar("T")


class RedisClient(Protocol):
    """The methods of a client that are used here; the asyncio clients of both drivers have them."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]:  # noqa: ANN401
        """Send one command and return its reply."""
        raise NotImplementedError

    def aclose(self) -> Awaitable[None]:
        """Close the connections."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Script:
    """A script, which servers cache by its digest."""

    text: bytes  # not str, which a user's client may encode differently
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = sha1(self.text, usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest.encode())

    async def run(self, client: Any, *given: bytes | int) -> Any:  # noqa: ANN401 - the driver's
        """Run the script; if the server does not have it yet, send its text."""
        try:
            return await client.execute_command("EVALSHA", self.digest, *given, **UNDECODED)
        except Exception as exc:
            # The class is compared by name, because valkey-py has its own.
            if type(exc).__name__ != "NoScriptError":
                raise
        return await client.execute_command("EVAL", self.text, *given, **UNDECODED)


def script_of(*names: str) -> Script:
    """Return a script of concatenated ``.lua`` files of this package."""
    folder = files(__package__ or "")
    return Script(b"".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names))


def text_of(value: bytes) -> str:
    """Return a key, a field or a reply as text: UTF-8, with other bytes escaped."""
    return value.decode(errors="backslashreplace")


class Grants(NamedTuple):
    """The checks of a server that grants something, in addition to its replicas.

    Attributes:
        check: the check of the server's settings, which runs once.
        durability_of: returns the findings about the settings, for a client and a key.
    """

    check: DurabilityCheck
    durability_of: Callable[[Any, bytes], Awaitable[Findings]]


class RedisSession:
    """One client on one loop, and the calls that are running on it.

    Attributes:
        clients: the client, and other clients to close; empty once the session is closed.
    """

    __slots__ = ("_calls", "_slots", "clients")

    def __init__(self, *clients: Any, slots: anyio.Semaphore) -> None:  # noqa: ANN401
        self.clients = clients
        self._slots = slots
        self._calls = CallTasks()

    @classmethod
    async def of_url(cls, url: StoreUrl) -> RedisSession:
        """Return a session on its own clients."""
        at_once = url.options["max_connections"] or CALLS_AT_ONCE
        return cls(*make_clients(url), slots=anyio.Semaphore(at_once, fast_acquire=True))

    async def call(self, command: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Run a command in its own task; when the caller is cancelled, abort the task.

        A separate task is needed because the driver's clean-up awaits, which the caller's cancelled
        scope would interrupt, and because the driver may swallow a cancellation on Python 3.11.
        """
        generation = fork.generation

        async def run(client: Any) -> T:  # noqa: ANN401 - one of the driver's
            fork.ensure_own(generation, "the call")
            if hasattr(client, "nodes_manager"):
                # A cluster client that does not know the slots sends calls to any node and is
                # redirected each time; after some redirections it closes connections that are in
                # use.
                await client.initialize()
                fork.ensure_own(generation, "the call")
            return await command(client)

        async with self._slots:
            if not self.clients:
                remedy = "open it again to continue"
                raise StoreUnavailableError(STORE, "closed while the call waited", remedy=remedy)
            fork.ensure_own(generation, "the call")
            task = self._calls.start(run(self.clients[0]))
            try:
                await asyncio.wait((task,))
            except BaseException:
                if generation == fork.generation:
                    await _abort(task)
                raise
        fork.ensure_own(generation, "the call")  # in a child, the reply is the parent's
        if task.cancelled():
            raise closed(STORE)
        return task.result()

    async def aclose(self) -> None:
        """Abort running calls, and close the connections."""
        clients, self.clients = self.clients, ()
        await _abort(*self._calls)
        for client in clients:
            with contextlib.suppress(RedisError, OSError):
                await _close(client)

    def silence(self) -> None:
        """Keep the connections from sending anything.  Runs first in a forked child."""
        silence(connection for client in self.clients for connection in _connections(client))


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
        # After an error a cluster client considers itself closed, and leaves these connections
        # open.
        await nodes.aclose("nodes_cache")
        await nodes.aclose("startup_nodes")


async def _abort(*calls: asyncio.Future[Any]) -> None:
    """Make the driver drop the connection, as it does if it is cancelled while a reply is pending.

    The calls are cancelled several times, because the driver may swallow a cancellation.
    """
    left = set(calls)
    with anyio.CancelScope(shield=True):
        for _ in range(CANCEL_ATTEMPTS):
            if not left:
                return
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_PAUSE)


class RedisLink(Link[RedisSession]):
    """The connections to the servers, which a store and its distributors share.

    They are on the user's client, or on clients created from a URL; see
    `aiocosid.stores._connection`.

    Attributes:
        name: the servers, without credentials.
        place: likewise, in errors; empty for the user's client.
        demands: the demands on the server.
        durability: the check of the server's settings.
        is_cluster: whether the server is a cluster, with keys in slots.
    """

    __slots__ = ("demands", "durability", "is_cluster", "name", "place")

    def __init__(self, client: RedisClient | StoreUrl, demands: Demands) -> None:
        self.demands: Demands = demands
        self.name: str = "on your client"
        self.place: str = ""
        pool = None
        connection: Connection[RedisSession]
        self.is_cluster: bool
        if isinstance(client, StoreUrl):
            self.name, self.place = f"{client.scheme} {client}", str(client)
            self.is_cluster = is_cluster(client)
            socket_timeout = client.options["socket_timeout"]

            connection = OwnedConnection(
                "the Redis connection",
                connect=partial(RedisSession.of_url, client),
                disconnect=RedisSession.aclose,
                silence=RedisSession.silence,
            )
        else:
            # A synchronous client, which has no aclose, would block the loop.
            needed = "execute_command", "aclose"
            if not all(callable(getattr(client, name, None)) for name in needed):
                rule = "must be a client of redis.asyncio"
                raise InvalidArgumentError("client", type(client), rule)
            pool = _pool_of(client)
            self.is_cluster = hasattr(client, "nodes_manager")
            socket_timeout = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
            session = RedisSession(client, slots=_slots_on(client))
            connection = BorrowedConnection("the Redis client", session)
        super().__init__(connection)
        self.durability: DurabilityCheck = DurabilityCheck(demands.durability, pool)
        wait = demands.replica_timeout
        if demands.replicas and socket_timeout and wait >= socket_timeout:
            rule = f"must be less than socket_timeout, {socket_timeout:g} s, which would end it"
            raise InvalidArgumentError("replica_timeout", wait, rule)

    async def run(
        self,
        script: Script,
        keys: tuple[bytes, ...],
        *arguments: bytes | int,
        counter: str = "",
        grants: Grants | None = None,
    ) -> Any:  # noqa: ANN401 - the driver's
        """Run a script with `call`; errors name the counter and the first key.

        Args:
            script: the script.
            keys: its keys.
            *arguments: its further arguments.
            counter: the counter's ``{namespace}.{name}``, for errors.
            grants: given if the script grants something: then the settings are checked and replicas
                must confirm, as demanded.
        """

        async def ask(client: Any) -> Any:  # noqa: ANN401 - the driver's
            if grants is not None and grants.check.is_due:
                grants.check.judge(STORE, await grants.durability_of(client, keys[0]))
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
        """Run ``command(client)``; after a cancellation its connection is never used again.

        Args:
            command: the function to run.
            may_last: whether it may take longer than `CALL_TIMEOUT`.
            counter: the counter's ``{namespace}.{name}``, for errors.
            key: the key, for errors.

        Raises:
            StoreUnavailableError: the command took longer, or the server cannot be reached.
            StoreError: the server refuses.
            IdOverflowError: the counter would pass 2^63-1.
            CorruptCounterError: the key does not hold a counter.
            ForkedError: the connections belong to the parent process.
            WrongLoopError: the connections are in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        seconds = None if may_last else CALL_TIMEOUT
        translated = as_store_error(counter, key.decode(), self.place)
        with translated, anyio.move_on_after(seconds):
            session = await self._connection.ready()
            try:
                return await session.call(command)
            except ResponseError as exc:
                # The server has become a replica, and its name may resolve to another server by
                # now.  The driver recognises the word only at the beginning; servers before version
                # 7 send it later in the message.
                if session.clients and (isinstance(exc, ReadOnlyError) or "READONLY" in str(exc)):
                    await self._connection.aclose()
                raise
        raise StoreUnavailableError(STORE, f"no answer within {CALL_TIMEOUT:g} s")


_slots: WeakKeyDictionary[Any, anyio.Semaphore] = WeakKeyDictionary()


def _pool_of(client: Any) -> Any:  # noqa: ANN401 - the user's client
    return getattr(client, "connection_pool", client)


def _slots_on(client: Any) -> anyio.Semaphore:  # noqa: ANN401 - the user's client
    """Return the semaphore of a client's pool, shared by all its users.

    Calls wait for the semaphore and not for the pool: an exhausted pool raises or, on Python before
    3.13, may lose the wake-up of a cancelled waiter.
    """
    pool = _pool_of(client)
    if pool not in _slots:
        limit = getattr(pool, "max_connections", None)
        limit = limit or getattr(client, "connection_kwargs", {}).get("max_connections")
        at_once = min(limit or CALLS_AT_ONCE, CALLS_AT_ONCE)
        _slots[pool] = anyio.Semaphore(at_once, fast_acquire=True)
    return _slots[pool]


SENTINEL_TIMEOUT: Final = 0.5  # seconds; sentinels are asked one after the other

_NOT_THE_DRIVERS: Final = {
    *("username", "password", "sentinel_username", "sentinel_password", "service"),
    *("replicas", "replica_timeout", "durability"),
}


def is_cluster(url: StoreUrl) -> bool:
    """Return whether a URL names a cluster."""
    return "cluster" in url.scheme


def make_clients(url: StoreUrl) -> tuple[Any, ...]:
    """Return the client to use, followed by the others that must be closed.

    Nothing is sent yet.  Needs a running loop.
    """
    options = _options(url)
    if is_cluster(url):
        return (_cluster(url, options),)
    if "sentinel" in url.scheme:
        return _behind_sentinels(url, options)
    if not url.hosts:
        return (Redis(unix_socket_path=url.path, **options),)
    (host,) = url.hosts
    return (Redis(host=host.name, port=host.port, ssl=url.tls, **options),)


def _options(url: StoreUrl) -> dict[str, Any]:
    given = {name: each for name, each in url.options.items() if each is not None}
    user, password = (each or None for each in url.login or ("", ""))
    options: dict[str, Any] = {
        # The generator itself retries; the driver's retries would outlast the caller.
        "retry": Retry(NoBackoff(), 0),
        "credential_provider": _login(given.get("username", user), given.get("password", password)),
        **{name: each for name, each in given.items() if name not in _NOT_THE_DRIVERS},
    }
    if url.tls:
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")
    if url.hosts:
        options["socket_keepalive"] = True
    return options


def _login(username: str | None, password: str | None) -> UsernamePasswordCredentialProvider | None:
    # This uses a provider, because drivers before version 8 show a password in the client's repr,
    # which errors contain.
    if username is None and password is None:
        return None
    return UsernamePasswordCredentialProvider(username, password)


def _cluster(url: StoreUrl, options: dict[str, Any]) -> RedisCluster:
    options.pop("db", None)
    # Drivers before 8.1 lose a connection permanently if sending on it failed or was interrupted.
    options.setdefault("max_connections", 2**31)
    # The driver would resolve "localhost" itself, which blocks the loop.
    nodes = [
        ClusterNode("127.0.0.1" if host == "localhost" else host, port) for host, port in url.hosts
    ]
    # With 0, a moved slot is only recorded; by default the driver would close connections in use.
    return RedisCluster(startup_nodes=nodes, ssl=url.tls, reinitialize_steps=0, **options)


class _Sentinels(Sentinel):
    """Tells why no master was found: the driver says the same for all reasons."""

    store = STORE
    known = 0  # how often one of them has known the service, however its master is

    def check_master_state(self, state: dict[str, Any], service_name: str) -> bool:
        self.known += 1
        return bool(super().check_master_state(state, service_name))  # pyright: ignore[reportUnknownMemberType]

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        before = self.known
        try:
            return await super().discover_master(service_name)  # type: ignore[no-any-return]
        except MasterNotFoundError as exc:
            kind: type[StoreError]
            text, _, failures = str(exc).partition(" : ")
            if self.known > before:  # its master is down; whatever others say, that may end
                raise MasterNotFoundError(text) from None
            if any(word in failures for word in (*_AUTHENTICATION, *_REFUSALS)):
                kind, why = StoreAuthenticationError, "the sentinels refuse the login"
                remedy = "correct sentinel_username and sentinel_password in the URL"
            elif failures:
                kind, why = StoreUnavailableError, "a sentinel does not answer"
                remedy = (
                    "try again, and if the error persists, check that sentinels run on these hosts"
                )
            elif self.known:
                raise
            else:
                kind, why = StoreError, "no sentinel knows a service of this name"
                remedy = "correct the service, the first part of the URL's path"
            raise kind(self.store, f"{text}: {why}", remedy=remedy) from None


def _behind_sentinels(url: StoreUrl, options: dict[str, Any]) -> tuple[Any, ...]:
    sentinel_options = {
        name: each
        for name, each in options.items()
        if name.startswith("ssl_") or name in {"socket_keepalive", "protocol", "retry"}
    }
    sentinel_options |= dict.fromkeys(
        ("socket_timeout", "socket_connect_timeout"), SENTINEL_TIMEOUT
    )
    login = url.options["sentinel_username"], url.options["sentinel_password"]
    sentinel_options |= {"ssl": url.tls, "credential_provider": _login(*login)}
    hosts = [tuple(each) for each in url.hosts]
    sentinel: Any = _Sentinels(hosts, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
    sentinel.store = f"{STORE} {url}"
    client = sentinel.master_for(url.options["service"], ssl=url.tls, **options)
    return (client, *sentinel.sentinels)
