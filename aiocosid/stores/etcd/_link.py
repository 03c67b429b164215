"""The connections to a cluster: selects the member to ask, and bounds each call."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..._life.clock import SYSTEM_CLOCK
from ..._life.fork import NotCopyable
from ...errors import InvalidArgumentError, StoreUnavailableError, WrongLoopError
from .._connection import BorrowedConnection, Connection, OwnedConnection, closed, fail_if_forked
from .._url_specs import ETCD
from ._driver import (
    STORE,
    Member,
    Stubs,
    as_store_error,
    channel_opener,
    close_channel,
    ensure_unforked,
    grpc,
    has_bad_token,
    note_channel,
    rpc,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._url import StoreUrl
    from ._driver import Message

__all__ = ("EtcdLink",)

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
    """Channels to all members on one loop, and the login there."""

    def __init__(self, url: StoreUrl, open_channel: Callable[[int], Message]) -> None:
        self._url = url
        self._open_channel = open_channel
        self._stubs: dict[int, Stubs] = {}  # by the member's index in the URL
        self._next = 0  # the index of the member to ask
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
                self._metadata = None  # it has expired: log in again

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
        if self._next == place:  # otherwise another call has switched already
            self._next = (place + 1) % len(self._url.hosts)
        is_silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
        if is_silent and self._stubs.get(place) is stubs:
            # The connection may be broken without an error.  The channel closes itself after the
            # last call on it.
            del self._stubs[place]
        return True

    async def aclose(self) -> None:
        """End calls under way, and close the channels."""
        self._is_closed = True
        opened, self._stubs = self._stubs, {}
        for stubs in opened.values():
            await close_channel(stubs.channel)


async def _heard(call: Awaitable[T]) -> T:
    """Await the driver, which raises its own CancelledError when it is cancelled.

    A cancel scope of anyio recognises only the error that it has thrown in; so throw that one
    again.
    """
    try:
        return await call
    except asyncio.CancelledError:
        await checkpoint_if_cancelled()
        raise


class EtcdLink(NotCopyable):
    """Connections to a cluster, on a user's client or on channels created from a URL.

    Attributes:
        name: the members, without credentials.
    """

    __slots__ = ("__weakref__", "_connection", "_lines", "name")

    def __init__(self, name: str, connection: Connection[_Session] | Connection[_Client]) -> None:
        self.name: str = name
        self._connection = connection
        self._lines: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def by_client(cls, client: Message) -> EtcdLink:
        """Return one on the user's client, which is never closed here, nor used after a fork.

        Raises:
            InvalidArgumentError: it is a client of another kind.
        """
        if not (callable(getattr(client, "connect", None)) and hasattr(client, "leasestub")):
            raise InvalidArgumentError("client", type(client), expected="an aetcd.Client")  # pyright: ignore[reportUnknownArgumentType]
        return cls("on a client", BorrowedConnection("the etcd client", _Client(client)))

    @classmethod
    def by_url(cls, url: StoreUrl) -> EtcdLink:
        """Return one on channels of its own: opened on first use, and again after closing."""
        opener = channel_opener(url)

        async def connect() -> _Session:
            return _Session(url, opener)

        connection = OwnedConnection[_Session](
            "the etcd connection", connect=connect, disconnect=_Session.aclose
        )
        return cls(str(url), connection)

    async def call(self, ask: Callable[[Member], Awaitable[T]], *, key: str = "") -> T:
        """Ask a member, and another one if it cannot be reached.

        ``ask`` may have taken effect on a member that did not answer, and is called again; so it
        has to be safe to repeat.

        Args:
            ask: the calls to make on a member.
            key: the key that ``ask`` changes; calls of this link with the same key run one after
                another.  Empty: it waits for no other call.

        Raises:
            StoreUnavailableError: no member answers in time.
            ForkedError: the connections are the parent's.
            WrongLoopError: they are in use on another event loop.
            UnsupportedRuntimeError: the loop is not asyncio's.
            StoreError: the cluster refuses.
        """
        self._ensure_own()
        with fail_if_forked(), as_store_error():
            session = await self._connection.ready()
            place = asyncio.get_running_loop(), key
            line = self._lines.setdefault(place, asyncio.Lock()) if key else nullcontext()
            async with line:
                self._ensure_own()  # the process may have forked while this call waited
                return await _heard(session.call(ask))

    def _ensure_own(self) -> None:
        self._connection.ensure_usable()
        ensure_unforked()  # neither own channels nor a client of the child work then

    async def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""
        await self._connection.aopen()
        ensure_unforked()

    async def aclose(self) -> None:
        """Close the channels that were opened here; waiting calls fail."""
        await self._connection.aclose()
