"""tinyid's server (Didi): ids and segments of a ``bizType``, through query or form parameters.

The ``token`` of a request is the secret of a bearer token that is valid for the ``bizType`` as a
name, with scope ``ids`` for ids and ``segments`` for segments.  It is never logged here, but a
server in front may log paths with their queries; a form keeps the token out of those logs.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from ..._life.clock import SYSTEM_CLOCK
from ...abc import IdGenerator
from ...errors import CosIdError, InvalidArgumentError
from .._http import (
    EVERYTHING,
    JSON,
    TEXT,
    HttpAnswer,
    check_host,
    check_many,
    check_site,
    form_of,
    whole,
)
from .._problems import Problem, problem_of
from .._tokens import TokenScope
from ._endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from .._service import Service
    from .._tokens import Access

__all__ = ("routes",)

_BATCH_LIMIT: Final = 100_000
"""tinyid's ``batch.size.max``."""

_LOADING_PERCENT: Final = 20
"""The percentage of a segment after which tinyid's client fetches the next one."""

_TOLD: Final = {HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.TOO_MANY_REQUESTS}
_TOKEN_ERROR: Final = 5
_SYSTEM_ERROR: Final = 6
_TOKEN_MESSAGE: Final = "token is error"  # noqa: S105 - tinyid's text


def routes(
    service: Service, *, public: bool = False, prefix: str = "", cap_batches: bool = False
) -> Sequence[BaseRoute]:
    """Return the routes.

    Args:
        service: the server.
        public: whether any ``token`` is accepted, and none is needed.
        prefix: the part of the path before ``/tinyid/id/``.
        cap_batches: whether a batch of more than 100,000 is answered with 100,000 ids, as tinyid
            does, instead of being refused.
    """
    tinyid = _Tinyid(service, public=public, cap_batches=cap_batches)
    paths = {
        "nextId": (tinyid.ids, _failed),
        "nextIdSimple": (tinyid.ids_as_text, _failed_simply),
        "nextSegmentId": (tinyid.segment, _failed),
        "nextSegmentIdSimple": (tinyid.segment_as_text, _failed_simply),
    }
    endpoints = {name: Endpoint(serve, failed) for name, (serve, failed) in paths.items()}
    return [Route(f"{prefix}/tinyid/id/{{name}}", _ByName(endpoints))]


class _ByName:
    """All routes as one route, because an application tries its routes one after the other.

    Attributes:
        endpoints: the endpoints by the last part of their paths.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self.endpoints: Mapping[str, Endpoint] = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = self.endpoints.get(scope["path_params"]["name"])
        if found is None:
            raise Problem(HTTPStatus.NOT_FOUND, "not-found")
        await found(scope, receive, send)


class _TokenError(Problem):
    """The token does not allow this for the ``bizType``."""

    def __init__(self) -> None:
        super().__init__(200, "no-access", _TOKEN_MESSAGE)


def _response(data: object, code: int = 200, message: str = "") -> HttpAnswer:
    facts = {"data": data, "code": code, "message": message}
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return HttpAnswer(text.encode(errors="replace"))


def _failed(_scope: Scope, error: Problem | CosIdError) -> HttpAnswer:
    if isinstance(error, _TokenError):
        return _response(None, _TOKEN_ERROR, error.detail)
    found = error if isinstance(error, Problem) else problem_of(error)
    return _ended(_response(None, _SYSTEM_ERROR, found.detail or found.kind), error)


def _failed_simply(_scope: Scope, error: Problem | CosIdError) -> HttpAnswer:
    return _ended(HttpAnswer(b"", TEXT), error)


def _ended(answer: HttpAnswer, error: Problem | CosIdError) -> HttpAnswer:
    """Return an answer with its status where the status tells the client what to do next.

    After a body that was not read, no further request may follow; over its quota, the client must
    wait.
    """
    if isinstance(error, Problem) and error.status in _TOLD:
        return answer._replace(status=error.status, headers=error.headers)
    return answer


class _Tinyid:
    """The operations of tinyid's controller."""

    def __init__(self, service: Service, *, public: bool, cap_batches: bool) -> None:
        self._service, self._public, self._caps = service, public, cap_batches

    async def ids(self, scope: Scope, receive: Receive) -> HttpAnswer:
        """``nextId``: ids as a list."""
        return await self._ids(scope, receive, '{{"data":[{}],"code":200,"message":""}}', JSON)

    async def ids_as_text(self, scope: Scope, receive: Receive) -> HttpAnswer:
        """``nextIdSimple``: ids separated by commas."""
        return await self._ids(scope, receive, "{}", TEXT)

    async def segment(self, scope: Scope, receive: Receive) -> HttpAnswer:
        """``nextSegmentId``: the fields of a segment."""
        max_id, loading_id, current_id, delta, remainder = await self._next(scope, receive)
        return _response(
            {
                "maxId": max_id,
                "loadingId": loading_id,
                "currentId": current_id,
                "delta": delta,
                "remainder": remainder,
            }
        )

    async def segment_as_text(self, scope: Scope, receive: Receive) -> HttpAnswer:
        """``nextSegmentIdSimple``: the fields separated by commas, in another order."""
        max_id, loading_id, current_id, *rest = await self._next(scope, receive)
        return HttpAnswer(
            ",".join(map(str, (current_id, loading_id, max_id, *rest))).encode(), TEXT
        )

    async def _ids(
        self, scope: Scope, receive: Receive, form_of_ids: str, content_type: bytes
    ) -> HttpAnswer:
        """Take ids, and return them separated by commas."""
        form = await self._form(scope, receive)
        access = self._access(form, TokenScope.IDS)
        generator = await self._generator(form)
        text = form.get("batchSize", "")
        count = whole(form, "batchSize") if text else 1
        at_most = min(_BATCH_LIMIT, self._service.limits.ids)
        if self._caps:
            count = min(count, at_most)
        if not 1 <= count <= at_most:
            raise InvalidArgumentError("batchSize", count, f"must be from 1 to {at_most}")
        if count > 1:
            check_many(scope, access)
        self._service.quotas.charge(access, form["bizType"], count)

        async def take() -> bytes:
            ids = [await generator.next_id()] if count == 1 else await generator.next_ids(count)
            return form_of_ids.format(",".join(map(str, ids))).encode()

        return await self._service.room.answer(count, take, content_type)

    async def _next(self, scope: Scope, receive: Receive) -> tuple[int, int, int, int, int]:
        """Take a segment: its max id, loading id, current id, delta and remainder."""
        form = await self._form(scope, receive)
        access = self._access(form, TokenScope.SEGMENTS)
        check_many(scope, access)
        await self._generator(form)
        ids = await self._service.segment(form["bizType"], access=access)
        span, last = len(ids) * ids.step, ids[-1]
        current_id = last - span
        loading_id = current_id + span * _LOADING_PERCENT // 100
        return last, loading_id, current_id, ids.step, last % ids.step

    async def _form(self, scope: Scope, receive: Receive) -> dict[str, str]:
        if self._public or not self._service.tokens:
            check_host(self._service, scope)
            check_site(scope)
        return await form_of(scope, receive, self._service.limits.body)

    def _access(self, form: dict[str, str], wanted: TokenScope) -> Access:
        """Return what the sender may do; raise if its token does not allow this."""
        service, name = self._service, form.get("bizType", "")
        if self._public:
            service.check(EVERYTHING, wanted, name)
            return EVERYTHING
        try:
            access = service.access(form.get("token"), SYSTEM_CLOCK.now_ms())
            service.check(access, wanted, name)
        except Problem:
            raise _TokenError from None
        return access

    async def _generator(self, form: dict[str, str]) -> IdGenerator:
        """Return the generator of the ``bizType``."""
        service, name = self._service, form.get("bizType", "")
        try:
            found = await service.generator(name)
        except Problem as error:
            raise _unknown(name) if error.status == HTTPStatus.NOT_FOUND else error from None
        if not isinstance(found, IdGenerator):
            raise _unknown(name)
        return found


def _unknown(name: str) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, "unknown-name", f"can not find biztype:{name}")
