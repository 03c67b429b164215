"""Where ids end: int64, a lower limit, counters below 1, and a store that went backwards."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from aiocosid.abc import MAX_ID, IdSegmentDistributor
from aiocosid.abc.events import FetchFailed, IdsDiscarded
from aiocosid.errors import (
    CorruptCounterError,
    IdOverflowError,
    InvalidArgumentError,
    SegmentUnavailableError,
    StoreRolledBackError,
    WouldBlock,
)
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import ManualClock, RolledBackDistributor, WrappedDistributor, settle

from .._kit import Call, Ear, settled, tasks
from ._kit import Generator, counter, drain

KINDS = pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
AT_ONCE = pytest.mark.parametrize("at_once", [True, False], ids=["at once", "awaited"])
JAVASCRIPT = 2**53 - 1


class Counted(WrappedDistributor):
    """Ends the test when it is asked on and on: the loop stands still then, without a deadline."""

    def __init__(self, inner: IdSegmentDistributor, *, at_once: bool) -> None:
        super().__init__(inner)
        self.at_once = at_once

    async def next_max_id(self, step: int) -> int:
        self.count(step)
        return await self.inner.next_max_id(step)

    def next_max_id_nowait(self, step: int) -> int:
        if not self.at_once:
            raise WouldBlock
        self.count(step)
        return self.inner.next_max_id_nowait(step)

    def count(self, step: int) -> None:
        self.steps.append(step)
        if self.calls > 500:
            pytest.fail("it asks for ever")  # no Exception, which would be the store's


def near_the_end(ids: int, *, at_once: bool, step: int = 10, end: int = MAX_ID) -> Counted:
    return Counted(counter(step=step, offset=end - ids), at_once=at_once)


async def take_all(generator: Generator) -> tuple[list[int], IdOverflowError]:
    """Take ids until they are used up."""
    ids: list[int] = []
    try:
        while True:
            ids.append(await generator.next_id())
    except IdOverflowError as error:
        return ids, error


@KINDS
@AT_ONCE
@pytest.mark.parametrize("ids", [10, 20, 50, 1000])
async def test_the_last_id_is_2_to_the_63_minus_1(
    kind: type[Generator], ids: int, at_once: bool
) -> None:
    """It is handed out; the next call is an IdOverflowError, and so is every one after that."""
    async with kind(near_the_end(ids, at_once=at_once)) as generator:
        taken, error = await take_all(generator)
        assert taken == list(range(MAX_ID - ids + 1, MAX_ID + 1))
        assert error.limit == MAX_ID
        for _ in range(2):
            with pytest.raises(IdOverflowError):
                await generator.next_id()
            with pytest.raises(IdOverflowError):
                await generator.next_ids(1)
            with pytest.raises(IdOverflowError):
                generator.next_id_nowait()


@KINDS
@AT_ONCE
@pytest.mark.parametrize(("ids", "step"), [(1, 20), (37, 10), (50, 20), (999, 1000)])
async def test_what_is_no_whole_segment_before_the_end_comes_too(
    kind: type[Generator], ids: int, step: int, at_once: bool
) -> None:
    """A step that would pass int64 is refused whole by the store: fewer ids are asked for."""
    store = near_the_end(ids, step=step, at_once=at_once)
    async with kind(store) as generator:
        taken, _ = await take_all(generator)
    assert taken == list(range(MAX_ID - ids + 1, MAX_ID + 1))
    assert store.calls < 50, "it halves what it asks for"


@KINDS
async def test_a_store_that_grants_whole_ranges_only_keeps_the_rest(kind: type[Generator]) -> None:
    """As TDDL's, whatever the step: no id beyond comes, and the callers are told."""

    class Whole(WrappedDistributor):
        @property
        def step_limit(self) -> int | None:  # type: ignore[override]  # the base's own
            return 20

        async def next_max_id(self, step: int) -> int:
            self.steps.append(step)
            return await self.inner.next_max_id(20)

    store = Whole(counter(step=20, offset=MAX_ID - 50))
    async with kind(store) as generator:
        taken, _ = await take_all(generator)
    assert taken == list(range(MAX_ID - 49, MAX_ID - 9))
    assert store.calls < 10


@KINDS
async def test_a_batch_past_the_end_takes_nothing(kind: type[Generator]) -> None:
    """A batch larger than what is left is refused; what is left can still be taken."""
    async with kind(near_the_end(20, at_once=False)) as generator:
        await generator.next_ids(15)
        with pytest.raises(IdOverflowError):
            await generator.next_ids(6)
        assert await generator.next_ids(5) == list(range(MAX_ID - 4, MAX_ID + 1))
        with pytest.raises(IdOverflowError):
            await generator.next_id()


async def test_all_who_wait_at_the_end_are_told() -> None:
    """Waiters beyond the last id get IdOverflowError, those before it their ids."""
    store = near_the_end(20, at_once=False)
    async with SegmentId(store) as generator:
        await drain(generator)
        calls = [Call(generator.next_ids, 3) for _ in range(5)]
        await settle()
    assert [call.result is not None for call in calls] == [True] * 3 + [False] * 2
    assert [type(call.error) for call in calls[3:]] == [IdOverflowError] * 2


@KINDS
@AT_ONCE
@pytest.mark.parametrize("ids", [3, 10, 25, 1000])
async def test_a_lower_limit(kind: type[Generator], at_once: bool, ids: int) -> None:
    """With `max_id` the last id is that one, wherever in a segment it lies."""
    store = near_the_end(ids, at_once=at_once, end=JAVASCRIPT)
    async with kind(store, max_id=JAVASCRIPT) as generator:
        taken, error = await take_all(generator)
        assert taken == list(range(JAVASCRIPT - ids + 1, JAVASCRIPT + 1))
        assert error.limit == JAVASCRIPT
        seen = generator.statistics()
        assert seen.ids_fetched == ids + seen.ids_discarded
        assert seen.remaining == 0


@KINDS
async def test_at_its_limit_it_asks_no_more(kind: type[Generator]) -> None:
    """When the last id that may be handed out is there, the store's counter is left alone."""
    store = WrappedDistributor(counter())
    async with kind(store, max_id=20) as generator:
        taken, _ = await take_all(generator)
        assert taken == list(range(1, 21))
        await settle()
        assert sum(store.steps) == 20


@KINDS
async def test_a_limit_that_is_passed_already(kind: type[Generator]) -> None:
    """A counter above the limit hands out nothing at all."""
    distributor = counter(offset=100)
    with pytest.raises(IdOverflowError):
        async with kind(distributor, max_id=100):
            pass
    assert tasks() == []


async def test_what_is_beyond_the_limit_is_counted(ear: Ear) -> None:
    """Ids above it are discarded with the reason "limit"."""
    async with SegmentId(counter(), max_id=7, instrument=ear) as generator:
        assert await generator.next_ids(7) == [1, 2, 3, 4, 5, 6, 7]
    assert [(e.count, e.reason) for e in ear.of(IdsDiscarded)] == [(3, "limit")]


@pytest.mark.parametrize("max_id", [0, -1, MAX_ID + 1, 1.0, True])
async def test_a_limit_outside_int64_is_refused(max_id: int) -> None:
    """It is from 1 to 2^63-1."""
    with pytest.raises(InvalidArgumentError, match="max_id"):
        SegmentChainId(counter(), max_id=max_id)


# Counters below 1, which another program may have left.


class Negative(WrappedDistributor):
    """A store whose counter begins below zero."""

    def __init__(self, begin: int, *, at_once: bool) -> None:
        super().__init__(counter())
        self.value = begin
        self.at_once = at_once

    async def next_max_id(self, step: int) -> int:
        return self.add(step)

    def next_max_id_nowait(self, step: int) -> int:
        if not self.at_once:
            raise WouldBlock
        return self.add(step)

    def add(self, step: int) -> int:
        self.steps.append(step)
        self.value += step
        return self.value


@KINDS
@AT_ONCE
@pytest.mark.parametrize("begin", [-10, -25, -1])
async def test_no_id_below_1(
    kind: type[Generator], at_once: bool, begin: int, clock: ManualClock
) -> None:
    """Whatever the store answers, the first id handed out is 1 or above."""
    generator = kind(Negative(begin, at_once=at_once), clock=clock, wait_timeout=60)
    opening = Call(generator.__aenter__)
    await clock.advance(60)
    if opening.error is not None:
        assert isinstance(opening.error, CorruptCounterError)
    else:
        ids = await generator.next_ids(30)
        assert ids == list(range(1, 31))
        await generator.aclose()
    await settle()


@KINDS
@AT_ONCE
async def test_a_deeply_negative_counter_is_an_error(
    kind: type[Generator], at_once: bool, clock: ManualClock
) -> None:
    """It is a damaged counter, told at once; the store is not asked again and again."""
    store = Negative(-(10**9), at_once=at_once)
    generator = kind(store, clock=clock)
    opening = await settled(Call, generator.__aenter__)
    assert isinstance(opening.error, CorruptCounterError)
    assert store.calls <= 2


# A store that lost writes.


class LosingAtOnce(RolledBackDistributor):
    """In this process, and forgetful all the same."""

    def next_max_id_nowait(self, step: int) -> int:
        self.steps.append(step)
        return self.inner.next_max_id_nowait(step) - self._behind


LOSING = pytest.mark.parametrize(
    "losing", [LosingAtOnce, RolledBackDistributor], ids=["at once", "awaited"]
)
HOW = pytest.mark.parametrize("how", ["next_id", "next_ids", "next_id_nowait"])


@KINDS
@LOSING
@HOW
async def test_the_call_that_finds_the_loss_is_told_at_once(
    kind: type[Generator], losing: type[RolledBackDistributor], how: str, clock: ManualClock
) -> None:
    """Whoever comes for an id when the counter has gone back gets the error, and does not wait."""
    store = losing(counter())
    async with kind(store, clock=clock) as generator:
        await generator.next_ids(10)
        store.set_back(10)

        async def take() -> None:
            while True:
                match how:
                    case "next_id":
                        await generator.next_id()
                    case "next_ids":
                        await generator.next_ids(3)
                    case _:
                        try:
                            generator.next_id_nowait()
                        except WouldBlock:
                            assert losing is RolledBackDistributor
                            await anyio.lowlevel.checkpoint()

        call = await settled(Call, take)
        assert isinstance(call.error, StoreRolledBackError)
        assert clock.monotonic() == 0
        assert generator.statistics().ids_handed_out <= 20


@KINDS
async def test_a_counter_that_went_back_ends_the_generator(
    kind: type[Generator], clock: ManualClock, ear: Ear
) -> None:
    """It is terminal, and not one id more comes, not even one in hand; all waiters are told."""
    store = RolledBackDistributor(counter())
    async with kind(store, clock=clock, instrument=ear) as generator:
        ids = await generator.next_ids(25)
        store.set_back(1)
        calls = [Call(generator.next_ids, n) for n in (300, 1, 2)]
        await settle()
        for call in calls:
            assert call.result is None or call.result[0] > ids[-1]
        error = calls[0].error
        assert isinstance(error, StoreRolledBackError)
        assert error.counter == "cosid.order"
        assert error.seen < error.expected
        assert "set-floor order" in str(error)
        assert not error.retryable
        for _ in range(2):
            for function in (generator.next_id, lambda: generator.next_ids(1)):
                with pytest.raises(StoreRolledBackError):
                    await function()
            with pytest.raises(StoreRolledBackError):
                generator.next_id_nowait()
        seen = generator.statistics()
        assert seen.remaining == 0
        assert isinstance(seen.last_error, StoreRolledBackError)
        assert seen.ids_fetched == seen.ids_handed_out + seen.ids_discarded
        assert [type(e.error) for e in ear.of(FetchFailed)] == [StoreRolledBackError]
    with pytest.raises(StoreRolledBackError):
        await generator.next_id()


async def test_the_counter_may_stand_still_no_more_than_go_back(clock: ManualClock) -> None:
    """The next answer has to be above the last by the step at least; more is others' ranges."""
    store = RolledBackDistributor(counter())
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.set_back(-7)  # another process took seven
        assert await generator.next_id() == 18
        await drain(generator)
        store.set_back(1)
        with pytest.raises(StoreRolledBackError) as info:
            await generator.next_id()
        assert (info.value.seen, info.value.expected) == (36, 37)


@LOSING
async def test_a_loss_between_two_lives_is_noticed(
    losing: type[RolledBackDistributor], clock: ManualClock
) -> None:
    """Opened anew it knows how far it had come; also when an opening failed in between."""
    store = losing(counter())
    generator = SegmentId(store, clock=clock)
    async with generator:
        await generator.next_ids(30)
    store.set_back(20)
    for _ in range(2):
        with pytest.raises(StoreRolledBackError) as info:
            await generator.__aenter__()
        assert info.value.expected == 40
    store.set_back(-100)
    async with generator:
        assert await generator.next_id() > 30


async def test_a_store_that_raises_it_itself_is_believed(clock: ManualClock) -> None:
    """A distributor that notices the loss ends the generator just so."""
    from aiocosid.testing import FailingDistributor

    store = FailingDistributor(counter())
    async with SegmentChainId(store, clock=clock) as chain:
        store.fail(
            StoreRolledBackError("memory", namespace="cosid", name="order", seen=1, expected=21)
        )
        with pytest.raises(StoreRolledBackError):
            await chain.next_ids(21)
        store.recover()
        with pytest.raises(StoreRolledBackError):
            await chain.next_id()


async def test_the_wait_ends_with_the_end(clock: ManualClock) -> None:
    """Whoever waits when the counter went back does not wait for its deadline."""
    store = RolledBackDistributor(counter())
    async with SegmentId(store, clock=clock) as generator:
        await drain(generator)
        store.set_back(5)
        call = await settled(Call, generator.next_id)
        assert isinstance(call.error, StoreRolledBackError)
        assert not isinstance(call.error, SegmentUnavailableError)
        assert clock.monotonic() == 0
