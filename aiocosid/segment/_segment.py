"""The range of ids that one fetch reserves.  Pure."""

from __future__ import annotations

from typing import Final

from .._later import dataclass

__all__ = ("FOREVER", "IdSegment")

FOREVER: Final = float("inf")
"""A ttl without end; CosId writes it as 2^63-1 seconds."""


@dataclass(frozen=True, slots=True)
class IdSegment:
    """The ids ``(max_id - step, max_id]``, reserved in a store and owned by this process.

    With a stride they are ``step`` ids as far apart as that, the last of them ``max_id``.

    Attributes:
        max_id: the last id; the store's counter after the fetch.
        step: how many ids.
        fetched_at: when the fetch was sent, in seconds on the generator's monotonic clock.
        ttl: seconds after which the ids are not handed out any more.
        stride: from one id to the next; 1 but for counters of one residue class.
    """

    max_id: int
    step: int
    fetched_at: float = 0.0
    ttl: float = FOREVER
    stride: int = 1

    @property
    def offset(self) -> int:
        """The id before the first one."""
        return self.max_id - self.step * self.stride

    @property
    def ids(self) -> range:
        """The ids, in the order in which they are handed out."""
        return range(self.offset + self.stride, self.max_id + 1, self.stride)

    @property
    def expires_at(self) -> float:
        """The last moment, on the same clock as ``fetched_at``, at which the ids may be used."""
        return self.fetched_at + self.ttl

    def is_expired(self, now: float) -> bool:
        """Tell whether the ids are too old at ``now``, in seconds; strictly later, as in CosId."""
        return now > self.fetched_at + self.ttl

    def clipped(self, *, lowest: int, highest: int) -> IdSegment | None:
        """Return the part between two ids, both inclusive; None if nothing is left."""
        ids = self.ids
        if ids[0] >= lowest and self.max_id <= highest:
            return self
        below = max(0, -((ids[0] - lowest) // self.stride))
        above = max(0, -((highest - self.max_id) // self.stride))
        left = self.step - below - above
        if left < 1:
            return None
        high = self.max_id - above * self.stride
        return IdSegment(high, left, self.fetched_at, self.ttl, self.stride)
