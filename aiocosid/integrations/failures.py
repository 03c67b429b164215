"""The answers to failed requests, and limited log lines about them."""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from math import ceil, isfinite
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import StoreError
from ._line_limit import LineLimiter, with_count

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from types import TracebackType

    from ..errors import CosIdError

__all__ = (
    "PROBLEM_JSON",
    "FailureAnswer",
    "FailureLog",
    "answer_to",
    "retry_after",
    "whole_seconds",
)

PROBLEM_JSON: Final = "application/problem+json"
PAUSE: Final = 1.0  # seconds between two lines for one cause
LATE: Final = 0.05  # seconds by which a timer may be later than a second of the wall clock


class FailureAnswer(NamedTuple):
    """The answer to a request that failed; its body is of the type `PROBLEM_JSON`."""

    status: int
    headers: dict[str, str]
    body: bytes


def answer_to(error: CosIdError) -> FailureAnswer:
    """Return 503 with ``Retry-After`` for a ``retryable`` error, and 500 for any other.

    The body is a problem detail (RFC 9457).  Its ``type`` is the error's ``url``; it does not
    contain the error's text, which may name hosts and users.
    """
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    headers = {"cache-control": "no-store"}
    tree: dict[str, object] = {"type": error.url}
    if error.retryable:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        headers["retry-after"] = whole_seconds(retry_after(error))
        tree["detail"] = "no id just now"
    tree |= {"title": status.phrase, "status": int(status)}
    return FailureAnswer(int(status), headers, json.dumps(tree).encode())


def retry_after(error: CosIdError) -> float | None:
    """Return the seconds that an error, or one of its causes, gives; None if none does."""
    for each in _chain(error):
        seconds: float | None = getattr(each, "retry_after", None)
        if seconds is not None and isfinite(seconds):
            return seconds
    return None


def whole_seconds(seconds: float | None) -> str:
    """Return the value of ``Retry-After``: at least 1, since generators soon retry."""
    return str(max(1, ceil(seconds or 0)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


class FailureLog:
    """Writes at most one line per second for each cause, with the number of lines left out.

    The first failure is logged at once.  Failures in the next second are left out, and the
    following line says how many.  On an asyncio loop that line comes a second later; in threads,
    with the next failure or `write_due`.  Nothing runs while nothing fails.

    A line has no traceback, but names the last place outside aiocosid.  With the logger at
    ``DEBUG`` it has a traceback.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Choose the logger; ``aiocosid.requests`` by default."""
        self._logger: Final = logger or logging.getLogger("aiocosid.requests")
        self._limiter: Final = LineLimiter(PAUSE)
        self._lock: Final = Lock()  # for threads that serve requests
        self._last: dict[Hashable, logging.LogRecord] = {}  # for causes with lines left out
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop whose timer writes them

    def note(
        self, error: Exception, what: str, *, trace: bool = False, level: int | None = None
    ) -> None:
        """Log a failure, or count it.

        Args:
            error: the cause of the failure.
            what: what happened to the request.
            trace: whether the line has a traceback, which a bug in this library needs.
            level: the line's level; by default a warning if the request may be repeated, otherwise
                an error.
        """
        if level is None:
            level = logging.WARNING if getattr(error, "retryable", False) else logging.ERROR
        if not self._logger.isEnabledFor(level):
            return
        text = f"{what}: {type(error).__name__}: {error}{_place(error.__traceback__)}"
        url: str | None = getattr(error, "url", None)
        facts: dict[str, object] = {"error": type(error).__name__, "url": url}
        record = self._record(level, " ".join(text.split("\n")), facts)
        cause = _cause(error)
        with self._lock:
            left_out = self._limiter.admit(cause, record.created)
            if left_out is None:
                self._last[cause] = record
                self._summarise_soon()
                return
            self._last.pop(cause, None)
        if trace or self._logger.isEnabledFor(logging.DEBUG):
            record.exc_info = (type(error), error, error.__traceback__)
        self._write(record, left_out)

    def _record(self, level: int, text: str, facts: dict[str, object]) -> logging.LogRecord:
        name, extra = self._logger.name, {"aiocosid": facts}
        return self._logger.makeRecord(name, level, __file__, 0, text, (), None, "note", extra)

    def _write(self, record: logging.LogRecord, left_out: int) -> None:
        record.msg = with_count(record.msg, left_out)
        record.__dict__["aiocosid"]["left_out"] = left_out
        self._logger.handle(record)

    def _summarise_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(PAUSE + LATE, self._summarise)

    def _summarise(self) -> None:
        self._loop = None
        self.write_due()
        with self._lock:
            if self._last:
                self._summarise_soon()

    def write_due(self) -> None:
        """Write the due lines about failures that were left out, if there are any."""
        if not self._last:
            return
        due: list[tuple[logging.LogRecord, int]] = []
        with self._lock:
            for cause, last in tuple(self._last.items()):
                record = self._record(last.levelno, last.msg, last.__dict__["aiocosid"])
                left_out = self._limiter.admit(cause, record.created, lines=0)
                if left_out is not None:
                    del self._last[cause]
                    due.append((record, left_out - 1))  # this line shows one of them
        for record, left_out in due:
            self._write(record, left_out)


def _cause(error: Exception) -> Hashable:
    """Return what failures that an operator sees as one have in common.

    These are the error's class and the store, but neither the generator nor the driver's message.
    """
    stores = [each.store for each in _chain(error) if isinstance(each, StoreError)]
    return type(error), getattr(error, "retryable", None), *stores


_LIBRARIES: Final = {"aiocosid", "sqlalchemy"}  # the latter calls the former, and takes greenlets


def _place(trace: TracebackType | None) -> str:
    """Return the last line of the application's code through which an error passed."""
    place = ""
    while trace is not None:
        frame, line, trace = trace.tb_frame, trace.tb_lineno, trace.tb_next
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            place = f" [{frame.f_code.co_filename}:{line} {frame.f_code.co_name}]"
    return place
