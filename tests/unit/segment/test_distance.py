"""How far ahead a chain buys: little at rest, more after starving, little again after quiet."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.abc.events import DistanceChanged, SegmentFetched
from aiocosid.errors import WouldBlock
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    ManualClock,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, Ear, settled, tasks
from ._kit import counter, drain, gated

ROOT_ONLY = ["aiocosid SegmentChainId cosid.order"]


async def starve(chain: SegmentChainId, store: GatedDistributor, *, callers: int = 1) -> None:
    """Let callers find the chain dry once."""
    await drain(chain)
    await settle()
    await drain(chain)
    store.close()
    await drain(chain)
    for _ in range(callers):
        Call(chain.next_id)
    await settle()
    await settled(store.open)


async def test_the_order_goes_out_with_the_first_missing_segment(clock: ManualClock) -> None:
    """However long the chain is: a long piece would hide the boundary where it has to be sent."""
    store = WrappedDistributor(counter(step=1000))
    async with SegmentChainId(store, safe_distance=30, endurance=0, clock=clock) as chain:
        await settle()
        for _ in range(1000):
            chain.next_id_nowait()
        await settle()
        assert store.steps == [30_000], "the first boundary comes with the next id"
        chain.next_id_nowait()
        await settle()
        assert store.steps == [30_000, 1000, 1000], "and one id is missing when it has landed"


@pytest.mark.parametrize("safe_distance", [1, 2, 7])
async def test_the_first_trip_brings_the_safe_distance(
    safe_distance: int, clock: ManualClock, ear: Ear
) -> None:
    """One trip of so many segments, merged, however it is opened."""
    store = WrappedDistributor(counter())
    chain = SegmentChainId(store, safe_distance=safe_distance, clock=clock, instrument=ear)
    async with chain:
        await settle()
        assert store.steps == [10 * safe_distance]
        assert [event.count for event in ear.of(SegmentFetched)] == [10 * safe_distance]
        seen = chain.statistics()
        assert (seen.safe_distance, seen.prefetch_distance) == (safe_distance, safe_distance)
        assert seen.remaining == 10 * safe_distance


async def test_a_consumer_with_time_between_ids_never_waits(clock: ManualClock) -> None:
    """At rest a chain is refilled before it runs dry, and buys no more than is used."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, clock=clock) as chain:
        for due in range(1, 1001):
            assert await chain.next_id() == due
            await settle()
        seen = chain.statistics()
        assert (seen.starvations, seen.waits, seen.prefetch_distance) == (0, 0, 2)
        assert seen.ids_fetched <= 1000 + 3 * 10


async def test_an_idle_chain_does_nothing(clock: ManualClock) -> None:
    """No timer, no task but the root, no call to the store."""
    store = WrappedDistributor(counter())
    async with SegmentChainId(store, clock=clock):
        await settle()
        assert (clock.pending, tasks()) == (0, ROOT_ONLY)
        await clock.advance(1e6)
        assert (clock.pending, tasks(), store.calls) == (0, ROOT_ONLY, 1)


async def test_one_doubling_for_each_starvation(clock: ManualClock, ear: Ear) -> None:
    """However many callers find the chain dry, the distance doubles once for that spell."""
    store = gated()
    async with SegmentChainId(store, clock=clock, instrument=ear) as chain:
        for times, distance in enumerate((4, 8, 16), start=1):
            await starve(chain, store, callers=7)
            seen = chain.statistics()
            assert (seen.prefetch_distance, seen.starvations) == (distance, times)
        changes = [(event.before, event.after) for event in ear.of(DistanceChanged)]
        assert changes == [(2, 4), (4, 8), (8, 16)]


async def test_a_blip_at_rest_costs_one_doubling(clock: ManualClock) -> None:
    """One starvation after long rest: four segments ahead instead of two, and after quiet two.

    CosId buys 124 segments then.
    """
    store = gated()
    async with SegmentChainId(store, clock=clock) as chain:
        await clock.advance(1000)
        await starve(chain, store)
        await clock.advance(0)
        seen = chain.statistics()
        assert seen.prefetch_distance == 4
        assert seen.remaining <= 4 * 10 + 10
        calls = store.calls
        await clock.advance(1000)
        seen = chain.statistics()
        assert (seen.prefetch_distance, store.calls) == (2, calls)


async def test_quiet_halves_until_rest_and_then_the_timer_ends(
    clock: ManualClock, ear: Ear
) -> None:
    """Each quiet period halves the distance; at the safe distance no task and no timer is left."""
    store = gated()
    generator = SegmentChainId(store, safe_distance=3, quiet_period=5, clock=clock, instrument=ear)
    async with generator as chain:
        for _ in range(3):
            await starve(chain, store)
        assert chain.statistics().prefetch_distance == 24
        assert len(tasks()) == 2
        distances = []
        for _ in range(6):
            await clock.advance(5)
            distances.append(chain.statistics().prefetch_distance)
        # The first period is the one in which it starved.
        assert distances == [24, 12, 6, 3, 3, 3]
        assert (clock.pending, tasks()) == (0, ROOT_ONLY)
        await starve(chain, store)
        assert chain.statistics().prefetch_distance == 6
        assert clock.pending == 1


async def test_the_distance_has_limits_in_ids(clock: ManualClock) -> None:
    """It stops at `max_distance`, or at `max_ids_ahead` if that is less."""
    cases: list[tuple[dict[str, Any], int]] = [
        ({"max_distance": 99}, 9),
        ({"max_ids_ahead": 55}, 5),
        ({"max_distance": 2}, 2),  # the safe distance is kept in any case
        ({"max_distance": 99, "max_ids_ahead": 55}, 5),
        ({"max_ids_ahead": 1}, 2),
    ]
    for options, limit in cases:
        store = gated()
        async with SegmentChainId(store, clock=clock, **options) as chain:
            for _ in range(5):
                await starve(chain, store)
            assert chain.statistics().prefetch_distance == limit


async def run_load(
    chain: SegmentChainId, clock: ManualClock, *, seconds: int, per_second: int
) -> None:
    """Take ids at a steady rate, in ten bundles a second."""
    for _ in range(seconds * 10):
        Call(chain.next_ids, per_second // 10)
        await clock.advance(0.1)
    await clock.advance(1)


async def test_a_steady_load_settles(clock: ManualClock) -> None:
    """A load that the safe distance cannot serve starves at first, and then never again."""
    store = SlowDistributor(counter(), latency=0.5, clock=clock)
    chain = SegmentChainId(store, endurance=0, clock=clock)
    opening = Call(chain.__aenter__)
    await clock.advance(0.5)
    assert opening.is_done
    await run_load(chain, clock, seconds=20, per_second=200)
    settled = chain.statistics()
    assert settled.prefetch_distance > 2
    await run_load(chain, clock, seconds=100, per_second=200)
    seen = chain.statistics()
    assert seen.starvations == settled.starvations
    # 200 a second for half a second are ten segments.
    assert seen.prefetch_distance <= 40
    assert seen.remaining <= 3 * 100 + 20 * 10
    await clock.advance(100)
    assert chain.statistics().prefetch_distance == 2
    await chain.aclose()
    await settle()


async def test_trips_become_fewer_with_the_load(clock: ManualClock) -> None:
    """A ten times higher load does not take ten times the trips."""
    trips = []
    for rate in (100, 1000):
        store = SlowDistributor(counter(), latency=0.5, clock=clock)
        chain = SegmentChainId(store, clock=clock)
        opening = Call(chain.__aenter__)
        await clock.advance(0.5)
        assert opening.is_done
        await run_load(chain, clock, seconds=30, per_second=rate)
        before = store.calls
        await run_load(chain, clock, seconds=30, per_second=rate)
        trips.append(store.calls - before)
        await chain.aclose()
        await settle()
    assert trips[1] < 2 * trips[0]


async def test_opened_anew_it_begins_at_rest(clock: ManualClock) -> None:
    """What one life has learned is not carried into the next."""
    store = gated()
    chain = SegmentChainId(store, clock=clock)
    async with chain:
        await starve(chain, store)
        assert chain.statistics().prefetch_distance == 4
    store.steps.clear()
    async with chain:
        assert chain.statistics().prefetch_distance == 2
        assert store.steps == [20]
        assert (clock.pending, tasks()) == (0, ROOT_ONLY)


async def test_an_outage_is_no_hunger(clock: ManualClock) -> None:
    """While the store is down no distance would have been long enough: it stays."""
    store = FailingDistributor(counter())
    async with SegmentChainId(store, wait_timeout=60, fetch_timeout=1, clock=clock) as chain:
        await drain(chain)
        await settle()
        await drain(chain)
        before = chain.statistics().prefetch_distance
        store.fail()
        call = Call(chain.next_id)
        await clock.advance(30)
        store.recover()
        await clock.advance(1)
        assert call.error is None
        assert chain.statistics().prefetch_distance == before


async def test_nowait_asks_for_more(clock: ManualClock) -> None:
    """WouldBlock starts a fetch and counts as hunger, but nobody waited: no starvation."""
    store = gated()
    async with SegmentChainId(store, clock=clock) as chain:
        store.close()
        taken = []
        with pytest.raises(WouldBlock):  # noqa: PT012 - sooner or later
            while True:
                taken.append(chain.next_id_nowait())
        assert taken == list(range(1, 21))
        for _ in range(5):
            with pytest.raises(WouldBlock):
                chain.next_id_nowait()
        await settle()
        assert store.calls == 2
        await settled(store.open)
        assert chain.next_id_nowait() == 21
        seen = chain.statistics()
        assert (seen.starvations, seen.waits, seen.prefetch_distance) == (0, 0, 4)


async def test_a_segment_id_never_buys_ahead(clock: ManualClock) -> None:
    """It has no distance; a starvation is the way it works, and no timer watches it."""
    store = WrappedDistributor(counter())
    async with SegmentId(store, clock=clock) as generator:
        await settle()
        assert store.steps == [10]
        for _ in range(35):
            await generator.next_id()
            await settle()
        assert store.steps == [10, 10, 10, 10]
        assert await generator.next_ids(25) == list(range(36, 61))
        assert store.steps == [10, 10, 10, 10, 20]
        seen = generator.statistics()
        assert (seen.safe_distance, seen.prefetch_distance) == (0, 0)
        assert clock.pending == 0


async def test_callers_that_take_more_than_the_distance_wait_once(clock: ManualClock) -> None:
    """From the first one on twice as many ids are ahead, and after quiet again the safe distance.

    By what starves alone, 101 of these calls waited.
    """
    store = SlowDistributor(counter(step=100), latency=0.005, clock=clock)
    chain = SegmentChainId(store, clock=clock)
    opening = Call(chain.__aenter__)
    await clock.advance(0.005)
    assert opening.is_done
    for _ in range(123):
        Call(chain.next_ids, 500)
        await clock.advance(0.02)
    seen = chain.statistics()
    assert (seen.waits, seen.ids_handed_out) == (1, 123 * 500)
    await clock.advance(100)
    assert chain.statistics().prefetch_distance == 2
    await chain.aclose()
    await settle()
