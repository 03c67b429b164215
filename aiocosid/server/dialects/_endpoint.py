"""The common part of HTTP dialects: who may call, and how an error is answered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ...errors import CosIdError
from .._http import EVERYTHING, HttpAnswer, access_of, check_host, check_site, send_answer
from .._problems import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from .._service import Service
    from .._tokens import Access

    Gate: TypeAlias = Callable[[Scope], Access]

__all__ = ("Endpoint", "gate")

TAKE_NOTHING: Final = frozenset({"HEAD", "OPTIONS", "TRACE"})
"""Methods that a client, a cache or a scanner may send at any time, so they must take nothing."""


def gate(service: Service, *, public: bool) -> Gate:
    """Return a function that determines what the sender of a request may do.

    Args:
        service: the service, which has the tokens.
        public: whether clients need no token, because the dialect's clients have none.
    """
    return partial(_anybody if public else access_of, service)


def _anybody(service: Service, scope: Scope) -> Access:
    check_host(service, scope)
    check_site(scope)
    return EVERYTHING


class Endpoint:
    """One route of a dialect, for any method; HEAD, OPTIONS and TRACE take nothing."""

    __slots__ = ("_failed", "_serve")

    def __init__(
        self,
        serve: Callable[[Scope, Receive], Awaitable[HttpAnswer]],
        failed: Callable[[Scope, Problem | CosIdError], HttpAnswer],
    ) -> None:
        """Describe the route.

        Args:
            serve: serves a request.
            failed: returns the dialect's answer for an error of the request or the store.
        """
        self._serve, self._failed = serve, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] in TAKE_NOTHING:
            await send_answer(send, HttpAnswer(b""))
            return
        try:
            found = await self._serve(scope, receive)
        except (Problem, CosIdError) as error:
            found = self._failed(scope, error)
        await send_answer(send, found)

    def __repr__(self) -> str:
        """Name what it serves."""
        return f"<Endpoint {self._serve!r}>"
