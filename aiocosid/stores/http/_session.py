"""HTTP to one server: a client on one loop, bounded calls, and the meaning of their errors."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from ..._life import fork
from ...errors import (
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from .._connection import (
    CALL_TIMEOUT,
    CLOSE_TIMEOUT,
    CallTasks,
    causes_of,
    closed,
    fail_if_forked,
    untrusted,
)

try:
    import httpx as httpx  # noqa: PLC0414 - re-exported
except ModuleNotFoundError as _exc:
    raise MissingExtraError("httpx", extra="http") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = (
    "CALLS_AT_ONCE",
    "HttpReply",
    "HttpSession",
    "as_store_error",
    "httpx",
    "make_client",
    "refusal_of",
)

# These are below the default 2 s timeout of a generator's call, so that the generator gets the
# reason.
CONNECT_TIMEOUT: Final = 1.0  # seconds
REPLY_TIMEOUT: Final = 1.5  # seconds
CALLS_AT_ONCE: Final = 32

# A gateway answers with one of these if it cannot reach the server.  Another server may then be
# asked; if the first request took effect after all, this costs a range.
GATEWAY_FAILS: Final = {502, 503, 504}
FORBIDDEN: Final = {401, 403, 407}
LATER: Final = {408, 425, 429}
SERVER_FAILS: Final = 500
NOTHING_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout)

HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


def make_client(base_url: str, **options: Any) -> httpx.AsyncClient:  # noqa: ANN401 - httpx's
    """Return a new client.

    Args:
        base_url: ``http://host:port``, with a path if there is one.
        **options: further httpx options.
    """
    return httpx.AsyncClient(
        base_url=base_url,
        # The environment's proxy settings are ignored: a proxy may send a request twice.
        trust_env=False,
        timeout=httpx.Timeout(REPLY_TIMEOUT, connect=CONNECT_TIMEOUT, pool=None),
        limits=httpx.Limits(max_connections=CALLS_AT_ONCE),
        **options,
    )


class HttpReply(NamedTuple):
    """A server's answer.

    Attributes:
        status: the HTTP status.
        body: the whole body.
    """

    status: int
    body: bytes


class HttpSession:
    """One client on one loop, and the calls that are running on it."""

    __slots__ = (
        *("_calls", "_current", "_is_closed", "_most_bytes", "_places", "_store", "_slots"),
        "client",
    )

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        store: str,
        most_bytes: int,
        places: Sequence[str] = ("",),
    ) -> None:
        """Use a client.

        Args:
            client: the client.
            store: the server's name in messages.
            most_bytes: the maximum size of an answer in bytes.
            places: the URLs of several servers of one store; by default the client's own.
        """
        self.client = client
        self._places = places
        self._current: int = 0
        self._store, self._most_bytes = store, most_bytes
        self._slots = anyio.Semaphore(CALLS_AT_ONCE, fast_acquire=True)
        self._calls = CallTasks()
        self._is_closed = False

    async def ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, content: bytes = b""
    ) -> HttpReply:
        """Send a request in its own task, which continues if the caller is cancelled.

        The driver's pool permanently loses a connection that is cancelled at the wrong await.  HTTP
        does not need the cancellation, because each answer belongs to one request.
        """
        if self.client.is_closed:
            reason = "the httpx client that it was given is closed"
            raise StoreError(self._store, reason, remedy="give it an open one")
        with fail_if_forked():
            await self._slots.acquire()
        if self._is_closed:  # closed during the wait; the client may still be open
            self._slots.release()
            raise closed(self._store)
        call = self._exchange(method, path, query, content)
        task = self._calls.start(call, on_end=self._slots.release)
        with fail_if_forked():
            await asyncio.wait((task,))
        if task.cancelled():
            raise closed(self._store)
        return task.result()

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, content: bytes
    ) -> HttpReply:
        """Ask the server that answered last, or another one if that server received no request.

        A request whose answer is lost is not repeated, but the next one goes to another server.
        """
        params = None if query is None else dict(query)
        size = len(self._places)
        number = self._current
        with anyio.move_on_after(CALL_TIMEOUT):
            for left in reversed(range(size)):
                request = self.client.build_request(
                    *(method, f"{self._places[number]}{path}"),
                    params=params,
                    headers=HEADERS,
                    content=content or None,
                )
                try:
                    reply = await self._send(request)
                except httpx.TransportError as error:
                    number = self._current = (number + 1) % size
                    if not left or not isinstance(error, NOTHING_SENT):
                        raise
                    continue
                if not left or reply.status not in GATEWAY_FAILS:
                    self._current = number
                    return reply
                number = (number + 1) % size
        self._current = (number + 1) % size
        raise StoreUnavailableError(self._store, f"no answer within {CALL_TIMEOUT:g} s")

    async def _send(self, request: httpx.Request) -> HttpReply:
        # Following a redirect might repeat a request that took effect.
        response = await self.client.send(request, stream=True, follow_redirects=False)
        try:
            return HttpReply(response.status_code, await self._body(response))
        finally:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await response.aclose()

    async def _body(self, response: httpx.Response) -> bytes:
        """Read a body in chunks, because a compressed body may be far longer than it looks."""
        if response.headers.get("content-encoding", "identity") != "identity":
            reason = "it compresses its answers although that was not requested"
            raise StoreError(self._store, reason, remedy="switch that off in the server or proxy")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._most_bytes:
                reason = f"its answer is longer than {self._most_bytes} bytes"
                remedy = "check that the URL leads to the right server"
                raise StoreError(self._store, reason, remedy=remedy)
        return bytes(body)

    async def aclose(self) -> None:
        """End calls that are running or waiting, and close the client."""
        self._is_closed = True
        if calls := tuple(self._calls):
            for task in calls:
                task.cancel()
            await asyncio.wait(calls)
        with suppress(httpx.HTTPError, OSError):
            await self.client.aclose()

    def silence(self) -> None:
        """Keep the parent's client from sending anything in a forked child."""
        fork.silence(_sockets(self.client))


def _sockets(client: httpx.AsyncClient) -> Iterator[Any]:
    pool = getattr(client._transport, "_pool", None)
    for connection in getattr(pool, "_connections", ()):
        stream = getattr(getattr(connection, "_connection", None), "_network_stream", None)
        if stream is not None:
            yield stream.get_extra_info("socket")


_BAD_REQUESTS: Final = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_OTHER_LOOP: Final = (
    "the httpx client has connections of another event loop; the request may have taken effect"
)
_OF_RUNTIME: Final = {
    "client has been closed": "closed while the call was under way",
    "Event loop is closed": _OTHER_LOOP,
    "a different event loop": _OTHER_LOOP,
    "a different loop": _OTHER_LOOP,
}
_DRIVER: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)


def refusal_of(status: int) -> type[StoreError]:
    """Return the class of the error for a status with which a server or gateway has refused."""
    if status in FORBIDDEN:
        return StoreAuthenticationError
    return StoreUnavailableError if status in LATER or status >= SERVER_FAILS else StoreError


def as_store_error(exc: Exception, store: str, *, remedy: str) -> StoreError | None:
    """Return the aiocosid error for a driver's error; None for any other.

    Args:
        exc: the driver's error.
        store: the server's name in messages.
        remedy: what to do about a certificate that is not trusted.
    """
    if isinstance(exc, RuntimeError) and not isinstance(exc, _DRIVER):
        found = next((text for said, text in _OF_RUNTIME.items() if said in str(exc)), None)
        return None if found is None else StoreUnavailableError(store, found)
    if not isinstance(exc, _DRIVER):
        return None
    text = str(exc) or type(exc).__name__
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes_of(exc)):
        return untrusted(store, text, remedy)
    if isinstance(exc, _BAD_REQUESTS):
        return StoreError(store, text)
    return StoreUnavailableError(store, text)
