"""What stores without a witness do not notice: the box of exceptions names each of these."""

from __future__ import annotations

import pytest

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.stores.redis import RedisStore
from tests.servers import ValkeyCluster
from tests.servers.valkey import MARK

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

KEY = "cosid:{cosid.order}.adder"


async def next_of_a_new_process(store: Store) -> int:
    return await store.segment_distributor(name="order").next_max_id(10)


@pytest.mark.parametrize("kind", ["valkey", "etcd", "zookeeper", "nats"])
async def test_all_counters_deleted_under_a_marker_that_stays(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """The marker lets the counter begin at 1 again, for a process that has not used it before."""
    server = request.getfixturevalue(f"{kind}_factory")()
    async with store_from_url(server.url) as store:
        await store.create_schema()
        await store.initialize(confirm_no_holders=True)
        assert await next_of_a_new_process(store) == 10
        match kind:
            case "valkey":
                assert server.call("DEL", KEY) == 1
            case "etcd":
                server.delete("/cosid/cosid.order")
            case "zookeeper":
                server.behind.delete("/cosid/cosid.order", recursive=True)
            case _:
                server.purge("aiocosid_counters", "aiocosid.counter.cosid%2Eorder")
        assert await store.counters() == []
        assert await next_of_a_new_process(store) == 10


async def test_one_emptied_node_of_a_cluster(cluster_alone: ValkeyCluster, namespace: str) -> None:
    """Its counters begin at 1 again, as long as the marker is on another one."""
    marked = cluster_alone.owner(MARK[1])
    names = map(str, range(100))
    nodes = ((each, cluster_alone.owner(f"cosid:{{{namespace}.{each}}}.adder")) for each in names)
    name, node = next((name, node) for name, node in nodes if node is not marked)
    async with RedisStore.from_url(cluster_alone.url) as store:
        before, after = (
            store.segment_distributor(namespace=namespace, name=name) for _ in range(2)
        )
        assert await before.next_max_id(10) == 10
        node.call("FLUSHALL")
        assert await after.next_max_id(10) == 10
