"""The backend on a CosId proxy: counters only; machine ids follow the proxy's own rules."""

# ruff: noqa: ARG002 - the protocol has no place for what the contract has

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from ...abc import MAX_ID, ServerFacts
from ...errors import (
    CorruptCounterError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from ...errors.base import MOST_SHOWN
from .._connection import BorrowedConnection, Connection, translate_errors
from ..backend import Backend
from ..base import CounterDistributor
from ._session import HttpSession, as_store_error, httpx, make_client

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from ...abc import Counter
    from .._url import StoreUrl

MOST_BYTES: Final = 1 << 16  # of a body: CosId's own have a few dozen


def base_of(url: StoreUrl) -> str:
    """Return ``http://host:8688``, with a path if it has one; without credentials."""
    return f"http{'s' if url.tls else ''}://{url}"


def session_on(client: httpx.AsyncClient, places: Sequence[str] = ("",)) -> HttpSession:
    """Return the calls on a client; see `HttpSession`."""
    return HttpSession(client, store=STORE, most_bytes=MOST_BYTES, places=places)


async def connect(url: StoreUrl) -> HttpSession:
    """Return the calls on a client of our own."""
    places = [base_of(replace(url, hosts=(host,))) for host in url.hosts]
    return session_on(make_client(places[0], auth=url.login, verify=url.tls), places)


class UsersClient(BorrowedConnection[HttpSession]):
    """The user's client, which is never closed here."""

    __slots__ = ()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self.client = session_on(self.client.client)  # calls on the dead loop never end


class HttpBackend(Backend):
    """Proxies of one store; inspecting or changing its data needs the store behind them."""

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
            answer = Answer(*await (await self.link.ready()).ask(method, path, query))
        if answer.status not in OK and answer.code not in codes:
            raise answer.refusal()
        return answer

    async def ask_server(self) -> ServerFacts:
        """Send a request that changes nothing: whatever is answered, the proxy is there."""
        with translate_errors(_meaning):
            await (await self.link.ready()).ask("GET", "/actuator/health")
        return ServerFacts(version="")

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        return False  # there is nothing to create or to mark

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        answer = await self.ask("PATCH", f"/segments{name}", {"step": str(by)})
        value = answer.value
        if type(value) is not int or value > MAX_ID:  # isinstance would accept True
            raise answer.unexpected("an integer")
        return value

    async def begin(self, name: str, at: int) -> int:
        raise _no_way_to("create a counter alone")

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        raise _no_way_to("raise a counter")

    async def counters(self, prefix: str) -> Sequence[Counter]:
        raise _no_way_to("list counters")

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        return _no_way_to("look at machine ids or to change them")


def _no_way_to(do: str) -> UnsupportedByStoreError:
    return UnsupportedByStoreError(
        STORE, f"CosId's protocol has no way to {do}", remedy="use the store behind it"
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

    async def _grant(self, step: int) -> int:
        if (self._water.baseline() or 0) + step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        path = path_of(self.namespace, self.name)
        if not self._is_created:
            start = {"offset": str(self.offset), "step": str(self.step)}
            await self._backend.ask("POST", f"/segments/distributor{path}", start)
            self._is_created = True
        try:
            max_id = await self._backend.add(path, step, first=None)
        except StoreError:
            # A server before 3.2.1 forgets the counter's name at a restart; and if the server does
            # not answer, a POST that goes first costs no range.
            self._is_created = False
            raise
        if max_id < step:
            found = str(max_id - step)
            raise CorruptCounterError(STORE, counter=self.namespaced_name, found=found)
        return max_id


STORE: Final = "cosid proxy"

OK: Final = range(200, 300)
MOVED: Final = range(300, 400)
FORBIDDEN: Final = {401, 403, 407}
LATER: Final = {408, 425, 429}
SERVER_FAILS: Final = 500


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
        reason = f"it answered {shown}, not {expected}"
        return StoreError(STORE, reason, remedy="check that the URL leads to a CosId proxy")


def as_object(value: Any) -> dict[str, Any]:  # noqa: ANN401 - what JSON holds
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _meaning(exc: Exception) -> StoreError | None:
    """Return our error for one of the driver's; None for any other."""
    if isinstance(exc, httpx.HTTPStatusError):  # raised by a hook of the user's client
        return Answer(exc.response.status_code, b"").refusal()
    remedy = "pass an httpx.AsyncClient with its authority in verify="
    return as_store_error(exc, STORE, remedy=remedy)
