"""Sequences without the store: from a lane of its own, or guessed.

A lane is a part of the upper end of the sequences, which the store never grants.  Its number is a
leased machine id: as with a Snowflake, no id has a later time than the lease's fence, and the
lane's next owner begins above that.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, cast

from ..abc import SequenceGrant
from ..errors import BusyError

if TYPE_CHECKING:
    from ..machine import MachineIdLease

__all__ = ("Fallback", "Guess", "Lane")

MS: Final = 1000
PIECE: Final = 64  # the minimum number of sequences that a generator takes from a lane


class Fallback:
    """Provides sequences while the store cannot be reached."""

    __slots__ = ("_busy", "_next", "_second", "_stop")

    def __init__(self) -> None:
        self._second = -1
        self._next = self._stop = 0  # of that second
        self._busy = False

    def take(self, second: int, wanted: int, above: int) -> SequenceGrant | None:
        """Return sequences of a second, or None if there are none now.

        Args:
            second: the second; never before the one of the last call.
            wanted: the number of sequences that callers wait for.
            above: the highest sequence of that second that the store granted to the generator.
        """
        if self._busy:  # like `_life.atomic_step`, but the caller can do without sequences
            return None
        try:
            self._busy = True
            if not self._is_allowed(second):
                return None
            if second != self._second:
                self._second, (self._next, self._stop) = second, self._space(above)
            first, last = self._next, min(self._next + max(wanted, PIECE), self._stop) - 1
            if last < first:
                return None
            self._next = last + 1
            return SequenceGrant(second, first, last)
        finally:
            self._busy = False

    def _is_allowed(self, second: int) -> bool:
        """Return whether sequences of a second may be used now."""
        return second >= self._second

    def _space(self, above: int) -> tuple[int, int]:
        """Return the first sequence of a new second, and the one after the last."""
        raise NotImplementedError


class Guess(Fallback):
    """The rest of a second, starting at a random sequence; other nodes may use the same ones."""

    __slots__ = ("_max_sequence",)

    def __init__(self, max_sequence: int) -> None:
        super().__init__()
        self._max_sequence = max_sequence

    def _space(self, above: int) -> tuple[int, int]:
        stop = self._max_sequence + 1
        if above >= self._max_sequence:
            return stop, stop
        return random.randrange(above + 1, stop), stop  # noqa: S311 - no secret


class Lane(Fallback):
    """The sequences of one lane; shared by all generators on one lease and name.

    Attributes:
        base: the highest sequence that the store grants.
        width: sequences of each lane.
    """

    __slots__ = ("_key", "_lease", "_term", "base", "width")

    def __init__(self, lease: MachineIdLease, base: int, width: int, key: str) -> None:
        super().__init__()
        self._lease = lease
        self._key = key  # the lane's name among the lease's issuers
        self._term: int = -1
        self.base = base
        self.width = width

    @classmethod
    def of(cls, lease: MachineIdLease, base: int, width: int, name: str) -> Lane:
        """Return the one lane of a lease and name.

        Args:
            lease: the lease whose machine id is the lane's number.
            base: the highest sequence that the store grants.
            width: sequences of each lane.
            name: the name under which the store grants.

        Raises:
            BusyError: the lane is in use with another width.
        """
        key = f"lane {name}"
        found = cast("Lane | None", lease.issuers.get(key))
        if found is None:
            found = lease.issuers[key] = cls(lease, base, width, key)
        if (found.base, found.width) != (base, width):
            remedy = "give all of them the same layout and max_sequence"
            raise BusyError(
                f"the lane of {name}", reason="is in use with another width", remedy=remedy
            )
        return found

    @property
    def last_ms(self) -> int:
        """The end of the last second in which the lane was used, in milliseconds since 1970."""
        return self._second * MS + MS - 1

    def _is_allowed(self, second: int) -> bool:
        lease = self._lease
        found: object = lease.issuers.get(self._key)
        if found is not self:
            return False  # it was closed, and perhaps reopened with another lane
        if lease.lost is not None or not 0 <= second * MS <= lease.limit_ms():
            return False
        if lease.term != self._term:  # another number, or the same number after another owner
            before = max(lease.floor_ms // MS, lease.taken_ms // MS - 1)
            self._second = max(self._second, before)
            self._term, self._next, self._stop = lease.term, 0, 0
        return second >= self._second

    def _space(self, above: int) -> tuple[int, int]:  # noqa: ARG002 - all are above
        first = self.base + 1 + self._lease.machine_id * self.width
        return first, first + self.width
