"""Blocks: ids of a generator that another process has, as ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol

from ..abc import IdSegmentDistributor
from ..errors import UnsupportedByStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("MAX_BLOCK", "Block", "BlockDistributor", "BlockSource", "ShardBits")

MAX_BLOCK: Final = 10_000
"""Ids that one call asks for at most: a Snowflake generator has about as many at a time."""


class ShardBits(NamedTuple):
    """Where ids have their sharding id.

    Attributes:
        shift: bits below it.
        most: the highest one.
    """

    shift: int
    most: int

    def move(self, new_id: int, sharding_id: int) -> int:
        """Return the id of another shard: its second and sequence are nobody else's on any."""
        return new_id & ~(self.most << self.shift) | sharding_id << self.shift


class Block(NamedTuple):
    """Ids of one call, rising.

    Attributes:
        ranges: at least one, none of them empty.
        shards: where the ids have their sharding id; None if they carry none.
    """

    ranges: Sequence[range]
    shards: ShardBits | None = None


class BlockSource(Protocol):
    """A store whose server has generators."""

    async def take_block(self, name: str, count: int) -> Block:
        """Return ``count`` rising ids of one of the server's generators; only the caller has them.

        A cancelled call, or one that fails, may have taken ids: a gap.

        Args:
            name: the generator's, on the server.
            count: how many, at least 1.

        Raises:
            StoreError: the server refuses, cannot be reached, or has no ids now.
        """
        raise NotImplementedError

    async def aopen(self) -> None:
        """Get ready in this process."""
        raise NotImplementedError


class BlockDistributor(IdSegmentDistributor):
    """A generator on a server, as a chain asks for its ids."""

    __slots__ = ("_source", "shards")

    store = "aiocosid server"
    order_risk = "each process hands out ids of blocks that were taken at different times"
    step_limit = MAX_BLOCK

    def __init__(self, source: BlockSource, *, namespace: str, name: str, step: int) -> None:
        """Describe the generator; nothing is sent yet."""
        super().__init__(namespace=namespace, name=name, step=step)
        self._source = source
        self.shards: ShardBits | None = None  # of the last block

    async def next_block(self, count: int) -> Block:
        """Take a block of ``count`` ids; see `BlockSource.take_block`."""
        block = await self._source.take_block(self.name, count)
        self.shards = block.shards
        return block

    async def aopen(self) -> None:
        """Get ready in this process."""
        await self._source.aopen()

    async def next_max_id(self, step: int) -> NoReturn:  # noqa: ARG002 - of a contract
        """Refuse: the ids of a block need not be contiguous."""
        raise UnsupportedByStoreError(
            self.store,
            "a generator of the server has no counter",
            remedy="ask the server for its counters",
        )
