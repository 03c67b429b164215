"""Several real stores side by side: the contract as far as it has no holes, kills and forks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
import pytest_asyncio

from aiocosid import CosIdError, SegmentChainId, SegmentId
from aiocosid.abc import IdSegmentDistributor, Store
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.stores.striped import StripedStore
from aiocosid.testing import DistributorFactory, IdSegmentDistributorContract
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


class TestContract:
    """What of the public contract holds for ids with holes; the rest in words of its own."""

    test_a_bad_description = IdSegmentDistributorContract.test_a_bad_description_is_refused
    test_cancelled_calls = IdSegmentDistributorContract.test_a_cancelled_call_shares_no_range
    test_a_loss = IdSegmentDistributorContract.test_a_counter_that_went_back_is_noticed
    test_its_description = IdSegmentDistributorContract.test_it_describes_its_counter

    @pytest_asyncio.fixture(params=["memory", "valkey"])
    async def make_distributor(
        self, request: pytest.FixtureRequest
    ) -> AsyncIterator[DistributorFactory]:
        self.stores: list[Any] = [MemoryStore() for _ in range(3)]
        if request.param == "valkey":
            server: ValkeyServer = request.getfixturevalue("valkey")
            urls = [server.patient_url.replace("/0?", f"/{number}?") for number in (4, 5, 6)]
            self.stores = [RedisStore.from_url(url) for url in urls]
            for store in self.stores:
                await store.initialize(confirm_no_holders=True)
        async with StripedStore(self.stores, store_timeout=10, owns_stores=True) as striped:
            yield striped.segment_distributor

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        del to
        name = f"{distributor.namespaced_name}~striped"
        for store in self.stores:
            if isinstance(store, MemoryStore):
                store._backend._counters[name] %= 100
                continue
            key = f"cosid:{{{name}}}.adder"

            async def back(client: Any, key: str = key) -> None:
                await client.set(key, int(await client.get(key)) % 100)

            await store._backend.link.call(back)

    async def test_many_at_once(self, make_distributor: DistributorFactory) -> None:
        """Through objects at home everywhere: no id twice, none at or below the offset."""
        made = [make_distributor(namespace="many", name="a b/é", offset=70) for _ in range(6)]
        taken: list[int] = []

        async def take(one: IdSegmentDistributor, step: int) -> None:
            last = await one.next_max_id(step)
            taken.extend(range(last - (step - 1) * 3, last + 1, 3))

        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(take, made[number % 6], number % 7 + 1)
        assert len(set(taken)) == len(taken)
        assert min(taken) > 70

    async def test_generators(self, make_distributor: DistributorFactory) -> None:
        """Their ids rise, each one's, and none is another's."""
        kinds = (SegmentId, SegmentChainId)
        seen: set[int] = set()
        for kind in kinds * 2:
            async with kind(make_distributor(namespace="gen", name="order", step=7)) as generator:
                ids = [await generator.next_id() for _ in range(20)]
                ids += await generator.next_ids(100)
            assert ids == sorted(set(ids))
            assert seen.isdisjoint(ids)
            assert not seen or ids[0] > max(seen), "a new object begins above all stores"
            seen |= {*ids}


async def test_stores_of_several_kinds(tmp_path: Any, valkey: ValkeyServer, namespace: str) -> None:
    """A file, a server and memory; one of them is closed for good."""
    stores: list[Store] = [
        SqliteStore.from_url(f"sqlite:///{tmp_path}/ids.db"),
        RedisStore.from_url(valkey.url),
        MemoryStore(),
    ]
    async with StripedStore(stores, owns_stores=True) as striped:
        await striped.create_schema()
        counter = striped.segment_distributor(namespace=namespace, name="order", offset=1000)
        async with SegmentChainId(counter) as order:
            ids = await order.next_ids(500)
            await striped.set_floor(namespace=namespace, name="order", above=10**6)
        async with SegmentChainId(counter) as order:
            ids += await order.next_ids(500)
        assert ids == sorted(set(ids))
        assert (ids[0] > 1000, ids[-1] > 10**6) == (True, True)
        (found,) = await striped.counters(namespace=namespace)
        assert found.last_max_id >= ids[-1]


@pytest.mark.stress
@pytest.mark.timeout(120)
async def test_one_is_killed_every_2_s_in_turn(valkey_factory: Callable[..., ValkeyServer]) -> None:
    """No error to callers, no duplicate, and each generator's ids rise."""
    servers = [await asyncio.to_thread(valkey_factory, persistent=True) for _ in range(3)]
    taken: list[list[int]] = []
    errors: list[CosIdError] = []
    end = time.monotonic() + 10

    async def client() -> None:
        stores = [RedisStore.from_url(f"{server.url}?durability=ignore") for server in servers]
        async with (
            StripedStore(stores, owns_stores=True) as store,
            SegmentChainId(store.segment_distributor(name="order", step=10), endurance=0) as order,
        ):
            taken.append(mine := [])
            while time.monotonic() < end:
                try:
                    mine += await order.next_ids(10)
                except CosIdError as error:
                    errors.append(error)
                await asyncio.sleep(0.005)

    async def kill() -> None:
        number = 0
        while time.monotonic() + 2 < end:
            server = servers[number % 3]
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(1)
            await asyncio.to_thread(server.start)
            await asyncio.sleep(1)
            number += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(kill())
        for _ in range(6):
            group.create_task(client())
    every = [each for mine in taken for each in mine]
    assert errors == []
    assert len(every) == len(set(every)) > 1000
    assert all(mine == sorted(mine) for mine in taken)
    assert any(len({each % 3 for each in mine}) > 1 for mine in taken), "none ever left its home"
