"""Counters on one Valkey and one Redis: what is granted, what is refused, what is left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from aiocosid import connect
from aiocosid._life import fork
from aiocosid.abc import MAX_ID, Counter
from aiocosid.errors import (
    CorruptCounterError,
    ForkedError,
    InvalidArgumentError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.stores.redis import RedisStore, _link
from aiocosid.testing import settle
from tests.script import run_python
from tests.servers import PASSWORD, READER, FaultProxy, ValkeyServer, free_port

from ._snowflakes import until

pytestmark = [pytest.mark.integration]

BIG = 2**53 + 1  # the first integer that a double cannot hold


@pytest.fixture(params=["valkey", "redis_server"])
def server(request: pytest.FixtureRequest) -> ValkeyServer:
    """Each product in turn."""
    found: ValkeyServer = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def store(server: ValkeyServer) -> AsyncIterator[RedisStore]:
    async with RedisStore.from_url(server.patient_url) as store:
        yield store


@asynccontextmanager
async def client_of(server: ValkeyServer, **options: Any) -> AsyncGenerator[Redis]:
    client: Redis = Redis.from_url(server.url, **options)
    try:
        yield client
    finally:
        await client.aclose()


def key_of(namespace: str, name: str) -> str:
    return f"cosid:{{{namespace}.{name}}}.adder"


class TestGrants:
    """A grant is one step above the last, for its caller alone."""

    async def test_script_is_sent_again_when_the_server_forgot_it(
        self, server: ValkeyServer, store: RedisStore, namespace: str
    ) -> None:
        """After a restart or SCRIPT FLUSH the digest is unknown."""
        counter = store.segment_distributor(namespace=namespace, name="n", offset=1)
        for expected in (2, 3):
            server.call("SCRIPT", "FLUSH")
            assert await counter.next_max_id(1) == expected

    async def test_many_callers_on_a_small_pool(self, server: ValkeyServer, namespace: str) -> None:
        """They wait for their turn; the driver's own pool would raise instead."""
        async with client_of(server, max_connections=2) as client:
            counters = [
                RedisStore(client).segment_distributor(namespace=namespace, name="n")
                for _ in range(40)
            ]
            granted = await asyncio.gather(*(each.next_max_id(1) for each in counters))
            assert sorted(granted) == list(range(1, 41))
            assert len(client.connection_pool._available_connections) <= 2

    @pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 3}])
    async def test_users_client_may_be_set_up_in_any_way(
        self, server: ValkeyServer, namespace: str, options: dict[str, Any]
    ) -> None:
        """Text or bytes, either protocol, any encoding: the same key and the same numbers."""
        async with client_of(server, encoding="latin-1", **options) as client:
            await check_client(client, server, namespace)

    async def test_valkeys_own_client(self, server: ValkeyServer, namespace: str) -> None:
        """It has redis-py's interface, and errors of its own."""
        client = pytest.importorskip("valkey.asyncio").Valkey.from_url(server.url)
        try:
            await check_client(client, server, namespace)
        finally:
            await client.aclose()

    async def test_single_connection_client(self, server: ValkeyServer, namespace: str) -> None:
        """Calls take turns on the one connection."""
        async with client_of(server, single_connection_client=True) as client:
            counter = RedisStore(client).segment_distributor(namespace=namespace, name="n")
            granted = await asyncio.gather(*(counter.next_max_id(1) for _ in range(20)))
            assert sorted(granted) == list(range(1, 21))


async def check_client(client: Any, server: ValkeyServer, namespace: str) -> None:
    store = RedisStore(client)
    for name, offset in (("é", 0), ("ü", BIG)):
        counter = store.segment_distributor(namespace=namespace, name=name, offset=offset)
        assert await counter.next_max_id(5) == offset + 5
        assert server.call("GET", key_of(namespace, name)) == str(offset + 5)
    server.call("SET", key_of(namespace, "x"), "x")
    with pytest.raises(CorruptCounterError):
        await store.segment_distributor(namespace=namespace, name="x").next_max_id(1)
    assert await store.set_floor(namespace=namespace, name="é", above=BIG) == Counter(
        namespaced_name=f"{namespace}.é", last_max_id=BIG
    )
    listed = await store.counters(namespace=namespace)
    assert {c.namespaced_name: c.last_max_id for c in listed} == {
        f"{namespace}.é": BIG,
        f"{namespace}.ü": BIG + 5,
    }


class TestRefusals:
    """What cannot be granted is its own clear error, and nothing is written."""

    @pytest.mark.parametrize("client", [None, "redis://", object()])
    async def test_client_has_to_be_an_asynchronous_one(self, client: Any) -> None:
        """The synchronous client would block the loop at the first call."""
        import redis

        synchronous: Any = redis.Redis()
        for each in (client, synchronous):
            with pytest.raises(InvalidArgumentError, match=r"redis\.asyncio"):
                RedisStore(each).segment_distributor(name="n")
            with pytest.raises(InvalidArgumentError, match=r"redis\.asyncio"):
                RedisStore(each)


class TestOutages:
    """A server that cannot serve is named; one that comes back is used again."""

    async def test_wrong_password(
        self, valkey_password: ValkeyServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not worth a second attempt, and no password in any error or log line."""
        caplog.set_level(logging.DEBUG)
        for url in (
            valkey_password.url_for(password="wr0ng"),  # noqa: S106
            valkey_password.url_for(username="nobody", password="wr0ng"),  # noqa: S106
            valkey_password.url_for(),
        ):
            async with RedisStore.from_url(url) as store:
                for offset in (0, 1):
                    with pytest.raises(StoreAuthenticationError) as caught:
                        await store.segment_distributor(name="n", offset=offset).next_max_id(1)
                    assert not caught.value.retryable
                    assert "wr0ng" not in f"{caught.value!r} {caught.value.__cause__!r} {store!r}"
        assert "wr0ng" not in caplog.text

    async def test_user_who_may_not_write(self, valkey_password: ValkeyServer) -> None:
        """A matter of rights, in a script as well."""
        url = valkey_password.url_for(username=READER, password=PASSWORD)
        async with RedisStore.from_url(url) as store:
            for offset in (0, 1):
                with pytest.raises(StoreAuthenticationError):
                    await store.segment_distributor(name="n", offset=offset).next_max_id(1)
            with pytest.raises(StoreAuthenticationError):
                await store.set_floor(name="n", above=1)

    async def test_nobody_listens(self) -> None:
        """At once, and worth a second attempt."""
        url = f"redis://u:{PASSWORD.replace('/', '')}@127.0.0.1:{free_port()}"
        async with RedisStore.from_url(url) as store:
            for attempt in (
                store.segment_distributor(name="n").next_max_id(1),
                store.set_floor(name="n", above=1),
                store.counters(),
            ):
                with pytest.raises(StoreUnavailableError) as caught:
                    await attempt
                assert caught.value.retryable
                assert PASSWORD.replace("/", "") not in f"{caught.value} {caught.value.__cause__}"

    async def test_silent_server_is_given_up_in_time(
        self, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        """Within the 2 s that a generator gives a call; nothing is left on the connection."""
        server = valkey_factory()
        async with RedisStore.from_url(server.url) as store:
            counter = store.segment_distributor(name="n")
            assert await counter.next_max_id(1) == 1
            server.pause()
            async with asyncio.timeout(1.9):
                with pytest.raises(StoreUnavailableError):
                    await counter.next_max_id(1)
            server.resume()
            assert await counter.next_max_id(5) >= 6

    async def test_silent_server_and_a_client_without_timeouts(
        self, valkey: ValkeyServer, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A caller without a deadline of its own gets an answer all the same."""
        async with FaultProxy(valkey.host, valkey.port) as proxy:
            client: Redis = Redis(host=proxy.host, port=proxy.port, socket_timeout=None)
            store = RedisStore(client)
            counter = store.segment_distributor(namespace=namespace, name="n")
            assert await counter.next_max_id(1) == 1
            monkeypatch.setattr(_link, "CALL_TIMEOUT", 0.2)
            proxy.blackhole(requests=True)
            async with asyncio.timeout(5):
                with pytest.raises(StoreUnavailableError, match="no answer within"):
                    await counter.next_max_id(1)
                with pytest.raises(StoreUnavailableError, match="no answer within"):
                    await store.set_floor(namespace=namespace, name="n", above=1)
            proxy.heal()
            assert await counter.next_max_id(1) >= 2
            await client.aclose()

    async def test_restarted_server_is_used_again(
        self, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        """The dead connection is noticed before anything is sent on it."""
        server = valkey_factory(persistent=True)
        async with RedisStore.from_url(server.url) as store:
            counter = store.segment_distributor(name="n", offset=5)
            assert await counter.next_max_id(1) == 6
            await asyncio.to_thread(server.restart)
            assert await counter.next_max_id(1) == 7
            server.kill()
            with pytest.raises(StoreUnavailableError):
                await counter.next_max_id(1)
            server.start()
            assert await counter.next_max_id(1) == 8

    async def test_full_server(self, valkey_factory: Callable[..., ValkeyServer]) -> None:
        """Out of memory is an outage, for the command and for the script."""
        server = valkey_factory()
        server.call("CONFIG", "SET", "maxmemory", 1)
        async with RedisStore.from_url(server.url) as store:
            for offset in (0, 1):
                with pytest.raises(StoreUnavailableError):
                    await store.segment_distributor(name="n", offset=offset).next_max_id(1)
            server.call("CONFIG", "SET", "maxmemory", 0)
            assert await store.segment_distributor(name="n").next_max_id(1) == 1

    async def test_too_many_clients(self, valkey_factory: Callable[..., ValkeyServer]) -> None:
        """The server's own limit is an outage as well."""
        server = valkey_factory("--maxclients", "1")
        async with RedisStore.from_url(server.url) as first:
            await first.segment_distributor(name="n").next_max_id(1)
            async with RedisStore.from_url(server.url) as second:
                with pytest.raises(StoreUnavailableError):
                    await second.segment_distributor(name="n").next_max_id(1)

    @pytest.mark.parametrize("offset", [0, 1])
    async def test_name_that_leads_to_another_server_after_a_failover(
        self, valkey_factory: Callable[..., ValkeyServer], offset: int
    ) -> None:
        """A server that has become a replica is left, and the name looked up again."""
        old, new = valkey_factory(), valkey_factory()
        async with FaultProxy(old.host, old.port) as name:
            store = RedisStore.from_url(f"redis://{name.host}:{name.port}")
            async with store:
                counter = store.segment_distributor(name="n", offset=offset)
                await counter.next_max_id(10)
                new.call("SET", key_of("cosid", "n"), 1000)
                old.call("REPLICAOF", new.host, new.port)
                name.target = (new.host, new.port)
                with pytest.raises(StoreUnavailableError):
                    await counter.next_max_id(10)
                assert await counter.next_max_id(10) == 1010

    async def test_server_of_a_cluster(self, valkey_cluster: Any) -> None:
        """redis:// goes to one server only: the error tells which URL to use."""
        node = valkey_cluster.masters[0]
        async with RedisStore.from_url(node.url) as store:
            name = next(n for n in "abcdefgh" if valkey_cluster.owner(key_of("cosid", n)) != node)
            with pytest.raises(StoreError, match=r"redis\+cluster"):
                await store.segment_distributor(name=name).next_max_id(1)

    async def test_server_without_a_cluster(self, valkey: ValkeyServer) -> None:
        """And the other way round."""
        url = f"redis+cluster://{valkey.host}:{valkey.port}"
        async with RedisStore.from_url(url) as store:
            with pytest.raises(StoreError, match="redis://"):
                await store.segment_distributor(name="n").next_max_id(1)


class TestStore:
    """What an operator sees and does."""

    @pytest.mark.parametrize(
        "case",  # what is there, what is asked for, what comes of it
        [
            (None, 0, 0),
            (None, BIG, BIG),
            (5, 5, 5),
            (5, 4, 5),
            (5, 6, 6),
            (9, 10, 10),
            (10, 9, 10),
            (-5, 0, 0),
            (-5, 3, 3),
            (BIG, BIG + 1, BIG + 1),
            (BIG + 1, BIG, BIG + 1),
            (MAX_ID - 1, MAX_ID, MAX_ID),
            (MAX_ID, MAX_ID - 1, MAX_ID),
        ],
    )
    async def test_floor_raises_and_never_lowers(
        self, server: ValkeyServer, store: RedisStore, namespace: str, case: tuple[Any, int, int]
    ) -> None:
        """Exact up to 2^63-1, creates what is missing, and may be repeated."""
        value, above, expected = case
        if value is not None:
            server.call("SET", key_of(namespace, "n"), value)
        for _ in range(2):
            counter = await store.set_floor(namespace=namespace, name="n", above=above)
            assert counter == Counter(namespaced_name=f"{namespace}.n", last_max_id=expected)
        assert server.call("GET", key_of(namespace, "n")) == str(expected)
        assert server.call("TTL", key_of(namespace, "n")) == -1

    async def test_lists_counters_only(
        self, server: ValkeyServer, store: RedisStore, namespace: str
    ) -> None:
        """By name; without other keys, other types, other texts and other namespaces."""
        for name, value in (("b", 2), ("a", 1), ("命", BIG), ("bad", "x")):
            server.call("SET", key_of(namespace, name), value)
        server.call("RPUSH", key_of(namespace, "list"), "1")
        server.call("SET", f"cosid:{{{namespace}}}:adder", 1)  # CosId's machine ids
        server.call("SET", key_of(f"{namespace}x", "a"), 1)
        listed = await store.counters(namespace=namespace)
        assert [(c.namespaced_name, c.last_max_id, c.last_fetch_time) for c in listed] == [
            (f"{namespace}.{name}", value, None)
            for name, value in (("a", 1), ("b", 2), ("命", BIG))
        ]
        everything = await store.counters()
        assert {c.namespaced_name for c in everything} >= {f"{namespace}x.a", f"{namespace}.a"}

    async def test_lists_more_than_one_batch(
        self, server: ValkeyServer, store: RedisStore, namespace: str
    ) -> None:
        """The server is asked several times and none is left out."""
        async with client_of(server) as client:
            await client.mset({key_of(namespace, f"{i:04}"): i for i in range(1234)})
        listed = await store.counters(namespace=namespace)
        assert [c.last_max_id for c in listed] == list(range(1234))


class TestLife:
    """Connections belong to one loop, one process, and to whoever made them."""

    async def test_users_client_stays_open(self, valkey: ValkeyServer, namespace: str) -> None:
        """It is not ours to close, whichever way it was handed in."""
        async with client_of(valkey) as client:
            counter = RedisStore(client).segment_distributor(namespace=namespace, name="n")
            await counter.aopen()
            await counter.next_max_id(1)
            (connection,) = client.connection_pool._available_connections
            async with RedisStore(client) as store:
                await store.counters()
            await counter.aclose()
            assert connection.is_connected
            assert await counter.next_max_id(1) == 2

    async def test_store_closes_what_it_opened(self, valkey: ValkeyServer, namespace: str) -> None:
        """One made from a URL has connections of its own, from its first call on."""
        async with FaultProxy(valkey.host, valkey.port) as proxy:
            url = f"redis://{proxy.host}:{proxy.port}"
            store = RedisStore.from_url(url)
            counter = store.segment_distributor(namespace=namespace, name="n")
            assert proxy.connections == 0
            for expected in (1, 2):
                assert await counter.next_max_id(1) == expected
                await store.aclose()
                await all_closed(proxy)

    def test_second_run_with_a_users_client(self, valkey: ValkeyServer, namespace: str) -> None:
        """A connection of a loop that is gone fails once, as an outage, and is dropped."""
        code = (
            "import asyncio, sys; from aiocosid.errors import StoreUnavailableError\n"
            "from aiocosid.stores.redis import RedisStore\n"
            "from redis.asyncio import Redis\n"
            "s = RedisStore(Redis.from_url(sys.argv[1]))\n"
            "c = s.segment_distributor(namespace=sys.argv[2], name='n')\n"
            "async def attempt():\n"
            "    try: return await c.next_max_id(1)\n"
            "    except StoreUnavailableError: return await c.next_max_id(1)\n"
            "print([asyncio.run(attempt()) for _ in range(3)])"
        )
        granted = run_python(code, valkey.url, namespace)
        assert sorted(set(granted)) == granted

    async def test_call_under_way_during_a_fork(
        self, valkey: ValkeyServer, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the child it ends without a result: the reply is the parent's."""
        async with FaultProxy(valkey.host, valkey.port) as proxy:
            url = f"redis://{proxy.host}:{proxy.port}"
            async with RedisStore.from_url(url) as store:
                counter = store.segment_distributor(namespace=namespace, name="n")
                await counter.next_max_id(1)
                proxy.blackhole(replies=True)
                answered = proxy.next_reply()
                call = asyncio.ensure_future(counter.next_max_id(1))
                await answered
                with monkeypatch.context() as patch:
                    patch.setattr(fork, "generation", fork.generation + 1)
                    proxy.heal()
                    with pytest.raises(ForkedError):
                        await call

    async def test_forked_while_it_waits_for_its_turn(
        self, valkey: ValkeyServer, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the child nothing is sent: the connections are the parent's."""
        async with FaultProxy(valkey.host, valkey.port) as proxy:
            client: Redis = Redis(host=proxy.host, port=proxy.port, max_connections=1)
            counter = RedisStore(client).segment_distributor(namespace=namespace, name="n")
            proxy.blackhole(replies=True)
            answered = proxy.next_reply()
            first = asyncio.ensure_future(counter.next_max_id(1))
            await answered
            waits = asyncio.ensure_future(counter.next_max_id(1))
            await settle()
            with monkeypatch.context() as patch:
                patch.setattr(fork, "generation", fork.generation + 1)
                proxy.heal()
                for call in (first, waits):
                    with pytest.raises(ForkedError):
                        await call
            assert valkey.call("GET", key_of(namespace, "n")) == "1"
            await client.aclose()

    async def test_provider(self, valkey: ValkeyServer, namespace: str) -> None:
        """Generators of one provider share its connections, and close with it."""
        async with FaultProxy(valkey.host, valkey.port) as proxy:
            url = f"redis://{proxy.host}:{proxy.port}"
            async with connect(url, namespace=namespace) as ids:
                chains = [await ids.segment_chain(name) for name in "abc"]
                assert [await chain.next_id() for chain in chains] == [1, 1, 1]
            await all_closed(proxy)
            assert proxy.connections <= len(chains)


async def all_closed(proxy: FaultProxy) -> None:
    await until(lambda: proxy.open_connections == 0)
