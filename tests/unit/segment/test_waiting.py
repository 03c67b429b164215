"""Callers that wait: in their order, all or nothing, and never past their deadline."""

from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from aiocosid.abc.events import IdsDiscarded, SegmentFetched, Starved, WaitTimedOut
from aiocosid.errors import ClosedError, SegmentUnavailableError, StoreUnavailableError
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import FailingDistributor, GatedDistributor, ManualClock, settle

from .._kit import Call, Ear, settled
from ._kit import counter, drain, gated


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_first_come_first_served(
    kind: type[SegmentChainId | SegmentId], clock: ManualClock
) -> None:
    """Waiters get rising ids in the order in which they lined up, whatever they ask for."""
    store = gated()
    async with kind(store, clock=clock) as generator:
        taken = await drain(generator)
        store.close()
        calls = [await settled(Call, generator.next_ids, n) for n in (1, 4, 1, 12, 2, 1)]
        await settled(store.open)
        got = [call.result for call in calls]
        assert [len(ids) for ids in got] == [1, 4, 1, 12, 2, 1]
        flat = [*taken, *(each for ids in got for each in ids), await generator.next_id()]
        assert flat == list(range(1, len(flat) + 1))


async def test_nobody_behind_a_large_caller_is_served_before_it(clock: ManualClock) -> None:
    """What lands goes to nobody until it is enough for the first in line."""
    store = gated()
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.close()
        first = Call(generator.next_id)
        await store.arrived(2)  # one segment is on its way
        large, small = Call(generator.next_ids, 25), None
        await settle()
        small = await settled(Call, generator.next_id)
        await settled(store.let_through)
        assert first.result == 11
        assert not large.is_done
        assert not small.is_done
        assert generator.statistics().remaining == 9
        # There would be enough for these.
        late = [Call(generator.next_ids, 2)]
        await settle()
        late.append(await settled(Call, generator.next_id))
        assert not any(call.is_done for call in late)
        await settled(store.open)
        assert large.result == list(range(12, 37))
        assert small.result == 37
        assert [call.result for call in late] == [[38, 39], 40]


async def test_waiters_are_served_before_anybody_who_comes_later(clock: ManualClock) -> None:
    """When a segment lands its first ids belong to the waiters, also if others ask in that turn."""
    store = gated()
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.close()
        waiting = [Call(generator.next_id) for _ in range(3)]
        await settle()
        store.open()
        while generator.statistics().fetches == 1:
            await anyio.lowlevel.checkpoint()
        # It has just landed; the waiters may not have run yet.
        late = await generator.next_id()
        await settle()
        assert [call.result for call in waiting] == [11, 12, 13]
        assert late == 14


async def test_a_batch_takes_nothing_until_all_of_it_is_there(clock: ManualClock) -> None:
    """While it waits the ids in hand stay in hand; if it is cancelled none of them is lost."""
    store = gated()
    async with SegmentId(store, clock=clock) as generator:
        assert await generator.next_id() == 1
        store.close()
        batch = await settled(Call, generator.next_ids, 100)
        seen = generator.statistics()
        assert (seen.remaining, seen.ids_handed_out, seen.waiting) == (9, 1, 1)
        assert [await generator.next_id() for _ in range(4)] == [2, 3, 4, 5]
        await settled(batch.cancel)
        assert generator.statistics().waiting == 0
        assert await generator.next_ids(5) == [6, 7, 8, 9, 10]
        assert generator.statistics().ids_discarded == 0
        await settled(store.open)


async def test_a_batch_raises_what_is_ordered(clock: ManualClock) -> None:
    """The trip to the store brings all that it lacks at once, and two such batches on top."""
    store = gated()
    async with SegmentChainId(store, safe_distance=2, clock=clock) as generator:
        await generator.next_ids(1000)
        assert generator.statistics().ids_handed_out == 1000
    assert len(store.steps) == 2
    assert sum(store.steps) == 1000 + 2 * 1000


async def test_a_waiter_gives_up_at_its_deadline(clock: ManualClock, ear: Ear) -> None:
    """At `wait_timeout`, not before, it is a SegmentUnavailableError with the store's own cause."""
    store = FailingDistributor(counter())
    chain = SegmentChainId(store, wait_timeout=3.0, clock=clock, instrument=ear)
    async with chain:
        await drain(chain)
        store.fail()
        call = Call(chain.next_id)
        await clock.advance(2.999)
        assert not call.is_done
        await clock.advance(0.001)
        error = call.error
        assert isinstance(error, SegmentUnavailableError)
        assert error.waited == 3.0
        assert error.retryable
        assert isinstance(error.__cause__, StoreUnavailableError)
        assert "unplugged" in str(error)
        assert "cosid.order" in str(error)
        assert [event.waited for event in ear.of(WaitTimedOut)] == [3.0]
        assert chain.statistics().waiting == 0


async def test_without_an_answer_there_is_no_cause(clock: ManualClock) -> None:
    """A store that is silent for as long as the wait gave no error of its own."""
    store = gated()
    chain = SegmentChainId(store, wait_timeout=4.0, fetch_timeout=4.0, clock=clock)
    async with chain:
        await drain(chain)
        await clock.advance(1)  # the fetches of draining have landed
        await drain(chain)
        await settled(store.close)
        call = Call(chain.next_id)
        await clock.advance(4)
        assert isinstance(call.error, SegmentUnavailableError)
        await settled(store.open)


async def test_each_waiter_has_a_deadline_of_its_own(clock: ManualClock) -> None:
    """It counts from the moment the caller lined up, whoever else waits."""
    store = FailingDistributor(counter())
    async with SegmentId(store, wait_timeout=3.0, clock=clock) as generator:
        await drain(generator)
        store.fail()
        early = Call(generator.next_id)
        await clock.advance(1)
        late = Call(generator.next_id)
        await clock.advance(2)
        assert (early.is_done, late.is_done) == (True, False)
        await clock.advance(1)
        assert late.is_done


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_who_leaves_makes_room(how: str, clock: ManualClock) -> None:
    """When a large caller gives up, those behind it are served from what is there, at once."""
    store = gated()
    async with SegmentId(store, wait_timeout=3.0, fetch_timeout=3.0, clock=clock) as generator:
        await drain(generator)
        store.close()
        Call(generator.next_id)
        await store.arrived(2)  # one segment is on its way
        large = Call(generator.next_ids, 100)
        await clock.advance(1)
        small = await settled(Call, generator.next_ids, 3)
        behind = Call(generator.next_ids, 7)  # six will be there; it needs the store
        await settle()
        await settled(store.let_through)
        assert generator.statistics().remaining == 9
        assert not small.is_done
        if how == "cancelled":
            await settled(large.cancel)
        else:
            await clock.advance(2)
            assert isinstance(large.error, SegmentUnavailableError)
        assert small.result == [12, 13, 14]
        assert not behind.is_done
        await settled(store.open)


async def test_an_id_for_a_caller_that_was_cancelled_in_that_turn_is_a_gap(
    clock: ManualClock,
) -> None:
    """It is counted as discarded and never put back: ids above it may be out already."""
    scopes: list[Call] = []
    ear = Ear()

    class Canceller(Ear):
        def on_event(self, event: object) -> None:
            ear.on_event(event)  # type: ignore[arg-type]  # an event
            if isinstance(event, SegmentFetched) and scopes:
                scopes.pop().cancel()  # in the turn in which the segment lands

    store = gated()
    generator = SegmentId(store, clock=clock, instrument=Canceller())
    async with generator:
        await drain(generator)
        store.close()
        batch = await settled(Call, generator.next_ids, 4)
        other = await settled(Call, generator.next_id)
        scopes.append(batch)
        await settled(store.open)
        assert batch.result is None
        assert other.result == 15
        assert await generator.next_id() == 16
        seen = generator.statistics()
        assert (seen.ids_discarded, seen.ids_handed_out) == (4, 12)
        assert [(e.count, e.reason) for e in ear.of(IdsDiscarded)] == [(4, "cancelled")]


async def test_closing_fails_all_who_wait(clock: ManualClock) -> None:
    """They get ClosedError at once, each an error of its own, and what was on its way is a gap."""
    store = gated()
    generator = SegmentId(store, clock=clock)
    async with generator:
        await drain(generator)
        store.close()
        calls = [Call(generator.next_ids, n) for n in (1, 2, 3)]
        await settle()
        closing = await settled(Call, generator.aclose)
        assert [type(call.error) for call in calls] == [ClosedError] * 3
        assert len({id(call.error) for call in calls}) == 3
        assert (closing.is_done, store.held) == (False, 1)  # it waits for the call under way
        await settled(store.open)
        assert closing.is_done
    seen = generator.statistics()
    assert seen.ids_fetched == seen.ids_handed_out == 10


async def test_starvations_and_waits_are_counted_apart(clock: ManualClock, ear: Ear) -> None:
    """Five callers in one dry spell are one starvation and five waits; one event tells of it."""
    store = gated()
    generator = SegmentId(store, clock=clock, instrument=ear)
    async with generator:
        await drain(generator)
        for spell in (1, 2):
            store.close()
            for _ in range(5):
                Call(generator.next_id)
            await settle()
            seen = generator.statistics()
            assert (seen.starvations, seen.waits, seen.waiting) == (spell, 5 * spell, 5)
            await settled(store.open)
            await drain(generator)
        assert len(ear.of(Starved)) == 2


async def test_ids_are_rising_through_waits_and_batches(clock: ManualClock) -> None:
    """Whatever path an id takes, it is above all that were handed out before."""
    store = gated(step=3)
    async with SegmentChainId(store, clock=clock) as chain:
        ids: list[int] = []
        for n in (1, 2, 50, 1, 7, 3, 1, 1, 200, 1):
            ids += await chain.next_ids(n)
            ids.append(await chain.next_id())
    assert ids == list(range(1, len(ids) + 1))


async def test_a_long_batch_that_is_cancelled_is_a_gap(clock: ManualClock, ear: Ear) -> None:
    """Its ids are set aside at once and listed in turns; cancelled between, all are discarded."""
    store = gated(step=50_000)
    async with SegmentChainId(store, clock=clock, instrument=ear) as chain:
        await chain.next_ids(10)
        batch = Call(chain.next_ids, 60_000)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        await settled(batch.cancel)
        assert batch.result is None
        assert [(e.count, e.reason) for e in ear.of(IdsDiscarded)] == [(60_000, "cancelled")]
        assert chain.statistics().ids_handed_out == 10
        assert await chain.next_id() == 60_011


@pytest.mark.both_loops
async def test_tasks_that_are_cancelled_natively(clock: ManualClock) -> None:
    """As by `asyncio.Task.cancel`, in any order: the others keep their places and deadlines."""
    rng = random.Random(3)  # noqa: S311 - the order
    store = GatedDistributor(counter())
    generator = SegmentId(store, strict=True, wait_timeout=3.0, fetch_timeout=3.0, clock=clock)
    async with generator:
        calls = [asyncio.create_task(generator.next_id()) for _ in range(200)]
        await settle()
        await clock.advance(1)
        late = asyncio.create_task(generator.next_id())
        await settle()
        rng.shuffle(calls)
        for call in calls[:150]:
            call.cancel()
        await settle()
        assert sum(call.cancelled() for call in calls) == 150
        assert generator.statistics().waiting == 51
        await clock.advance(2)
        assert all(isinstance(call.exception(), SegmentUnavailableError) for call in calls[150:])
        assert not late.done()
        store.open()
        await clock.advance(0.9)
        assert late.result() > 0
