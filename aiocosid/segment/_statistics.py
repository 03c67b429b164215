"""What a segment generator can say about itself.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..abc import Statistics

__all__ = ("RateMeter", "SegmentStatistics")

WINDOW: Final = 1.0  # seconds; a rate is taken over one to two windows


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStatistics(Statistics):
    """A picture of a `SegmentChainId` or `SegmentId` at one moment.

    Attributes:
        step: ids per segment.
        head_sequence: the id before the next one to be handed out; None before the first fetch.
        max_id: the last id reserved so far; None before the first fetch.
        remaining: ids in hand, reserved and not yet handed out.
        safe_distance: segments kept ahead at rest.
        prefetch_distance: segments kept ahead now.
        starvations: how often the chain went dry with somebody waiting.
        waits: callers that had to wait, several in one starvation.
        waiting: callers that wait now.
        fetches: answers of the store that were linked.
        failures: fetches that failed.
        ids_fetched: ids reserved in the store.
        ids_handed_out: ids given to callers.
        ids_discarded: ids given up: expired, cancelled, closed or above the limit.
        rate: ids a second that callers took lately.
        seconds_left: how long the ids in hand last at that rate; None when nobody takes any.
        last_error: the store's latest error; None after a fetch that succeeded.
    """

    step: int
    head_sequence: int | None
    max_id: int | None
    remaining: int
    safe_distance: int
    prefetch_distance: int
    starvations: int
    waits: int
    waiting: int
    fetches: int
    failures: int
    ids_fetched: int
    ids_handed_out: int
    ids_discarded: int
    rate: float
    seconds_left: float | None
    last_error: Exception | None


class RateMeter:
    """Ids a second, from samples taken whenever a segment arrives."""

    __slots__ = ("_count", "_newer_at", "_newer_count", "_since")

    def __init__(self, now: float) -> None:
        self._since = self._newer_at = now
        self._count = self._newer_count = 0

    def note(self, now: float, handed_out: int) -> None:
        """Take a sample, at most one a window."""
        if now - self._newer_at >= WINDOW:
            self._since, self._count = self._newer_at, self._newer_count
            self._newer_at, self._newer_count = now, handed_out

    def rate(self, now: float, handed_out: int) -> float:
        """Return ids a second since the older sample."""
        elapsed = now - self._since
        return (handed_out - self._count) / elapsed if elapsed > 0 else 0.0
