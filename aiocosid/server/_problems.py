"""Errors as problem details (RFC 9457): status, title, and what to do."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Final

from ..errors import (
    BusyError,
    ClosedError,
    CosIdError,
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    NotOpenError,
    StoreError,
    UnsupportedByStoreError,
)
from ..integrations.failures import PROBLEM_JSON, FailureLog, retry_after, whole_seconds

__all__ = ("CONTENT_TYPE", "FAILURES", "Problem", "problem_of")

CONTENT_TYPE: Final = PROBLEM_JSON
RETRY_AFTER: Final = 1.0  # seconds, if the error does not say otherwise

FAILURES: Final = FailureLog(logging.getLogger("aiocosid.server"))
"""The log of failures here or in the store: one line per second for each cause, for all protocols.
"""


class Problem(Exception):  # noqa: N818 - the name of RFC 9457
    """What a client is told about a request that was not served.

    Attributes:
        status: the HTTP status.
        kind: the kind of problem, which is the last part of its ``type``.
        detail: what is wrong with this request.
        retry_after: seconds after which the request may be repeated; None if repeating it would not
            help.
        headers: further headers.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail or kind)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = whole_seconds(retry_after)

    def body(self, **more: object) -> bytes:
        """Return the JSON, with additional fields."""
        tree: dict[str, object] = {
            "type": f"urn:aiocosid:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "kind": self.kind,
        }
        if self.detail:
            tree["detail"] = self.detail
        return json.dumps(tree | more).encode()


# The first matching class decides.
_STATUSES: Final[tuple[tuple[type[CosIdError], int, str], ...]] = (
    (InvalidArgumentError, HTTPStatus.BAD_REQUEST, "invalid-argument"),
    (CounterMissingError, HTTPStatus.NOT_FOUND, "unknown-name"),
    (UnsupportedByStoreError, HTTPStatus.NOT_IMPLEMENTED, "not-supported"),
    (MachineIdOverflowError, HTTPStatus.CONFLICT, "machine-ids-used-up"),
    (MachineIdLostError, HTTPStatus.CONFLICT, "machine-id-lost"),
    (MachineIdInUseError, HTTPStatus.CONFLICT, "machine-id-in-use"),
    (MachineBitsMismatchError, HTTPStatus.CONFLICT, "machine-bits-mismatch"),
    (IdOverflowError, HTTPStatus.CONFLICT, "ids-used-up"),
    (NotOpenError, HTTPStatus.SERVICE_UNAVAILABLE, "not-open"),
    (ClosedError, HTTPStatus.SERVICE_UNAVAILABLE, "closed"),
    (BusyError, HTTPStatus.SERVICE_UNAVAILABLE, "busy"),
)


def problem_of(error: CosIdError) -> Problem:
    """Return the problem for an error of the library.

    The messages of a store's errors go only to the log, because they may name hosts and users.
    """
    for kind, status, name in _STATUSES:
        if isinstance(error, kind):
            return Problem(status, name, "" if isinstance(error, StoreError) else str(error))
    FAILURES.note(error, "the store did not answer a request")
    if error.retryable:
        after = retry_after(error)
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "no-id-now",
            f"no id just now ({type(error).__name__})",
            retry_after=RETRY_AFTER if after is None else after,
        )
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE, "refused", f"the store refuses ({type(error).__name__})"
    )
