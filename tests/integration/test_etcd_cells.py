"""Machine ids on etcd by the contract of a backend: trips, conflicts, and data that is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
import pytest_asyncio

from aiocosid import SegmentId
from aiocosid.errors import (
    CounterNotCreatedError,
    MachineIdInUseError,
    MachineIdQuarantineError,
    StoreFormatError,
    StoreNotInitializedError,
    StoreRolledBackError,
)
from aiocosid.machine.cells import (
    Changes,
    MachineRecord,
    Marker,
    NamespaceRecord,
    ReadRequest,
    Snapshot,
)
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores.etcd import EtcdStore
from aiocosid.stores.etcd._backend import EtcdBackend
from aiocosid.stores.etcd._link import Member
from tests.machine_marks import etcd_root
from tests.servers import EtcdServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T: Final = 1_700_000_000_000  # some time in the past, in ms
FAR: Final = 2**62  # no floor is too late


@pytest_asyncio.fixture
async def store(etcd: EtcdServer, namespace: str) -> AsyncIterator[EtcdStore]:
    """A store of the test's own on the session's etcd, which is initialised."""
    async with EtcdStore.from_url(f"{etcd.url}/cosid/{namespace}") as store:
        await store.initialize()
        yield store


@pytest.fixture
def root(namespace: str) -> str:
    """What all keys of the machine ids of that store's namespace ``n`` begin with."""
    return etcd_root("n").replace("/cosid/", f"/cosid/{namespace}/")


def machine_of(store: EtcdStore, text: str) -> CellMachineIdDistributor:
    return store.machine_id_distributor(namespace="n", instance_id=text)


async def take(machine: CellMachineIdDistributor, bits: int = 3) -> int:
    return (await machine.distribute(bits, now_ms=T, latest_ms=FAR)).machine_id


class TestTrips:
    """How often the cluster is asked."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The requests that are sent, by their kind."""
        sent: list[str] = []
        call = Member._call

        async def counted(member: Member, method: Any, request: Any) -> Any:
            sent.append(type(request).__name__)
            return await call(member, method, request)

        monkeypatch.setattr(Member, "_call", counted)
        return sent

    async def test_a_renewal_is_one_trip(self, store: EtcdStore, calls: list[str]) -> None:
        """Its transaction, and beside it the lease that begins anew; also after many others."""
        owners = [machine_of(store, text) for text in "abc"]
        ids = [await take(owner) for owner in owners]
        for turn in range(3):
            for owner, machine_id in zip(owners, ids, strict=True):
                calls.clear()
                await owner.renew(machine_id, now_ms=T + turn, fence_ms=T + turn)
                assert calls == ["TxnRequest"]

    async def test_a_conflict_costs_no_lease(
        self,
        etcd: EtcdServer,
        namespace: str,
        store: EtcdStore,
        calls: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The one that was granted in vain is taken for the next attempt, and begins anew."""
        await take(machine_of(store, "a"))
        write: Any = Member.write

        async def interrupted(member: Member, compares: Any, *args: Any, **how: Any) -> Any:
            if compares:
                monkeypatch.setattr(Member, "write", write)
                await take(machine_of(store, "rival"))
                calls.clear()
            return await write(member, compares, *args, **how)

        monkeypatch.setattr(Member, "write", interrupted)
        async with EtcdStore.from_url(f"{etcd.url}/cosid/{namespace}") as other:
            assert await take(machine_of(other, "b")) in range(2, 18)
        assert calls == ["TxnRequest"] * 3  # in vain, read, done


async def read(store: EtcdStore, need: ReadRequest | None = None) -> Snapshot:
    return await store._backend.read("n", need or ReadRequest("a", is_complete=True))


class TestCommits:
    """All or nothing, once."""

    async def test_a_width_above_many_ids(self, store: EtcdStore) -> None:
        """More than etcd compares one by one; whoever takes one meanwhile is found out."""
        machines = [machine_of(store, f"i{number}") for number in range(130)]
        for number, machine in enumerate(machines):
            assert await take(machine, 8) == number
        for number, machine in enumerate(machines):
            await machine.release(number, last_ms=T)
        write: Any = Member.write
        with pytest.MonkeyPatch.context() as patch:

            async def interrupted(member: Member, *args: Any, **how: Any) -> Any:
                patch.setattr(Member, "write", write)
                await take(machines[0], 8)
                return await write(member, *args, **how)

            snapshot = await read(store, ReadRequest(is_complete=True))
            slots = {
                n: replace(slot, record=replace(slot.record or MachineRecord(), version=99))
                for n, slot in snapshot.slots.items()
            }
            space = replace(snapshot.space or NamespaceRecord(), bits=9)
            patch.setattr(Member, "write", interrupted)
            assert not await store._backend.commit(snapshot, Changes(space=space, slots=slots))
        with pytest.raises(MachineIdInUseError):
            await store.set_machine_bits(namespace="n", bits=9)
        await machines[0].release(0, last_ms=T)
        await store.set_machine_bits(namespace="n", bits=9)
        assert await store.machine_bits(namespace="n") == 9
        assert await take(machines[1], 9) == 0


class TestChangedUnderneath:
    """Data that goes while the store's marker stays."""

    @pytest.mark.parametrize("lost", ["id/", "own/", ""])
    async def test_lost_ids_begin_a_quarantine(
        self, etcd: EtcdServer, store: EtcdStore, root: str, lost: str
    ) -> None:
        """No second owner: some are counted that are not there.  Who holds one asserts it."""
        owner, other = machine_of(store, "a"), machine_of(store, "b")
        assert [await take(owner), await take(other)] == [0, 1]
        await other.release(1, last_ms=T)
        etcd.delete(f"{root}{lost}")
        newcomer = machine_of(store, "c")
        if lost == "own/":  # which machine ids are held is known all the same
            assert await take(newcomer) == 1
            return
        with pytest.raises(MachineIdQuarantineError):
            await take(newcomer)
        await owner.reassert(0, now_ms=T, fence_ms=T + 5)
        with pytest.raises(MachineIdQuarantineError):
            await take(newcomer)
        (found,) = await store.machines(namespace="n")
        assert (found.machine_id, found.instance_id, found.fence_ms) == (0, "a", T + 5)

    async def test_initialising_is_for_all_namespaces(
        self, etcd: EtcdServer, namespace: str
    ) -> None:
        """Without it the first machine id fails at once; with it none waits."""
        url = f"{etcd.url}/cosid/{namespace}/fresh"
        async with EtcdStore.from_url(url) as store:
            with pytest.raises(StoreNotInitializedError):
                await take(machine_of(store, "a"))
            await store.initialize(confirm_no_holders=True)
            assert await take(machine_of(store, "a")) == 0
            other = store.machine_id_distributor(namespace="another", instance_id="a")
            assert await take(other) == 0
            assert not any(key.endswith("quarantine") for key in etcd.keys(f"/cosid/{namespace}"))

    async def test_a_deleted_counter_is_not_made_again(
        self, etcd: EtcdServer, store: EtcdStore, namespace: str
    ) -> None:
        """Nothing is left there below what was issued."""
        counter = store.segment_distributor(namespace="n", name="order", step=10)
        async with SegmentId(counter, wait_timeout=5) as generator:
            issued = await generator.next_ids(25)
            etcd.delete(f"/cosid/{namespace}/n.order")
            for _ in range(2):
                with pytest.raises(StoreRolledBackError):
                    await generator.next_ids(25)
            assert etcd.get(f"/cosid/{namespace}/n.order") is None
        again = store.segment_distributor(namespace="n", name="order", offset=max(issued), step=10)
        assert await again.next_max_id(10) == max(issued) + 10

    async def test_a_commit_on_an_older_copy(
        self, etcd: EtcdServer, namespace: str, store: EtcdStore, root: str
    ) -> None:
        """With the same cells as it has, but an earlier revision: that is no renewal.

        Who notices it second does not begin another quarantine.
        """

        async def owning(store: EtcdStore, text: str) -> CellMachineIdDistributor:
            owner, backend = machine_of(store, text), store._backend
            await take(owner)
            snapshot = owner._snapshot
            assert snapshot is not None
            assert isinstance(backend, EtcdBackend)
            cluster, epoch, revision = backend._reached["n"]
            snapshot.raw.revision = revision + 1000
            backend._reached["n"] = cluster, epoch, revision + 1000
            return owner

        async with EtcdStore.from_url(f"{etcd.url}/cosid/{namespace}") as other:
            owner, second = await owning(store, "a"), await owning(other, "b")
            with pytest.raises(MachineIdQuarantineError):
                await owner.renew(0, now_ms=T, fence_ms=T)
            begun = NamespaceRecord.read(etcd.get(f"{root}space") or "").quarantine
            with pytest.raises(MachineIdQuarantineError):
                await take(machine_of(store, "c"))
            await second.reassert(1, now_ms=T, fence_ms=T)
            await owner.reassert(0, now_ms=T, fence_ms=T)
            assert NamespaceRecord.read(etcd.get(f"{root}space") or "").quarantine == begun != ""


async def test_a_term_that_rises_is_noted_by_hand_outs_alone(
    etcd: EtcdServer, store: EtcdStore, root: str
) -> None:
    """In the marker as well: a copy that is older than a hand-out has a lower one."""
    owner = machine_of(store, "a")
    await take(owner)
    keys = (root.replace("ns/n/", "store/marker"), f"{root}space")
    sound = [etcd.get(key) or "" for key in keys]
    cluster, _, term = NamespaceRecord.read(sound[1]).identity.partition(" ")
    for key, text in zip(keys, sound, strict=True):
        etcd.put(key, text.replace(f"{cluster} {term}", f"{cluster} {int(term) - 1}"))
    earlier = [etcd.get(key) for key in keys]
    await owner.renew(0, now_ms=T, fence_ms=T)
    assert [etcd.get(key) for key in keys] == earlier
    await take(machine_of(store, "b"))
    assert [etcd.get(key) for key in keys] == sound


async def test_another_format(etcd: EtcdServer, namespace: str, store: EtcdStore) -> None:
    """Its cells may have other keys, so the store would seem to be empty: both are named."""
    key = f"/cosid/{namespace}/machine/store/marker"
    marker = Marker.read(etcd.get(key) or "")
    former = f'{{"identity":"{marker.identity}","epoch":"{marker.marker_id}"}}'
    etcd.put(key, former)
    with pytest.raises(StoreFormatError, match=r"format 1.* uses format 2"):
        await take(machine_of(store, "a"))
    with pytest.raises(StoreFormatError):
        await store.initialize(confirm_no_holders=True)
    assert etcd.get(key) == former


async def test_a_counter_is_created_beside_the_marker(
    etcd: EtcdServer, namespace: str, store: EtcdStore
) -> None:
    """One that exists needs none; nor does the floor of an operator."""
    counter = store.segment_distributor(name="old")
    assert await counter.next_max_id(10) == 10
    etcd.delete(f"/cosid/{namespace}/machine/store/marker")
    assert await store.segment_distributor(name="old").next_max_id(10) == 20
    with pytest.raises(CounterNotCreatedError, match="it has no marker"):
        await store.segment_distributor(name="new").next_max_id(10)
    assert await store.segment_distributor(name="new").peek() is None
    await store.set_floor(name="new", above=7, create=True)
    assert await store.segment_distributor(name="new").next_max_id(10) == 17
