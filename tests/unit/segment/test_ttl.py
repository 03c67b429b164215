"""Fetched ids that grow too old are not handed out."""

from __future__ import annotations

from aiocosid.abc.events import IdsDiscarded
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import (
    ManualClock,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, Ear, settled, tasks
from ._kit import counter, drain, gated

ROOT_ONLY = ["aiocosid SegmentChainId cosid.order"]


async def test_the_piece_in_hand_is_dropped_when_its_time_is_over(
    clock: ManualClock, ear: Ear
) -> None:
    """A timer takes the ids out of the hand; the next call gets a fresh one."""
    store = WrappedDistributor(counter())
    async with SegmentId(store, ttl=60, clock=clock, instrument=ear) as generator:
        assert await generator.next_id() == 1
        await clock.advance(59)
        assert await generator.next_id() == 2
        await clock.advance(2)
        seen = generator.statistics()
        assert (seen.remaining, seen.ids_discarded) == (0, 8)
        assert [(e.count, e.reason) for e in ear.of(IdsDiscarded)] == [(8, "expired")]
        assert await generator.next_id() == 11


async def test_expired_ids_are_dropped_from_the_whole_chain(clock: ManualClock) -> None:
    """Segments that are not in hand yet are looked at when it is their turn."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, safe_distance=5, ttl=60, clock=clock) as chain:
        assert await chain.next_id() == 1
        await clock.advance(61)
        assert await chain.next_id() == 51
        seen = chain.statistics()
        assert seen.ids_handed_out == 2
        assert seen.ids_fetched == 2 + seen.ids_discarded + seen.remaining


async def test_fresh_segments_behind_expired_ones_are_kept(clock: ManualClock) -> None:
    """Only what is too old goes; what was fetched later is handed out."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, safe_distance=2, ttl=60, clock=clock) as chain:
        await chain.next_ids(5)
        await clock.advance(40)
        await chain.next_ids(7)
        await settle()
        fetched = chain.statistics().max_id
        assert fetched is not None
        assert fetched > 20
        calls = store.calls
        await clock.advance(30)
        assert await chain.next_id() == 21
        assert store.calls == calls


async def test_a_batch_is_fresh_as_well(clock: ManualClock) -> None:
    """What is too old is dropped before a batch is counted out."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, safe_distance=5, ttl=60, clock=clock) as chain:
        await clock.advance(61)
        assert (await chain.next_ids(30))[0] == 51


async def test_after_a_stalled_loop_at_most_one_piece_is_older(clock: ManualClock) -> None:
    """No timer can run while the loop is blocked; the next boundary finds out."""
    store = WrappedDistributor(counter(step=100))
    async with SegmentChainId(store, safe_distance=10, ttl=60, clock=clock) as chain:
        await chain.next_ids(3)
        clock.stall(61)
        ids = [await chain.next_id() for _ in range(600)]
        old = [each for each in ids if each <= 1000]
        assert len(old) <= 500
        assert ids[len(old) :] == list(range(1001, 1001 + len(ids) - len(old)))


async def test_a_batch_after_a_stalled_loop_takes_nothing_old(clock: ManualClock) -> None:
    """A batch larger than the piece in hand comes to a boundary, and that is looked at."""
    async with SegmentChainId(counter(step=100), ttl=60, clock=clock) as chain:
        await chain.next_ids(3)
        clock.stall(61)
        assert await chain.next_ids(500) == list(range(201, 701))


async def test_expiry_wakes_no_idle_process(clock: ManualClock) -> None:
    """After a ttl nothing is fetched and nothing waits, until somebody takes an id."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, ttl=60, clock=clock) as chain:
        await chain.next_id()
        await settle()
        assert clock.pending == 1
        calls = store.calls
        await clock.advance(61)
        assert (store.calls, clock.pending, tasks()) == (calls, 0, ROOT_ONLY)
        await clock.advance(10_000)
        assert (store.calls, clock.pending, tasks()) == (calls, 0, ROOT_ONLY)
        assert await chain.next_id() > 20


async def test_one_timer_however_many_segments(clock: ManualClock) -> None:
    """Running through many segments leaves one timer, for the one in hand."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, ttl=60, clock=clock) as chain:
        for _ in range(50):
            await chain.next_ids(9)
            await clock.advance(1)
        assert clock.pending <= 2  # the other one watches a distance that has grown
        assert len([task for task in tasks() if " ttl " in task]) == 1


async def test_the_time_counts_from_before_the_fetch(clock: ManualClock) -> None:
    """What the store needed to answer is part of the age: the ids exist since then."""
    store = SlowDistributor(counter(), latency=2, clock=clock)
    generator = SegmentId(store, ttl=10, wait_timeout=10, clock=clock)
    opening = Call(generator.__aenter__)
    await clock.advance(2)
    assert opening.is_done
    await clock.advance(7.9)
    assert generator.statistics().remaining == 10
    await clock.advance(0.2)
    assert generator.statistics().remaining == 0
    await generator.aclose()
    await settle()


async def test_ids_that_expire_while_somebody_waits_are_not_served(clock: ManualClock) -> None:
    """A batch that waits for longer than a ttl is not filled with what was fresh when it began."""
    store = gated()
    generator = SegmentId(store, ttl=60, wait_timeout=200, fetch_timeout=200, clock=clock)
    async with generator:
        await drain(generator)
        store.close()
        first = Call(generator.next_id)
        await store.arrived(2)
        batch = await settled(Call, generator.next_ids, 15)
        await settled(store.let_through)
        assert first.result == 11
        assert not batch.is_done  # nine ids are there: 12 to 20
        await clock.advance(100)
        await settled(store.open)
        assert batch.result[0] > 20
        assert len(batch.result) == 15
        seen = generator.statistics()
        assert seen.ids_handed_out == 26


async def test_without_a_ttl_nothing_ages(clock: ManualClock) -> None:
    """None is for ever, and needs no timer."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, clock=clock) as chain:
        assert await chain.next_id() == 1
        assert clock.pending == 0
        await clock.advance(1e9)
        assert await chain.next_id() == 2


async def test_the_wall_clock_does_not_count(clock: ManualClock) -> None:
    """Neither for the ids of a counter nor for their age."""
    async with SegmentId(counter(), ttl=60, clock=clock) as generator:
        assert await generator.next_id() == 1
        clock.step_wall_ms(-86_400_000)
        assert await generator.next_id() == 2
        clock.step_wall_ms(2 * 86_400_000)
        assert await generator.next_id() == 3
