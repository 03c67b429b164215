"""The latest answers of a store of sequences, and when to call it again.  Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from ..abc import SecondFenced, SecondSpent
from ..errors import StoreUnavailableError

if TYPE_CHECKING:
    from ..abc import SequenceReply
    from ..errors import CosIdError

__all__ = ("StoreAvailability",)

FENCE_BACKOFF: Final = 2.0  # seconds; a fence that is far ahead may be removed meanwhile


class StoreAvailability:
    """The availability of one generator's store.  Times are on the monotonic clock.

    Attributes:
        is_away: whether the last call could not reach the store.
        is_spent: whether the last answer said that a second is used up.
        last_error: the latest error; None after a call that succeeded.
        attempt: failed calls in a row.
        retry_at: no call before this time.
        opens: the first second of which sequences are granted, as far as is known.
        opens_at: when that second can be requested.
        fence_at: until this time, no call requests a second below `opens`.
    """

    __slots__ = (
        "attempt",
        "fence_at",
        "is_away",
        "is_spent",
        "last_error",
        "opens",
        "opens_at",
        "retry_at",
    )

    def __init__(self) -> None:
        self.is_away = self.is_spent = False
        self.last_error: CosIdError | None = None
        self.attempt: int = 0
        self.retry_at = self.opens_at = self.fence_at = -inf
        self.opens = -1

    def answered(self, answer: SequenceReply | None, tolerance: int, now: float) -> None:
        """Record an answer.

        After a fence, the first open second is requested as soon as that is allowed.  While it is
        far ahead, the current second is requested every `FENCE_BACKOFF` seconds.

        Args:
            answer: the answer; None if it concerns no second.
            tolerance: seconds that a second may be ahead of the store's clock.
            now: the time.
        """
        self.is_away, self.is_spent = False, isinstance(answer, SecondSpent)
        self.last_error, self.attempt, self.retry_at = None, 0, -inf
        if isinstance(answer, SecondFenced):
            self.opens_at = now + max(0, answer.opens - tolerance - answer.now)
            self.opens = answer.opens
            self.fence_at = min(self.opens_at, now + FENCE_BACKOFF)
        elif answer is not None:
            self.opens = min(self.opens, answer.second)

    def failed(self, error: CosIdError, retry_at: float) -> None:
        """Record a failed call, its error, and when the store may be called again."""
        self.last_error = error
        self.attempt += 1
        self.is_away = isinstance(error, StoreUnavailableError)
        self.retry_at = retry_at

    def to_ask(self, second: int, now: float) -> int | None:
        """Return the second to request: this one, the first after the fence, or None."""
        is_fenced = self.opens > second
        if now < self.retry_at or (is_fenced and now < self.fence_at):
            return None
        return self.opens if is_fenced and now >= self.opens_at else second
