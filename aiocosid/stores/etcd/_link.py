"""The connections to a cluster, through aetcd on grpc: which member to ask, and how long to wait.

The driver's message classes are created at import, so they have no types.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakSet, WeakValueDictionary

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..._life import fork
from ..._life.clock import SYSTEM_CLOCK
from ..._life.loop import is_stray_cancellation
from ...errors import (
    ForkedError,
    InvalidArgumentError,
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    WrongLoopError,
)
from .._connection import (
    BorrowedConnection,
    Connection,
    Link,
    OwnedConnection,
    closed,
    fail_if_forked,
    translate_errors,
    untrusted,
)
from .._url import ETCD

try:
    grpc: Any = import_module("grpc")
    rpc: Any = import_module("aetcd.rpc")
    exceptions: Any = import_module("aetcd.exceptions")
except ModuleNotFoundError as _exc:
    raise MissingExtraError("etcd", extra="etcd") from _exc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

    from .._url import StoreUrl

__all__ = ("EtcdLink",)

Message: TypeAlias = Any
"""A driver object: a request or reply, a channel, or a client."""

STORE: Final = "etcd"

_OUTAGES: Final = {
    *("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "RESOURCE_EXHAUSTED"),
    "OUT_OF_RANGE",  # the listing was compacted between two pages
    *("UNKNOWN", "INTERNAL"),  # errors without an etcd code, e.g. "context deadline exceeded"
}
_REFUSALS: Final = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
_OF_LOGIN: Final = ("user name is empty", "authentication")
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"

LARGEST: Final = 64 << 20  # maximum bytes of a reply

_OPTIONS: Final = (
    # Each channel has its own connection; otherwise a new channel would reuse a broken one.
    ("grpc.use_local_subchannel_pool", 1),
    # The driver's default would delay reconnecting after an outage by up to 120 s.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", LARGEST),
)


class _Channels:
    """The open channels.  They need grpc's threads, which do not exist in a forked child.

    A child that still calls grpc hangs or crashes, even on new channels.
    """

    def __init__(self) -> None:
        self.open: WeakSet[Any] = WeakSet()
        self.is_broken = False
        fork.watch(self)

    def _forget(self) -> None:
        if self.open:
            self.is_broken = True
            fork.abandoned.append(tuple(self.open))


_channels: Final = _Channels()


def ensure_unforked() -> None:
    """Raise in a child that was forked while the parent had a connection.

    Raises:
        ForkedError: the driver does not work in this child.
    """
    if _channels.is_broken:
        remedy = (
            "fork before the first call, close first, or spawn: grpc cannot be used in this process"
        )
        raise ForkedError("the connection to etcd", remedy=remedy)


def channel_opener(url: StoreUrl) -> Callable[[int], Message]:
    """Read the files that a URL names; return a function that opens a channel to one member.

    The returned function sends nothing, and needs a running loop.
    """
    make = grpc.aio.insecure_channel
    if url.tls:
        files = (url.options[f"ssl_{name}"] for name in ("ca_certs", "keyfile", "certfile"))
        contents = [Path(file).read_bytes() if file else None for file in files]
        credentials = grpc.ssl_channel_credentials(*contents)
        make = partial(grpc.aio.secure_channel, credentials=credentials)

    def open_channel(index: int) -> Message:
        channel = make(str(url.hosts[index]), options=_OPTIONS)
        note_channel(channel)
        return channel

    return open_channel


def note_channel(channel: Message) -> None:
    """Track a channel while it exists: a process that is forked in that time cannot use grpc."""
    _channels.open.add(channel)


async def close_channel(channel: Message) -> None:
    """Close a channel; calls on it end at once."""
    try:
        await channel.close()
    finally:
        _channels.open.discard(channel)


def as_store_error(place: str = "") -> AbstractContextManager[None]:
    """Translate the driver's errors; let all others pass."""
    return translate_errors(_meaning, kind=BaseException, place=place)


def _meaning(exc: BaseException) -> StoreError | None:
    is_clients = isinstance(exc, exceptions.ClientError)  # raised while a user's client connects
    call = exc.__cause__ if is_clients else exc
    if isinstance(call, grpc.aio.AioRpcError):
        return _of_call(call)
    if isinstance(exc, grpc.aio.UsageError) or is_stray_cancellation(exc):
        return closed(STORE)
    if is_clients:
        return StoreUnavailableError(STORE, str(exc) or type(exc).__name__)
    if isinstance(exc, TimeoutError):
        return StoreUnavailableError(STORE, "no connection in time")
    return None


def _of_call(exc: Message) -> StoreError:
    code, text = exc.code().name, exc.details() or exc.code().name
    if _UNTRUSTED in text:
        return untrusted(STORE, text)
    if code in _OUTAGES:
        return StoreUnavailableError(STORE, text)
    if code in _REFUSALS or any(word in text for word in _OF_LOGIN):
        return StoreAuthenticationError(STORE, text)
    return StoreError(STORE, f"{code}: {text}")


def has_bad_token(exc: Message) -> bool:
    """Return whether the call was refused because the login has expired; it had no effect."""
    text = exc.details() or ""
    return "invalid auth token" in text or "revision of auth store is old" in text


PAGE: Final = 1000  # maximum number of keys in a reply
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0005, 0.1  # seconds to wait after a conflict over a key


class Stubs(NamedTuple):
    """The driver's stubs on one channel; they are expensive to create."""

    channel: Message
    kv: Message
    lease: Message


class Member:
    """One member of a cluster, for one attempt.

    Every read is linearizable, which is etcd's default.
    """

    __slots__ = ("_channel", "_conflicts", "_kv", "_lease", "_metadata", "_until")

    def __init__(self, stubs: Stubs, metadata: Sequence[tuple[str, str]], until: float) -> None:
        """Send requests on a channel.

        Args:
            stubs: the driver's stubs on that channel.
            metadata: the login's metadata.
            until: the deadline on the monotonic clock.
        """
        self._channel, self._kv, self._lease = stubs
        # With this header, a member that is partitioned from the others refuses at once instead of
        # not answering.
        self._metadata = (*metadata, ("hasleader", "true"))
        self._until = until
        self._conflicts = 0

    async def read_ranges(self, *ranges: Message) -> Message:
        """Read ranges at one moment; the reply's ``responses`` are in the same order."""
        return await self.write((), [rpc.RequestOp(request_range=each) for each in ranges])

    async def read(
        self, *keys: str, prefix: str = "", keys_only: bool = False
    ) -> tuple[Message, list[Message]]:
        """Read some keys, and all keys with a prefix, at one moment.

        Returns:
            The reply's header, and the keys that exist.
        """
        ranges = [span(key) for key in keys]
        if prefix:
            ranges.append(span(prefix, is_prefix=True, limit=PAGE, keys_only=keys_only))
        reply = await self.read_ranges(*ranges)
        found = [each for part in reply.responses for each in part.response_range.kvs]
        page = reply.responses[-1].response_range
        while page.more:
            ranges[-1].key, ranges[-1].revision = page.kvs[-1].key + b"\0", reply.header.revision
            page = await self._call(self._kv.Range, ranges[-1])
            found += page.kvs
        return reply.header, found

    async def write(
        self, compares: Sequence[Message], changes: Sequence[Message], *, else_read: str = ""
    ) -> Message:
        """Write if all comparisons hold, else read a key; the reply's ``succeeded`` says which.

        If the request is sent twice, the comparisons fail the second time.
        """
        looks = [rpc.RequestOp(request_range=span(else_read))] if else_read else ()
        request = rpc.TxnRequest(compare=compares, success=changes, failure=looks)
        return await self._call(self._kv.Txn, request)

    async def write_and_keep(
        self, compares: Sequence[Message], changes: Sequence[Message], lease: int
    ) -> tuple[Message, int]:
        """Do the same as `write`, and extend a lease in the same round trip.

        Returns:
            The reply, or None if the lease had ended and nothing was written; and the lease's
            length in seconds, 0 if the lease has ended since.
        """
        request = rpc.LeaseKeepAliveRequest(ID=lease)
        beat = self._lease.LeaseKeepAlive(
            iter((request,)), timeout=self._left(), metadata=self._metadata
        )
        try:
            reply = await self.write(compares, changes)
            kept = await beat.read()
        except grpc.aio.AioRpcError as exc:
            if exc.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return None, 0
        finally:
            beat.cancel()
        return reply, 0 if kept is grpc.aio.EOF else int(kept.TTL)

    async def grant(self, seconds: int) -> int:
        """Return a new lease of at least ``seconds``; it expires if it is not used."""
        reply = await self._call(self._lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=seconds))
        return int(reply.ID)

    async def remaining(self, lease: int) -> int:
        """Return the whole seconds that a lease has left; -1 if it has ended."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease)
        return int((await self._call(self._lease.LeaseTimeToLive, request)).TTL)

    async def version(self) -> str:
        """Return the version of this member."""
        status = rpc.MaintenanceStub(self._channel).Status
        return str((await self._call(status, rpc.StatusRequest())).version)

    async def pause(self) -> None:
        """Wait a moment after a conflict.

        Raises:
            StoreUnavailableError: the deadline of this call has passed.
        """
        if self._until <= SYSTEM_CLOCK.monotonic():
            raise StoreUnavailableError(
                STORE, "other clients change the same keys each time", remedy="try again"
            )
        longest = min(SHORTEST_PAUSE * 2**self._conflicts, LONGEST_PAUSE)
        self._conflicts += 1
        await SYSTEM_CLOCK.sleep(random.uniform(0, longest))  # noqa: S311 - no secret

    async def _call(self, method: Message, request: Message) -> Message:
        return await method(request, timeout=self._left(), metadata=self._metadata)

    def _left(self) -> float:
        return max(self._until - SYSTEM_CLOCK.monotonic(), 0.001)


def span(key: str, *, is_prefix: bool = False, **how: object) -> Message:
    """Return a request for a key, or for all keys with that prefix."""
    end = _span_end(key) if is_prefix else b""
    return rpc.RangeRequest(key=key.encode(), range_end=end, **how)


def unchanged(key: str, value: bytes | None) -> Message:
    """Return a comparison: the key has that value; None for a missing key."""
    if value is None:
        condition = {"target": rpc.Compare.MOD, "mod_revision": 0}
    else:
        condition = {"target": rpc.Compare.VALUE, "value": value}
    return rpc.Compare(key=key.encode(), result=rpc.Compare.EQUAL, **condition)


def existing(key: str) -> Message:
    """Return a comparison: the key exists, whatever its value."""
    return rpc.Compare(
        key=key.encode(), target=rpc.Compare.MOD, result=rpc.Compare.GREATER, mod_revision=0
    )


def unwritten(prefix: str, revision: int) -> Message:
    """Return a comparison: no key with that prefix was written after that revision."""
    return rpc.Compare(
        key=prefix.encode(),
        range_end=_span_end(prefix),
        target=rpc.Compare.MOD,
        result=rpc.Compare.LESS,
        mod_revision=revision + 1,
    )


def put(key: str, value: bytes, lease: int = 0) -> Message:
    """Return an operation: write a key; if ``lease`` is not 0, the key is removed when it ends."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value, lease=lease))


def remove(key: str, *, is_prefix: bool = False) -> Message:
    """Return an operation: remove a key, or all keys with that prefix."""
    end = _span_end(key) if is_prefix else b""
    deletion = rpc.DeleteRangeRequest(key=key.encode(), range_end=end)
    return rpc.RequestOp(request_delete_range=deletion)


def _span_end(prefix: str) -> bytes:
    """Return the end of the range of keys with a prefix, which ends with ``/`` or a dot."""
    return f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}".encode()


TIMEOUT: Final = float(ETCD.options["timeout"].default)
"""Seconds for a call on a client."""

T = TypeVar("T")


class _Client:
    """The member that a user's client is connected to."""

    def __init__(self, client: Message) -> None:
        self._client = client

    async def call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        client, loop = self._client, asyncio.get_running_loop()
        if getattr(client.channel, "_loop", loop) is not loop:
            raise WrongLoopError("the etcd client")
        until = SYSTEM_CLOCK.monotonic() + TIMEOUT
        with anyio.move_on_after(TIMEOUT) as scope:
            await _heard(client.connect())
        if scope.cancelled_caught:
            raise StoreUnavailableError(STORE, f"no connection within {TIMEOUT:g} s")
        note_channel(client.channel)
        stubs = Stubs(client.channel, client.kvstub, client.leasestub)
        return await ask(Member(stubs, tuple(client.metadata or ()), until))


class _Session:
    """Channels to all members on one loop, and the login for them."""

    def __init__(self, url: StoreUrl, open_channel: Callable[[int], Message]) -> None:
        self._url = url
        self._open_channel = open_channel
        self._stubs: dict[int, Stubs] = {}  # by the member's index in the URL
        self._next = 0  # the index of the member to ask next
        self._metadata: tuple[tuple[str, str], ...] | None = None
        self._is_closed = False

    async def call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        end = SYSTEM_CLOCK.monotonic() + self._url.options["timeout"]
        for left in range(len(self._url.hosts), 0, -1):
            place, now = self._next, SYSTEM_CLOCK.monotonic()
            if self._is_closed:
                raise closed(STORE)
            if place not in self._stubs:
                channel = self._open_channel(place)
                self._stubs[place] = Stubs(channel, rpc.KVStub(channel), rpc.LeaseStub(channel))
            stubs = self._stubs[place]
            try:
                return await self._ask(stubs, ask, now + (end - now) / left)
            except grpc.aio.AioRpcError as exc:
                if not self._is_away(exc, place, stubs) or left == 1:
                    raise
        raise AssertionError("a URL names a member")

    async def _ask(self, stubs: Stubs, ask: Callable[[Member], Awaitable[T]], until: float) -> T:
        while True:
            had_login = self._metadata is not None
            if self._metadata is None:
                self._metadata = await self._login(stubs.channel, until)
            try:
                return await ask(Member(stubs, self._metadata, until))
            except grpc.aio.AioRpcError as exc:
                if not (had_login and has_bad_token(exc)):
                    raise
                self._metadata = None  # the login has expired: log in again

    async def _login(self, channel: Message, until: float) -> tuple[tuple[str, str], ...]:
        if self._url.login is None:
            return ()
        name, password = self._url.login
        request = rpc.AuthenticateRequest(name=name, password=password)
        timeout = max(until - SYSTEM_CLOCK.monotonic(), 0.001)
        reply = await rpc.AuthStub(channel).Authenticate(request, timeout=timeout)
        return (("token", reply.token),)

    def _is_away(self, exc: Message, place: int, stubs: Stubs) -> bool:
        """Switch to the next member if this one cannot be reached."""
        code = exc.code()
        if code not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
            return False
        if self._next == place:  # otherwise another call has already switched
            self._next = (place + 1) % len(self._url.hosts)
        is_silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
        if is_silent and self._stubs.get(place) is stubs:
            # The connection may be broken without an error.  The channel closes itself after its
            # last call.
            del self._stubs[place]
        return True

    async def aclose(self) -> None:
        """End running calls, and close the channels."""
        self._is_closed = True
        opened, self._stubs = self._stubs, {}
        for stubs in opened.values():
            await close_channel(stubs.channel)


async def _heard(call: Awaitable[T]) -> T:
    """Await the driver, which raises its own CancelledError when it is cancelled.

    An anyio cancel scope recognises only the error that it raised itself, so that error is raised
    again.
    """
    try:
        return await call
    except asyncio.CancelledError:
        await checkpoint_if_cancelled()
        raise


class EtcdLink(Link[Any]):
    """Connections to a cluster, on a user's client or on channels created from a URL.

    Attributes:
        name: the members, without credentials.
    """

    __slots__ = ("_lines", "name")

    def __init__(self, name: str, connection: Connection[_Session] | Connection[_Client]) -> None:
        super().__init__(connection)
        self.name: str = name
        self._lines: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def by_client(cls, client: Message) -> EtcdLink:
        """Return a link on the user's client, which is never closed, and never used after a fork.

        Raises:
            InvalidArgumentError: ``client`` is not an ``aetcd.Client``.
        """
        if not (callable(getattr(client, "connect", None)) and hasattr(client, "leasestub")):
            raise InvalidArgumentError("client", type(client), "must be an aetcd.Client")  # pyright: ignore[reportUnknownArgumentType]
        return cls("on a client", BorrowedConnection("the etcd client", _Client(client)))

    @classmethod
    def by_url(cls, url: StoreUrl) -> EtcdLink:
        """Return a link on its own channels, opened on first use and again after closing."""
        opener = channel_opener(url)

        async def connect() -> _Session:
            return _Session(url, opener)

        connection = OwnedConnection[_Session](
            "the etcd connection", connect=connect, disconnect=_Session.aclose
        )
        return cls(str(url), connection)

    async def call(self, ask: Callable[[Member], Awaitable[T]], *, key: str = "") -> T:
        """Send requests to a member, or to another one if it cannot be reached.

        ``ask`` may have taken effect on a member that did not answer, and is then called again, so
        it must be safe to repeat.

        Args:
            ask: makes the calls on a member.
            key: the key that ``ask`` changes; calls of this link with the same key run one after
                another.  If it is empty, the call does not wait for others.

        Raises:
            StoreUnavailableError: no member answers in time.
            ForkedError: the connections belong to the parent process.
            WrongLoopError: the connections are in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
            StoreError: the cluster refuses.
        """
        self._ensure_own()
        with fail_if_forked(), as_store_error(self.name):
            session = await self._connection.ready()
            place = asyncio.get_running_loop(), key
            line = self._lines.setdefault(place, asyncio.Lock()) if key else nullcontext()
            async with line:
                self._ensure_own()  # the process may have forked while this call waited
                return await _heard(session.call(ask))

    def _ensure_own(self) -> None:
        self._connection.ensure_usable()
        ensure_unforked()  # neither own channels nor the child's clients work then

    async def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""
        await super().aopen()
        ensure_unforked()
