"""The operator's dashboard: one page, its live values, and its actions.

The server renders the page, and a small script refreshes its values.  There is no cookie: a token
is in a request's header, or in the form that is sent, so that no other site can act for an operator
who has one.  Where no tokens are configured, a browser's request from another site is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from gzip import compress
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.routing import Route

from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, CounterMissingError
from ._api_page import api_page
from ._http import bearer_of, body_of, check_host, check_site, query_of, reply, whole
from ._meters import ACCESS
from ._openapi import TREE
from ._overview import Watch
from ._page import ActionResult, page, token_page
from ._parse import parse
from ._problems import Problem, problem_of
from ._tokens import Verb
from ._view import name_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from ._service import Service
    from ._tokens import Access

__all__ = ("routes",)

HTML: Final = b"text/html; charset=utf-8"
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}
STATIC: Final = {
    "dashboard.css": b"text/css; charset=utf-8",
    "dashboard.js": b"text/javascript; charset=utf-8",
    "dashboard.svg": b"image/svg+xml",
}
FORM: Final = "application/x-www-form-urlencoded"
LEVEL: Final = 5  # of compression: a tenth of the size in some milliseconds
MOST_FIELDS: Final = 20  # of a form


def routes(service: Service) -> Sequence[BaseRoute]:
    """Return the routes of pages: ``/``, all below ``/dashboard``, and ``/docs``."""
    watch = Watch(service)
    static = files("aiocosid.server") / "static"
    contents = {name: (static / name).read_bytes() for name in STATIC}
    version = sha256(b"".join(contents.values())).hexdigest()[:8]
    dashboard = _Dashboard(service, watch, version)
    return [
        Route("/", dashboard, methods=["GET", "POST"]),
        Route("/dashboard", dashboard, methods=["GET", "POST"]),
        Route("/dashboard/overview.json", _Live(service, watch), methods=["GET"]),
        Route("/dashboard/{name}", _Static(contents), methods=["GET"]),
        Route("/docs", _Docs(version), methods=["GET"]),
    ]


class _Static:
    """A file of the package."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        name: str = scope["path_params"]["name"]
        content = self._contents.get(name)
        if content is None:
            raise Problem(HTTPStatus.NOT_FOUND, "not-found")
        headers = [
            (b"content-type", STATIC[name]),
            (b"content-length", b"%d" % len(content)),
            (b"cache-control", b"public, max-age=86400"),  # its address changes with its content
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else content
        await send({"type": "http.response.body", "body": body})


class _Docs:
    """``GET /docs``: the API for people, who may see what ``/v1/openapi.json`` shows everyone."""

    def __init__(self, version: str) -> None:
        self._html = api_page(TREE, version=version)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _send_page(scope, send, self._html)


class _Live:
    """``GET /dashboard/overview.json``: what the page shows, as JSON."""

    def __init__(self, service: Service, watch: Watch) -> None:
        self._service = service
        self._watch = watch

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._service.tokens:
            check_host(self._service, scope)
        access = scope[ACCESS] = self._service.access(bearer_of(scope), SYSTEM_CLOCK.now_ms())
        self._service.check(access, Verb.READ)
        overview = await self._watch.overview(query_of(scope).get("find", ""))
        await reply(send, json.dumps(overview.as_tree()).encode(), is_head=_is_head(scope))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A form that was sent.

    Attributes:
        fields: its fields.
        access: what the sender may do.
    """

    access: Access
    fields: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, name: str) -> str:
        """Return a field without the blanks around it.

        Raises:
            Problem: it is missing or empty.
        """
        found = self.fields.get(name, "").strip()
        if not found:
            raise _refused(f"{name} is missing")
        return found

    def confirm(self, expected: str, what: str) -> None:
        """Raise unless the confirmation is as expected.

        Raises:
            Problem: it is not.
        """
        if self.fields.get("confirm", "").strip() != expected:
            raise _refused(f"nothing was done: confirm it {what}")


def _refused(detail: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)


class _Dashboard:
    """The page, and the actions that are sent to it."""

    def __init__(self, service: Service, watch: Watch, version: str) -> None:
        self._service = service
        self._watch = watch
        self._version = version
        self._actions: dict[str, Callable[[_Asked], Awaitable[ActionResult]]] = {
            "try": self._try,
            "parse": self._parse,
            "drain": self._drain,
            "undrain": self._undrain,
            "floor": self._floor,
            "revert": self._revert,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = _headers(scope)
        fields: dict[str, str] = {}
        if not self._service.tokens:
            check_host(self._service, scope)
        if scope["method"] == "POST":
            check_site(scope)
            fields = await self._form(headers, scope, receive)
        secret = bearer_of(scope) or fields.pop("token", "").strip() or None
        in_json = "application/json" in headers.get("accept", "")
        try:
            access = scope[ACCESS] = self._service.access(secret, SYSTEM_CLOCK.now_ms())
            answer = await self._done(_Asked(access, fields)) if "action" in fields else None
            if answer is None:
                self._service.check(access, Verb.READ)
        except (Problem, CosIdError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if in_json:
                raise problem from error
            await self._show_problem(scope, send, problem, secret)
            return
        if in_json and answer is not None:
            await reply(send, json.dumps(answer.as_tree()).encode())
            return
        if access.allows(Verb.READ):
            await self._show(scope, send, answer)
        else:
            await _send_page(scope, send, token_page(version=self._version, answer=answer), 200)

    async def _form(
        self, headers: Mapping[str, str], scope: Scope, receive: Receive
    ) -> dict[str, str]:
        if headers.get("content-type", "").partition(";")[0].strip() != FORM:
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-form", f"send {FORM}")
        body = await body_of(scope, receive, self._service.limits.body)
        try:
            found = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
            )
        except ValueError:
            raise _refused("the form cannot be read") from None
        return dict(found)

    # The page.

    async def _show(
        self,
        scope: Scope,
        send: Send,
        answer: ActionResult | None,
        status: int = 200,
    ) -> None:
        find = query_of(scope).get("find", "")
        overview = await self._watch.overview(find)
        html = page(
            overview,
            version=self._version,
            needs_token=bool(self._service.tokens),
            namespace=self._service.namespace,
            generators=list(self._service.provider),
            answer=answer,
            find=find,
        )
        await _send_page(scope, send, html, status)

    async def _show_problem(
        self, scope: Scope, send: Send, problem: Problem, secret: str | None
    ) -> None:
        """Show the page with the problem, or the form that asks for a token."""
        answer = ActionResult(problem.detail or problem.kind, is_error=True)
        if problem.status == HTTPStatus.UNAUTHORIZED:
            html = token_page(version=self._version, answer=answer if secret else None)
            # The page as such is there: a browser would report an error on it.
            await _send_page(scope, send, html, HTTPStatus.OK)
            return
        access = self._service.access(secret, SYSTEM_CLOCK.now_ms())
        if access.allows(Verb.READ):
            await self._show(scope, send, answer, problem.status)
        else:
            html = token_page(version=self._version, answer=answer)
            await _send_page(scope, send, html, problem.status)

    # Actions.

    async def _done(self, asked: _Asked) -> ActionResult:
        action = self._actions.get(asked.fields["action"])
        if action is None:
            raise _refused("there is no such action")
        return await action(asked)

    async def _try(self, asked: _Asked) -> ActionResult:
        """Take one id."""
        name = asked.text("generator")
        self._service.check(asked.access, Verb.IDS, name)
        asked.confirm("yes", "by its box")
        [new_id] = await self._service.next_ids(name, 1, access=asked.access)
        self._service.note(asked.access, f"took an id of {name!r} by the dashboard")
        return ActionResult(f"One id of {name_text(name)}; it is used up.", {"id": str(new_id)})

    async def _parse(self, asked: _Asked) -> ActionResult:
        """Read an id; changes nothing."""
        name = asked.text("generator")
        self._service.check(asked.access, Verb.READ, name)
        found = parse(self._service.known(name), asked.text("id"))
        return ActionResult(
            f"As an id of {name_text(name)}.", {k: str(v) for k, v in found.items()}
        )

    async def _drain(self, asked: _Asked) -> ActionResult:
        return self._set_draining(asked, is_draining=True)

    async def _undrain(self, asked: _Asked) -> ActionResult:
        return self._set_draining(asked, is_draining=False)

    def _set_draining(self, asked: _Asked, *, is_draining: bool) -> ActionResult:
        self._service.check(asked.access, Verb.ADMIN)
        asked.confirm("yes", "by its box")
        self._service.is_draining = is_draining
        self._service.note(asked.access, "drains" if is_draining else "serves again")
        return ActionResult(
            "This process is draining: it is not ready, and still serves."
            if is_draining
            else "This process is serving: it is ready again."
        )

    async def _floor(self, asked: _Asked) -> ActionResult:
        """Raise a counter."""
        service, namespace, name = self._service, asked.text("namespace"), asked.text("name")
        full = f"{namespace}.{name}"
        service.check(asked.access, Verb.ADMIN, full)
        asked.confirm(full, f"by typing {full}")
        above = whole(asked.fields, "above")
        create = asked.fields.get("create") == "yes"
        try:
            counter = await service.store.set_floor(
                namespace=namespace, name=name, above=above, create=create
            )
        except CounterMissingError:
            detail = f"there is no counter {full!r}: correct the name, or tick that it is created"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-name", detail) from None
        service.note(asked.access, f"raised the floor of {full!r} above {above}, {create=}")
        self._watch.refresh()
        return ActionResult(
            f"Every further segment of {name_text(full)} is above {counter.last_max_id}.",
            {"last max id": str(counter.last_max_id)},
        )

    async def _revert(self, asked: _Asked) -> ActionResult:
        """Take a machine id from a holder that has died."""
        service, namespace = self._service, asked.text("namespace")
        machine_id = whole(asked.fields, "machine_id")
        service.check(asked.access, Verb.ADMIN, namespace)
        holder = asked.text("confirm")
        found = await service.store.machines(namespace=namespace)
        if not any((each.machine_id, each.instance_id) == (machine_id, holder) for each in found):
            raise _refused(f"nothing was done: machine id {machine_id} is not held by that name")
        await service.store.revert_machine(namespace=namespace, machine_id=machine_id)
        what = f"machine id {machine_id} of {namespace!r}"
        service.note(asked.access, f"took {what} from {holder!r}")
        self._watch.refresh()
        return ActionResult(f"Machine id {machine_id} of {name_text(namespace)} is free.")


async def _send_page(scope: Scope, send: Send, html: str, status: int = HTTPStatus.OK) -> None:
    body = html.encode(errors="backslashreplace")  # a name may hold half a surrogate pair
    headers = HEADERS
    if "gzip" in _headers(scope).get("accept-encoding", ""):
        body, headers = compress(body, LEVEL), {**HEADERS, "content-encoding": "gzip"}
    await reply(
        send,
        body,
        content_type=HTML,
        status=status,
        headers=headers,
        is_head=_is_head(scope),
    )


def _headers(scope: Scope) -> dict[str, str]:
    found: list[tuple[bytes, bytes]] = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in found}


def _is_head(scope: Scope) -> bool:
    return bool(scope["method"] == "HEAD")
