"""Worker ids of Twitter's snowflake: its node before and after, its processes beside us."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import NodeExistsError  # type: ignore[import-untyped]

from aiocosid import connect
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import MachineIdDistributor
from aiocosid.compat.twitter import TwitterStore
from aiocosid.errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    MachineIdInUseError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import TWITTER, SnowflakeId
from tests.servers import FaultProxy, ZookeeperServer, eventually

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LATE = 2**53


@pytest.fixture
def path(namespace: str) -> str:
    """Where the servers of one test register."""
    return f"/{namespace}/snowflake-servers"


@pytest.fixture
def twitter(zookeeper: ZookeeperServer) -> Iterator[Any]:
    """A client of one of Twitter's processes, with a session of its own."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def register(client: Any, path: str, worker_id: int, text: str) -> None:
    """Twitter's `registerWorkerId`."""
    client.create(f"{path}/{worker_id}", text.encode(), ephemeral=True, makepath=True)


def on(client: Any, **about: Any) -> MachineIdDistributor:
    return TwitterStore(client, **about).machine_id_distributor()


def by(url: str, **about: Any) -> MachineIdDistributor:
    """In a session of its own, which `end` closes."""
    query = "&".join(f"{name}={value}" for name, value in about.items())
    store = TwitterStore.from_url(f"twitter+{url}{'&' if '?' in url else '?'}{query}")
    machine = store.machine_id_distributor()
    STORES[machine] = store
    return machine


STORES: dict[MachineIdDistributor, TwitterStore] = {}


async def end(one: MachineIdDistributor) -> None:
    await STORES.pop(one).aclose()


def ours(zookeeper: ZookeeperServer, path: str, **about: Any) -> MachineIdDistributor:
    return by(zookeeper.url, path=path, **about)


async def take(one: MachineIdDistributor, *, latest_ms: int = LATE) -> tuple[int, int]:
    grant = await one.distribute(10, now_ms=SYSTEM_CLOCK.now_ms(), latest_ms=latest_ms)
    return grant.machine_id, grant.floor_ms


async def test_golden_node(zookeeper: ZookeeperServer, path: str, twitter: Any) -> None:
    """Row before, first id, last id, row after; the ids are Twitter's, of both numbers."""
    server = zookeeper.behind
    assert server.exists(path) is None
    one = ours(zookeeper, path, worker_id=7, datacenter_id=3, host="10.0.0.1", port=7609)
    async with MachineIdLease(one) as lease, SnowflakeId(lease, layout=TWITTER) as gen:
        first, *_, last = await gen.next_ids(100)
        data, stat = server.get(f"{path}/7")
        assert (data, stat.ephemeralOwner != 0) == (b"10.0.0.1:7609", True)
        assert {TWITTER.parse(each).machine_id for each in (first, last)} == {3 * 32 + 7}
        assert first >> 12 & 31 == 7
        assert first >> 17 & 31 == 3
        await asyncio.to_thread(register, twitter, path, 0, "10.0.0.2:7609")
    assert server.get_children(path) == ["0"]
    again = ours(zookeeper, path, worker_id=7, datacenter_id=3)
    machine_id, floor_ms = await take(again)
    assert machine_id == 103
    assert floor_ms >= TWITTER.parse(last).timestamp_ms
    await end(again)
    assert server.get_children(path) == ["0"]


async def test_examined(zookeeper: ZookeeperServer, path: str, twitter: Any) -> None:
    """Each of Twitter's processes with its worker id, and no more than that."""
    store = TwitterStore(zookeeper.behind, path=path)
    assert await store.examine() == []
    register(twitter, path, 3, "10.0.0.9:7609")
    [found] = await store.examine()
    assert (found.name, found.stored, found.problems) == ("10.0.0.9:7609", 3, ())
    assert zookeeper.behind.get_children(path) == ["3"]


async def test_the_first_that_is_free(zookeeper: ZookeeperServer, path: str, twitter: Any) -> None:
    """Beside Twitter's, and beside each other, on one client as well; then none is left."""
    for worker_id in (0, 2, *range(5, 32)):
        await asyncio.to_thread(register, twitter, path, worker_id, f"h:{worker_id}")
    pair = [on(zookeeper.behind, path=path, port=1) for _ in range(2)]
    alone = ours(zookeeper, path, datacenter_id=1)
    assert [(await take(each))[0] for each in (*pair, alone)] == [1, 3, 32 + 4]
    assert [(await take(each))[0] for each in (*pair, alone)] == [1, 3, 32 + 4]
    full = ours(zookeeper, path)
    with pytest.raises(MachineIdOverflowError, match="h:0"):
        await take(full)
    for each, machine_id, fence_ms in ((pair[0], 1, LATE - 1), (pair[1], 3, 50)):
        await each.renew(machine_id, now_ms=1, fence_ms=fence_ms)
        await each.release(machine_id, last_ms=-1)
    assert await take(full, latest_ms=100) == (3, 50)
    for each in (full, alone):
        await end(each)


async def test_it_is_somebody_elses(zookeeper: ZookeeperServer, path: str, twitter: Any) -> None:
    """Another host's is refused; one of our own host and port is waited for."""
    await asyncio.to_thread(register, twitter, path, 5, "h:1")
    other = ours(zookeeper, path, worker_id=5, host="h", port=2)
    with pytest.raises(MachineIdInUseError, match="h:1"):
        await take(other)
    own = ours(zookeeper, path, worker_id=5, host="h", port=1)
    with pytest.raises(StoreUnavailableError, match="this process's former"):
        await take(own)
    async with asyncio.TaskGroup() as group:
        lease = MachineIdLease(own, start_timeout=30)
        task = group.create_task(lease.__aenter__())
        await eventually(lambda: has_failed(lease))
        await asyncio.to_thread(twitter.delete, f"{path}/5")
        await task
    assert lease.machine_id == 5
    await lease.aclose()
    await end(other)


async def test_it_is_another_objects_of_our_session(zookeeper: ZookeeperServer, path: str) -> None:
    """Which does not end while the client lives: nothing to wait for, whatever their names."""
    client = zookeeper.behind
    make = partial(on, client, worker_id=5, path=path, host="h")
    one = make(port=1)
    assert (await take(one))[0] == 5
    for port in (1, 2):
        with pytest.raises(MachineIdInUseError, match=r"another object .* client.*h:1"):
            await take(make(port=port))
    await one.release(5, last_ms=-1)
    assert (await take(make(port=2)))[0] == 5


async def has_failed(lease: MachineIdLease) -> bool:
    return lease.last_error is not None


async def test_a_session_that_is_over(zookeeper: ZookeeperServer, path: str, twitter: Any) -> None:
    """It is silent at once; when the node is gone and Twitter's, it takes another id."""
    async with FaultProxy(zookeeper.host, zookeeper.port) as proxy:
        url = f"zookeeper://{proxy.host}:{proxy.port}{zookeeper.chroot}?session_timeout=1"
        one = by(url, path=path)
        assert (one.safe_guard, one.interval) == (1.0, 0.2)
        async with MachineIdLease(one) as lease:
            assert lease.machine_id == 0
            proxy.refuse()
            proxy.cut()

            await until(lambda: lease.limit_ms() == -1)
            claim = partial(register, twitter, path, 0, "h:1")
            await eventually(lambda: asyncio.to_thread(claim), NodeExistsError)
            await proxy.accept()

            await until(lambda: lease.machine_id == 1 and lease.limit_ms() > 0)
            assert lease.term == 2
            with pytest.raises(MachineIdLostError, match="h:1 holds it"):
                await one.renew(0, now_ms=1, fence_ms=1)
        with pytest.raises(MachineIdLostError, match="ended the session"):
            await one.renew(1, now_ms=1, fence_ms=1)
        await end(one)


async def test_bad_arguments(zookeeper: ZookeeperServer, path: str) -> None:
    """Each is told at once; sessions that the server does not grant are refused."""
    several: list[dict[str, Any]] = [
        *({"worker_id": 32}, {"worker_id": -1}, {"datacenter_id": 32}, {"port": -1}),
        *({"path": "x"}, {"path": "/"}, {"path": "/x/../y"}, {"path": "/x/"}, {"host": ""}),
    ]
    for bad in several:
        with pytest.raises(InvalidArgumentError):
            by(zookeeper.url, **bad)
    one = ours(zookeeper, path)
    with pytest.raises(InvalidArgumentError, match="10"):
        await one.distribute(5, now_ms=1, latest_ms=1)
    with pytest.raises(InvalidArgumentError, match="machine_id"):
        await one.renew(32, now_ms=1, fence_ms=1)
    record = f"/aiocosid/twitter/{path.replace('/', '%2F')}/0"
    zookeeper.behind.create(record, b"1", makepath=True)
    with pytest.raises(CorruptMachineStateError, match="holds b'1'"):
        await take(one)
    await end(one)
    for odd in (4.02, 8.03):  # of which the driver cuts off a millisecond
        short = by(f"{zookeeper.url}?session_timeout={odd}", path=path, worker_id=1)
        await take(short)
        assert short.safe_guard == odd
        await end(short)
    long = by(f"{zookeeper.url}?session_timeout=60", path=path)
    with pytest.raises(StoreError, match="grants sessions of 10 s"):
        await take(long)
    await end(long)


async def test_by_url(zookeeper: ZookeeperServer, twitter: KazooClient, path: str) -> None:
    """A store of worker ids alone; what it opened is closed, and a client passed in is not."""
    about = f"path={path}&datacenter_id=3&worker_id=7&host=10.0.0.9&port=8000"
    url = f"twitter+{zookeeper.url}?{about}&session_timeout=5"
    async with connect(url) as ids:
        tweets = await ids.snowflake("tweet", layout=TWITTER)
        assert TWITTER.parse(await tweets.next_id()).machine_id == 3 * 32 + 7
        assert zookeeper.behind.get(f"{path}/7")[0] == b"10.0.0.9:8000"
    assert zookeeper.behind.get_children(path) == []
    async with TwitterStore(twitter, path=path, host="a") as store:
        machine = store.machine_id_distributor(namespace="x")
        assert machine is store.machine_id_distributor(instance_id="y")
        assert repr(store) == f"<TwitterStore {path} a:7609>"
        await store.create_schema()
        assert await store.counters() == ()
        with pytest.raises(UnsupportedByStoreError, match="worker ids only"):
            store.segment_distributor(name="a")
        with pytest.raises(UnsupportedByStoreError):
            await store.set_floor(name="a", above=1)
    assert twitter.connected
    with pytest.raises(InvalidArgumentError, match=r"worker_id must .*, not 'one'"):
        TwitterStore.from_url(f"twitter+{zookeeper.url}?worker_id=one")
