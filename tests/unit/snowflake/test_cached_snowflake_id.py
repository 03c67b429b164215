"""The cached generator: bursts, its bound, the mark, crashes, losses, and who waits for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiocosid.abc import InstanceId
from aiocosid.abc.events import RingEmptied, RingFilled
from aiocosid.errors import (
    BusyError,
    ClockTooManyBackwardsError,
    CosIdError,
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdUnavailableError,
    RingEmptyError,
    WouldBlock,
)
from aiocosid.machine import MachineIdLease, ManualMachineIdDistributor
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    UID_GENERATOR_HA,
    CachedSnowflakeId,
    SnowflakeId,
    SnowflakeLayout,
)
from aiocosid.testing import ManualClock, settle

from .._kit import Call, Ear, settled
from ..machine._kit import Link, store_of
from ..machine.test_lease_fork import in_child
from ._kit import machines

POD = InstanceId("pod-0", stable=True)

NARROW = SnowflakeLayout(31, 10, 4, "s", 1_577_203_200_000, name="narrow")


def cached(clock: ManualClock, machine: Any = None, **options: Any) -> CachedSnowflakeId:
    options = {"layout": NARROW, "clock": clock, **options}
    return CachedSnowflakeId(machine or machines(), **options)


def ahead(clock: ManualClock, ids: list[int]) -> list[int]:
    """Whole seconds that each is ahead of the clock."""
    now = NARROW.tick_at(clock.now_ms())
    return [NARROW.tick_at(NARROW.parse(each).timestamp_ms) - now for each in ids]


async def test_a_burst_waits_for_nothing(clock: ManualClock, ear: Ear) -> None:
    """Twelve times what its seconds have, by single ids and in batches; the clock stands still."""
    async with CachedSnowflakeId(machines(), clock=clock, instrument=ear) as gen:
        seen = gen.statistics()
        assert (seen.capacity, seen.filled, seen.fills, seen.borrowed) == (65_536, 65_536, 1, 0)
        ids = [await gen.next_id() for _ in range(20_000)]
        ids += await gen.next_ids(80_000)
        ids.append(gen.next_id_nowait())
        seen = gen.statistics()
    assert ids == sorted(set(ids))
    assert ids[0] & 8191 == 0
    assert UID_GENERATOR_HA.parse(ids[-1]).timestamp_ms // 1000 == clock.now_ms() // 1000 + 12
    assert (seen.ids_handed_out, seen.borrowed) == (100_001, 12)
    assert (seen.waits_for_tick, seen.waits_for_clock, seen.waits_for_lease) == (0, 0, 0)
    assert 32_768 <= seen.filled <= 65_536
    assert 1 < len(ear.of(RingFilled)) <= seen.fills
    assert not ear.of(RingEmptied)


async def test_an_empty_ring_may_be_an_error(clock: ManualClock, ear: Ear) -> None:
    """At the bound, for one id as for many, of which none is taken; soon there are more."""
    async with cached(clock, max_borrow=9.5, on_empty="raise", instrument=ear) as gen:
        ids = await gen.next_ids(9 * 16)
        with pytest.raises(RingEmptyError) as caught:
            await gen.next_ids(17)
        assert (caught.value.counter, caught.value.borrowed) == ("cosid.__share__", 8)
        ids += await gen.next_ids(16)
        calls = [Call(each) for each in (gen.next_id, gen.next_id)]
        await settle()
        assert [type(call.error) for call in calls] == [RingEmptyError] * 2
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        await clock.advance(1)
        ids += [await gen.next_id(), *await gen.next_ids(15)]
        assert len(ear.of(RingEmptied)) >= 2
        assert gen.statistics().ids_handed_out == len(ids) == 11 * 16
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("fails", [False, True])
async def test_handlers_of_the_ring(
    clock: ManualClock, ear: Ear, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """They hear what an instrument hears; one that fails breaks nothing, and is logged once."""
    heard: list[object] = []

    def handle(event: object) -> None:
        heard.append(event)
        if fails:
            raise ZeroDivisionError

    handlers = {"when_filled": handle, "when_empty": handle}
    async with cached(clock, max_borrow=9.5, on_empty="raise", instrument=ear, **handlers) as gen:
        ids = await gen.next_ids(10 * 16)
        for _ in range(2):
            with pytest.raises(RingEmptyError):
                await gen.next_id()
        await clock.advance(3)
        ids += await gen.next_ids(16)
    assert ids == sorted(set(ids))
    assert heard == [event for event in ear.events if isinstance(event, RingFilled | RingEmptied)]
    assert {type(event) for event in heard} == {RingFilled, RingEmptied}
    assert caplog.text.count("the instrument failed") == fails


async def test_one_handler_alone(clock: ManualClock) -> None:
    """Without an instrument, and with callers that wait."""
    heard: list[RingEmptied] = []
    async with cached(clock, max_borrow=9.5, when_empty=heard.append) as gen:
        await gen.next_ids(10 * 16)
        call = Call(gen.next_id)
        await clock.advance(1)
        assert call.result > 0
    assert [event.borrowed for event in heard]


async def test_a_lease_that_allows_no_ids_empties_the_ring(clock: ManualClock, link: Link) -> None:
    """While the store is cut off its error is the cause."""
    async with cached(clock, link, on_empty="raise") as gen:
        link.cut()
        await clock.advance(400)
        with pytest.raises(RingEmptyError) as caught:
            await gen.next_id()
        assert isinstance(caught.value.__cause__, CosIdError)


async def test_a_clock_that_stepped_back_is_waited_for_all_the_same(clock: ManualClock) -> None:
    """That is no empty ring."""
    async with cached(clock, on_empty="raise") as gen:
        await gen.next_id()
        clock.step_wall_ms(-61_000)
        calls = [Call(gen.next_id), Call(gen.next_ids, 3)]
        await clock.advance(1.9)
        assert all(call.error is None for call in calls)


async def test_at_the_bound_callers_wait_in_line(clock: ManualClock, ear: Ear) -> None:
    """For the clock, and for each other; nothing is thrown: N23."""
    async with cached(clock, max_borrow=9.5, instrument=ear) as gen:
        ids = await gen.next_ids(10 * 16)
        assert max(ahead(clock, ids)) == 9
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        calls = [Call(gen.next_ids, 5) for _ in range(6)]
        await settle()
        assert not any(call.is_done for call in calls)
        assert gen.statistics().filled == 0
        await clock.advance(1)
        assert [call.is_done for call in calls] == [True] * 3 + [False] * 3
        assert max(ahead(clock, calls[2].result)) == 9
        await clock.advance(1)
        for call in calls:
            ids += call.result
        assert ids == sorted(set(ids))
        assert [event.borrowed for event in ear.of(RingEmptied)] == [9, 9]
        assert gen.statistics().waits_for_tick == 2


async def test_a_clock_that_steps_back(clock: ManualClock) -> None:
    """Within the bound nobody notices; a little more is waited for, far more an error: N3, N4."""
    async with cached(clock, max_borrow=10) as gen:
        ids = await gen.next_ids(16)
        clock.step_wall_ms(-9000)
        ids += [await gen.next_id()]
        clock.step_wall_ms(-2000)
        call = await settled(Call, gen.next_id)
        assert not call.is_done
        await clock.advance(2)
        await settled(ids.append, call.result)
        clock.step_wall_ms(-3_600_000)
        with pytest.raises(ClockTooManyBackwardsError) as caught:
            gen.next_id_nowait()
        assert 3590 < caught.value.backwards <= 3600
        assert ids == sorted(set(ids))


async def test_the_mark_is_ahead_of_what_is_borrowed(clock: ManualClock, link: Link) -> None:
    """Raised in the background, by few renewals, and never further than the lease lasts."""
    lease = MachineIdLease(link, clock=clock)
    async with cached(clock, lease, max_borrow=250) as gen:
        ids: list[int] = []
        for _ in range(251):
            ids = await gen.next_ids(16)
            assert NARROW.parse(ids[-1]).timestamp_ms <= lease.statistics().fence_ms
            await settle()
        assert ahead(clock, ids[-1:]) == [250]
        assert lease.statistics().fence_ms <= clock.now_ms() + 270_000
        assert link.calls.count("guard") <= 6
        assert gen.statistics().waits_for_lease == 0
        for _ in range(60):  # and a minute at the bound
            await clock.advance(1)
            await gen.next_ids(16)
        assert link.calls.count("guard") <= 20


async def test_a_restart_after_a_burst(clock: ManualClock) -> None:
    """The next life's first id is above all, also after a crash, of whatever kind: N5, N15, N24."""
    store = store_of(clock)
    crashed = cached(clock, MachineIdLease(Link(store, POD), clock=clock))
    await crashed.__aenter__()
    ids = await crashed.next_ids(50 * 16)
    async with cached(clock, Link(store, POD), max_borrow=200) as second:
        ids.append(await second.next_id())  # above the mark, and at once
        assert 50 <= ahead(clock, ids[-1:])[0] <= 151
        ids += await second.next_ids(100)
    # Given back in peace: above the last id, not above the mark.
    async with cached(clock, Link(store, POD), max_borrow=200) as third:
        ids.append(await third.next_id())
        assert ahead(clock, ids[-1:])[0] - ahead(clock, ids[-2:-1])[0] <= 2
    other = SnowflakeId(Link(store, POD), layout=NARROW, clock=clock, broken_threshold=200)
    opening = await settled(Call, other.__aenter__)
    assert not opening.is_done  # it does not borrow
    await clock.advance(160)
    await settled(ids.append, await other.next_id())
    await other.aclose()
    assert ids == sorted(set(ids))
    assert len({NARROW.parse(each).machine_id for each in ids}) == 1
    await crashed.aclose()


async def test_a_lost_lease_silences_it(clock: ManualClock, link: Link) -> None:
    """Prepared ids and a piece in hand among what is not handed out any more: N13."""
    lease = MachineIdLease(link, clock=clock, on_lost="raise")
    async with cached(clock, lease, layout=UID_GENERATOR_HA) as gen:
        await gen.next_ids(8192 * 3)
        await gen.next_id()
        assert gen.statistics().filled > 0
        link.refuse("guard")
        await clock.advance(271)
        call = Call(gen.next_id)
        await clock.advance(5)
        assert isinstance(call.error, MachineIdUnavailableError)
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        async with SnowflakeId(Link(link.store_, "two"), clock=clock) as other:
            await other.next_id()
            await clock.advance(30)
            await link.store_.evict_machine(machine_id=0)
        link.heal()
        await clock.advance(120)
        with pytest.raises(MachineIdLostError):
            await gen.next_id()


async def test_a_mark_that_cannot_be_raised(clock: ManualClock, link: Link) -> None:
    """Ids go on up to it; then callers wait, for as long as they may."""
    async with cached(clock, MachineIdLease(link, clock=clock), max_borrow=200) as gen:
        link.cut()
        assert len(await gen.next_ids(90 * 16)) == 1440
        call = Call(gen.next_ids, 60 * 16)
        await clock.advance(5.1)
        assert isinstance(call.error, MachineIdUnavailableError)
        again = Call(gen.next_ids, 60 * 16)
        await clock.advance(1)
        link.heal()
        await clock.advance(3)
        assert len(again.result) == 960


async def test_it_is_filled_at_intervals(clock: ManualClock) -> None:
    """While nobody asks; what has passed is no stock."""
    async with cached(clock) as lazy, cached(clock, refill_interval=3) as eager:
        await clock.advance(30)
        assert (lazy.statistics().filled, lazy.statistics().fills) == (0, 1)
        assert eager.statistics().filled >= 64
        assert eager.statistics().fills > 3


async def test_one_ring_for_a_lease_and_name(clock: ManualClock) -> None:
    """Generators that agree share it; others, and a SnowflakeId, are refused."""
    lease = MachineIdLease(machines(), clock=clock)
    async with cached(clock, lease) as one, cached(clock, lease) as two:
        ids = [await (one, two)[turn % 2].next_id() for turn in range(40)]
        assert ids == sorted(set(ids))
        assert one.statistics().ids_handed_out == two.statistics().ids_handed_out == 40
        others = (
            cached(clock, lease, boost=4),
            cached(clock, lease, layout=COSID_S),
            SnowflakeId(lease, layout=NARROW, clock=clock, sequence_reset_threshold=None),
        )
        for other in others:
            with pytest.raises(BusyError, match="in use"):
                await other.__aenter__()
        async with cached(clock, lease, name="other", boost=4) as free:
            assert await free.next_id() == ids[0]  # unique under its own name


async def test_bad_arguments_are_refused(clock: ManualClock) -> None:
    """At once, by the argument's name."""
    bad: list[tuple[str, dict[str, Any]]] = [
        ("name", {"name": ""}),
        ("layout", {"layout": COSID_MS}),
        ("boost", {"boost": 0}),
        ("padding_factor", {"padding_factor": 100}),
        ("max_borrow", {"max_borrow": 7}),
        ("max_borrow", {"max_borrow": 271}),  # above 0.9 of the safe guard
        ("refill_interval", {"refill_interval": 0}),
        ("on_empty", {"on_empty": "discard"}),
        ("when_filled", {"when_filled": "log"}),
        ("when_empty", {"when_empty": 1}),
    ]
    for argument, options in bad:
        with pytest.raises(InvalidArgumentError) as caught:
            cached(clock, **options)
        assert caught.value.argument == argument


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_forked_child_and_a_lock_file(tmp_path: Path) -> None:
    """A chosen machine id may borrow as much as it likes; a child of ours has none of it: N21."""
    machine = ManualMachineIdDistributor(5, state_dir=tmp_path)
    async with CachedSnowflakeId(machine, max_borrow=3600) as gen:
        assert gen.statistics().filled == 65_536
        ids = await gen.next_ids(8192 * 300)

        async def child() -> list[str]:
            answers = []
            for call in (gen.next_id, lambda: gen.next_ids(2)):
                try:
                    answers.append(str(await call()))
                except CosIdError as error:
                    answers.append(type(error).__name__)
            return answers

        assert in_child(child) == ["ForkedError", "ForkedError"]
        ids.append(await gen.next_id())
    again = ManualMachineIdDistributor(5, state_dir=tmp_path)
    async with CachedSnowflakeId(again, max_borrow=3600) as gen:
        ids.append(await gen.next_id())
        assert 299 <= gen.statistics().borrowed <= 303
    assert ids[-3] < ids[-2] < ids[-1]


async def test_a_mark_far_ahead_makes_no_lease_longer(clock: ManualClock) -> None:
    """A suspended process has a monotonic clock that stood still; the wall clock tells it."""
    lease = MachineIdLease(Link(store_of(clock)), clock=clock)
    async with cached(clock, lease, max_borrow=250) as gen:
        await gen.next_ids(250 * 16)
        assert lease.statistics().fence_ms > clock.now_ms() + 249_000
        clock.step_wall_ms(269_000)
        assert lease._opening.tenure.is_surely_ours(270)
        clock.step_wall_ms(1000)
        assert not lease._opening.tenure.is_surely_ours(270)
