"""The provider, the store and the clock that tests of an application use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

import aiocosid
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.converter import PrefixIdConverter, ToStringIdConverter
from aiocosid.errors import (
    IdOverflowError,
    InvalidArgumentError,
    NotOpenError,
    SequenceUnavailableError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.snowflake import COSID_MS, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import CountingProvider, FailingStore, ManualClock, use_clock, use_store

pytestmark = pytest.mark.anyio

BILL = PrefixIdConverter("B-", ToStringIdConverter())


async def test_each_name_counts_for_itself() -> None:
    ids = CountingProvider()
    assert [await ids["order"].next_id(), *await ids["order"].next_ids(2)] == [1, 2, 3]
    assert ids["bill", int].next_id_nowait() == 1
    assert ([*ids], len(ids)) == (["order", "bill"], 2)
    assert {*ids.statistics()} == {"order", "bill"}
    with pytest.raises(InvalidArgumentError, match="n"):
        await ids["order"].next_ids(0)


async def test_opening_and_closing_change_nothing() -> None:
    """An application may open the provider, and its generators, as often as it likes."""
    ids = CountingProvider()
    async with anyio.create_task_group() as group:
        assert await group.start(ids["order"].run) is ids["order"]
        group.cancel_scope.cancel()
    for expected in (1, 2):
        async with ids, ids["order"] as orders:
            assert await orders.next_id() == expected
    await ids["order"].aclose()
    assert ids["order"].next_id_nowait() == 3


def test_given_ids() -> None:
    ids = CountingProvider()
    ids["bill"].next_id_nowait()
    ids.give("bill", [7, 8], converter=BILL)
    assert [ids["bill", str].next_id_nowait() for _ in range(2)] == ["B-7", "B-8"]
    with pytest.raises(IdOverflowError, match="limit 8"):
        ids["bill"].next_id_nowait()
    with pytest.raises(InvalidArgumentError, match="a generator whose ids are int"):
        ids["bill", int]


def test_snowflakes_of_a_clock_that_stands_still() -> None:
    """They rise through ticks that are full, and when the clock steps back."""
    clock = ManualClock()
    ids = CountingProvider(clock=clock)
    layout = SnowflakeLayout(41, 3, 2, "ms", COSID_MS.epoch_ms, name="narrow")
    events = ids.give_snowflakes("event", layout, machine_id=5)
    ticks = [layout.tick_at(clock.now_ms()) + more for more in (0, 0, 0, 1, 1)]
    found = [int(events.next_id_nowait()) for _ in range(5)]
    clock.step_wall_ms(-1000)
    found.append(int(events.next_id_nowait()))
    clock.step_wall_ms(2000)
    found.append(int(events.next_id_nowait()))
    parts = [layout.parse(each) for each in found]
    first = layout.tick_at(ManualClock().now_ms())
    found_ticks = [layout.tick_at(int(each.timestamp.timestamp() * 1000)) for each in parts]
    assert found_ticks == [*ticks, first + 1, first + 1000]
    assert {each.machine_id for each in parts} == {5}
    assert found == sorted({*found})
    with pytest.raises(InvalidArgumentError, match="machine_id"):
        ids.give_snowflakes("event", layout, machine_id=8)


def test_threads_and_synchronous_code_share_the_numbers() -> None:
    ids = CountingProvider()
    assert ids["order"].next_id_nowait() == 1
    assert ids.sync["order"].next_id() == 2
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(ids["order", int].next_id_nowait) for _ in range(1000)]
    assert sorted(call.result() for call in calls) == [*range(3, 1003)]
    ids.close()
    assert ids["order"].next_id_nowait() == 1003


async def test_a_store_that_fails() -> None:
    """All that a server does fails, before anything is written."""
    store = FailingStore()
    counter = store.segment_distributor(namespace="shop", name="order")
    machines = store.machine_id_distributor(namespace="shop")
    for _ in range(2):
        store.fail()
        for call in (
            lambda: counter.next_max_id(10),
            counter.peek,
            store.counters,
            store.machines,
            store.is_initialized,
            lambda: store.set_floor(name="order", above=5),
            lambda: machines.distribute(10, now_ms=0, latest_ms=0),
        ):
            with pytest.raises(StoreUnavailableError, match="unplugged"):
                await call()
        store.recover()
        assert await store.counters() == []
    store.fail(StoreError("redis", "NOPERM"), times=1)
    with pytest.raises(StoreError, match="NOPERM"):
        await counter.next_max_id(10)
    assert await counter.next_max_id(10) == 10


async def test_sequences_of_a_store_that_fails() -> None:
    """As those of a server, whose keys an application may name."""
    with use_store(FailingStore()) as store:
        assert isinstance(store, FailingStore)
        async with aiocosid.connect("redis://localhost/0") as ids:
            orders = await ids.sharded("order", key="order<second>", batch=1)
            await orders.next_id(7)
            store.fail()
            with pytest.raises(SequenceUnavailableError, match="unplugged"):
                await orders.next_ids(2, 7)
            store.recover()
            assert orders.layout.parse(await orders.next_id(7)).sharding_id == 7


async def test_every_url_opens_the_store() -> None:
    inner, outer = MemoryStore(), MemoryStore()
    with use_store(outer):
        with use_store(inner):
            for url in (
                "redis://nowhere.invalid",
                "leaf+mysql://u@nowhere.invalid/leaf",
                "mysql+aiomysql://nowhere.invalid/x",
                "tiered:?root=postgresql%3A%2F%2Fh%2Fx&cache=redis%3A%2F%2Fh",
                "striped:?store=redis%3A%2F%2Fa&store=redis%3A%2F%2Fb",
            ):
                assert aiocosid.store_from_url(url) is inner
        assert aiocosid.store_from_url("redis://nowhere.invalid") is outer
        with pytest.raises(InvalidArgumentError, match="url"):
            aiocosid.store_from_url("nosuch://h")
    assert type(aiocosid.store_from_url("redis://nowhere.invalid")).__name__ == "RedisStore"


async def test_the_clock_of_what_has_none() -> None:
    clock = ManualClock()
    with use_clock(clock):
        async with aiocosid.connect(MemoryStore()) as ids:
            events = await ids.snowflake("event")
            event = await events.next_id()
        assert CountingProvider().give_snowflakes("event").next_id_nowait() == event
        assert (SYSTEM_CLOCK.monotonic(), SYSTEM_CLOCK.wall_reader()()) == (0, 17 * 10**17)
    assert COSID_MS.parse(event).timestamp.timestamp() * 1000 == clock.now_ms()
    assert SYSTEM_CLOCK.now_ms() > clock.now_ms() + 10**9


def test_it_is_the_default_provider() -> None:
    with aiocosid.use_provider(CountingProvider()):
        assert aiocosid.generator_named("order").next_id_nowait() == 1
    with pytest.raises(NotOpenError):
        aiocosid.generator_named("order")
