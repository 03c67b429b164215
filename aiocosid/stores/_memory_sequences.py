"""Sequences of a second in this process's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import _fork
from .._uncopied import Uncopied
from ..abc import SecondFenced, SecondSpent, SequenceDistributor, SequenceGrant, SequenceReply
from ..errors import ClockSkewError, ForkedError

if TYPE_CHECKING:
    from ..abc import Clock

__all__ = ("MemorySequences",)

SECOND_MS: Final = 1000
KEPT: Final = 60  # seconds that a counter is kept after it can be asked for


class MemorySequences(Uncopied, SequenceDistributor):
    """What `MemorySequenceDistributor` does with its counters."""

    __slots__ = ("_born", "_clock", "_counters", "_opens")

    store = "memory"

    def __init__(
        self, clock: Clock, *, namespace: str, name: str, max_sequence: int, tolerance: int
    ) -> None:
        super().__init__(
            namespace=namespace, name=name, max_sequence=max_sequence, tolerance=tolerance
        )
        self._clock = clock
        self._counters: dict[int, int] = {}
        self._opens = 0  # the first second whose counter cannot have been dropped
        self._born = _fork.generation

    async def grant(self, second: int, size: int) -> SequenceReply:
        """Take sequences; see `aiocosid.abc.SequenceDistributor.grant`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            ClockSkewError: the second is further from the clock than the tolerance.
            ForkedError: the counters are the parent's; another process counts on them.
        """
        self._check(second, size)
        await self.aopen()
        now = self._clock.now_ms() // SECOND_MS
        if abs(second - now) > self.tolerance:
            raise ClockSkewError(self.store, ahead=second - now, tolerance=self.tolerance)
        if second < self._opens:  # the clock was far ahead meanwhile
            return SecondFenced(self._opens, now)
        last = self._counters.get(second, 0)
        if last >= self.max_sequence:
            return SecondSpent(second)
        self._drop_old(now)
        stop = self._counters[second] = min(last + size, self.max_sequence)
        return SequenceGrant(second, last + 1, stop)

    def _drop_old(self, now: int) -> None:
        for each in [each for each in self._counters if each < now - self.tolerance - KEPT]:
            del self._counters[each]
            self._opens = max(self._opens, each + 1)

    async def aopen(self) -> None:
        """Refuse a forked child: it would count on from where the parent was.

        Raises:
            ForkedError: the counters are the parent's.
        """
        if self._born != _fork.generation:
            raise ForkedError(repr(self), remedy="make it anew, or count on a server")
