"""The operator's dashboard: a page, its live values and its actions.

The server renders the page, and a small script refreshes its values.  There are no cookies: the
token comes in a header or in the submitted form, so another site cannot act for an operator who has
one.  If no tokens are configured, requests that a browser sends from another site are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from gzip import compress
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, CounterMissingError
from ._api_page import api_page
from ._http import HttpAnswer, bearer_of, body_of, check_host, check_site, query_of, whole
from ._meters import ACCESS
from ._overview import Watch
from ._page import ActionResult, page, token_page
from ._parse import parse
from ._problems import Problem, problem_of
from ._routes import HttpOperation, as_json
from ._tokens import TokenScope
from ._v1 import TREE
from ._view import name_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.types import Scope

    from ._routes import HttpCall
    from ._service import Service
    from ._tokens import Access

__all__ = ("operations",)

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
PAGES: Final = ("/", "/dashboard")
STATIC: Final = {
    "dashboard.css": b"text/css; charset=utf-8",
    "dashboard.js": b"text/javascript; charset=utf-8",
    "dashboard.svg": b"image/svg+xml",
}
FORM: Final = "application/x-www-form-urlencoded"
LEVEL: Final = 5  # gzip to a tenth of the size, in a few milliseconds
MOST_FIELDS: Final = 20  # in a form


def operations(service: Service) -> Sequence[HttpOperation]:
    """Return the operations of ``/``, of everything below ``/dashboard``, and of ``/docs``."""
    static = files("aiocosid.server") / "static"
    contents = {name: (static / name).read_bytes() for name in STATIC}
    version = sha256(b"".join(contents.values())).hexdigest()[:8]
    watch = Watch(service)
    show, docs = _Dashboard(service, watch, version).serve, api_page(TREE, version=version)

    async def live(call: HttpCall) -> HttpAnswer:
        """Answer with the page's values as JSON."""
        if not service.tokens:
            check_host(service, call.scope)
        access = service.access(bearer_of(call.scope), SYSTEM_CLOCK.now_ms())
        call.scope[ACCESS] = access
        service.check(access, TokenScope.READ)
        overview = await watch.overview(query_of(call.scope).get("find", ""))
        return as_json(overview.as_tree())

    async def file(call: HttpCall) -> HttpAnswer:
        name = call.path["name"]
        if name not in contents:
            raise Problem(HTTPStatus.NOT_FOUND, "not-found")
        headers = {
            "cache-control": "public, max-age=86400",  # its URL changes with its content
            "x-content-type-options": "nosniff",
        }
        return HttpAnswer(contents[name], STATIC[name], headers=headers)

    async def describe(call: HttpCall) -> HttpAnswer:
        """Show the API to people; like ``/v1/openapi.json``, it needs no token."""
        return _as_page(call.scope, docs)

    public = partial(HttpOperation, is_public=True)
    pages = [public(method, path, show) for path in PAGES for method in ("GET", "POST")]
    return [
        *pages,
        public("GET", "/dashboard/overview.json", live),
        public("GET", "/dashboard/{name}", file),
        public("GET", "/docs", describe),
    ]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A submitted form.

    Attributes:
        fields: its fields.
        access: what the sender may do.
    """

    access: Access
    fields: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, name: str) -> str:
        """Return a field, without surrounding blanks.

        Raises:
            Problem: the field is missing or empty.
        """
        found = self.fields.get(name, "").strip()
        if not found:
            raise _refused(f"{name} is missing")
        return found

    def confirm(self, expected: str, how: str) -> None:
        """Check that the operator has confirmed the action.

        Raises:
            Problem: the confirmation is missing or wrong.
        """
        if self.fields.get("confirm", "").strip() != expected:
            raise _refused(f"nothing was done: {how} to confirm")


def _refused(detail: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)


class _Dashboard:
    """The page and its actions."""

    def __init__(self, service: Service, watch: Watch, version: str) -> None:
        self._service = service
        self._watch = watch
        self._version = version
        self._actions: dict[str, Callable[[_Asked], Awaitable[ActionResult]]] = {
            "try": self._try,
            "parse": self._parse,
            "drain": partial(self._drain, is_draining=True),
            "undrain": partial(self._drain, is_draining=False),
            "floor": self._floor,
            "evict": self._evict,
        }

    async def serve(self, call: HttpCall) -> HttpAnswer:
        """Run the submitted action, if there is one, and show the page."""
        scope, service = call.scope, self._service
        headers = _headers(scope)
        fields: dict[str, str] = {}
        if not service.tokens:
            check_host(service, scope)
        if scope["method"] == "POST":
            check_site(scope)
            fields = await self._form(headers, call)
        secret = bearer_of(scope) or fields.pop("token", "").strip() or None
        in_json = "application/json" in headers.get("accept", "")
        try:
            access = scope[ACCESS] = service.access(secret, SYSTEM_CLOCK.now_ms())
            answer = None
            if (name := fields.get("action")) is None:
                service.check(access, TokenScope.READ)
            elif (action := self._actions.get(name)) is not None:
                answer = await action(_Asked(access, fields))
            else:
                raise _refused("unknown action")
        except (Problem, CosIdError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if in_json:
                raise problem from error
            return await self._as_problem(scope, problem, secret)
        if in_json and answer is not None:
            return as_json(answer.as_tree())
        return await self._shown(scope, access, answer)

    async def _form(self, headers: Mapping[str, str], call: HttpCall) -> dict[str, str]:
        if headers.get("content-type", "").partition(";")[0].strip() != FORM:
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-form", f"send {FORM}")
        body = await body_of(call.scope, call.receive, self._service.limits.body)
        try:
            found = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
            )
        except ValueError:
            raise _refused("the form cannot be read") from None
        return dict(found)

    # The page.

    async def _shown(
        self, scope: Scope, access: Access, answer: ActionResult | None, status: int = 200
    ) -> HttpAnswer:
        """Show the page, or ask for a token if this one does not allow reading."""
        if not access.allows(TokenScope.READ):
            return _as_page(scope, token_page(version=self._version, answer=answer), status)
        find = query_of(scope).get("find", "")
        html = page(
            await self._watch.overview(find),
            version=self._version,
            needs_token=bool(self._service.tokens),
            namespace=self._service.namespace,
            generators=list(self._service.provider),
            answer=answer,
            find=find,
        )
        return _as_page(scope, html, status)

    async def _as_problem(self, scope: Scope, problem: Problem, secret: str | None) -> HttpAnswer:
        """Show the problem on the page, or ask for a token."""
        answer = ActionResult(problem.detail or problem.kind, is_error=True)
        if problem.status == HTTPStatus.UNAUTHORIZED:
            # Without an error status, which a browser would report in its console.
            html = token_page(version=self._version, answer=answer if secret else None)
            return _as_page(scope, html)
        access = self._service.access(secret, SYSTEM_CLOCK.now_ms())
        return await self._shown(scope, access, answer, problem.status)

    # Actions.

    async def _try(self, asked: _Asked) -> ActionResult:
        """Take one id."""
        name = asked.text("generator")
        self._service.check(asked.access, TokenScope.IDS, name)
        asked.confirm("yes", "tick the box")
        [new_id] = await self._service.next_ids(name, 1, access=asked.access)
        self._service.note(asked.access, f"took an id of {name!r} by the dashboard")
        return ActionResult(
            f"Took one id of {name_text(name)}; no other client gets it.", {"id": str(new_id)}
        )

    async def _parse(self, asked: _Asked) -> ActionResult:
        """Parse an id; changes nothing."""
        name = asked.text("generator")
        self._service.check(asked.access, TokenScope.READ, name)
        found = parse(self._service.known(name), asked.text("id"))
        return ActionResult(
            f"Read as an id of {name_text(name)}.", {k: str(v) for k, v in found.items()}
        )

    async def _drain(self, asked: _Asked, *, is_draining: bool) -> ActionResult:
        self._service.check(asked.access, TokenScope.ADMIN)
        asked.confirm("yes", "tick the box")
        self._service.is_draining = is_draining
        self._service.note(asked.access, "drains" if is_draining else "serves again")
        return ActionResult(
            "This process is draining: it reports that it is not ready, but still serves."
            if is_draining
            else "This process is serving, and reports that it is ready."
        )

    async def _floor(self, asked: _Asked) -> ActionResult:
        """Raise a counter."""
        service, namespace, name = self._service, asked.text("namespace"), asked.text("name")
        full = f"{namespace}.{name}"
        service.check(asked.access, TokenScope.ADMIN, full)
        asked.confirm(full, f"type {full}")
        above = whole(asked.fields, "above")
        create = asked.fields.get("create") == "yes"
        try:
            counter = await service.store.set_floor(
                namespace=namespace, name=name, above=above, create=create
            )
        except CounterMissingError:
            detail = (
                f"there is no counter {full!r}: correct the name, or tick the box that creates it"
            )
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-name", detail) from None
        service.note(asked.access, f"raised the floor of {full!r} above {above}, {create=}")
        self._watch.refresh()
        return ActionResult(
            f"Every further segment of {name_text(full)} is above {counter.last_max_id}.",
            {"last max id": str(counter.last_max_id)},
        )

    async def _evict(self, asked: _Asked) -> ActionResult:
        """Evict the holder of a machine id that has died."""
        service, namespace = self._service, asked.text("namespace")
        machine_id = whole(asked.fields, "machine_id")
        service.check(asked.access, TokenScope.ADMIN, namespace)
        holder = asked.text("confirm")
        found = await service.store.machines(namespace=namespace)
        if not any((each.machine_id, each.instance_id) == (machine_id, holder) for each in found):
            raise _refused(f"nothing was done: that holder does not hold machine id {machine_id}")
        await service.store.evict_machine(namespace=namespace, machine_id=machine_id)
        what = f"machine id {machine_id} of {namespace!r}"
        service.note(asked.access, f"took {what} from {holder!r}")
        self._watch.refresh()
        return ActionResult(f"Machine id {machine_id} of {name_text(namespace)} is free.")


def _as_page(scope: Scope, html: str, status: int = HTTPStatus.OK) -> HttpAnswer:
    body = html.encode(errors="backslashreplace")  # a name may contain a lone surrogate
    headers = HEADERS
    if "gzip" in _headers(scope).get("accept-encoding", ""):
        body, headers = compress(body, LEVEL), {**HEADERS, "content-encoding": "gzip"}
    return HttpAnswer(body, HTML, status, headers)


def _headers(scope: Scope) -> dict[str, str]:
    found: list[tuple[bytes, bytes]] = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in found}
