"""Whether a store answers, and when to ask it again."""

from __future__ import annotations

import random
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...abc import Clock
    from ...errors import CosIdError

__all__ = ("FIRST_PAUSE", "LAST_PAUSE", "StoreHealth")

FIRST_PAUSE: Final = 0.5  # seconds after the first failure, doubled by each further one
LAST_PAUSE: Final = 30.0  # seconds


class StoreHealth:
    """The health of one store; the distributors of one `StripedStore` share it.

    Attributes:
        failures: failed calls so far.
        last_error: the error of the last failed call; None after an answer.
    """

    __slots__ = ("_again_at", "_clock", "_in_a_row", "failures", "last_error")

    def __init__(self, clock: Clock) -> None:
        """Begin with a healthy store."""
        self.failures: int = 0
        self.last_error: CosIdError | None = None
        self._clock = clock
        self._again_at = -inf
        self._in_a_row = 0

    @property
    def is_resting(self) -> bool:
        """Whether it is in a cooldown."""
        return self._again_at > self._clock.monotonic()

    @property
    def rank(self) -> float:
        """Stores with a lower rank are asked first; all without a cooldown have the same rank."""
        return self._again_at if self.is_resting else -inf

    def failed(self, error: CosIdError) -> bool:
        """Begin a cooldown, longer than the one before; return whether it is the first in a row.

        A running cooldown is not extended: several calls may have failed at once, or no other store
        is left.
        """
        is_first = self.last_error is None
        self.failures += 1
        self.last_error = error
        now = self._clock.monotonic()
        if now >= self._again_at:
            pause = min(LAST_PAUSE, FIRST_PAUSE * 2 ** min(self._in_a_row, 10))
            self._in_a_row += 1
            # Random, to differ from other processes.
            self._again_at = now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return is_first

    def answered(self) -> bool:
        """End the cooldown; return whether there was one."""
        was_away = self.last_error is not None
        self.last_error = None
        self._in_a_row, self._again_at = 0, -inf
        return was_away
