"""Which shard a row is on, and which generators put it into their ids."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from aiocosid.abc.shards import check_shard, shard_of
from aiocosid.converter import Radix62IdConverter
from aiocosid.errors import InvalidArgumentError
from aiocosid.generators import IntegerIdGenerator, Uuid7Id
from aiocosid.generators.text import StringIdGenerator
from aiocosid.segment import SegmentChainId
from aiocosid.sharding import IntervalTimeline, ModCycle, ShardRange, StandardTimeKey
from aiocosid.snowflake import ShardedId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from .snowflake._sequences import LAYOUT, Sequences

ORDERS = ShardedId(Sequences(ManualClock()), layout=LAYOUT)
NUMBERS = SegmentChainId(MemoryStore().segment_distributor(namespace="shop", name="order"))


class OfAnotherProcess:
    """Its layout is not known here."""

    async def next_id(self, sharding_id: int | None = None) -> int:
        raise NotImplementedError


class Sample:
    """One of a test, for threads."""

    def next_id(self) -> int:
        raise NotImplementedError


def test_an_attribute_or_a_function_says_it() -> None:
    cycle = ModCycle(4, "orders_")
    row = SimpleNamespace(customer_id=7)
    assert shard_of(row, "customer_id", ORDERS, "Order.id") == 7

    def by_cycle(each: Any) -> int:
        return cycle.sharding_id(each.customer_id)

    assert shard_of(row, by_cycle, ORDERS, "Order.id") == 3


@pytest.mark.parametrize("value", [None, -1, 4096, "7", True, 7.0])
def test_a_row_without_a_shard_of_the_layout(value: object) -> None:
    """The error names the place and the limit."""
    row = SimpleNamespace(region=value)
    limit = r"must be an integer from 0 to 4095, not "
    with pytest.raises(InvalidArgumentError, match=rf"region, the shard of Order.id, {limit}"):
        shard_of(row, "region", ORDERS, "Order.id")
    with pytest.raises(InvalidArgumentError, match=rf"^the shard of Order.id {limit}"):
        shard_of(row, lambda each: each.region, ORDERS, "Order.id")
    with pytest.raises(InvalidArgumentError, match=rf"^shard {limit}"):
        check_shard(ORDERS, value)


def test_a_row_that_has_no_such_attribute() -> None:
    expected = r"the shard of Order.id 'regoin' is not set on SimpleNamespace; set it"
    with pytest.raises(InvalidArgumentError, match=expected):
        shard_of(SimpleNamespace(region=1), "regoin", ORDERS, "Order.id")


def test_a_generator_whose_ids_carry_none() -> None:
    """Itself, or what is in it."""
    for generator in (
        NUMBERS,
        StringIdGenerator(NUMBERS, Radix62IdConverter()),
        IntegerIdGenerator(ORDERS),
        Uuid7Id(),
        Sample(),
    ):
        with pytest.raises(InvalidArgumentError, match=r"shard 1 cannot be .* carry no shard"):
            check_shard(generator, 1)


async def test_texts_pass_it_on(clock: ManualClock) -> None:
    """With the checks of the generator inside, and in front of an id."""
    sharded = ShardedId(Sequences(clock), layout=LAYOUT, sharding_id=9, clock=clock)
    radix = Radix62IdConverter()
    async with StringIdGenerator(sharded, radix) as texts:
        found = [await texts.next_id(7), *await texts.next_ids(2, 5), texts.next_id_nowait(4)]
        found += [await texts.next_id(), *await texts.next_ids(1), texts.next_id_nowait()]
        told = [LAYOUT.parse(radix.as_int(each)).sharding_id for each in found]
        assert told == [7, 5, 5, 4, 9, 9, 9]
        handed_out = sharded.statistics().ids_handed_out
        with pytest.raises(InvalidArgumentError, match=r"sharding_id must .* 0 to 4095, not 4096"):
            await texts.next_id(4096)
        with pytest.raises(InvalidArgumentError, match=r"sharding_id must .* 0 to 4095, not 4096"):
            await texts.next_ids(2, 4096)
        with pytest.raises(InvalidArgumentError, match=r"sharding_id must .* not 4096"):
            texts.next_id_nowait(4096)
        assert sharded.statistics().ids_handed_out == handed_out
    async with StringIdGenerator(NUMBERS, radix) as numbers:
        with pytest.raises(
            InvalidArgumentError, match=r"sharding_id 1 cannot be .* carry no shard"
        ):
            await numbers.next_id(1)
        assert radix.as_int(await numbers.next_id()) == 1


def test_a_layout_that_is_elsewhere() -> None:
    check_shard(OfAnotherProcess(), 2**31 - 1)
    for wrong in (2**31, None):
        with pytest.raises(InvalidArgumentError, match="0 to 2147483647"):
            check_shard(OfAnotherProcess(), wrong)


def test_the_number_of_a_node() -> None:
    """Its place among the nodes; a remainder is one."""
    cycle = ModCycle(5, "orders_")
    for key in (0, 7, -1):
        assert cycle.effective_nodes[cycle.sharding_id(key)] == cycle.exact(key)
    assert cycle.sharding_id(7) == 2
    with pytest.raises(InvalidArgumentError, match="value"):
        cycle.sharding_id(None)  # type: ignore[arg-type]
    first, last, march, august = (datetime(2026, month, 1) for month in (1, 7, 3, 8))  # noqa: DTZ001 - local times
    months = IntervalTimeline(
        ShardRange.closed_open(first, last),
        "months",
        logic_name_prefix="orders_",
        suffix_pattern="yyyyMM",
        key=StandardTimeKey("UTC"),
    )
    assert months.sharding_id(march) == 2
    with pytest.raises(InvalidArgumentError):
        months.sharding_id(august)
