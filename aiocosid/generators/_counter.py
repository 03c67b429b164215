"""A counter in this process."""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING

from .._life import fork
from ..abc import DEFAULT_NAMESPACE, SHARE, IdGenerator
from ..errors import ForkedError
from ._local import LocalGenerator

if TYPE_CHECKING:
    from ..abc import Clock

__all__ = ("CounterId",)


class CounterId(LocalGenerator, IdGenerator):
    """Counts 1, 2, 3 in this process, anew in each: for tests, and what does not outlive it.

    CosId's AtomicLongGenerator.  Each object has a counter of its own, which goes on when it is
    opened again; a forked child is refused, since its parent goes on with the same numbers.
    """

    __slots__ = ("_made_in", "_numbers")

    _stretch = 10_000

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str = SHARE,
        clock: Clock | None = None,
    ) -> None:
        """Describe a counter.

        Args:
            namespace: for statistics and messages.
            name: the same.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        self._numbers = count(1)  # each step is one of C's: nobody gets in between
        self._made_in = fork.generation
        super().__init__(namespace=namespace, name=name, clock=clock)

    async def next_id(self) -> int:
        """Return the next number; see `aiocosid.abc.IdGenerator.next_id`."""
        for _ in self._budget:
            return next(self._numbers)
        await self._wait_turn()
        return await self.next_id()

    def next_id_nowait(self) -> int:
        """Return the next number; never raises `WouldBlock`."""
        for _ in self._budget:
            return next(self._numbers)
        self._now()
        return next(self._numbers)

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` numbers, 1 to 10 million; they need not be contiguous."""
        return await self._batch(n, lambda some: list(islice(self._numbers, some)))

    async def _start(self) -> None:
        if self._made_in != fork.generation:
            raise ForkedError(self._label(), remedy="make a new one, or count in a store")
        await super()._start()
