"""The marker of one namespace of machine ids in memory, and the quarantine when it is lost.

Memory forgets with the process that uses it, and so nothing; this is for tests, which may have it
forget.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..abc._machine import DEFAULT_SAFE_GUARD, QUARANTINE_MARGIN

__all__ = ("Claim", "Marker")


@dataclass(frozen=True, slots=True)
class Claim:
    """What an instance says of the machine id that it holds.

    Attributes:
        text: who holds it.
        token: of the call that handed it out.
        born_ms: when that was, by the owner's clock.
        bits: the width of the namespace.
        machine_id: the id.
    """

    text: str
    token: object
    born_ms: int
    bits: int
    machine_id: int

    def yields_to(self, other: Claim) -> bool:
        """Tell whether the other one, which was asserted already, keeps the id."""
        if other.text == self.text:  # a later life took it from an earlier one
            return other.token is not self.token and other.born_ms >= self.born_ms
        return (other.born_ms, other.text) < (self.born_ms, self.text)


@dataclass(slots=True)
class Marker:
    """Whether all is known of who holds which machine id.

    Attributes:
        is_there: whether there is one.
        is_ours: whether it was written for the store as it is now.
        since: when the quarantine that runs began, by the store's monotonic clock, or None.
        longest: the longest safe guard that was ever named, in seconds; 0 if none was.
        claims: what was asserted in it, by machine id.
    """

    is_there: bool = True
    is_ours: bool = True
    since: float | None = None
    longest: float = 0.0
    claims: dict[int, Claim] = field(default_factory=dict)

    def write(self) -> None:
        """Mark the store as sound."""
        self.is_there, self.is_ours, self.since = True, True, None
        self.claims.clear()

    def look(self, now: float, safe_guard: float) -> float:
        """Begin a quarantine if all may be forgotten, or end one that is over; seconds left.

        Args:
            now: by the store's clock.
            safe_guard: seconds, of who asks; 0 for who holds no id.
        """
        if not self.is_ours:
            self.write()
            self.since = now
        if self.since is None:
            return 0.0
        self.remember(safe_guard)
        left = self.left(now)
        if not left:
            self.write()
        return left

    def remember(self, safe_guard: float) -> None:
        """Have the next quarantine last as long, if it would not anyway."""
        self.longest = max(self.longest, safe_guard)

    def mark(self, now: float, safe_guard: float, *, is_new: bool) -> bool:
        """Write it if it is missing, or in any case; tell whether that was done."""
        if is_new or not self.is_there:
            self.write()
            self.longest = safe_guard
            return True
        # One that runs is not prolonged by somebody who holds no id.
        self.look(now, safe_guard if not self.is_ours else 0.0)
        if self.since is None:
            self.remember(safe_guard)
        return False

    def left(self, now: float) -> float:
        """Return the seconds that a quarantine has left; 0.0 if none runs."""
        if self.since is None:
            return 0.0
        lasts = (self.longest or DEFAULT_SAFE_GUARD) + QUARANTINE_MARGIN
        return max(0.0, lasts - (now - self.since))  # never more than it lasts, by rounding
