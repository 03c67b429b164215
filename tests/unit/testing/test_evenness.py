"""Whether ids are even under a modulus."""

from __future__ import annotations

from functools import partial

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.segment import SegmentId
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, assert_even


async def test_a_counter_is_even_and_a_wide_stride_is_not() -> None:
    async with SegmentId(MemoryStore().segment_distributor(name="order")) as ids:
        await assert_even(ids, 4, count=1000)
        with pytest.raises(AssertionError, match="by 3 are uneven"):
            await assert_even(ids, 3, count=100, at_most=0.1)


async def test_a_snowflake_at_a_low_load(clock: ManualClock) -> None:
    """Its sequence goes on across ticks, or begins at 0 in each: then all have one remainder."""
    slowly = partial(clock.advance, 0.01)
    machine = MemoryStore().machine_id_distributor()
    async with SnowflakeId(machine, clock=clock, sequence_reset_threshold=0) as ids:
        with pytest.raises(AssertionError, match="0: 0, 1: 64, 2: 0, 3: 0"):
            await assert_even(ids, 4, count=64, pause=slowly)
    machine = MemoryStore().machine_id_distributor()
    async with SnowflakeId(machine, clock=clock) as ids:
        await assert_even(ids, 4, count=64, pause=slowly)


async def test_wrong_arguments() -> None:
    async with SegmentId(MemoryStore().segment_distributor(name="order")) as ids:
        for divisor, count in ((1, 10), (4, 3)):
            with pytest.raises(InvalidArgumentError):
                await assert_even(ids, divisor, count=count)
