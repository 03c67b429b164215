"""How often a log line that repeats is written; pure: the caller passes the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ("LineLimiter", "with_count")

MOST_CAUSES: Final = 1000  # remembered at a time; the one whose line is oldest is forgotten first


class LineLimiter:
    """Admits one line for a cause within some seconds, and counts the others."""

    __slots__ = ("_interval", "_written")

    def __init__(self, interval: float) -> None:
        """Allow a line for each cause every `interval` seconds; 0 allows all of them."""
        self._interval: Final = interval
        # When a line of a cause was written, and how many were left out since; the oldest first.
        self._written: Final[dict[Hashable, tuple[float, int]]] = {}

    def admit(self, cause: Hashable, now: float, *, lines: int = 1) -> int | None:
        """Return how many lines of the cause were left out since its last one; None to wait.

        Args:
            cause: what lines that say the same have in common.
            now: seconds, by any clock, even one that is set back.
            lines: how many to count as left out if it is too early for one.
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
    """Return a line that says how many like it were left out."""
    return f"{line} ({left_out} more like it were left out)" if left_out else line
