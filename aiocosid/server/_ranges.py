"""Ids as ranges, which are short if the ids are evenly spaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc import IdGenerator
from ..errors import InvalidArgumentError
from ..segment import GroupedSegmentId
from ..segment.blocks import Block, ShardBits
from ..snowflake import ShardedId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..abc import AnyGenerator

__all__ = ("next_block", "runs_of")


async def next_block(generator: AnyGenerator, count: int) -> Block:
    """Return ``count`` ids of a generator as ranges, for a caller that issues them.

    Raises:
        InvalidArgumentError: the generator's ids are texts, or start again in each group.
        CosIdError: there are no ids now.
    """
    if not isinstance(generator, IdGenerator) or isinstance(generator, GroupedSegmentId):
        raise InvalidArgumentError("name", "...", "must be a generator of rising numbers")
    if isinstance(generator, ShardedId):  # its ranges do not contain a shard yet
        bits = ShardBits(generator.layout.bits.sequence_bits, generator.layout.max_sharding_id)
        return Block(runs_of(await generator.next_ids(count)), bits)
    take: Callable[[int], Awaitable[list[range]]] | None
    take = getattr(generator, "_next_ranges", None)
    return Block(runs_of(await generator.next_ids(count)) if take is None else await take(count))


def runs_of(ids: list[int]) -> list[range]:
    """Return ids, at least one, as ranges of exactly these ids, in their order."""
    whole = range(ids[0], ids[0] + len(ids))
    if ids == list(whole):
        return [whole]
    runs: list[range] = []
    start = 0
    while start < len(ids):
        stop = start + 1
        stride = max(ids[stop] - ids[start], 1) if stop < len(ids) else 1
        while stop < len(ids) and ids[stop] - ids[stop - 1] == stride:
            stop += 1
        runs.append(range(ids[start], ids[stop - 1] + 1, stride))
        start = stop
    return runs
