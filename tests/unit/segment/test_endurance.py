"""Seconds ahead: a store that is down for a minute, and what keeping ids for it costs."""

from __future__ import annotations

import pytest

from aiocosid.errors import InvalidArgumentError, SegmentUnavailableError
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import (
    FailingDistributor,
    ManualClock,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, settled
from ._kit import counter, drain, gated

TICK = 0.05  # seconds


async def load(chain: SegmentChainId, clock: ManualClock, *, rate: float, seconds: float) -> None:
    """Take ids at an even rate."""
    taken = 0
    for tick in range(1, round(seconds / TICK) + 1):
        due = round(tick * TICK * rate)
        if due > taken:
            await chain.next_ids(due - taken)
        taken = due
        await clock.advance(TICK)


@pytest.mark.parametrize("warm", [3, 20, 33, 41])
@pytest.mark.parametrize("rate", [10, 100, 1000, 10_000, 100_000])
async def test_an_outage_of_a_minute_is_not_noticed(
    rate: int, warm: float, clock: ManualClock
) -> None:
    """At any rate, wherever between two refills it begins."""
    store = FailingDistributor(counter(step=1000))
    async with SegmentChainId(store, clock=clock) as chain:
        await load(chain, clock, rate=rate, seconds=warm)
        waits = chain.statistics().waits
        store.fail()
        await load(chain, clock, rate=rate, seconds=60)
        store.recover()
        await load(chain, clock, rate=rate, seconds=5)
        seen = chain.statistics()
        assert seen.failures > 0 or seen.remaining > 0
        assert seen.waits == waits
        assert seen.seconds_left is not None
        assert seen.seconds_left > 60


async def test_it_takes_a_trip_each_half_a_minute(clock: ManualClock) -> None:
    """A million ids at 1000 a second: 34, and 1000 without."""
    trips = {}
    for endurance in (60.0, 0.0):
        store = WrappedDistributor(counter(step=1000))
        async with SegmentChainId(store, endurance=endurance, clock=clock) as chain:
            await load(chain, clock, rate=1000, seconds=60)
            before = len(store.steps)
            await load(chain, clock, rate=1000, seconds=1000)
            trips[endurance] = len(store.steps) - before
    assert trips[60.0] <= 35
    assert trips[0.0] >= 500


async def test_a_burst_does_not_buy_for_a_minute_of_it(clock: ManualClock) -> None:
    """5000 ids in 50 ms are 6 million in a minute."""
    async with SegmentChainId(WrappedDistributor(counter(step=1000)), clock=clock) as chain:
        await load(chain, clock, rate=10, seconds=30)
        for _ in range(5):
            await load(chain, clock, rate=100_000, seconds=TICK)
            await load(chain, clock, rate=10, seconds=5)
            assert chain.statistics().remaining < 300_000


async def test_what_is_kept_follows_the_load_down(clock: ManualClock) -> None:
    """Nothing more is bought until the ids in hand last for less than a minute."""
    store = WrappedDistributor(counter(step=1000))
    async with SegmentChainId(store, clock=clock) as chain:
        await load(chain, clock, rate=1000, seconds=60)
        before = len(store.steps)
        await load(chain, clock, rate=100, seconds=300)
        seen = chain.statistics()
        assert len(store.steps) == before
        assert seen.seconds_left is not None
        assert seen.seconds_left > 60


async def test_a_load_that_jumps_tenfold_waits_for_one_trip_at_most(clock: ManualClock) -> None:
    """As without a reserve."""
    store = SlowDistributor(counter(step=10), latency=0.2, clock=clock)
    chain = SegmentChainId(store, clock=clock)
    opening = Call(chain.__aenter__)
    await clock.advance(0.2)
    assert opening.is_done
    await load(chain, clock, rate=20, seconds=30)
    calls = [Call(chain.next_ids, 50) for _ in range(40)]
    await clock.advance(0.2 + 0.2 + TICK)  # the fetch under way, and the one for all of them
    assert all(call.is_done for call in calls)
    await chain.aclose()
    await settle()


async def test_without_it_the_distance_is_all(clock: ManualClock) -> None:
    async with SegmentChainId(
        WrappedDistributor(counter(step=100)), endurance=0, clock=clock
    ) as chain:
        await load(chain, clock, rate=1000, seconds=30)
        seen = chain.statistics()
        assert seen.remaining <= (seen.prefetch_distance + 1) * 100


async def test_it_is_bounded_by_ids_ahead(clock: ManualClock) -> None:
    store = WrappedDistributor(counter(step=100))
    async with SegmentChainId(store, max_ids_ahead=5000, clock=clock) as chain:
        await load(chain, clock, rate=1000, seconds=30)
        assert 2000 < chain.statistics().remaining <= 5100


async def test_it_is_bounded_by_a_thousandth_of_what_is_left(clock: ManualClock) -> None:
    """A counter for 32 bits is not used up by a few restarts."""
    store = WrappedDistributor(counter(step=100))
    async with SegmentChainId(store, max_id=10_000_000, clock=clock) as chain:
        await load(chain, clock, rate=1000, seconds=30)
        assert 2000 < chain.statistics().remaining <= 10_100


async def test_it_is_bounded_by_the_ttl(clock: ManualClock) -> None:
    """More would not be handed out: what is in hand is used before it is too old."""
    store = WrappedDistributor(counter(step=100))
    async with SegmentChainId(store, ttl=10, clock=clock) as chain:
        await load(chain, clock, rate=1000, seconds=60)
        seen = chain.statistics()
        assert seen.remaining <= 10_100
        assert seen.ids_discarded == 0


@pytest.mark.parametrize("endurance", [-1, float("inf"), float("nan"), "60", None, True])
async def test_what_is_no_number_of_seconds_is_refused(endurance: float) -> None:
    with pytest.raises(InvalidArgumentError, match="endurance"):
        SegmentChainId(counter(), endurance=endurance)


async def test_more_than_the_ttl_is_refused() -> None:
    """Whoever asks for it; the default gives way."""
    with pytest.raises(InvalidArgumentError, match=r"at most 30 \(ttl\)"):
        SegmentChainId(counter(), endurance=31, ttl=30)
    SegmentChainId(counter(), ttl=30)


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_one_caller_too_many_fails_at_once(
    kind: type[SegmentChainId | SegmentId], clock: ManualClock
) -> None:
    """With when to come again; the others are served in the order in which they came."""
    store = gated(step=10)
    async with kind(store, max_waiters=3, clock=clock) as generator:
        await drain(generator)
        store.close()
        calls = [Call(generator.next_id) for _ in range(3)]
        await settle()
        with pytest.raises(
            SegmentUnavailableError, match="3 callers are waiting already"
        ) as refused:
            await generator.next_id()
        assert refused.value.retry_after is not None
        assert refused.value.retryable
        assert refused.value.waited == 0
        await settled(calls[1].cancel)
        calls.append(await settled(Call, generator.next_id))
        await settled(store.open)
        ids = [call.result for call in calls if call is not calls[1]]
        assert ids == sorted(ids)
        assert None not in ids


async def test_callers_of_a_store_that_is_down_fail_with_its_next_call(clock: ManualClock) -> None:
    """Two failures in a row are an outage: nobody waits for the whole ``wait_timeout``."""
    store = FailingDistributor(counter(step=10))
    chain = SegmentChainId(store, fail_fast=True, endurance=0, clock=clock)
    async with chain:
        await drain(chain)
        store.fail()
        first = await settled(Call, chain.next_id)
        assert not first.is_done, "one failure may be a blip"
        await clock.advance(0.05)
        assert isinstance(first.error, SegmentUnavailableError)
        for _ in range(5):
            later = await settled(Call, chain.next_id)
            await clock.advance(1.0)
            assert isinstance(later.error, SegmentUnavailableError)
            assert later.error.retry_after is not None
            assert later.error.retry_after <= 1
        waiting = Call(chain.next_id)
        store.recover()
        await clock.advance(1.0)
        assert waiting.result is not None


async def test_without_that_they_wait(clock: ManualClock) -> None:
    store = FailingDistributor(counter(step=10))
    async with SegmentChainId(store, clock=clock) as chain:
        await drain(chain)
        store.fail()
        call = Call(chain.next_id)
        await clock.advance(4.9)
        assert not call.is_done
        await clock.advance(0.2)
        assert isinstance(call.error, SegmentUnavailableError)
