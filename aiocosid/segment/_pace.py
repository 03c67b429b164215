"""How far ahead to buy.  Pure.

CosId doubles its distance on every run of its worker for five seconds after one blip, and buys that
much each time.  Here a starvation doubles the distance once, a segment is bought only when one is
missing, and a quiet period halves the distance again.
"""

from __future__ import annotations

from typing import Final

__all__ = ("MAX_DISTANCE", "MAX_IDS_AHEAD", "QUIET_PERIOD", "Pace")

MAX_DISTANCE: Final = 4096
"""Segments.  A consumer at full speed on a 50 ms store needs 1024 to 2048 of 1000 ids."""

MAX_IDS_AHEAD: Final = 2**23
"""Ids (8.4 million), for steps far above 1000."""

QUIET_PERIOD: Final = 5.0
"""Seconds between two looks at whether the distance may be halved; CosId's hunger lasts as long."""

CALM: Final = 2 / 3
"""The part of the distance that must never have been used up in a quiet period.

Halving leaves a distance of one half; two thirds leave the low-water mark then at a third of it
still, so that a steady load cannot halve, starve and double for ever.
"""


class Pace:
    """The prefetch distance, in segments: doubled by starvation, halved by quiet.

    Attributes:
        step: ids per segment.
        safe_distance: segments kept ahead at rest; 0 for a generator that never prefetches.
        distance: segments kept ahead now.
        limit: the longest distance.
    """

    __slots__ = ("_low_water", "distance", "limit", "safe_distance", "step")

    def __init__(
        self,
        *,
        step: int,
        safe_distance: int,
        max_distance: int = MAX_DISTANCE,
        max_ids_ahead: int = MAX_IDS_AHEAD,
    ) -> None:
        self.step = step
        self.safe_distance = self.distance = safe_distance
        self.limit = max(safe_distance, min(max_distance, max_ids_ahead // step))
        self._low_water = 0

    @property
    def target(self) -> int:
        """Ids to keep ahead of the consumer."""
        return self.distance * self.step

    @property
    def is_grown(self) -> bool:
        """Whether the distance is longer than at rest."""
        return self.distance > self.safe_distance

    def missing(self, remaining: int, wanted: int) -> int:
        """Return how many segments to buy when ``remaining`` are ahead and ``wanted`` waited for."""
        short = self.distance * self.step + wanted - remaining
        return -(-short // self.step) if short > 0 else 0

    def starve(self) -> bool:
        """Double the distance up to the limit; return whether it grew.

        The low-water mark is zero then, so the quiet period that is under way ends nothing.
        """
        self._low_water = 0
        before = self.distance
        if before:
            self.distance = min(before * 2, self.limit)
        return self.distance > before

    def note(self, remaining: int) -> None:
        """Take note of how many ids are ahead at a piece boundary."""
        self._low_water = min(self._low_water, remaining)

    def end_period(self, remaining: int, *, idle: bool) -> bool:
        """End a quiet period and begin the next; return whether the distance was halved.

        Args:
            remaining: ids ahead now, the first mark of the next period.
            idle: whether nobody took an id, or waited for one, in the whole period.
        """
        calm = idle or self._low_water > self.target * CALM
        self._low_water = remaining
        if calm and self.is_grown:
            self.distance = max(self.distance // 2, self.safe_distance)
            return True
        return False
