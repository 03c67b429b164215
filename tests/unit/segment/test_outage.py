"""A store that fails, is slow, silent, or loses replies."""

from __future__ import annotations

import asyncio
import logging
import pickle

import anyio
import pytest

from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import FetchFailed
from aiocosid.errors import (
    CorruptCounterError,
    SchemaMissingError,
    SegmentUnavailableError,
    StoreError,
    StoreUnavailableError,
    WouldBlock,
)
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import (
    FailingDistributor,
    LossyDistributor,
    ManualClock,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, Ear, settled, tasks
from ._kit import Generator, counter, drain, gated

KINDS = pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])


class SnowflakeOpening(FailingDistributor):
    """Remembers when it was called."""

    def __init__(self, inner: IdSegmentDistributor, clock: ManualClock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.called_at: list[float] = []

    async def next_max_id(self, step: int) -> int:
        self.called_at.append(self.clock.monotonic())
        return await super().next_max_id(step)

    def pauses(self) -> list[float]:
        pairs = zip(self.called_at, self.called_at[1:], strict=False)
        return [after - before for before, after in pairs]


async def test_an_outage_is_not_seen_while_ids_are_in_hand(clock: ManualClock) -> None:
    """Callers go on, nobody waits, and when the store is back nothing is missing."""
    store = FailingDistributor(counter(step=100))
    async with SegmentChainId(store, safe_distance=20, clock=clock) as chain:
        ids = await chain.next_ids(50)
        store.fail()
        for _ in range(1900):
            ids.append(await chain.next_id())
            await clock.advance(0.01)
        seen = chain.statistics()
        assert seen.failures > 10
        assert isinstance(seen.last_error, StoreUnavailableError)
        assert (seen.starvations, seen.waits) == (0, 0)
        store.recover()
        ids.append(await chain.next_id())  # an outage that nobody feels ends with the next demand
        await clock.advance(1)
        seen = chain.statistics()
        assert seen.last_error is None
        assert seen.remaining >= 2000
        ids += await chain.next_ids(100)
    assert ids == list(range(1, len(ids) + 1))


class InProcess(FailingDistributor):
    """A store in this process that may fail all the same."""

    def next_max_id_nowait(self, step: int) -> int:
        self.steps.append(step)
        self._failure.meet()
        return self.inner.next_max_id_nowait(step)


@KINDS
@pytest.mark.parametrize("at", [FailingDistributor, InProcess])
async def test_an_outage_shorter_than_the_wait_costs_only_time(
    kind: type[Generator], at: type[FailingDistributor], clock: ManualClock
) -> None:
    """Who waits gets its id at most one pause after the store is back."""
    store = at(counter())
    async with kind(store, wait_timeout=5, clock=clock) as generator:
        await drain(generator)
        store.fail()
        calls = [Call(generator.next_id) for _ in range(3)]
        await clock.advance(3.5)
        assert not any(call.is_done for call in calls)
        store.recover()
        await clock.advance(1)
        assert [call.error for call in calls] == [None] * 3
        assert len({call.result for call in calls}) == 3


@KINDS
async def test_after_an_outage_longer_than_the_wait_all_is_well(
    kind: type[Generator], clock: ManualClock
) -> None:
    """The callers of that time get errors; the first one after it gets an id at once or soon."""
    store = FailingDistributor(counter())
    async with kind(store, wait_timeout=5, clock=clock) as generator:
        taken = await drain(generator)
        store.fail()
        for _ in range(3):
            call = Call(generator.next_id)
            await clock.advance(5)
            assert isinstance(call.error, SegmentUnavailableError)
        store.recover()
        call = Call(generator.next_id)
        await clock.advance(1)
        assert call.result == taken[-1] + 1
        seen = generator.statistics()
        assert (seen.last_error, seen.waiting) == (None, 0)
        assert await generator.next_id() == taken[-1] + 2


@KINDS
@pytest.mark.parametrize(
    ("wait_timeout", "outage", "longest"), [(60.0, 29.0, 1.0), (5.0, 9.0, 2.0)]
)
async def test_ten_thousand_callers_are_served_soon_after_an_outage(
    kind: type[Generator], wait_timeout: float, outage: float, longest: float, clock: ManualClock
) -> None:
    """Those who wait within one pause, those who were told to try again within two."""
    store = FailingDistributor(counter())
    ids: list[int] = []

    async def call() -> None:
        while True:
            try:
                ids.append(await generator.next_id())
            except SegmentUnavailableError as error:
                await clock.sleep(error.retry_after or 0.0)
            else:
                return

    async with kind(store, wait_timeout=wait_timeout, fetch_timeout=2.0, clock=clock) as generator:
        await drain(generator)
        store.fail()
        async with anyio.create_task_group() as group:
            for _ in range(10_000):
                group.start_soon(call)
            await clock.advance(outage)
            assert not ids
            store.recover()
            await clock.advance(longest)
            assert len(set(ids)) == 10_000


async def test_pauses_grow_and_are_not_in_step(clock: ManualClock) -> None:
    """50 ms after the first failure, doubled by each one up to 1 s, half of it at random."""
    pauses = []
    for _ in range(2):
        store = SnowflakeOpening(counter(), clock)
        async with SegmentChainId(store, wait_timeout=60, fetch_timeout=1, clock=clock) as chain:
            await drain(chain)
            await clock.advance(1)
            await drain(chain)
            store.fail()
            await clock.advance(1)
            store.called_at.clear()
            call = Call(chain.next_ids, 1000)
            await clock.advance(30)
            store.recover()
            await clock.advance(1)
            assert len(call.result) == 1000
        pauses.append(store.pauses())
    for each in pauses:
        assert len(each) > 30
        assert len({round(pause, 3) for pause in each[8:-1]}) > 10
        assert all(pause <= 1.0 for pause in each)
        assert all(pause >= 0.5 for pause in each[8:-1])
    assert pauses[0][:10] != pauses[1][:10]


async def test_the_first_pauses_are_short(clock: ManualClock) -> None:
    """A single failure costs no caller more than 50 ms; after a success the count begins anew."""
    store = SnowflakeOpening(counter(), clock)
    async with SegmentId(store, clock=clock) as generator:
        for _ in range(3):
            await drain(generator)
            store.fail(times=3)
            store.called_at.clear()
            call = Call(generator.next_id)
            await clock.advance(1)
            assert call.error is None
            limits = [0.05, 0.1, 0.2]
            assert len(store.pauses()) == 3
            for pause, limit in zip(store.pauses(), limits, strict=True):
                assert limit / 2 <= round(pause, 6) <= limit


async def test_nobody_is_asked_for_ids_that_nobody_wants(clock: ManualClock) -> None:
    """In an outage a generator that nobody uses gives up, until the next one takes an id."""
    store = FailingDistributor(counter(step=100))
    async with SegmentChainId(store, safe_distance=4, clock=clock) as chain:
        await chain.next_ids(150)
        store.fail()
        await chain.next_ids(60)
        await clock.advance(10)
        calls = store.calls
        await clock.advance(1000)
        assert store.calls == calls
        assert clock.pending == 0
        assert tasks() == ["aiocosid SegmentChainId cosid.order"]
        store.recover()
        await chain.next_ids(100)
        await settle()
        assert chain.statistics().remaining >= 300


async def test_one_warning_for_each_outage(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """However many calls fail, the log gets one line; and one more for the next outage."""
    caplog.set_level(logging.DEBUG, logger="aiocosid")
    store = FailingDistributor(counter(step=10))
    async with SegmentChainId(store, endurance=0, clock=clock) as chain:
        for outage in (1, 2):
            store.fail()
            for _ in range(10):
                for _ in range(100):
                    Call(chain.next_id)
                await clock.advance(5)
            assert chain.statistics().failures > 20 * outage
            assert len(caplog.records) == outage
            assert caplog.records[-1].levelno == logging.WARNING
            assert "SegmentChainId cosid.order" in caplog.records[-1].getMessage()
            assert "unplugged" in caplog.records[-1].getMessage()
            store.recover()
            Call(chain.next_ids, 20)
            await clock.advance(2)
            assert chain.statistics().last_error is None
        # Not a line for a million ids, nor for a boundary.
        await chain.next_ids(1_000_000)
        assert len(caplog.records) == 2


async def test_what_no_retry_mends_is_told_at_once(clock: ManualClock) -> None:
    """A missing table fails who waits without waiting for the deadline; later calls try again."""
    store = FailingDistributor(counter())
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.fail(SchemaMissingError("memory", table="cosid"), times=2)
        calls = [Call(generator.next_id) for _ in range(2)]
        await settle()
        for call in calls:
            assert isinstance(call.error, SegmentUnavailableError)
            assert isinstance(call.error.__cause__, SchemaMissingError)
        assert calls[0].error is not calls[1].error
        again = Call(generator.next_id)
        await clock.advance(1)
        assert isinstance(again.error, SegmentUnavailableError)
        third = Call(generator.next_id)
        await clock.advance(1)
        assert third.result == 11


async def test_what_a_stranger_raises_is_a_store_error(clock: ManualClock, ear: Ear) -> None:
    """A distributor that raises anything else is told of as StoreError, and asked again."""
    store = FailingDistributor(counter())
    async with SegmentId(store, clock=clock, instrument=ear) as generator:
        await drain(generator)
        store.fail(KeyError("odd"), times=1)
        call = Call(generator.next_id)
        await clock.advance(1)
        failed = ear.of(FetchFailed)
        assert [type(event.error) for event in failed] == [StoreError]
        assert isinstance(failed[0].error.__cause__, KeyError)
        assert isinstance(call.error, SegmentUnavailableError)
        assert await generator.next_id() == 11


async def test_a_silent_store_is_given_up_after_the_fetch_timeout(
    clock: ManualClock, ear: Ear
) -> None:
    """The call is torn, counted as unavailable, and made anew; its range may be lost."""
    store = gated(holds_replies=True)
    generator = SegmentId(store, wait_timeout=5, fetch_timeout=2, clock=clock, instrument=ear)
    async with generator:
        await drain(generator)
        store.close()
        call = Call(generator.next_id)
        await clock.advance(1.99)
        assert store.held == 1
        await clock.advance(0.01)
        assert store.held == 0
        await clock.advance(0.1)
        assert store.held == 1
        await settled(store.open)
        assert call.result == 21
        assert [type(event.error) for event in ear.of(FetchFailed)] == [StoreUnavailableError]
        assert ear.of(FetchFailed)[0].took == 2


async def test_two_attempts_fit_into_one_wait(clock: ManualClock) -> None:
    """By default a second call is made in time to help whoever waited for the first."""
    store = gated()
    async with SegmentId(store, wait_timeout=5, clock=clock) as generator:
        await drain(generator)
        store.close()
        call = Call(generator.next_id)
        await clock.advance(4.2)
        assert store.calls == 1 + 3
        assert not call.is_done
        await settled(store.open)
        assert call.result == 11


async def test_a_lost_reply_costs_a_range_and_repeats_none(clock: ManualClock) -> None:
    """The store had counted; the next range is the one after."""
    store = LossyDistributor(counter())
    async with SegmentId(store, clock=clock) as generator:
        ids = await drain(generator)
        store.lose(2)
        call = Call(generator.next_ids, 5)
        await clock.advance(1)
        ids += call.result
    assert ids == [*range(1, 11), *range(31, 36)]


class Counting(WrappedDistributor):
    """Remembers how many calls were under way at once."""

    under_way = most = 0

    async def next_max_id(self, step: int) -> int:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().next_max_id(step)
        finally:
            self.under_way -= 1


@KINDS
async def test_one_flight_at_a_time(kind: type[Generator], clock: ManualClock) -> None:
    """A thousand tasks, a store that takes 500 ms, a step of 10: no error, no second fetch."""
    store = Counting(SlowDistributor(counter(), latency=0.5, clock=clock))
    ids: list[int] = []

    async def take(generator: Generator) -> None:
        for _ in range(3):
            ids.append(await generator.next_id())  # noqa: PERF401 - in the order of arrival

    async with anyio.create_task_group() as outer:
        opened: list[Generator] = []

        async def work() -> None:
            async with kind(store, clock=clock) as generator:
                opened.append(generator)
                async with anyio.create_task_group() as group:
                    for _ in range(1000):
                        group.start_soon(take, generator)

        outer.start_soon(work)
        await clock.advance(20)
    assert sorted(ids) == list(range(1, 3001))
    assert store.most == 1
    assert opened[0].statistics().failures == 0


async def test_a_flight_belongs_to_nobody(clock: ManualClock) -> None:
    """Cancelling every caller leaves the call to the store alone; its ids are for the next."""
    store = gated()
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.close()
        calls = [Call(generator.next_id) for _ in range(5)]
        await store.arrived(2)
        for call in calls:
            call.cancel()
        await settle()
        assert all(call.is_done for call in calls)
        assert store.held == 1
        await settled(store.open)
        seen = generator.statistics()
        assert (seen.remaining, seen.ids_discarded, store.calls) == (10, 0, 2)
        assert await generator.next_id() == 11


@pytest.mark.parametrize("how", ["async with", "run"])
async def test_opening_says_what_no_retry_mends(how: str, clock: ManualClock) -> None:
    """The store's own error comes out of opening, at once and unwrapped."""
    store = FailingDistributor(counter())
    error = SchemaMissingError("memory", table="cosid")
    store.fail(error)
    generator = SegmentChainId(store, clock=clock)
    with pytest.raises(SchemaMissingError):
        await (generator.run() if how == "run" else generator.__aenter__())
    assert tasks() == []
    store.recover()
    async with generator:
        assert await generator.next_id() == 1


@KINDS
async def test_what_a_stranger_raises_in_this_process(
    kind: type[Generator], clock: ManualClock
) -> None:
    """It is a StoreError with that as its cause, and nobody stays in the line."""
    store = InProcess(counter())
    async with kind(store, clock=clock) as generator:
        taken = await drain(generator)
        store.fail(KeyError("odd"))
        with pytest.raises(SegmentUnavailableError) as info:
            await generator.next_id()
        assert isinstance(info.value.__cause__, StoreError)
        assert isinstance(info.value.__cause__.__cause__, KeyError)
        with pytest.raises(WouldBlock):
            generator.next_id_nowait()
        assert generator.statistics().waiting == 0
        store.recover()
        assert await generator.next_id() == taken[-1] + 1


class SometimesAtOnce(WrappedDistributor):
    """Answers without a suspension until it is told not to."""

    at_once = True

    def next_max_id_nowait(self, step: int) -> int:
        if not self.at_once:
            raise WouldBlock
        self.steps.append(step)
        return self.inner.next_max_id_nowait(step)


async def test_a_store_that_was_in_this_process_is_asked_ahead(clock: ManualClock) -> None:
    """Once it has to be awaited, segments are fetched before they are needed."""
    store = SometimesAtOnce(counter())
    async with SegmentChainId(store, clock=clock) as chain:
        store.at_once = False
        await drain(chain)
        await chain.next_id()
        await settle()
        store.steps.clear()
        while not store.steps:
            await chain.next_id()
            await settle()
        assert chain.statistics().remaining > 0
        assert chain.statistics().waits == 1


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "awaited"])
@pytest.mark.parametrize("answer", ["20", 20.0, True, None])
async def test_an_answer_that_is_no_integer(
    answer: object, clock: ManualClock, *, at_once: bool
) -> None:
    """It is a damaged counter; other generators of the provider do not mind."""

    class Odd(WrappedDistributor):
        async def next_max_id(self, step: int) -> int:
            return answer  # type: ignore[return-value]  # the fault

        def next_max_id_nowait(self, step: int) -> int:
            if not at_once:
                raise WouldBlock
            return answer  # type: ignore[return-value]  # the fault

    generator = SegmentChainId(Odd(counter()), clock=clock)
    with pytest.raises(CorruptCounterError, match="of type"):
        await generator.__aenter__()


async def test_a_cancellation_that_nobody_asked_for(clock: ManualClock) -> None:
    """A driver that raises CancelledError by itself is an unavailable store, and asked again."""
    store = Cancelling(counter())
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.strays = 2
        call = Call(generator.next_id)
        await clock.advance(1)
        assert call.result == 11
        assert generator.statistics().failures == 2


async def test_a_driver_that_raises_a_cancellation_of_its_own(clock: ManualClock) -> None:
    """As grpc's does when it is cut: a call that took too long is like any other."""
    store = Recancelling(counter(step=10))
    async with SegmentId(store, clock=clock, fetch_timeout=1) as generator:
        await drain(generator)
        store.is_silent = True
        call = Call(generator.next_id)
        await clock.advance(1)
        assert generator.statistics().failures >= 1
        error = generator.statistics().last_error
        assert isinstance(error, StoreUnavailableError)
        assert not call.is_done
        store.is_silent = False
        await clock.advance(1)
        assert call.result == 11
        store.is_silent = True
        closing = Call(generator.aclose)
        await clock.advance(60)
        assert closing.error is None


class Recancelling(WrappedDistributor):
    """Raises another CancelledError than the one that cut it."""

    is_silent = False

    async def _pass(self) -> None:
        try:
            while self.is_silent:
                await anyio.sleep_forever()
            return
        except asyncio.CancelledError:
            pass
        raise asyncio.CancelledError

    async def next_max_id(self, step: int) -> int:
        await self._pass()
        return await super().next_max_id(step)


class Cancelling(WrappedDistributor):
    """Raises a CancelledError although its task was not cancelled."""

    strays = 0

    async def next_max_id(self, step: int) -> int:
        if self.strays:
            self.strays -= 1
            raise asyncio.CancelledError
        return await super().next_max_id(step)


async def test_an_unavailable_segment_is_as_retryable_as_its_cause(clock: ManualClock) -> None:
    """What no retry mends says so, and claims no time that nobody waited."""
    store = FailingDistributor(counter())
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.fail(SchemaMissingError("memory", table="cosid"))
        with pytest.raises(SegmentUnavailableError) as info:
            await generator.next_id()
        error = info.value
        assert (error.retryable, error.waited) == (False, 0)
        assert "within" not in str(error)
        assert pickle.loads(pickle.dumps(error)).retryable is False  # noqa: S301 - our own
        store.fail()
        call = Call(generator.next_id)
        await clock.advance(5)
        assert isinstance(call.error, SegmentUnavailableError)
        assert (call.error.retryable, call.error.waited) == (True, 5)
        assert "within 5 s" in str(call.error)
