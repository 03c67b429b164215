"""How much Leaf's double buffer loads, and when.  Pure.

Two segments, the one in use and the next.  The next is loaded when a tenth of the one in use is
gone, so there is one load under way and one segment ahead at most.  How long a segment lasted
decides how long the next one is.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from .options import MAX_STEP, PREFETCH_AT, SEGMENT_DURATION
from .pace import Pace

__all__ = ("DoubleBuffer",)

UNKNOWN: Final = 2
"""Loads with the row's step, before it is known how long a segment lasts."""


class DoubleBuffer(Pace):
    """A pace whose step changes: ids of the next segment, by how long the last one lasted.

    Attributes:
        least: the row's step, below which no segment is.
    """

    __slots__ = (
        "_duration",
        "_last",
        "_loaded_at",
        "_loads",
        "_max_step",
        "_prefetch_at",
        "_target",
        "least",
    )

    def __init__(
        self,
        *,
        step: int,
        prefetch_at: float = PREFETCH_AT,
        segment_duration: float = SEGMENT_DURATION,
        max_step: int = MAX_STEP,
    ) -> None:
        super().__init__(step=step, safe_distance=1)
        self.least = self._last = step
        self._prefetch_at = prefetch_at
        self._duration = segment_duration
        self._max_step = max_step
        self._target = 1
        self._loads = 0
        self._loaded_at = 0.0

    @property
    def target(self) -> int:
        """Ids ahead; with fewer the next segment is loaded."""
        return self._target

    def missing(self, remaining: int, wanted: int) -> int:
        """Return 1 if the next segment is due, more if callers wait for more than it holds.

        Leaf fails those instead ("both segments not ready", -3).
        """
        ahead = remaining - wanted
        return max(1, -(ahead // self.step)) if ahead < self._target else 0

    def piece(self, remaining: int, short: int) -> int:  # noqa: ARG002 - the threshold is exact
        """Return how many ids to hand out until the next look: to the one that makes it due."""
        until_due = remaining - self._target + 1
        # What is due and did not come is looked for again and again.
        return until_due if until_due > 0 else (remaining + 1) // 2

    def asked_for(self, n: int) -> bool:  # noqa: ARG002 - by time
        """Return False, as `landed`."""
        return False

    def landed(self, *, taken: int, demand: float, starved: bool) -> bool:  # noqa: ARG002 - by time
        """Return False: there is one segment ahead, whatever happens."""
        return False

    def plan(self, now: float, rate: float, space: int) -> None:  # noqa: ARG002 - by time alone
        """Choose the step of a segment that is loaded at ``now``, in seconds."""
        self.step = self._next_step(now) if self._loads >= UNKNOWN else self.least

    def _next_step(self, now: float) -> int:
        lasted, step = now - self._loaded_at, self._last
        if lasted < self._duration:
            step = step if step * 2 > self._max_step else step * 2
        elif lasted >= self._duration * 2:
            step = step if step // 2 < self.least else step // 2
        return max(step, self.least)

    def keep_to(self, least: int) -> None:
        """Take note of the row's step, and raise the one that was planned to it."""
        self.least = least
        self.step = max(self.step, least)

    def loaded(self, count: int, now: float) -> None:
        """Take note of a segment that has landed, of ``count`` ids."""
        self._loads += 1
        self._last, self._loaded_at = self.step, now
        self._target = max(1, ceil(count * (1 - self._prefetch_at)))
