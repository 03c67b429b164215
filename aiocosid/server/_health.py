"""Health: whether the server lives, and whether it can hand out ids.  Nobody needs a token."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.routing import Route

from ..errors import NotOpenError
from ..integrations.asgi import check_health
from ._http import access_of, bearer_of, needs_token, reply
from ._problems import Problem
from ._tokens import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from ._service import Service

__all__ = ("routes",)

METHODS = ("GET", "HEAD")


def routes(service: Service) -> Sequence[BaseRoute]:
    """Return the routes."""
    return [
        Route("/health/live", _Live(), methods=METHODS),
        Route("/health/ready", _Ready(service), methods=METHODS),
    ]


class _Live:
    """``GET /health/live``: 200 while the event loop runs."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await reply(send, b'{"status":"up"}', is_head=scope["method"] == "HEAD")


class _Ready:
    """``GET /health/ready``: 200 if each generator can hand out ids, and the server stays."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service = self._service
        found = service.condition
        tree: dict[str, object] = {"status": found.status}
        if found.reasons:
            tree["reasons"] = found.reasons
        if _may_see_names(service, scope):
            with suppress(NotOpenError):
                tree["generators"] = check_health(service.provider).generators
        status = HTTPStatus.OK if found.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps(tree).encode()
        await reply(send, body, status=status, is_head=scope["method"] == "HEAD")


def _may_see_names(service: Service, scope: Scope) -> bool:
    if needs_token(service, scope) and bearer_of(scope) is None:
        return False  # a probe, whose missing token is none of those that are counted
    try:
        return access_of(service, scope).allows(Verb.READ)
    except Problem:
        return False
