"""Leaf's registries, while nobody answers at their address: real processes, killed and started."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiocosid import store_from_url
from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.compat.leaf_snowflake.mysql import LeafWorkerIdStore
from aiocosid.compat.leaf_snowflake.zookeeper import LeafZkNormalStore
from aiocosid.errors import InvalidArgumentError, MachineIdUnavailableError
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import LEAF, SnowflakeId
from tests.command import environment
from tests.servers import FaultProxy, MariadbServer, Server, ZookeeperServer, eventually

from ._leaf_nodes import LeafNormalNode, RefusedError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the boot clock, and kill -9"),
]

ME = "ip=10.0.0.1&port=8080"

LIFE = """
import asyncio, json, sys, time
import aiocosid
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import LEAF, SnowflakeId

async def main():
    began = time.monotonic()
    async with aiocosid.store_from_url(sys.argv[1]) as store:
        lease = MachineIdLease(store.machine_id_distributor())
        async with SnowflakeId(lease, layout=LEAF) as gen:
            ours = [await gen.next_id()]
            waited = time.monotonic() - began
            ours += await gen.next_ids(100)
            print(json.dumps([waited, min(ours), max(ours)]), flush=True)
            while command := sys.stdin.readline().strip():
                while command == "confirmed" and not lease.statistics().renewals:
                    await asyncio.sleep(0.01)
                ours = await gen.next_ids(100)
                print(json.dumps([lease.statistics().losses, min(ours), max(ours)]), flush=True)

asyncio.run(main())
"""


class Life:
    """A process with an address in a registry."""

    def __init__(self, url: str) -> None:
        argv = [sys.executable, "-c", LIFE, url]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=environment())

    def answer(self, command: str = "") -> list[float]:
        """Return seconds or losses, and the lowest and the highest id."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if command:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
        told: list[float] = json.loads(self.process.stdout.readline())
        return told

    def end(self, *, dies: bool) -> None:
        if dies:
            self.process.kill()
        self.process.communicate()


def live(url: str, *, dies: bool) -> list[float]:
    """Run a life to its kill or orderly end; return its start in seconds, and its bounds."""
    life = Life(url)
    try:
        return life.answer()
    finally:
        life.end(dies=dies)


@pytest.fixture(params=["zk_normal", "mysql"])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "mysql":
        made: MariadbServer = request.getfixturevalue("mariadb_factory")()
        asyncio.run(prepare(made))
        return made
    other: ZookeeperServer = request.getfixturevalue("zookeeper_factory")()
    return other


async def prepare(server: MariadbServer) -> None:
    async with LeafWorkerIdStore.from_url(f"leaf-workerid+{server.url}?{ME}") as store:
        await store.create_schema()


def url_of(server: Any, state_dir: Path, offline: float = 3600, **more: object) -> str:
    about = {"state_dir": state_dir, "offline": offline, **more}
    query = "&".join([ME, *(f"{name}={value}" for name, value in about.items())])
    if server.url.startswith("mysql"):
        return f"leaf-workerid+{server.url}?{query}"
    return f"leaf-zk-normal+{server.url}/?name=shop&{query}"


class Link:
    """The way of one process to a server, which may be cut."""

    def __init__(self, server: Any, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.url = server.url.replace(f":{server.port}", f":{proxy.port}")

    def cut(self) -> None:
        self.proxy.refuse()
        self.proxy.cut()


@pytest_asyncio.fixture
async def link(server: Any) -> AsyncIterator[Link]:
    async with FaultProxy(server.host, server.port) as proxy:
        yield Link(server, proxy)


async def is_confirmed(lease: MachineIdLease) -> bool:
    return lease.statistics().renewals > 0


async def is_silent(lease: MachineIdLease) -> bool:
    return lease.limit_ms() == -1


@pytest.mark.stress
def test_it_starts_without_its_registry(server: Server, tmp_path: Path) -> None:
    """After a kill and after an orderly end; when the registry is back it is asked."""
    url = url_of(server, tmp_path)
    lives = [live(url, dies=True)]
    server.kill()
    lives += [live(url, dies=dies) for dies in (False, True, True)]
    last = Life(url)
    try:
        lives.append(last.answer())
        server.start()
        losses, *bounds = last.answer("confirmed")
    finally:
        last.end(dies=True)
    assert losses == 0
    lives += [[0, *bounds], live(url, dies=True), live(url, dies=False)]
    ids = [bound for _, *life in lives for bound in life]
    assert ids == sorted({*ids})
    assert len({LEAF.parse(int(each)).machine_id for each in ids}) == 1
    waits = [wait for wait, *_ in lives[1:]]
    assert max(waits) < 5, f"a mark is an hour ahead: {waits}"
    print(waits)  # noqa: T201 - shown when it fails


async def test_another_process_took_the_address(server: Server, link: Link, tmp_path: Path) -> None:
    """When the registry is back the one that started without it is silent, and has no right."""
    url = url_of(link, tmp_path)
    await asyncio.to_thread(live, url, dies=True)
    link.cut()
    async with store_from_url(url) as store:
        lease = MachineIdLease(store.machine_id_distributor(), on_lost="raise")
        async with SnowflakeId(lease, layout=LEAF) as gen:
            number = LEAF.parse(await gen.next_id()).machine_id
            async with store_from_url(url_of(server, tmp_path / "elsewhere")) as direct:
                other = direct.machine_id_distributor()
                now_ms = SYSTEM_CLOCK.now_ms()
                grant = await other.distribute(10, now_ms=now_ms, latest_ms=2**60)
                assert grant.machine_id == number
                assert grant.floor_ms >= lease.limit_ms()
                await link.proxy.accept()
                await eventually(partial(is_silent, lease), deadline=30)
                await other.renew(number, now_ms=now_ms, fence_ms=grant.floor_ms + 1000)
    link.cut()
    async with store_from_url(url) as store:
        again = MachineIdLease(store.machine_id_distributor(), start_timeout=2)
        with pytest.raises(MachineIdUnavailableError):
            await again.__aenter__()


async def test_after_a_leaf_node(zookeeper_factory: Any, tmp_path: Path) -> None:
    """By the file of the fork's node; a node that takes the address up again silences it."""
    server: ZookeeperServer = await asyncio.to_thread(zookeeper_factory)
    LeafNormalNode(server.behind, "shop", "10.0.0.9").start(1)  # it has number 0
    node = LeafNormalNode(server.behind, "shop", "10.0.0.1")
    now_ms = SYSTEM_CLOCK.now_ms()
    node.start(now_ms)
    node.report(now_ms)
    directory = tmp_path / "shop" / "leafconf" / "8080"
    directory.mkdir(parents=True)
    text = f"workerID={node.worker_id}\nmaxTimestamp={now_ms}\n"
    await asyncio.to_thread((directory / "workerID.properties").write_text, text)
    async with FaultProxy(server.host, server.port) as proxy:
        link = Link(server, proxy)
        link.cut()
        url = url_of(link, tmp_path / "state", leaf_dir=tmp_path)
        bounds = [now_ms - LEAF.epoch_ms << 22]
        for _ in range(2):
            _, *ids = await asyncio.to_thread(live, url, dies=True)
            bounds += map(int, ids)
        async with store_from_url(url) as store:
            lease = MachineIdLease(store.machine_id_distributor(), on_lost="raise")
            async with SnowflakeId(lease, layout=LEAF) as gen:
                bounds.append(await gen.next_id())
                assert LEAF.parse(bounds[-1]).machine_id == node.worker_id
                assert lease.limit_ms() <= SYSTEM_CLOCK.now_ms() + 3_600_000
                await proxy.accept()
                await eventually(partial(is_confirmed, lease), deadline=30)
                bounds.append(await gen.next_id())
                node.report(SYSTEM_CLOCK.now_ms())
                await eventually(partial(is_silent, lease), deadline=30)
    assert bounds == sorted({*bounds})


async def test_what_is_no_right(zookeeper: ZookeeperServer, tmp_path: Path) -> None:
    """A client of the user's, whose server may be another one; a file without a limit."""
    about: Any = {"name": "shop", "ip": "10.0.0.1", "port": 8080, "state_dir": tmp_path}
    with pytest.raises(InvalidArgumentError, match="connect with a URL"):
        LeafZkNormalStore(zookeeper.behind, **about, offline=60)
    with pytest.raises(InvalidArgumentError, match="leaf_dir"):
        LeafZkNormalStore(zookeeper.behind, **about, leaf_dir="")
    with pytest.raises(InvalidArgumentError, match="longer than the interval of 3"):
        LeafZkNormalStore.from_url(url_of(zookeeper, tmp_path, offline=3))
    LeafZkNormalStore(zookeeper.behind, **about)


def test_its_way_back(zookeeper_factory: Any, tmp_path: Path) -> None:
    """A Java node that ZooKeeper does not answer starts by the file, as the process has left it."""
    server: ZookeeperServer = zookeeper_factory()
    LeafNormalNode(server.behind, "shop", "10.0.0.9").start(1)  # it has number 0
    node = LeafNormalNode(server.behind, "shop", "10.0.0.1")
    directory = tmp_path / "shop" / "leafconf" / "8080"
    with pytest.raises(RefusedError):
        node.start_by_file(directory, SYSTEM_CLOCK.now_ms())
    directory.mkdir(parents=True)
    (directory / "workerID.properties").write_text("workerID=0\n")  # Leaf's own, without a time
    with pytest.raises(RefusedError):
        node.start_by_file(directory, SYSTEM_CLOCK.now_ms())
    url = f"leaf-zk-normal+{server.url}/?name=shop&{ME}&leaf_dir={tmp_path}"
    for dies in (True, False):
        life = Life(url)
        try:
            _, *bounds = life.answer()
            if dies:
                _, *bounds = life.answer("confirmed")  # its time is that of a renewal
        finally:
            life.end(dies=dies)
        last = LEAF.parse(int(bounds[-1]))
        if dies:
            with pytest.raises(RefusedError):
                node.start_by_file(directory, last.timestamp_ms)
        path = f"{node.forever}/10.0.0.1:8080-{last.machine_id:010}"
        stored = json.loads(server.behind.get(path)[0])["timestamp"]
        assert last.machine_id > 0
        assert stored >= last.timestamp_ms
        assert node.start_by_file(directory, stored) == last.machine_id
        with pytest.raises(RefusedError):
            node.start_by_file(directory, stored - 1)
        assert [each.name for each in directory.iterdir()] == ["workerID.properties"]
        is_lowered = stored - last.timestamp_ms < 64  # milliseconds that name the owner
        assert is_lowered is not dies
