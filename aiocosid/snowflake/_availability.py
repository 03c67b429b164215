"""What a store of sequences has said lately, and when it is of use to ask it again.  Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from ..abc import SecondFenced, SecondSpent
from ..errors import StoreUnavailableError

if TYPE_CHECKING:
    from ..abc import SequenceReply
    from ..errors import CosIdError

__all__ = ("StoreAvailability",)

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 1.0  # seconds
FENCE_BACKOFF: Final = 2.0  # seconds; a fence that is far off may be taken away


class StoreAvailability:
    """How things stand with the store of one generator.  Times are of the monotonic clock.

    Attributes:
        is_away: whether the last call found it out of reach.
        is_spent: whether the last answer was that a second is used up.
        last_error: the latest error; None after a call that succeeded.
        attempt: calls that failed in a row.
        retry_at: no call before.
        opens: the first second of which sequences are granted, as far as is known.
        opens_at: when that second can be asked for.
        fence_at: no call for it, or for one before it, before that.
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
        """It has answered.

        Behind a fence the first second is asked for as soon as that is allowed.  While that is far
        off, the present one is asked for now and then.

        Args:
            answer: what it said; None if that is of no second.
            tolerance: seconds that a second may be ahead of its clock.
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

    def failed(self, error: CosIdError, now: float, *, in_a_hurry: bool, jitter: float) -> None:
        """A call has failed.

        Args:
            error: how.
            now: the time.
            in_a_hurry: whether callers are told at once, and so the next one waits for no pause.
            jitter: the share of the pause that is slept, so that nodes do not keep step.
        """
        self.last_error = error
        self.attempt += 1
        self.is_away = isinstance(error, StoreUnavailableError)
        longest = FIRST_BACKOFF if in_a_hurry else LAST_BACKOFF
        pause = min(longest, FIRST_BACKOFF * 2 ** min(self.attempt - 1, 10))
        self.retry_at = now + pause * jitter

    def to_ask(self, second: int, now: float) -> int | None:
        """Return the second to ask for, this one or the first behind the fence; None for none."""
        is_fenced = self.opens > second
        if now < self.retry_at or (is_fenced and now < self.fence_at):
            return None
        return self.opens if is_fenced and now >= self.opens_at else second
