"""A Redis that people empty or initialise: it cannot tell new from emptied, so it asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from anyio import to_thread

from aiocosid import connect
from aiocosid.errors import (
    CounterNotCreatedError,
    InvalidArgumentError,
    MachineIdQuarantineError,
    StoreNotEmptyError,
    StoreNotInitializedError,
    StoreRolledBackError,
)
from aiocosid.stores.redis import RedisStore
from tests.command import run
from tests.servers import ValkeyCluster, ValkeyServer
from tests.servers.valkey import MARK

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

MARKER = MARK[1]
WHEN = {"now_ms": 1, "latest_ms": 2**53}


@pytest.fixture
def server(valkey_factory: Callable[..., ValkeyServer]) -> ValkeyServer:
    """One of the test's own, as nobody has initialised it."""
    found = valkey_factory()
    found.call("DEL", MARKER)
    return found


async def test_an_emptied_server_creates_no_counter(server: ValkeyServer) -> None:
    """For nobody: not for a process that knows the counter, nor for a new one."""
    async with RedisStore.from_url(server.url) as store:
        await store.initialize()
        counter = store.segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        server.call("FLUSHALL")
        fresh = store.segment_distributor(name="order")
        with pytest.raises(CounterNotCreatedError, match="aiocosid init"):
            await fresh.next_max_id(10)
        async with connect(store) as ids:
            with pytest.raises(CounterNotCreatedError):
                await ids.segment("order")
        assert server.call("DBSIZE") == 0
        await store.set_floor(name="order", above=10)
        assert await store.segment_distributor(name="order").next_max_id(10) == 20


async def test_a_counter_that_is_deleted_under_the_marker(server: ValkeyServer) -> None:
    """One, or all: a new process begins it at its first id, as the guarantees say."""
    async with RedisStore.from_url(server.url) as store:
        await store.initialize()
        counters = [store.segment_distributor(name=name) for name in ("order", "other")]
        assert [await each.next_max_id(10) for each in counters] == [10, 10]
        for gone in (("order",), ("order", "other")):
            server.call("DEL", *(f"cosid:{{cosid.{each}}}.adder" for each in gone))
            with pytest.raises(StoreRolledBackError):
                await counters[0].next_max_id(10)
            assert await store.segment_distributor(name="order").next_max_id(10) == 10


async def test_counters_that_exist_go_on_without_a_marker(server: ValkeyServer) -> None:
    """As those of CosId on Java."""
    server.call("SET", "cosid:{cosid.order}.adder", 70)
    async with RedisStore.from_url(server.url) as store:
        assert await store.segment_distributor(name="order").next_max_id(10) == 80


@pytest.mark.parametrize("key", ["cosid:{cosid.order}.adder", "cosid:{shop}:adder"])
async def test_keys_want_a_persons_word(server: ValkeyServer, key: str) -> None:
    """An answer that entry points of containers give by habit is none."""
    server.call("SET", key, 7)
    server.call("HSET", "cosid:{shop}:itc_idx", "java", "0|1")
    async with RedisStore.from_url(server.url) as store:
        with pytest.raises(StoreNotEmptyError, match="--confirm-no-holders"):
            await store.initialize()
        for create in ("2999-12-31", "disposable"):
            with pytest.raises(StoreNotEmptyError):
                async with connect(server.url, create=create):
                    pass
        with pytest.raises(StoreNotEmptyError):
            await store.create_schema(disposable=True)
        await store.initialize(confirm_no_holders=True)
        assert await store.is_initialized()
        await store.initialize()


async def test_what_opening_may_create(server: ValkeyServer) -> None:
    """Nothing by True; something until a day, or in a store for tests."""
    with pytest.raises(InvalidArgumentError, match="2026-12-31"):
        async with connect(server.url, create=True):
            pass
    async with connect(server.url, create="2001-01-01") as ids:
        with pytest.raises(CounterNotCreatedError):
            await ids.segment("order")
    async with connect(server.url, create="2999-12-31") as ids:
        assert await (await ids.segment("order")).next_id() == 1
    server.call("FLUSHALL")
    async with connect(server.url, create="disposable") as ids:
        assert await (await ids.segment("order")).next_id() == 1
        await ids.snowflake("event")
    server.call("FLUSHALL")
    async with connect(server.url, create="disposable") as ids:
        assert await (await ids.segment("bill")).next_id() == 1


async def test_a_server_for_tests_that_was_restarted_with_its_data() -> None:
    """Its marker is another server's, and what is there was made under it."""
    with ValkeyServer(persistent=True) as server:
        for expected in (1, 2):
            async with connect(server.url, create="disposable") as ids:
                assert await (await ids.segment("order", step=1)).next_id() == expected
                await ids.snowflake("event")
            server.restart()


@pytest.mark.parametrize("create", ["", "tomorrow", "2026-13-01", 1, None])
async def test_a_word_that_says_nothing(create: object) -> None:
    """The error lists those that do."""
    with pytest.raises(InvalidArgumentError, match="'disposable'"):
        connect("memory:", create=create)  # type: ignore[arg-type]  # a user's mistake


async def test_a_cluster_has_a_marker_for_its_counters(cluster_alone: ValkeyCluster) -> None:
    """In a slot of its own; the marker of a namespace brings it."""
    owner = cluster_alone.owner(MARKER)
    owner.call("DEL", MARKER)
    async with RedisStore.from_url(cluster_alone.url) as store:
        counters = [
            store.segment_distributor(namespace="vouch", name=each) for each in ("a", "b", "c")
        ]
        for each in counters:
            with pytest.raises(CounterNotCreatedError):
                await each.next_max_id(10)
        assert (
            await store.initialize_namespace(namespace="vouch", confirm_no_holders=True)
        ).is_created
        assert [await each.next_max_id(10) for each in counters] == [10, 10, 10]
        owner.call("DEL", MARKER)
        await store.create_schema(disposable=True)
        with pytest.raises(CounterNotCreatedError):
            await store.segment_distributor(namespace="vouch", name="d").next_max_id(10)


@pytest.fixture
def cluster(cluster_alone: ValkeyCluster) -> ValkeyCluster:
    """One that nobody has initialised."""
    cluster_alone.owner(MARKER).call("DEL", MARKER)
    return cluster_alone


async def test_counters_begin_on_a_new_cluster(cluster: ValkeyCluster) -> None:
    """By the call, and by a day; machine ids wait for the marker of their namespace."""
    async with RedisStore.from_url(cluster.url) as store:
        for _ in range(2):
            await store.initialize()
            for name in ("a", "b", "c"):
                assert await store.segment_distributor(name=name).next_max_id(10) in {10, 20}
        with pytest.raises(StoreNotInitializedError):
            await store.machine_id_distributor(namespace="dev").distribute(3, **WHEN)
        cluster.owner(MARKER).call("DEL", MARKER)
        with pytest.raises(StoreNotEmptyError):
            await store.initialize()
        with pytest.raises(StoreNotEmptyError):
            async with connect(cluster.url, create="2999-12-31"):
                pass
        with pytest.raises(CounterNotCreatedError):
            await store.segment_distributor(name="d").next_max_id(10)
        await store.initialize(confirm_no_holders=True)
        assert await store.segment_distributor(name="d").next_max_id(10) == 10
    for each in cluster.masters:
        each.call("FLUSHALL")
    async with connect(cluster.url, create="2001-01-01") as ids:
        with pytest.raises(CounterNotCreatedError):
            await ids.segment("order")
    async with connect(cluster.url, create="2999-12-31") as ids:
        assert await (await ids.segment("order")).next_id() == 1
    async with connect(cluster.url, create="2999-12-31") as ids:
        assert await (await ids.segment("bill")).next_id() == 1


async def test_a_cluster_after_a_loss(cluster: ValkeyCluster) -> None:
    """Counters go on above their floors, and the namespaces that are left wait for their leases."""
    async with RedisStore.from_url(cluster.url) as store:
        await store.initialize_namespace(namespace="dev", confirm_no_holders=True)
        one = store.machine_id_distributor(namespace="dev", instance_id="one")
        await one.distribute(3, **WHEN)
        assert await store.segment_distributor(name="order").next_max_id(10) == 10
    for key in (MARKER, "cosid:{cosid.order}.adder"):
        cluster.owner(key).call("DEL", key)
    floor = ("--namespace", "cosid", "--floor", "order=10")
    words = ("init", "--after-loss", *floor, "--yes", "--store", cluster.url)
    ended = await to_thread.run_sync(partial(run, *words))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("counter cosid.order continues above 10\n")
    async with RedisStore.from_url(cluster.url) as store:
        for name, expected in (("order", 20), ("other", 10)):
            assert await store.segment_distributor(name=name).next_max_id(10) == expected
        two = store.machine_id_distributor(namespace="dev", instance_id="two")
        with pytest.raises(MachineIdQuarantineError) as caught:
            await two.distribute(3, **WHEN)
        assert caught.value.seconds_left == pytest.approx(305, abs=5)
