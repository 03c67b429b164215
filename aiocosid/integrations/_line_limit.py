"""Limits how often a repeated log line is written.  No I/O: the caller passes the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ("LineLimiter", "with_count")

MOST_CAUSES: Final = 1000  # maximum remembered; the one with the oldest line is forgotten first


class LineLimiter:
    """Admits one line per cause within some seconds, and counts the others."""

    __slots__ = ("_interval", "_written")

    def __init__(self, interval: float) -> None:
        """Allow one line for each cause every `interval` seconds; 0 allows all lines."""
        self._interval: Final = interval
        # For each cause, when its last line was written, and how many were left out since; oldest
        # first.
        self._written: Final[dict[Hashable, tuple[float, int]]] = {}

    def admit(self, cause: Hashable, now: float, *, lines: int = 1) -> int | None:
        """Return how many lines of the cause were left out since its last one; None means wait.

        Args:
            cause: what lines with the same meaning have in common.
            now: the time in seconds, on any clock, even one that may be set back.
            lines: how many lines to count as left out if it is too early.
        """
        at, left_out = self._written.get(cause, (now - self._interval, 0))
        if 0 <= now - at < self._interval:
            self._written[cause] = (at, left_out + lines)
            return None
        self._written.pop(cause, None)
        self._written[cause] = (now, 0)
        if len(self._written) > MOST_CAUSES:
            del self._written[next(iter(self._written))]
        return left_out


def with_count(line: str, left_out: int) -> str:
    """Return a line that says how many similar lines were left out."""
    return f"{line} ({left_out} more like it were left out)" if left_out else line
