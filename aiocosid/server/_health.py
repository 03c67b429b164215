"""Health: whether the server is running, and whether it can issue ids.  It needs no token."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..errors import NotOpenError
from ..integrations.asgi import check_health
from ._http import access_of, bearer_of, needs_token
from ._problems import Problem
from ._routes import HttpOperation, as_json
from ._tokens import TokenScope

if TYPE_CHECKING:
    from starlette.types import Scope

    from ._http import HttpAnswer
    from ._routes import HttpCall
    from ._service import Service

__all__ = ("OPERATIONS",)


async def _live(_call: HttpCall) -> HttpAnswer:
    """Answer 200 while the event loop runs."""
    return as_json({"status": "up"})


async def _ready(call: HttpCall) -> HttpAnswer:
    """Answer 200 if each generator can issue ids, and the server is not draining."""
    service = call.service
    found = service.condition
    tree: dict[str, object] = {"status": found.status}
    if found.reasons:
        tree["reasons"] = found.reasons
    if _may_see_names(service, call.scope):
        with suppress(NotOpenError):
            tree["generators"] = check_health(service.provider).generators
    return as_json(tree, HTTPStatus.OK if found.is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


OPERATIONS: Final = (
    HttpOperation("GET", "/health/live", _live, is_public=True),
    HttpOperation("GET", "/health/ready", _ready, is_public=True),
)


def _may_see_names(service: Service, scope: Scope) -> bool:
    if needs_token(service, scope) and bearer_of(scope) is None:
        return False  # a probe's missing token is not counted
    try:
        return access_of(service, scope).allows(TokenScope.READ)
    except Problem:
        return False
