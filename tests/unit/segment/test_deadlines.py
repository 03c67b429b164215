"""The deadlines of those who wait: one timer for a line, on asyncio, uvloop and trio."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid.abc.events import WaitTimedOut
from aiocosid.errors import ClosedError, SegmentUnavailableError
from aiocosid.segment import SegmentId
from aiocosid.testing import GatedDistributor, ManualClock, settle

from .._kit import Call, Ear, settled
from ._kit import counter

pytestmark = pytest.mark.anyio

FLIGHT = 1  # timer of the call to the store that is under way


def silent(clock: ManualClock, ear: Ear | None = None) -> tuple[SegmentId, GatedDistributor]:
    """A generator whose callers wait 3 s for the gate of its store."""
    store = GatedDistributor(counter())
    generator = SegmentId(
        store, strict=True, wait_timeout=3.0, fetch_timeout=3.0, clock=clock, instrument=ear
    )
    return generator, store


async def test_a_line_has_one_timer(clock: ManualClock) -> None:
    """However many wait; it is gone with the last of them, served, cancelled or out of time."""
    generator, store = silent(clock)
    async with generator:
        calls = [Call(generator.next_id) for _ in range(100)]
        await settle()
        assert clock.pending == FLIGHT + 1
        for call in calls[:99]:
            call.cancel()
        await settle()
        assert clock.pending == FLIGHT + 1
        await settled(calls[99].cancel)
        assert clock.pending == FLIGHT
        await settled(store.open)
        assert clock.pending == 0
        store.close()
        calls = [Call(generator.next_id) for _ in range(100)]
        await settle()
        await settled(store.open)
        assert len({call.result for call in calls}) == 100
        assert clock.pending == 0


async def test_it_is_gone_when_the_generator_closes(clock: ManualClock) -> None:
    """With those who waited, before the call to the store has ended."""
    generator, store = silent(clock)
    async with generator:
        calls = [Call(generator.next_id) for _ in range(3)]
        await settle()
        await settled(Call, generator.aclose)
        assert [type(call.error) for call in calls] == [ClosedError] * 3
        assert clock.pending == FLIGHT + 1  # the close timeout
        await settled(store.open)


@pytest.mark.parametrize("leaves", [(0,), (1,), (0, 1), (1, 0), (0, 2), (2, 1, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("together", [True, False], ids=["at once", "one by one"])
async def test_whoever_leaves_the_others_keep_their_deadlines(
    leaves: tuple[int, ...], clock: ManualClock, *, together: bool
) -> None:
    """To the millisecond, whoever had the timer."""
    generator, store = silent(clock)
    async with generator:
        calls = []
        for _ in range(6):
            calls.append(Call(generator.next_id))
            await clock.advance(0.1)
        for number in leaves:
            calls[number].cancel()
            if not together:
                await settle()
        await settle()
        await clock.advance(3 - 0.6 - 0.005)
        for number, call in enumerate(calls):
            assert call.is_done == (number in leaves)
            await clock.advance(0.01)
            assert call.is_done
            assert number in leaves or isinstance(call.error, SegmentUnavailableError)
            await clock.advance(0.09)
        assert clock.pending <= FLIGHT
        await settled(store.open)


async def test_a_caller_behind_one_that_was_served_keeps_its_deadline(clock: ManualClock) -> None:
    """The timer was that of the one who was served."""
    generator, store = silent(clock)
    async with generator:
        early = Call(generator.next_id)
        await clock.advance(1)
        late = [Call(generator.next_id) for _ in range(2)]
        await settle()
        await settled(store.let_through)
        assert early.result == 1
        await clock.advance(2.999)
        assert not any(call.is_done for call in late)
        await clock.advance(0.001)
        assert [type(call.error) for call in late] == [SegmentUnavailableError] * 2
        await settled(store.open)


@pytest.mark.parametrize("cancelled", [(0,), (1,), (0, 1), (0, 1, 2)])
async def test_cancelled_in_the_turn_in_which_the_time_is_up(
    cancelled: tuple[int, ...], clock: ManualClock, ear: Ear
) -> None:
    """Who is cancelled is cancelled, and all the others fail at once."""
    generator, store = silent(clock, ear)
    async with generator:
        calls = [Call(generator.next_id) for _ in range(3)]
        await settle()
        clock.stall(3)  # the timer has gone off, and nobody has run
        for number in cancelled:
            calls[number].cancel()
        await settle()
        assert all(call.is_done for call in calls)
        errors = [call.error for number, call in enumerate(calls) if number not in cancelled]
        assert [type(error) for error in errors] == [SegmentUnavailableError] * len(errors)
        assert len(ear.of(WaitTimedOut)) >= len(errors)
        assert generator.statistics().waiting == 0
        await settled(store.open)


async def test_served_in_the_turn_in_which_the_time_is_up(clock: ManualClock) -> None:
    """Whoever has got an id returns it; none is lost."""
    generator, store = silent(clock)
    for turns in range(8):
        async with generator:
            store.close()
            calls = [Call(generator.next_id) for _ in range(3)]
            await settle()
            store.open()
            for _ in range(turns):
                await checkpoint()
            clock.stall(3)
            await settle()
            ids = [call.result for call in calls if call.error is None]
            seen = generator.statistics()
            assert all(call.is_done for call in calls)
            assert seen.ids_handed_out == len(ids)
            assert seen.ids_fetched == seen.ids_handed_out + seen.ids_discarded


async def test_many_whose_time_is_up_hold_nobody_up(clock: ManualClock) -> None:
    """They fail at the same moment, a hundred in a turn; trio runs the tasks of two turns mixed."""
    generator, store = silent(clock)
    turn, ended = 0, Counter[int]()

    async def wait() -> None:
        with pytest.raises(SegmentUnavailableError):
            await generator.next_id()
        ended[turn] += 1

    async with generator, anyio.create_task_group() as group:
        for _ in range(1000):
            group.start_soon(wait)
        await settle()
        clock.stall(3)
        while sum(ended.values()) < 1000 and turn < 100:
            await checkpoint()
            turn += 1
        assert sum(ended.values()) == 1000
        assert max(ended.values()) <= 200
        store.open()


async def test_any_order_of_coming_leaving_and_serving(clock: ManualClock) -> None:
    """Nobody waits past its deadline, or gives up before; every id is handed out or counted."""
    rng = random.Random(5)  # noqa: S311 - who does what
    generator, store = silent(clock)
    async with generator:
        waiting: list[tuple[float, Call]] = []
        handed_out = 0
        for _ in range(600):
            chance = rng.random()
            if chance < 0.5:
                waiting.append((clock.monotonic(), Call(generator.next_id)))
            elif chance < 0.65 and waiting:
                rng.choice(waiting)[1].cancel()
            elif chance < 0.7:
                store.let_through()
            if rng.random() < 0.5:
                await clock.advance(rng.choice((0.05, 0.25, 0.5)))
            for since, call in waiting:
                waited = clock.monotonic() - since
                handed_out += call.result is not None
                assert call.is_done or waited < 3.002
                assert not isinstance(call.error, SegmentUnavailableError) or waited > 2.998
            waiting = [each for each in waiting if not each[1].is_done]
        await settled(store.open)
        handed_out += sum(call.result is not None for _, call in waiting)
        seen = generator.statistics()
        assert (seen.waiting, seen.ids_handed_out) == (0, handed_out)
        assert seen.ids_fetched == handed_out + seen.ids_discarded
        assert handed_out > 50
