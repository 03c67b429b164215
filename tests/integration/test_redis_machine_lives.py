"""Machine ids on clusters, under sentinels and on replicas; and what becomes of them in a fork."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode

from aiocosid.abc import MachineGrant
from aiocosid.errors import (
    MachineIdLostError,
    MachineIdOverflowError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores.redis import RedisStore
from tests.servers import ValkeyCluster, ValkeySentinel, ValkeyServer, eventually, wait_until

pytestmark = [pytest.mark.integration]

T = 1_700_000_000_000  # some time in the past, in ms
FAR = 2**62  # no floor is too late
FAILOVER = 30.0  # seconds


def machine_of(store: RedisStore, namespace: str, text: str) -> CellMachineIdDistributor:
    return store.machine_id_distributor(namespace=namespace, instance_id=text)


async def take(store: RedisStore, namespace: str, text: str) -> MachineGrant:
    machine = machine_of(store, namespace, text)
    return await machine.distribute(1, now_ms=T, latest_ms=FAR)


def hasty_of(store: RedisStore, namespace: str, text: str) -> CellMachineIdDistributor:
    return store.machine_id_distributor(
        namespace=namespace, instance_id=text, safe_guard=0.004, interval=0.001
    )


async def take_expired(machine: CellMachineIdDistributor) -> MachineGrant:
    """As soon as the server's clock has gone on by the safe guard."""
    while True:
        try:
            return await machine.distribute(1, now_ms=T, latest_ms=FAR)
        except MachineIdOverflowError:
            await asyncio.sleep(0)


async def check(store: RedisStore, namespace: str) -> None:
    """All that a store can do."""
    await store.initialize_namespace(namespace=namespace)
    first = machine_of(store, namespace, "a")
    assert await first.distribute(1, now_ms=T, latest_ms=FAR) == MachineGrant(0, -1)
    await first.renew(0, now_ms=T + 1, fence_ms=T + 9)
    assert await take(store, namespace, "b") == MachineGrant(1, -1)
    hasty = hasty_of(store, namespace, "c")
    assert await take_expired(hasty) == MachineGrant(0, T + 9)
    with pytest.raises(MachineIdLostError, match="c holds it"):
        await first.renew(0, now_ms=T + 2, fence_ms=T + 9)
    await store.evict_machine(namespace=namespace, machine_id=1)
    await hasty.release(0, last_ms=T + 3)
    listed = [each for each in await store.machines() if each.namespace == namespace]
    assert [(each.machine_id, each.instance_id) for each in listed] == [(0, ""), (1, "")]
    assert listed == list(await store.machines(namespace=namespace))


@asynccontextmanager
async def cluster_store(cluster: ValkeyCluster, kind: str) -> AsyncGenerator[RedisStore]:
    """A store by URL, or on a client of the user's."""
    async with AsyncExitStack() as stack:
        node, client = cluster.masters[0], None
        if kind == "url":
            url = f"redis+cluster://{node.host}:{node.port}"
            yield await stack.enter_async_context(RedisStore.from_url(url))
            return
        if kind == "redis-py":
            client = RedisCluster(startup_nodes=[ClusterNode(node.host, node.port)])
        else:
            module = pytest.importorskip("valkey.asyncio")
            client = module.ValkeyCluster(host=node.host, port=node.port)
        stack.push_async_callback(client.aclose)
        yield RedisStore(client)


class TestCluster:
    """The keys of a namespace lie in one slot; namespaces lie on all masters."""

    @pytest.mark.parametrize("kind", ["url", "redis-py", "valkey-py"])
    async def test_namespaces_on_all_masters(
        self, valkey_cluster: ValkeyCluster, namespace: str, kind: str
    ) -> None:
        """Each is served where it lies, and all are listed."""
        names = [f"{namespace}{i}" for i in range(12)]
        async with cluster_store(valkey_cluster, kind) as store:
            for name in names:
                await check(store, name)
            found = {each.namespace for each in await store.machines()}
        assert found >= set(names)
        owners = {valkey_cluster.owner(f"cosid:{{{name}}}:itc_idx").port for name in names}
        assert owners == {master.port for master in valkey_cluster.masters}

    async def test_namespace_without_a_slot_of_its_own(self, valkey_cluster: ValkeyCluster) -> None:
        """CosId's keys then have no hash tag: refused, and nothing is written."""
        async with cluster_store(valkey_cluster, "url") as store:
            with pytest.raises(StoreError, match="slot"):
                await store.initialize_namespace(namespace="}x")
            with pytest.raises(StoreError, match="slot"):
                await take(store, "}x", "a")

    @pytest.mark.nightly
    async def test_failover(
        self, cluster_factory: Callable[..., ValkeyCluster], namespace: str
    ) -> None:
        """The replica knows who holds what, also after a recycling by the master's clock."""
        cluster = await asyncio.to_thread(cluster_factory, replicas=True)
        async with cluster_store(cluster, "url") as store:
            await store.initialize_namespace(namespace=namespace)
            for text in ("a", "b"):
                await take(store, namespace, text)
            assert await take_expired(hasty_of(store, namespace, "c")) == MachineGrant(0, T)
            machine = machine_of(store, namespace, "c")
            await machine.distribute(1, now_ms=T, latest_ms=FAR)
            await machine.renew(0, now_ms=T, fence_ms=T + 9)
            owner = cluster.owner(f"cosid:{{{namespace}}}:itc_idx")
            await caught_up(owner, cluster.replicas[cluster.masters.index(owner)])
            owner.kill()
            again = partial(machine.reassert, 0, now_ms=T + 1, fence_ms=T + 10)
            await eventually(again, StoreUnavailableError, deadline=FAILOVER)
            held = [(each.instance_id, each.fence_ms) for each in await store.machines()]
            assert held == [("c", T + 10), ("b", -1)]


def replication(server: ValkeyServer) -> dict[str, str]:
    lines = str(server.call("INFO", "replication")).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def caught_up(master: ValkeyServer, replica: ValkeyServer) -> None:
    """Wait until the replica has all that the master has by now."""
    written = int(replication(master)["master_repl_offset"])

    def has_it() -> bool:
        told = replication(replica)
        linked = told.get("master_link_status") == "up"
        return linked and int(told["slave_repl_offset"]) >= written

    # WAIT is of no use here: it is about the writes of the connection that it is sent on.
    await asyncio.to_thread(wait_until, has_it, "the replica has caught up", deadline=FAILOVER)


class TestSentinel:
    """Whoever is the master serves."""

    async def test_all_that_a_store_can_do(
        self, valkey_sentinel: ValkeySentinel, namespace: str
    ) -> None:
        """On the master."""
        async with RedisStore.from_url(valkey_sentinel.url) as store:
            await check(store, namespace)

    @pytest.mark.nightly
    async def test_failover(
        self, sentinel_factory: Callable[..., ValkeySentinel], namespace: str
    ) -> None:
        """The id is still ours."""
        group = await asyncio.to_thread(sentinel_factory)
        async with RedisStore.from_url(group.url) as store:
            await store.initialize_namespace(namespace=namespace)
            machine = machine_of(store, namespace, "a")
            await machine.distribute(1, now_ms=T, latest_ms=FAR)
            await caught_up(group.master, group.replica)
            group.master.kill()
            again = partial(machine.reassert, 0, now_ms=T + 1, fence_ms=T + 10)
            await eventually(again, StoreUnavailableError, deadline=FAILOVER)
            assert (await store.machines(namespace=namespace))[0].fence_ms == T + 10


@pytest.mark.parametrize(
    "factory", ["valkey_factory", pytest.param("redis_factory", marks=pytest.mark.nightly)]
)
async def test_replica_has_the_same(request: pytest.FixtureRequest, factory: str) -> None:
    """Whatever the master's clock has decided: effects are replicated, not scripts."""
    start = request.getfixturevalue(factory)
    master: ValkeyServer = start()
    replica: ValkeyServer = start("--replicaof", master.host, master.port)
    await caught_up(master, replica)  # a master's identity changes with its first replica
    async with RedisStore.from_url(master.url) as store:
        await check(store, "ns")
        for text in ("a", "b"):
            await take(store, "ns", text)
    await caught_up(master, replica)
    for suffix in ("itc_idx", "adder", "revert", "note", "seen", "space"):
        digests = [
            each.call("DEBUG", "DIGEST-VALUE", f"cosid:{{ns}}:{suffix}")
            for each in (master, replica)
        ]
        assert digests[0] == digests[1]
    async with RedisStore.from_url(replica.url) as store:
        machine = machine_of(store, "ns", "c")
        for call in (
            machine.distribute(1, now_ms=T, latest_ms=FAR),
            machine.renew(0, now_ms=T, fence_ms=T),
            machine.release(0, last_ms=T),
        ):
            with pytest.raises(StoreUnavailableError):
                await call  # not what it knows, which may be old
