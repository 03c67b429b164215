"""An address of a registry that keeps one time, whose process is killed and started again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from aiocosid.abc import InstanceId
from aiocosid.abc.restart import Found, RestartRecord
from aiocosid.compat._stamps import LIVES, claim_stamp, name_of, named_stamps, stamp
from aiocosid.compat._worker_ids import Entry, Registry, WorkerIdDistributor
from aiocosid.compat.leaf_snowflake._local import record_of_leaf
from aiocosid.errors import (
    CorruptMachineStateError,
    MachineIdUnavailableError,
    StoreUnavailableError,
)
from aiocosid.machine import MachineIdLease
from aiocosid.machine.restart import (
    early_floor_ms,
    is_last,
    least_floor_ms,
    offline_floor_ms,
    unconfirmed_record,
    unconfirmed_since_ms,
)
from aiocosid.testing import ManualClock, settle
from tests.machine_disk import Disk, MemoryPlace

from ._kit import Call
from .machine._lives import highest, wait_of_start

OFFLINE = 600.0
NOW = 1_790_000_000_000
WHO = InstanceId("10.0.0.1:8080", stable=True)
NUMBER = 7


class TestNames:
    """What a stamp says of the write that left it."""

    def test_who_takes_an_id_that_is_ahead_of_the_clock_is_told_from_who_renews_it(self) -> None:
        """The former's name is the last one, whoever has taken the id and issued nothing."""
        found, name = NOW + 4500, name_of({NOW + 4500}, NUMBER)
        claimed = claim_stamp(found, NOW)
        assert is_last(name, name_of({found}, NUMBER))
        assert is_last(name, name_of({claimed}, NUMBER))
        assert not is_last(name, name_of({claimed}, NUMBER + 1))
        assert not is_last(name, name_of({stamp(claimed, claimed + 1)}, NUMBER))
        assert not is_last(name, name_of({found - 1}, NUMBER))
        assert stamp(claimed, claimed + 1) == claimed + LIVES

    def test_one_of_several_whose_answers_were_lost(self) -> None:
        """Each may be the last; of very many the first, which was read, and the latest."""
        stamps = {NOW + LIVES * each for each in range(20)}
        name = name_of(stamps, NUMBER)
        assert named_stamps(name, NUMBER) == {NOW, *sorted(stamps)[-16:]}
        assert named_stamps(name, NUMBER + 1) == named_stamps("", NUMBER) == set()
        latest = NOW + LIVES * 19
        assert is_last(name, name_of({latest}, NUMBER))
        assert is_last(name, name_of({latest - LIVES}, NUMBER))
        assert not is_last(name, name_of({latest + LIVES}, NUMBER))
        assert is_last(name, name_of({NOW}, NUMBER))
        assert not is_last(name, name_of({NOW + LIVES}, NUMBER))
        assert len(name) < 1000

    def test_what_nobody_has_confirmed(self) -> None:
        """It is the last of no registry, and bounds ids from both sides."""
        record = unconfirmed_record(NUMBER, 10, last_ms=NOW - 9, now_ms=NOW, offline=60)
        assert RestartRecord.read(record.text()) == record
        assert unconfirmed_since_ms(record.renewal, NUMBER) == NOW
        assert unconfirmed_since_ms(record.renewal, NUMBER + 1) == -1
        assert unconfirmed_since_ms(name_of({NOW}, NUMBER), NUMBER) == -1
        assert named_stamps(record.renewal, NUMBER) == set()
        found = Found(record=record, lock="8:1", boot="b", boot_ms=5)
        for former in (NOW, NOW + 1):
            assert early_floor_ms(found, name_of({former}, NUMBER)) is None
        assert least_floor_ms(found) == NOW - 9
        assert offline_floor_ms(found, 10, NOW + 59_999) == NOW - 9
        assert offline_floor_ms(found, 10, NOW + 60_000) is None
        assert offline_floor_ms(found, 9, NOW) is None
        assert least_floor_ms(Found()) == -1


# What the fork's node has left.


def leaf_file(directory: Path, text: str) -> None:
    (directory / "workerID.properties").write_text(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("workerID=7\n", id="Leaf's own has no time"),
        pytest.param(f"workerID=0\nmaxTimestamp={NOW}\n", id="many may have 0"),
        pytest.param(f"workerID=1024\nmaxTimestamp={NOW}\n", id="it does not fit"),
        pytest.param(None, id="nothing"),
    ],
)
def test_a_file_that_proves_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        leaf_file(tmp_path, text)
    assert record_of_leaf(tmp_path, OFFLINE) is None


def test_the_fork_s_file(tmp_path: Path) -> None:
    """Its number, above its time; a damaged one is an error."""
    leaf_file(tmp_path, f"#a\nworkerID=7\nmaxTimestamp={NOW}\n")
    record = record_of_leaf(tmp_path, OFFLINE)
    assert record is not None
    assert (record.machine_id, record.bits, record.until_ms) == (7, 10, NOW)
    since = unconfirmed_since_ms(record.renewal, 7)
    assert record.fence_ms == since + int(OFFLINE * 1000)
    leaf_file(tmp_path, "workerID=x")
    with pytest.raises(CorruptMachineStateError):
        record_of_leaf(tmp_path, OFFLINE)


# Lives.


class Table:
    """A registry's only row, or none.

    Attributes:
        stamp: the time of the address.
        is_down: whether nobody answers.
        loses: whether writes are done, and their answers lost.
        drops: whether writes are lost.
    """

    label = address = "table"

    def __init__(self, clock: ManualClock) -> None:
        self.stamp, self.is_down, self.loses = clock.now_ms() - 1, False, False
        self.drops = False
        self.held: anyio.Event | None = None  # a write waits for it, and is done

    async def aopen(self) -> None:
        """Do nothing."""


class Rows(Registry[Table]):
    """A registry in memory, as a process sees it."""

    def __init__(self, table: Table, is_alive: Callable[[], bool]) -> None:
        super().__init__(table, "table", WHO, interval=3.0)
        self.is_alive = is_alive

    def _check(self) -> None:
        if self.door.is_down or not self.is_alive():
            raise StoreUnavailableError("table", "cut off")

    async def find(self, at: Table, bits: int, now_ms: int, latest_ms: int) -> Entry | None:
        return await self.read(at, NUMBER)

    async def read(self, at: Table, worker_id: int) -> Entry | None:
        self._check()
        return Entry(worker_id=NUMBER, stamp=at.stamp, owner=WHO.text)

    async def write(self, at: Table, entry: Entry, new: int) -> bool:
        self._check()
        if at.drops:
            raise StoreUnavailableError("table", "dropped")
        if at.stamp != entry.stamp:
            return False
        at.stamp = new
        if at.held is not None:
            await at.held.wait()
        if at.loses:
            raise StoreUnavailableError("table", "lost")
        return True


class Bench:
    """A registry, a machine with a disk, and the lives of one address on it.

    Attributes:
        last_ms: the time of the latest id; none that a later life issues is as early.
    """

    def __init__(self, offline: float = OFFLINE) -> None:
        self.clock = ManualClock()
        self.table, self.disk, self.offline = Table(self.clock), Disk(self.clock.monotonic), offline
        self.lives: list[MachineIdLease] = []
        self.last_ms = 0
        self._alive: set[int] = set()
        self.inherit: Callable[[], RestartRecord | None] = lambda: None

    def lease(self, disk: Disk | None = None, **options: Any) -> MachineIdLease:
        number = len(self.lives)
        self._alive.add(number)

        def is_alive() -> bool:
            return number in self._alive

        place = MemoryPlace(disk or self.disk, is_alive, self.offline, self.inherit)
        machine = WorkerIdDistributor(Rows(self.table, is_alive), place)
        self.lives.append(MachineIdLease(machine, clock=self.clock, **options))
        return self.lives[-1]

    @property
    def losses(self) -> int:
        return self.lives[-1].statistics().losses

    def kill(self, *, is_down: bool | None = None) -> None:
        self._alive.clear()
        if is_down is not None:
            self.table.is_down = is_down

    async def use(self) -> None:
        """Have the latest life issue an id."""
        self.last_ms = max(self.last_ms, await highest(self.lives[-1], self.clock))

    async def start(self, *, longest: float = 0.6, **options: Any) -> None:
        """Start a life within so many seconds, whose first id is later than all before."""
        lease = self.lease(**options)
        assert await wait_of_start(lease, self.clock) <= longest
        first_ms = await highest(lease, self.clock)
        assert first_ms > self.last_ms
        self.last_ms = first_ms

    async def is_refused(self, disk: Disk | None = None, match: str | None = None) -> None:
        """Start a life that gets no machine id."""
        lease = self.lease(disk, start_timeout=3)
        with pytest.raises(MachineIdUnavailableError, match=match):
            await wait_of_start(lease, self.clock)

    async def reach(self) -> None:
        """Let the registry answer, and a renewal pass."""
        self.table.is_down = self.table.drops = self.table.loses = False
        await self.clock.advance(3)

    async def hold_a_write(self) -> None:
        """Wait until a write has been done whose answer does not come."""
        mark, self.table.held = self.table.stamp, anyio.Event()
        while self.table.stamp == mark:
            await self.clock.advance(0.1)

    async def end(self) -> None:
        self.table.is_down = self.table.loses = self.table.drops = False
        for lease in self.lives:
            await lease.aclose()


@pytest_asyncio.fixture
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A bench whose first life runs; it may start without the registry, unless it is told."""
    bench = Bench(getattr(request, "param", OFFLINE))
    await bench.start(longest=0.1)
    yield bench
    await bench.end()


with_the_registry_alone = pytest.mark.parametrize("bench", [0.0], indirect=True)


class TestLives:
    """Killed, and started again on the same machine."""

    @with_the_registry_alone
    async def test_with_a_directory_it_does_not_wait_for_its_mark(self, bench: Bench) -> None:
        """Nor after a start that was killed between taking the number and the first renewal."""
        for _ in range(2):
            bench.kill()
            bench.table.stamp = claim_stamp(bench.table.stamp, bench.clock.now_ms())
            await bench.start()
            await bench.clock.advance(3)

    @with_the_registry_alone
    async def test_calls_that_took_the_number_and_whose_answers_were_lost(
        self, bench: Bench
    ) -> None:
        """The next one begins as early; it knows its own stamps."""
        bench.kill()
        mark, bench.table.loses = bench.table.stamp, True
        lease = bench.lease()
        opening = Call(lease.__aenter__)
        while bench.table.stamp < mark + 2:
            await bench.clock.advance(0.01)
        bench.table.loses = False
        await bench.clock.advance(0.7)
        assert opening.is_done
        await settle()
        assert bench.clock.now_ms() > await highest(lease, bench.clock) - 1 > bench.last_ms

    async def test_a_start_that_the_disk_refuses_does_not_count(self, bench: Bench) -> None:
        """When the registry answers, the number is taken anew, and its mark is waited for."""
        bench.kill(is_down=True)
        bench.disk.is_lost = True
        lease = bench.lease()
        async with anyio.create_task_group() as group:
            group.start_soon(lease.__aenter__)
            await bench.clock.advance(0.2)
            bench.disk.is_lost = False
            await bench.reach()
            assert (bench.losses, lease.statistics().renewals > 0) == (0, True)
            group.cancel_scope.cancel()

    @with_the_registry_alone
    async def test_an_orderly_end_lowers_the_stamp_and_voids_the_record(self, bench: Bench) -> None:
        """The stamp of the record may come a second time."""
        record = RestartRecord.read(bench.disk.text)
        assert record is not None
        mark = bench.table.stamp
        assert record.renewal == name_of({mark}, NUMBER)
        await bench.lives[-1].aclose()
        assert bench.last_ms <= bench.table.stamp < bench.last_ms + 2 * LIVES < mark
        bench.table.stamp = mark
        await bench.clock.advance(0.7)
        assert await wait_of_start(bench.lease(), bench.clock) > 2

    @with_the_registry_alone
    async def test_a_stamp_that_cannot_be_lowered_safely_stays(self, bench: Bench) -> None:
        """The record cannot be made void: the next start waits."""
        mark = bench.table.stamp
        bench.disk.is_lost = True
        await bench.lives[-1].aclose()
        assert bench.table.stamp == mark

    @pytest.mark.parametrize("is_orderly", [False, True])
    async def test_it_starts_without_the_registry(self, bench: Bench, *, is_orderly: bool) -> None:
        """Above its ids, up to the confirmed mark; when the registry is back it is asked."""
        if is_orderly:
            await bench.lives[-1].aclose()
        mark = bench.table.stamp
        bench.kill(is_down=True)
        await bench.start()
        assert bench.lives[-1].limit_ms() <= mark
        await bench.clock.advance(10)
        await bench.use()
        bench.kill()
        await bench.start()
        await bench.reach()
        assert (bench.losses, bench.lives[-1].statistics().renewals > 0) == (0, True)
        assert bench.table.stamp > mark
        assert (bench.table.stamp - mark) % LIVES == 1
        bench.kill()
        await bench.start()

    async def test_a_renewal_whose_answer_was_lost_is_its_own(self, bench: Bench) -> None:
        """Although the process was killed before it heard of it."""
        bench.table.loses = True
        await bench.clock.advance(3.5)
        bench.table.is_down = True
        await bench.clock.advance(3)
        bench.kill()
        await bench.start()
        await bench.reach()
        assert bench.losses == 0
        bench.kill()
        await bench.start()

    async def test_killed_between_a_renewal_and_its_record(self, bench: Bench) -> None:
        """The record before has named it; also that of a start without the registry."""
        for is_alone in (False, True):
            if is_alone:
                bench.kill(is_down=True)
                await bench.start()
                await bench.clock.advance(20)
                bench.table.is_down = False
            await bench.hold_a_write()
            bench.kill()
            bench.table.held = None
            await bench.start()

    @with_the_registry_alone
    async def test_without_the_right_no_write_is_named_before_it_is_sent(
        self, bench: Bench
    ) -> None:
        """Ids follow a new bound before its record is on the disk: the mark is waited for."""
        await bench.hold_a_write()
        bench.kill()
        bench.table.held = None
        assert await wait_of_start(bench.lease(), bench.clock) > 2

    async def test_a_record_from_before_another_owner_is_not_renamed(self, bench: Bench) -> None:
        """Its bounds say nothing of the other's ids."""
        machine = bench.lives[-1].distributor
        bench.table.stamp += 5000
        text, now_ms = bench.disk.text, bench.clock.now_ms()
        await machine.distribute(10, now_ms=now_ms, latest_ms=now_ms)
        await machine.renew(NUMBER, now_ms=now_ms, fence_ms=now_ms)
        assert bench.disk.text == text

    async def test_a_silent_registry_is_not_waited_for(self, bench: Bench) -> None:
        """Nor does the call that it has carried out take the number away."""
        bench.kill()
        bench.table.held = anyio.Event()
        await bench.start()
        bench.table.held = None
        await bench.clock.advance(5)
        assert bench.losses == 0

    @pytest.mark.parametrize("since", [1, 64, 700, 4242])
    async def test_it_is_silent_if_another_process_has_the_address(
        self, bench: Bench, since: int
    ) -> None:
        """And the disk gives no right any more."""
        bench.kill(is_down=True)
        await bench.start(on_lost="raise")
        bench.table.stamp = found = bench.table.stamp + since
        await bench.reach()
        assert (bench.lives[-1].limit_ms(), bench.table.stamp) == (-1, found)
        bench.kill(is_down=True)
        await bench.is_refused()

    async def test_a_start_without_the_right_lowers_the_mark(self, bench: Bench) -> None:
        """For another machine, or for a Leaf node."""
        await bench.lives[-1].aclose()
        assert bench.table.stamp > bench.clock.now_ms() + 500_000
        bench.offline = 0.0
        await bench.start()
        await bench.lives[-1].aclose()
        assert bench.last_ms <= bench.table.stamp < bench.last_ms + 2 * LIVES

    async def test_opened_again_in_one_process(self, bench: Bench) -> None:
        """What the registry told the opening before counts no more; a call of it is its own."""
        lease = bench.lives[0]
        for is_claimed in (False, True):
            await lease.aclose()
            bench.table.held = anyio.Event() if is_claimed else None
            bench.table.is_down = not is_claimed
            assert await wait_of_start(lease, bench.clock) <= 0.6
            bench.table.held = None
            await bench.reach()
            assert bench.losses == 0
            before_ms = bench.last_ms
            await bench.use()
            assert bench.last_ms > before_ms

    async def test_many_renewals_that_are_refused_lose_nothing(self, bench: Bench) -> None:
        """The registry can be read, and not written, as after a fail-over."""
        bench.table.drops = True
        await bench.clock.advance(100)
        bench.table.drops = False
        for is_down in (False, True):
            bench.kill(is_down=is_down)
            await bench.start()
            await bench.reach()
            assert bench.losses == 0

    async def test_elsewhere_it_waits_for_the_mark(self, bench: Bench) -> None:
        """From the registry, which has it so far ahead."""
        bench.kill()
        elsewhere = Disk(bench.clock.monotonic, boot="elsewhere")
        await bench.is_refused(elsewhere, "fence is 59")


@pytest_asyncio.fixture
async def after_leaf(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A bench where a fork's node has ended, ahead by so many ms, and the registry fails."""
    bench = Bench()
    bench.last_ms = last_ms = bench.clock.now_ms() + getattr(request, "param", 0)
    bench.table.stamp, bench.table.is_down = bench.clock.now_ms() - 1, True
    bench.inherit = lambda: unconfirmed_record(
        NUMBER, 10, last_ms=last_ms, now_ms=bench.clock.now_ms(), offline=OFFLINE
    )
    yield bench
    await bench.end()


def ahead(*times_ms: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("after_leaf", times_ms, indirect=True)


class TestAfterLeaf:
    """With the file of a node that has ended."""

    @ahead(1500)
    async def test_it_begins_above_the_node_s_time(self, after_leaf: Bench) -> None:
        """And goes on when the registry says that nobody has come since."""
        began = after_leaf.clock.now_ms()
        await after_leaf.start(longest=2.1)
        await after_leaf.reach()
        assert after_leaf.losses == 0
        assert after_leaf.table.stamp > began + int(OFFLINE * 1000)
        for is_down in (False, True):
            await after_leaf.use()
            after_leaf.kill(is_down=is_down)
            await after_leaf.start()

    async def test_it_ends_after_so_many_seconds(self, after_leaf: Bench) -> None:
        """Starts in between give no further ones, and the file is not read again."""
        began = after_leaf.clock.now_ms()
        for _ in range(3):
            await after_leaf.start()
            assert after_leaf.lives[-1].limit_ms() <= began + int(OFFLINE * 1000)
            await after_leaf.clock.advance(100)
            after_leaf.kill()
        await after_leaf.clock.advance(OFFLINE - 300)
        for text in (after_leaf.disk.text, after_leaf.disk.text[:-9]):
            after_leaf.disk.text = text
            await after_leaf.is_refused()
            after_leaf.kill()

    @pytest.mark.parametrize("is_read", [False, True])
    async def test_the_registry_does_not_know_of_its_ids(
        self, after_leaf: Bench, *, is_read: bool
    ) -> None:
        """A start with the registry is above them nevertheless, though the clock is behind."""
        await after_leaf.start()
        after_leaf.table.is_down, after_leaf.table.drops = not is_read, True
        await after_leaf.clock.advance(20)
        await after_leaf.use()
        after_leaf.kill(is_down=False)
        after_leaf.table.drops = False
        after_leaf.disk.boot_anew()
        after_leaf.clock.step_wall_ms(-3000)
        await after_leaf.start(longest=9)

    @pytest.mark.parametrize("offline", [OFFLINE, 0.0])
    async def test_beside_a_living_process_it_takes_nothing(
        self, after_leaf: Bench, offline: float
    ) -> None:
        """The registry does not know of its ids yet."""
        await after_leaf.start()
        after_leaf.offline, found = offline, after_leaf.table.stamp
        late = after_leaf.lease(start_timeout=1)
        after_leaf.table.is_down = False
        opening = Call(late.__aenter__)
        await after_leaf.clock.advance(0.01)
        assert (late.machine_id, after_leaf.table.stamp) == (-1, found)
        opening.cancel()
        await settle()

    @ahead(900)
    async def test_a_clock_that_is_behind_the_node_s_time(self, after_leaf: Bench) -> None:
        """A report of the node's last moments is no report after the start."""
        after_leaf.table.stamp += 900
        await after_leaf.start(longest=2)
        await after_leaf.reach()
        assert after_leaf.losses == 0

    async def test_after_a_loss_the_record_keeps_the_floor(self, after_leaf: Bench) -> None:
        """The registry does not know of the ids, and the clock may be set back."""
        await after_leaf.start(on_lost="raise")
        await after_leaf.clock.advance(10)
        await after_leaf.use()
        after_leaf.table.stamp = after_leaf.clock.now_ms() - 1000
        await after_leaf.reach()
        assert after_leaf.losses == 1
        after_leaf.kill()
        after_leaf.clock.step_wall_ms(-5000)
        await after_leaf.start(longest=10)

    @pytest.mark.parametrize("is_down", [False, True])
    async def test_the_first_renewal_whose_answer_was_lost_is_its_own(
        self, after_leaf: Bench, *, is_down: bool
    ) -> None:
        """With the registry, and without it."""
        await after_leaf.start()
        after_leaf.table.is_down = False
        await after_leaf.hold_a_write()
        after_leaf.kill(is_down=is_down)
        after_leaf.table.held = None
        await after_leaf.start()
        await after_leaf.reach()
        assert after_leaf.losses == 0

    @pytest.mark.parametrize("is_first", [True, False])
    async def test_it_is_silent_if_the_node_still_runs(
        self, after_leaf: Bench, *, is_first: bool
    ) -> None:
        """It wrote its clock, before us or after us."""
        await after_leaf.start(on_lost="raise")
        await after_leaf.clock.advance(10)
        if not is_first:
            await after_leaf.reach()
        after_leaf.table.stamp = after_leaf.clock.now_ms()
        await after_leaf.reach()
        assert after_leaf.lives[-1].limit_ms() == -1
