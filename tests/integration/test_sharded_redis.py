"""Sharded ids on a real server that is emptied and restarted under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from aiocosid import sync
from aiocosid.errors import CosIdError
from aiocosid.provider import configure, connect
from aiocosid.snowflake import ShardedId, ShardedLayout
from aiocosid.stores.redis import RedisStore
from tests.machine_marks import initialize_namespace
from tests.servers import ValkeyServer

from ._sequences import open_fence

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LAYOUT = ShardedLayout(1_546_300_800)
KEY = "order<second>"


async def test_a_provider_has_them_too(valkey_factory: Callable[..., ValkeyServer]) -> None:
    """In a loop and for threads, on the keys that it is told."""
    server = valkey_factory()
    open_fence(server, KEY)
    found: list[int] = []

    def in_thread() -> None:
        with sync.connect(server.url, namespace="shop") as ids:
            orders = ids.sharded("order", layout=LAYOUT, key=KEY, sharding_id=9, batch=5)
            found.extend(orders.next_ids(20))

    async with connect(server.url, namespace="shop") as ids:
        orders = await ids.sharded("order", layout=LAYOUT, key=KEY, sharding_id=7, tolerance=2)
        found += await orders.next_ids(20)
        await asyncio.to_thread(in_thread)
        assert server.call("HKEYS", "aiocosid:marker") == ["store"]
    assert len(set(found)) == 40
    assert {LAYOUT.parse(each).sharding_id for each in found} == {7, 9}


@pytest.mark.stress  # the fence takes a second, twice
async def test_what_it_forgets_does_not_come_twice(
    valkey_factory: Callable[..., ValkeyServer],
) -> None:
    """R16, R17: FLUSHALL, SCRIPT FLUSH and a kill, with three nodes that go on by themselves."""
    server = valkey_factory()
    open_fence(server, KEY)
    ids: list[int] = []
    ended = asyncio.Event()

    async def node(seen: asyncio.Event) -> None:
        async with RedisStore.from_url(server.url) as redis:
            store = redis.sequence_distributor(name="n", key=KEY, tolerance=1, margin=0)
            async with ShardedId(store, layout=LAYOUT, batch=50, on_unavailable="wait") as gen:
                while not ended.is_set():
                    ids.extend(await gen.next_ids(17))
                    seen.set()
                    await asyncio.sleep(0)

    async def fresh(seen: list[asyncio.Event]) -> None:
        for each in seen:
            each.clear()
            await each.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        seen = [asyncio.Event() for _ in range(3)]
        for each in seen:
            group.create_task(node(each))
        await fresh(seen)
        server.call("SCRIPT", "FLUSH")
        await fresh(seen)
        server.call("FLUSHALL")
        await fresh(seen)
        server.kill()
        server.start()
        await fresh(seen)
        ended.set()
    assert len(set(ids)) == len(ids)
    assert len({LAYOUT.parse(each).second for each in ids}) > 1


@pytest.mark.stress  # the fence takes seconds, at each swap
async def test_databases_are_swapped_under_it(
    valkey_factory: Callable[..., ValkeyServer],
) -> None:
    """There and back, and both know of a fence: what was granted in one is not in the other."""
    server = valkey_factory()
    open_fence(server, KEY)
    ids: list[int] = []
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(RedisStore.from_url(server.url))
        nodes = [
            await stack.enter_async_context(
                ShardedId(
                    redis.sequence_distributor(name="n", key=KEY, tolerance=1, margin=0),
                    layout=LAYOUT,
                    batch=1,
                    on_unavailable="wait",
                    wait_timeout=10,
                )
            )
            for _ in range(2)
        ]
        for turn in range(6):
            for _ in range(25):
                ids += await nodes[turn % 2].next_ids(2)
            server.call("SWAPDB", 0, 1)
    assert len(set(ids)) == len(ids) == 300


async def test_two_nodes_share_the_seconds(valkey: ValkeyServer, namespace: str) -> None:
    """Each has what it asked for; a wrong key says so when it is opened."""
    key = f"{namespace}<second>"
    open_fence(valkey, key)
    stores = [
        RedisStore.from_url(valkey.url).sequence_distributor(namespace=namespace, name="n", key=key)
        for _ in range(2)
    ]
    ids: list[int] = []
    async with (
        ShardedId(stores[0], layout=LAYOUT, sharding_id=1) as one,
        ShardedId(stores[1], layout=LAYOUT, sharding_id=2) as other,
    ):
        for _ in range(10):
            ids += await one.next_ids(500)
            ids += await other.next_ids(300)
    assert len({LAYOUT.parse(each)[::2] for each in ids}) == 8000
    for each in stores:
        await each._link.aclose()
    refused = RedisStore.from_url("redis://127.0.0.1:1").sequence_distributor(name="n")
    with pytest.raises(CosIdError, match=r"Connect|connect"):
        await ShardedId(refused, layout=LAYOUT).__aenter__()


async def test_in_a_provider(valkey: ValkeyServer, namespace: str) -> None:
    """Closed with the others beside it, and all machine ids are given back; twice."""
    key = f"{namespace}<second>"
    open_fence(valkey, key)
    initialize_namespace(valkey, namespace, f"{namespace}.lane")
    provider = configure(
        {
            "namespace": namespace,
            "store": valkey.url,
            "generators": {
                "order": {
                    "kind": "sharded",
                    "epoch": LAYOUT.epoch_second,
                    "key": key,
                    "max_sequence": 458_751,
                    "on_unavailable": "lane",
                },
                "event": {"kind": "snowflake"},
            },
        },
        default=False,
    )
    ids: list[object] = []
    for _ in range(2):
        async with provider:
            ids += await provider["order"].next_ids(10)
            ids += await provider["event"].next_ids(10)
            leases = provider._leases()
            assert all(each.machine_id >= 0 for each in leases)
        assert [each.machine_id for each in leases] == [-1, -1]
    assert len(set(ids)) == 40
