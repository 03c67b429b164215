"""The way to a proxy: whose the client is, on which loop, and how a call on it ends."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx

from ... import _fork
from ..._loop import is_dead
from ..._uncopied import Uncopied
from ...errors import (
    ForkedError,
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from ._errors import STORE, Answer, translated
from ._url import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ("BorrowedLink", "Link", "OwnedLink")

CALL_TIMEOUT: Final = 30.0  # seconds; the last resort of callers that set no deadline themselves
# Below the 2 s after which a generator gives a call up by default, so that it hears the reason.
CONNECT_TIMEOUT: Final = 1.0  # seconds
REPLY_TIMEOUT: Final = 1.5  # seconds
CALLS_AT_ONCE: Final = 32
CLOSE_TIMEOUT: Final = 2.0  # seconds
MOST_BYTES: Final = 1 << 16  # of a body: CosId's own have a few dozen

HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


class Session:
    """One client on one loop, and our calls that are under way on it."""

    __slots__ = ("_calls", "_turns", "client")

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self._turns = anyio.Semaphore(CALLS_AT_ONCE, fast_acquire=True)
        self._calls: set[asyncio.Task[Answer]] = set()

    async def ask(self, method: str, path: str, query: Mapping[str, str]) -> Answer:
        """Ask in a task of its own, which goes on when the caller is cancelled.

        The driver's pool loses a connection for good when it is cancelled at the wrong await, and
        HTTP needs no cut: it tells whose an answer is.
        """
        generation = _fork.generation
        await self._turns.acquire()
        _ensure_own(generation)
        task = asyncio.create_task(_exchange(self.client, method, path, query))
        self._calls.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait((task,))
        _ensure_own(generation)  # the answer was, or will be, the parent's
        if task.cancelled():
            raise StoreUnavailableError(STORE, "closed while the call was under way")
        return task.result()

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        self._calls.discard(task)
        self._turns.release()
        if not task.cancelled():
            task.exception()  # of one whose caller has gone nobody else asks

    async def aclose(self) -> None:
        """End what is under way and close the client; bounded, also in a cancelled scope."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            if calls := tuple(self._calls):
                for task in calls:
                    task.cancel()
                await asyncio.wait(calls)
            with suppress(httpx.HTTPError, OSError):
                await self.client.aclose()


def _ensure_own(generation: int) -> None:
    if generation != _fork.generation:
        raise ForkedError("the call")


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedRuntimeError("the store of CosId proxies runs on asyncio only") from None


class Link(Uncopied, ABC):
    """A way to a proxy that a store and its distributors share."""

    __slots__ = ("__weakref__", "_born")

    def __init__(self) -> None:
        self._born = _fork.generation

    async def ask(self, method: str, path: str, query: Mapping[str, str]) -> Answer:
        """Send one request, once, and return all of its answer.

        Cancelled, it may go on, and its answer is dropped.

        Raises:
            StoreUnavailableError: the proxy cannot be reached, or is silent; it may have acted.
            StoreError: what answers is no CosId proxy, or not to be trusted.
            ForkedError: the connections are the parent's.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        with translated():
            return await self._session().ask(method, path, query)

    @abstractmethod
    def _session(self) -> Session:
        """Return what to call on, now and here."""

    @abstractmethod
    def aopen(self) -> None:
        """Get ready in this process, or raise as `ask` does."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what was opened here."""


async def _exchange(
    client: httpx.AsyncClient, method: str, path: str, query: Mapping[str, str]
) -> Answer:
    request = client.build_request(method, path, params=dict(query), headers=HEADERS)
    with anyio.move_on_after(CALL_TIMEOUT):
        # Followed, a redirect might repeat a request that was done.
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            return Answer(response.status_code, await _body(response))
        finally:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await response.aclose()
    raise StoreUnavailableError(STORE, f"no answer within {CALL_TIMEOUT:g} s")


async def _body(response: httpx.Response) -> bytes:
    """Read a body as it comes: what is packed may be far longer than it looks."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise StoreError(STORE, "it packs its answers although that was not asked for")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MOST_BYTES:
            raise StoreError(STORE, f"its answer is longer than {MOST_BYTES} bytes")
    return bytes(body)


class BorrowedLink(Link):
    """On the user's client, which stays open, and stays the parent's after a fork."""

    __slots__ = ("_loop", "_made")

    def __init__(self, client: httpx.AsyncClient) -> None:
        _check_client(client)
        super().__init__()
        self._made = Session(client)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __str__(self) -> str:
        address = self._made.client.base_url
        return str(address.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/")

    def _session(self) -> Session:
        self.aopen()
        if self._made.client.is_closed:
            raise StoreError(STORE, "the httpx client that it was given is closed")
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                self._made = Session(self._made.client)  # calls on the dead loop never end
            self._loop = loop
        return self._made

    def aopen(self) -> None:
        loop = _running_loop()
        if self._born != _fork.generation:
            remedy = "make it anew on a client of this process"
            raise ForkedError("the httpx client", remedy=remedy)
        if self._loop is not None and self._loop is not loop and not is_dead(self._loop):
            raise WrongLoopError("the httpx client")

    async def aclose(self) -> None:
        """Leave the user's client open."""


def _check_client(client: object) -> None:
    """Raise unless it is one that does not block the loop, and knows where the proxy is."""
    if not isinstance(client, httpx.AsyncClient):
        raise InvalidArgumentError("client", type(client), expected="an httpx.AsyncClient")
    if not client.base_url.host:
        expected = "an httpx.AsyncClient with a base_url, such as http://host:8688"
        raise InvalidArgumentError("client", client, expected=expected)


class OwnedLink(Link):
    """On a client made from a URL: connected on first use, and anew after closing or a fork."""

    __slots__ = ("_current", "_loop", "_target")

    def __init__(self, url: str) -> None:
        super().__init__()
        self._target = Target.of(url)
        self._current: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        _fork.watch(self)

    def __str__(self) -> str:
        return str(self._target)

    def _session(self) -> Session:
        loop = _running_loop()
        if self._born != _fork.generation:
            raise ForkedError("the connection to the CosId proxy")
        self._check_loop()
        if self._current is None:
            self._loop, self._current = loop, Session(_client_of(self._target))
        return self._current

    def _check_loop(self) -> None:
        """Forget connections of a loop that is gone; refuse to share those of another one."""
        if self._current is not None and self._loop is not asyncio.get_running_loop():
            if not is_dead(self._loop):
                raise WrongLoopError("the connection to the CosId proxy")
            self._current = None

    def aopen(self) -> None:
        _running_loop()
        self._born = _fork.generation

    async def aclose(self) -> None:
        """Close the connections; calls under way fail, and the next one opens new ones."""
        if self._born == _fork.generation:
            self._check_loop()
            session, self._current = self._current, None
            if session is not None:
                await session.aclose()

    def _forget(self) -> None:
        # Kept, and not closed: the sockets are the parent's, and so is what watches them.
        if self._current is not None:
            _fork.silence(_sockets(self._current.client))
            _fork.abandoned.append(self._current)
            self._current = None


def _client_of(target: Target) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=target.base,
        auth=target.login,
        # What is in the environment for other programs is not for this one: a proxy on the way may
        # send a request twice.
        trust_env=False,
        verify=target.base.startswith("https:"),
        timeout=httpx.Timeout(REPLY_TIMEOUT, connect=CONNECT_TIMEOUT, pool=None),
        limits=httpx.Limits(max_connections=CALLS_AT_ONCE),
    )


def _sockets(client: httpx.AsyncClient) -> Iterator[Any]:
    pool = getattr(client._transport, "_pool", None)
    for connection in getattr(pool, "_connections", ()):
        stream = getattr(getattr(connection, "_connection", None), "_network_stream", None)
        if stream is not None:
            yield stream.get_extra_info("socket")
