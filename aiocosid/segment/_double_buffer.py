"""How much Leaf's double buffer loads, and when.  Pure.

There are two segments: the one in use and the next one.  The next is loaded when a tenth of the one
in use is gone, so at most one load is under way and at most one segment is ahead.  The size of the
next segment depends on how long the last one lasted.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from .options import MAX_STEP, PREFETCH_AT, SEGMENT_DURATION
from .pace import Pace

__all__ = ("DoubleBuffer",)

UNKNOWN: Final = 2
"""Loads that use the row's step, before it is known how long a segment lasts."""


class DoubleBuffer(Pace):
    """A pace whose step changes: the next segment is sized by how long the last one lasted.

    Attributes:
        least: the row's step; no segment is smaller.
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
        """Ids ahead; the next segment is loaded when fewer are left."""
        return self._target

    def missing(self, remaining: int, wanted: int) -> int:
        """Return 1 if the next segment is due, more if callers wait for more than it holds.

        Leaf fails such callers instead ("both segments not ready", -3).
        """
        ahead = remaining - wanted
        return max(1, -(ahead // self.step)) if ahead < self._target else 0

    def piece(self, remaining: int, short: int) -> int:  # noqa: ARG002 - the threshold is exact
        """Return how many ids to hand out before the next check: until a load is due."""
        until_due = remaining - self._target + 1
        # A load that is due and has not arrived is checked for repeatedly.
        return until_due if until_due > 0 else (remaining + 1) // 2

    def asked_for(self, n: int) -> bool:  # noqa: ARG002 - by time
        """Return False: the distance never grows with the size of a batch."""
        return False

    def landed(self, *, taken: int, demand: float, starved: bool) -> bool:  # noqa: ARG002 - by time
        """Return False: exactly one segment is kept ahead, whatever the demand."""
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
        """Record the row's step, and raise the planned step to it."""
        self.least = least
        self.step = max(self.step, least)

    def loaded(self, count: int, now: float) -> None:
        """Record the arrival of a segment of ``count`` ids."""
        self._loads += 1
        self._last, self._loaded_at = self.step, now
        self._target = max(1, ceil(count * (1 - self._prefetch_at)))
