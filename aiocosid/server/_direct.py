"""The shortest way to the routes that hand out ids: past the framework, with its answers.

Of what one id costs, the framework's layers take a fifth, and the server's two messages of an
answer another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Match, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

__all__ = ("Direct", "Sending")


class _Way(NamedTuple):
    methods: Collection[str] | None
    endpoint: Callable[[Scope, Receive, Send], Awaitable[None]]
    parameter: str


class Direct:
    """Finds the endpoints of paths whose last part is a parameter, by what is before it."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        """Look at the routes, in the order in which they are tried."""
        self._ways: dict[str, _Way] = {}
        for index, each in enumerate(routes):
            if not isinstance(each, Route) or each.app is not each.endpoint:
                continue  # the framework makes requests of its own for functions
            head, _, parameter = each.path.partition("/{")
            name = parameter.partition(":")[0].removesuffix("}")
            is_alone = list(each.param_convertors) == [name] and each.path.endswith("}")
            if is_alone and not any(_reaches(other, head) for other in routes[:index]):
                self._ways[head] = _Way(each.methods, each.endpoint, name)

    def find(self, scope: Scope) -> Callable[[Scope, Receive, Send], Awaitable[None]] | None:
        """Return the endpoint that the framework would call, having set what it would set.

        None if it is to look itself.
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
    """Return whether a route is for a path with that beginning, too, and comes first."""
    path: str = getattr(route, "path", "")
    scope: dict[str, Any] = {"type": "http", "path": f"{head}/x", "method": "", "headers": []}
    return path.startswith(f"{head}/") or route.matches(scope)[0] is not Match.NONE


class Sending:
    """Sends an answer as an ASGI server does, or at once where ours takes it whole.

    To HEAD it sends no body.

    Attributes:
        status: of the answer; 0 before.
    """

    __slots__ = ("_is_head", "_send", "_send_whole", "status")

    def __init__(self, send: Send, *, is_head: bool) -> None:
        """Send to a server, or to what is in front of it, which then sees each message."""
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
        """Send an answer that no cache may keep; return whether the server takes it so."""
        if self._send_whole is None:
            return False
        head = b"content-type: %b\r\ncontent-length: %d\r\ncache-control: no-store\r\n\r\n"
        if not self._send_whole(status, head % (content_type, len(body)), body):
            return False
        self.status = status
        return True
