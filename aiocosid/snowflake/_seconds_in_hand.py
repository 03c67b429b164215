"""The buffered ids: those of this second, and perhaps of the next one.  Pure.

Seconds only go forward: an id's second is never before that of an earlier id.  Ids have the
sharding id 0 here; a caller adds its own.
"""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Final

from .._life.atomic_step import refuse_reentry
from ..errors import ClockTooManyBackwardsError
from ._sequencer import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..abc import SequenceGrant
    from ._sharded_layout import ShardedLayout

__all__ = ("NS", "SecondsInHand")

NS: Final = 1_000_000_000
KEPT: Final = 4  # how many used-up seconds are remembered


class SecondsInHand:
    """The buffered ids of one generator, and its position.

    Attributes:
        last: the second of the last id that was handed out; -1 before the first.
        piece: an iterator of ids, for any caller while the clock is between the two bounds.
        begin_ns: the earliest clock reading, in nanoseconds, at which they may be handed out.
        until_ns: the reading from which they may no longer be handed out.
        issued: ids handed out so far, including the whole piece.
        fell_back: how many of them were not granted by the store.
        dropped: unused ids of seconds that are over.
        spent: seconds of which the store has granted, or may have granted, all sequences.
    """

    __slots__ = (
        "_ahead",
        "_busy",
        "_hand",
        "_held",
        "_is_fallback",
        "_layout",
        "_ranges",
        "_seen",
        "_size",
        "_stop_at",
        "_threshold",
        "_top",
        "begin_ns",
        "dropped",
        "fell_back",
        "issued",
        "last",
        "piece",
        "spent",
        "until_ns",
    )

    def __init__(
        self, layout: ShardedLayout, threshold: float | None, last: int = -1, seen: int = -1
    ) -> None:
        """Start without ids.

        Args:
            layout: composes the ids.
            threshold: seconds that the clock may be behind the last id's second; None for any.
            last: the lowest second that ids may have.
            seen: the clock's second at that time, at most ``last``.
        """
        self._layout = layout
        self._threshold = threshold
        self.last = last
        self._seen = seen
        self._hand = -1  # the second of the ranges
        self._ranges: list[range] = []
        self._is_fallback = False  # whether they were not granted by the store
        self._ahead: SequenceGrant | None = None
        self._top = 0  # the highest sequence of that second so far
        self.spent: set[int] = set()
        self._busy = False
        self.piece: Iterator[int] = EMPTY
        self._held: Iterator[int] = EMPTY
        self._size = self._stop_at = 0
        self.begin_ns = self.until_ns = 0
        self.issued = self.fell_back = self.dropped = 0

    def successor(self) -> SecondsInHand:
        """Return an empty object for the next opening; its ids are never earlier."""
        return SecondsInHand(self._layout, self._threshold, self.last, self._seen)

    # Buffered ids.

    @property
    def left(self) -> int:
        """How many ids of the piece are left."""
        return length_hint(self._held) if self._size else 0

    @property
    def handed_out(self) -> int:
        """How many ids were handed out so far."""
        return self.issued - self.left

    @property
    def remaining(self) -> int:
        """How many ids are buffered for the last second, or for this one."""
        return self.left + sum(map(len, self._ranges))

    @property
    def ahead(self) -> int:
        """How many ids are buffered for a future second."""
        return self._ahead.last - self._ahead.first + 1 if self._ahead is not None else 0

    @refuse_reentry
    def in_hand(self, now_ns: int) -> int:
        """Count the ids that may be handed out now.

        Raises:
            WouldBlock: a signal handler or finalizer calls during another step.
            ClockTooManyBackwardsError: the clock is too far behind the last id.
        """
        self._go_on(now_ns)
        return sum(map(len, self._ranges))

    @refuse_reentry
    def install(self, now_ns: int, size: int) -> bool:
        """Install a piece of at most ``size`` ids; return whether there is one.

        Raises:
            WouldBlock: as `in_hand`.
            ClockTooManyBackwardsError: as `in_hand`.
        """
        self._go_on(now_ns)
        if not self._ranges:
            return False
        taken = self._cut(size, now_ns)
        begin = 0 if self._threshold is None else int((self._seen - self._threshold) * NS)
        piece, count, until = iter(taken), len(taken), (self._hand + 1) * NS
        # Nothing is called from here on: a signal handler may raise in any call.
        self._size, self._stop_at = count, taken.stop
        self._held = self.piece = piece
        self.begin_ns, self.until_ns = begin, until
        return True

    @refuse_reentry
    def take(self, n: int, now_ns: int) -> list[range]:
        """Take up to ``n`` ids, as many as there are.

        Raises:
            WouldBlock: as `in_hand`.
            ClockTooManyBackwardsError: as `in_hand`.
        """
        self._go_on(now_ns)
        pieces: list[range] = []
        while n and self._ranges:
            pieces.append(self._cut(n, now_ns))
            n -= len(pieces[-1])
        return pieces

    def shut(self) -> tuple[SecondsInHand, int]:
        """Drop all ids, even during a step.

        Returns:
            The replacement, with the same counts; and how many ids were dropped.
        """
        self.piece = EMPTY
        left = self.left
        heir = self.successor()
        heir.issued, heir.dropped = self.handed_out, self.dropped
        heir.fell_back = self.fell_back - (left if self._is_fallback else 0)
        return heir, left + sum(map(len, self._ranges)) + self.ahead

    # Granted ids.

    def target(self, now_ns: int) -> int:
        """Return the second of the ids that are handed out now."""
        return max(now_ns // NS, self.last)

    @refuse_reentry
    def land(self, grant: SequenceGrant, now_ns: int, *, ahead: bool, fallback: bool) -> bool:
        """Add granted ids; return whether they can be used.

        Args:
            grant: the granted sequences.
            now_ns: the clock.
            ahead: whether they are for a future second.
            fallback: whether they were not granted by the store.

        Raises:
            WouldBlock: as `install`.
        """
        self._go_on(now_ns, check=False)
        if grant.second < self.target(now_ns):
            self.dropped += grant.last - grant.first + 1
            return False
        if ahead and grant.second > self.target(now_ns):
            self._ahead = grant
            return True
        if self._ahead is not None and self._ahead.second == grant.second:
            # After a fence, ids of a second may be handed out before the clock reaches it.
            self._put_ahead(grant.second)  # these were granted before: their sequences are lower
        return self._put(grant, fallback=fallback)

    def top(self, second: int, *, granted: bool = False) -> int:
        """Return a second's highest sequence so far, or 0; if ``granted``, only the store's."""
        if self._ahead is not None and self._ahead.second == second:
            return self._ahead.last
        is_known = second == self._hand and not (granted and self._is_fallback)
        return self._top if is_known else 0

    def mark_spent(self, second: int) -> None:
        """Record that a second is used up."""
        self.spent = {each for each in self.spent if each > second - KEPT} | {second}

    def is_open(self, second: int) -> bool:
        """Return whether the store can grant further usable ids of a second.

        It cannot after ids that the store did not grant, since those have higher sequences.
        """
        return second not in self.spent and not (second == self._hand and self._is_fallback)

    # Within a step.

    def _go_on(self, now_ns: int, *, check: bool = True) -> None:
        """Take the rest of the piece back, and move on to the clock's second."""
        self._settle()
        behind_ns, threshold = self._seen * NS - now_ns, self._threshold
        if check and threshold is not None and behind_ns > threshold * NS:
            backwards = round(behind_ns / NS, 3)
            raise ClockTooManyBackwardsError(backwards=backwards, threshold=threshold)
        target = self.target(now_ns)
        if self._hand < target and self._ranges:
            self.dropped += sum(map(len, self._ranges))
            self._ranges = []
        self._put_ahead(target)

    def _put_ahead(self, target: int) -> None:
        """Use the ids that were prefetched for this second; drop those of a past second."""
        grant = self._ahead
        if grant is None or grant.second > target:
            return
        self._ahead = None
        if grant.second < target or not self._put(grant, fallback=False):
            self.dropped += grant.last - grant.first + 1

    def _put(self, grant: SequenceGrant, *, fallback: bool) -> bool:
        """Add ids to those of the second; return False if they are not above the earlier ones."""
        is_same = grant.second == self._hand
        if is_same and self._is_fallback and not fallback:
            return False  # the ids that the store did not grant have higher sequences
        bits, tick = self._layout.bits, grant.second - self._layout.epoch_second
        ids = bits.ids(tick, 0, grant.first, grant.last + 1)
        if not is_same:
            self.dropped += sum(map(len, self._ranges))
            self._ranges = []
        self._hand, self._top, self._is_fallback = grant.second, grant.last, fallback
        self._ranges.append(ids)
        return True

    def _cut(self, size: int, now_ns: int) -> range:
        ids, *others = self._ranges
        taken, rest = ids[:size], ids[size:]
        count, seen = len(taken), max(self._seen, min(now_ns // NS, self._hand))
        # The ids are made unreachable before they are counted.
        self._ranges = [rest, *others] if rest else others
        self.last, self._seen = self._hand, seen
        self.issued += count
        if self._is_fallback:
            self.fell_back += count
        return taken

    def _settle(self) -> None:
        """Take back the rest of the piece, from which no caller can take ids now."""
        if self._size == 0:
            return
        self.piece = EMPTY
        left = length_hint(self._held)
        rest = [range(self._stop_at - left, self._stop_at)] if left else []
        # Nothing is called from here on, as above.
        self.begin_ns = self.until_ns = self._size = 0
        self.issued -= left
        if self._is_fallback:
            self.fell_back -= left
        self._ranges = [*rest, *self._ranges]
