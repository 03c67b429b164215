"""The ids of one opening: how many there were, and until when they may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._life.atomic_step import atomic_step
from .._life.component import RESOLUTION
from ..abc.events import IdsDiscarded
from .chain import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._life.open_state import OpenState
    from .chain import IdSegment, IdsInHand

__all__ = ("Expiry", "Stock")


class Stock:
    """Counts the ids that come and go.

    Attributes:
        life: the opening's.
        hand: the ids in hand.
        fetched: ids that came.
        discarded: ids that were given up.
        oldest: the number of the fetch that the first id in hand comes from.
        since_turn: ids put in hand since the loop last had a turn.
    """

    __slots__ = ("discarded", "fetched", "hand", "life", "oldest", "since_turn")

    def __init__(self, life: OpenState, hand: IdsInHand) -> None:
        self.life = life
        self.hand = hand
        self.fetched = self.discarded = self.oldest = self.since_turn = 0

    @property
    def handed_out(self) -> int:
        """Ids that callers have got."""
        return self.fetched - self.discarded - self.hand.ahead

    def link(self, fetched: Sequence[IdSegment], sent: int, max_id: int) -> int:
        """Link the segments of a fetch; return how many of their ids are outside of 1 to max_id."""
        count = left_out = sum(each.step for each in fetched)
        self.fetched += count
        if not self.hand.ahead:
            self.oldest = sent
        for each in fetched:
            segment = each.clipped(lowest=1, highest=max_id)
            if segment is not None:
                self.hand.chain.link(segment)
                left_out -= segment.step
        return left_out

    def take(self, n: int) -> list[range]:
        """Take exactly ``n`` ids; there have to be that many.

        Part of a step, as everything that counts ids and then takes them.
        """
        self.since_turn += max(0, n - self.hand.left)
        return self.hand.take(n)

    def discard(self, count: int, reason: str) -> None:
        """Count ids that are given up, and tell why."""
        if count:
            self.discarded += count
            self.life.emit(IdsDiscarded, count=count, reason=reason)


class Expiry:
    """Gives up ids that are too old, also between calls."""

    __slots__ = ("_expires_at", "_is_watched", "_stock", "hand", "life")

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self.hand = stock.hand
        self.life = stock.life
        self._expires_at = FOREVER
        self._is_watched = False

    def drop_old(self) -> None:
        """Give up what is too old, in hand and in the chain."""
        now = self.life.clock.monotonic()
        if now > self._expires_at:
            self._drop_piece()
        self._stock.discard(self.hand.chain.drop_expired(now), "expired")

    @atomic_step
    def _drop_piece(self) -> None:
        self._stock.discard(self.hand.drop_piece(), "expired")

    def watch(self, expires_at: float) -> None:
        """Have the piece that was put in hand given up in time."""
        self._expires_at = expires_at
        if not self._is_watched:
            self._is_watched = True  # first: an eager task may end before the call returns
            if not self.life.start_soon(self._expire_in_time, task="ttl"):
                self._is_watched = False

    async def _expire_in_time(self) -> None:
        """Take what is too old out of the hand; wakes once for a ttl, and fetches nothing."""
        life, hand = self.life, self.hand
        try:
            while hand.left and life.ended is None:
                now = life.clock.monotonic()
                if now >= self._expires_at:
                    self._drop_piece()
                else:
                    await life.sleep_for(max(self._expires_at - now, RESOLUTION))
        finally:
            self._is_watched = False
        if hand.left and life.ended is None:
            self.watch(self._expires_at)  # put in hand meanwhile, by a signal handler
