"""The backend on a CosId proxy: counters only; machine ids follow the proxy's own rules."""

# ruff: noqa: ARG002 - the protocol has no place for what the contract has

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import anyio

from ..._life import fork
from ...abc import MAX_ID
from ...errors import (
    CorruptCounterError,
    IdOverflowError,
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from ...errors._general import MOST_SHOWN
from .._backend import Backend, Granted
from .._connection import (
    CALL_TIMEOUT,
    CLOSE_TIMEOUT,
    BorrowedConnection,
    CallTasks,
    Connection,
    causes_of,
    closed,
    fail_if_forked,
    translate_errors,
    untrusted,
)
from .._store import CounterDistributor

try:
    import httpx as httpx  # noqa: PLC0414 - re-exported
except ModuleNotFoundError as _exc:
    raise MissingExtraError("httpx", extra="http") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...abc import Counter
    from .._give_back import GrantNote
    from .._url import StoreUrl

# Below the default 2 s timeout of a generator's call, so that the generator gets the reason.
CONNECT_TIMEOUT: Final = 1.0  # seconds
REPLY_TIMEOUT: Final = 1.5  # seconds
CALLS_AT_ONCE: Final = 32
MOST_BYTES: Final = 1 << 16  # of a body: CosId's own have a few dozen

HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


class HttpSession:
    """One client on one loop, and the calls under way on it."""

    __slots__ = ("_calls", "_is_closed", "_turns", "client")

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self._turns = anyio.Semaphore(CALLS_AT_ONCE, fast_acquire=True)
        self._calls = CallTasks()
        self._is_closed = False

    @classmethod
    async def of_url(cls, url: StoreUrl) -> HttpSession:
        """Return one on a client of its own."""
        return cls(
            httpx.AsyncClient(
                base_url=base_of(url),
                auth=url.login,
                # The environment's proxy settings are ignored: a proxy may send a request twice.
                trust_env=False,
                verify=url.tls,
                timeout=httpx.Timeout(REPLY_TIMEOUT, connect=CONNECT_TIMEOUT, pool=None),
                limits=httpx.Limits(max_connections=CALLS_AT_ONCE),
            )
        )

    async def ask(self, method: str, path: str, query: Mapping[str, str]) -> Answer:
        """Send a request in a task of its own, which goes on when the caller is cancelled.

        The driver's pool loses a connection for good if it is cancelled at the wrong await.  HTTP
        does not need the cancellation: each answer belongs to one request.
        """
        if self.client.is_closed:
            raise StoreError(STORE, "the httpx client that it was given is closed")
        with fail_if_forked():
            await self._turns.acquire()
        if self._is_closed:  # closed while this waited; the client may still be open
            self._turns.release()
            raise closed(STORE)
        call = _exchange(self.client, method, path, query)
        task = self._calls.start(call, on_end=self._turns.release)
        with fail_if_forked():
            await asyncio.wait((task,))
        if task.cancelled():
            raise closed(STORE)
        return task.result()

    async def aclose(self) -> None:
        """End calls that are under way or waiting, and close the client."""
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


def base_of(url: StoreUrl) -> str:
    """Return ``http://host:8688``, with a path if it has one; without credentials."""
    return f"http{'s' if url.tls else ''}://{url}"


async def _exchange(
    client: httpx.AsyncClient, method: str, path: str, query: Mapping[str, str]
) -> Answer:
    request = client.build_request(method, path, params=dict(query), headers=HEADERS)
    with anyio.move_on_after(CALL_TIMEOUT):
        # Following a redirect might repeat a request that took effect.
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            return Answer(response.status_code, await _body(response))
        finally:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await response.aclose()
    raise StoreUnavailableError(STORE, f"no answer within {CALL_TIMEOUT:g} s")


async def _body(response: httpx.Response) -> bytes:
    """Read a body in chunks: a compressed one may be far longer than it looks."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise StoreError(STORE, "it compresses its answers although that was not requested")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MOST_BYTES:
            raise StoreError(STORE, f"its answer is longer than {MOST_BYTES} bytes")
    return bytes(body)


def _sockets(client: httpx.AsyncClient) -> Iterator[Any]:
    pool = getattr(client._transport, "_pool", None)
    for connection in getattr(pool, "_connections", ()):
        stream = getattr(getattr(connection, "_connection", None), "_network_stream", None)
        if stream is not None:
            yield stream.get_extra_info("socket")


class UsersClient(BorrowedConnection[HttpSession]):
    """The user's client, which is never closed here."""

    __slots__ = ()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self.client = HttpSession(self.client.client)  # calls on the dead loop never end


class HttpBackend(Backend):
    """One proxy; inspecting or changing its data needs the store behind it."""

    __slots__ = ()

    link: Connection[HttpSession]

    order_risk = "the store behind the proxy is not known"

    def __init__(self, connection: Connection[HttpSession], name: str = "") -> None:
        super().__init__(STORE, connection, name=name)

    async def ask(
        self, method: str, path: str, query: Mapping[str, str], *, codes: Sequence[str] = ()
    ) -> Answer:
        """Send one request, once, and return its whole answer.

        A cancelled request may go on; its answer is dropped.

        Args:
            method: the HTTP method.
            path: the quoted path.
            query: the query's parameters.
            codes: CosId's error codes that the caller handles.

        Raises:
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails; the
                request may have taken effect.
            StoreAuthenticationError: a gateway before the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is no CosId proxy.
            ForkedError: the connections are the parent's.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        with translate_errors(_meaning):
            answer = await (await self.link.ready()).ask(method, path, query)
        if answer.status not in OK and answer.code not in codes:
            raise answer.refusal()
        return answer

    async def add(
        self, name: str, by: int, *, first: int | None, note: GrantNote | None = None
    ) -> Granted:
        answer = await self.ask("PATCH", f"/segments{name}", {"step": str(by)})
        value = answer.value
        if type(value) is not int or value > MAX_ID:  # isinstance would accept True
            raise answer.unexpected("an integer")
        return Granted(value)

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        raise _no_way_to("raise a counter")

    async def counters(self, prefix: str) -> Sequence[Counter]:
        raise _no_way_to("list counters")

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        return _no_way_to("look at machine ids or to change them")


def _no_way_to(do: str) -> UnsupportedByStoreError:
    return UnsupportedByStoreError(
        STORE, f"CosId's protocol has no way to {do}; use the store behind it"
    )


def path_of(*parts: str) -> str:
    """Return a path of parts with any characters; each stays one part."""
    # Clients and gateways would resolve a part of dots alone as a relative path.
    steps = {".": "%2E", "..": "%2E%2E"}
    return "".join(f"/{steps.get(part) or quote(part, safe='')}" for part in parts)


class HttpCounter(CounterDistributor):
    """A counter behind a CosId proxy, which its Java clients may use at the same time.

    A range is one ``PATCH /segments/{namespace}/{name}``, sent once: when its answer is lost, so is
    the range.  Before the first one the counter is created by a ``POST``, as CosId's client does,
    which changes nothing if it exists.

    The proxy does not classify the errors of its store: `StoreUnavailableError` may be a refusal
    for any reason.  A counter that is negative, or lower than the step, is `CorruptCounterError`.
    """

    __slots__ = ("_is_created",)

    _backend: HttpBackend

    def __init__(self, backend: HttpBackend, **described: Any) -> None:  # noqa: ANN401 - its own
        """Describe a counter; see `CounterDistributor`."""
        super().__init__(backend, **described)
        self._is_created = False

    async def _grant(self, step: int, note: GrantNote | None) -> Granted:
        if (self._water.baseline() or 0) + step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        path = path_of(self.namespace, self.name)
        if not self._is_created:
            start = {"offset": str(self.offset), "step": str(self.step)}
            await self._backend.ask("POST", f"/segments/distributor{path}", start)
            self._is_created = True
        try:
            granted = await self._backend.add(path, step, first=None)
        except StoreError:
            # A server before 3.2.1 forgets the counter's name at a restart; and if the server does
            # not answer, a POST that goes first costs no range.
            self._is_created = False
            raise
        if granted.max_id < step:
            found = str(granted.max_id - step)
            raise CorruptCounterError(STORE, counter=self.namespaced_name, found=found)
        return granted


STORE: Final = "cosid proxy"

OK: Final = range(200, 300)
MOVED: Final = range(300, 400)
FORBIDDEN: Final = {401, 403, 407}
LATER: Final = {408, 425, 429}
SERVER_FAILS: Final = 500

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


@dataclass(frozen=True, slots=True)
class Answer:
    """A proxy's answer.

    Attributes:
        status: the HTTP status.
        body: the whole body.
    """

    status: int
    body: bytes

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever came
        """The parsed body; None if it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def code(self) -> str:
        """The ``code`` of CosId's error; empty if there is none, or if the call succeeded."""
        found = as_object(self.value).get("code")
        return found if isinstance(found, str) and self.status not in OK else ""

    def refusal(self) -> StoreError:
        """Return the error for a refused call, of the class that fits the status."""
        said = [f"HTTP {self.status}, {self.code}" if self.code else f"HTTP {self.status}"]
        said += filter(None, [self._message()])
        if self.status in MOVED:
            said.append("it redirects; give the URL that it leads to")
        kind = StoreError
        if self.status in FORBIDDEN:
            kind = StoreAuthenticationError
        elif self.status in LATER or self.status >= SERVER_FAILS:
            kind = StoreUnavailableError
        return kind(STORE, ": ".join(said))

    def _message(self) -> str:
        """Return the message of CosId's error, or nothing: ``msg``, followed by ``errors``."""
        error = as_object(self.value)
        texts: list[Any] = [error.get("msg")]
        if isinstance(error.get("errors"), list):
            fields = map(as_object, cast("list[Any]", error["errors"]))
            texts += [f"{each.get('field')} {each.get('msg')}" for each in fields]
        return "; ".join(text for text in texts if isinstance(text, str))[:MOST_SHOWN]

    def unexpected(self, expected: str) -> StoreError:
        """Return the error for a body that no CosId proxy would send."""
        shown = repr(self.body[:MOST_SHOWN].decode(errors="replace"))
        return StoreError(STORE, f"it answered {shown}, not {expected}; is it a CosId proxy?")


def as_object(value: Any) -> dict[str, Any]:  # noqa: ANN401 - what JSON holds
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _meaning(exc: Exception) -> StoreError | None:
    """Return our error for one of the driver's; None for any other."""
    if isinstance(exc, RuntimeError) and not isinstance(exc, _DRIVER):
        found = next((text for said, text in _OF_RUNTIME.items() if said in str(exc)), None)
        return None if found is None else StoreUnavailableError(STORE, found)
    if not isinstance(exc, _DRIVER):
        return None
    text = str(exc) or type(exc).__name__
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes_of(exc)):
        remedy = "pass an httpx.AsyncClient with its authority in verify="
        return untrusted(STORE, text, remedy)
    if isinstance(exc, httpx.HTTPStatusError):  # raised by a hook of the user's client
        return Answer(exc.response.status_code, b"").refusal()
    if isinstance(exc, _BAD_REQUESTS):
        return StoreError(STORE, text)
    return StoreUnavailableError(STORE, text)
