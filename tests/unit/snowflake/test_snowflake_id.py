"""The generator: ticks, a clock that steps, forward jumps, waits in order, closing, forks."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiocosid.abc import MachineIdDistributor
from aiocosid.abc.events import ClockBackwards
from aiocosid.errors import (
    BusyError,
    ClockTooFarForwardError,
    ClockTooManyBackwardsError,
    ClosedError,
    InvalidArgumentError,
    LayoutExpiredError,
    MachineBitsMismatchError,
    NotOpenError,
    WouldBlock,
)
from aiocosid.machine import MachineIdLease, ManualMachineIdDistributor
from aiocosid.snowflake import COSID_MS, COSID_S, UID_GENERATOR, SnowflakeId, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, settle

from .._kit import Call, Ear, settled, tasks
from ._kit import machines

NARROW = SnowflakeLayout(41, 10, 2, "ms", 1_577_203_200_000, name="narrow")


async def test_ids_rise_and_carry_time_and_machine_id(clock: ManualClock) -> None:
    """Of the moment at which they were asked for."""
    async with SnowflakeId(machines(), clock=clock) as gen:
        ids = [await gen.next_id() for _ in range(3)]
        await clock.advance(0.001)
        ids += await gen.next_ids(2)
        ids.append(gen.next_id_nowait())
    seen = [COSID_MS.parse(each) for each in ids]
    assert ids == sorted(set(ids))
    assert [each.machine_id for each in seen] == [0] * 6
    began = seen[0].timestamp_ms
    assert [each.timestamp_ms - began for each in seen] == [0, 0, 0, 1, 1, 1]
    assert [each.sequence for each in seen] == [1, 2, 3, 4, 5, 6]


async def test_a_used_up_tick_is_waited_out_in_order(clock: ManualClock) -> None:
    """Callers share one wait; nobody who comes later is served before."""
    async with SnowflakeId(machines(), layout=NARROW, clock=clock) as gen:
        first = [await gen.next_id() for _ in range(3)]
        calls = [Call(gen.next_id) for _ in range(6)]
        await settle()
        assert not any(call.is_done for call in calls)
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        await clock.advance(0.001)
        assert [call.is_done for call in calls] == [True] * 4 + [False] * 2
        await clock.advance(0.001)
        ids = first + [call.result for call in calls]
        assert ids == sorted(set(ids))
        assert gen.statistics().waits_for_tick == 2


async def test_a_caller_that_gives_up_leaves_the_line(clock: ManualClock) -> None:
    """What was taken for it is a gap; who stands behind it does not wait longer for its sake."""
    async with SnowflakeId(machines(), layout=NARROW, clock=clock) as gen:
        held = await gen.next_ids(NARROW.ids_per_tick - 1)
        impatient = asyncio.create_task(gen.next_ids(NARROW.ids_per_tick + 1))
        await settle()
        behind = await settled(Call, gen.next_ids, 2)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        await clock.advance(0.001)
        assert behind.is_done
        single = Call(gen.next_id)
        await clock.advance(0.001)
        ids = [*held, *behind.result, single.result]
        assert ids == sorted(set(ids))
        assert {NARROW.parse(each).timestamp_ms for each in behind.result} == {clock.now_ms() - 1}


async def test_an_error_while_callers_wait_is_theirs(clock: ManualClock) -> None:
    """They do not wait for ever: here for a clock that was behind, and then jumps."""
    async with SnowflakeId(machines(), max_forward_jump=10, clock=clock) as gen:
        await gen.next_id()
        clock.step_wall_ms(-500)
        calls = [Call(gen.next_id), Call(gen.next_ids, 2)]
        await settle()
        clock.step_wall_ms(20_000)
        await clock.advance(0.5)
        assert all(isinstance(call.error, ClockTooFarForwardError) for call in calls)


@pytest.mark.parametrize("back_ms", [1, 5, 500, 1999])
async def test_a_step_back_is_waited_out(back_ms: int, clock: ManualClock, ear: Ear) -> None:
    """Nobody notices more than a short wait, and no id repeats; an id comes with the old tick."""
    async with SnowflakeId(machines(), clock=clock, instrument=ear) as gen:
        first = await gen.next_id()
        clock.step_wall_ms(-back_ms)
        calls = [Call(gen.next_id) for _ in range(5)]
        await settle()
        with pytest.raises(WouldBlock):
            gen.next_id_nowait()
        await clock.advance((back_ms - 1) / 1000)
        assert not any(call.is_done for call in calls)
        await clock.advance(0.001)
        ids = [first, *(call.result for call in calls)]
        assert ids == [first + n for n in range(6)]
        assert gen.statistics().longest_backwards == back_ms / 1000
        assert [event.backwards for event in ear.of(ClockBackwards)] == [back_ms / 1000]


@pytest.mark.parametrize("back_ms", [2001, 3_600_000])
async def test_a_large_step_back_is_an_error_with_the_distance(
    back_ms: int, clock: ManualClock
) -> None:
    """At once, for each caller; and the clock that was set right is followed."""
    async with SnowflakeId(machines(), clock=clock) as gen:
        first = await gen.next_id()
        clock.step_wall_ms(-back_ms)
        for call in (gen.next_id, lambda: gen.next_ids(3)):
            with pytest.raises(ClockTooManyBackwardsError) as caught:
                await call()
            assert (caught.value.backwards, caught.value.threshold) == (back_ms / 1000, 2.0)
        with pytest.raises(ClockTooManyBackwardsError):
            gen.next_id_nowait()
        clock.step_wall_ms(back_ms)
        assert await gen.next_id() == first + 1


async def test_a_second_step_back_while_waiting_counts_against_the_same_deadline(
    clock: ManualClock,
) -> None:
    """Two seconds are two seconds, however the clock behaves meanwhile."""
    async with SnowflakeId(machines(), clock=clock) as gen:
        await gen.next_id()
        clock.step_wall_ms(-1500)
        call = Call(gen.next_id)
        await clock.advance(1.2)
        clock.step_wall_ms(-1500)
        await clock.advance(0.7)
        assert call.error is None
        await clock.advance(0.2)
        assert isinstance(call.error, ClockTooManyBackwardsError)


async def test_a_clock_set_right_while_waiting_is_followed_soon(clock: ManualClock) -> None:
    """Not only when the time that was missing has passed."""
    async with SnowflakeId(machines(), clock=clock) as gen:
        await gen.next_id()
        clock.step_wall_ms(-1900)
        call = Call(gen.next_id)
        await clock.advance(0.05)
        clock.step_wall_ms(1900)
        await clock.advance(0.1)
        assert call.is_done


async def test_without_a_threshold_a_call_waits_as_long_as_it_may(clock: ManualClock) -> None:
    """And no longer: it is the caller's own deadline."""
    async with SnowflakeId(machines(), broken_threshold=None, clock=clock) as gen:
        first = await gen.next_id()
        clock.step_wall_ms(-60_000)
        call = Call(gen.next_id)
        await clock.advance(59)
        assert not call.is_done
        await clock.advance(1)
        assert call.result == first + 1


async def test_a_forward_jump_is_followed_or_refused(clock: ManualClock) -> None:
    """Refused only with a limit; the lease's mark is renewed before an id has the new time."""
    async with SnowflakeId(machines(), clock=clock) as gen:
        first = await gen.next_id()
        clock.step_wall_ms(3_600_000)
        call = Call(gen.next_id)
        await clock.advance(0.001)
        assert call.result is not None
        assert call.result > first
        assert gen.statistics().waits_for_lease == 1
    async with SnowflakeId(machines(), max_forward_jump=10, clock=clock) as gen:
        await gen.next_id()
        await clock.advance(100)
        await gen.next_id()
        clock.step_wall_ms(10_000)
        await gen.next_id()
        clock.step_wall_ms(10_001)
        with pytest.raises(ClockTooFarForwardError) as caught:
            await gen.next_id()
        assert caught.value.limit == 10


async def test_without_waiting_there_is_no_end_of_a_turn(clock: ManualClock) -> None:
    """Nobody can be given one; a second has ids enough."""
    async with SnowflakeId(machines(), layout=COSID_S, clock=clock) as gen:
        ids = [gen.next_id_nowait() for _ in range(20_001)]
    assert ids == list(range(ids[0], ids[0] + 20_001))


async def test_two_generators_of_one_name_share_one_sequence(clock: ManualClock) -> None:
    """On one distributor they share the machine id; with other names the ids are their own."""
    distributor = machines()
    one, two = (SnowflakeId(distributor, clock=clock) for _ in range(2))
    other = SnowflakeId(distributor, name="other", clock=clock)
    async with one, two, other:
        ids = [await gen.next_id() for gen in (one, two, one, two)]
        assert ids == sorted(set(ids))
        assert await other.next_id() == ids[0]
        assert distributor is not None
        await one.aclose()
        assert await two.next_id() == ids[-1] + 1


@pytest.mark.parametrize("differ_in", ["name", "namespace", "store", "choice by hand"])
async def test_what_is_unique_alone_is_not_unique_together(
    differ_in: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Each of two generators makes all ids of the tick, as the pages say."""
    store = MemoryStore()
    one = machines(store)
    lease = MachineIdLease(one, clock=clock)
    others: dict[str, MachineIdLease | MachineIdDistributor] = {
        "name": lease,
        "namespace": machines(store, namespace="other"),
        "store": machines(),
        "choice by hand": ManualMachineIdDistributor(0, state_dir=tmp_path),
    }
    name = "other" if differ_in == "name" else "one"
    async with (
        lease,
        SnowflakeId(lease, name="one", clock=clock) as first,
        SnowflakeId(others[differ_in], name=name, clock=clock) as second,
    ):
        assert await first.next_ids(3) == await second.next_ids(3)


async def test_what_a_cancelled_batch_leaves_is_a_gap(clock: ManualClock) -> None:
    """By the next batch there may be ids above it."""
    async with SnowflakeId(machines(), layout=NARROW, clock=clock) as gen:
        batch = await settled(Call, gen.next_ids, 10)
        await settled(batch.cancel)
        await clock.advance(0.01)
        single = gen.next_id_nowait()
        again = Call(gen.next_ids, 6)
        await clock.advance(0.01)
        assert min(again.result) > single


async def test_one_name_with_two_layouts_is_refused(clock: ManualClock) -> None:
    """Two widths in one namespace too."""
    distributor = machines()
    async with SnowflakeId(distributor, clock=clock):
        with pytest.raises(BusyError, match="another layout"):
            async with SnowflakeId(distributor, layout=COSID_S, clock=clock):
                raise AssertionError
        with pytest.raises(BusyError, match="threshold"):
            async with SnowflakeId(distributor, sequence_reset_threshold=None, clock=clock):
                raise AssertionError
        lease = MachineIdLease(machines(), clock=clock)
        given: dict[str, Any] = {"sequence_reset_threshold": None, "clock": clock}
        async with SnowflakeId(lease, random_start=100, **given):
            for limit in (None, 99):
                with pytest.raises(BusyError):
                    await SnowflakeId(lease, random_start=limit, **given).__aenter__()
        with pytest.raises(MachineBitsMismatchError):
            SnowflakeId(
                distributor, layout=SnowflakeLayout(41, 8, 12, "ms", 1_577_203_200_000), clock=clock
            )


async def test_reopened_it_goes_on_above(clock: ManualClock) -> None:
    """Though the clock stepped back while it was closed."""
    gen = SnowflakeId(machines(), clock=clock)
    async with gen:
        first = await gen.next_ids(5)
    clock.step_wall_ms(-1000)
    opening = Call(gen.__aenter__)
    await clock.advance(0.9)
    assert (opening.result, opening.error) == (None, None)
    await clock.advance(0.2)
    assert opening.result is gen
    assert await gen.next_id() > first[-1]
    await gen.aclose()


async def test_closing_fails_who_waits_and_leaves_nothing(clock: ManualClock) -> None:
    """No task, no timer."""
    gen = SnowflakeId(machines(), layout=NARROW, clock=clock)
    async with gen:
        await gen.next_ids(3)
        calls = [Call(gen.next_id) for _ in range(3)]
        await settle()
    assert all(isinstance(call.error, ClosedError) for call in calls)
    assert tasks() == []
    assert clock.pending == 0
    with pytest.raises(ClosedError):
        await gen.next_id()
    with pytest.raises(ClosedError):
        gen.next_id_nowait()


async def test_before_it_is_opened_it_says_so(clock: ManualClock) -> None:
    gen = SnowflakeId(machines(), clock=clock)
    with pytest.raises(NotOpenError):
        await gen.next_id()


@pytest.mark.parametrize("cancel_at", range(6))
async def test_a_storm_of_cancelled_callers(cancel_at: int, clock: ManualClock) -> None:
    """Every id handed out is unique, and the rest is served."""
    async with SnowflakeId(machines(), layout=NARROW, clock=clock) as gen:
        taken = await gen.next_ids(3)
        calls = [Call(gen.next_ids, 3) for _ in range(9)]
        for step in range(cancel_at):
            await (clock.advance(0.001) if step % 2 else settle())
        for call in calls[::2]:
            call.cancel()
        await clock.advance(0.02)
        for call in calls:
            taken += call.result or []
        assert all(call.result for call in calls[1::2])
        taken.append(await gen.next_id())
        assert len(taken) == len(set(taken))
        assert gen.statistics().waiting == 0


async def test_it_runs_in_the_users_task_group(clock: ManualClock) -> None:
    gen = SnowflakeId(machines(), clock=clock)
    async with anyio.create_task_group() as group:
        assert await group.start(gen.run) is gen
        assert await gen.next_id() > 0
        await gen.aclose()


async def test_an_expired_layout_is_an_error_when_it_is_opened(clock: ManualClock) -> None:
    """uid-generator's default ended in 2024; the error says what to do."""
    clock.set_wall_ms(1_732_108_000_000 + 86_400_000 * 30)
    gen = SnowflakeId(machines(), layout=UID_GENERATOR, clock=clock)
    with pytest.raises(LayoutExpiredError, match="2024-11-20"):
        async with gen:
            raise AssertionError


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("broken_threshold", -1),
        ("broken_threshold", "2"),
        ("max_forward_jump", -0.5),
        ("wait_timeout", 0),
        ("close_timeout", True),
        ("sequence_reset_threshold", 4096),
        ("sequence_reset_threshold", -2),
        ("machine", 7),
    ],
)
async def test_bad_arguments_are_named(argument: str, value: object) -> None:
    options = {"machine": machines(), argument: value}
    with pytest.raises(InvalidArgumentError) as caught:
        SnowflakeId(options.pop("machine"), **options)  # type: ignore[arg-type]
    assert caught.value.argument == argument


async def test_a_lease_given_by_the_user_stays_open(clock: ManualClock) -> None:
    """It closes with its own block; generators come and go on it."""
    store = MemoryStore()
    async with MachineIdLease(machines(store), clock=clock) as lease:
        async with SnowflakeId(lease, clock=clock) as gen:
            first = await gen.next_id()
        assert lease.machine_id == 0
        async with SnowflakeId(lease, clock=clock) as gen:
            assert await gen.next_id() > first
    assert lease.machine_id == -1
    assert [machine.instance_id for machine in await store.machines()] == [""]


async def test_a_random_start_spreads_the_remainders(clock: ManualClock) -> None:
    """They are flat at an id a millisecond, where 0 in each tick has one alone: N26."""
    spread: dict[int | None, Counter[int]] = {None: Counter(), 100: Counter()}
    for limit, found in spread.items():
        gen = SnowflakeId(
            machines(), clock=clock, random_start=limit, sequence_reset_threshold=None
        )
        async with gen:
            ids = []
            for _ in range(3000):
                ids.append(await gen.next_id())
                clock.stall(0.001)
            ids += await gen.next_ids(4096 - 99)  # what a tick has at least
            assert gen.statistics().waits_for_tick == 0
        assert ids == sorted(set(ids))
        found.update(COSID_MS.parse(each).sequence % 10 for each in ids[:3000])
    assert set(spread[None]) == {0}
    assert min(spread[100].values()) > 200
    assert len(spread[100]) == 10


@pytest.mark.parametrize(
    "options",
    [
        {"random_start": 0},
        {"random_start": 4097},
        {"random_start": True},
        {"random_start": 100, "sequence_reset_threshold": 5},
    ],
)
async def test_a_bad_random_start_is_refused(options: dict[str, Any]) -> None:
    """It takes the place of the threshold."""
    with pytest.raises(InvalidArgumentError):
        SnowflakeId(machines(), **options)
