"""SQL databases fail: torn calls harm nobody, and outages pass."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiocosid import store_from_url
from aiocosid._life import fork
from aiocosid.abc import Store
from aiocosid.errors import ForkedError, StoreUnavailableError
from aiocosid.stores import _connection, _executor, mysql
from aiocosid.testing import settle
from tests.servers import HOST, eventually, free_port

from ._clients import make_pool, pool_of, store_on
from ._engines import EACH_DRIVER
from ._sql import DATABASES, OnServer, PostgresDatabase, everything, own_url_of, within

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = 10**12  # where the second of two counters starts: no reply fits both
ENGINES = [(driver.values[0], driver.marks) for driver in EACH_DRIVER]
POOLS = [
    ("sqlite", {}, False),
    ("postgres", {"statement_cache_size": 0}, False),
    ("postgres", {"statement_cache_size": 100}, True),
    ("mariadb", {}, False),
    ("mariadb", {}, True),
    *(pytest.param(driver, {}, False, marks=marks) for driver, marks in ENGINES),
]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """A database of the test's own, of a kind or by a driver."""
    return own_url_of(request, request.param)


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Any:
    """A database of one server after the other."""
    return DATABASES[request.param](request)


async def create_schema(url: str) -> None:
    """Make the tables, by connections that end."""
    async with store_from_url(url) as store:
        await store.create_schema()


class New:
    """A new counter for each call, which may create it: on MySQL by a transaction."""

    def __init__(self, store: Store, **about: Any) -> None:
        self._store, self._about = store, about

    async def next_max_id(self, step: int) -> int:
        """Ask as a process that has just begun."""
        return await self._store.segment_distributor(**self._about).next_max_id(step)


def counter_of(store: Store, name: str, *, offset: int = 0, new: bool = False) -> Any:
    """A counter that is asked by one of its two statements."""
    about: dict[str, Any] = {"name": name, "offset": offset}
    return New(store, **about) if new else store.segment_distributor(**about)


class TestTornCalls:
    """A cancelled call, a lost reply: a gap at most, and nobody else's reply."""

    @pytest.mark.both_loops
    @pytest.mark.parametrize(("url", "options", "new"), POOLS, indirect=["url"])
    async def test_one_connection_two_counters_cancelled_at_every_await(
        self, url: str, options: dict[str, Any], new: bool
    ) -> None:
        """Each counter sees only its own replies, in order, and nothing hangs."""
        await create_schema(url)
        async with pool_of(url, **options) as pool:
            near = counter_of(store_on(pool), "near", new=new)
            far = counter_of(store_on(pool), "far", offset=FAR, new=new)
            seen: list[int] = []
            for turns in range(60):
                torn = asyncio.ensure_future(near.next_max_id(1))
                for _ in range(turns % 30):
                    await asyncio.sleep(0)
                other = asyncio.ensure_future(far.next_max_id(1))
                torn.cancel()
                assert await within(5, other) > FAR
                await asyncio.wait([torn])
                seen.append(await within(5, near.next_max_id(1)))
            if url.startswith("postgresql:"):
                assert pool.get_size() == 1
            elif url.startswith("mysql:"):
                assert pool.size == 1
        assert seen == sorted(set(seen))
        assert seen[-1] <= 120
        gc.collect()

    @pytest.mark.both_loops
    @pytest.mark.parametrize("url", [*DATABASES, *EACH_DRIVER], indirect=True)
    async def test_a_storm_on_a_pool_of_ours(self, url: str) -> None:
        """The same with many at once, on the connections of a store made from a URL."""
        await create_schema(url)
        async with store_from_url(url) as store:
            near = counter_of(store, "near")
            far = counter_of(store, "far", offset=FAR, new=True)
            for turns in range(40):
                calls = [asyncio.ensure_future(each.next_max_id(1)) for each in (near, far) * 5]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for call in calls[turns % 3 :: 2]:
                    call.cancel()
                ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
                for index, result in enumerate(ended):
                    if not isinstance(result, asyncio.CancelledError):
                        assert isinstance(result, int)
                        assert (result > FAR) is (index % 2 == 1)
            assert await near.next_max_id(1) <= 201
            assert FAR < await far.next_max_id(1) <= FAR + 201
        gc.collect()

    @pytest.mark.both_loops
    async def test_cancelled_while_it_connects(self, database: OnServer) -> None:
        """Nothing is left open of a connection that was cancelled on its way, and others come."""
        await create_schema(database.url)
        for turns in range(30):
            async with database.open() as new:
                counter = new.segment_distributor(name="order")
                torn = asyncio.ensure_future(counter.next_max_id(1))
                for _ in range(turns):
                    await asyncio.sleep(0)
                torn.cancel()
                assert await within(5, counter.next_max_id(1)) <= 2 * turns + 2
                await asyncio.wait([torn])
        gc.collect()

    @pytest.mark.parametrize("new", [False, True])
    @pytest.mark.parametrize("own", [True, False])
    async def test_after_the_server_acted(self, database: OnServer, own: bool, new: bool) -> None:
        """A reply that is lost, or late, reaches nobody; its range is a gap."""
        await create_schema(database.url)
        async with database.proxied() as (proxy, url), AsyncExitStack() as stack:
            pool = await stack.enter_async_context(pool_of(url))
            mine = await stack.enter_async_context(store_from_url(url)) if own else store_on(pool)
            near = counter_of(mine, "near", new=new)
            far = counter_of(mine, "far", offset=FAR, new=new)
            assert await near.next_max_id(10) == 10
            proxy.swallow_replies(1, **database.acted)
            with pytest.raises(StoreUnavailableError) as caught:
                await near.next_max_id(10)
            assert caught.value.retryable
            assert await near.next_max_id(10) == 30
            before = proxy.connections
            proxy.swallow_replies(1, **database.acted, reset=False)
            torn = asyncio.ensure_future(near.next_max_id(10))
            await proxy.next_reply(database.acted.get("matching", b""))
            torn.cancel()
            await asyncio.wait([torn])
            assert torn.cancelled()
            assert await within(5, far.next_max_id(1)) == FAR + 1
            assert await within(5, near.next_max_id(1)) == 41
            if isinstance(database, PostgresDatabase):
                assert proxy.connections == before + 2, "one asked the server to stop"

    async def test_forked_while_it_waits_for_a_connection(
        self, database: OnServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the child nothing is sent on the connection, which is the parent's."""
        await create_schema(database.url)
        pool = await make_pool(database.url)
        counter = store_on(pool).segment_distributor(name="order")
        held = await pool.acquire()
        waits = asyncio.ensure_future(counter.next_max_id(10))
        await settle()
        with monkeypatch.context() as patch:
            patch.setattr(fork, "generation", fork.generation + 1)
            await pool.release(held)
            with pytest.raises(ForkedError):
                await waits
        async with database.open() as store:
            assert await store.counters() == []
        fork.abandoned.clear()
        pool.terminate()

    async def test_a_silent_server(
        self, database: OnServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A caller without a deadline of its own gets an answer all the same, and can close."""
        await create_schema(database.url)
        async with database.proxied() as (proxy, url):
            mine = database.store_type.from_url(url)
            counter = mine.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            monkeypatch.setattr(_executor, "CALL_TIMEOUT", 0.2)
            proxy.blackhole(requests=True)
            for _ in range(2):  # the second does not get as far as a greeting
                with pytest.raises(StoreUnavailableError, match="no answer"):
                    await counter.next_max_id(10)
            monkeypatch.undo()
            proxy.heal()
            assert await within(5, counter.next_max_id(10)) in (20, 30)
            proxy.blackhole(requests=True, replies=True)
            monkeypatch.setattr(_connection, "CLOSE_TIMEOUT", 0.2)
            await asyncio.wait_for(mine.aclose(), 2)  # a farewell is not awaited
            if isinstance(database, PostgresDatabase):
                return
            monkeypatch.setattr(mysql, "CONNECT_TIMEOUT", 0.1)
            with pytest.raises(StoreUnavailableError, match="no answer"):
                await counter.next_max_id(10)
            await asyncio.wait_for(mine.aclose(), 2)


class TestOutages:
    """A server that is away comes back."""

    async def test_sessions_that_are_ended_by_the_administrator(self, database: OnServer) -> None:
        """Idle connections that were cut are replaced before anybody notices."""
        async with database.open() as store:
            await store.create_schema()
            counter = store.segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            database.end_sessions()
            again = await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)
            assert again == 20

    @pytest.mark.parametrize(
        ("scheme", "said", "cause"),
        [("postgresql", r"\S", OSError), ("mysql", "connect to MySQL", Exception)],
    )
    async def test_nobody_there(self, scheme: str, said: str, cause: type[Exception]) -> None:
        """A port that refuses, a host that is none: retryable, with the system's own words."""
        for host in (f"{HOST}:{free_port()}", "no-such-host.invalid"):
            with pytest.raises(StoreUnavailableError, match=said) as caught:
                await store_from_url(f"{scheme}://me:secret@{host}/x").counters()
            assert isinstance(caught.value.__cause__, cause)
            assert "secret" not in everything(caught.value)
