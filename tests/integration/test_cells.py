"""A backend commits all or nothing, once, and only if nothing has changed: on each real server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final

import pytest
import pytest_asyncio

from aiocosid.machine.cells import (
    Changes,
    MachineRecord,
    MachineSlot,
    Marker,
    Owner,
    ReadRequest,
    Snapshot,
)
from aiocosid.stores.backend import Backend as CellBackend
from aiocosid.stores.base import BackendStore
from aiocosid.stores.zookeeper._backend import Cells
from tests.contracts._stores import ENGINES, STORES, Backend, Etcd, Nats, Sqlite, Zookeeper

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T0: Final = 1_700_000_000_000
ALL: Final = ReadRequest(is_complete=True)
TURNS: Final = 12  # of each writer

KINDS: Final = [
    *("sqlite", "postgres", "mariadb", "valkey", "engine_aiomysql", "engine_psycopg"),
    *("etcd", "nats", "zookeeper"),
    *(
        pytest.param(each, marks=pytest.mark.nightly)
        for each in ("engine_my", "engine_pg", "redis")
    ),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Backend:
    return (STORES | ENGINES)[request.param](request)


@pytest_asyncio.fixture
async def backend(kind: Backend, namespace: str) -> AsyncIterator[CellBackend]:
    """One that has handed out the machine ids 0 and 1."""
    async with AsyncExitStack() as stack:
        yield await opened(stack, kind, namespace)


async def opened(stack: AsyncExitStack, kind: Backend, namespace: str) -> CellBackend:
    store = await stack.enter_async_context(kind.open())
    assert isinstance(store, BackendStore)
    await store.create_schema(disposable=True)
    kind.mark(namespace)
    for who in "ab":
        one = store.machine_id_distributor(namespace=namespace, instance_id=who)
        await one.distribute(6, now_ms=T0, latest_ms=T0 * 2)
    found: CellBackend = store._backend
    return found


def signed(snapshot: Snapshot, number: int, by: int = 1) -> Changes:
    """A renewal, one unit later; turn, stamp and mark tell how many there were."""
    slot = snapshot.slots[number]
    record = slot.record or MachineRecord()
    record = replace(record, version=record.version + by, fence_ms=record.version + by)
    owners = tuple(Owner(each.instance, each.stamp_ms + by) for each in slot.owners)
    return Changes(
        slot.owners[0].instance, slots={number: MachineSlot(owners, record)}, signed=number
    )


def taken(snapshot: Snapshot, number: int, who: str) -> Changes:
    """A new machine id."""
    assert snapshot.count is not None
    return Changes(
        who,
        count=replace(snapshot.count, ids=snapshot.count.ids + 1),
        slots={number: MachineSlot((Owner(who, T0),), MachineRecord(who, token="t", version=1))},  # noqa: S106
        own={who: number},
        last_new=None if snapshot.last_new is None else max(snapshot.last_new, number),
        signed=number,
    )


def state(snapshot: Snapshot) -> Any:
    """All that a commit writes."""
    slots = {number: (slot.owners, slot.record) for number, slot in snapshot.slots.items()}
    return snapshot.marker, snapshot.space, snapshot.count, slots


async def test_a_commit_that_is_sent_twice(backend: CellBackend, namespace: str) -> None:
    """The second finds that all has changed; the first one's snapshot goes on without a read."""
    one, copy = [await backend.read(namespace, ALL) for _ in range(2)]
    changes = signed(one, 0)
    assert await backend.commit(one, changes)
    assert not await backend.commit(copy, changes)
    assert state(await backend.read(namespace, ALL)) == state(one)
    for _ in range(3):  # without a read between them
        assert await backend.commit(one, signed(one, 0))
    assert state(await backend.read(namespace, ALL)) == state(one)


async def test_a_new_id_that_is_sent_twice(backend: CellBackend, namespace: str) -> None:
    """What was absent has to be absent still."""
    one, copy = [await backend.read(namespace, ALL) for _ in range(2)]
    assert await backend.commit(one, taken(one, 2, "c"))
    assert not await backend.commit(copy, taken(copy, 2, "c"))
    assert not await backend.commit(copy, taken(copy, 2, "d"))
    found = await backend.read(namespace, ReadRequest("c", is_complete=True))
    assert state(found) == state(one)
    assert found.own in {2, None}  # where CosId's own entry is keyed by the instance
    assert found.slots[2].seen_ms > 0


async def test_two_are_counted_at_once(kind: Backend, backend: CellBackend, namespace: str) -> None:
    """Both are; but a file has one writer at a time anyway, and ZooKeeper compares the count."""
    one, copy = [await backend.read(namespace, ALL) for _ in range(2)]
    assert await backend.commit(one, replace(taken(one, 2, "c"), last_new=None))
    is_second = await backend.commit(copy, replace(taken(copy, 3, "d"), last_new=None))
    assert is_second or isinstance(kind, Sqlite | Zookeeper)
    found = await backend.read(namespace, ALL)
    assert found.count is not None
    assert found.count.ids == 3 + is_second


async def test_who_is_gone_is_counted_no_more(backend: CellBackend, namespace: str) -> None:
    """When all are counted anew, after a quarantine."""
    found = await backend.read(namespace, ALL)
    assert found.count is not None
    del found.slots[1]
    assert await backend.commit(found, replace(signed(found, 0), count=replace(found.count, ids=1)))
    again = await backend.read(namespace, ALL)
    assert again.count == replace(found.count, ids=1)


STALE = ["marker", "space", "count", "epoch", "slot", "note", "own", "absent slot"]


@pytest.mark.parametrize("stale", STALE)
async def test_one_stale_cell_refuses_all(
    kind: Backend, backend: CellBackend, namespace: str, stale: str
) -> None:
    """And nothing is written, of whatever else was as it had been read."""
    if stale == "epoch" and isinstance(kind, Nats):
        pytest.skip("a count without its namespace's cell is written by whoever adds one alone")
    before = (await backend.read(namespace, ALL)).marker
    if stale == "marker" and before is None:
        first = Changes(marker=Marker("", "first"))
        assert await backend.commit(await backend.read(namespace, ALL), first)
    old, new = [await backend.read(namespace, ALL) for _ in range(2)]
    assert new.space is not None
    assert new.count is not None
    epoch = new.count.marker_id
    meanwhile = {
        "marker": Changes(marker=Marker(new.identity, "another")),
        "space": Changes(space=replace(new.space, guard_ms=new.space.guard_ms + 1)),
        "count": Changes(
            space=replace(new.space, gaps=True), count=replace(new.count, marker_id=f"{epoch}x")
        ),
        "epoch": Changes(count=replace(new.count, marker_id=f"{epoch}x")),
        "slot": signed(new, 1),
        "note": Changes(
            "b",
            slots={1: MachineSlot(new.slots[1].owners, MachineRecord("b", version=9))},
            signed=1,
        ),
        "own": replace(taken(new, 3, "c"), count=None),
        "absent slot": replace(taken(new, 2, "d"), count=None),
    }[stale]
    assert await backend.commit(new, meanwhile)
    found = state(await backend.read(namespace, ALL))
    changes = taken(old, 2, "c")
    changes.slots |= signed(old, 1).slots
    try:
        assert not await backend.commit(old, changes)
        assert state(await backend.read(namespace, ALL)) == found
    finally:
        if stale == "marker":  # every store of the tests has one
            assert before is not None
            assert await backend.commit(new, Changes(marker=before))


async def test_a_peers_sign_of_life(kind: Backend, backend: CellBackend, namespace: str) -> None:
    """CosId writes its own cell alone."""
    if isinstance(kind, Etcd):
        pytest.skip("CosId keeps nothing on etcd")
    snapshot = await backend.read(namespace, ALL)
    if isinstance(kind, Zookeeper):
        kind.server.behind.set(Cells("", namespace).owned(0, "a"), b"0|5")
    else:
        kind.age(namespace, 1)
    before = state(await backend.read(namespace, ALL))
    assert not await backend.commit(snapshot, signed(snapshot, 0))
    assert state(await backend.read(namespace, ALL)) == before


async def test_another_store(kind: Backend, backend: CellBackend, namespace: str) -> None:
    """What was read from one is not committed to another; etcd tells by its reply which it is."""
    if isinstance(kind, Nats | Zookeeper):
        pytest.skip(
            "a stream or tree that is made anew goes on above all numbers of the former one"
        )
    snapshot = await backend.read(namespace, ALL)
    before = state(snapshot)
    snapshot.identity = "another"
    assert not await backend.commit(snapshot, signed(snapshot, 0))
    if not isinstance(kind, Etcd):
        assert state(await backend.read(namespace, ALL)) == before


async def test_many_who_change_the_namespace(backend: CellBackend, namespace: str) -> None:
    """Its cell has no other beside it that would be locked."""
    before = (await backend.read(namespace, ALL)).space
    assert before is not None

    async def change() -> int:
        confirmed = 0
        for _ in range(TURNS):
            snapshot = await backend.read(namespace, ALL)
            assert snapshot.space is not None
            longer = replace(snapshot.space, guard_ms=snapshot.space.guard_ms + 1)
            confirmed += await backend.commit(snapshot, Changes(space=longer))
        return confirmed

    confirmed = sum(await asyncio.gather(*(change() for _ in range(6))))
    after = (await backend.read(namespace, ALL)).space
    assert after == replace(before, guard_ms=before.guard_ms + confirmed)
    assert confirmed >= TURNS


async def test_renewals_are_in_nobodys_way(backend: CellBackend, namespace: str) -> None:
    """Neither those of other ids, nor hand-outs."""
    snapshots = [
        await backend.read(namespace, ReadRequest(who, number)) for number, who in enumerate("ab")
    ]

    async def renew(number: int) -> None:
        for _ in range(TURNS):
            assert await backend.commit(snapshots[number], signed(snapshots[number], number))

    async def hand_out() -> None:
        for number in range(2, 2 + TURNS):
            snapshot = await backend.read(namespace, ALL)
            assert await backend.commit(snapshot, taken(snapshot, number, f"c{number}"))

    await asyncio.gather(renew(0), renew(1), hand_out())
    found = await backend.read(namespace, ALL)
    assert found.count is not None
    assert found.count.ids == 2 + TURNS
    assert [found.slots[number].record.version for number in range(2)] == [TURNS + 1] * 2  # type: ignore[union-attr]


class Writer:
    """Writes one cell again and again; what it was told is in the cell."""

    def __init__(self, backend: CellBackend, namespace: str, seed: int) -> None:
        self.backend, self.namespace = backend, namespace
        self.rng = random.Random(seed)  # noqa: S311 - no secret
        self.confirmed = self.unknown = 0

    async def write(self, turns: int, *, cancels: bool) -> None:
        for _ in range(turns):
            if cancels and self.rng.random() < 0.3:
                await self._torn()
            elif await self._once():
                self.confirmed += 1

    async def _once(self) -> bool:
        snapshot = await self.backend.read(self.namespace, ALL)
        changes = signed(snapshot, 0)
        changes.slots |= signed(snapshot, 1).slots
        return await self.backend.commit(snapshot, changes)

    async def _torn(self) -> None:
        call = asyncio.ensure_future(self._once())
        for _ in range(self.rng.randrange(30)):
            await asyncio.sleep(0)
        call.cancel()
        with suppress(asyncio.CancelledError):
            if await call:
                self.confirmed += 1
            return
        self.unknown += 1


@pytest.mark.parametrize("cancels", [False, True])
async def test_many_writers(
    kind: Backend, backend: CellBackend, namespace: str, *, cancels: bool
) -> None:
    """No update is lost, or done by half, whatever is cancelled; nobody is stopped for ever."""
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(kind.open()) for _ in range(2)]
        backends = [backend, *(each._backend for each in others)]  # type: ignore[attr-defined]
        writers = [Writer(backends[seed % 3], namespace, seed) for seed in range(9)]
        async with asyncio.timeout(120):
            await asyncio.gather(*(each.write(TURNS, cancels=cancels) for each in writers))
    confirmed = sum(each.confirmed for each in writers)
    unknown = sum(each.unknown for each in writers)
    found = await backend.read(namespace, ALL)
    records = [found.slots[number].record or MachineRecord() for number in range(2)]
    assert [each.version for each in records] == [each.fence_ms for each in records]
    assert records[0].version == records[1].version
    assert confirmed <= records[0].version - 1 <= confirmed + unknown
    assert confirmed >= TURNS // 2
    assert [found.slots[number].stamp_ms - T0 for number in range(2)] == [
        records[0].version - 1
    ] * 2
