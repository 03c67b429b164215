"""What a request that fails is answered, and log lines for many of them."""

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
LATE: Final = 0.05  # seconds by which a timer is later than the wall clock's second


class FailureAnswer(NamedTuple):
    """The answer to a request that failed; its body is of the type `PROBLEM_JSON`."""

    status: int
    headers: dict[str, str]
    body: bytes


def answer_to(error: CosIdError) -> FailureAnswer:
    """Return 503 with ``Retry-After`` for a ``retryable`` error, and 500 for any other.

    The body is a problem detail (RFC 9457).  Its ``type`` is the error's ``url``; the error's text,
    which may name hosts and users, is not in it.
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
    """Return the value of ``Retry-After``: 1 at least, as generators ask their store again soon."""
    return str(max(1, ceil(seconds or 0)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


class FailureLog:
    """Writes at most one line a second for one cause, and how many more there were.

    The first failure has its line at once.  Those of the next second are left out, and the line
    that follows says how many.  On an asyncio loop that line comes a second later; in threads,
    with the next failure or `write_due`.  Nothing runs while nothing fails.

    A line has no traceback, but the last place outside of aiocosid.  With the logger at ``DEBUG``
    it has one.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Choose where the lines go; the logger ``aiocosid.requests`` by default."""
        self._logger: Final = logger or logging.getLogger("aiocosid.requests")
        self._limiter: Final = LineLimiter(PAUSE)
        self._lock: Final = Lock()  # of threads that serve requests
        self._last: dict[Hashable, logging.LogRecord] = {}  # of those that were left out
        self._loop: asyncio.AbstractEventLoop | None = None  # whose timer writes them

    def note(
        self, error: Exception, what: str, *, trace: bool = False, level: int | None = None
    ) -> None:
        """Write a line about a failure, or count it.

        Args:
            error: why it failed.
            what: what happened to the request.
            trace: whether the line has a traceback, as a mistake of this library needs it.
            level: the line's; by default a warning if the request may be repeated, else an error.
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
        """Write the lines that are due for what was left out; nothing if there was nothing."""
        if not self._last:
            return
        due: list[tuple[logging.LogRecord, int]] = []
        with self._lock:
            for cause, last in tuple(self._last.items()):
                record = self._record(last.levelno, last.msg, last.__dict__["aiocosid"])
                left_out = self._limiter.admit(cause, record.created, lines=0)
                if left_out is not None:
                    del self._last[cause]
                    due.append((record, left_out - 1))  # one of them is shown
        for record, left_out in due:
            self._write(record, left_out)


def _cause(error: Exception) -> Hashable:
    """Return what failures that an operator sees as one have in common.

    That is the error's class and the store, but neither the generator nor what the driver said.
    """
    stores = [each.store for each in _chain(error) if isinstance(each, StoreError)]
    return type(error), getattr(error, "retryable", None), *stores


def _place(trace: TracebackType | None) -> str:
    """Return the last line of code outside of this library that an error went through."""
    place = ""
    while trace is not None:
        frame, line, trace = trace.tb_frame, trace.tb_lineno, trace.tb_next
        if frame.f_globals.get("__name__", "").partition(".")[0] != "aiocosid":
            place = f" [{frame.f_code.co_filename}:{line} {frame.f_code.co_name}]"
    return place
