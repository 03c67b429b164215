"""What happened last, in virtual time."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Trace",)

LENGTH: Final = 40
"""Events that are kept: those before the failure explain it."""

WIDTH: Final = 120
"""Characters of a line."""


class Trace:
    """Remembers the last events, and a digest of all of them.

    Attributes:
        digest: equal for two runs in which the same happened.
        counts: how often each kind of event happened.
    """

    __slots__ = ("_events", "_time", "counts", "digest")

    def __init__(self, time: Callable[[], float], *, length: int = LENGTH) -> None:
        """Begin empty.

        Args:
            time: tells the virtual time.
            length: how many events are kept.
        """
        self._time = time
        self._events: deque[tuple[float, str, str, str]] = deque(maxlen=length)
        self.digest = 0
        self.counts: Counter[str] = Counter()

    def note(self, who: str, what: str, details: str = "") -> None:
        """Remember an event.

        Args:
            who: a node or a store.
            what: the kind of event, of which there are few.
            details: the rest of the line.
        """
        event = (self._time(), who, what, details)
        self._events.append(event)
        self.counts[what] += 1
        self.digest = crc32(repr(event).encode(), self.digest)

    def lines(self) -> list[str]:
        """Return what is remembered, a line an event."""
        return [
            f"{at:10.4f}  {who:<6} {what} {details}".rstrip()[:WIDTH]
            for at, who, what, details in self._events
        ]
