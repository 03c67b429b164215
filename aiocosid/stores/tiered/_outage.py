"""Whether a cache answers, and when it is to be asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...abc import Clock

__all__ = ("Outage",)


class Outage:
    """What is known of a cache; the distributors of one store share it.

    Attributes:
        has_answered: whether it ever did, so that it is set up as it has to be.
    """

    __slots__ = ("_again_at", "_clock", "_pause", "_since", "has_answered")

    def __init__(self, clock: Clock, pause: float) -> None:
        """Begin with a cache that is there.

        Args:
            clock: time.
            pause: seconds for which it is not asked after a failure.
        """
        self.has_answered = False
        self._clock = clock
        self._pause = pause
        self._since: float | None = None
        self._again_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the cache did not answer when it was asked last."""
        return self._since is not None

    def is_to_be_asked(self) -> bool:
        """Tell whether the cache is to be asked: there is no outage, or its pause is over.

        In an outage one is told so, and the others after another pause: a cache that is silent
        keeps whoever asks it waiting.
        """
        if self._since is None:
            return True
        now = self._clock.monotonic()
        if now < self._again_at:
            return False
        self._again_at = now + self._pause
        return True

    def begin(self) -> bool:
        """Note a failure; tell whether it is the first one in a row."""
        now, is_new = self._clock.monotonic(), self._since is None
        self._again_at = now + self._pause
        if is_new:
            self._since = now
        return is_new

    def end(self) -> float | None:
        """Note an answer; return for how many seconds there was none, or None."""
        self.has_answered = True
        since, self._since = self._since, None
        return None if since is None else self._clock.monotonic() - since
