"""A chain that hands out runs of contiguous ids, for one who passes them on.

Everything else is the chain's: one fetch at a time, the distance, the reserve, who waits.
"""

from __future__ import annotations

from .._life.atomic_step import atomic_step
from ._opening import SegmentOpening
from .generator import SegmentChainId

__all__ = ("RunChain",)


class RunOpening(SegmentOpening):
    """Serves each caller from ids without a hole."""

    __slots__ = ()

    @atomic_step
    def take_now(self, n: int) -> list[range] | None:
        """Take ``n`` contiguous ids if there are so many and nobody waits for them."""
        if not self.line:
            self._drop_short(n)
        return super().take_now(n)

    def _drop_short(self, n: int) -> None:
        """Give up ids in front of a hole that are fewer than ``n``: whoever is next is above."""
        self.stock.discard(self.hand.chain.drop_short(n), "short")

    def _install(self) -> None:
        """Put nothing in hand: nobody takes one id at a time."""

    def _serve(self) -> None:
        line = self.line
        while line:
            n = line.first.n or 1
            self._drop_short(n)
            if self.hand.ahead < n:
                break
            line.serve(n, self.stock.take)
        if self.supply.used_up and line:
            line.fail(self.supply.overflow)

    def _missing(self, at_least: int = 0) -> int:
        """Count the segments to buy now: at once as many as the first in line wants."""
        segments = super()._missing(at_least)
        if segments and self.line:
            segments = max(segments, -(-self.line.first.n // self.pace.step))
        return segments


class RunChain(SegmentChainId):
    """A `SegmentChainId` from which runs are taken, each above the one before."""

    __slots__ = ()

    _opens = RunOpening

    async def next_run(self, n: int) -> range:
        """Return ``n`` contiguous ids.

        A cancelled call hands out nothing; ids that had already been set aside for it are a gap, as
        is what was too short for it in front of them.

        Args:
            n: how many, at least 1.

        Raises:
            CosIdError: as `next_id`.
        """
        self._check_usable()
        opening = self._opening
        pieces = opening.take_now(n)
        if pieces is None:
            pieces = await opening.callers.wait(n, opening)
        opening.pace.note(opening.hand.ahead, self._clock.monotonic())
        return range(pieces[0].start, pieces[-1].stop)
