"""Metrics for Prometheus, of the server and its generators.  Needs the ``prometheus`` extra."""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.routing import Route

from ..errors import MissingExtraError
from ..integrations.metrics import MACHINE_ID, Metric
from ..integrations.watched import Watched
from ._http import access_of, reply
from ._meters import (
    OVER_QUOTA,
    REFUSED,
    STORE_CALLS,
    STORE_FAILURES,
    STORE_TIME,
    STORE_UP,
    merged,
)
from ._problems import Problem
from ._tokens import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from ._meters import Figures
    from ._service import Service

__all__ = ("known_to", "routes")


def known_to(service: Service) -> Figures:
    """Return what this process knows."""
    watched = Watched()
    with watched.watch(service.provider):
        read = watched.read()
    calls, pulse = service.calls, service.pulse
    found: Figures = {**read, **service.meters.figures()}
    found[REFUSED] = {(why,): count for why, count in service.refused.items()}
    found[OVER_QUOTA] = {(token,): count for token, count in service.quotas.refused.items()}
    found[STORE_CALLS] = {(): calls.count}
    found[STORE_FAILURES] = {(): calls.failures}
    found[STORE_TIME] = {(): calls.seconds}
    if pulse.asked:
        found[STORE_UP] = {(): int(not pulse.failing)}
    return found


def routes(service: Service) -> Sequence[BaseRoute]:
    """Return the route."""
    return [Route("/metrics", _Metrics(service), methods=["GET"])]


class _Metrics:
    """``GET /metrics``: what this process and the others of the server know."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        service = self._service
        service.check(access_of(service, scope), Verb.READ)
        try:
            from ..integrations.exposition import exposed  # noqa: PLC0415 - an extra of its own
        except MissingExtraError as error:
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "not-supported", str(error)) from None
        found, labels = known_to(service), dict[Metric, tuple[str, ...]]()
        if service.sheets is not None:
            mine = os.getpid(), True, found
            found = merged([mine, *service.sheets.others()])
            labels[MACHINE_ID] = (*MACHINE_ID.labels, "pid")
        kind, text = exposed(found, labels)
        is_head = scope["method"] == "HEAD"
        await reply(send, text, content_type=kind.encode(), is_head=is_head)
