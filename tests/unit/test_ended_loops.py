"""An event loop that is ended, as by Ctrl-C, while a generator is being opened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from aiocosid import SegmentChainId, SnowflakeId
from aiocosid.abc import IdGenerator
from aiocosid.snowflake import CachedSnowflakeId, ShardedId, ShardedLayout
from aiocosid.stores.memory import MemorySequenceDistributor, MemoryStore
from aiocosid.testing import SlowDistributor

TURNS = 16
"""More than opening takes in any of these."""

LAYOUT = ShardedLayout(1_546_300_800)


def a_snowflake() -> SnowflakeId:
    return SnowflakeId(MemoryStore().machine_id_distributor())


def a_cached_snowflake() -> SnowflakeId:
    return CachedSnowflakeId(MemoryStore().machine_id_distributor())


def a_chain() -> SegmentChainId:
    distributor = MemoryStore().segment_distributor(name="order")
    return SegmentChainId(SlowDistributor(distributor, latency=0))


def a_sharded_id() -> ShardedId:
    return ShardedId(MemorySequenceDistributor(name="order"), layout=LAYOUT)


@pytest.mark.parametrize("make", [a_snowflake, a_cached_snowflake, a_chain, a_sharded_id])
@pytest.mark.parametrize("turns", range(TURNS))
def test_ending_the_loop_while_it_opens_takes_no_time(
    make: Callable[[], IdGenerator], turns: int
) -> None:
    """Tasks that never began are not waited for, nor warned of; the next loop opens it anew."""
    generator = make()

    async def use() -> int:
        async with generator:
            return await generator.next_id()

    async def end() -> None:
        opening = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not opening.cancelled()  # asyncio itself holds it weakly

    began = time.monotonic()
    asyncio.run(end())
    assert asyncio.run(use()) > 0
    assert time.monotonic() - began < 0.8, "closing waits for a second at least, if it waits"
