"""Cells on ZooKeeper: a commit is one step, sent twice, late, or cut off; what is lost is found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import pytest_asyncio

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.errors import (
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    StoreNotInitializedError,
    StoreRolledBackError,
)
from aiocosid.machine import rules
from aiocosid.machine.cells import Changes, ReadRequest, Snapshot
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.machine.rules import Caller, Decision
from aiocosid.stores.zookeeper import ZookeeperStore
from aiocosid.stores.zookeeper._backend import ZookeeperBackend
from aiocosid.stores.zookeeper.tree import Nodes, Wire
from tests.machine_marks import mark_zookeeper_store
from tests.servers import ZookeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LATE = 2**53
NOW = 1_700_000_000_000


@pytest_asyncio.fixture
async def store(zookeeper: ZookeeperServer) -> AsyncIterator[ZookeeperStore]:
    """A store that is initialised, for all namespaces."""
    async with ZookeeperStore.from_url(zookeeper.url) as store:
        await store.initialize(confirm_no_holders=True)
        yield store
    mark_zookeeper_store(zookeeper)  # as other tests find it


def below(server: Any, *paths: str) -> dict[str, tuple[bytes, int]]:
    """All nodes below some, with what they hold and their versions."""
    found: dict[str, tuple[bytes, int]] = {}
    for path in paths:
        if server.exists(path):
            data, stat = server.get(path)
            found[path] = data, stat.version
            found |= below(server, *(f"{path}/{name}" for name in server.get_children(path)))
    return found


def tree(zookeeper: ZookeeperServer, namespace: str) -> dict[str, tuple[bytes, int]]:
    """All that lies there for a namespace."""
    paths = f"/cosid/{namespace}", f"/aiocosid/{namespace}", f"/aiocosid/counts/{namespace}"
    return below(zookeeper.behind, *paths)


def one_of(store: ZookeeperStore, namespace: str, text: str) -> CellMachineIdDistributor:
    return store.machine_id_distributor(namespace=namespace, instance_id=text)


async def take(one: CellMachineIdDistributor, now_ms: int | None = None) -> int:
    now_ms = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
    return (await one.distribute(2, now_ms=now_ms, latest_ms=LATE)).machine_id


def hand_out(snapshot: Snapshot, text: str) -> Decision:
    return rules.hand_out(
        snapshot,
        Caller(text, guard_ms=300_000, nonce="n"),
        bits=2,
        now_ms=NOW,
        latest_ms=LATE,
        token=f"{text} {NOW}",
    )


def _signed(snapshot: Snapshot) -> Changes:
    """A renewal of machine id 0."""
    slot = snapshot.slots[0]
    assert slot.record is not None
    record = replace(slot.record, version=slot.record.version + 1)
    return Changes("a", slots={0: replace(slot, record=record)}, signed=0)


async def test_a_renewal_is_one_trip(
    store: ZookeeperStore, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction, and nothing else; it stands in nobody's way who takes or renews another."""
    one, other = one_of(store, namespace, "a"), one_of(store, namespace, "b")
    assert [await take(one), await take(other)] == [0, 1]
    await one.renew(0, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=-1)  # it made the namespace: reads
    ask, sent = Wire.ask, list[int]()

    async def counted(wire: Wire, *requests: Any) -> list[Any]:
        sent.append(len(requests))
        return await ask(wire, *requests)

    monkeypatch.setattr(Wire, "ask", counted)
    for number in range(1, 4):
        for machine_id, each in enumerate((one, other)):
            await each.renew(machine_id, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=number)
    assert sent == [1] * 6
    monkeypatch.undo()
    assert await take(one_of(store, namespace, "c")) == 2
    await other.release(1, last_ms=-1)
    monkeypatch.setattr(Wire, "ask", counted)
    await one.renew(0, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=9)
    assert sent == [1] * 7


async def test_a_namespace_that_has_the_versions_of_before(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """It was removed and written again, and is another one: nothing is written to it."""
    one, server, backend = one_of(store, namespace, "a"), zookeeper.behind, store._backend
    assert await take(one) == 0
    need = ReadRequest("a", 0)
    snapshot = await backend.read(namespace, need)
    assert await backend.commit(snapshot, _signed(snapshot))
    former = tree(zookeeper, namespace)
    server.delete(f"/cosid/{namespace}", recursive=True)
    server.delete(f"/aiocosid/{namespace}", recursive=True)
    for path, (data, version) in former.items():
        if path.startswith((f"/cosid/{namespace}", f"/aiocosid/{namespace}")):
            if not path.startswith(f"/aiocosid/{namespace}/space/"):
                server.ensure_path(path)
            for _ in range(version):
                server.set(path, data)
    copied = tree(zookeeper, namespace)
    assert {path: each for path, each in former.items() if "/space/" not in path} == copied
    assert not await backend.commit(snapshot, _signed(snapshot))
    assert tree(zookeeper, namespace) == copied
    again = await backend.read(namespace, need)
    assert await backend.commit(again, _signed(again))


async def test_java_that_moves_ids_all_the_time(
    zookeeper: ZookeeperServer,
    store: ZookeeperStore,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By removing one cell, then creating another: no read finds both ids, and neither is lost."""
    server, theirs, read = zookeeper.behind, f"/cosid/{namespace}", ZookeeperBackend.read
    others = [one_of(store, namespace, text) for text in "ab"]
    assert [await take(each) for each in others] == [0, 1]
    for number, each in enumerate(others):
        await each.release(number, last_ms=-1)
    held = [f"{theirs}/__itc_idx/java {number}" for number in range(2)]
    pool = [f"{theirs}/__revert/{number}" for number in range(2)]

    def moves() -> Iterator[None]:
        server.delete(pool[0])
        for here, there in cycle([(held, pool), (pool, held)]):
            yield  # id 0 is nowhere
            server.delete(there[1])
            server.create(here[0], b"0|0")
            yield  # id 1 is
            server.delete(here[0])
            server.create(here[1], b"1|0")

    moving = moves()

    async def moved(self: ZookeeperBackend, of: str, need: ReadRequest) -> Snapshot:
        next(moving)
        return await read(self, of, need)

    monkeypatch.setattr(ZookeeperBackend, "read", moved)
    assert [await take(one_of(store, namespace, text)) for text in "cd"] == [2, 1]


async def test_what_java_has_just_taken_from_the_pool(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """It keeps the old stamp for a minute; the time of its node shows that it is not expired."""
    server, theirs = zookeeper.behind, f"/cosid/{namespace}"
    others = [one_of(store, namespace, text) for text in "abcd"]
    for number, each in enumerate(others):
        assert await take(each) == number
    await others[1].release(1, last_ms=-1)
    server.delete(f"{theirs}/__revert/1")
    server.create(f"{theirs}/__itc_idx/java", b"1|0")
    with pytest.raises(MachineIdOverflowError):
        await take(one_of(store, namespace, "e"))


@pytest.mark.parametrize("lost", ["all", "theirs", "ours", "entries", "notes"])
async def test_a_namespace_that_was_lost_under_a_marker(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str, lost: str
) -> None:
    """Nobody is handed what another holds; whoever holds one asserts it, and goes on."""
    server = zookeeper.behind
    theirs, ours = f"/cosid/{namespace}", f"/aiocosid/{namespace}"
    one, other = one_of(store, namespace, "a"), one_of(store, namespace, "b")
    assert await take(one) == 0
    await one.renew(0, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=-1)
    for path in {
        "all": [theirs, ours],
        "theirs": [theirs],
        "ours": [ours],
        "entries": [f"{theirs}/__itc_idx"],
        "notes": [f"{ours}/notes"],
    }[lost]:
        server.delete(path, recursive=True)
    for _ in range(2):
        with pytest.raises(MachineIdQuarantineError) as caught:
            await take(other)
        assert not isinstance(caught.value, StoreNotInitializedError)
    [marker] = await store.machine_markers(namespace=namespace)
    assert marker.is_quarantined
    for number in range(2):
        await one.reassert(0, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=number)
    await store.initialize(confirm_no_holders=True)
    assert await take(other) == 1
    await one.renew(0, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=-1)


async def test_what_java_has_issued_anew(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """CosId's nodes were removed, and an id of them is held by a Java node already."""
    server, theirs = zookeeper.behind, f"/cosid/{namespace}"
    server.create(f"{theirs}/__itc_idx/java", f"0|{SYSTEM_CLOCK.now_ms()}".encode(), makepath=True)
    server.create(f"{theirs}/__counter", b"\0\0\0\1")
    one, other = one_of(store, namespace, "a"), one_of(store, namespace, "b")
    assert await take(one) == 1
    server.delete(theirs, recursive=True)
    for number in range(2):
        state = b"%d|%d" % (number, SYSTEM_CLOCK.now_ms())
        server.create(f"{theirs}/__itc_idx/java {number}", state, makepath=True)
    server.create(f"{theirs}/__counter", b"\0\0\0\2")
    with pytest.raises(MachineIdQuarantineError):
        await take(other)
    server.set(f"{theirs}/__itc_idx/java 1", b"1|%d" % (SYSTEM_CLOCK.now_ms() + 1))
    with pytest.raises(MachineIdLostError, match="java 1 holds it"):
        await one.reassert(1, now_ms=SYSTEM_CLOCK.now_ms(), fence_ms=-1)


async def test_a_store_that_was_never_initialised(
    zookeeper: ZookeeperServer, namespace: str
) -> None:
    """It is told, with the command; `initialize` mends it at once, for all namespaces."""
    async with ZookeeperStore.from_url(f"{zookeeper.url}/{namespace}") as store:
        assert not await store.is_initialized()
        for _ in range(2):
            with pytest.raises(StoreNotInitializedError, match="aiocosid init"):
                await take(one_of(store, "here", "a"))
        await store.initialize(confirm_no_holders=True)
        assert await store.is_initialized()
        for name in ("here", "there", "marker", "counts", "a/b"):
            assert await take(one_of(store, name, "a")) == 0
        found = {each.namespace for each in await store.machine_markers()}
        assert found == {"here", "there", "marker", "counts", "a/b"}
        assert {each.namespace for each in await store.machines()} == found


async def test_a_counter_that_was_removed(
    zookeeper: ZookeeperServer, store: ZookeeperStore, namespace: str
) -> None:
    """It is not made again: a Java node would count on from below what was issued."""
    path = f"/cosid/{namespace}.order"
    counter = store.segment_distributor(namespace=namespace, name="order")
    assert [await counter.next_max_id(10) for _ in range(2)] == [10, 20]
    zookeeper.behind.delete(path)
    for _ in range(2):
        with pytest.raises(StoreRolledBackError):
            await counter.next_max_id(10)
        assert zookeeper.behind.exists(path) is None


async def test_an_id_that_java_had_in_between(
    zookeeper: ZookeeperServer,
    store: ZookeeperStore,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its node is another one of the same version: we begin above what Java has issued."""
    server, path = zookeeper.behind, f"/cosid/{namespace}/__revert/0"
    server.create(path, b"0|%d" % NOW, makepath=True)
    server.create(f"/cosid/{namespace}/__counter", b"\0\0\0\1")
    before_ms, commit = SYSTEM_CLOCK.now_ms(), Nodes.commit

    async def late(nodes: Nodes, *changes: Any) -> Any:
        monkeypatch.setattr(Nodes, "commit", commit)
        server.delete(path)
        server.create(path, b"0|%d" % SYSTEM_CLOCK.now_ms())
        return await commit(nodes, *changes)

    monkeypatch.setattr(Nodes, "commit", late)
    one = one_of(store, namespace, "a")
    grant = await one.distribute(2, now_ms=NOW, latest_ms=LATE)
    assert grant.machine_id == 0
    assert grant.floor_ms > before_ms
    assert Nodes.commit is commit
