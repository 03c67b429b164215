"""Who goes on when many find the piece used up in one turn of the loop."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid._life.callers import TurnLine
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import ManualClock, WrappedDistributor, settle

from .._kit import Call
from ._kit import Generator, counter, gated


async def test_whoever_waits_alone_waits_for_one_turn() -> None:
    """Others run meanwhile; it is the first of its round."""
    line, log = TurnLine(), []

    async def other() -> None:
        log.append("other")

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        first = await line.wait(lambda: True)
        log.append("me")
    assert first
    assert log == ["other", "me"]


async def test_while_turns_are_spent_one_goes_on_at_a_time() -> None:
    """In the order in which they came, each the first of a round of its own."""
    line, log = TurnLine(), []

    async def wait(number: int) -> None:
        first = await line.wait(lambda: True)
        log.append((number, first))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(wait, number)
        seen = []
        while len(log) < 20:
            await checkpoint()
            seen.append(len(log))
    assert log == [(number, True) for number in range(20)]
    assert max(after - before for before, after in pairwise(seen)) == 1


async def test_while_ids_are_left_more_and_more_go_on() -> None:
    """Twice as many each round; only the first of a round begins a turn."""
    line, log = TurnLine(), []

    async def wait(number: int) -> None:
        first = await line.wait(lambda: False)
        log.append((number, first))

    async with anyio.create_task_group() as group:
        for number in range(15):
            group.start_soon(wait, number)
    assert [number for number, _ in log] == list(range(15))
    assert [number for number, first in log if first] == [0, 1, 3, 7]


async def test_who_comes_again_goes_to_the_front() -> None:
    """It has waited already, and found the turn spent when it went on."""
    line, log = TurnLine(), []

    async def wait(name: str, again: bool) -> None:
        await line.wait(lambda: True, again=again)
        log.append(name)

    async with anyio.create_task_group() as group:
        for name, again in (("a", False), ("b", False), ("c", True), ("d", False)):
            group.start_soon(wait, name, again)
    assert log == ["a", "c", "b", "d"]


@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_callers_hold_nobody_up(turns: int) -> None:
    """Whenever some leave, woken or not, all the others go on."""
    line, log = TurnLine(), []

    async def wait(number: int) -> None:
        await line.wait(lambda: True)
        log.append(number)

    calls = [Call(wait, number) for number in range(10)]
    for _ in range(turns):
        await checkpoint()
    for call in calls[::3]:
        call.cancel()
    await settle()
    assert all(call.is_done for call in calls)
    assert log == sorted(log)
    assert set(log) >= {number for number in range(10) if number % 3}


async def test_release_lets_all_go_on() -> None:
    """As closing does: nobody stays in line."""
    line, log = TurnLine(), []

    async def wait(number: int) -> None:
        await line.wait(lambda: True)
        log.append(number)

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(wait, number)
        await checkpoint()
        line.release()
        for _ in range(3):
            await checkpoint()
        assert len(log) == 10
    line.release()
    assert await line.wait(lambda: True)


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "awaited"])
@pytest.mark.parametrize("step", [7, 6000, 15_000, 100_000])
@pytest.mark.parametrize("n", [1, 700])
async def test_what_one_turn_hands_out(
    kind: type[Generator], step: int, n: int, *, at_once: bool
) -> None:
    """10,000 ids, wherever segments and landings fall, and the rest of one batch."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    store = counter(step=step)
    stretches = Counter[int]()
    async with (
        kind(store if at_once else WrappedDistributor(store)) as generator,
        anyio.create_task_group() as group,
    ):
        group.start_soon(other)
        for _ in range(45_000 // n):
            await (generator.next_id() if n == 1 else generator.next_ids(n))
            stretches[turns] += n
        group.cancel_scope.cancel()
    assert max(stretches.values()) <= 10_000 + n - 1


async def test_a_landing_gives_no_more_than_the_turn_has_left(clock: ManualClock) -> None:
    """What lands while somebody waits for a turn counts for the turn that begins then."""
    store = gated(step=50_000)
    taken = Counter[int]()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async def take(generator: SegmentChainId) -> None:
        for _ in range(10_000):
            await generator.next_id()
            taken[turns] += 1

    async with SegmentChainId(store, clock=clock) as generator, anyio.create_task_group() as group:
        async with anyio.create_task_group() as takers:
            group.start_soon(other)
            for _ in range(10):
                takers.start_soon(take, generator)
        group.cancel_scope.cancel()
    assert max(taken.values()) <= 10_000
