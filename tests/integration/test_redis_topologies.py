"""Unix socket, TLS, Cluster and Sentinel: reached by URL and by the user's own client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel

from aiocosid import SegmentChainId
from aiocosid.abc import Counter
from aiocosid.errors import (
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.redis import RedisStore
from tests.servers import (
    PASSWORD,
    RedisServer,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
    eventually,
    free_port,
    wait_until,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

BIG = 2**53 + 1
FAILOVER = 20.0  # seconds; it takes about 1 on a cluster and 2 under sentinels


def key_of(namespace: str, name: str) -> str:
    return f"cosid:{{{namespace}.{name}}}.adder"


async def keeps_going(counter: CounterDistributor, step: int = 10) -> int:
    """The next grant, as soon as somebody serves it; an outage may last, anything else may not."""

    async def attempt() -> int:
        return await counter.next_max_id(step)

    return await eventually(attempt, StoreUnavailableError, deadline=FAILOVER)


async def test_unix_socket(valkey_unix: ValkeyServer, namespace: str) -> None:
    """With a database of its own in the URL."""
    async with RedisStore.from_url(f"{valkey_unix.unix_url}?db=3") as store:
        await store.create_schema(disposable=True)
        counter = store.segment_distributor(namespace=namespace, name="n", offset=7)
        assert await counter.next_max_id(5) == 12
        expected = [Counter(namespaced_name=f"{namespace}.n", last_max_id=12)]
        assert await store.counters(namespace=namespace) == expected
    assert valkey_unix.call("GET", key_of(namespace, "n")) is None
    async with RedisStore.from_url(f"unix://{valkey_unix.directory}/not-there") as store:
        with pytest.raises(StoreUnavailableError):
            await store.counters()


async def test_database_of_a_url(valkey: ValkeyServer, namespace: str) -> None:
    """Counters of two databases are two."""
    for database in (5, 6):
        url = f"valkey://{valkey.host}:{valkey.port}/{database}"
        async with RedisStore.from_url(url) as store:
            await store.create_schema(disposable=True)
            counter = store.segment_distributor(namespace=namespace, name="n")
            assert await counter.next_max_id(1) == 1


class TestTls:
    """A connection is encrypted, and the server is who it says it is."""

    async def test_trusted_authority(self, redis_tls: RedisServer, namespace: str) -> None:
        """Named in the URL."""
        for scheme in ("rediss", "valkeys"):
            url = f"{scheme}://localhost:{redis_tls.port}?ssl_ca_certs={redis_tls.ca_path}"
            async with RedisStore.from_url(url) as store:
                assert await store.segment_distributor(
                    namespace=namespace, name=scheme
                ).next_max_id(1) == (1)

    async def test_wrong_authority(self, redis_tls: RedisServer) -> None:
        """A clear error, which waiting does not mend."""
        assert redis_tls.certificates is not None
        stranger = redis_tls.certificates.stranger_ca
        for query in (f"?ssl_ca_certs={stranger}", ""):
            url = f"rediss://localhost:{redis_tls.port}{query}"
            async with RedisStore.from_url(url) as store:
                with pytest.raises(StoreError, match=r"not trusted.*ssl_ca_certs") as caught:
                    await store.segment_distributor(name="n").next_max_id(1)
                assert not caught.value.retryable

    async def test_certificate_of_another_host(self, redis_tls: RedisServer) -> None:
        """The name is checked, whichever default the driver has."""
        url = f"rediss://[::ffff:127.0.0.1]:{redis_tls.port}?ssl_ca_certs={redis_tls.ca_path}"
        async with RedisStore.from_url(url) as store:
            with pytest.raises(StoreError, match=r"not trusted.*a name that the certificate has"):
                await store.segment_distributor(name="n").next_max_id(1)

    async def test_checks_that_are_switched_off(
        self, redis_tls: RedisServer, namespace: str
    ) -> None:
        """By the URL, for those who must."""
        url = f"{redis_tls.url}?ssl_cert_reqs=none"
        async with RedisStore.from_url(url) as store:
            await store.segment_distributor(namespace=namespace, name="n").next_max_id(1)

    async def test_plain_connection_to_a_tls_port_and_back(
        self, redis_tls: RedisServer, valkey: ValkeyServer
    ) -> None:
        """Neither hangs."""
        for url in (
            f"redis://{redis_tls.host}:{redis_tls.port}",
            f"rediss://{valkey.host}:{valkey.port}",
        ):
            async with RedisStore.from_url(url) as store, asyncio.timeout(5):
                with pytest.raises(StoreUnavailableError):
                    await store.segment_distributor(name="n").next_max_id(1)

    async def test_cluster(self, redis_factory: Callable[..., RedisServer], namespace: str) -> None:
        """rediss+cluster:// encrypts the connections to all nodes."""
        bus = str(free_port())
        options = ("--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", bus)
        node = redis_factory(*options, tls=True)
        node.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        url = f"rediss+cluster://127.0.0.1:{node.port}?ssl_ca_certs={node.ca_path}"
        async with RedisStore.from_url(url) as store:

            async def initialize() -> None:
                await store.create_schema(disposable=True)

            await eventually(initialize, StoreUnavailableError, deadline=FAILOVER)
            assert await keeps_going(store.segment_distributor(namespace=namespace, name="n")) == 10


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ((r"/\w+$", "/unheard"), StoreError, "no sentinel knows a service .*correct the service"),
        (
            ("$", "?sentinel_password=qqq"),
            StoreAuthenticationError,
            "the sentinels refuse the login",
        ),
        (("//.*/", f"//127.0.0.1:{free_port()}/"), StoreUnavailableError, "does not answer; try"),
        ((r"//[^/]*,", "//"), None, ""),
    ],
)
async def test_why_no_master_is_found(
    valkey_sentinel: ValkeySentinel,
    change: tuple[str, str],
    kind: type[StoreError] | None,
    said: str,
) -> None:
    """A sentinel that is down may come back; a wrong name or password stays wrong."""
    url = re.sub(*change, valkey_sentinel.url)
    async with RedisStore.from_url(url) as store:
        if kind is None:
            await store.counters()
            return
        with pytest.raises(kind, match=said) as caught:
            await store.counters()
    assert type(caught.value) is kind
    assert re.search(r"127\.0\.0\.1:\d+", str(caught.value))
    assert "qqq" not in str(caught.value)


@pytest.mark.parametrize("driver", ["redis", "valkey"])
@pytest.mark.parametrize("servers", ["valkey", "valkey_cluster", "valkey_sentinel"])
async def test_what_is_no_utf8(
    request: pytest.FixtureRequest, namespace: str, servers: str, driver: str
) -> None:
    """On a client that decodes: keys of our form are passed over, and instances are escaped."""
    found, module = request.getfixturevalue(servers), pytest.importorskip(f"{driver}.asyncio")
    async with AsyncExitStack() as stack:
        client: Any
        if servers == "valkey":
            client = module.from_url(found.url, decode_responses=True)
        elif servers == "valkey_cluster":
            kind = getattr(module, f"{driver.capitalize()}Cluster")
            node = found.masters[0]
            client = kind(host=node.host, port=node.port, decode_responses=True)
        else:
            sentinel = module.Sentinel(found.addresses, socket_timeout=0.5)
            client = sentinel.master_for(found.service, decode_responses=True)
            for each in sentinel.sentinels:
                stack.push_async_callback(each.aclose)
        stack.push_async_callback(client.aclose)
        space = namespace.encode()
        for key, value in ((b"good", b"5"), (b"bad", b"\xff"), (b"\xff", b"5")):
            await client.set(b"cosid:{%b.%b}.adder" % (space, key), value)
        for key in (space, space + b"\xff"):
            await client.hset(b"cosid:{%b}:itc_idx" % key, b"\xff", b"0|1")
        store = RedisStore(client)
        counters = [each for each in await store.counters() if namespace in each.namespaced_name]
        assert [each.namespaced_name for each in counters] == [f"{namespace}.good"]
        machines = [each for each in await store.machines() if namespace in each.namespace]
        assert [each.instance_id for each in machines] == ["\\xff"]
        await store.initialize_namespace(namespace=namespace)
        one = store.machine_id_distributor(namespace=namespace)
        assert (await one.distribute(2, now_ms=1, latest_ms=9)).machine_id == 1


@asynccontextmanager
async def cluster_store(cluster: ValkeyCluster, kind: str) -> AsyncGenerator[RedisStore]:
    """A store by URL that knows one node only, or on a client of the user's."""
    node = cluster.masters[0]
    if kind == "url":
        async with RedisStore.from_url(f"redis+cluster://{node.host}:{node.port}") as store:
            yield store
        return
    client: Any
    if kind == "valkey-py":
        module = pytest.importorskip("valkey.asyncio")
        client = module.ValkeyCluster(host=node.host, port=node.port)
    else:
        client = RedisCluster(startup_nodes=[ClusterNode(node.host, node.port)])
    try:
        yield RedisStore(client)
    finally:
        await client.aclose()


@pytest.mark.parametrize("kind", ["url", "redis-py", "valkey-py"])
class TestCluster:
    """Every counter lies in one slot, and all slots are reached."""

    async def test_counters_on_all_masters(
        self, valkey_cluster: ValkeyCluster, namespace: str, kind: str
    ) -> None:
        """Names spread over the masters; each is counted, listed and raised where it lies."""
        names = [f"n{i}" for i in range(30)]
        async with cluster_store(valkey_cluster, kind) as store:
            counters = [
                store.segment_distributor(namespace=namespace, name=name, offset=BIG * (i % 2))
                for i, name in enumerate(names)
            ]
            granted = await asyncio.gather(*(counter.next_max_id(3) for counter in counters))
            assert granted == [BIG * (i % 2) + 3 for i in range(30)]
            assert [c.last_max_id for c in await store.counters(namespace=namespace)] == [
                granted[names.index(name)] for name in sorted(names)
            ]
            raised = [
                await store.set_floor(namespace=namespace, name=name, above=BIG) for name in names
            ]
            assert [c.last_max_id for c in raised] == [max(BIG, each) for each in granted]
        owners = {valkey_cluster.owner(key_of(namespace, name)).port for name in names}
        assert owners == {master.port for master in valkey_cluster.masters}
        for name, counter in zip(names, raised, strict=True):
            key = key_of(namespace, name)
            held = valkey_cluster.owner(key).call("GET", key)
            assert held == str(counter.last_max_id)

    async def test_failover(
        self, cluster_factory: Callable[..., ValkeyCluster], namespace: str, kind: str
    ) -> None:
        """A master dies: its replica serves the counter, and not one id comes twice."""
        cluster = await asyncio.to_thread(cluster_factory, replicas=True)
        key = key_of(namespace, "n")
        async with cluster_store(cluster, kind) as store:
            counter = store.segment_distributor(namespace=namespace, name="n")
            granted = [await counter.next_max_id(10) for _ in range(5)]
            owner = cluster.owner(key)
            assert owner.call("WAIT", 1, 5000) == 1  # nothing is lost with it
            owner.kill()
            granted += [await keeps_going(counter) for _ in range(5)]
            assert granted == sorted(set(granted))
            new = await asyncio.to_thread(cluster.owner, key)
            assert new in cluster.replicas
            assert new.call("GET", key) == str(granted[-1])


async def lose_writes(
    master: ValkeyServer, replica: ValkeyServer, counter: CounterDistributor
) -> int:
    """Kill the master after grants that the replica never hears of; return the last one."""
    replica.pause()
    master.call("CLIENT", "KILL", "TYPE", "replica")
    granted = [await counter.next_max_id(10) for _ in range(100)]
    master.kill()
    replica.resume()
    return granted[-1]


@asynccontextmanager
async def sentinel_store(group: ValkeySentinel, kind: str) -> AsyncGenerator[RedisStore]:
    """A store by URL, or on the client that ``Sentinel.master_for`` returns."""
    if kind == "url":
        async with RedisStore.from_url(group.url) as store:
            yield store
        return
    if kind == "valkey-py":
        module = pytest.importorskip("valkey.asyncio.sentinel")
        sentinel = module.Sentinel(group.addresses, socket_timeout=0.5)
    else:
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            group.addresses, sentinel_kwargs={"socket_timeout": 0.5}
        )
    client = sentinel.master_for(group.service)
    try:
        yield RedisStore(client)
    finally:
        for each in (client, *sentinel.sentinels):
            await each.aclose()


@pytest.mark.parametrize("kind", ["url", "redis-py", "valkey-py"])
class TestSentinel:
    """Whoever is the master serves."""

    async def test_counts_on_the_master(
        self, valkey_sentinel: ValkeySentinel, namespace: str, kind: str
    ) -> None:
        """All that a store can do."""
        async with sentinel_store(valkey_sentinel, kind) as store:
            for offset in (0, BIG):
                counter = store.segment_distributor(
                    namespace=namespace, name=f"n{offset}", offset=offset
                )
                assert await counter.next_max_id(5) == offset + 5
            floor = await store.set_floor(namespace=namespace, name="n0", above=9)
            listed = await store.counters(namespace=namespace)
            assert [c.last_max_id for c in listed] == [9, BIG + 5]
            assert floor in listed
        assert valkey_sentinel.current_master().call("GET", key_of(namespace, "n0")) == "9"

    async def test_failover(
        self, sentinel_factory: Callable[..., ValkeySentinel], namespace: str, kind: str
    ) -> None:
        """A generator goes on after it; not one id comes twice, none is out of order."""
        group = await asyncio.to_thread(sentinel_factory)
        async with sentinel_store(group, kind) as store:
            counter = store.segment_distributor(namespace=namespace, name="n", step=10)
            async with SegmentChainId(counter, endurance=0, wait_timeout=FAILOVER) as chain:
                ids = await chain.next_ids(500)
                old = group.master
                assert old.call("WAIT", 1, 5000) == 1
                old.kill()
                for _ in range(5):
                    ids += await chain.next_ids(500)
                assert ids == sorted(set(ids))
            assert group.current_master() is group.replica
            held = int(str(group.replica.call("GET", key_of(namespace, "n"))))
            assert held >= ids[-1]


@pytest.mark.stress
class TestLostWrites:
    """A replica that was behind takes over: what was granted is not granted again."""

    async def test_on_a_cluster(
        self, cluster_factory: Callable[..., ValkeyCluster], namespace: str
    ) -> None:
        """The loss is told, again and again, until the counter is above all that was granted."""
        cluster = await asyncio.to_thread(cluster_factory, replicas=True)
        key = key_of(namespace, "n")
        async with cluster_store(cluster, "url") as store:
            counter = store.segment_distributor(namespace=namespace, name="n")
            await counter.next_max_id(10)
            owner = cluster.owner(key)
            assert owner.call("WAIT", 1, 5000) == 1
            replica = cluster.replicas[cluster.masters.index(owner)]
            last = await lose_writes(owner, replica, counter)
            for _ in range(2):
                with pytest.raises(StoreRolledBackError) as caught:
                    await keeps_going(counter)
                assert caught.value.seen <= last < caught.value.expected
            await store.set_floor(namespace=namespace, name="n", above=last)
            assert await keeps_going(counter) == last + 10

    async def test_under_sentinels(
        self, sentinel_factory: Callable[..., ValkeySentinel], namespace: str
    ) -> None:
        """The generator ends with the reason."""
        group = await asyncio.to_thread(sentinel_factory)
        async with sentinel_store(group, "url") as store:
            counter = store.segment_distributor(namespace=namespace, name="n", step=10)
            async with SegmentChainId(counter, endurance=0, wait_timeout=FAILOVER) as chain:
                ids = await chain.next_ids(10)
                assert group.master.call("WAIT", 1, 5000) == 1
                await lose_writes(group.master, group.replica, counter)

                async def until_it_ends() -> None:
                    while True:
                        ids.extend(await chain.next_ids(10))

                with pytest.raises(StoreRolledBackError):
                    await until_it_ends()
                assert ids == sorted(set(ids))
                with pytest.raises(StoreRolledBackError):
                    await chain.next_id()

    async def test_master_that_sentinels_demote(
        self, sentinel_factory: Callable[..., ValkeySentinel], namespace: str
    ) -> None:
        """Its connections are left once it refuses to write."""
        group = await asyncio.to_thread(sentinel_factory)
        async with sentinel_store(group, "url") as store:
            counter = store.segment_distributor(namespace=namespace, name="n")
            granted = [await counter.next_max_id(10)]
            assert group.master.call("WAIT", 1, 5000) == 1
            await asyncio.to_thread(
                group.fail_over, until=lambda: group.current_master() is group.replica
            )
            # As the sentinels do some 10 s later; but they close the connections first.
            group.master.call("REPLICAOF", group.replica.host, group.replica.port)
            granted += [await keeps_going(counter) for _ in range(5)]
            assert granted == sorted(set(granted))
            assert group.replica.call("GET", key_of(namespace, "n")) == str(granted[-1])


class TestMovingSlot:
    """A cluster moves a slot to another node, key by key."""

    async def test_each_stage_is_an_outage_or_served(
        self, cluster_alone: ValkeyCluster, namespace: str
    ) -> None:
        """Never a refusal; then it goes on above all that was granted."""
        async with RedisStore.from_url(cluster_alone.url) as store:
            counter = store.segment_distributor(namespace=namespace, name="n")
            granted = [await counter.next_max_id(10)]

            async def grant() -> None:
                granted.append(await counter.next_max_id(10))

            await self._moved(cluster_alone, key_of(namespace, "n"), grant)
            granted.append(await keeps_going(counter))
        assert all(earlier + 10 <= later for earlier, later in pairwise(granted))

    async def test_a_script_whose_keys_are_apart(
        self, cluster_alone: ValkeyCluster, namespace: str
    ) -> None:
        """No server runs it meanwhile: an outage, and nobody gets another machine id."""
        async with RedisStore.from_url(cluster_alone.url) as store:
            await store.initialize_namespace(namespace=namespace)
            node = store.machine_id_distributor(namespace=namespace, instance_id="node")
            when = {"now_ms": 1, "latest_ms": 2**53}
            held = await node.distribute(3, **when)

            async def take() -> None:
                assert (await node.distribute(3, **when)).machine_id == held.machine_id

            outages = await self._moved(cluster_alone, f"cosid:{{{namespace}}}:note", take)
            assert outages
            assert all("is moving to another node" in each for each in outages)

    async def test_nodes_behind_nat(
        self, cluster_alone: ValkeyCluster, namespace: str, request: pytest.FixtureRequest
    ) -> None:
        """Nodes announce names that do not resolve here; the URL says where they are."""

        def announce(name: str) -> None:
            for number, node in enumerate(cluster_alone.masters):
                told = name and f"{name}-{number}.invalid"
                node.call("CONFIG", "SET", "cluster-announce-hostname", told)
                kind = "hostname" if name else "ip"
                node.call("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)

        def is_known() -> bool:
            # "?" stands for the name of a node that has not told it yet
            told = [str(node.call("CLUSTER", "SLOTS")) for node in cluster_alone.masters]
            names = [f"node-{number}.invalid" for number in range(len(told))]
            return all("?" not in each and all(map(each.__contains__, names)) for each in told)

        request.addfinalizer(lambda: announce(""))
        announce("node")
        await asyncio.to_thread(wait_until, is_known, "all nodes know the names", deadline=10.0)
        pairs = ",".join(
            f"node-{number}.invalid:{node.port}>{node.host}:{node.port}"
            for number, node in enumerate(cluster_alone.masters)
        )
        async with RedisStore.from_url(f"{cluster_alone.url}?address_remap={pairs}") as store:
            names = [f"n{i}" for i in range(30)]
            counters = [store.segment_distributor(namespace=namespace, name=name) for name in names]
            assert [await each.next_max_id(3) for each in counters] == [3] * 30
            granted: list[int] = []

            async def grant() -> None:
                granted.append(await counters[0].next_max_id(10))

            await self._moved(cluster_alone, key_of(namespace, "n0"), grant)
            granted.append(await keeps_going(counters[0]))  # the driver does not map a redirection
            assert granted == sorted({*granted})
        async with RedisStore.from_url(cluster_alone.url) as store:
            with pytest.raises(StoreUnavailableError):
                await store.counters(namespace=namespace)

    async def _moved(
        self, cluster: ValkeyCluster, key: str, call: Callable[[], Awaitable[None]]
    ) -> list[str]:
        """Move a key's slot, call at each stage, and return what the outages say."""
        source = cluster.owner(key)
        target = next(node for node in cluster.masters if node is not source)
        slot = source.call("CLUSTER", "KEYSLOT", key)
        assert isinstance(slot, int)
        owners = [str(node.call("CLUSTER", "MYID")) for node in (source, target)]
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", owners[0])
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", owners[1])
        outages: list[str] = []
        keys = source.call("CLUSTER", "GETKEYSINSLOT", slot, 100)
        assert isinstance(keys, list)
        for moved in ("", *map(str, keys)):
            if moved:
                source.call("MIGRATE", target.host, target.port, moved, 0, 1000)
            for _ in range(2):
                try:
                    await call()
                except StoreUnavailableError as error:
                    outages.append(str(error))
        for node in (target, source):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", owners[1])
        return outages


class TestUnreachable:
    """What cannot be reached is an outage, named in a way that helps."""

    async def test_no_node_of_the_cluster(self, valkey_cluster: ValkeyCluster) -> None:
        """Neither hangs nor shows the password."""
        async with RedisStore.from_url("redis+cluster://u:s3cr3t@127.0.0.1:1,127.0.0.1:2") as store:
            with pytest.raises(StoreUnavailableError) as caught:
                await store.segment_distributor(name="n").next_max_id(1)
        assert "s3cr3t" not in f"{caught.value} {caught.value.__cause__!r}"

    async def test_no_sentinel(self) -> None:
        """The service is named, the password is not."""
        url = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/ids?sentinel_password=s3cr3t"
        async with RedisStore.from_url(url) as store:
            with pytest.raises(StoreUnavailableError, match="'ids'") as caught:
                await store.segment_distributor(name="n").next_max_id(1)
        assert "s3cr3t" not in f"{caught.value} {caught.value.__cause__}"

    async def test_cluster_with_a_wrong_password(
        self, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        """Found behind what the cluster client made of it."""
        bus = str(free_port())
        options = ("--cluster-enabled", "yes", "--cluster-port", bus)
        server = valkey_factory(*options, password=PASSWORD)
        url = f"redis+cluster://:wr0ng@{server.host}:{server.port}"
        async with RedisStore.from_url(url) as store:
            with pytest.raises(StoreAuthenticationError) as caught:
                await store.segment_distributor(name="n").next_max_id(1)
        assert "wr0ng" not in f"{caught.value} {caught.value.__cause__}"

    async def test_cluster_that_is_down(
        self, cluster_factory: Callable[..., ValkeyCluster], namespace: str
    ) -> None:
        """One master is gone and has no replica: an outage until it is back."""
        cluster = await asyncio.to_thread(cluster_factory)
        key = key_of(namespace, "n")
        async with RedisStore.from_url(cluster.url) as store:
            counter = store.segment_distributor(namespace=namespace, name="n", offset=5)
            await counter.next_max_id(1)
            owner = cluster.owner(key)
            owner.pause()
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(1)
            owner.resume()
            assert await keeps_going(counter, 1) >= 7
