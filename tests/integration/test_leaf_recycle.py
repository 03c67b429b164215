"""The fork's pools of worker ids, before and after, and its nodes beside us."""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.security import READ_ACL_UNSAFE  # type: ignore[import-untyped]

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import MachineIdDistributor
from aiocosid.compat.leaf_snowflake import zookeeper
from aiocosid.compat.leaf_snowflake.zookeeper import LeafZkRecycleStore
from aiocosid.errors import (
    CorruptMachineStateError,
    CosIdError,
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreAuthenticationError,
)
from aiocosid.snowflake import LEAF, SnowflakeId
from tests.servers import ZookeeperServer, eventually

from ._leaf_nodes import LeafRecycleNode, crash_after

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LATE = 2**53
PORT = 8080
HOUR = 3_600_000


class Pools:
    """The two pools of one test."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name
        self.root = f"/snowflake/{name}/recycle"
        self.now_ms = SYSTEM_CLOCK.now_ms()

    def make(self, ip: str = "10.0.0.1", size: int = 4) -> MachineIdDistributor:
        about: dict[str, Any] = {"name": self.name, "port": PORT, "pool_size": size}
        return LeafZkRecycleStore(self.client, ip=ip, **about).machine_id_distributor()

    def node(self, ip: str = "10.0.0.9") -> LeafRecycleNode:
        return LeafRecycleNode(self.client, self.name, ip, PORT)

    def held(self) -> dict[str, Any]:
        return self.read("inuse")

    def read(self, pool: str) -> dict[str, Any]:
        if self.client.exists(f"{self.root}/{pool}") is None:
            return {}
        names = sorted(self.client.get_children(f"{self.root}/{pool}"))
        return {
            name: json.loads(self.client.get(f"{self.root}/{pool}/{name}")[0]) for name in names
        }

    async def take(
        self, one: MachineIdDistributor, *, bits: int = 10, latest_ms: int = LATE
    ) -> int:
        grant = await one.distribute(bits, now_ms=self.now_ms, latest_ms=latest_ms)
        return grant.machine_id

    async def holds(self, one: MachineIdDistributor, number: int) -> bool:
        try:
            await one.renew(number, now_ms=self.now_ms, fence_ms=self.now_ms + 4500)
        except MachineIdLostError:
            return False
        return True


@pytest.fixture
def pools(zookeeper: ZookeeperServer, namespace: str) -> Pools:
    return Pools(zookeeper.behind, namespace)


async def test_golden_nodes(pools: Pools) -> None:
    """Both pools before and after; the moves are whole: I3, I4, I12."""
    pools.node().make_pool()
    blank = {"lastUsedIp": None, "lastUsedPort": None, "lastUsedTimestamp": None}
    before = {f"workId:{n}": {"workId": n, **blank} for n in range(5)}
    assert pools.read("notuse") == before
    one = pools.make()
    number = await pools.take(one, bits=2)
    (node,) = pools.held().values()
    stamp = pools.now_ms + -pools.now_ms % 64
    owner = {"lastUsedIp": "10.0.0.1", "lastUsedPort": "8080"}
    assert node == {"workId": number, **owner, "lastUsedTimestamp": stamp}
    raw = pools.client.get(f"{pools.root}/inuse/workId:{number}")[0]
    assert raw.startswith(b'{"workId":%d,"lastUsedIp":"10.0.0.1","lastUsedPort":"8080",' % number)
    assert len(pools.read("notuse")) == 4
    assert await pools.holds(one, number)
    (node,) = pools.held().values()
    assert 4500 <= node["lastUsedTimestamp"] - pools.now_ms < 4564
    await one.release(number, last_ms=pools.now_ms + 10)
    assert pools.held() == {}
    free = pools.read("notuse")
    assert free.keys() == before.keys()
    left = free[f"workId:{number}"]
    assert 0 <= left.pop("lastUsedTimestamp") - pools.now_ms - 10 < 64
    assert left == {"workId": number, "lastUsedIp": None, "lastUsedPort": None}
    assert (one.safe_guard, one.is_leased) == (3600, True)


async def test_many_at_once_where_nothing_was(pools: Pools) -> None:
    """The pools are made once and whole, without the fork's number too many: N12, N16, I2."""
    crowd = [pools.make(f"10.0.0.{n}", 16) for n in range(16)]
    assert sorted(await asyncio.gather(*map(pools.take, crowd))) == list(range(16))
    assert pools.read("notuse") == {}
    with pytest.raises(MachineIdOverflowError, match=r"all 16 .*10\.0\.0"):
        await pools.take(pools.make("10.0.1.1"))
    number = await pools.take(crowd[3])
    await crowd[3].release(number, last_ms=pools.now_ms)
    assert await pools.take(pools.make("10.0.1.1")) == number


async def test_what_does_not_fit_stays(pools: Pools) -> None:
    """The fork moves 1024 and only then refuses it; and what is in both pools is somebody's."""
    pools.node().make_pool()
    pools.client.create(f"{pools.root}/inuse/workId:3", b"{}")
    pools.client.create(f"{pools.root}/notuse/workId:x", b"{}")
    crowd = [pools.make(f"10.0.0.{n}") for n in range(3)]
    assert {await pools.take(each, bits=2) for each in crowd} == {0, 1, 2}
    with pytest.raises(MachineIdOverflowError, match="an unknown process"):
        await pools.take(pools.make("10.0.1.1"), bits=2)
    assert {*pools.read("notuse")} == {"workId:3", "workId:4", "workId:x"}


async def test_forks_beside_us(pools: Pools) -> None:
    """In turn, each with an id of its own; what they free is ours, and the other way round."""
    randomness = random.Random(1)  # noqa: S311 - the same each time
    held: dict[Any, int] = {}
    for turn in range(60):
        if (held and randomness.random() < 0.5) or len(held) == 5:
            each = randomness.choice(list(held))
            number = held.pop(each)
            if isinstance(each, LeafRecycleNode):  # killed, and reclaimed much later
                each.report(pools.now_ms - HOUR - 5000)
                each.reclaim(pools.now_ms)
            else:
                await each.release(number, last_ms=pools.now_ms - 100)
        elif turn % 2:
            one = pools.make(f"10.0.1.{turn}")
            held[one] = await pools.take(one)
        else:
            node = pools.node(f"10.0.0.{turn}")
            held[node] = node.start(pools.now_ms)
            node.report(pools.now_ms)
        assert len({*held.values()}) == len(held)
        for each, number in held.items():
            if not isinstance(each, LeafRecycleNode):
                assert await pools.holds(each, number)


async def test_what_was_silent_for_an_hour(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own time and by the server's clock, with a margin that is one: I4, I6, I7."""
    assert (zookeeper._MAX_UPLOAD_FAIL, zookeeper._MARGIN) == (3600, 240)
    node, late = pools.node("10.0.0.9"), pools.make("10.0.0.2")
    node.size = 0
    number = node.start(pools.now_ms)  # of which nothing is known yet
    with pytest.raises(MachineIdOverflowError):
        await pools.take(late)
    node.report(pools.now_ms - HOUR - 241_000)  # as a stale copy of the fork's looks
    with pytest.raises(MachineIdOverflowError):
        await pools.take(late)
    monkeypatch.setattr(zookeeper, "_MAX_UPLOAD_FAIL", 0.0)
    monkeypatch.setattr(zookeeper, "_MARGIN", 0.3)
    node.report(pools.now_ms)
    with pytest.raises(MachineIdOverflowError):
        await pools.take(late)

    async def taken() -> int:
        pools.now_ms = SYSTEM_CLOCK.now_ms()
        return await pools.take(late)

    assert await eventually(taken, MachineIdOverflowError) == number
    ours = pools.held()[f"workId:{number}"]
    assert ours["lastUsedIp"] == "10.0.0.2"
    assert ours["lastUsedTimestamp"] >= pools.now_ms
    node.reclaim(pools.now_ms + 1000)
    assert await pools.holds(late, number)
    node.report(pools.now_ms)  # it was paused, and goes on without looking: I5
    assert not await pools.holds(late, number)


async def test_a_life_before(pools: Pools) -> None:
    """After a crash the address has its id again, above the mark; the life before is told: N15."""
    one, two = pools.make(), pools.make()
    number = await pools.take(one)
    assert await pools.holds(one, number)
    grant = await two.distribute(10, now_ms=pools.now_ms, latest_ms=LATE)
    assert grant.machine_id == number
    assert grant.floor_ms >= pools.now_ms + 4500
    assert not await pools.holds(one, number)
    await one.release(number, last_ms=pools.now_ms)
    assert await pools.holds(two, number)
    # A fork's copy of bytes that are an hour old is the fork's, although they name us.
    stale = {"workId": 1, "lastUsedIp": "10.0.0.3", "lastUsedPort": "8080"}
    stale["lastUsedTimestamp"] = pools.now_ms - HOUR
    other = (number + 1) % 4
    pools.client.delete(f"{pools.root}/notuse/workId:{other}")
    pools.client.create(f"{pools.root}/inuse/workId:{other}", json.dumps(stale).encode())
    assert await pools.take(pools.make("10.0.0.3")) not in {number, other}


async def test_we_were_stopped_for_an_hour(pools: Pools) -> None:
    """A fork's node may have it by then, and our bytes with it until it reports: I4, I7."""
    one, node, minute = pools.make(size=1), pools.node(), 60_000
    pools.now_ms -= HOUR + minute
    number = await pools.take(one)
    assert await pools.holds(one, number)
    pools.now_ms += HOUR + minute
    node.reclaim(pools.now_ms)
    assert node.start(pools.now_ms) == number
    before = pools.held()
    assert before["workId:0"]["lastUsedIp"] == "10.0.0.1"
    assert not await pools.holds(one, number)
    await one.release(number, last_ms=pools.now_ms - HOUR)
    for each in (one, pools.make()):
        with pytest.raises(MachineIdOverflowError):
            await pools.take(each)
    assert pools.held() == before


async def test_about_to_be_reclaimed(pools: Pools) -> None:
    """After 56 minutes a fork may be at it, and would not see that we go on."""
    one, minute = pools.make(size=2), 60_000
    number = await pools.take(one)
    for silence, is_held in ((55 * minute, True), (57 * minute, False)):
        pools.now_ms += silence
        assert await pools.holds(one, number) is is_held
    for each in (one, pools.make(size=2)):
        assert await pools.take(each) == 1 - number
        await each.release(1 - number, last_ms=pools.now_ms)


async def test_without_rights_beside_leafs(zookeeper: ZookeeperServer, namespace: str) -> None:
    """The server's clock is only asked for where there is something to take over."""
    nobody = KazooClient(f"{zookeeper.hosts}/{namespace}")
    zookeeper.behind.ensure_path(f"/{namespace}/aiocosid")
    zookeeper.behind.set_acls(f"/{namespace}/aiocosid", READ_ACL_UNSAFE)
    await asyncio.to_thread(nobody.start)
    pools = Pools(nobody, "shop")
    try:
        number = await pools.take(pools.make(size=1))
        with pytest.raises(MachineIdOverflowError):
            await pools.take(pools.make("b"))
        pools.now_ms += HOUR + 250_000
        with pytest.raises(StoreAuthenticationError, match=r"/aiocosid/leaf/%2Fsnow.*workId:0"):
            await pools.take(pools.make("b"))
        assert number == 0
    finally:
        await asyncio.to_thread(nobody.stop)
        nobody.close()


async def test_a_time_in_the_future_is_passed_over(pools: Pools) -> None:
    """Where there is another; else it is the floor: I9."""
    pools.node().make_pool()
    for number in (0, 2, 3):
        data = json.dumps({"workId": number, "lastUsedTimestamp": pools.now_ms + HOUR - number})
        pools.client.set(f"{pools.root}/notuse/workId:{number}", data.encode())
    early = pools.now_ms + 1000
    assert await pools.take(pools.make("a"), bits=2, latest_ms=early) == 1
    assert await pools.take(pools.make("b"), bits=2, latest_ms=early) == 3


async def test_a_crash_after_each_step(pools: Pools, namespace: str) -> None:
    """No id is in both pools, or in none, and the next life needs no other: N14, I3."""
    for steps in range(1, 9):
        other = Pools(pools.client, f"{namespace}{steps}")
        for step in (steps, 100):
            one = other.make()
            with crash_after(one._registry.door._wire, step):  # type: ignore[attr-defined]
                try:
                    number = await other.take(one)
                    await one.release(number, last_ms=other.now_ms)
                except (CosIdError, ConnectionAbortedError):
                    assert step == steps
            if step == 100:
                assert {*other.read("notuse")} == {f"workId:{n}" for n in range(4)}
                assert other.held() == {}


async def test_nodes_that_are_no_good(pools: Pools) -> None:
    one = pools.make(size=1)
    await pools.take(one)
    for bad in (b"", b"x", b"[]", b'{"lastUsedTimestamp":-1}', b'{"lastUsedTimestamp":"1"}'):
        pools.client.set(f"{pools.root}/inuse/workId:0", bad)
        with pytest.raises(CorruptMachineStateError, match="workId:0"):
            await pools.take(pools.make("b"))
    for size in (0, 1025):
        with pytest.raises(InvalidArgumentError):
            pools.make(size=size)


async def test_ids_by_url(zookeeper: ZookeeperServer, pools: Pools) -> None:
    """1024 of them are made in one step; closing gives the id back."""
    url = f"leaf-zk-recycle+{zookeeper.url}/?name={pools.name}&ip=10.0.0.1&port=8080"
    async with LeafZkRecycleStore.from_url(url) as store:
        gen = SnowflakeId(store.machine_id_distributor(), layout=LEAF, random_start=100)
        async with gen:
            number = LEAF.parse(await gen.next_id()).machine_id
            assert {*pools.held()} == {f"workId:{number}"}
    assert len(pools.client.get_children(f"{pools.root}/notuse")) == 1024
    async with LeafZkRecycleStore.from_url(url) as alone:
        assert 0 <= await pools.take(alone.machine_id_distributor()) < 1024
    take = partial(LeafZkRecycleStore.from_url, url.replace("port=8080", ""))
    with pytest.raises(InvalidArgumentError, match="port"):
        take()
