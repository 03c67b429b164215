"""Whether a stable instance that was killed begins before its fence has passed, and where."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from aiocosid.abc import InstanceId
from aiocosid.abc.restart import Found, RestartRecord
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdUnavailableError,
    StoreError,
)
from aiocosid.machine.cells import MachineRecord, MachineSlot, Owner
from aiocosid.machine.restart import early_floor_ms, is_still_its
from aiocosid.machine.restart_file import RestartFile
from aiocosid.snowflake import COSID_MS, UID_GENERATOR_HA, CachedSnowflakeId, SnowflakeId
from aiocosid.stores.memory import MemoryStore
from tests.machine_disk import Disk

from .._kit import Call
from ._lives import POD, Bench, highest

RECORD = RestartRecord(
    renewal="t 7 50 3", lock="8:1", boot="b", boot_ms=5_000, bound_ms=100_000, floor_ms=90_000
)
FOUND = Found(record=RECORD, lock="8:1", boot="b", boot_ms=7_000)


DAMAGES: list[Callable[[str], str]] = [
    lambda text: "",
    lambda text: text[:-9],
    lambda text: text.replace("100000", "100001"),
    lambda text: text.replace("5000", "-5000"),
    lambda text: text.partition(" ")[2],
    lambda text: "\\xff" * 40,
]


class TestDecision:
    """The pure rules."""

    def test_the_same_boot_the_same_lock_and_the_last_renewal_are_a_proof(self) -> None:
        """The bound, the time since, a margin, and a millisecond for two readings rounded down."""
        assert early_floor_ms(FOUND, "t 7 50 3") == 100_000 + 2_000 + 500 + 1

    def test_a_call_that_took_the_id_and_was_not_followed_by_a_renewal_counts_for_nothing(
        self,
    ) -> None:
        """As that of a start which was killed: it has issued no id."""
        assert early_floor_ms(FOUND, "u 8 60 3") == early_floor_ms(FOUND, "t 7 50 3")

    def test_it_is_never_below_the_floor_of_the_former_one(self) -> None:
        """Which is that of an owner before, whose clock may have been ahead."""
        record = replace(RECORD, floor_ms=200_000)
        assert early_floor_ms(replace(FOUND, record=record), "t 7 50 3") == 200_000

    @pytest.mark.parametrize(
        ("found", "former"),
        [
            pytest.param(replace(FOUND, boot="other"), "t 7 50 3", id="other boot"),
            pytest.param(replace(FOUND, boot_ms=4_999), "t 7 50 3", id="boot time gone back"),
            pytest.param(replace(FOUND, boot=""), "t 7 50 3", id="unknown boot"),
            pytest.param(FOUND, "u 7 50 3", id="other token"),
            pytest.param(FOUND, "t 8 60 3", id="older than a renewal or an operator's mark"),
            pytest.param(FOUND, "t 7 51 3", id="a stamp of CosId's"),
            pytest.param(FOUND, "u 9 60 3", id="taken and renewed since"),
            pytest.param(FOUND, "u 8 60 4", id="another machine id"),
            pytest.param(FOUND, "", id="not the instance's own"),
            pytest.param(replace(FOUND, record=None), "t 7 50 3", id="no record"),
            pytest.param(replace(FOUND, lock=""), "t 7 50 3", id="another one has the lock"),
            pytest.param(replace(FOUND, lock="8:2"), "t 7 50 3", id="another lock file"),
            pytest.param(Found(record=replace(RECORD, renewal="")), "", id="nothing"),
        ],
    )
    def test_everything_else_waits_for_the_mark(self, found: Found, former: str) -> None:
        """No rule is left out."""
        assert early_floor_ms(found, former) is None

    def test_a_renewal_without_a_record_issued_no_id_if_ids_depend_on_the_disk(self) -> None:
        """Killed between the two; a stamp is no lower than the floor that an operator has set."""
        found = replace(FOUND, record=replace(RECORD, until_ms=150_000))
        due = early_floor_ms(found, "t 7 50 3")
        assert due == 102_501
        assert early_floor_ms(found, "t 8 60 3") == due
        assert early_floor_ms(found, "t 8 200000 3") == 200_000
        others = "t 9 60 3", "t 7 51 3", "t 8 60 4", "u 9 60 3", "", None
        assert [early_floor_ms(found, each) for each in others] == [None] * len(others)

    @pytest.mark.parametrize(
        ("former", "is_its"),
        [
            pytest.param(None, True, id="unknown"),
            pytest.param("t 7 50 3", True, id="the record's own"),
            pytest.param("t 8 60 3", True, id="a later renewal of its writer"),
            pytest.param("u 8 60 3", True, id="taken and not renewed"),
            pytest.param("t 7 51 3", False, id="a stamp of CosId's"),
            pytest.param("u 9 60 3", False, id="taken and renewed since"),
            pytest.param("", False, id="another instance's"),
        ],
    )
    def test_without_the_store_nobody_is_known_to_have_had_the_id_since(
        self, former: str | None, *, is_its: bool
    ) -> None:
        """By what a call has read of the store before its answer was lost."""
        assert is_still_its(RECORD, former) == is_its

    def test_a_record_survives_being_stored(self) -> None:
        """As text."""
        assert RestartRecord.read(RECORD.text()) == RECORD

    @pytest.mark.parametrize("harm", DAMAGES)
    def test_a_damaged_record_is_none(self, harm: Callable[[str], str]) -> None:
        """Whatever is left of it: also one digit that has changed."""
        assert RestartRecord.read(harm(RECORD.text())) is None

    def test_a_renewal_is_named_by_token_turn_and_stamp(self) -> None:
        """And only that of the instance that holds the id."""
        note = MachineRecord("a", stable=True, fence_ms=9, token="t", version=7)  # noqa: S106 - no password
        slot = MachineSlot((Owner("a", 50),), note)
        assert slot.renewal_of("a", 3) == "t 7 50 3"
        others = [
            MachineSlot(),
            MachineSlot((Owner("a", 50),)),
            MachineSlot((Owner("", 50),), note),
            MachineSlot((Owner("b", 50),), note),
            MachineSlot((Owner("a", 50), Owner("b", 50)), note),
            replace(slot, record=replace(note, instance="b")),
            replace(slot, record=replace(note, token="")),
        ]
        assert [each.renewal_of("a", 3) for each in others] == [""] * len(others)


def record(renewal: str, bound_ms: int) -> RestartRecord:
    return RestartRecord(renewal=renewal, boot_ms=1, bound_ms=bound_ms, floor_ms=-1)


def file(directory: Path, **names: str) -> RestartFile:
    described: Any = {"store": "memory", "namespace": "n", "instance": "a", **names}
    return RestartFile(directory, **described)


pytestmark = pytest.mark.filterwarnings("error")


class TestFile:
    """Lock and record on a disk."""

    async def test_a_successor_finds_what_was_written(self, tmp_path: Path) -> None:
        """Once the lock was given up."""
        one = file(tmp_path / "made")
        assert (await one.take()).record is None
        await one.write(record("r", 100))
        await one.leave()
        two = file(tmp_path / "made")
        found = await two.take()
        assert found.record is not None
        assert (found.record.renewal, found.record.bound_ms) == ("r", 100)
        assert early_floor_ms(found, "r") is not None
        await two.leave()

    @pytest.mark.parametrize("text", [None, "", "damaged", record("r", 1).text()])
    async def test_what_another_system_has_left_counts_where_we_never_were(
        self, tmp_path: Path, text: str | None
    ) -> None:
        """A damaged record tells that we were."""
        left = record("left", 1)
        one = RestartFile(tmp_path, store="s", namespace="n", instance="a", inherit=lambda: left)
        if text is not None:
            one._path.write_text(text)
        found = (await one.take()).record
        assert found is not None
        assert (found is left) == (text is None)
        await one.leave()

    async def test_the_lock_is_exclusive(self, tmp_path: Path) -> None:
        """Of two that share a directory one has it; the other reads, and does not write."""
        one, two = file(tmp_path), file(tmp_path)
        assert (await one.take()).lock
        await one.write(record("one", 1))
        found = await two.take()
        assert not found.lock
        assert found.record is not None
        assert early_floor_ms(found, "one") is None
        await two.write(record("two", 2))
        await one.leave()
        await two.write(record("late", 3))  # it has the lock by now
        assert not (await one.take()).lock
        await two.leave()
        last = (await one.take()).record
        assert last is not None
        assert last.renewal == "late"
        await one.leave()

    async def test_a_lock_that_is_held_already_proves_nothing(self, tmp_path: Path) -> None:
        """Left by an opening whose loop has died: its ids may still be handed out."""
        one = file(tmp_path)
        await one.take()
        await one.write(record("one", 1))
        found = await one.take()
        assert found.lock
        assert early_floor_ms(found, "one") is None
        await one.leave()

    async def test_a_cancelled_write_is_not_under_way_for_ever(self, tmp_path: Path) -> None:
        """It may end before a thread has begun with it."""
        one = file(tmp_path)
        await one.take()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.write(record("one", 1))
        assert await one.write(record("two", 2))
        await one.leave()

    async def test_a_thread_that_is_late_writes_no_older_record(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its caller has given up, and ids were issued above that record since."""
        one = file(tmp_path)
        await one.take()
        late: list[Callable[[], bool]] = []

        async def give_up(call: Callable[[], bool]) -> bool:
            late.append(call)
            return False

        with monkeypatch.context() as patch:
            patch.setattr("aiocosid.machine.restart_file.in_thread", give_up)
            await one.write(record("old", 1))
        assert await one.write(record("new", 2))
        assert not late[0]()
        await one.leave()
        found = (await one.take()).record
        assert found is not None
        assert found.renewal == "new"
        await one.leave()

    async def test_after_the_end_it_knows_nothing_of_the_store(self, tmp_path: Path) -> None:
        """The next opening reads the store anew."""
        one = file(tmp_path)
        one.former = "r"
        await one.leave()
        assert one.former is None

    async def test_a_directory_has_to_be_named(self) -> None:
        """An empty text would be the working directory, whatever it is."""
        with pytest.raises(InvalidArgumentError, match="state_dir"):
            MemoryStore().machine_id_distributor(instance_id=POD, state_dir="")

    async def test_a_removed_lock_file_proves_nothing(self, tmp_path: Path) -> None:
        """Its holder runs, and locks the new file with its next record."""
        one, two = file(tmp_path), file(tmp_path)
        await one.take()
        await one.write(record("r", 1))
        await anyio.Path(str(one._lock.path)).unlink()
        found = await two.take()
        assert found.record is not None
        assert found.lock
        assert early_floor_ms(found, "r") is None
        await one.write(record("s", 2))
        await two.leave()
        await one.write(record("s", 2))
        await one.leave()
        found = await two.take()
        assert found.record is not None
        assert found.record.lock == found.lock
        await two.leave()

    async def test_a_copied_directory_proves_nothing(self, tmp_path: Path) -> None:
        """The owner of the original may run."""
        one = file(tmp_path / "a")
        await one.take()
        await one.write(record("r", 1))
        (tmp_path / "b").mkdir()
        for each in (tmp_path / "a").iterdir():
            (tmp_path / "b" / each.name).write_bytes(each.read_bytes())
        two = file(tmp_path / "b")
        found = await two.take()
        assert found.record is not None
        assert early_floor_ms(found, "r") is None
        await one.leave()
        await two.leave()

    async def test_stores_namespaces_and_instances_have_files_of_their_own(
        self, tmp_path: Path
    ) -> None:
        """They share a directory, and no lock."""
        files = [
            file(tmp_path),
            file(tmp_path, store="s"),
            file(tmp_path, namespace="m"),
            file(tmp_path, instance="b"),
        ]
        assert all([(await each.take()).lock for each in files])
        for each in files:
            await each.leave()

    async def test_a_lock_that_is_removed_during_a_write(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another process may have read the record before: nobody relies on the new one."""
        one = file(tmp_path)
        await one.take()

        def write_slowly(path: Path, text: str) -> None:
            (tmp_path / f"{path.name}.lock").unlink()
            path.write_text(text)

        monkeypatch.setattr("aiocosid.machine.restart_file.write_text", write_slowly)
        assert not await one.write(record("r", 100))
        await one.leave()

    async def test_after_the_end_nothing_is_locked(self, tmp_path: Path) -> None:
        """Also by a call that is only now reached."""
        one = file(tmp_path)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.take()
        await one.leave()
        two = file(tmp_path)
        assert (await two.take()).lock
        await two.leave()

    async def test_a_directory_that_cannot_be_made_is_an_error(self, tmp_path: Path) -> None:
        """It names the place."""
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="state_dir"):
            await file(tmp_path / "file").take()


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.end()


HARMS: dict[str, Callable[[Bench], object]] = {
    "boot": lambda bench: bench.disk.boot_anew(),
    "lock removed": lambda bench: bench.disk.remove_lock(),
    "missing": lambda bench: setattr(bench.disk, "text", ""),
    "damaged": lambda bench: setattr(bench.disk, "text", bench.disk.text[:-1] + "0\n"),
    "boot time back": lambda bench: setattr(bench.disk, "behind", bench.disk.behind + 50),
    "alive": lambda bench: setattr(bench.disk, "holder", lambda: True),
}


class TestLease:
    """Lives of a stable instance."""

    async def test_after_a_crash_it_waits_for_a_second(self, bench: Bench) -> None:
        """Not for its mark."""
        lease = await bench.lease().__aenter__()
        await bench.clock.advance(7.5)
        last = await highest(lease, bench.clock)
        bench.kill()
        again = bench.lease()
        assert await bench.wait_of_start(again) <= 1.1
        assert await highest(again, bench.clock) > last

    @pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
    async def test_without_a_proof_it_waits_for_the_mark(
        self, bench: Bench, harm: Callable[[Bench], object]
    ) -> None:
        """Which is 15 s ahead at most."""
        await bench.lease().__aenter__()
        await bench.clock.advance(1)
        bench.kill()
        harm(bench)
        wait = await bench.wait_of_start(bench.lease())
        assert 13.9 <= wait <= 15.1

    async def test_a_record_before_the_last_renewal_proves_nothing(self, bench: Bench) -> None:
        """A copy, a restored disk, or a write that failed."""
        await bench.lease().__aenter__()
        old = bench.disk.text
        await bench.clock.advance(10.1)
        assert bench.disk.text != old
        bench.disk.text = old
        bench.kill()
        assert await bench.wait_of_start(bench.lease()) > 13.9

    async def test_on_another_machine_it_waits_for_the_mark(self, bench: Bench) -> None:
        """And so does the next one here, because the other one had the id since."""
        await bench.lease().__aenter__()
        bench.kill()
        elsewhere = Disk(bench.clock.monotonic, boot="elsewhere")
        assert await bench.wait_of_start(bench.lease(elsewhere)) > 14
        bench.kill()
        assert await bench.wait_of_start(bench.lease()) > 8.9

    async def test_a_clock_that_jumps_is_followed_after_a_renewal(self, bench: Bench) -> None:
        """Until then ids carry the bound, also while the store is down: nobody is silenced."""
        lease = await bench.lease().__aenter__()
        gen = SnowflakeId(lease, clock=bench.clock)
        await gen.__aenter__()
        began = bench.clock.now_ms()
        bench.links[0].cut()
        bench.clock.step_wall_ms(3_600_000)
        for second in range(12):
            ids = [await gen.next_id() for _ in range(500)]
            times = [COSID_MS.parse(each).timestamp_ms for each in ids]
            assert began + second * 1000 <= times[0]
            assert times[-1] <= began + second * 1000 + 1001
            assert gen.next_id_nowait() > ids[-1]
            await bench.clock.advance(1)
        bench.links[0].heal()
        await bench.clock.advance(2.1)
        assert COSID_MS.parse(await gen.next_id()).timestamp_ms > began + 3_600_000
        await gen.aclose()

    @pytest.mark.parametrize("before_ms", [3_600_000, -3_600_000, 900])
    @pytest.mark.parametrize("after_ms", [0, 3_600_000, -300])
    async def test_ids_are_above_the_former_ones_whatever_the_clocks_do(
        self, bench: Bench, before_ms: int, after_ms: int
    ) -> None:
        """They step before the crash and after it."""
        lease = await bench.lease().__aenter__()
        await bench.clock.advance(2)
        last = await highest(lease, bench.clock)
        bench.clock.step_wall_ms(before_ms)
        if before_ms > 0:
            last = await highest(lease, bench.clock)
        bench.kill()
        bench.clock.step_wall_ms(after_ms - min(before_ms, 0))
        again = bench.lease()
        await bench.wait_of_start(again)
        assert await highest(again, bench.clock) > last

    async def test_ids_of_a_clock_that_was_ahead_count_when_it_is_back(self, bench: Bench) -> None:
        """The bound is not below an id that was issued before it."""
        lease = await bench.lease().__aenter__()
        bench.clock.step_wall_ms(30_000)
        await bench.clock.advance(10.1)
        last = await highest(lease, bench.clock)
        bench.clock.step_wall_ms(-30_000)
        await bench.clock.advance(9.9)
        bench.kill()
        again = bench.lease()
        await bench.wait_of_start(again)
        assert await highest(again, bench.clock) > last

    async def test_a_start_that_is_killed_passes_the_floor_on(self, bench: Bench) -> None:
        """The next one begins above the ids of the life before, whose clock was ahead."""
        lease = await bench.lease().__aenter__()
        bench.clock.step_wall_ms(8_000)
        await bench.clock.advance(10.1)
        last = await highest(lease, bench.clock)
        bench.kill()
        bench.clock.step_wall_ms(-8_000)
        starting = Call(bench.lease().__aenter__)
        await bench.clock.advance(0.5)
        assert bench.lives[-1].floor_ms > last
        bench.kill()
        starting.cancel()
        again = bench.lease()
        await bench.wait_of_start(again)
        assert await highest(again, bench.clock) > last

    async def test_seconds_that_were_borrowed_are_below_the_bound(self, bench: Bench) -> None:
        """A ring's ids are ahead of the clock; the successor is above them, and may borrow too."""
        layout = UID_GENERATOR_HA
        lease = bench.lease(bits=layout.machine_bits)
        gen = CachedSnowflakeId(lease, layout=layout, clock=bench.clock)
        await gen.__aenter__()
        last = (await gen.next_ids(layout.ids_per_tick * 12))[-1]
        assert lease.statistics().renewals <= 2  # as much as was asked for, not a second at a time
        bench.kill()
        again = bench.lease(bits=layout.machine_bits)
        heir = CachedSnowflakeId(again, layout=layout, clock=bench.clock)
        opening = Call(heir.__aenter__)
        await bench.clock.advance(0.1)
        assert (opening.is_done, opening.error) == (True, None)
        assert layout.parse(await heir.next_id()).timestamp_ms > layout.parse(last).timestamp_ms
        bench.links[0].heal()
        await heir.aclose()
        await gen.aclose()

    async def test_a_ring_in_use_is_renewed_once_in_each_interval(self) -> None:
        """Each renewal allows for the seconds that it prepares; without a record it is the same."""
        renewals = []
        for has_record in (True, False):
            bench = Bench()
            lease = bench.lease(bits=UID_GENERATOR_HA.machine_bits)
            if not has_record:
                bench.links[0].restart = None
            async with CachedSnowflakeId(lease, clock=bench.clock) as gen:
                for _ in range(600):
                    await gen.next_id()
                    await bench.clock.advance(1)
                renewals.append(lease.statistics().renewals)
        kept, plain = renewals
        assert plain - 5 <= kept <= plain + 5 < 75  # of ten seconds each, or a bit less

    async def test_a_ring_at_rest_makes_nobody_wait(self, bench: Bench) -> None:
        """The bound returns to the clock once no seconds are prepared any more."""
        lease = bench.lease(bits=UID_GENERATOR_HA.machine_bits)
        gen = await CachedSnowflakeId(lease, clock=bench.clock).__aenter__()
        await bench.clock.advance(25)
        await gen.next_id()
        await bench.clock.advance(25)
        bench.kill()
        again = bench.lease(bits=UID_GENERATOR_HA.machine_bits)
        assert await bench.wait_of_start(again) <= 1.1
        bench.links[0].heal()
        await gen.aclose()

    async def test_a_clean_end_needs_no_wait_at_all(self, bench: Bench) -> None:
        """The mark was lowered."""
        async with bench.lease() as lease:
            last = await highest(lease, bench.clock)
        again = bench.lease()
        assert await bench.wait_of_start(again) <= 0.01
        assert await highest(again, bench.clock) > last

    async def test_crashes_in_a_row_do_not_add_up(self) -> None:
        """Each start waits for a second."""
        bench, last = Bench(), 0
        for number in range(8):
            lease = bench.lease()
            assert await bench.wait_of_start(lease) <= (1.1 if number else 0.01)
            now = await highest(lease, bench.clock)
            assert now > last
            last = now
            await bench.clock.advance(0.05)
            bench.kill()
        await bench.end()

    async def test_a_disk_that_fails_costs_the_wait_only(self, bench: Bench) -> None:
        """The instance runs on."""
        bench.disk.is_lost = True
        lease = await bench.lease().__aenter__()
        await highest(lease, bench.clock)
        bench.kill()
        assert await bench.wait_of_start(bench.lease()) > 14.5


class TestArguments:
    """What the store is told."""

    @pytest.mark.parametrize("who", [None, "one", InstanceId("one")])
    def test_a_state_dir_is_for_stable_instances(
        self, who: InstanceId | str | None, tmp_path: Path
    ) -> None:
        """Another one may get another machine id."""
        with pytest.raises(InvalidArgumentError, match="state_dir"):
            MemoryStore().machine_id_distributor(instance_id=who, state_dir=tmp_path)

    def test_a_stable_instance_renews_six_times_as_often(self) -> None:
        """By default: its mark is what it has to wait for."""
        store = MemoryStore()
        assert store.machine_id_distributor(instance_id=POD).interval == 10
        assert store.machine_id_distributor(instance_id=POD, interval=7).interval == 7
        assert store.machine_id_distributor().interval == 60


class TestPatience:
    """How long a start waits at most."""

    async def test_a_start_timeout_bounds_the_wait_for_a_mark(self, bench: Bench) -> None:
        """It fails at once, not when the time is over; the id is given back."""
        await bench.lease().__aenter__()
        bench.kill()
        bench.disk.boot_anew()
        with pytest.raises(MachineIdUnavailableError, match=r"15 s ahead") as caught:
            await bench.lease(start_timeout=10).__aenter__()
        assert caught.value.waited == 0
