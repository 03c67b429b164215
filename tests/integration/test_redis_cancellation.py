"""Calls that are cut: a reply is read by its own call or by nobody, and the pool goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
import pytest_asyncio
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel

from aiocosid import SegmentChainId
from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.redis import RedisStore
from tests.servers import FaultProxy, ValkeyCluster, ValkeySentinel, ValkeyServer

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = 10**12  # where the second counter starts: whose a reply is shows at a glance
ROUNDS = 200


@asynccontextmanager
async def closing(client: Any, *others: Any) -> AsyncGenerator[Any]:
    try:
        yield client
    finally:
        for each in (client, *others):
            await each.aclose()


@pytest.fixture(params=["pool", "blocking", "single", "url", "cluster", "sentinel"])
def client_on_one_connection(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Every kind of client, each with one connection for everybody."""

    def fixture(name: str) -> Any:
        return request.getfixturevalue(name)

    def make() -> Any:
        if request.param == "cluster":
            cluster: ValkeyCluster = fixture("valkey_cluster")
            nodes = [ClusterNode(node.host, node.port) for node in cluster.masters]
            return closing(RedisCluster(startup_nodes=nodes, max_connections=1))
        if request.param == "sentinel":
            group: ValkeySentinel = fixture("valkey_sentinel")
            sentinel = Sentinel(group.addresses)  # type: ignore[no-untyped-call]
            client = sentinel.master_for(group.service, max_connections=1)
            return closing(client, *sentinel.sentinels)
        url = fixture("valkey").url
        if request.param == "url":
            return RedisStore.from_url(f"{url}?max_connections=1")
        if request.param == "blocking":
            pool = BlockingConnectionPool.from_url(url, max_connections=1, timeout=2)
            return closing(Redis.from_pool(pool))
        if request.param == "single":
            return closing(Redis.from_url(url, single_connection_client=True))
        return closing(Redis.from_url(url, max_connections=1))

    for name in {"cluster": ["valkey_cluster"], "sentinel": ["valkey_sentinel"]}.get(
        request.param, ["valkey"]
    ):
        fixture(name)  # servers are started outside of the loop
    return make


class Counter:
    """Makes calls, and checks that each reply is this counter's own and new."""

    def __init__(self, store: RedisStore, namespace: str, offset: int) -> None:
        # One hash tag, so that on a cluster both counters share a connection as well.
        self._distributor = store.segment_distributor(
            namespace=f"{{{namespace}}}", name=f"from {offset}", offset=offset
        )
        self._last = offset
        self.granted = 0

    async def call(self) -> None:
        max_id = await self._distributor.next_max_id(1)
        assert self._last < max_id < self._last + FAR // 2
        self._last = max_id
        self.granted += 1


async def turns_of(call: Callable[[], Awaitable[None]]) -> int:
    """How many turns of the loop a call takes, which depends on the loop and the machine."""
    task = asyncio.ensure_future(call())
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def cancel_task(call: Callable[[], Awaitable[None]], turns: int) -> None:
    """As asyncio does it: once, to the task."""
    task = asyncio.ensure_future(call())
    for _ in range(turns):
        await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
        assert done, "the cancellation was swallowed"


async def cancel_scope(call: Callable[[], Awaitable[None]], turns: int) -> None:
    """As anyio does it: every await in the scope is cut from then on."""

    async def cut() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        scope.cancel()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            await call()
            scope.cancel()


@pytest.mark.stress
@pytest.mark.both_loops
@pytest.mark.parametrize("cancel", [cancel_task, cancel_scope])
async def test_two_counters_on_one_connection_in_a_storm_of_cancellations(
    client_on_one_connection: Callable[[], Any],
    cancel: Callable[[Callable[[], Awaitable[None]], int], Awaitable[None]],
    namespace: str,
) -> None:
    """Cut at every await: each counter sees only its own replies, nothing hangs or runs out."""
    chance = random.Random(namespace)  # noqa: S311
    async with client_on_one_connection() as client:
        store = client if isinstance(client, RedisStore) else RedisStore(client)
        counters = [Counter(store, namespace, 0), Counter(store, namespace, FAR)]

        async def storm(counter: Counter, rounds: int, turns: int) -> None:
            for _ in range(rounds):  # half of them early: a turn takes longer on a busy machine
                await cancel(counter.call, int((turns + 1) ** chance.random()) - 1)

        async with asyncio.timeout(40):
            # First while the client gets to know the server, then when it is well under way.
            await asyncio.gather(*(storm(each, 50, 20) for each in counters))
            await counters[0].call()
            turns = max([await turns_of(each.call) for each in counters])
            before = [each.granted for each in counters]
            await asyncio.gather(*(storm(each, ROUNDS, 3 * turns) for each in counters))
            granted = [each.granted - n for each, n in zip(counters, before, strict=True)]
            for each in counters:
                await each.call()
        assert max(granted) > 0, "not one call ran to its end: cut later"
        assert min(granted) < ROUNDS, "not one call was cut: cut earlier"


@pytest_asyncio.fixture
async def proxy(valkey: ValkeyServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(valkey.host, valkey.port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def store(proxy: FaultProxy) -> AsyncIterator[RedisStore]:
    async with RedisStore.from_url(f"redis://{proxy.host}:{proxy.port}?max_connections=1") as store:
        yield store


def key_of(namespace: str, name: str) -> str:
    return f"cosid:{{{namespace}.{name}}}.adder"


@pytest.mark.both_loops
class TestLostReplies:
    """The server acted and the caller does not know: a gap, never a repeat."""

    @pytest.mark.parametrize("offset", [0, 5])
    async def test_cancelled_between_write_and_reply(
        self,
        valkey: ValkeyServer,
        proxy: FaultProxy,
        store: RedisStore,
        namespace: str,
        offset: int,
    ) -> None:
        """The connection goes, so that the late reply meets nobody."""
        cut = store.segment_distributor(namespace=namespace, name="cut", offset=offset)
        other = store.segment_distributor(namespace=namespace, name="other", offset=FAR)
        await cut.next_max_id(10)
        assert proxy.connections == 1
        proxy.blackhole(replies=True)
        answered = proxy.next_reply()
        call = asyncio.ensure_future(cut.next_max_id(10))
        await answered
        call.cancel()
        async with asyncio.timeout(1):
            await asyncio.wait([call])
        assert call.cancelled()
        assert valkey.call("GET", key_of(namespace, "cut")) == str(offset + 20)
        proxy.heal()
        assert await other.next_max_id(1) == FAR + 1
        assert await cut.next_max_id(10) == offset + 30
        assert proxy.connections == 2

    @pytest.mark.parametrize("offset", [0, 5])
    @pytest.mark.parametrize("reset", [True, False])
    async def test_reply_lost_after_the_effect(
        self, proxy: FaultProxy, store: RedisStore, namespace: str, offset: int, reset: bool
    ) -> None:
        """A URL's client sends nothing twice: the caller hears of it, the range is a gap."""
        counter = store.segment_distributor(namespace=namespace, name="n", offset=offset)
        await counter.next_max_id(10)
        proxy.swallow_replies(1, to=namespace.encode(), reset=reset)
        async with asyncio.timeout(1.9):
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(10)
        assert proxy.swallowed == 1
        assert await counter.next_max_id(10) == offset + 30

    @pytest.mark.parametrize("offset", [0, 5])
    async def test_drivers_default_sends_again(
        self, proxy: FaultProxy, namespace: str, offset: int
    ) -> None:
        """A user's client with the driver's own retries: applied twice, granted once."""
        async with closing(Redis(host=proxy.host, port=proxy.port)) as client:
            counters = [
                RedisStore(client).segment_distributor(namespace=namespace, name="n", offset=offset)
                for _ in range(2)
            ]
            await counters[0].next_max_id(10)
            proxy.swallow_replies(1, to=namespace.encode())
            granted = [await counter.next_max_id(10) for counter in counters]
            assert granted == [offset + 30, offset + 40]
            assert proxy.swallowed == 1

    async def test_generator_tears_a_silent_call_and_goes_on(
        self, proxy: FaultProxy, namespace: str
    ) -> None:
        """Its own timeout comes before the driver's; every id stays unique and in order."""
        url = f"redis://{proxy.host}:{proxy.port}"
        store = RedisStore.from_url(url)
        counter = store.segment_distributor(namespace=namespace, name="n", step=10)
        ids = []
        async with store, SegmentChainId(counter, wait_timeout=5, fetch_timeout=0.2) as chain:
            ids += await chain.next_ids(5)
            silent = proxy.next_reply()
            proxy.blackhole(replies=True)
            draw = asyncio.ensure_future(chain.next_ids(200))
            await silent

            await until(lambda: chain.statistics().last_error is not None)
            proxy.heal()
            ids += await draw
        assert ids == sorted(set(ids))
        assert len(ids) == 205

    async def test_closing_cuts_what_is_under_way(
        self, proxy: FaultProxy, store: RedisStore, namespace: str
    ) -> None:
        """Nobody waits for a silent server; whoever called hears why."""
        counter = store.segment_distributor(namespace=namespace, name="n")
        await counter.next_max_id(1)
        proxy.blackhole(replies=True)
        answered = proxy.next_reply()
        calls = [asyncio.ensure_future(counter.next_max_id(1)) for _ in range(2)]
        await answered
        async with asyncio.timeout(1):
            await store.aclose()
            for call in calls:
                with pytest.raises(StoreUnavailableError, match="closed"):
                    await call
        proxy.heal()
        assert await counter.next_max_id(1) >= 3

    async def test_closing_a_call_that_swallows_a_cancellation(
        self, proxy: FaultProxy, store: RedisStore, namespace: str
    ) -> None:
        """As a driver may on Python 3.11: it is told again, and the connections are closed."""
        begun = asyncio.Event()

        async def swallow(client: Any) -> None:
            await client.ping()
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

        call = asyncio.ensure_future(store._backend.link.call(swallow, may_last=True))
        await begun.wait()
        await store.aclose()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await call

        await until(lambda: proxy.open_connections == 0)

    async def test_closing_in_a_cancelled_scope(
        self, proxy: FaultProxy, store: RedisStore, namespace: str
    ) -> None:
        """The connections are closed all the same."""
        await store.segment_distributor(namespace=namespace, name="n").next_max_id(1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.aclose()

        await until(lambda: proxy.open_connections == 0)

    async def test_cancelled_while_it_waits_for_its_turn(
        self, proxy: FaultProxy, store: RedisStore, namespace: str
    ) -> None:
        """Nothing was sent for it, and the turn goes to the next."""
        counter = store.segment_distributor(namespace=namespace, name="n")
        await counter.next_max_id(1)
        proxy.blackhole(requests=True)
        first, second, third = (asyncio.ensure_future(counter.next_max_id(1)) for _ in range(3))
        await proxy.next_request()
        second.cancel()
        await asyncio.wait([second])
        proxy.heal()
        assert [await first, await third] == [2, 3]
