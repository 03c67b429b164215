"""Worlds: the same seed is the same world; processes stop, die and come back; clocks are wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from aiocosid import SegmentChainId
from aiocosid.errors import BusyError
from aiocosid.stores.memory import MemoryStore
from tests.simulation import (
    SCENARIOS,
    Faults,
    Node,
    SimulationError,
    World,
    first_failure,
    simulate,
)

Main = Callable[[Node], Awaitable[None]]


def run(scenario: Callable[[World], Awaitable[None]], seed: int = 0) -> World:
    world = World(seed)
    world.run(scenario)
    return world


def refused(scenario: Callable[[World], Awaitable[None]]) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        World(5).run(scenario)
    return caught.value


async def forever(_: Node) -> None:
    await asyncio.sleep(1e9)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_says_it_all(name: str) -> None:
    first, again = (World(3).run(SCENARIOS[name]) for _ in range(2))
    assert first == again
    assert first.digest != World(4).run(SCENARIOS[name]).digest


def test_the_global_random_is_part_of_the_seed_and_is_put_back() -> None:
    drawn: list[float] = []

    async def scenario(_: World) -> None:
        drawn.append(random.random())  # noqa: S311 - the global one is the point

    random.seed(42)
    expected = random.random()  # noqa: S311 - as above
    random.seed(42)
    simulate(scenario, [1, 1, 2])
    assert drawn[0] == drawn[1] != drawn[2]
    assert random.random() == expected  # noqa: S311 - as above


def test_a_world_is_used_once() -> None:
    world = run(no_trouble)
    with pytest.raises(BusyError):
        world.run(no_trouble)


async def no_trouble(world: World) -> None:
    await world.sleep(1)


def test_an_error_has_the_trace_and_the_command() -> None:
    async def scenario(world: World) -> None:
        world.note("a", "does", "something")
        await world.sleep(2)
        world.fail("an invariant")
        await world.sleep(1)
        world.fail("another one")

    error = refused(scenario)
    assert (error.seed, error.reason) == (5, "an invariant")
    assert error.trace == ["    0.0000  a      does something"]
    assert error.command.startswith("python -m tests.simulation ")
    assert error.command.endswith("--seed 5")
    assert str(error).splitlines()[0] == "seed 5: an invariant"
    assert str(error).splitlines()[-1] == f"$ {error.command}"


def test_what_a_scenario_raises_is_told_with_its_seed() -> None:
    async def scenario(_: World) -> None:
        raise LookupError("here")

    error = refused(scenario)
    assert "LookupError('here')" in error.reason
    assert isinstance(error.__cause__, LookupError)


def test_what_a_process_raises_is_an_error() -> None:
    async def main(_: Node) -> None:
        raise LookupError("there")

    async def scenario(world: World) -> None:
        world.node(main)
        await world.sleep(1)

    assert "the main task of a#1 raised LookupError('there')" in refused(scenario).reason


def test_an_exception_that_nobody_sees_is_an_error() -> None:
    async def scenario(world: World) -> None:
        world.loop.call_later(1, lambda: 1 // 0)
        await world.sleep(2)

    assert "ZeroDivisionError" in refused(scenario).reason


def test_a_process_that_spins_ends_the_run() -> None:
    async def main(_: Node) -> None:
        for _turn in count():
            await asyncio.sleep(0)

    async def scenario(world: World) -> None:
        world.node(main)
        await world.sleep(1)

    assert "somebody spins; these wait: world: scenario, a#1: a#1 main" in refused(scenario).reason


# Processes


def test_a_dead_process_does_nothing_more() -> None:
    """Not even its clean-up: it was killed, not cancelled."""
    did: list[str] = []

    async def main(_: Node) -> None:
        try:
            did.append("begun")
            await asyncio.sleep(10)
        finally:
            if not world.is_over:
                did.append("cleaned up")

    async def scenario(world: World) -> None:
        node = world.node(main)
        await world.sleep(1)
        node.crash()
        await world.sleep(100)
        assert not node.is_up
        assert node.process.has_ended.is_set()
        node.start()
        await world.sleep(1)
        assert (did, node.lives, node.process.name) == (["begun", "begun"], 2, "a#2")

    world = World(0)
    world.run(scenario)


def test_a_stopped_process_goes_on_where_it_was() -> None:
    """Its timers that became due meanwhile ring late; its clocks have run on."""
    woken: list[tuple[float, float]] = []

    async def main(node: Node) -> None:
        for _ in range(3):
            await node.clock.sleep(1)
            woken.append((node.world.time, node.clock.monotonic()))

    async def scenario(world: World) -> None:
        node = world.node(main)
        await world.sleep(1.5)
        node.pause(5)
        await node.process.has_ended.wait()

    run(scenario)
    assert woken == [(1.0, 1.0), (6.5, 6.5), (7.5, 7.5)]


def test_two_pauses_last_until_the_later_one_ends() -> None:
    async def main(node: Node) -> None:
        await node.clock.sleep(1)
        assert node.world.time == 7.5

    async def scenario(world: World) -> None:
        node = world.node(main)
        await world.sleep(0.5)
        node.pause(2)
        node.pause(7)
        node.pause(3)
        await node.process.has_ended.wait()

    run(scenario)


def test_a_stopped_process_can_be_woken() -> None:
    async def main(node: Node) -> None:
        await node.clock.sleep(1)
        assert node.world.time == 2

    async def scenario(world: World) -> None:
        node = world.node(main)
        await world.sleep(0.5)
        node.pause(60)
        await world.sleep(1.5)
        node.wake()
        await node.process.has_ended.wait()

    run(scenario)


def test_a_stopped_process_that_stalled_before_goes_on_when_the_stall_ends() -> None:
    went_on: list[float] = []

    async def main(node: Node) -> None:
        node.clock.monotonic()  # stalls
        await asyncio.sleep(0)
        went_on.append(node.world.time)

    async def scenario(world: World) -> None:
        node = world.node(main, faults=Faults(stall=1.0, paused=(2.0, 2.0)))
        await world.sleep(1)
        node.pause(60)
        node.wake()
        await node.process.has_ended.wait()
        assert went_on == [2.0]

    run(scenario)


def test_a_process_that_is_told_to_stop_cleans_up() -> None:
    did: list[float] = []

    async def main(node: Node) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(1)
            did.append(node.world.time)

    async def scenario(world: World) -> None:
        node = world.node(main)
        await world.sleep(2)
        await node.stop()
        assert did == [3.0]

    run(scenario)


def test_a_node_runs_one_process() -> None:
    async def scenario(world: World) -> None:
        node = world.node(forever)
        with pytest.raises(BusyError):
            node.start()
        node.restart()
        assert node.lives == 2

    run(scenario)


def test_each_step_may_be_the_one_at_which_it_is_stopped() -> None:
    async def main(node: Node) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        assert node.lives == 1

    async def scenario(world: World) -> None:
        faults = Faults(pause=0.1, paused=(1.0, 1.0 + 1e-9))
        node = world.node(main, faults=faults)
        await node.process.has_ended.wait()
        assert 3 < world.time < 25

    run(scenario)


def test_a_stall_is_between_two_readings_of_one_step() -> None:
    """The process reads a time, is stopped, and reads a later one, without an await."""
    gaps: list[float] = []

    async def main(node: Node) -> None:
        first, second = node.clock.monotonic(), node.clock.monotonic()
        gaps.append(second - first)
        assert node.world.time == 0
        await asyncio.sleep(0)
        assert node.world.time >= second - 1e-9  # the world has caught up
        assert node.clock.monotonic() >= second

    async def scenario(world: World) -> None:
        node = world.node(main, faults=Faults(stall=0.7, paused=(2.0, 3.0)))
        await node.process.has_ended.wait()

    for seed in range(20):
        run(scenario, seed)
    assert any(gap == 0 for gap in gaps)
    assert any(gap >= 2 for gap in gaps)


# Clocks


def test_clocks_are_skewed_and_drift() -> None:
    async def scenario(world: World) -> None:
        right = world.node(forever)
        wrong = world.node(forever, skew=-3.0, drift=0.01)
        assert wrong.clock.now_ms() == right.clock.now_ms() - 3000
        await world.sleep(100)
        assert right.clock.monotonic() == 100
        assert wrong.clock.monotonic() == pytest.approx(101)
        assert wrong.clock.now_ms() - right.clock.now_ms() in {-2000, -2001}
        assert abs(right.clock.wall_reader()() // 10**6 - right.clock.now_ms()) <= 1

    run(scenario)


def test_a_stepped_clock_steps_alone() -> None:
    async def scenario(world: World) -> None:
        node = world.node(forever)
        before = node.clock.now_ms()
        node.step_clock(-2.5)
        assert node.clock.now_ms() == before - 2500
        assert node.clock.monotonic() == 0
        node.step_clock(+2.5)
        assert node.clock.now_ms() == before

    run(scenario)


def test_a_fast_clock_sleeps_and_times_out_early() -> None:
    async def main(node: Node) -> None:
        await node.clock.sleep(2)
        assert node.world.time == 1
        with node.clock.move_on_after(2):
            await asyncio.sleep(1e6)
        assert node.world.time == 2

    async def scenario(world: World) -> None:
        node = world.node(main, drift=1.0)
        await node.process.has_ended.wait()

    run(scenario)


# Deadlines


def test_time_that_it_was_stopped_does_not_count() -> None:
    async def scenario(world: World) -> None:
        async def main(node: Node) -> None:
            distributor = MemoryStore().segment_distributor(name="order", step=1)
            link = node.link()
            order = link.segments(distributor)
            async with SegmentChainId(order, endurance=0, clock=node.clock) as chain:
                ids = node.watch(chain, deadline=0.5)
                await ids.next_ids(10)
                await ids.next_ids(10)
                if cut:
                    link.cut()
                    await ids.next_ids(100)

        node = world.node(main, faults=Faults(latency=(0.1, 0.1001)))
        await world.sleep(0.25)
        node.pause(3.0)
        await world.sleep(12.0)

    cut = False
    assert first_failure(scenario, [0]) is None
    cut = True
    error = first_failure(scenario, [0])
    assert error is not None
    assert error.reason == "next_ids(100) on a#1 did not end by its deadline"
