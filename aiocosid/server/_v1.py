"""The library's own API, version 1."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.routing import Route

from ..abc import TextIdGenerator
from ..errors import ClockSkewError
from . import _machines
from ._http import access_of, body_of, query_of, reply, reply_slowly, whole
from ._openapi import DOCUMENT
from ._parse import parse
from ._problems import Problem
from ._tokens import Verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from ._service import Service
    from ._tokens import Access

__all__ = ("routes",)

M = TypeVar("M", bound=BaseModel)

SAFE: Final = 2**53
"""JavaScript's numbers are exact below it."""


def routes(service: Service) -> Sequence[BaseRoute]:
    """Return the routes, the busiest first."""
    return [
        Route("/v1/ids/{name:path}", _Ids(service), methods=["POST"]),
        Route("/v1/segments/{name:path}", _Segments(service), methods=["POST"]),
        Route("/v1/machines/{namespace:path}", _Machines(service), methods=["POST"]),
        Route(
            "/v1/machines/{namespace:path}/{machine_id}",
            _Machines(service),
            methods=["PATCH", "DELETE"],
        ),
        Route("/v1/repairs/{namespace:path}", _Repairs(service), methods=["POST"]),
        Route("/v1/parse/{name:path}/{id}", _Parse(service), methods=["GET"]),
        Route("/v1/generators", _Generators(service), methods=["GET"]),
        Route("/v1/statistics", _Statistics(service), methods=["GET"]),
        Route("/v1/statistics/{name:path}", _Statistics(service), methods=["GET"]),
        Route("/v1/openapi.json", _OpenApi(), methods=["GET"]),
    ]


class _Ids:
    """``POST /v1/ids/{name}?count=n``: exactly n ids."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, name = self._service, scope["path_params"]["name"]
        access = access_of(service, scope)
        service.check(access, Verb.IDS, name)
        count = whole(query_of(scope), "count", 1) if scope["query_string"] else 1
        release = await service.room.take(count)
        if release is None:
            await reply(send, _as_json(await service.next_ids(name, count, access=access)))
            return
        try:
            await reply_slowly(send, _as_json(await service.next_ids(name, count, access=access)))
        finally:
            release()


def _as_json(ids: Sequence[Any]) -> bytes:
    """Return ids as decimal texts, and as numbers if JavaScript reads all of them exactly."""
    if isinstance(ids[0], str):
        return json.dumps({"ids": ids}).encode()
    text = ",".join(map(str, ids))
    texts = text.replace(",", '","')
    if max(ids) < SAFE:
        return f'{{"ids":["{texts}"],"numbers":[{text}]}}'.encode()
    return f'{{"ids":["{texts}"]}}'.encode()


class _Segments:
    """``POST /v1/segments/{name}?step=n``: the ids of a segment, for one caller alone."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, name = self._service, scope["path_params"]["name"]
        access = access_of(service, scope)
        service.check(access, Verb.SEGMENTS, name)
        step = whole(query_of(scope), "step")
        ids = await service.segment(name, step, access=access)
        found: dict[str, object] = {"first": str(ids[0]), "last": str(ids[-1]), "step": len(ids)}
        if ids.step != 1:
            found["stride"] = ids.step
        await reply(send, json.dumps(found).encode())


class _Machines:
    """Machine ids: ``POST`` takes one, ``PATCH`` renews it, ``DELETE`` releases it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, path = self._service, scope["path_params"]
        namespace = path["namespace"]
        access = access_of(service, scope)
        service.check(access, Verb.MACHINES, namespace)
        body = await body_of(scope, receive, service.limits.body)
        try:
            done = await self._done(access, scope["method"], path, body)
        except ClockSkewError as error:
            detail = f"the client's clock is {error.ahead} s ahead: set it right"
            raise Problem(HTTPStatus.CONFLICT, "clock-ahead", detail) from None
        await reply(send, done)

    async def _done(
        self, access: Access, method: str, path: Mapping[str, Any], body: bytes
    ) -> bytes:
        service, namespace = self._service, path["namespace"]
        match method:
            case "POST":
                asked = _asked(_machines.Take, body)
                lease = await _machines.taken(service, access, namespace, asked)
                return lease.model_dump_json().encode()
            case "PATCH":
                renewal = _asked(_machines.Renew, body)
                number = whole(path, "machine_id")
                await _machines.renewed(service, access, namespace, number, renewal)
            case _:
                release = _asked(_machines.Release, body)
                number = whole(path, "machine_id")
                await _machines.released(service, access, namespace, number, release)
        return b"{}"


class _Repairs:
    """``POST /v1/repairs/{namespace}``: mends machine ids that a wrong clock has spoilt."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, namespace = self._service, scope["path_params"]["namespace"]
        found = await _machines.repaired(service, access_of(service, scope), namespace)
        await reply(send, found.model_dump_json().encode())


def _asked(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        # Without what was given, which may be a secret in the wrong place.
        found = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()
        )
        raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", found) from None


class _Parse:
    """``GET /v1/parse/{name}/{id}``: what an id of a generator says."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, path = self._service, scope["path_params"]
        service.check(access_of(service, scope), Verb.READ, path["name"])
        found = parse(service.known(path["name"]), path["id"])
        await reply(send, json.dumps(found).encode(), is_head=scope["method"] == "HEAD")


class _Generators:
    """``GET /v1/generators``: the names that the caller may use, and what their ids are."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service = self._service
        access = access_of(service, scope)
        provider = service.provider
        found = [
            {
                "name": name,
                "kind": provider[name].statistics().kind,
                "ids": "text" if isinstance(provider[name], TextIdGenerator) else "number",
            }
            for name in provider
            if access.allows(Verb.READ, name) or access.allows(Verb.IDS, name)
        ]
        body = json.dumps({"generators": found}).encode()
        await reply(send, body, is_head=scope["method"] == "HEAD")


class _Statistics:
    """``GET /v1/statistics`` and ``/v1/statistics/{name}``: as CosId's actuator shows them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, name = self._service, scope["path_params"].get("name")
        access, provider = access_of(service, scope), service.provider
        found: object
        if name is None:
            names = [each for each in provider if access.allows(Verb.READ, each)]
            found = {each: provider[each].statistics().as_tree() for each in names}
        else:
            service.check(access, Verb.READ, name)
            found = service.known(name).statistics().as_tree()
        await reply(send, json.dumps(found).encode(), is_head=scope["method"] == "HEAD")


class _OpenApi:
    """``GET /v1/openapi.json``: this API, described for tools."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await reply(send, DOCUMENT, is_head=scope["method"] == "HEAD")
