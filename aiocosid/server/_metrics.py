"""Metrics for Prometheus, of the server's generators.  Needs the ``prometheus`` extra."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from ..errors import MissingExtraError
from ._http import access_of, reply
from ._problems import Problem
from ._tokens import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute

    from ._http import Receive, Scope, Send
    from ._service import Service

__all__ = ("routes",)


REFUSED: Final = "aiocosid_server_tokens_refused_total"


def routes(service: Service) -> Sequence[BaseRoute]:
    """Return the route."""
    return [Route("/metrics", _Metrics(service), methods=["GET"])]


def _refused(service: Service) -> bytes:
    """Return the counter of tokens that were refused, as Prometheus's text."""
    lines = [f"# HELP {REFUSED} Requests without a token that is needed, and is valid.\n"]
    lines += [f"# TYPE {REFUSED} counter\n"]
    lines += [f'{REFUSED}{{reason="{each}"}} {n}\n' for each, n in service.refused.items()]
    return "".join(lines).encode()


class _Metrics:
    """``GET /metrics``: what is read from the statistics of all generators."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service = self._service
        service.check(access_of(service, scope), Verb.READ)
        try:
            from ..integrations.prometheus import scraped  # noqa: PLC0415 - an extra of its own
        except MissingExtraError as error:
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "not-supported", str(error)) from None
        kind, text = scraped(service.provider)
        is_head = scope["method"] == "HEAD"
        text += _refused(service)
        await reply(send, text, content_type=kind.encode(), is_head=is_head)
