"""Grants that replicas have to confirm: WAIT, next on the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis, RedisCluster

from aiocosid import store_from_url
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import (
    CounterNotCreatedError,
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.stores.redis import RedisStore
from tests.servers import ValkeyCluster, ValkeyServer, eventually, wait_until
from tests.servers.valkey import MARK

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    """A master and its replica, to be paused."""
    quick = "--repl-diskless-sync-delay", "0"
    with (
        ValkeyServer(*quick) as master,
        ValkeyServer("--replicaof", f"{master.host} {master.port}", *quick) as replica,
    ):
        wait_until(replica.is_following, "the replica follows")
        yield master, replica


@pytest_asyncio.fixture
async def client(both: tuple[ValkeyServer, ValkeyServer]) -> AsyncIterator[Redis]:
    client: Redis = Redis.from_url(both[0].url, decode_responses=True)
    yield client
    await client.aclose()


def calls_of(server: ValkeyServer, command: str) -> int:
    """How often a server has run a command."""
    told = str(server.call("INFO", "commandstats"))
    line = next((each for each in told.split() if f"cmdstat_{command}:" in each), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


async def test_a_replica_confirms_each_grant(
    both: tuple[ValkeyServer, ValkeyServer], client: Redis, namespace: str
) -> None:
    """What it confirmed is there."""
    master, replica = both
    sent = calls_of(master, "wait")
    for offset in (0, 5):
        name = f"{offset}"
        distributor = RedisStore(client, replicas=1, replica_timeout=1).segment_distributor(
            namespace=namespace, name=name, offset=offset
        )
        for grants in (1, 2):
            max_id = await distributor.next_max_id(10)
            assert max_id == offset + 10 * grants
            key = f"cosid:{{{namespace}.{name}}}.adder"
            assert replica.call("GET", key) == str(max_id)
    assert calls_of(master, "wait") - sent >= 4


async def test_without_it_nothing_is_waited_for(
    both: tuple[ValkeyServer, ValkeyServer], client: Redis, namespace: str
) -> None:
    sent = calls_of(both[0], "wait")
    distributor = RedisStore(client).segment_distributor(namespace=namespace, name="n")
    await distributor.next_max_id(10)
    assert calls_of(both[0], "wait") == sent


async def test_too_few_replicas_burn_the_range(
    both: tuple[ValkeyServer, ValkeyServer], client: Redis, namespace: str
) -> None:
    """It is a gap, the error says how many have heard, and once they do the ids come."""
    _, replica = both
    store = RedisStore(client, replicas=1, replica_timeout=0.05)
    distributor = store.segment_distributor(namespace=namespace, name="n")
    assert await distributor.next_max_id(10) == 10
    replica.pause()
    try:
        told = "0 of 1 replicas confirmed a grant within 0.05 s, so its range is a gap"
        with pytest.raises(StoreUnavailableError, match=told) as caught:
            await distributor.next_max_id(10)
        assert caught.value.retryable
    finally:
        replica.resume()

    async def attempt() -> int:
        return await distributor.next_max_id(10)

    assert await eventually(attempt, StoreUnavailableError) >= 30


async def test_wait_is_sent_on_the_connection_of_the_grant(
    both: tuple[ValkeyServer, ValkeyServer], client: Redis, namespace: str
) -> None:
    """Another one has written nothing, and would be answered at once whatever the replica does."""
    _, replica = both
    pool: Any = client.connection_pool
    busy = [await pool.get_connection() for _ in range(3)]
    for each in busy:
        await each.send_command("PING")
        await each.read_response()
        await pool.release(each)
    distributor = RedisStore(client, replicas=1, replica_timeout=0.05).segment_distributor(
        namespace=namespace, name="n"
    )
    replica.pause()
    try:
        errors = await asyncio.gather(
            *(distributor.next_max_id(1) for _ in range(20)), return_exceptions=True
        )
        assert {type(each) for each in errors} == {StoreUnavailableError}
    finally:
        replica.resume()


async def test_a_counter_that_is_not_created_waits_for_no_replica(
    valkey_factory: Callable[..., ValkeyServer],
) -> None:
    """Nothing was written, so there is nothing to confirm."""
    server = valkey_factory()
    server.call("DEL", MARK[1])
    async with store_from_url(f"{server.url}?replicas=1&replica_timeout=0.05") as store:
        with pytest.raises(CounterNotCreatedError):
            await store.segment_distributor(name="n").next_max_id(10)


async def test_a_cluster_asks_the_node_of_the_key(
    valkey_cluster: ValkeyCluster, namespace: str
) -> None:
    """None of its masters has a replica here; the grant is made, and burnt."""
    url = f"{valkey_cluster.url}?replicas=1&replica_timeout=0.05"
    async with store_from_url(url) as store:
        for name in ("a", "b", "c", "d"):
            distributor = store.segment_distributor(namespace=namespace, name=name)
            with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                await distributor.next_max_id(10)
            key = f"cosid:{{{namespace}.{name}}}.adder"
            assert valkey_cluster.owner(key).call("GET", key) == "10"


async def test_a_slot_that_is_on_its_way_and_one_that_has_moved(
    cluster_alone: ValkeyCluster, namespace: str
) -> None:
    """It is asked where it is, with the rights of the page: the grant is made, and burnt."""
    key = f"cosid:{{{namespace}.n}}.adder"
    for node in cluster_alone.nodes:
        rights = [
            "+evalsha",
            "+eval",
            "+get",
            "+incrby",
            "+hexists",
            "+wait",
            "+asking",
            "+command",
            "+cluster|slots",
        ]
        keys = f"~{key}", "~aiocosid:marker"
        node.call("ACL", "SETUSER", namespace, "reset", "on", ">x", *keys, *rights)
    before = cluster_alone.owner(key)
    after = next(each for each in cluster_alone.masters if each is not before)
    slot, its_id = str(before.call("CLUSTER", "KEYSLOT", key)), str(after.call("CLUSTER", "MYID"))
    url = cluster_alone.url.replace("://", f"://{namespace}:x@")
    async with store_from_url(f"{url}?replicas=1&replica_timeout=0.05") as store:
        distributor = store.segment_distributor(namespace=namespace, name="n")

        async def burn() -> None:
            with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                await distributor.next_max_id(10)

        await burn()
        after.call("CLUSTER", "SETSLOT", slot, "IMPORTING", str(before.call("CLUSTER", "MYID")))
        before.call("CLUSTER", "SETSLOT", slot, "MIGRATING", its_id)
        before.call("MIGRATE", after.host, after.port, key, 0, 1000)
        await burn()
        for node in (after, before, *cluster_alone.masters):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", its_id)
        assert after.call("GET", key) == "20"
        await burn()
        assert after.call("GET", key) == "30"


async def test_a_client_of_one_node_of_a_cluster(
    valkey_cluster: ValkeyCluster, namespace: str
) -> None:
    """Of a key that lies elsewhere it says what to use."""
    key = f"cosid:{{{namespace}.n}}.adder"
    owner = valkey_cluster.owner(key)
    other = next(each for each in valkey_cluster.masters if each is not owner)
    client: Redis = Redis.from_url(other.url)
    distributor = RedisStore(client, replicas=1).segment_distributor(namespace=namespace, name="n")
    with pytest.raises(StoreError, match=r"redis\+cluster://"):
        await distributor.next_max_id(10)
    await client.aclose()


@pytest.mark.stress
async def test_on_a_cluster_with_replicas(
    cluster_factory: Callable[..., ValkeyCluster], namespace: str
) -> None:
    """They confirm, also for a slot that has moved since the client looked."""
    cluster = cluster_factory(replicas=True)
    async with store_from_url(cluster.url + "?replicas=1&replica_timeout=1") as store:
        for name in ("a", "b", "c", "d"):
            distributor = store.segment_distributor(namespace=namespace, name=name)

            async def attempt(distributor: IdSegmentDistributor = distributor) -> int:
                return await distributor.next_max_id(10)

            assert await eventually(attempt, StoreUnavailableError) % 10 == 0
        key = f"cosid:{{{namespace}.a}}.adder"
        before = cluster.owner(key)
        follower = cluster.replicas[cluster.masters.index(before)]
        follower.call("CLUSTER", "FAILOVER")
        await eventually(lambda: _owned(cluster, key, follower), AssertionError)
        moved = store.segment_distributor(namespace=namespace, name="a")
        assert await eventually(lambda: moved.next_max_id(10), StoreUnavailableError) >= 20


async def _owned(cluster: ValkeyCluster, key: str, by: ValkeyServer) -> None:
    assert cluster.owner(key) is by


async def test_arguments(valkey: ValkeyServer, namespace: str) -> None:
    """Refused at once, in Python and in the URL."""
    wrong: tuple[dict[str, Any], ...] = (
        {"replicas": -1},
        {"replicas": True},
        {"replica_timeout": 0},
        {"durability": "maybe"},
    )
    with pytest.raises(InvalidArgumentError, match="less than socket_timeout"):
        store_from_url(f"{valkey.url}?replicas=1&replica_timeout=2")
    store_from_url(f"{valkey.url}?replicas=1&replica_timeout=2&socket_timeout=3")
    for hasty in (
        Redis.from_url(valkey.url, socket_timeout=0.3),
        RedisCluster(host="127.0.0.1", socket_timeout=0.3),
    ):
        with pytest.raises(InvalidArgumentError, match="less than socket_timeout"):
            RedisStore(hasty, replicas=1)
        RedisStore(hasty, replicas=1, replica_timeout=0.2)
        await hasty.aclose()
    client = Redis.from_url(valkey.url)
    for each in wrong:
        with pytest.raises(InvalidArgumentError, match=next(iter(each))):
            RedisStore(client, **each)
        ((name, value),) = each.items()
        with pytest.raises(InvalidArgumentError, match=name):
            store_from_url(f"{valkey.url}?{name}={value}")
    await client.aclose()


async def test_demoted_while_a_replica_is_waited_for(
    valkey_factory: Callable[..., ValkeyServer], namespace: str
) -> None:
    """What Sentinel does to a master that is back: to be tried again, elsewhere."""
    server = valkey_factory()
    client: Redis = Redis.from_url(server.url)
    distributor = RedisStore(client, replicas=1, replica_timeout=0.9).segment_distributor(
        namespace=namespace, name="n"
    )
    call = asyncio.create_task(distributor.next_max_id(10))
    await until(lambda: "blocked_clients:1" in str(server.call("INFO", "clients")))
    server.call("REPLICAOF", "127.0.0.1", "1")
    for each in (call, distributor.next_max_id(10)):
        with pytest.raises(StoreUnavailableError):
            await each
    await client.aclose()
