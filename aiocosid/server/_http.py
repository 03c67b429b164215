"""Requests and answers without a framework's objects, which would double a request's cost."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

from .._life.clock import SYSTEM_CLOCK
from ._meters import ACCESS
from ._problems import CONTENT_TYPE, Problem
from ._tokens import Access, Tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    from starlette.types import Receive, Scope, Send

    from ._hosts import Hosts

__all__ = (
    "JSON",
    "TEXT",
    "HttpAnswer",
    "Sending",
    "access_of",
    "answer_of",
    "bearer_of",
    "body_of",
    "check_host",
    "check_many",
    "check_site",
    "form_of",
    "needs_token",
    "parts_of",
    "query_of",
    "send_answer",
    "whole",
)

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"

OWN_SITE: Final = {b"same-origin", b"none"}  # of Sec-Fetch-Site; "none" is the address bar
BEARER: Final = b"Bearer "
NO_STORE: Final = {"cache-control": "no-store"}
FORM: Final = b"application/x-www-form-urlencoded"
MOST_DIGITS: Final = 20  # maximum digits of a number in a query

EVERYTHING: Final = Access()


class Sending:
    """Sends an answer through ASGI, or at once where our server takes it as a whole.

    It answers HEAD without a body.

    Attributes:
        status: the answer's status; 0 before there is one.
    """

    __slots__ = ("_is_head", "_send", "_send_whole", "status")

    def __init__(self, send: Send, *, is_head: bool) -> None:
        """Send to a server, or to the layer in front of it, which then sees each message."""
        self.status: int = 0
        self._send, self._is_head = send, is_head
        server: Any = getattr(send, "__self__", None)
        self._send_whole: Callable[[int, bytes, bytes], bool] | None
        self._send_whole = None if is_head else getattr(server, "send_whole", None)

    def __call__(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        """Send one message."""
        self.status = message.get("status", self.status)
        if self._is_head and "body" in message:
            message = {**message, "body": b""}
        return self._send(message)

    def whole(self, status: int, content_type: bytes, body: bytes) -> bool:
        """Send an answer that no cache may keep; return whether the server accepted it whole."""
        if self._send_whole is None:
            return False
        head = b"content-type: %b\r\ncontent-length: %d\r\ncache-control: no-store\r\n\r\n"
        if not self._send_whole(status, head % (content_type, len(body)), body):
            return False
        self.status = status
        return True


class HttpAnswer(NamedTuple):
    """An answer.

    Attributes:
        body: the whole body.
        content_type: the body's content type.
        status: the HTTP status.
        headers: further headers.
        release: releases the capacity that a long answer occupies until it is read; None for a
            short answer.
    """

    body: bytes
    content_type: bytes = JSON
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] | None = None
    release: Callable[[], None] | None = None


async def send_answer(send: Send, answer: HttpAnswer) -> None:
    """Send an answer, which no cache may keep unless its headers say so.

    For a long answer it returns once the client has read most of it.
    """
    body, content_type, status, headers, release = answer
    direct = send if isinstance(send, Sending) and not headers and release is None else None
    if direct is not None and direct.whole(status, content_type, body):
        return
    lines = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    lines += [
        (name.encode(), text.encode()) for name, text in {**NO_STORE, **(headers or {})}.items()
    ]
    try:
        await send({"type": "http.response.start", "status": status, "headers": lines})
        if release is None:
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})  # waits until the body is written
    finally:
        if release is not None:
            release()


def answer_of(problem: Problem, **more: object) -> HttpAnswer:
    """Return problem details, with additional fields."""
    content_type = CONTENT_TYPE.encode()
    return HttpAnswer(problem.body(**more), content_type, problem.status, problem.headers)


def bearer_of(scope: Scope) -> str | None:
    """Return the bearer token of a request; None if there is none."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            if value.startswith(BEARER):
                return str(value[len(BEARER) :].strip(), "latin-1")
            scheme, _, secret = value.decode("latin-1").partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else None
    return None


class Guarded(Protocol):
    """Decides who may send requests, as `Service` does."""

    tokens: Tokens
    hosts: Hosts

    def access(self, secret: str | None, now_ms: int) -> Access:
        """Return what the holder of a token may do."""
        ...


def access_of(service: Guarded, scope: Scope) -> Access:
    """Return what the sender of a request may do.

    Raises:
        Problem: the request needs a token and has no valid one.
    """
    if needs_token(service, scope):
        found = scope[ACCESS] = service.access(bearer_of(scope), SYSTEM_CLOCK.now_ms())
        return found
    check_host(service, scope)
    check_site(scope)
    return service.tokens.anybody


def needs_token(service: Guarded, scope: Scope) -> bool:
    """Return whether the sender of a request must show a token."""
    server = _server_of(scope)
    return service.tokens.needed_at(server[0] if server[1] is None else server)


def _server_of(scope: Scope) -> tuple[str, int | None]:
    """Return our end; ASGI names a Unix socket by its path, with None instead of a port."""
    found: tuple[str, int | None] = scope.get("server") or ("", 0)
    return found


def check_host(service: Guarded, scope: Scope) -> None:
    """Raise if a request without a token names a host other than this one.

    A page of that host could send the request, and would look like our own page.  No page can reach
    a Unix socket.

    Raises:
        Problem: the request names another host.
    """
    if _server_of(scope)[1] is None:
        return
    for name, value in scope["headers"]:
        if name == b"host" and not service.hosts.allow(value):
            detail = "this server has another name; server.hosts in its settings lists its names"
            raise Problem(HTTPStatus.MISDIRECTED_REQUEST, "unknown-host", detail)


def check_many(scope: Scope, access: Access) -> None:
    """Raise if any page could make a browser take many ids: a page's images are fetched with GET.

    Raises:
        Problem: the request is GET, and its sender has shown no token.
    """
    if access.token is None and scope["method"] == "GET":
        detail = "more than one id at a time requires POST or a token"
        raise Problem(
            HTTPStatus.METHOD_NOT_ALLOWED, "not-by-get", detail, headers={"allow": "POST"}
        )


def check_site(scope: Scope) -> None:
    """Raise if a browser says that a page of another site sends the request.

    Where callers need no token, any page that is open in a browser could take ids.

    Raises:
        Problem: the request comes from another site.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        is_own = site in OWN_SITE
    else:
        host = headers.get(b"host", b"")
        is_own = origin is None or origin in {b"http://" + host, b"https://" + host}
    if not is_own:
        detail = "the request was sent by a page of another site"
        raise Problem(HTTPStatus.FORBIDDEN, "other-site", detail)


def query_of(scope: Scope) -> dict[str, str]:
    """Return the parameters of a request's query; the last of several with one name counts."""
    found: bytes = scope["query_string"]
    if not found:
        return {}
    text = found.decode("latin-1")
    if "%" in text or "+" in text:
        return dict(parse_qsl(text, keep_blank_values=True))
    # This gives the same result in a fifth of the time.
    pairs = (each.partition("=") for each in text.split("&") if each)
    return {name: value for name, _, value in pairs}


def parts_of(scope: Scope, prefix: str) -> list[str]:
    """Return the parts of a path after a prefix, decoded one by one: ``%2F`` belongs to a name.

    Args:
        scope: the scope of the request.
        prefix: the route's prefix, after the path at which the application is mounted.

    Raises:
        Problem: a part is not UTF-8.
    """
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"] if raw is None else raw.decode("latin-1")
    mounted: str = scope.get("root_path", "")
    if not path.startswith(f"{mounted}{prefix}/"):  # a part of the route itself was escaped
        raise Problem(HTTPStatus.NOT_FOUND, "not-found", "no such path")
    parts = path.split("/")[mounted.count("/") + prefix.count("/") + 1 :]
    if raw is None or "%" not in path:
        return parts
    try:
        return [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        detail = "the path is not UTF-8"
        raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail) from None


async def form_of(scope: Scope, receive: Receive, at_most: int) -> dict[str, str]:
    """Return the parameters of the query and of a form in the body; the query's take precedence.

    Raises:
        Problem: the body is longer than allowed, or the client has disconnected.
    """
    query = query_of(scope)
    if scope["method"] == "GET":
        return query
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if kind.partition(b";")[0].strip().lower() != FORM:
        return query
    text = (await body_of(scope, receive, at_most)).decode("latin-1")
    return dict(parse_qsl(text, keep_blank_values=True)) | query


def whole(query: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a parameter that is a whole number in decimal digits.

    Raises:
        Problem: the parameter is missing without a default, or is not such a number.
    """
    text = query.get(name)
    if text is None and default is not None:
        return default
    is_number = text is not None and text.isascii() and text.isdecimal()
    if text is None or not is_number or len(text) > MOST_DIGITS:
        missing = " is missing: it" if text is None else ""
        detail = f"{name}{missing} must be a whole number in decimal digits, as in {name}=1000"
        raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)
    return int(text)


async def body_of(scope: Scope, receive: Receive, at_most: int) -> bytes:
    """Return a request's whole body.

    Raises:
        Problem: the body is longer than allowed, or the client has disconnected.
    """
    too_long = Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-long",
        f"a body may have at most {at_most} bytes",
        headers={"connection": "close"},
    )
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value[:MOST_DIGITS]) > at_most:
            raise too_long
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(HTTPStatus.BAD_REQUEST, "disconnected", "the client has gone")
        body += message.get("body", b"")
        if len(body) > at_most:
            raise too_long
        if not message.get("more_body", False):
            return bytes(body)
