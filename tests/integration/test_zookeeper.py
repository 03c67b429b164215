"""Segments on ZooKeeper: CosId's bytes, faults on the way, whose the session is."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    BadVersionError,
    NoNodeError,
)
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

from aiocosid.errors import (
    CorruptCounterError,
    CounterNotCreatedError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.stores.zookeeper import ZookeeperStore
from tests.machine_marks import mark_zookeeper_store
from tests.servers import FaultProxy, ZookeeperServer, eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

SET = 5  # the protocol's number of a write


@pytest.fixture(autouse=True)
def _marker(zookeeper: ZookeeperServer) -> None:
    """Counters are created."""
    mark_zookeeper_store(zookeeper)


@pytest_asyncio.fixture
async def proxy(zookeeper: ZookeeperServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(zookeeper.host, zookeeper.port) as proxy:
        yield proxy


def through(proxy: FaultProxy, zookeeper: ZookeeperServer, **options: float) -> ZookeeperStore:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return ZookeeperStore.from_url(
        f"zookeeper://{proxy.host}:{proxy.port}{zookeeper.chroot}?{query}"
    )


def value(zookeeper: ZookeeperServer, path: str) -> int:
    return int.from_bytes(zookeeper.behind.get(path)[0], "big")


def curator_add(client: Any, path: str, step: int) -> int:
    """CosId's node: Curator's DistributedAtomicLong, by its own steps."""
    while True:
        try:
            data, stat = client.get(path)
        except NoNodeError:
            client.ensure_path(path.rpartition("/")[0])
            client.create(path, struct.pack(">q", step))
            return step
        (before,) = struct.unpack(">q", data) if data else (0,)
        try:
            client.set(path, struct.pack(">q", before + step), stat.version)
        except BadVersionError:
            continue
        return int(before + step)


class TestNodes:
    """What lies there, before and after."""

    async def test_golden_bytes(self, zookeeper: ZookeeperServer, namespace: str) -> None:
        """Eight bytes, the highest first; what is none, as an emptied node, stays as it is."""
        server = zookeeper.behind
        async with ZookeeperStore.from_url(zookeeper.url) as store:

            async def after(name: str, data: bytes | None, step: int) -> tuple[int, bytes]:
                path = f"/cosid/{namespace}.{name}"
                if data is not None:
                    server.create(path, data, makepath=True)
                counter = store.segment_distributor(namespace=namespace, name=name, step=step)
                max_id = await counter.next_max_id(step)
                return max_id, server.get(path)[0]

            assert await after("new", None, 100) == (100, bytes(7) + b"\x64")
            assert await after("java", bytes(6) + b"\x01\x00", 10) == (266, bytes(6) + b"\x01\x0a")
            assert await after("a/b", None, 1) == (1, bytes(7) + b"\x01")
            damaged = {"empty": b"", "int": bytes(4), "minus": b"\xff" * 8, "text": b"12345678x"}
            for name, data in damaged.items():
                with pytest.raises(CorruptCounterError, match=name):
                    await after(name, data, 1)
                assert server.get(f"/cosid/{namespace}.{name}")[0] == data
                with pytest.raises(CorruptCounterError, match=name):
                    await store.set_floor(namespace=namespace, name=name, above=9)
            server.create(f"/cosid/{namespace}.new-locker", bytes(8))
            listed = await store.counters(namespace=namespace)
            assert {each.namespaced_name: each.last_max_id for each in listed} == {
                f"{namespace}.{name}": last
                for name, last in {"new": 100, "java": 266, "a/b": 1}.items()
            }

    async def test_beside_curator(self, zookeeper: ZookeeperServer, namespace: str) -> None:
        """A Java node and we take turns on one counter, and share nothing."""
        await alternate(zookeeper, namespace, 50)

    @pytest.mark.nightly
    async def test_beside_curator_for_long(
        self, zookeeper: ZookeeperServer, namespace: str
    ) -> None:
        """A thousand times."""
        await alternate(zookeeper, namespace, 1000)

    async def test_a_chroot(self, zookeeper: ZookeeperServer, namespace: str) -> None:
        """Of a URL it is made; of a client it has to be there."""
        async with ZookeeperStore.from_url(f"{zookeeper.url}/{namespace}/ids") as store:
            assert await store.counters() == []
            await store.initialize()
            assert await store.segment_distributor(name="a").next_max_id(5) == 5
        assert value(zookeeper, f"/{namespace}/ids/cosid/cosid.a") == 5
        client = KazooClient(f"{zookeeper.hosts}/{namespace}/none")
        client.start_async()
        try:
            with pytest.raises(StoreError, match="chroot"):
                await ZookeeperStore(client).initialize()
        finally:
            client.stop()
            client.close()

    async def test_rights(self, zookeeper: ZookeeperServer, namespace: str) -> None:
        """A node of another user's is refused, and found with the user and the password."""
        path = f"/cosid/{namespace}.a"
        zookeeper.behind.ensure_path("/cosid")  # everybody's, else it would be theirs as well
        zookeeper.behind.create(path, bytes(8), acl=[make_digest_acl("u", "p/w", all=True)])
        async with ZookeeperStore.from_url(zookeeper.url) as store:
            with pytest.raises(StoreAuthenticationError):
                await store.segment_distributor(namespace=namespace, name="a").next_max_id(5)
        hosts = f"u:p%2Fw@{zookeeper.hosts}"
        async with ZookeeperStore.from_url(f"zookeeper://{hosts}") as store:
            counter = store.segment_distributor(namespace=namespace, name="a")
            assert await counter.next_max_id(5) == 5
        zookeeper.behind.delete(path)  # whoever lists all would meet it


async def alternate(zookeeper: ZookeeperServer, namespace: str, times: int) -> None:
    path = f"/cosid/{namespace}.order"
    taken: list[tuple[int, int]] = []
    async with ZookeeperStore.from_url(zookeeper.url) as store:
        ours = store.segment_distributor(namespace=namespace, name="order")
        for number in range(times):
            step = 1 + number % 7
            theirs = await asyncio.to_thread(curator_add, zookeeper.behind, path, step)
            taken.append((theirs - step, theirs))
            together = (
                ours.next_max_id(10),
                asyncio.to_thread(curator_add, zookeeper.behind, path, step),
            )
            mine, theirs = await asyncio.gather(*together)
            taken += (mine - 10, mine), (theirs - step, theirs)
    ends = [0, *(end for _, end in sorted(taken))]
    assert [start for start, _ in sorted(taken)] == ends[:-1]
    assert value(zookeeper, path) == ends[-1]


class TestFaults:
    """A server that cannot be reached, is silent, or whose answers are lost."""

    async def test_a_lost_reply_wastes_a_range(
        self, zookeeper: ZookeeperServer, proxy: FaultProxy, namespace: str
    ) -> None:
        """The write took effect; whoever comes next reads it, and adds to it."""
        path = f"/cosid/{namespace}.order"
        async with through(proxy, zookeeper) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert await counter.next_max_id(10) == 10
            # In a transaction: the type, that it is not the last one, and no error so far.
            sent = f"{zookeeper.chroot}{path}".encode()
            header = struct.pack(">i?ii", SET, False, -1, len(sent))
            proxy.swallow_replies(to=header + sent)
            with pytest.raises(StoreUnavailableError, match="ConnectionLoss"):
                await counter.next_max_id(10)
            assert (proxy.swallowed, value(zookeeper, path)) == (1, 20)
            assert await eventually(lambda: counter.next_max_id(10), StoreUnavailableError) == 30

    async def test_what_was_given_up_is_not_sent_later(
        self,
        zookeeper: ZookeeperServer,
        proxy: FaultProxy,
        namespace: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Without a session nothing is queued in the driver, which would send it afterwards."""
        monkeypatch.setattr("aiocosid.stores.zookeeper.tree.REPLY_TIMEOUT", 0.2)
        async with through(proxy, zookeeper) as store:
            counter = store.segment_distributor(namespace=namespace, name="order")
            assert await counter.next_max_id(10) == 10
            proxy.refuse()
            proxy.cut()
            await eventually(lambda: is_suspended(store))
            with pytest.raises(StoreUnavailableError, match="no session with"):
                await counter.next_max_id(10)
            task = asyncio.create_task(counter.next_max_id(10))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            queued = list(store._backend.link._wire.client._queue)  # type: ignore[union-attr]  # it is open
            assert queued == []
            await proxy.accept()
            assert await eventually(lambda: counter.next_max_id(10), StoreUnavailableError) == 20

    async def test_a_silent_server(
        self,
        zookeeper: ZookeeperServer,
        proxy: FaultProxy,
        namespace: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It is told in time; closing takes no longer than it may; then all goes on."""
        monkeypatch.setattr("aiocosid.stores.zookeeper.tree.REPLY_TIMEOUT", 0.1)
        monkeypatch.setattr("aiocosid.stores._connection.CLOSE_TIMEOUT", 0.1)
        store = through(proxy, zookeeper)
        counter = store.segment_distributor(namespace=namespace, name="order")
        assert await eventually(lambda: counter.next_max_id(10), StoreUnavailableError) == 10
        proxy.blackhole(requests=True, replies=True)
        with pytest.raises(StoreUnavailableError, match=r"no answer within 0\.1 s"):
            await counter.next_max_id(10)
        under_way = asyncio.create_task(counter.next_max_id(10))
        await asyncio.sleep(0)
        await store.aclose()
        with pytest.raises(StoreUnavailableError, match="closed while"):
            await under_way
        proxy.heal()
        assert await eventually(lambda: counter.next_max_id(10), StoreUnavailableError) == 20
        await store.aclose()

    @pytest.mark.stress
    async def test_a_counter_that_was_put_back(
        self, zookeeper_factory: Any, namespace: str
    ) -> None:
        """A server that forgot takes a client that has seen more, and the loss is told."""
        server: ZookeeperServer = await asyncio.to_thread(zookeeper_factory)
        async with ZookeeperStore.from_url(server.url) as store:
            await store.create_schema(disposable=True)
            counter = store.segment_distributor(namespace=namespace, name="order")
            for _ in range(3):
                await counter.next_max_id(10)
            await asyncio.to_thread(server.kill)
            server.wipe()
            await asyncio.to_thread(server.start)
            with pytest.raises(StoreRolledBackError):
                await eventually(lambda: counter.next_max_id(10), StoreUnavailableError)


async def test_a_counter_is_created_beside_the_marker(
    zookeeper: ZookeeperServer, namespace: str
) -> None:
    """One that exists needs none; nor does the floor of an operator."""
    async with ZookeeperStore.from_url(zookeeper.url) as store:

        async def add(name: str) -> int:
            counter = store.segment_distributor(namespace=namespace, name=name)
            return await counter.next_max_id(10)

        assert await add("old") == 10
        zookeeper.behind.delete("/aiocosid/marker")
        assert await add("old") == 20
        with pytest.raises(CounterNotCreatedError, match="it has no marker"):
            await add("new")
        assert zookeeper.behind.exists(f"/cosid/{namespace}.new") is None
        await store.set_floor(namespace=namespace, name="new", above=7, create=True)
        assert await add("new") == 17
        mark_zookeeper_store(zookeeper)  # as other tests find it


async def is_suspended(store: ZookeeperStore) -> bool:
    return not store._backend.link._wire.client.connected  # type: ignore[union-attr]  # it is open


class TestSessions:
    """Whose they are, on which loop and in which process."""

    async def test_a_users_client(self, zookeeper: ZookeeperServer, namespace: str) -> None:
        """It is shared and never stopped; one that was not started is told."""
        client = KazooClient(zookeeper.hosts)
        one = ZookeeperStore(client)
        assert repr(one) == f"<ZookeeperStore {zookeeper.hosts}>"
        second = ZookeeperStore(client)
        other = second.segment_distributor(namespace=namespace, name="order")
        assert one._backend.link._wire is second._backend.link._wire
        client.start()
        try:
            async with one:
                mine = one.segment_distributor(namespace=namespace, name="order")
                assert [await each.next_max_id(5) for each in (mine, other)] == [5, 10]
            await second.aclose()
            assert client.connected
            assert await other.next_max_id(5) == 15
        finally:
            client.stop()
            client.close()
        wire = "aiocosid.stores.zookeeper.tree.REPLY_TIMEOUT"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, 0.01)
            with pytest.raises(StoreUnavailableError, match="not started or was stopped"):
                await other.next_max_id(5)
