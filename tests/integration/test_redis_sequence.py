"""Sequences of a second on real servers: ranges, the fence, the clock, errors, Java nodes beside.

R4 and the like name the requirements that the published generator does not meet.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis, RedisCluster

from aiocosid.abc import SecondFenced, SecondSpent, SequenceGrant
from aiocosid.errors import (
    ClockSkewError,
    CorruptCounterError,
    ForkedError,
    InvalidArgumentError,
    StoreAuthenticationError,
    StoreError,
    StoreIdentityHiddenError,
    StoreUnavailableError,
)
from aiocosid.snowflake import ShardedLayout
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._sequence import GRANT, RedisSequenceDistributor
from tests.published import PUBLISHED
from tests.servers import RedisServer, ValkeyCluster, ValkeySentinel, ValkeyServer, wait_until

from ._sequences import open_fence, server_second, told

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

AT_ONCE = ("--repl-diskless-sync-delay", 0)
LONG: dict[str, Any] = {"tolerance": 60, "ttl": 600}  # seconds: for tests that stay in one second


@pytest.fixture(params=["valkey", "redis_server"])
def server(request: pytest.FixtureRequest) -> ValkeyServer:
    """A server of either kind."""
    found: ValkeyServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def key(namespace: str) -> str:
    """As Java nodes have it."""
    return f"{namespace}<second>"


def counter(server: ValkeyServer, key: str, second: int) -> object:
    """What a counter holds."""
    return server.call("GET", key.replace("<second>", str(second)))


async def test_ranges_are_disjoint_until_the_second_is_full(server: ValkeyServer, key: str) -> None:
    """R4, R5, R15: 50 clients, any sizes; the last grant is shorter; the counter stays there."""
    open_fence(server, key)
    second, most = server_second(server) + 1, 5000
    ranges: list[SequenceGrant] = []
    distributors = [
        RedisStore.from_url(server.patient_url).sequence_distributor(
            name="n", key=key, max_sequence=most, **LONG
        )
        for _ in range(50)
    ]

    async def take(distributor: RedisSequenceDistributor) -> None:
        draw = random.Random(id(distributor))  # noqa: S311 - sizes
        while True:
            reply = await distributor.grant(second, draw.randint(1, 300))
            if isinstance(reply, SecondSpent):
                return
            assert isinstance(reply, SequenceGrant)
            assert (
                0 < int(str(server.call("TTL", f"{key.replace('<second>', str(second))}"))) <= 600
            )
            ranges.append(reply)

    await asyncio.gather(*map(take, distributors))
    ranges.sort(key=lambda each: each.first)
    assert {each.second for each in ranges} == {second}
    assert all(one.last + 1 == other.first for one, other in pairwise(ranges))
    assert (ranges[0].first, ranges[-1].last) == (1, most)
    for _ in range(100):
        assert await distributors[0].grant(second, 10) == SecondSpent(second)
    assert counter(server, key, second) == str(most)
    for each in distributors:
        await each._link.aclose()


async def test_a_size_that_is_none(valkey: ValkeyServer, key: str) -> None:
    """R6: refused before it is sent, and by the script as well; the counter is as it was."""
    open_fence(valkey, key)
    second = server_second(valkey)
    distributor = RedisStore.from_url(valkey.url).sequence_distributor(
        name="n", key=key, max_sequence=100, **LONG
    )
    await distributor.grant(second, 10)
    sizes: tuple[Any, ...] = (0, -5, "7", 1.0, 101, None, True)
    for size in sizes:
        with pytest.raises(InvalidArgumentError, match="size"):
            await distributor.grant(second, size)
    seconds: tuple[Any, ...] = (-1, 1.5, "now", None)
    for wrong in seconds:
        with pytest.raises(InvalidArgumentError, match="second"):
            await distributor.grant(wrong, 1)
    good = (str(second), "10", "100", "60", "1", "600")
    bad = [(1, "0"), (1, "-5"), (1, "1.5"), (1, "x"), (1, "101"), (0, "-1"), (5, "100"), (5, "")]
    client: Any = SyncRedis.from_url(valkey.url)
    keys = (key.replace("<second>", str(second)), key.replace("<second>", "fence"))
    for place, word in bad:
        words = [*good[:place], word, *good[place + 1 :]]
        with pytest.raises(Exception, match=r"argument|out of range"):
            client.eval(GRANT.text, 2, *keys, *words)
    client.close()
    assert counter(valkey, key, second) == "10"
    await distributor._link.aclose()


async def test_the_highest_sequences(valkey: ValkeyServer, key: str) -> None:
    """Up to what a number of Lua holds exactly: 16 digits."""
    open_fence(valkey, key)
    most = 2**53 - 1
    distributor = RedisStore.from_url(valkey.url).sequence_distributor(
        name="n", key=key, max_sequence=most, **LONG
    )
    second = server_second(valkey)
    assert await distributor.grant(second, most - 2) == SequenceGrant(second, 1, most - 2)
    assert await distributor.grant(second, 10**15) == SequenceGrant(second, most - 1, most)
    assert await distributor.grant(second, 1) == SecondSpent(second)
    assert counter(valkey, key, second) == str(most)
    await distributor._link.aclose()


async def test_clocks_that_disagree(valkey: ValkeyServer, key: str) -> None:
    """R14: refused both ways, and no key is made."""
    open_fence(valkey, key)
    distributor = RedisStore.from_url(valkey.url).sequence_distributor(name="n", key=key)
    for off in (4, -3):  # a second may pass meanwhile
        second = server_second(valkey) + off
        with pytest.raises(ClockSkewError) as caught:
            await distributor.grant(second, 10)
        assert caught.value.tolerance == 2
        assert abs(caught.value.ahead) >= 3
        assert (caught.value.ahead > 0) == (off > 0)
        assert caught.value.retryable
        assert counter(valkey, key, second) is None
    second = server_second(valkey) + 1
    assert await distributor.grant(second, 10) == SequenceGrant(second, 1, 10)
    await distributor._link.aclose()


async def test_what_is_refused_when_it_is_made(valkey_cluster: ValkeyCluster) -> None:
    """R15, R19: a life that is too short, a key without its second, or in two slots."""
    url = "redis://nowhere"
    name: dict[str, Any] = {"name": "n"}
    options: list[dict[str, Any]] = [
        *({"ttl": 63}, {"ttl": 600, "tolerance": 300}, {"tolerance": 0}, {"tolerance": 1.5}),
        *({"margin": -1}, {"max_sequence": 0}, {"name": ""}, {"key": "order"}, {"key": ""}),
        *({"key": "<second><second>"}, {"key": 7}),
    ]
    for each in options:
        with pytest.raises(InvalidArgumentError, match="|".join(each)):
            RedisStore.from_url(url).sequence_distributor(**(name | each))
    RedisStore.from_url(url).sequence_distributor(name="n", ttl=64)
    for key in ("order<second>", "{order<second>}", "{}order<second>", "o<second>{order"):
        with pytest.raises(InvalidArgumentError, match="hash tag"):
            RedisStore.from_url(valkey_cluster.url).sequence_distributor(name="n", key=key)
    master = valkey_cluster.masters[0]
    client: Any = RedisCluster(host=master.host, port=master.port)
    with pytest.raises(InvalidArgumentError, match="hash tag"):
        RedisStore(client).sequence_distributor(name="n", key="order<second>")
    await client.aclose()


async def test_on_a_cluster(valkey_cluster: ValkeyCluster, namespace: str) -> None:
    """R19: counters of all seconds lie with their fence."""
    distributor = RedisStore.from_url(valkey_cluster.url).sequence_distributor(
        namespace=namespace, name="n"
    )
    key = f"aiocosid:{{{namespace}.n}}:<second>"
    owner = valkey_cluster.owner(key)
    open_fence(owner, key)
    now = server_second(owner)
    for second in (now, now + 1, now + 2, now):
        assert isinstance(await distributor.grant(second, 10), SequenceGrant)
    assert counter(owner, key, now) == "20"
    await distributor._link.aclose()


async def test_a_server_that_forgot(valkey_factory: Callable[..., ValkeyServer], key: str) -> None:
    """R17: emptied, its scripts too, or killed: nothing of the seconds it may have granted."""
    server = valkey_factory()
    distributor = RedisStore.from_url(server.url).sequence_distributor(name="n", key=key)
    for forget in ("FLUSHALL", "SCRIPT", "DEL", "kill"):
        open_fence(server, key)
        now = server_second(server)
        before = [await distributor.grant(now + off, 10) for off in (1, 2)]
        assert all(isinstance(each, SequenceGrant) for each in before)
        if forget == "kill":
            server.kill()
            server.start()
            await expect(distributor, StoreUnavailableError, "closed", now)
        elif forget == "SCRIPT":
            server.call("SCRIPT", "FLUSH")
            assert isinstance(await distributor.grant(now + 1, 10), SequenceGrant)
            continue
        else:
            server.call(
                *(["DEL", key.replace("<second>", "fence")] if forget == "DEL" else [forget])
            )
        for second in (now, now + 1, now + 2):
            reply = await distributor.grant(second, 10)
            assert isinstance(reply, SecondFenced)
            # Seconds up to now + tolerance are lost; margin is for the next server's clock.
            assert reply.opens - now in range(4, 6)
    await distributor._link.aclose()


async def test_databases_that_are_swapped(
    valkey_factory: Callable[..., ValkeyServer], key: str
) -> None:
    """What was granted in the other one is not granted again, whichever of them knew of a fence."""
    server = valkey_factory()
    store = RedisStore.from_url(server.url)
    one, other = (store.sequence_distributor(name="n", key=key, **LONG) for _ in range(2))
    open_fence(server, key)
    second = server_second(server) + 5
    assert await one.grant(second, 50) == SequenceGrant(second, 1, 50)
    for _ in range(3):
        server.call("SWAPDB", 0, 1)
        server.call("HSET", key.replace("<second>", "fence"), "opens", 0)  # as if it were long ago
        for each in (one, other):
            reply = await each.grant(second, 50)
            assert isinstance(reply, SecondFenced)
            assert reply.opens > second
    await store.aclose()


async def test_counters_that_vanish_under_a_living_fence(server: ValkeyServer, key: str) -> None:
    """Whoever asks finds that fewer sequences were counted than granted; nothing comes twice."""
    store = RedisStore.from_url(server.url)
    distributor = store.sequence_distributor(name="n", key=key, **LONG)
    open_fence(server, key)
    second = server_second(server) + 5
    assert await distributor.grant(second, 50) == SequenceGrant(second, 1, 50)
    # Java nodes' count as well: what they are granted is never less.
    server.call("INCRBY", key.replace("<second>", str(second)), 50)
    assert await distributor.grant(second, 50) == SequenceGrant(second, 101, 150)
    for value in (None, 149):
        server.call("HSET", key.replace("<second>", "fence"), "opens", 0)
        server.call("DEL", key.replace("<second>", str(second)))
        if value:
            server.call("SET", key.replace("<second>", str(second)), value)
        reply = await distributor.grant(second, 50)
        assert isinstance(reply, SecondFenced)
        assert reply.opens > server_second(server) + LONG["tolerance"]
    await store.aclose()


async def test_the_fence_forgets_seconds_that_nobody_asks_for(
    server: ValkeyServer, key: str
) -> None:
    """It has a field for each second that may still be asked for, and no others."""
    store, fence = RedisStore.from_url(server.url), key.replace("<second>", "fence")
    distributor = store.sequence_distributor(name="n", key=key)
    open_fence(server, key)
    old = [f"granted:{server_second(server) - age}" for age in (4, 60, 10**6)]
    for each in old:
        server.call("HSET", fence, each, 5)
    second = server_second(server)
    assert isinstance(await distributor.grant(second, 5), SequenceGrant)
    fields: Any = server.call("HKEYS", fence)
    assert set(fields) - {"server", "opens", "seen", "reach"} == {f"granted:{second}"}
    await store.aclose()


@pytest.mark.stress  # a replica takes two seconds to come
async def test_a_lagging_replica_is_promoted_and_back(
    valkey_factory: Callable[..., ValkeyServer], key: str
) -> None:
    """R18: each is fenced; the first master has its old run_id when it comes back."""
    one, two = valkey_factory(*AT_ONCE), valkey_factory(*AT_ONCE)
    two.call("REPLICAOF", one.host, one.port)
    wait_until(two.is_following, "the replica follows")
    open_fence(one, key)
    first = RedisStore.from_url(one.url).sequence_distributor(name="n", key=key, **LONG)
    second = RedisStore.from_url(two.url).sequence_distributor(name="n", key=key, **LONG)
    now = server_second(one)
    await first.grant(now + 1, 10)
    wait_until(lambda: counter(two, key, now + 1) == "10", "the replica has it")
    two.stop_following()
    assert await first.grant(now + 1, 10) == SequenceGrant(now + 1, 11, 20)
    with pytest.raises(StoreUnavailableError, match="slave"):
        await second.grant(now + 1, 10)
    run_id = told(one, "run_id")
    two.call("REPLICAOF", "NO", "ONE")
    assert isinstance(await second.grant(now + 1, 10), SecondFenced)
    two.call("HSET", key.replace("<second>", "fence"), "opens", 0)  # as if it were over
    now = server_second(two) + 1
    assert isinstance(await second.grant(now, 10), SequenceGrant)
    one.call("REPLICAOF", two.host, two.port)
    wait_until(one.is_following, "the old master follows")
    one.stop_following()
    assert isinstance(await second.grant(now, 10), SequenceGrant)
    one.call("REPLICAOF", "NO", "ONE")
    assert told(one, "run_id") == run_id
    assert isinstance(await first.grant(now, 10), SecondFenced)
    await first._link.aclose()
    await second._link.aclose()


async def test_nodes_that_name_another_reach(valkey: ValkeyServer, key: str) -> None:
    """The fence is as wide as the widest that anybody named, also if that comes out later."""
    narrow = RedisStore.from_url(valkey.url).sequence_distributor(name="n", key=key)
    wide = RedisStore.from_url(valkey.url).sequence_distributor(
        name="n", key=key, tolerance=5, margin=3
    )
    now = server_second(valkey)
    one = await narrow.grant(now, 1)
    other = await wide.grant(now, 1)
    assert isinstance(one, SecondFenced)
    assert isinstance(other, SecondFenced)
    assert (one.opens - one.now, other.opens - one.opens) == (4, 5)
    valkey.call("HSET", key.replace("<second>", "fence"), "server", "another")
    again = await narrow.grant(now, 1)
    assert isinstance(again, SecondFenced)
    assert again.opens - again.now == 9
    await narrow._link.aclose()
    await wide._link.aclose()


async def test_a_server_whose_clock_was_far_ahead(valkey: ValkeyServer, key: str) -> None:
    """Counters that are needed again may have expired meanwhile; a step of some seconds is none."""
    distributor = RedisStore.from_url(valkey.url).sequence_distributor(name="n", key=key)
    fence = key.replace("<second>", "fence")
    open_fence(valkey, key)
    valkey.call("HSET", fence, "seen", server_second(valkey) + 55)
    assert isinstance(await distributor.grant(server_second(valkey), 1), SequenceGrant)
    seen = server_second(valkey) + 3600
    for field, value in (("seen", seen), ("reach", 3), ("server", "another")):
        # It was an hour ahead, for longer than counters are kept; then it is restarted as well.
        valkey.call("HSET", fence, field, value)
        reply = await distributor.grant(server_second(valkey), 1)
        assert isinstance(reply, SecondFenced)
        assert reply.opens == seen + 4  # what was granted then is granted no more
        assert valkey.call("HGET", fence, "seen") == str(seen)
    valkey.call("HSET", fence, "server", "another", "opens", 0, "seen", server_second(valkey) + 30)
    reply = await distributor.grant(server_second(valkey), 1)
    assert isinstance(reply, SecondFenced)
    assert reply.opens - reply.now > 20  # less than a minute, but the counters are lost
    valkey.call("DEL", fence)  # who is sure that nothing of the hour was used
    reply = await distributor.grant(server_second(valkey), 1)
    assert isinstance(reply, SecondFenced)
    assert reply.opens == reply.now + 4
    await distributor._link.aclose()


async def test_eviction_is_looked_at(
    valkey_factory: Callable[..., ValkeyServer], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R20: a policy other than noeviction is warned of, once, or refused."""
    server = valkey_factory()
    open_fence(server, key)
    client: Redis = Redis.from_url(server.url)
    for policy, expected in (("noeviction", 0), ("volatile-lru", 1), ("allkeys-random", 1)):
        server.call("CONFIG", "SET", "maxmemory-policy", policy)
        caplog.clear()
        distributor = RedisStore(client).sequence_distributor(name="n", key=key)
        with caplog.at_level(logging.WARNING, "aiocosid"):
            for _ in range(2):
                await distributor.grant(server_second(server), 1)
        assert len([each for each in caplog.messages if policy in each]) == expected
    refusing = RedisStore(client, durability="refuse").sequence_distributor(name="n", key=key)
    with pytest.raises(StoreError, match="noeviction"):
        await refusing.grant(server_second(server), 1)
    caplog.clear()
    ignoring = RedisStore(client, durability="ignore").sequence_distributor(name="n", key=key)
    await ignoring.grant(server_second(server), 1)
    assert caplog.messages == []
    await client.aclose()


async def test_errors_of_the_server(valkey_factory: Callable[..., ValkeyServer], key: str) -> None:
    """R21: each with its own text, and whether it may pass."""
    server = valkey_factory()
    distributor = RedisStore.from_url(server.url).sequence_distributor(name="n", key=key)
    open_fence(server, key)
    second = server_second(server) + 1
    name = key.replace("<second>", str(second))
    for value in (("SET", name, "x"), ("SET", name, "-5"), ("DEL", name), ("HSET", name, "a", "b")):
        server.call(*value)
        if value[0] != "DEL":
            with pytest.raises(CorruptCounterError, match=name) as caught:
                await distributor.grant(second, 1)
            assert not caught.value.retryable
            assert caught.value.__cause__ is not None
    server.call("DEL", name)
    server.call("CONFIG", "SET", "maxmemory", 1)
    await expect(distributor, StoreUnavailableError, "maxmemory", second)
    server.call("CONFIG", "SET", "maxmemory", 0)
    server.call("REPLICAOF", server.host, 1)
    await expect(distributor, StoreUnavailableError, "slave", second)
    server.call("REPLICAOF", "NO", "ONE")
    server.call("CONFIG", "SET", "min-replicas-to-write", 1)
    await expect(distributor, StoreUnavailableError, "replicas", second)
    server.call("CONFIG", "SET", "min-replicas-to-write", 0)
    server.call("ACL", "SETUSER", "default", "-info")
    await expect(distributor, StoreIdentityHiddenError, "info", second)
    server.call("ACL", "SETUSER", "default", "+info", "-eval", "-evalsha")
    await expect(distributor, StoreAuthenticationError, "NOPERM|permission", second)
    server.call("ACL", "SETUSER", "default", "+@all")
    open_fence(server, key)
    assert isinstance(await distributor.grant(server_second(server), 1), SequenceGrant)
    server.kill()
    await expect(distributor, StoreUnavailableError, "redis", second)
    await distributor._link.aclose()


async def test_a_node_of_a_cluster_without_its_client(valkey_cluster: ValkeyCluster) -> None:
    """R21: MOVED is no outage."""
    for node in valkey_cluster.masters:
        distributor = RedisStore.from_url(node.url).sequence_distributor(name="moved")
        if node is valkey_cluster.owner("aiocosid:{cosid.moved}:1"):
            continue
        await expect(distributor, StoreError, "part of a cluster", 1)
        await distributor._link.aclose()


async def expect(
    distributor: RedisSequenceDistributor, kind: type[StoreError], text: str, second: int
) -> None:
    """A grant fails as it has to."""
    with pytest.raises(kind, match=text) as caught:
        await distributor.grant(second, 1)
    assert caught.value.retryable == (kind is StoreUnavailableError)


async def test_replicas_have_to_confirm(valkey_sentinel: ValkeySentinel, key: str) -> None:
    """Too few of them make it an outage, and the sequences a gap."""
    one = valkey_sentinel.current_master()
    both = valkey_sentinel.master, valkey_sentinel.replica
    two = next(each for each in both if each is not one)
    open_fence(one, key)
    client: Redis = Redis.from_url(one.url)
    second = server_second(one)

    def asking(replicas: int) -> RedisSequenceDistributor:
        store = RedisStore(client, replicas=replicas, replica_timeout=0.2)
        return store.sequence_distributor(name="n", key=key, **LONG)

    assert await asking(1).grant(second, 10) == SequenceGrant(second, 1, 10)
    assert counter(two, key, second) == "10"
    with pytest.raises(StoreUnavailableError, match="1 of 2 replicas"):
        await asking(2).grant(second, 10)
    assert counter(one, key, second) == "20"
    await client.aclose()


@pytest.mark.stress
async def test_java_nodes_beside_ours(valkey: ValkeyServer, key: str) -> None:
    """A thousand times in turn on the same keys, in whatever second it is: no id comes twice."""
    open_fence(valkey, key)
    layout = ShardedLayout(1_546_300_800, zone="+08:00")
    ours = RedisStore.from_url(valkey.url).sequence_distributor(name="n", key=key)
    java: Redis = Redis.from_url(valkey.url)
    script = java.register_script(PUBLISHED)
    ids: set[int] = set()
    handed_out, second = 0, 0
    for turn in range(1000):
        if turn % 50 == 0:
            second = server_second(valkey)
        first, last, told_second = await script(
            keys=[key.replace("<second>", str(second))], args=[second, 524_287, 1 + turn % 40]
        )
        reply = await ours.grant(second, 1 + turn % 30)
        assert isinstance(reply, SequenceGrant)
        assert int(told_second) == reply.second
        for start, stop in ((first, last), (reply.first, reply.last)):
            ids |= {layout.compose(second, turn % 4096, each) for each in range(start, stop + 1)}
            handed_out += stop - start + 1
    assert len(ids) == handed_out
    assert len({layout.parse(each)[::2] for each in ids}) == handed_out  # without the shard
    await java.aclose()
    await ours._link.aclose()


async def test_both_scripts_mixed(redis_server: RedisServer, key: str) -> None:
    """R7: 6,000 calls at random; what the published one inverts, ours never hands out."""
    open_fence(redis_server, key)
    client: Any = SyncRedis.from_url(redis_server.url)
    client.script_load(GRANT.text)
    draw, now = random.Random(7), server_second(redis_server)  # noqa: S311 - the order of calls
    taken: list[tuple[int, int]] = []
    inverted, statuses = 0, set[int]()
    for _ in range(6):
        pipe = client.pipeline(transaction=False)
        asked: list[tuple[bool, int]] = []
        for _ in range(1000):
            is_ours, second, size = (
                draw.random() < 0.5,
                now + draw.randrange(3),
                draw.randint(1, 900),
            )
            counted, fence = key.replace("<second>", str(second)), key.replace("<second>", "fence")
            if is_ours:
                words = (second, size, 200_000, 60, 1, 600)
                pipe.execute_command("EVALSHA", GRANT.digest, 2, counted, fence, *words)
            else:
                pipe.eval(PUBLISHED, 1, counted, second, 200_000, size)
            asked.append((is_ours, second))
        for (is_ours, second), reply in zip(asked, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(reply, Exception):
                assert not is_ours
                assert "LOCKED" in str(reply)
                continue
            status, first, last = (reply[0], *reply[1:3]) if is_ours else (0, *reply[:2])
            if is_ours:
                statuses.add(status)
            if is_ours and status:
                continue
            if first > last:
                assert not is_ours
                inverted += 1
                continue
            assert 1 <= first <= last <= 200_000
            taken += [(second, each) for each in range(first, last + 1)]
    client.close()
    assert statuses == {0, 1}
    assert inverted > 0  # it is the published one
    assert len(taken) > 400_000
    assert len(set(taken)) == len(taken)


async def test_a_forked_child_and_another_loop(valkey: ValkeyServer) -> None:
    """A client of the parent's is refused."""
    client: Redis = Redis.from_url(valkey.url)
    distributor = RedisStore(client).sequence_distributor(name="n")
    distributor._link._connection._fork_generation -= 1  # what a fork comes to
    with pytest.raises(ForkedError):
        await distributor.aopen()
    with pytest.raises(ForkedError):
        await distributor.grant(1, 1)
    await client.aclose()
