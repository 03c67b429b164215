"""A Redis that people empty or initialise: it cannot tell new from emptied, so it asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiocosid import connect
from aiocosid.errors import (
    CounterNotCreatedError,
    InvalidArgumentError,
    StoreNotEmptyError,
)
from aiocosid.stores.redis import RedisStore
from tests.servers import ValkeyCluster, ValkeyServer
from tests.servers.valkey import MARK

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

MARKER = MARK[1]


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
        for noted in (False, True):
            fresh = store.segment_distributor(name="order")
            if noted:
                assert fresh.allow_give_back()
            with pytest.raises(CounterNotCreatedError, match="aiocosid init"):
                await fresh.next_max_id(10)
        async with connect(store) as ids:
            with pytest.raises(CounterNotCreatedError):
                await ids.segment("order")
        assert server.call("DBSIZE") == 0
        await store.set_floor(name="order", above=10)
        assert await store.segment_distributor(name="order").next_max_id(10) == 20


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


async def test_a_cluster_has_a_marker_for_its_counters(valkey_cluster: ValkeyCluster) -> None:
    """In a slot of its own; the marker of a namespace brings it."""
    owner = valkey_cluster.owner(MARKER)
    owner.call("DEL", MARKER)
    async with RedisStore.from_url(valkey_cluster.url) as store:
        counters = [
            store.segment_distributor(namespace="vouch", name=each) for each in ("a", "b", "c")
        ]
        for each in counters:
            with pytest.raises(CounterNotCreatedError):
                await each.next_max_id(10)
        assert (await store.mark_machines(namespace="vouch", is_new=True)).is_new
        assert [await each.next_max_id(10) for each in counters] == [10, 10, 10]
        owner.call("DEL", MARKER)
        await store.create_schema(disposable=True)
        with pytest.raises(CounterNotCreatedError):
            await store.segment_distributor(namespace="vouch", name="d").next_max_id(10)
        owner.call(*MARK)
