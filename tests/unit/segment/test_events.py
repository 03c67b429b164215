"""What an instrument hears, and what statistics and repr say."""

from __future__ import annotations

import dataclasses
import logging
import pickle

import pytest

from aiocosid.abc.events import (
    DistanceChanged,
    Event,
    FetchFailed,
    IdsDiscarded,
    Instrument,
    SegmentFetched,
    Starved,
    WaitTimedOut,
)
from aiocosid.errors import StoreUnavailableError
from aiocosid.segment import SegmentChainId, SegmentId, SegmentStatistics
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    FailingDistributor,
    ManualClock,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, Ear, settled
from ._kit import counter, drain, gated


@pytest.mark.parametrize(("options", "starved"), [({"step": 1}, 0), ({"strict": True}, 0), ({}, 2)])
async def test_only_one_that_keeps_ids_is_starved(
    clock: ManualClock, ear: Ear, options: dict[str, int], starved: int
) -> None:
    """With a step of 1 each call waits for the store, which is no news."""
    step, strict = options.get("step", 2), bool(options.get("strict"))
    store = SlowDistributor(counter(step=step), latency=0.5, clock=clock)
    generator = SegmentId(store, strict=strict, clock=clock, instrument=ear)
    Call(generator.__aenter__)
    await clock.advance(0.5)
    for _ in range(5):
        Call(generator.next_id)
        await clock.advance(0.5)
    await generator.aclose()
    assert len([each for each in ear.events if isinstance(each, Starved)]) == starved


async def test_the_life_of_a_chain_in_events(clock: ManualClock, ear: Ear) -> None:
    """Fetched, starved, failed, grown, timed out, discarded: each is told once, with its facts."""
    store = FailingDistributor(SlowDistributor(counter(), latency=0.5, clock=clock))
    chain = SegmentChainId(store, wait_timeout=2, clock=clock, instrument=ear)
    Call(chain.__aenter__)
    await clock.advance(0.5)
    assert ear.events == [
        SegmentFetched(
            namespace="cosid", name="order", max_id=20, count=20, took=0.5, starved=False
        )
    ]
    ear.events.clear()
    assert len(await chain.next_ids(20)) == 20
    Call(chain.next_id)
    await clock.advance(0.5)
    fetched = ear.of(SegmentFetched)[0]
    assert (fetched.max_id > 20, fetched.took, fetched.starved) == (True, 0.5, True)
    assert ear.of(Starved) == [Starved(namespace="cosid", name="order")]
    assert ear.of(DistanceChanged) == [
        DistanceChanged(namespace="cosid", name="order", before=2, after=4)
    ]
    await clock.advance(1)
    await drain(chain)
    await clock.advance(1)
    await drain(chain)
    store.fail()
    ear.events.clear()
    Call(chain.next_ids, 10_000)
    await clock.advance(3)
    failures = ear.of(FetchFailed)
    assert [event.attempt for event in failures] == list(range(1, len(failures) + 1))
    assert isinstance(failures[0].error, StoreUnavailableError)
    assert [event.waited for event in ear.of(WaitTimedOut)] == [2]
    ear.events.clear()
    remaining = chain.statistics().remaining
    await chain.aclose()
    assert sum(event.count for event in ear.of(IdsDiscarded)) == remaining
    assert {event.reason for event in ear.of(IdsDiscarded)} <= {"closed"}


async def test_no_event_for_single_ids(ear: Ear) -> None:
    """Taking ids from a full chain is silent: what is told is bounded by the trips."""
    async with SegmentChainId(counter(step=10_000), instrument=ear) as chain:
        for _ in range(9000):
            await chain.next_id()
        assert len(ear.events) <= 2


async def test_events_are_frozen_and_can_be_sent(ear: Ear) -> None:
    """They are values: equal, printable, and picklable for a process that gathers them."""
    async with SegmentId(counter(), instrument=ear):
        pass
    for event in ear.events:
        assert isinstance(event, Event)
        assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.name = "other"  # type: ignore[misc]  # that is the test


class Broken:
    """An instrument with a fault."""

    def on_event(self, event: Event) -> None:
        raise ZeroDivisionError(type(event).__name__)


async def test_an_instrument_that_raises_disturbs_nobody(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises is logged and goes no further: ids come, waits end, closing works."""
    caplog.set_level(logging.ERROR, logger="aiocosid")
    assert isinstance(Broken(), Instrument)
    store = FailingDistributor(counter())
    chain = SegmentChainId(store, wait_timeout=2, clock=clock, instrument=Broken())
    async with chain:
        ids = await drain(chain)
        store.fail()
        call = Call(chain.next_id)
        await clock.advance(2)
        assert call.error is not None
        store.recover()
        again = Call(chain.next_id)
        await clock.advance(2)
        assert again.result > ids[-1]
    (record,) = (each for each in caplog.records if "instrument failed" in each.getMessage())
    assert record.exc_info is not None
    assert len(caplog.records) == 1, "once, however many events there were"


async def test_statistics_tell_everything(clock: ManualClock) -> None:
    """Each field has its value in a known situation."""
    inner = MemoryStore().segment_distributor(namespace="shop", name="order", offset=100, step=10)
    store = FailingDistributor(inner)
    chain = SegmentChainId(store, safe_distance=3, wait_timeout=2, clock=clock)
    before = chain.statistics()
    assert (before.head_sequence, before.max_id, before.remaining, before.rate) == (
        None,
        None,
        0,
        0,
    )
    async with chain:
        await chain.next_ids(4)
        assert chain.statistics() == SegmentStatistics(
            kind="SegmentChainId",
            namespace="shop",
            name="order",
            step=10,
            head_sequence=104,
            head_offset=100,
            head_max_id=130,
            fetch_time=clock.now_ms() // 1000,
            is_expired=False,
            max_id=130,
            remaining=26,
            safe_distance=3,
            prefetch_distance=3,
            starvations=0,
            waits=0,
            waiting=0,
            fetches=1,
            failures=0,
            ids_fetched=30,
            ids_handed_out=4,
            ids_discarded=0,
            endurance=60,
            rate=0.0,
            seconds_left=None,
            last_error=None,
            ended=None,
        )
        store.fail()
        await drain(chain)
        await settle()
        waiting = Call(chain.next_id)
        await clock.advance(1)
        seen = chain.statistics()
        assert (seen.head_sequence, seen.max_id, seen.remaining) == (130, 130, 0)
        assert (seen.starvations, seen.waits, seen.waiting, seen.fetches) == (1, 1, 1, 1)
        assert seen.failures > 1
        assert isinstance(seen.last_error, StoreUnavailableError)
        assert seen.seconds_left == 0
        store.recover()
        await clock.advance(1)
        seen = chain.statistics()
        assert waiting.result == 131
        assert (seen.waiting, seen.last_error, seen.head_sequence) == (0, None, 131)


async def test_how_long_the_ids_last(clock: ManualClock) -> None:
    """At the rate of late; it is what an operator wants to know when the store is down."""
    store = gated(step=100)
    async with SegmentChainId(store, safe_distance=10, clock=clock) as chain:
        assert chain.statistics().seconds_left is None
        for _ in range(100):
            await chain.next_ids(10)  # a hundred a second
            await clock.advance(0.1)
        seen = chain.statistics()
        assert seen.rate == pytest.approx(100, rel=0.1)
        assert seen.seconds_left == pytest.approx(seen.remaining / 100, rel=0.1)


async def test_statistics_wait_for_nothing_and_change_nothing(clock: ManualClock) -> None:
    """They may be asked at any moment, also in an outage and from within an event."""
    pictures: list[SegmentStatistics] = []

    class Looker:
        def on_event(self, event: Event) -> None:
            pictures.append(chain.statistics())
            assert repr(chain)

    store = gated()
    chain = SegmentChainId(store, clock=clock, instrument=Looker())
    async with chain:
        await drain(chain)
        store.close()
        await settled(Call, chain.next_ids, 100)
        assert chain.statistics() == chain.statistics()
        await settled(store.open)
    for seen in pictures:
        accounted = seen.ids_handed_out + seen.ids_discarded + seen.remaining
        assert seen.ids_fetched == accounted
        assert min(seen.ids_handed_out, seen.ids_discarded, seen.remaining) >= 0


async def test_the_repr_is_worth_logging(clock: ManualClock) -> None:
    """Who it is, its state, its head, what is left, how far it looks ahead, who waits."""
    chain = SegmentChainId(WrappedDistributor(counter()), clock=clock)
    assert repr(chain) == (
        "<SegmentChainId cosid.order not open head=None remaining=0 distance=2 waiting=0>"
    )
    async with chain:
        await chain.next_ids(3)
        assert repr(chain) == (
            "<SegmentChainId cosid.order open head=3 remaining=17 distance=2 waiting=0>"
        )
    assert repr(chain).startswith("<SegmentChainId cosid.order closed ")


async def test_counts_begin_anew_with_each_opening() -> None:
    """A generator that is opened again tells of its new life only."""
    generator = SegmentId(WrappedDistributor(counter()))
    for _ in range(2):
        async with generator:
            await generator.next_ids(3)
            seen = generator.statistics()
            assert (seen.ids_fetched, seen.ids_handed_out, seen.fetches) == (10, 3, 1)
