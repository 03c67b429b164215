"""Events as log lines."""

from __future__ import annotations

import logging
import re
from dataclasses import fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from ..abc.events import (
    CacheFound,
    CacheLost,
    ClockBackwards,
    DistanceChanged,
    Event,
    FetchFailed,
    IdsDiscarded,
    MachineIdDistributed,
    MachineIdGuarded,
    MachineIdGuardFailed,
    MachineIdLost,
    MachineIdsQuarantined,
    RingEmptied,
    RingFilled,
    SegmentFetched,
    SnowflakeOpened,
    SpanLeased,
    Starved,
    WaitTimedOut,
)
from ..errors import InvalidArgumentError
from ._line_limit import LineLimiter, with_count

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("LEVELS", "LoggingInstrument")

LEVELS: Final[Mapping[type[Event], int]] = {
    SegmentFetched: logging.DEBUG,
    # The logger `aiocosid` already has a warning about the first failure.
    FetchFailed: logging.INFO,
    Starved: logging.INFO,
    DistanceChanged: logging.DEBUG,
    WaitTimedOut: logging.WARNING,
    IdsDiscarded: logging.DEBUG,
    ClockBackwards: logging.WARNING,
    SnowflakeOpened: logging.DEBUG,
    RingFilled: logging.DEBUG,
    RingEmptied: logging.WARNING,
    MachineIdDistributed: logging.DEBUG,
    MachineIdGuarded: logging.DEBUG,
    MachineIdGuardFailed: logging.INFO,  # like FetchFailed
    MachineIdLost: logging.ERROR,
    MachineIdsQuarantined: logging.WARNING,
    SpanLeased: logging.DEBUG,
    CacheLost: logging.INFO,  # like FetchFailed
    CacheFound: logging.INFO,
}
"""The level of each event's line."""


class LoggingInstrument:
    """An `aiocosid.Instrument` that logs a line for each event.

    ``shop.order: fetch failed error='redis: ...' attempt=2 took=0.004``.  Each record has an
    attribute ``aiocosid``, a dict of the event's name and facts, for handlers that write JSON.

    Above the level DEBUG, a line with the same event, namespace, name and kind of error as an
    earlier one is suppressed for some seconds; the next line says how many were suppressed.
    """

    __slots__ = ("_levels", "_limiter", "_logger")

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        levels: Mapping[type[Event], int] | None = None,
        pause: float = 10.0,
    ) -> None:
        """Choose what is written.

        Args:
            logger: the logger; ``aiocosid.abc.events`` by default.
            levels: levels of events that differ from `LEVELS`.
            pause: seconds between two similar lines; 0 writes all lines.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if not isfinite(pause) or pause < 0:
            rule = "must be a finite number of seconds, 0 or more"
            raise InvalidArgumentError("pause", pause, rule)
        self._logger: Final = logger or logging.getLogger("aiocosid.abc.events")
        self._levels: Final = {**LEVELS, **(levels or {})}
        self._limiter: Final = LineLimiter(pause)

    def on_event(self, event: Event, /) -> None:
        """Log an event, or leave it out."""
        level = self._levels.get(type(event), logging.DEBUG)
        if not self._logger.isEnabledFor(level):
            return
        record = self._record(level, event)
        if level > logging.DEBUG:
            left_out = self._left_out(event, record.created)
            if left_out is None:
                return
            if left_out:
                record.msg = with_count(record.msg, left_out)
                record.__dict__["aiocosid"]["left_out"] = left_out
        self._logger.handle(record)

    def _record(self, level: int, event: Event) -> logging.LogRecord:
        facts = {each.name: _plain(getattr(event, each.name)) for each in fields(event)}
        words = _words(type(event).__name__)
        details = "".join(f" {k}={v!r}" for k, v in facts.items() if k not in {"namespace", "name"})
        return self._logger.makeRecord(
            self._logger.name,
            level,
            __file__,
            0,
            f"{event.namespace}.{event.name}: {words}{details}",
            (),
            None,
            "on_event",
            {"aiocosid": {"event": type(event).__name__, **facts}},
        )

    def _left_out(self, event: Event, now: float) -> int | None:
        """Return how many similar lines were suppressed; None if this one is suppressed too."""
        error: object = getattr(event, "error", None)
        cause = (type(event), event.namespace, event.name, type(error))
        return self._limiter.admit(cause, now)


def _words(name: str) -> str:
    """Return ``SegmentFetched`` as ``segment fetched``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _plain(fact: Any) -> Any:  # noqa: ANN401 - any fact of an event
    return f"{type(fact).__name__}: {fact}" if isinstance(fact, Exception) else fact
