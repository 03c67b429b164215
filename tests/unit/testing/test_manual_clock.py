"""Time that moves when a test says so, on every loop."""

from __future__ import annotations

import math

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid._life.clock import SystemClock
from aiocosid.abc import Clock
from aiocosid.errors import BusyError, InvalidArgumentError
from aiocosid.testing import ManualClock, settle

from .._kit import Call

pytestmark = pytest.mark.anyio


async def test_time_stands_still_until_advanced() -> None:
    """Both times move together, by exactly what they are advanced, and by nothing else."""
    clock = ManualClock(wall_ms=1000)
    await settle()
    assert (clock.monotonic(), clock.now_ms()) == (0.0, 1000)
    await clock.advance(2.5)
    assert (clock.monotonic(), clock.now_ms()) == (2.5, 3500)


async def test_small_steps_add_up() -> None:
    """Ten times 0.1 s is 1 s: a sleeper of 1 s wakes with the tenth."""
    clock = ManualClock()
    sleep = Call(clock.sleep, 1.0)
    for _ in range(9):
        await clock.advance(0.1)
        assert not sleep.is_done
    await clock.advance(0.1)
    assert sleep.is_done
    assert clock.monotonic() == 1.0


async def test_sleepers_wake_in_the_order_of_their_moments() -> None:
    """Each sees the moment it slept for, and whoever slept first wakes first of two at once."""
    clock = ManualClock()
    log: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        log.append((name, clock.monotonic()))

    async with anyio.create_task_group() as group:
        for name, seconds in (("c", 3), ("a", 1), ("b", 2), ("late", 5)):
            group.start_soon(sleeper, name, seconds)
            await settle()
        await clock.advance(4)
        assert log == [("a", 1), ("b", 2), ("c", 3)]
        assert clock.monotonic() == 4
        await clock.advance(1)
    assert log[3:] == [("late", 5)]


async def test_what_a_woken_task_starts_is_seen_on_the_way() -> None:
    """A task that sleeps again after waking wakes several times in one advance."""
    clock = ManualClock()
    beats: list[float] = []

    async def beat() -> None:
        while True:
            await clock.sleep(1)
            await checkpoint()
            beats.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        await clock.advance(3.5)
        assert beats == [1, 2, 3]
        group.cancel_scope.cancel()


async def test_a_chain_of_woken_tasks_runs_to_its_end() -> None:
    """One waker wakes the next through events and more turns; all is done when advance returns."""
    clock = ManualClock()
    events = [anyio.Event() for _ in range(20)]

    async def link(number: int) -> None:
        await events[number].wait()
        for _ in range(number % 3):
            await checkpoint()
        if number + 1 < len(events):
            events[number + 1].set()

    async def first() -> None:
        await clock.sleep(1)
        events[0].set()

    async with anyio.create_task_group() as group:
        for number in range(len(events)):
            group.start_soon(link, number)
        group.start_soon(first)
        await clock.advance(1)
        assert events[-1].is_set()


async def test_a_deadline_ends_its_block() -> None:
    """`move_on_after` cancels at its moment, not before, and says so."""
    clock = ManualClock()
    ended: list[tuple[bool, float]] = []

    async def wait(seconds: float) -> None:
        with clock.move_on_after(seconds) as scope:
            await anyio.sleep_forever()
        ended.append((scope.cancelled_caught, clock.monotonic()))

    async with anyio.create_task_group() as group:
        group.start_soon(wait, 5)
        await clock.advance(4.999)
        assert ended == []
        await clock.advance(0.001)
    assert ended == [(True, 5.0)]


async def test_a_block_that_ends_in_time_has_no_deadline_left() -> None:
    """Nothing waits for the clock after a sleep or a block has ended, however it ended."""
    clock = ManualClock()
    with clock.move_on_after(5) as scope:
        await checkpoint()
        assert clock.pending == 1
    with anyio.CancelScope() as cancelled:
        cancelled.cancel()
        await clock.sleep(5)
    assert not scope.cancel_called
    assert clock.pending == 0
    await clock.advance(10)
    assert not scope.cancel_called


async def test_a_shielded_block_is_kept_from_outside() -> None:
    """With ``shield`` only the deadline ends the block."""
    clock = ManualClock()
    ended = anyio.Event()

    async def wait(outside: anyio.CancelScope) -> None:
        with outside, clock.move_on_after(5, shield=True):
            await anyio.sleep_forever()
        ended.set()

    async with anyio.create_task_group() as group:
        outside = anyio.CancelScope()
        group.start_soon(wait, outside)
        await settle()
        outside.cancel()
        await clock.advance(4)
        assert not ended.is_set()
        await clock.advance(1)
        assert ended.is_set()


@pytest.mark.parametrize("seconds", [0, -1])
async def test_nothing_to_wait_for(seconds: float) -> None:
    """A sleep of nothing only gives the loop a turn; a deadline of nothing cancels at once."""
    clock = ManualClock()
    await clock.sleep(seconds)
    with clock.move_on_after(seconds) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert clock.pending == 0


async def test_for_ever_is_never() -> None:
    """An endless deadline is none."""
    clock = ManualClock()
    with clock.move_on_after(math.inf) as scope:
        await clock.advance(1e9)
    assert not scope.cancel_called


async def test_the_shortest_sleep_takes_time() -> None:
    """A sleep shorter than a tick still waits for the clock: a loop of such sleeps cannot spin."""
    clock = ManualClock()
    sleep = Call(clock.sleep, 1e-15)
    await clock.advance(0)
    assert not sleep.is_done
    await clock.advance(1e-9)
    assert sleep.is_done


async def test_a_busy_task_does_not_hold_the_clock_up() -> None:
    """A task that never waits gets its turns, and the clock moves on all the same."""
    clock = ManualClock()
    turns = 0

    async def busy() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(busy)
        await clock.advance(1)
        assert clock.monotonic() == 1
        assert turns > 100
        group.cancel_scope.cancel()


async def test_a_stalled_loop_wakes_nobody_before_it_goes_on() -> None:
    """After `stall` the time has passed, all that was due is woken, and nobody has run yet."""
    clock = ManualClock()
    log: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        log.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper, 1)
        group.start_soon(sleeper, 2)
        await settle()
        clock.stall(10)
        assert (clock.monotonic(), log) == (10, [])
        await settle()
        assert log == [10, 10]


async def test_the_wall_clock_steps_both_ways() -> None:
    """Steps and settings move the wall clock alone."""
    clock = ManualClock(wall_ms=5000)
    await clock.advance(1)
    clock.step_wall_ms(-3000)
    assert (clock.now_ms(), clock.monotonic()) == (3000, 1)
    clock.step_wall_ms(500)
    assert (clock.now_ms(), clock.monotonic()) == (3500, 1)
    clock.set_wall_ms(100)
    await clock.advance(1)
    assert (clock.now_ms(), clock.monotonic()) == (1100, 2)


@pytest.mark.parametrize("seconds", [-0.1, math.nan, math.inf])
async def test_time_never_goes_back(seconds: float) -> None:
    """What is no finite number of at least 0 is refused, and nothing moves."""
    clock = ManualClock()
    with pytest.raises(InvalidArgumentError, match="seconds"):
        await clock.advance(seconds)
    with pytest.raises(InvalidArgumentError, match="seconds"):
        clock.stall(seconds)
    assert clock.monotonic() == 0


async def test_only_one_task_advances() -> None:
    """Two tasks that advance at once would race for the time: the second is refused."""
    clock = ManualClock()

    async def meddler() -> None:
        await clock.sleep(1)
        with pytest.raises(BusyError):
            await clock.advance(1)

    async with anyio.create_task_group() as group:
        group.start_soon(meddler)
        await clock.advance(2)
    await clock.advance(1)
    assert clock.monotonic() == 3


async def test_it_can_be_looked_at() -> None:
    """The repr tells both times and how many wait."""
    clock = ManualClock(wall_ms=5)
    with clock.move_on_after(5):
        await clock.advance(1)
        assert repr(clock) == "<ManualClock 1 s, wall 1005 ms, pending 1>"


async def test_settle_sees_a_long_chain_of_callbacks() -> None:
    """`settle` returns when everybody waits, not after a fixed number of turns."""
    steps: list[int] = []

    async def walk() -> None:
        for step in range(200):
            await checkpoint()
            steps.append(step)

    async with anyio.create_task_group() as group:
        group.start_soon(walk)
        await settle()
        assert len(steps) == 200


@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()], ids=["manual", "system"])
async def test_both_clocks_keep_the_contract(clock: Clock) -> None:
    """Monotonic is a float that does not fall, the wall an int; nothing waits for no time."""
    before = clock.monotonic()
    await clock.sleep(0)
    assert isinstance(clock.monotonic(), float)
    assert clock.monotonic() >= before
    assert isinstance(clock.now_ms(), int)
    with clock.move_on_after(0, shield=True) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert scope.shield
