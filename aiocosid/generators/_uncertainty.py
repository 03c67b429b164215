"""Ids whose distances tell nothing."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from anyio.lowlevel import checkpoint

from .._life import fork
from ..abc._ids import check_integer
from ..errors import ForkedError
from ._wrapped import WrappedGenerator

if TYPE_CHECKING:
    from ..abc import IdGenerator

__all__ = ("UncertaintyIdGenerator",)

STRETCH: Final = 4000
"""Ids between two turns of the event loop, about a millisecond."""

WORD: Final = 8  # bytes


class UncertaintyIdGenerator(WrappedGenerator):
    """Appends random bits to the ids of another generator.

    CosId's UncertaintyIdGenerator.  The ids stay unique and rising.  From one id the next is
    guessed with a chance of ``1 / 2**bits`` only; about how many ids there are can still be seen
    (``id >> bits``).  The bits come from the operating system's secure source; CosId's do not.

    Attributes:
        bits: random bits of each id.
    """

    __slots__ = ("_limit", "bits")

    def __init__(self, generator: IdGenerator, bits: int) -> None:
        """Put a generator inside.

        Args:
            generator: not open, or open for as long as this one is used.
            bits: random bits of each id, 1 to 62.  The ids of the generator inside may come up to
                ``2**(63 - bits) - 1``; above, `IdOverflowError` is raised.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(generator)
        check_integer("bits", bits, at_least=1, at_most=62)
        self.bits: int = bits
        self._limit = 2 ** (63 - bits) - 1

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        return self._blurred([await self._inner.next_id()])[0]

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, all or nothing; see `aiocosid.abc.IdGenerator.next_ids`."""
        process = fork.generation
        ids = await self._inner.next_ids(n)
        blurred = self._blurred(ids[:STRETCH])
        for start in range(STRETCH, n, STRETCH):
            await checkpoint()
            blurred += self._blurred(ids[start : start + STRETCH])
        if process != fork.generation:
            raise ForkedError(repr(self))
        return blurred

    def next_id_nowait(self) -> int:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        return self._blurred([self._inner.next_id_nowait()])[0]

    def _blurred(self, ids: list[int]) -> list[int]:
        if ids[-1] > self._limit:
            raise self._overflow(self._limit)
        bits, rest = self.bits, 64 - self.bits
        noise = memoryview(secrets.token_bytes(WORD * len(ids))).cast("Q")
        return [each << bits | random >> rest for each, random in zip(ids, noise, strict=True)]
