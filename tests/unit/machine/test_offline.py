"""A stable instance that may start, and go on, without its store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.errors import (
    CosIdError,
    InvalidArgumentError,
    MachineIdInUseError,
    MachineIdUnavailableError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine.cells import MachineSlot, Owner
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.snowflake import COSID_MS, SnowflakeId
from aiocosid.stores.memory import MemoryStore
from tests.machine_disk import Disk

from .._kit import Call
from ._lives import POD, Bench, highest

OFFLINE = 600.0


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    """The world of an instance that may live on without its store."""
    made = Bench(OFFLINE)
    yield made
    await made.end()


@pytest_asyncio.fixture
async def last(bench: Bench) -> int:
    """The time of the last id that the instance has issued."""
    lease = await bench.lease().__aenter__()
    await bench.clock.advance(7.5)
    return await highest(lease, bench.clock)


def cut_off(bench: Bench, disk: Disk | None = None, **options: Any) -> MachineIdLease:
    """Return a new life that cannot reach the store."""
    lease = bench.lease(disk, **options)
    bench.links[-1].cut()
    return lease


def takes_it(*_: object) -> bool:
    """In the place of the look for a twin: it is said to be over, and the id is taken."""
    return True


class TestStart:
    """While the store is down."""

    async def test_after_a_crash(self, bench: Bench, last: int) -> None:
        """Within a second, above the last id."""
        bench.kill()
        again = cut_off(bench)
        assert await bench.wait_of_start(again) <= 0.6
        assert await highest(again, bench.clock) > last

    async def test_after_an_orderly_end(self, bench: Bench, last: int) -> None:
        """At once; the mark was not given back."""
        await bench.lives[-1].aclose()
        bench.kill()
        again = cut_off(bench)
        assert await bench.wait_of_start(again) <= 0.05
        assert await highest(again, bench.clock) > last

    @pytest.mark.parametrize("is_down", [True, False])
    async def test_after_a_boot_it_waits_for_the_disk_s_mark(
        self, bench: Bench, last: int, is_down: bool
    ) -> None:
        """Which is as near as that of the store without ``offline``; the clock is no proof."""
        bench.kill()
        bench.disk.boot_anew()
        bench.clock.step_wall_ms(-5000)
        again = cut_off(bench) if is_down else bench.lease()
        assert 12 <= await bench.wait_of_start(again) <= 20.1
        assert await highest(again, bench.clock) > last

    @pytest.mark.usefixtures("last")
    async def test_a_silent_store_is_not_waited_for(self, bench: Bench) -> None:
        """Nor does the call whose answer was lost take the id away."""
        bench.kill()
        again = bench.lease()
        bench.links[-1].loses_grants = True
        assert await bench.wait_of_start(again) <= 0.6
        bench.links[-1].loses_grants = False
        await bench.clock.advance(11)
        assert again.statistics().losses == 0
        assert again.last_error is None

    @pytest.mark.usefixtures("last")
    async def test_a_silent_store_that_knows_a_later_owner(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It begins above the ids of an owner elsewhere, or not at all."""
        monkeypatch.setattr(CellMachineIdDistributor, "_is_over", takes_it)
        bench.kill()
        elsewhere = bench.lease(Disk(bench.clock.monotonic, boot="elsewhere"))
        Call(elsewhere.__aenter__)
        await bench.clock.advance(1)
        assert elsewhere.machine_id == 0
        fence_ms = elsewhere.limit_ms()
        again = bench.lease()
        bench.links[-1].loses_grants = True
        Call(again.__aenter__)
        await bench.clock.advance(3)
        assert again.machine_id == -1
        bench.links[-1].loses_grants = False
        await bench.clock.advance(30)
        assert again.floor_ms >= fence_ms

    @pytest.mark.parametrize("offline", [OFFLINE, 0.0])
    async def test_beside_a_living_process_it_takes_nothing(
        self, bench: Bench, last: int, offline: float
    ) -> None:
        """Nor does it raise the mark: the living one goes on; with or without the right."""
        alive = bench.lives[0]
        bench.offline = offline
        late = bench.lease(start_timeout=3)
        with pytest.raises(MachineIdUnavailableError, match="another process has locked it"):
            await bench.wait_of_start(late)
        await bench.clock.advance(11)
        assert alive.statistics().losses == 0
        assert await highest(alive, bench.clock) > last
        bench.offline = OFFLINE
        again = bench.lease()
        opening = Call(again.__aenter__)
        await bench.clock.advance(1)
        bench.kill(0)  # before the new one gives up
        await bench.clock.advance(2)
        assert opening.is_done
        assert await highest(again, bench.clock) > last

    @pytest.mark.parametrize("is_refused", [True, False])
    async def test_opened_again_in_one_process(
        self, bench: Bench, last: int, *, is_refused: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the store told an earlier opening counts no more, nor does a call of it."""
        monkeypatch.setattr(CellMachineIdDistributor, "_is_over", takes_it)
        lease = bench.lives[0]
        await lease.aclose()
        link = bench.links[0]
        if is_refused:
            elsewhere = bench.lease(Disk(bench.clock.monotonic, boot="elsewhere"))
            Call(elsewhere.__aenter__)
            await bench.clock.advance(1)
            fence_ms = elsewhere.limit_ms()
            link.loses_grants = True
            Call(lease.__aenter__)
            await bench.clock.advance(2)
            assert lease.machine_id == -1
            await lease.aclose()
            link.loses_grants, link.is_silent = False, False
            link.cut()
            await bench.wait_of_start(lease)
            link.heal()
            await bench.clock.advance(3)
            assert lease.statistics().losses == 1
            assert lease.floor_ms >= fence_ms
        else:
            link.cut()
            assert await bench.wait_of_start(lease) <= 0.6
            assert await highest(lease, bench.clock) > last

    @pytest.mark.usefixtures("last")
    @pytest.mark.parametrize(
        "harm", ["elsewhere", "copied", "other width", "too late", "damaged", "alive"]
    )
    async def test_without_a_right_it_fails(self, bench: Bench, harm: str) -> None:
        """No record, a damaged one or of another width, no lock, or a mark that has passed."""
        bench.kill()
        disk, bits = bench.disk, 10
        match harm:
            case "elsewhere":
                disk = Disk(bench.clock.monotonic, boot="elsewhere")
            case "copied":
                disk = Disk(bench.clock.monotonic, text=bench.disk.text, lock=7)
            case "other width":
                bits = 8
            case "too late":
                bench.clock.step_wall_ms(610_000)
            case "damaged":
                disk.text = disk.text.replace('"machine_id":0', '"machine_id":1')
            case _:
                disk.holder = lambda: True
        again = cut_off(bench, disk, bits=bits, start_timeout=3)
        with pytest.raises(MachineIdUnavailableError, match=r"cut|another process has locked it"):
            await bench.wait_of_start(again)

    @pytest.mark.parametrize("is_offline", [True, False])
    @pytest.mark.parametrize("harm", ["new", "copied", "cut off"])
    async def test_another_state_dir_takes_nothing(
        self, bench: Bench, last: int, harm: str, *, is_offline: bool
    ) -> None:
        """The process with the first one may issue ids until the mark, and goes on."""
        alive = bench.lives[0]
        disk = Disk(bench.clock.monotonic, lock=7)
        if harm != "new":
            disk.text = bench.disk.text
        if harm == "cut off":
            bench.links[0].cut()
        if not is_offline:
            bench.offline = 0.0
            bench.described.clear()
        twin = bench.lease(disk, start_timeout=3)
        with pytest.raises(MachineIdInUseError, match=r"may issue ids for 59.* s more"):
            await bench.wait_of_start(twin)
        bench.links[0].heal()
        await bench.clock.advance(11)
        assert alive.statistics().losses == 0
        assert await highest(alive, bench.clock) > last
        bench.kill(0)
        await bench.clock.advance(OFFLINE)
        assert await bench.wait_of_start(bench.lease(disk)) < 1


class TestWithoutTheStore:
    """A generator that is open."""

    @pytest.mark.usefixtures("last")
    async def test_it_goes_on_up_to_the_confirmed_mark(self, bench: Bench) -> None:
        """And no further; once the store is back, ids come again."""
        gen = SnowflakeId(bench.lives[0], clock=bench.clock, wait_timeout=0.5)
        async with gen:
            fence_ms = bench.lives[0].limit_ms()
            bench.links[0].cut()
            for _ in range(58):
                await bench.clock.advance(10)
                fence_ms = COSID_MS.parse(await gen.next_id()).timestamp_ms
                assert bench.clock.now_ms() - fence_ms < 1000
            await bench.clock.advance(30)
            assert bench.lives[0].limit_ms() < bench.clock.now_ms()
            bench.links[0].heal()
            await bench.clock.advance(3)
            assert COSID_MS.parse(await gen.next_id()).timestamp_ms > fence_ms

    @pytest.mark.usefixtures("last")
    async def test_the_disk_s_mark_is_kept_ahead(self, bench: Bench) -> None:
        """So that a boot in the outage is followed by a short wait as well."""
        bench.links[0].cut()
        await bench.clock.advance(100)
        last = await highest(bench.lives[0], bench.clock)
        bench.kill()
        bench.disk.boot_anew()
        again = cut_off(bench)
        assert 10 <= await bench.wait_of_start(again) <= 15.1
        assert await highest(again, bench.clock) > last

    @pytest.mark.usefixtures("last")
    async def test_a_disk_that_fails_stops_it(self, bench: Bench) -> None:
        """Another process could begin with what is on the disk."""
        bench.disk.is_lost = True
        await bench.clock.advance(30)
        assert bench.lives[0].limit_ms() < bench.clock.now_ms()
        assert "or the disk does not answer" in str(bench.lives[0].last_error)
        bench.disk.is_lost = False
        await bench.clock.advance(3)
        assert bench.lives[0].limit_ms() > bench.clock.now_ms()

    async def test_the_store_is_asked_first_when_it_is_back(self, bench: Bench, last: int) -> None:
        """If the id is another instance's now, it is silent; the disk gives no right any more."""
        bench.kill()
        again = cut_off(bench, on_lost="raise")
        await bench.wait_of_start(again)
        assert await highest(again, bench.clock) > last
        await bench.store.evict_machine(machine_id=again.machine_id)
        other = bench.store.machine_id_distributor(instance_id="other")
        now_ms = bench.clock.now_ms()
        grant = await other.distribute(10, now_ms=now_ms, latest_ms=2**60)
        assert grant.machine_id == again.machine_id
        assert grant.floor_ms >= again.limit_ms()
        bench.links[-1].heal()
        await bench.clock.advance(3)
        assert again.limit_ms() == -1
        bench.kill()
        with pytest.raises(MachineIdUnavailableError, match="cut"):
            await bench.wait_of_start(cut_off(bench, start_timeout=3))


class TestRefusals:
    """What is no right, from the beginning."""

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"offline": 60.0}, "requires a state_dir"),
            ({"offline": 9.0, "state_dir": "here"}, "longer than the interval of 10"),
            ({"offline": -1.0, "state_dir": "here"}, "seconds"),
            ({"offline": 60.0, "state_dir": "here", "instance_id": "x"}, "stable"),
        ],
    )
    async def test_options(self, options: dict[str, Any], expected: str) -> None:
        """They say what is missing."""
        options.setdefault("instance_id", POD)
        with pytest.raises(InvalidArgumentError, match=expected):
            MemoryStore().machine_id_distributor(**options)

    async def test_a_store_on_a_client(self, tmp_path: Path) -> None:
        """It may be another one next time."""
        store = MemoryStore()
        store._backend.address = ""
        with pytest.raises(InvalidArgumentError, match="connect with a URL"):
            store.machine_id_distributor(instance_id=POD, state_dir=tmp_path, offline=60)

    @pytest.mark.parametrize("is_confirmed", [False, True])
    async def test_beside_cosid(self, tmp_path: Path, is_confirmed: bool) -> None:
        """Which may hand the id out; unless the user knows that it does not."""
        store = MemoryStore()
        await store.machine_id_distributor(instance_id="ours").distribute(
            10, now_ms=1, latest_ms=2**60
        )
        store._backend.cells_of("cosid").slots[1] = MachineSlot((Owner("java", 1),))
        ours = store.machine_id_distributor(
            instance_id=POD, state_dir=tmp_path, offline=60, offline_beside_cosid=is_confirmed
        )
        error: CosIdError | None = None
        try:
            await ours.distribute(10, now_ms=1, latest_ms=2**60)
        except InvalidArgumentError as refused:
            error = refused
        assert (error is None) == is_confirmed
        assert error is None or "CosId's own instance 'java'" in str(error)
