"""Machine ids on ZooKeeper: CosId's nodes, a Java node beside us, sessions, a tree that forgot."""

from __future__ import annotations

import asyncio
import random
import shutil
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kazoo.exceptions import (  # type: ignore[import-untyped]
    BadVersionError,
    NodeExistsError,
    NoNodeError,
)

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.errors import (
    CorruptMachineStateError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    StoreUnavailableError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine.cells import ReadRequest
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.zookeeper import ZookeeperStore
from tests.machine_marks import mark_zookeeper
from tests.servers import FaultProxy, ZookeeperServer, eventually

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

MULTI = 14  # the protocol's number of a transaction
LATE = 2**53


@pytest_asyncio.fixture
async def store(zookeeper: ZookeeperServer, namespace: str) -> AsyncIterator[ZookeeperStore]:
    mark_zookeeper(zookeeper, namespace)
    async with ZookeeperStore.from_url(zookeeper.url) as store:
        yield store


def texts(zookeeper: ZookeeperServer, path: str) -> dict[str, str]:
    server = zookeeper.behind
    return {name: server.get(f"{path}/{name}")[0].decode() for name in server.get_children(path)}


class JavaNode:
    """CosId's distributor, by its own steps; see its ZookeeperMachineIdDistributor."""

    def __init__(self, client: Any, namespace: str, instance: str, *, size: int) -> None:
        self.client = client
        self.root = f"/cosid/{namespace}"
        self.path = f"{self.root}/__itc_idx/{instance}"
        self.size = size
        for name in ("__itc_idx", "__revert"):
            client.ensure_path(f"{self.root}/{name}")

    def distribute(self, now_ms: int, safe_guard_at: int) -> int:
        """Own, then the pool, then the counter, then an expired one; -1 for none."""
        with suppress(NoNodeError):
            data, _ = self.client.get(self.path)
            return int(data.partition(b"|")[0])
        for name in self.client.get_children(f"{self.root}/__revert"):
            with suppress(NoNodeError):
                self.client.delete(f"{self.root}/__revert/{name}")
                return self._write(int(name), now_ms)
        machine_id = self._count()
        if machine_id < self.size:
            return self._write(machine_id, now_ms)
        for name in self.client.get_children(f"{self.root}/__itc_idx"):
            path = f"{self.root}/__itc_idx/{name}"
            with suppress(NoNodeError):
                machine_id, stamp = map(int, self.client.get(path)[0].split(b"|"))
                if stamp <= safe_guard_at:
                    self.client.delete(path)
                    return self._write(machine_id, now_ms)
        return -1

    def _count(self) -> int:
        path = f"{self.root}/__counter"
        while True:
            try:
                data, stat = self.client.get(path)
                (before,) = struct.unpack(">i", data)
                self.client.set(path, struct.pack(">i", before + 1), stat.version)
            except NoNodeError:
                with suppress(NodeExistsError):
                    self.client.create(path, struct.pack(">i", 1))
                    return 0
            except BadVersionError:
                continue
            else:
                return int(before)

    def _write(self, machine_id: int, now_ms: int) -> int:
        self.client.create(self.path, f"{machine_id}|{now_ms}".encode())
        return machine_id

    def renew(self, machine_id: int, now_ms: int) -> None:
        self.client.set(self.path, f"{machine_id}|{now_ms}".encode())

    def release(self, machine_id: int, now_ms: int) -> None:
        self.client.delete(self.path)
        self.client.create(f"{self.root}/__revert/{machine_id}", f"{machine_id}|{now_ms}".encode())


async def test_golden_nodes(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """CosId's four kinds of nodes, before and after each call."""
    root, server = f"/cosid/{namespace}", zookeeper.behind
    one = store.machine_id_distributor(namespace=namespace, instance_id="10.0.0.1:8080")
    other = store.machine_id_distributor(namespace=namespace, instance_id="a/b")
    for number, each in enumerate((one, other)):
        grant = await each.distribute(3, now_ms=1_700_000_000_123, latest_ms=LATE)
        assert (grant.machine_id, grant.floor_ms) == (number, -1)
    assert server.get(f"{root}/__counter")[0] == b"\0\0\0\x02"
    entries = {"10.0.0.1:8080": "0|1700000000123", "a%2Fb": "1|1700000000123"}
    assert texts(zookeeper, f"{root}/__itc_idx") == entries
    await one.renew(0, now_ms=1_700_000_001_000, fence_ms=1_700_000_090_000)
    assert texts(zookeeper, f"{root}/__itc_idx")["10.0.0.1:8080"] == "0|1700000001000"
    await one.release(0, last_ms=1_700_000_002_000)
    assert texts(zookeeper, f"{root}/__itc_idx") == {"a%2Fb": "1|1700000000123"}
    assert texts(zookeeper, f"{root}/__revert") == {"0": "0|1700000002000"}
    grant = await one.distribute(3, now_ms=1_700_000_000_000, latest_ms=LATE)
    assert (grant.machine_id, grant.floor_ms) == (0, 1_700_000_002_000)
    assert texts(zookeeper, f"{root}/__revert") == {}
    assert texts(zookeeper, f"{root}/__itc_idx")["10.0.0.1:8080"] == "0|1700000002000"
    assert server.get(f"{root}/__counter")[0] == b"\0\0\0\x02"
    server.create(f"{root}/__itc_idx/x", b"")
    server.create(f"{root}/__itc_idx/x/y", b"2|1700000000000")  # CosId's of such an instance
    listed = await store.machines(namespace=namespace)
    assert [(each.machine_id, each.instance_id) for each in listed] == [
        *((0, "10.0.0.1:8080"), (1, "a/b"), (2, "x/y")),
    ]


async def test_a_name_of_javas_that_nests_expires(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """An id of a Java instance with a slash in its name is found like any other."""
    root, server = f"/cosid/{namespace}", zookeeper.behind
    server.create(f"{root}/__itc_idx/x", b"")
    server.create(f"{root}/__itc_idx/x/y", b"0|1700000000000")
    server.create(f"{root}/__counter", struct.pack(">i", 5))
    server.create(f"{root}/__itc_idx/z", f"1|{SYSTEM_CLOCK.now_ms() + 60_000}".encode())
    one = store.machine_id_distributor(
        namespace=namespace, instance_id="a", safe_guard=0.1, interval=0.03
    )
    other = store.machine_id_distributor(namespace=namespace, instance_id="b")
    # Its node has just been written, which counts as a renewal.
    grant = await eventually(
        lambda: one.distribute(1, now_ms=SYSTEM_CLOCK.now_ms(), latest_ms=LATE),
        MachineIdOverflowError,
    )
    assert (grant.machine_id, grant.floor_ms) == (0, 1_700_000_000_000)
    with pytest.raises(MachineIdOverflowError, match="a, z"):
        await other.distribute(1, now_ms=SYSTEM_CLOCK.now_ms(), latest_ms=LATE)
    assert server.get(f"{root}/__counter")[0] == struct.pack(">i", 5)


async def test_beside_java(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """A Java node and we take and give back; nobody is given what another holds."""
    await live_together(zookeeper, store, namespace, lives=20, workers=4)


@pytest.mark.nightly
async def test_beside_java_for_long(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """A thousand lives."""
    await live_together(zookeeper, store, namespace, lives=1000, workers=2)


async def live_together(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str, *, lives: int, workers: int
) -> None:
    chance, held = random.Random(5), dict[int, str]()  # noqa: S311 - the same every time
    numbers = count()

    async def ours(text: str) -> None:
        made = store.machine_id_distributor(namespace=namespace, instance_id=text)
        grant = await made.distribute(3, now_ms=SYSTEM_CLOCK.now_ms(), latest_ms=LATE)
        machine_id = grant.machine_id
        assert held.setdefault(machine_id, text) == text
        await made.renew(machine_id, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=-1)
        del held[machine_id]
        await made.release(machine_id, last_ms=SYSTEM_CLOCK.now_ms())

    async def theirs(text: str) -> None:
        java = JavaNode(zookeeper.behind, namespace, text, size=8)
        machine_id = await asyncio.to_thread(java.distribute, SYSTEM_CLOCK.now_ms(), 0)
        assert 0 <= machine_id < 8
        assert held.setdefault(machine_id, text) == text
        await asyncio.to_thread(java.renew, machine_id, SYSTEM_CLOCK.now_ms())
        del held[machine_id]
        await asyncio.to_thread(java.release, machine_id, SYSTEM_CLOCK.now_ms())

    async def worker() -> None:
        while (number := next(numbers)) < lives:
            await (ours if chance.random() < 0.5 else theirs)(f"i{number}")

    await asyncio.gather(*(worker() for _ in range(workers)))
    left = {each.machine_id: each.instance_id for each in await store.machines(namespace=namespace)}
    assert set(left.values()) == {""}
    assert max(left) < workers, "an id was lost on the way: no more were held at once"


async def test_damaged_nodes(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """What is no state of a machine id is told by its place, and nothing is written."""
    root, server = f"/cosid/{namespace}", zookeeper.behind
    one = store.machine_id_distributor(namespace=namespace, instance_id="a")
    for path, data in {
        f"{root}/__itc_idx/a": [b"1|x", b"", b"2147483648|1"],
        f"{root}/__counter": [b"1", b"", b"\xff" * 4],
        f"/aiocosid/{namespace}/notes/00000000": [b"{}", b"", b"\xff"],
        f"/aiocosid/counts/{namespace}": [b"{}"],
    }.items():
        for each in data:
            server.create(path, each, makepath=True)
            with pytest.raises(CorruptMachineStateError, match=path):
                await one.distribute(3, now_ms=1, latest_ms=LATE)
            server.delete(path)
    assert texts(zookeeper, f"{root}/__itc_idx") == {}
    assert (await one.distribute(3, now_ms=1, latest_ms=LATE)).machine_id == 0


async def test_what_others_have_damaged(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """It is nobody else's fault: it counts as held, and is left alone."""
    root, server = f"/cosid/{namespace}", zookeeper.behind
    one, other, late = (
        store.machine_id_distributor(namespace=namespace, instance_id=text) for text in "abc"
    )
    assert (await one.distribute(2, now_ms=1, latest_ms=LATE)).machine_id == 0
    server.set(f"{root}/__itc_idx/a", b"nil|1700000000000")
    server.create(f"{root}/__itc_idx/java", b"")
    server.create(f"{root}/__revert/1", b"1")
    server.set(f"{root}/__counter", struct.pack(">i", 3))
    times = {"now_ms": SYSTEM_CLOCK.now_ms(), "latest_ms": LATE}
    assert (await other.distribute(2, **times)).machine_id == 3
    with pytest.raises(MachineIdOverflowError):
        await late.distribute(2, **times)
    found = await store._backend.read(namespace, ReadRequest(is_complete=True))
    assert [(each.place, each.found, each.instance) for each in found.damages] == [
        (f"{root}/__itc_idx/a", "b'nil|1700000000000'", "a"),
        (f"{root}/__itc_idx/java", "b''", "java"),
    ]
    assert found.slots[1].is_damaged
    assert texts(zookeeper, f"{root}/__revert") == {"1": "1"}
    assert texts(zookeeper, f"{root}/__itc_idx")["a"] == "nil|1700000000000"


async def test_nodes_that_somebody_has_removed(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """CosId's folders are made again; without our notes nobody knows who holds what."""
    one = store.machine_id_distributor(namespace=namespace, instance_id="a")
    assert (await one.distribute(3, now_ms=1, latest_ms=LATE)).machine_id == 0
    zookeeper.behind.delete(f"/cosid/{namespace}/__revert", recursive=True)
    await one.release(0, last_ms=-1)
    assert (await one.distribute(3, now_ms=1, latest_ms=LATE)).machine_id == 0
    await one.renew(0, now_ms=1, fence_ms=-1)
    zookeeper.behind.delete(f"/aiocosid/{namespace}/notes", recursive=True)
    with pytest.raises(MachineIdQuarantineError):
        await one.distribute(3, now_ms=1, latest_ms=LATE)
    await one.reassert(0, now_ms=1, fence_ms=-1)
    assert texts(zookeeper, f"/aiocosid/{namespace}/notes").keys() == {"00000000"}


async def test_a_lost_reply(zookeeper: ZookeeperServer, namespace: str) -> None:
    """The transaction took effect; the same instance finds its id, and nobody else has it."""
    mark_zookeeper(zookeeper, namespace)
    async with (
        FaultProxy(zookeeper.host, zookeeper.port) as proxy,
        ZookeeperStore.from_url(
            f"zookeeper://{proxy.host}:{proxy.port}{zookeeper.chroot}"
        ) as store,
    ):
        one, other = (
            store.machine_id_distributor(namespace=namespace, instance_id=text) for text in "ab"
        )
        with suppress(MachineIdLostError):
            await one.renew(0, now_ms=1, fence_ms=1)  # the nodes that all need are made
        proxy.swallow_replies(to=struct.pack(">i", MULTI) + b"\0\0\0")
        with pytest.raises(StoreUnavailableError):
            await one.distribute(3, now_ms=1, latest_ms=LATE)
        assert proxy.swallowed == 1

        async def ask(each: CellMachineIdDistributor) -> int:
            return (await each.distribute(3, now_ms=1, latest_ms=LATE)).machine_id

        assert await eventually(lambda: ask(other), StoreUnavailableError) == 1
        assert await ask(one) == 0
        proxy.swallow_replies(to=struct.pack(">i", MULTI) + b"\0\0\0")
        with pytest.raises(StoreUnavailableError):
            await one.release(0, last_ms=5)
        assert await eventually(lambda: ask(other), StoreUnavailableError) == 1
        await one.release(0, last_ms=5)
        assert await ask(one) == 0


async def test_a_session_that_is_suspended(zookeeper: ZookeeperServer, namespace: str) -> None:
    """The lease is silent at once, and speaks again after a renewal; the id stays."""
    mark_zookeeper(zookeeper, namespace)
    async with (
        FaultProxy(zookeeper.host, zookeeper.port) as proxy,
        ZookeeperStore.from_url(
            f"zookeeper://{proxy.host}:{proxy.port}{zookeeper.chroot}"
        ) as store,
    ):
        machine = store.machine_id_distributor(namespace=namespace)
        async with MachineIdLease(machine) as lease, SnowflakeId(lease) as gen:
            await gen.next_id()
            assert lease.limit_ms() > 0
            proxy.refuse()
            proxy.cut()

            await until(lambda: lease.limit_ms() == -1)
            waiting = asyncio.create_task(gen.next_id())
            done, _ = await asyncio.wait((waiting,), timeout=0.1)
            assert not done
            await proxy.accept()
            assert await waiting > 0
            assert (lease.term, lease.statistics().losses) == (1, 0)


async def test_a_black_hole(zookeeper: ZookeeperServer, namespace: str) -> None:
    """It is silent as soon as a ping was not answered, long before the session is over."""
    mark_zookeeper(zookeeper, namespace)
    async with FaultProxy(zookeeper.host, zookeeper.port) as proxy:
        url = f"zookeeper://{proxy.host}:{proxy.port}{zookeeper.chroot}?session_timeout=1"
        async with ZookeeperStore.from_url(url) as store:
            machine = store.machine_id_distributor(namespace=namespace)
            async with MachineIdLease(machine) as lease:
                proxy.blackhole(requests=True, replies=True)

                await until(lambda: lease.limit_ms() == -1)
                assert lease.statistics().seconds_left > 200
                proxy.heal()


async def test_nodes_in_the_pool_that_are_no_numbers(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """They are not CosId's, and left alone."""
    pool = f"/cosid/{namespace}/__revert"
    names = {"x", "007", "9" * 5000}
    for name in names:
        zookeeper.behind.create(f"{pool}/{name}", b"", makepath=True)
    one = store.machine_id_distributor(namespace=namespace, instance_id="a")
    grant = await one.distribute(3, now_ms=1_700_000_000_000, latest_ms=LATE)
    assert grant.machine_id == 0
    assert {each.machine_id for each in await store.machines(namespace=namespace)} == {0}
    assert set(zookeeper.behind.get_children(pool)) == names


@pytest_asyncio.fixture
async def own(zookeeper_factory: Any) -> ZookeeperServer:
    """A server that may forget."""
    server: ZookeeperServer = await asyncio.to_thread(zookeeper_factory)
    return server


@pytest.mark.stress
@pytest.mark.parametrize("is_wiped", [True, False])
async def test_a_tree_that_forgot(
    own: ZookeeperServer, tmp_path: Path, is_wiped: bool, namespace: str
) -> None:
    """Emptied, or put back: who holds an id asserts it; nobody else is handed one for a while."""
    async with ZookeeperStore.from_url(own.url) as store:
        await store.initialize_namespace(namespace=namespace)
        one, other, late = (
            store.machine_id_distributor(namespace=namespace, instance_id=text)
            for text in ("a", "b", "c")
        )
        times = {"now_ms": SYSTEM_CLOCK.now_ms(), "latest_ms": LATE}
        assert (await one.distribute(3, **times)).machine_id == 0
        copy = tmp_path / "copy"
        await asyncio.to_thread(own.stop)
        shutil.copytree(own.data, copy)
        await asyncio.to_thread(own.start)

        async def take() -> int:
            return (await other.distribute(3, **times)).machine_id

        assert await eventually(take, StoreUnavailableError) == 1
        await asyncio.to_thread(own.kill)
        own.wipe()
        if not is_wiped:
            shutil.copytree(copy / "version-2", own.data / "version-2")
        await asyncio.to_thread(own.start)

        async def keep() -> None:
            await other.reassert(1, now_ms=times["now_ms"], fence_ms=times["now_ms"])

        await eventually(keep, StoreUnavailableError)
        with pytest.raises(MachineIdQuarantineError):
            await late.distribute(3, **times)
        await one.reassert(0, now_ms=times["now_ms"], fence_ms=-1)
        held = {
            each.machine_id: each.instance_id for each in await store.machines(namespace=namespace)
        }
        assert held == {0: "a", 1: "b"}
        await store.initialize_namespace(namespace=namespace, confirm_no_holders=True)
        assert (await late.distribute(3, **times)).machine_id == 2
