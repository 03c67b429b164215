"""The number of sequences that a generator requests at once.  Pure."""

from __future__ import annotations

from math import ceil
from typing import Final

__all__ = ("BatchSize",)

SMOOTHING: Final = 0.5  # the share of the last second in the mean
HEADROOM: Final = 1.25  # multiple of the mean; unused sequences of a second are a gap
LEAST: Final = 100  # sequences in a grant, unless the size is fixed
GROWTH: Final = 2  # factor for each further grant within a second


class BatchSize:
    """Follows the demand: an exponential mean of ids per second.

    Attributes:
        most: the maximum number of sequences in one request.
    """

    __slots__ = ("_fixed", "_granted_second", "_issued", "_last_size", "_rate", "_second", "most")

    def __init__(self, most: int, fixed: int | None) -> None:
        """Start without demand.

        Args:
            most: the maximum number of sequences in one request.
            fixed: a fixed number for each request; None to follow the demand.
        """
        self.most = most
        self._fixed = fixed
        self._rate = 0.0
        self._second = -1
        self._issued = 0  # ids issued when that second began
        self._granted_second = -1  # the second of the last grant
        self._last_size = 0

    def note(self, second: int, issued: int) -> None:
        """Record how many ids were handed out in total, at a time within a second."""
        if self._second < 0:
            self._second, self._issued = second, issued
        passed = second - self._second
        if passed <= 0:
            return
        taken = issued - self._issued
        self._rate += SMOOTHING * (taken - self._rate)
        self._rate *= (1 - SMOOTHING) ** min(passed - 1, 64)
        self._second, self._issued = second, issued

    @property
    def rate(self) -> float:
        """The mean number of ids handed out per second."""
        return self._rate

    def size(self, second: int, wanted: int) -> int:
        """Return how many sequences of a second to request.

        Args:
            second: the second.
            wanted: ids that callers wait for.
        """
        if self._fixed is not None:
            return min(self._fixed, self.most)
        size = max(LEAST, ceil(self._rate * HEADROOM), wanted)
        if second == self._granted_second:
            size = max(size, self._last_size * GROWTH)
        self._granted_second, self._last_size = second, min(size, self.most)
        return self._last_size
