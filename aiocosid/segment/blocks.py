"""Blocks: ranges of ids that a generator in another process has made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol

from ..abc import IdSegmentDistributor
from ..errors import UnsupportedByStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("MAX_BLOCK", "Block", "BlockDistributor", "BlockSource", "ShardBits")

MAX_BLOCK: Final = 10_000
"""Most ids that one call requests: about what a Snowflake generator has at a time."""


class ShardBits(NamedTuple):
    """Where ids have their sharding id.

    Attributes:
        shift: the bits below it.
        most: the highest sharding id.
    """

    shift: int
    most: int

    def move(self, new_id: int, sharding_id: int) -> int:
        """Return the id on another shard: its second and sequence are unique on every shard."""
        return new_id & ~(self.most << self.shift) | sharding_id << self.shift


class Block(NamedTuple):
    """The ids of one call, rising.

    Attributes:
        ranges: at least one, none of them empty.
        shards: where the ids have their sharding id; None if they have none.
    """

    ranges: Sequence[range]
    shards: ShardBits | None = None


class BlockSource(Protocol):
    """A store whose server has generators."""

    async def take_block(self, name: str, count: int) -> Block:
        """Return ``count`` rising ids of one of the server's generators, for this caller alone.

        A call that fails or is cancelled may have used up ids, which are then a gap.

        Args:
            name: the generator's name on the server.
            count: how many, at least 1.

        Raises:
            StoreError: the server refuses, cannot be reached, or has no ids now.
        """
        raise NotImplementedError

    async def aopen(self) -> None:
        """Prepare for use in this process."""
        raise NotImplementedError


class BlockDistributor(IdSegmentDistributor):
    """A generator on a server, as the distributor of a chain."""

    __slots__ = ("_source", "shards")

    store = "aiocosid server"
    order_risk = "each process hands out ids of blocks that were taken at different times"
    step_limit = MAX_BLOCK

    def __init__(self, source: BlockSource, *, namespace: str, name: str, step: int) -> None:
        """Describe the generator; nothing is sent yet."""
        super().__init__(namespace=namespace, name=name, step=step)
        self._source = source
        self.shards: set[ShardBits | None] = set()  # of all blocks since the generator was opened

    async def next_block(self, count: int) -> Block:
        """Take a block of ``count`` ids; see `BlockSource.take_block`."""
        block = await self._source.take_block(self.name, count)
        self.shards.add(block.shards)
        return block

    async def aopen(self) -> None:
        """Prepare for use in this process."""
        await self._source.aopen()

    async def next_max_id(self, step: int) -> NoReturn:  # noqa: ARG002 - of a contract
        """Raise `UnsupportedByStoreError`: the ids of a block need not be contiguous."""
        raise UnsupportedByStoreError(
            self.store,
            "a generator of the server has no counter",
            remedy="ask the server for its counters",
        )
