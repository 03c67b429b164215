"""The library's own API, version 1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from ._http import access_of, query_of, reply, whole
from ._tokens import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute

    from ._http import Receive, Scope, Send
    from ._service import Service

__all__ = ("routes",)

SAFE: Final = 2**53
"""JavaScript's numbers are exact below it."""


def routes(service: Service) -> Sequence[BaseRoute]:
    """Return the routes, the busiest first."""
    return [
        Route("/v1/ids/{name}", _Ids(service), methods=["POST"]),
        Route("/v1/segments/{name}", _Segments(service), methods=["POST"]),
    ]


class _Ids:
    """``POST /v1/ids/{name}?count=n``: exactly n ids."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, name = self._service, scope["path_params"]["name"]
        service.check(access_of(service, scope), Verb.IDS, name)
        count = whole(query_of(scope), "count", 1)
        await reply(send, _as_json(await service.next_ids(name, count)))


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
    """``POST /v1/segments/{name}?step=n``: the ids ``(max_id - step, max_id]``, for one caller."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        raise NotImplementedError
