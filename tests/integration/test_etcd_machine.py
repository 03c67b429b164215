"""Machine ids on etcd: what plays its clock, what a cluster that forgot looks like, and damage."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from math import inf
from typing import Any, Final

import aetcd  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from aiocosid import SnowflakeId
from aiocosid.abc import Machine, MachineGrant
from aiocosid.errors import (
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdQuarantineError,
    StoreUnavailableError,
)
from aiocosid.machine.cells import NamespaceRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.machine.rules import RELEASE_STAMP_MARGIN
from aiocosid.stores.etcd import EtcdStore
from aiocosid.stores.etcd._link import Member
from tests.machine_marks import etcd_root, mark_etcd_store
from tests.servers import EtcdServer, FaultProxy, eventually

from ._snowflakes import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T: Final = 1_700_000_000_000  # some time in the past, in ms
FAR: Final = 2**62  # no floor is too late


@pytest_asyncio.fixture
async def store(etcd: EtcdServer, namespace: str) -> AsyncIterator[EtcdStore]:
    """The session's etcd, marked."""
    async with EtcdStore.from_url(etcd.url) as store:
        await store.initialize_namespace(namespace=namespace)
        yield store


def machine_of(
    store: EtcdStore, namespace: str, text: str, safe_guard: float = 300.0
) -> CellMachineIdDistributor:
    return store.machine_id_distributor(
        namespace=namespace,
        instance_id=text,
        safe_guard=safe_guard,
        interval=safe_guard / 4 if safe_guard < inf else 60.0,
    )


async def take(machine: CellMachineIdDistributor, bits: int = 1) -> MachineGrant:
    return await machine.distribute(bits, now_ms=T, latest_ms=FAR)


class Leases:
    """What the server says of the keys of one namespace."""

    def __init__(self, server: EtcdServer, namespace: str) -> None:
        self._server = server
        self._root = etcd_root(namespace)

    def of(self, key: str) -> int:
        return self._server.keys(self._root)[f"{self._root}{key}"][1]

    def granted(self, key: str) -> int:
        told = self._server.call("lease/timetolive", ID=self.of(key))
        return int(told["grantedTTL"])

    def end(self, key: str) -> None:
        self._server.call("lease/revoke", ID=self.of(key))

    def keys(self) -> set[str]:
        return {key.removeprefix(self._root) for key in self._server.keys(self._root)}


class TestLeases:
    """They are the store's clock."""

    async def test_an_owner_is_on_a_lease_of_its_own_safe_guard(
        self, etcd: EtcdServer, store: EtcdStore, namespace: str
    ) -> None:
        """In whole seconds, never shorter; the same one with each renewal."""
        leases = Leases(etcd, namespace)
        owner = machine_of(store, namespace, "a", 99.2)
        await take(owner)
        assert leases.granted("alive/00000000") == 100
        before = leases.of("alive/00000000")
        await owner.renew(0, now_ms=T + 1, fence_ms=T + 2)
        assert leases.of("alive/00000000") == before
        leases.end("alive/00000000")
        await owner.renew(0, now_ms=T + 3, fence_ms=T + 2)
        assert leases.of("alive/00000000") != before
        assert leases.granted("alive/00000000") == 100

    async def test_a_sign_of_life_has_the_lease_begin_anew(
        self, etcd: EtcdServer, store: EtcdStore, namespace: str
    ) -> None:
        """By the server's clock."""
        leases = Leases(etcd, namespace)
        owner = machine_of(store, namespace, "a", 20.0)
        await take(owner)

        def left() -> int:
            return int(etcd.call("lease/timetolive", ID=leases.of("alive/00000000"))["TTL"])

        await until(lambda: left() < 19)
        await owner.renew(0, now_ms=T, fence_ms=-1)
        assert left() >= 19

    async def test_nobody_waits_less_than_the_owner_said(
        self, store: EtcdStore, namespace: str
    ) -> None:
        """Who names a shorter safe guard takes no id before; who names none at all takes none."""
        for number, text in enumerate("ab"):
            owner = machine_of(store, namespace, text, inf if text == "a" else 60.0)
            assert (await take(owner)).machine_id == number
        for seconds in (0.004, inf):
            with pytest.raises(MachineIdOverflowError):
                await take(machine_of(store, namespace, f"c{seconds}", seconds))

    @pytest.mark.stress
    async def test_a_real_lease_ends(self, store: EtcdStore, namespace: str) -> None:
        """With nobody's help; a stable owner's id stays."""
        owner = machine_of(store, namespace, "a", 0.5)
        await take(owner)
        await take(machine_of(store, namespace, "b"))
        heir = machine_of(store, namespace, "c", 0.5)
        grant = await eventually(lambda: take(heir), MachineIdOverflowError)
        assert grant == MachineGrant(0, T)
        with pytest.raises(MachineIdLostError, match="c holds it"):
            await owner.renew(0, now_ms=T, fence_ms=-1)

    async def test_who_lets_go_is_not_alive(
        self, etcd: EtcdServer, store: EtcdStore, namespace: str
    ) -> None:
        """Given back or taken away: only the entry stays."""
        leases = Leases(etcd, namespace)
        for call in ("revert", "evict_machine"):
            owner = machine_of(store, namespace, "a")
            await take(owner)
            await owner.renew(0, now_ms=T, fence_ms=T)
            assert leases.keys() == {"space", "id/00000000", "alive/00000000", "own/a"}
            if call == "revert":
                await owner.release(0, last_ms=T)
            else:
                await store.evict_machine(namespace=namespace, machine_id=0)
            assert leases.keys() == {"space", "id/00000000", "free/00000000"}
        machine = Machine(
            namespace=namespace,
            machine_id=0,
            instance_id="",
            last_timestamp_ms=T + RELEASE_STAMP_MARGIN,
            fence_ms=T,
        )
        assert list(await store.machines(namespace=namespace)) == [machine]

    async def test_a_quarantine_is_a_lease_as_well(self, etcd: EtcdServer, namespace: str) -> None:
        """Of the longest safe guard and 5 s; longer if somebody names a longer one in it."""
        mark_etcd_store(etcd)  # for counters only, whatever stood there
        leases = Leases(etcd, namespace)
        async with EtcdStore.from_url(etcd.url) as store:
            for seconds, due in ((100.0, 105), (60.0, 105), (200.0, 205), (inf, None)):
                with pytest.raises(MachineIdQuarantineError) as caught:
                    await take(machine_of(store, namespace, "a", seconds))
                if due is None:
                    assert caught.value.seconds_left == inf
                    assert leases.of("quarantine") == 0
                else:
                    assert due - 3 < caught.value.seconds_left <= due
                    assert due - 3 < leases.granted("quarantine") <= due
            (marker,) = await store.machine_markers(namespace=namespace)
            assert marker.seconds_left == inf
            await store.initialize_namespace(namespace=namespace, confirm_no_holders=True)
            assert leases.keys() == {"space"}
            assert (await take(machine_of(store, namespace, "a"))).machine_id == 0


class TestForgetting:
    """A cluster that is not the one that it was."""

    @pytest.mark.stress
    async def test_a_wiped_cluster(
        self, etcd_factory: Callable[..., EtcdServer], namespace: str
    ) -> None:
        """It has the same id, and no marker: owners assert theirs, nobody else is handed one."""
        server = etcd_factory()
        async with EtcdStore.from_url(server.url) as store:
            await store.initialize_namespace(namespace=namespace)
            owner = machine_of(store, namespace, "a")
            await take(owner)
            server.wipe()

            async def assert_it() -> None:
                await owner.reassert(0, now_ms=T + 5, fence_ms=T + 6)

            await eventually(assert_it, StoreUnavailableError)
            with pytest.raises(MachineIdQuarantineError):
                await take(machine_of(store, namespace, "b"))
            assert [each.fence_ms for each in await store.machines()] == [T + 6]

    async def test_a_restored_cluster(
        self, etcd_factory: Callable[..., EtcdServer], namespace: str
    ) -> None:
        """From a copy, with id, term and marker as they were: who was further begins it."""
        server = etcd_factory()
        data, copy = server.directory / "data", server.directory / "copy"
        async with EtcdStore.from_url(server.url) as store:
            await store.initialize_namespace(namespace=namespace)
            first, second = (machine_of(store, namespace, text) for text in "ab")
            await take(first)
            server.stop()
            shutil.copytree(data, copy)
            server.start()
            await eventually(lambda: take(second), StoreUnavailableError)
            await first.renew(0, now_ms=T, fence_ms=-1)
            server.kill()
            shutil.rmtree(data)
            copy.rename(data)
            server.start()

            async def assert_both() -> None:
                await first.reassert(0, now_ms=T, fence_ms=-1)
                await second.reassert(1, now_ms=T, fence_ms=-1)

            await eventually(assert_both, StoreUnavailableError)
            assert [each.instance_id for each in await store.machines()] == ["a", "b"]
            (marker,) = await store.machine_markers()
            assert marker.is_quarantined
            with pytest.raises(MachineIdQuarantineError):
                await take(machine_of(store, namespace, "c"), bits=1)

    async def test_a_term_that_fell(
        self, etcd: EtcdServer, store: EtcdStore, namespace: str
    ) -> None:
        """As after a restoration with etcdctl; one that rose is noted."""
        await take(machine_of(store, namespace, "a"))
        key = f"{etcd_root(namespace)}space"
        sound = NamespaceRecord.read(etcd.get(key) or "")
        cluster, _, term = sound.identity.partition(" ")
        etcd.put(key, replace(sound, identity=f"{cluster} {int(term) - 1}").text())
        await take(machine_of(store, namespace, "a"))
        assert NamespaceRecord.read(etcd.get(key) or "") == sound
        etcd.put(key, replace(sound, identity=f"{cluster} {int(term) + 1}").text())
        (marker,) = await store.machine_markers(namespace=namespace)
        assert marker.seconds_left == 305
        with pytest.raises(MachineIdQuarantineError):
            await take(machine_of(store, namespace, "b"))


class TestCalls:
    """One step, whatever happens on the way."""

    async def test_lost_replies(self, etcd: EtcdServer, store: EtcdStore, namespace: str) -> None:
        """What was applied is found again; the marks stay."""
        async with FaultProxy(etcd.host, etcd.port) as proxy:
            url = f"etcd://{proxy.host}:{proxy.port},{etcd.address}"
            async with EtcdStore.from_url(url) as behind:
                machine = machine_of(behind, namespace, "a")
                proxy.swallow_replies(1, to=b'"instance":"a"')
                assert (await take(machine)).machine_id == 0
                assert proxy.swallowed == 1
        async with FaultProxy(etcd.host, etcd.port) as proxy:
            url = f"etcd://{proxy.host}:{proxy.port},{etcd.address}"
            async with EtcdStore.from_url(url) as behind:
                again = machine_of(behind, namespace, "a")
                await take(again)
                proxy.swallow_replies(1, to=b'"instance":"a"')
                await again.renew(0, now_ms=T + 1, fence_ms=T + 2)
                proxy.swallow_replies(1, to=b'"instance":""')
                await again.release(0, last_ms=T + 1)
                assert proxy.swallowed >= 1
        async with FaultProxy(etcd.host, etcd.port) as proxy:
            await take(machine_of(store, namespace, "b"))
            url = f"etcd://{proxy.host}:{proxy.port},{etcd.address}"
            async with EtcdStore.from_url(url) as behind:
                proxy.swallow_replies(1, to=b'"instance":""')
                await behind.evict_machine(namespace=namespace, machine_id=0)
                assert proxy.swallowed == 1
        (machine_found,) = await store.machines(namespace=namespace)
        assert (machine_found.instance_id, machine_found.fence_ms) == ("", T + 1)

    async def test_an_own_client(self, etcd: EtcdServer, store: EtcdStore, namespace: str) -> None:
        """A generator on a lease of it."""
        async with aetcd.Client(etcd.host, etcd.port) as client:
            machine = EtcdStore(client).machine_id_distributor(namespace=namespace)
            async with SnowflakeId(machine) as generator:
                assert await generator.next_id() > 0
            assert [each.instance_id for each in await store.machines(namespace=namespace)] == [""]

    async def test_a_lease_that_ends_under_a_call(
        self, etcd: EtcdServer, store: EtcdStore, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Renewed, and gone before it is written: the owner gets another one."""
        leases = Leases(etcd, namespace)
        owner = machine_of(store, namespace, "a")
        await take(owner)
        before = leases.of("alive/00000000")
        leases.end("alive/00000000")  # before it is written
        await owner.renew(0, now_ms=T, fence_ms=T + 7)
        assert leases.of("alive/00000000") not in {0, before}
        before = leases.of("alive/00000000")
        shipped = Member.write_and_keep

        async def ends(member: Member, *args: Any) -> tuple[Any, int]:
            reply, seconds = await shipped(member, *args)
            assert seconds == 300
            leases.end("alive/00000000")  # after it
            return reply, 0

        monkeypatch.setattr(Member, "write_and_keep", ends)
        await owner.renew(0, now_ms=T, fence_ms=T + 8)
        assert leases.of("alive/00000000") not in {0, before}
        assert leases.granted("alive/00000000") == 300
        assert [each.fence_ms for each in await store.machines(namespace=namespace)] == [T + 8]
