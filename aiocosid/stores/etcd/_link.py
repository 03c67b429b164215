"""The way to a cluster: whose the client is, on which loop, and which member is asked."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

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
from ._driver import close_channel, ensure_unforked, grpc, note_channel, open_channel, rpc
from ._errors import STORE, has_bad_token, translated
from ._server import Member, Stubs
from ._url import TIMEOUT, Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...abc import Clock

    Opener = Callable[[Target, str], Any]  # returns a channel to the host

__all__ = ("BorrowedLink", "EtcdClient", "Link", "OwnedLink")

CLOSE_TIMEOUT: Final = 2.0  # seconds that closing may take

T = TypeVar("T")


class EtcdClient(Protocol):
    """What is needed of a client: aetcd's has it."""

    channel: Any
    kvstub: Any
    leasestub: Any
    metadata: Any

    def connect(self) -> Awaitable[None]:
        """Open the connection, if there is none."""
        raise NotImplementedError


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedRuntimeError("the driver of etcd runs on asyncio only") from None


async def _heard(call: Awaitable[T]) -> T:
    """Await the driver, which raises a CancelledError of its own when it is cancelled.

    A cancel scope of anyio knows only the one that it has thrown in: it throws it in again.
    """
    try:
        return await call
    except asyncio.CancelledError:
        await checkpoint_if_cancelled()
        raise


class Link(Uncopied, ABC):
    """A way to a cluster that stores and distributors share."""

    __slots__ = ("__weakref__", "_born", "_closings", "_lines")

    def __init__(self) -> None:
        self._born = _fork.generation
        self._closings = 0
        self._lines: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    async def call_in_turn(self, about: bytes, ask: Callable[[Member], Awaitable[T]]) -> T:
        """Do as `call`, after all who are about to change the same here: they would not both."""
        self.ensure_usable()
        place = asyncio.get_running_loop(), about
        line, closings = self._lines.setdefault(place, asyncio.Lock()), self._closings
        async with line:
            if closings != self._closings:
                raise StoreUnavailableError(STORE, "closed while the call waited")
            return await self.call(ask)

    async def call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        """Ask a member, and if it cannot be reached another one.

        ``ask`` may have taken effect on a member that did not answer, and is called again all the
        same: it has to be safe to repeat.

        Raises:
            StoreUnavailableError: no member answers in time.
            ForkedError: the connections are the parent's.
            UnsupportedRuntimeError: the loop is not asyncio's.
            StoreError: the cluster refuses.
        """
        generation = _fork.generation
        self.ensure_usable()
        try:
            with translated():
                return await _heard(self._call(ask))
        finally:
            if generation != _fork.generation:
                raise ForkedError("the call")  # the reply was, or will be, the parent's

    @abstractmethod
    async def _call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        """Ask within the time that a call has."""

    @abstractmethod
    def ensure_usable(self) -> None:
        """Raise as `call` does if nothing can be asked here and now."""

    @abstractmethod
    def aopen(self) -> None:
        """Get ready in this process and on this loop, or raise as `call` does."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what was opened here."""


class BorrowedLink(Link):
    """On the user's client, which stays open, and stays the parent's after a fork."""

    __slots__ = ("_client",)

    def __init__(self, client: EtcdClient) -> None:
        if not (callable(getattr(client, "connect", None)) and hasattr(client, "leasestub")):
            raise InvalidArgumentError("client", type(client), expected="an aetcd.Client")
        super().__init__()
        self._client = client

    def __str__(self) -> str:
        return "on a client"

    async def _call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        client = self._client
        until = SYSTEM_CLOCK.monotonic() + TIMEOUT
        with anyio.move_on_after(TIMEOUT) as scope:
            await _heard(client.connect())
        if scope.cancelled_caught:
            raise StoreUnavailableError(STORE, f"no connection within {TIMEOUT:g} s")
        note_channel(client.channel)
        stubs = Stubs(client.kvstub, client.leasestub)
        return await ask(Member(stubs, tuple(client.metadata or ()), until))

    def ensure_usable(self) -> None:
        loop = _running_loop()
        if self._born != _fork.generation:
            remedy = "make it anew on a client of this process"
            raise ForkedError("the etcd client", remedy=remedy)
        ensure_unforked()  # a client that was made in the child
        if getattr(self._client.channel, "_loop", loop) is not loop:
            raise WrongLoopError("the etcd client")

    def aopen(self) -> None:
        self.ensure_usable()

    async def aclose(self) -> None:
        """Leave the user's client open."""


class _Channel(NamedTuple):
    """A connection to one member.

    Attributes:
        made: the driver's own.
        stubs: callers on it.
    """

    made: Any
    stubs: Stubs


class _Session:
    """Channels to the members on one loop, and the login there.

    Attributes:
        loop: the loop.
    """

    __slots__ = (
        *("_channels", "_clock", "_closing", "_is_closed", "_metadata", "_next", "_opener"),
        *("_target", "loop"),
    )

    def __init__(
        self, target: Target, loop: asyncio.AbstractEventLoop, opener: Opener, clock: Clock
    ) -> None:
        self.loop = loop
        self._target = target
        self._opener = opener
        self._clock = clock
        self._channels: dict[int, _Channel] = {}  # by the member's place in the URL
        self._next = 0  # the member to be asked
        self._metadata: tuple[tuple[str, str], ...] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        end = self._clock.monotonic() + self._target.timeout
        for left in range(len(self._target.hosts), 0, -1):
            place, now = self._next, self._clock.monotonic()
            channel = self._channel(place)
            try:
                return await self._ask(channel, ask, now + (end - now) / left)
            except grpc.aio.AioRpcError as exc:
                if not self._is_away(exc, place, channel) or left == 1:
                    raise
        raise AssertionError("a URL names a member")

    async def _ask(
        self, channel: _Channel, ask: Callable[[Member], Awaitable[T]], until: float
    ) -> T:
        while True:
            had_login = self._metadata is not None
            if self._metadata is None:
                self._metadata = await self._login(channel, until)
            try:
                return await ask(Member(channel.stubs, self._metadata, until, self._clock))
            except grpc.aio.AioRpcError as exc:
                if not (had_login and has_bad_token(exc)):
                    raise
                self._metadata = None  # it has ended: once more

    async def _login(self, channel: _Channel, until: float) -> tuple[tuple[str, str], ...]:
        if self._target.login is None:
            return ()
        name, password = self._target.login
        request = rpc.AuthenticateRequest(name=name, password=password)
        timeout = max(until - self._clock.monotonic(), 0.001)
        reply = await rpc.AuthStub(channel.made).Authenticate(request, timeout=timeout)
        return (("token", reply.token),)

    def _channel(self, place: int) -> _Channel:
        if self._is_closed:
            raise StoreUnavailableError(STORE, "closed while the call was under way")
        if place not in self._channels:
            made = self._opener(self._target, self._target.hosts[place])
            stubs = Stubs(rpc.KVStub(made), rpc.LeaseStub(made))
            self._channels[place] = _Channel(made, stubs)
        return self._channels[place]

    def _is_away(self, exc: Any, place: int, channel: _Channel) -> bool:  # noqa: ANN401 - the driver's
        """Turn to the next member if this one cannot be reached."""
        code = exc.code()
        if code not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
            return False
        if self._next == place:  # else another call has turned already
            self._next = (place + 1) % len(self._target.hosts)
        is_silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
        if is_silent and self._channels.get(place) is channel:
            # The connection may be dead without anybody having said so.
            del self._channels[place]
            task = asyncio.create_task(close_channel(channel.made, self._target.timeout))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return True

    async def aclose(self) -> None:
        """End what is under way and close the channels; bounded, also in a cancelled scope."""
        self._is_closed = True
        channels, self._channels = self._channels, {}
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            for channel in channels.values():
                await close_channel(channel.made)
            if self._closing:
                await asyncio.wait(self._closing)


class OwnedLink(Link):
    """On channels made from a URL: connected on first use, and anew after closing."""

    __slots__ = ("_clock", "_current", "_opener", "target")

    def __init__(
        self, url: str, *, opener: Opener = open_channel, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__()
        self.target = Target.of(url)
        self._opener = opener
        self._clock = clock
        self._current: _Session | None = None
        _fork.watch(self)

    def __str__(self) -> str:
        return str(self.target)

    async def _call(self, ask: Callable[[Member], Awaitable[T]]) -> T:
        if self._current is None:
            loop = asyncio.get_running_loop()
            self._current = _Session(self.target, loop, self._opener, self._clock)
        return await self._current.call(ask)

    def ensure_usable(self) -> None:
        _running_loop()
        if self._born != _fork.generation:
            raise ForkedError("the etcd connection")
        ensure_unforked()
        self._check_loop()

    def _check_loop(self) -> None:
        """Forget channels of a loop that is gone; refuse to share those of another one."""
        if self._current is not None and self._current.loop is not asyncio.get_running_loop():
            if not is_dead(self._current.loop):
                raise WrongLoopError("the etcd connection")
            self._current = None

    def aopen(self) -> None:
        _running_loop()
        ensure_unforked()
        self._born = _fork.generation

    async def aclose(self) -> None:
        """Close the channels; the next call opens new ones."""
        if self._born == _fork.generation:
            self._check_loop()
            self._closings += 1
            session, self._current = self._current, None
            if session is not None:
                await session.aclose()

    def _forget(self) -> None:
        # Kept, and not closed: the channels are the parent's.
        if self._current is not None:
            _fork.abandoned.append(self._current)
            self._current = None
