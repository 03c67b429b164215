"""The cells of machine ids on Redis: all or nothing, once, and found out when they are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.abc import MachineGrant
from aiocosid.errors import (
    MachineIdLostError,
    MachineIdQuarantineError,
    StoreNotInitializedError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine.cells import ReadRequest
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.machine.rules import Caller, hand_out
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._backend import COMMIT
from tests.servers import FaultProxy, ValkeyCluster, ValkeyServer

from ._snowflakes import LAYOUT, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T = 1_700_000_000_000  # some time in the past, in ms
FAR = 2**62  # no floor is too late
NS = "ns"
CELLS = [f"cosid:{{{NS}}}:{name}" for name in ("itc_idx", "adder", "revert", "note", "seen")]
SPACE = f"cosid:{{{NS}}}:space"


@pytest.fixture(params=["valkey_factory", "redis_factory"])
def server(request: pytest.FixtureRequest) -> ValkeyServer:
    """One of the test's own, of either product."""
    start: Callable[..., ValkeyServer] = request.getfixturevalue(request.param)
    return start()


@pytest_asyncio.fixture
async def store(server: ValkeyServer) -> AsyncIterator[RedisStore]:
    async with RedisStore.from_url(server.patient_url) as store:
        await store.initialize(confirm_no_holders=True)
        yield store


def of(store: RedisStore, text: str) -> CellMachineIdDistributor:
    return store.machine_id_distributor(namespace=NS, instance_id=text)


async def take(machine: CellMachineIdDistributor) -> MachineGrant:
    return await machine.distribute(3, now_ms=T, latest_ms=FAR)


def scripts_run(server: ValkeyServer) -> int:
    lines = str(server.call("INFO", "commandstats")).splitlines()
    (found,) = [each for each in lines if each.startswith("cmdstat_evalsha:")]
    return int(found.partition("calls=")[2].partition(",")[0])


async def test_a_renewal_is_one_trip(store: RedisStore, server: ValkeyServer) -> None:
    """Also beside others who renew, take and give back."""
    one, other = of(store, "one"), of(store, "other")
    await take(one)
    await take(other)
    before = scripts_run(server)
    for turn in range(5):
        await one.renew(0, now_ms=T + turn, fence_ms=T + turn)
        await other.renew(1, now_ms=T + turn, fence_ms=T + turn)
    assert scripts_run(server) - before == 10
    third = of(store, "third")
    await take(third)
    await third.release(2, last_ms=-1)
    before = scripts_run(server)
    await one.renew(0, now_ms=T + 9, fence_ms=T + 9)
    assert scripts_run(server) - before == 1


async def test_a_commit_whose_reply_is_lost_or_that_is_cancelled(
    server: ValkeyServer, store: RedisStore
) -> None:
    """The id is taken once, whatever the caller has heard of it."""
    async with (
        FaultProxy(server.host, server.port) as proxy,
        RedisStore.from_url(f"redis://{proxy.host}:{proxy.port}") as far,
    ):
        one = of(far, "one")
        await take(one)
        await one.release(0, last_ms=T)
        proxy.swallow_replies(to=COMMIT.digest)
        with pytest.raises(StoreUnavailableError):
            await take(one)
        assert server.call("HKEYS", CELLS[0]) == ["one"]
        assert await take(one) == MachineGrant(0, T)
        two, backend = of(far, "two"), far._backend
        snapshot = await backend.read(NS, ReadRequest("two"))
        caller = Caller("two", nonce="nonce")
        decision = hand_out(snapshot, caller, bits=3, now_ms=T, latest_ms=FAR, token="x")  # noqa: S106
        proxy.blackhole(replies=True)
        call = asyncio.ensure_future(backend.commit(snapshot, decision.changes))
        await until(lambda: server.call("HLEN", CELLS[0]) == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        proxy.heal()
        assert await take(two) == MachineGrant(1, T)
        assert server.call("GET", CELLS[1]) == "1"


@pytest.mark.parametrize(
    "lost", [[*CELLS, SPACE], CELLS, CELLS[:1], CELLS[3:4], [CELLS[0], CELLS[3]]]
)
async def test_what_is_deleted_under_a_living_marker(
    store: RedisStore, server: ValkeyServer, lost: list[str]
) -> None:
    """Nobody is handed an id; who has one goes on with it, and is heard of again."""
    owners = [of(store, text) for text in "abc"]
    numbers = [(await take(each)).machine_id for each in owners]
    server.call("DEL", *lost)
    for _ in range(2):
        with pytest.raises(MachineIdQuarantineError):
            await take(of(store, "newcomer"))
    for each, number in zip(owners, numbers, strict=True):
        await each.reassert(number, now_ms=T, fence_ms=T)
    held = {each.machine_id: each.instance_id for each in await store.machines(namespace=NS)}
    assert held == {0: "a", 1: "b", 2: "c"}


async def test_one_of_several_is_deleted(store: RedisStore, server: ValkeyServer) -> None:
    """The entry and the record of one machine id alone."""
    for text in "abc":
        await take(of(store, text))
    server.call("HDEL", CELLS[0], "b")
    server.call("HDEL", CELLS[3], "1")
    with pytest.raises(MachineIdQuarantineError):
        await take(of(store, "newcomer"))


async def test_databases_that_are_swapped(store: RedisStore, server: ValkeyServer) -> None:
    """For an empty one it is not initialised; for another one that is, the owner is told."""
    owner = of(store, "owner")
    await take(owner)
    server.call("SWAPDB", 0, 1)
    with pytest.raises(StoreNotInitializedError):
        await take(of(store, "newcomer"))
    await store.initialize(confirm_no_holders=True)
    assert await take(of(store, "newcomer")) == MachineGrant(0, -1)
    with pytest.raises(MachineIdLostError, match="newcomer holds it"):
        await owner.renew(0, now_ms=T, fence_ms=T)


async def test_java_takes_and_gives_back_without_an_alarm(
    store: RedisStore, server: ValkeyServer
) -> None:
    """What ours had may be Java's since: its record is still there, and so is the count right."""
    for text in "ab":
        await take(of(store, text))
    server.call("HDEL", CELLS[0], "a")
    server.call("HSET", CELLS[0], "java", f"0|{T + 1}")
    assert (await take(of(store, "c"))).machine_id == 2
    server.call("HDEL", CELLS[0], "java")
    server.call("HSET", CELLS[2], "0", T + 2)
    assert await take(of(store, "d")) == MachineGrant(0, T + 2)


@pytest.mark.usefixtures("store")
async def test_two_of_one_instance_id_open_at_once(server: ValkeyServer) -> None:
    """Both are open, twenty times out of twenty: who is overtaken takes the id once more.

    Each is open before the next renewal of the other, by which that would take it back.
    """

    async def open_both(turn: int) -> None:
        stores = [RedisStore.from_url(server.patient_url) for _ in range(2)]
        who: Any = {"namespace": f"twins{turn}", "instance_id": "10.0.0.1:8080"}
        made = [each.machine_id_distributor(interval=2, safe_guard=30, **who) for each in stores]
        generators = [SnowflakeId(MachineIdLease(each, bits=1), layout=LAYOUT) for each in made]
        opened = await asyncio.gather(
            *(each.__aenter__() for each in generators), return_exceptions=True
        )
        assert opened == generators
        for generator in generators:
            await generator.aclose()
        for each in stores:
            await each.aclose()

    await asyncio.gather(*map(open_both, range(20)))


async def test_an_instance_that_is_no_utf8(store: RedisStore, server: ValkeyServer) -> None:
    """Somebody's: it holds its id, and loses it when it was silent for long."""
    import redis  # the driver sends bytes as they are

    with redis.Redis.from_url(server.url) as client:
        client.hset(CELLS[0], b"\xff", f"0|{T}")
        client.set(CELLS[1], 1)
        client.hset(CELLS[0], "other", f"1|{2**45}")
        one = store.machine_id_distributor(namespace=NS, instance_id="one", safe_guard=300)
        grant = await one.distribute(1, now_ms=T, latest_ms=FAR)
        assert grant == MachineGrant(0, T, is_fenced=False)
        assert set(client.hkeys(CELLS[0])) == {b"one", b"other"}


async def test_on_a_cluster(valkey_cluster: ValkeyCluster, namespace: str) -> None:
    """No commit spans the slots: a namespace is marked by itself, and its count lies beside it."""
    async with RedisStore.from_url(valkey_cluster.url) as store:
        with pytest.raises(UnsupportedByStoreError, match="aiocosid init --store URL --namespace"):
            await store.is_initialized()
        one = store.machine_id_distributor(namespace=namespace, instance_id="one")
        with pytest.raises(StoreNotInitializedError):
            await take(one)
        await store.initialize_namespace(namespace=namespace, confirm_no_holders=True)
        assert await take(one) == MachineGrant(0, -1)
        key = f"cosid:{{{namespace}}}:count"
        assert valkey_cluster.owner(key).call("HLEN", key) == 1
        valkey_cluster.owner(key).call("DEL", f"cosid:{{{namespace}}}:itc_idx")
        other = store.machine_id_distributor(namespace=namespace, instance_id="other")
        with pytest.raises(MachineIdQuarantineError):
            await take(other)


async def test_a_replica_shows_what_it_has(
    valkey_factory: Callable[..., ValkeyServer],
) -> None:
    """To an operator; whoever asks for an id, or has one, is refused by it."""
    master = valkey_factory()
    replica = valkey_factory("--replicaof", master.host, master.port)
    async with RedisStore.from_url(replica.url) as store:
        await until(replica.is_following)
        async with RedisStore.from_url(master.url) as at_master:
            await at_master.initialize(confirm_no_holders=True)
            await take(of(at_master, "one"))
        await until(lambda: replica.call("EXISTS", *CELLS, SPACE) == 5)  # nothing was given back
        assert await store.machine_bits(namespace=NS) == 3
        for refused in (
            lambda: take(of(store, "one")),
            lambda: of(store, "one").renew(0, now_ms=T, fence_ms=T),
            lambda: of(store, "one").release(0, last_ms=T),
            lambda: store.evict_machine(namespace=NS, machine_id=0),
            lambda: store.initialize_namespace(namespace=NS, confirm_no_holders=True),
            lambda: store.initialize(confirm_no_holders=True),
        ):
            with pytest.raises(StoreUnavailableError):
                await refused()
