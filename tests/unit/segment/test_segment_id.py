"""One segment at a time; with a step of 1 the store's own order."""

from __future__ import annotations

import anyio
import pytest

from aiocosid.abc.events import IdsDiscarded
from aiocosid.errors import WouldBlock
from aiocosid.segment import SegmentId
from aiocosid.testing import GatedDistributor, ManualClock, WrappedDistributor, settle

from .._kit import Call, Ear, settled
from ._kit import counter


async def test_it_fetches_when_opened_and_when_used_up() -> None:
    """One trip for each segment, and none ahead."""
    store = WrappedDistributor(counter(step=3))
    async with SegmentId(store) as generator:
        assert store.calls == 1
        assert [await generator.next_id() for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
        assert store.steps == [3, 3, 3]


async def test_callers_share_a_fetch() -> None:
    """However many find the segment used up, as many trips are made as the ids need."""
    store = WrappedDistributor(counter(step=10))
    ids: list[int] = []

    async def take() -> None:
        ids.append(await generator.next_id())

    async with SegmentId(store) as generator:
        await generator.next_ids(10)
        async with anyio.create_task_group() as group:
            for _ in range(35):
                group.start_soon(take)
        assert sorted(ids) == list(range(11, 46))
        assert sum(store.steps) <= 10 + 50


async def test_nowait_asks_for_the_next_segment() -> None:
    """WouldBlock, and soon after an id."""
    store = WrappedDistributor(counter(step=2))
    async with SegmentId(store) as generator:
        assert [generator.next_id_nowait(), generator.next_id_nowait()] == [1, 2]
        with pytest.raises(WouldBlock) as info:
            generator.next_id_nowait()
        assert info.value.retryable
        await settle()
        assert generator.next_id_nowait() == 3


# A step of 1: every id is fetched for the call that gets it.


async def test_with_a_step_of_1_nothing_is_fetched_ahead() -> None:
    """Opening asks the store for nothing, and nothing is in hand between two calls."""
    store = WrappedDistributor(counter(step=1))
    async with SegmentId(store) as generator:
        assert store.calls == 0
        for due in (1, 2, 3):
            assert await generator.next_id() == due
            assert generator.statistics().remaining == 0
            assert store.calls == due
        assert await generator.next_ids(5) == [4, 5, 6, 7, 8]
        assert store.steps == [1, 1, 1, 5]


async def test_with_a_step_of_1_processes_take_turns() -> None:
    """An id that was asked for later is higher, whichever process asked."""
    inner = counter(step=1)
    async with (
        SegmentId(WrappedDistributor(inner)) as one,
        SegmentId(WrappedDistributor(inner)) as two,
    ):
        ids = [await generator.next_id() for generator in (one, two, two, one, two, one, one)]
    assert ids == [1, 2, 3, 4, 5, 6, 7]


async def test_with_a_step_of_1_what_a_cancelled_caller_leaves_is_a_gap(
    clock: ManualClock, ear: Ear
) -> None:
    """It was fetched before the next caller asked."""
    store = GatedDistributor(counter(step=1))
    generator = SegmentId(store, clock=clock, instrument=ear)
    async with generator:
        call = await settled(Call, generator.next_ids, 3)
        await settled(call.cancel)
        await settled(store.open)
        assert [(e.count, e.reason) for e in ear.of(IdsDiscarded)] == [(3, "out_of_order")]
        assert await generator.next_id() == 4


async def test_with_a_step_of_1_nobody_gets_an_id_that_was_fetched_before_it_asked(
    clock: ManualClock,
) -> None:
    """A caller that lines up while a call is under way gets none of that call's ids."""
    store = GatedDistributor(counter(step=1), holds_replies=True)
    async with SegmentId(store, clock=clock) as generator:
        early = Call(generator.next_id)
        await store.arrived()  # the store has counted to 1
        between = await store.inner.next_max_id(1)  # another process has its 2 by now
        late = await settled(Call, generator.next_id)
        await settled(early.cancel)
        await settled(store.open)
        assert late.result > between
        seen = generator.statistics()
        assert seen.ids_fetched == seen.ids_handed_out + seen.ids_discarded
