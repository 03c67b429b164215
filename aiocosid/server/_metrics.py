"""Prometheus metrics of the server and its generators.  Requires the ``prometheus`` extra."""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..errors import MissingExtraError
from ..integrations.metrics import MACHINE_ID, Metric
from ..integrations.watched import Watched
from ._http import HttpAnswer
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
from ._routes import HttpOperation
from ._tokens import TokenScope

if TYPE_CHECKING:
    from ._meters import Figures
    from ._routes import HttpCall
    from ._service import Service

__all__ = ("OPERATIONS", "known_to")


def known_to(service: Service) -> Figures:
    """Return the figures of this process."""
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


async def _metrics(call: HttpCall) -> HttpAnswer:
    """Show the figures of this process and the server's other processes."""
    try:
        from ..integrations.exposition import exposed  # noqa: PLC0415 - needs another extra
    except MissingExtraError as error:
        raise Problem(HTTPStatus.NOT_IMPLEMENTED, "not-supported", str(error)) from None
    found, labels = known_to(call.service), dict[Metric, tuple[str, ...]]()
    if call.service.sheets is not None:
        mine = os.getpid(), True, found
        found = merged([mine, *call.service.sheets.others()])
        labels[MACHINE_ID] = (*MACHINE_ID.labels, "pid")
    kind, text = exposed(found, labels)
    return HttpAnswer(text, kind.encode())


OPERATIONS: Final = (HttpOperation("GET", "/metrics", _metrics, TokenScope.READ),)
