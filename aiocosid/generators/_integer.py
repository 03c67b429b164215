"""Ids that fit an int32 column."""

from __future__ import annotations

from typing import Final

from ._wrapped import WrappedGenerator

__all__ = ("MAX_INT32", "IntegerIdGenerator")

MAX_INT32: Final = 2**31 - 1
"""The highest id of a signed 32-bit integer, as SQL's ``integer`` and Java's ``int``."""


class IntegerIdGenerator(WrappedGenerator):
    """Hands out the ids of another generator as long as they fit 32 bits.

    CosId's IntegerIdGenerator.  Above 2^31-1 every call raises `IdOverflowError`: nothing is
    wrapped or cut.  A batch that ends above it is refused as a whole; its ids are a gap.
    """

    __slots__ = ()

    async def next_id(self) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`."""
        new_id = await self._inner.next_id()
        if new_id > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return new_id

    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids, all or nothing; see `aiocosid.abc.IdGenerator.next_ids`."""
        ids = await self._inner.next_ids(n)
        if ids[-1] > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return ids

    def next_id_nowait(self) -> int:
        """Return the next id in hand; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        new_id = self._inner.next_id_nowait()
        if new_id > MAX_INT32:
            raise self._overflow(MAX_INT32)
        return new_id
