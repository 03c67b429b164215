"""Whether a cache answers, and when to ask it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...abc import Clock

__all__ = ("Outage",)


class Outage:
    """The state of a cache; the distributors of one store share it.

    Attributes:
        has_answered: whether it ever answered, so that its setup is known to be right.
    """

    __slots__ = ("_again_at", "_clock", "_pause", "_since", "has_answered")

    def __init__(self, clock: Clock, pause: float) -> None:
        """Begin with a healthy cache.

        Args:
            clock: time.
            pause: seconds for which it is not asked after a failure.
        """
        self.has_answered: bool = False
        self._clock = clock
        self._pause = pause
        self._since: float | None = None
        self._again_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the last call to the cache failed."""
        return self._since is not None

    def is_to_be_asked(self) -> bool:
        """Return whether to ask the cache: there is no outage, or its pause is over.

        In an outage only one caller after each pause may ask: a call to a cache that does not
        answer takes the whole timeout.
        """
        if self._since is None:
            return True
        now = self._clock.monotonic()
        if now < self._again_at:
            return False
        self._again_at = now + self._pause
        return True

    def begin(self) -> bool:
        """Record a failure; return whether it is the first one in a row."""
        now, is_new = self._clock.monotonic(), self._since is None
        self._again_at = now + self._pause
        if is_new:
            self._since = now
        return is_new

    def end(self) -> float | None:
        """Record an answer; return the seconds that the outage lasted, or None."""
        self.has_answered = True
        since, self._since = self._since, None
        return None if since is None else self._clock.monotonic() - since
