"""A chain that hands out runs of contiguous ids, for a server that passes them on.

Everything else works as in the chain: one fetch at a time, the distance, the reserve, the queue.
"""

from __future__ import annotations

from .._life.atomic_step import atomic_step
from ._opening import SegmentOpening
from .generator import SegmentChainId

__all__ = ("RunChain",)


class RunOpening(SegmentOpening):
    """Serves each caller with contiguous ids."""

    __slots__ = ()

    @atomic_step
    def take_now(self, n: int) -> list[range] | None:
        """Take ``n`` contiguous ids if that many are buffered and no caller waits for them."""
        if not self.line:
            self._drop_short(n)
        return super().take_now(n)

    def _drop_short(self, n: int) -> None:
        """Discard runs shorter than ``n``: later callers must get higher ids."""
        self.stock.discard(self.hand.chain.drop_short(n), "short")

    def _install(self) -> None:
        """Expose no piece: no caller takes single ids."""

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
        """Count the segments to fetch now: at least as many as the first caller in line wants."""
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

        A cancelled call hands out nothing; ids that were already reserved for it are a gap, and so
        are ids in front of them that were too few for it.

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
