"""The routes of the server's own API: one list defines routing, rights and OpenAPI."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError
from starlette.routing import Match, Route

from ._http import HttpAnswer, access_of, body_of, send_answer
from ._problems import Problem
from ._tokens import Access

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from pydantic import BaseModel
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from ._service import Service
    from ._tokens import TokenScope

__all__ = ("Direct", "HttpCall", "HttpOperation", "as_json", "routes_of")

NOTHING: Final = Access(scopes=frozenset())


@dataclass(slots=True)  # creating a frozen one takes four times as long
class HttpCall:
    """One request.

    Attributes:
        service: the service.
        access: what its sender may do; nothing for a public operation.
        scope: the request's scope.
        receive: receives the request's body.
        path: the parameters of its path.
    """

    service: Service
    access: Access
    scope: Scope
    receive: Receive
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """An operation for one method of one path.

    Attributes:
        method: GET, which includes HEAD, POST, PATCH or DELETE.
        path: the path in Starlette's notation.
        serve: runs the operation; called with the call and, if there is a model of the body, with
            the body.
        scope: the token scope that the sender needs for the name or namespace in the path; None if
            any valid token is enough.
        is_public: whether it is served without checking for a token, or checks the token itself.
        summary: what it does; empty if OpenAPI does not show the operation.
        answer: the name of its answer's schema.
        asked: the model of its body.
        query: the schemas of the parameters in its query.
    """

    method: str
    path: str
    serve: Callable[..., Awaitable[HttpAnswer]]
    scope: TokenScope | None = None
    _: KW_ONLY
    is_public: bool = False
    summary: str = ""
    answer: str = ""
    asked: type[BaseModel] | None = None
    query: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


def routes_of(service: Service, operations: Iterable[HttpOperation]) -> list[Route]:
    """Return the routes of operations, in the same order."""
    paths: dict[str, dict[str, HttpOperation]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method] = each
    return [Route(path, _Endpoint(service, each), methods=[*each]) for path, each in paths.items()]


class _Endpoint:
    """Serves the operations of one path."""

    def __init__(self, service: Service, operations: Mapping[str, HttpOperation]) -> None:
        self._service = service
        self._operations = {**operations, "HEAD": operations.get("GET")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service, operation = self._service, self._operations[scope["method"]]
        assert operation is not None  # noqa: S101 - the route has no other methods
        access = NOTHING if operation.is_public else access_of(service, scope)
        path = scope["path_params"]
        call = HttpCall(service, access, scope, receive, path)
        if operation.scope is not None:
            service.check(access, operation.scope, path.get("name") or path.get("namespace", ""))
        if operation.asked is None:
            answer = await operation.serve(call)
        else:
            answer = await operation.serve(call, await _parsed(call, operation.asked))
        await send_answer(send, answer)


async def _parsed(call: HttpCall, model: type[BaseModel]) -> BaseModel:
    body = await body_of(call.scope, call.receive, call.service.limits.body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        # The given values are left out, because they may contain a misplaced secret.
        found = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()
        )
        raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", found) from None


def as_json(tree: object, status: int = HTTPStatus.OK) -> HttpAnswer:
    """Return an answer in JSON."""
    return HttpAnswer(json.dumps(tree).encode(), status=status)


# A shortcut to the routes that issue ids: the framework's layers cost a fifth of the time for one
# id.


class _Way(NamedTuple):
    methods: Collection[str] | None
    endpoint: Callable[[Scope, Receive, Send], Awaitable[None]]
    parameter: str


class Direct:
    """Finds endpoints whose path's last part is a parameter, from the part before it."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        """Index the routes, in the order in which they are tried."""
        self._ways: dict[str, _Way] = {}
        for index, each in enumerate(routes):
            if not isinstance(each, Route) or each.app is not each.endpoint:
                continue  # for functions the framework creates its own requests
            head, _, parameter = each.path.partition("/{")
            name = parameter.partition(":")[0].removesuffix("}")
            is_alone = list(each.param_convertors) == [name] and each.path.endswith("}")
            if is_alone and not any(_reaches(other, head) for other in routes[:index]):
                self._ways[head] = _Way(each.methods, each.endpoint, name)

    def find(self, scope: Scope) -> Callable[[Scope, Receive, Send], Awaitable[None]] | None:
        """Return the endpoint that the framework would call, and set what it would set.

        It returns None if the framework must search.
        """
        head, _, last = scope["path"].rpartition("/")
        way = self._ways.get(head)
        if way is None or not last or "\n" in last or scope.get("root_path"):
            return None
        methods, endpoint, parameter = way
        if methods is not None and scope["method"] not in methods:
            return None
        scope["path_params"] = {parameter: last}
        scope["endpoint"] = endpoint
        return endpoint


def _reaches(route: BaseRoute, head: str) -> bool:
    """Return whether a route also matches a path with that beginning, and comes first."""
    path: str = getattr(route, "path", "")
    scope: dict[str, Any] = {"type": "http", "path": f"{head}/x", "method": "", "headers": []}
    return path.startswith(f"{head}/") or route.matches(scope)[0] is not Match.NONE
