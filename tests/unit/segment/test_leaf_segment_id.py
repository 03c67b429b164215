"""Leaf's double buffer at work."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiocosid.abc import MAX_ID
from aiocosid.errors import (
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    SegmentUnavailableError,
    StoreError,
    WouldBlock,
)
from aiocosid.segment import LeafSegmentId
from aiocosid.testing import (
    FailingDistributor,
    ManualClock,
    SlowDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, Ear, settled
from ._kit import counter, gated


class RowDistributor(WrappedDistributor):
    """A counter whose step lies in the store."""

    def __init__(self, row: int, **about: Any) -> None:
        super().__init__(counter(**about))
        self.row: int | CosIdError = row

    async def row_step(self) -> int:
        await checkpoint()
        if isinstance(self.row, CosIdError):
            raise self.row
        return self.row


async def take(generator: LeafSegmentId, n: int) -> list[int]:
    """One by one, with time in between."""
    ids: list[int] = []
    for _ in range(n):
        await settled(ids.append, await generator.next_id())
    return ids


async def test_the_next_segment_is_loaded_at_a_tenth(clock: ManualClock) -> None:
    """Not before, not twice, and the one after it at a tenth of that one."""
    store = WrappedDistributor(counter(step=100))
    async with LeafSegmentId(store, clock=clock) as leaf:
        assert store.steps == [100]
        await take(leaf, 11)
        assert store.steps == [100], "89 would be left, and 90 are"
        await take(leaf, 1)
        assert store.steps == [100, 100]
        await take(leaf, 88)
        assert store.steps == [100, 100], "the second segment has not been touched"
        await take(leaf, 12)
        assert store.steps == [100, 100, 200]
        assert (await leaf.next_id(), leaf.statistics().starvations) == (113, 0)


async def test_the_step_by_the_clock(clock: ManualClock) -> None:
    """Doubled in haste, kept at ease, halved in quiet; statistics tell the next one."""
    store = WrappedDistributor(counter(step=10))
    async with LeafSegmentId(store, clock=clock) as leaf:
        for minutes in (0, 0, 1, 20, 40, 40):
            await clock.advance(minutes * 60)
            before = store.calls
            while store.calls == before:
                await take(leaf, 1)
        assert store.steps == [10, 10, 20, 40, 40, 20, 10]
        seen = leaf.statistics()
        assert (seen.kind, seen.prefetch_distance) == ("LeafSegmentId", 1)
        assert seen.step in {10, 20}


async def test_callers_wait_where_leaf_fails(clock: ManualClock) -> None:
    """A thousand at once, step 10, half a second a trip: no error, no duplicate, few trips."""
    store = SlowDistributor(counter(step=10), latency=0.5, clock=clock)
    ids: list[int] = []

    async def caller(leaf: LeafSegmentId) -> None:
        ids.append(await leaf.next_id())

    leaf = LeafSegmentId(store, clock=clock, max_step=10)
    async with anyio.create_task_group() as group:
        opened = await settled(Call, leaf.__aenter__)
        await clock.advance(0.5)
        assert opened.is_done
        for _ in range(1000):
            group.start_soon(caller, leaf)
        for _ in range(6):
            await clock.advance(0.5)
    assert sorted(ids) == list(range(1, 1001))
    assert store.calls <= 4
    await leaf.aclose()


async def test_one_load_at_a_time(clock: ManualClock) -> None:
    """However many find it due."""
    store = gated(step=10)
    async with LeafSegmentId(store, clock=clock) as leaf:
        store.close()
        assert await leaf.next_ids(9) == list(range(1, 10))
        await settle()
        assert (await leaf.next_id(), store.calls) == (10, 2)
        calls = [Call(leaf.next_id) for _ in range(5)]
        await settle()
        assert store.calls == 2
        await settled(store.open)
        assert sorted(call.result for call in calls) == [11, 12, 13, 14, 15]


async def test_the_rows_step_is_read_before_each_load(clock: ManualClock) -> None:
    """So what an operator writes holds for the next segment, and for the first one."""
    store = RowDistributor(50, step=1)
    async with LeafSegmentId(store, clock=clock) as leaf:
        assert store.steps == [50]
        store.row = 5000
        await take(leaf, 7)
        assert store.steps == [50, 5000]
        assert await leaf.next_ids(5043) == list(range(8, 5051))
        assert leaf.statistics().prefetch_distance == 1
        store.row = 10
        await clock.advance(40 * 60)
        await take(leaf, 1)
        await clock.advance(40 * 60)
        assert store.steps[:3] == [50, 5000, 10_000], "the second one had no time to last"
        await leaf.next_ids(10_000)
        await settle()
        assert store.steps[3] == 5000
    assert leaf.statistics().ids_fetched == sum(store.steps)


async def test_the_row_decides_alone(clock: ManualClock) -> None:
    """Not the distributor's step, which is for generators that read no row; but who waits does."""
    store = RowDistributor(10, step=1000)
    async with LeafSegmentId(store, clock=clock) as leaf:
        await take(leaf, 3)
        assert store.steps == [10, 10]
        assert await leaf.next_ids(250) == list(range(4, 254))
        await settle()
        assert store.steps == [10, 10, 240, 40]


async def test_a_row_that_cannot_be_read(clock: ManualClock) -> None:
    """Whoever waits is told why; ids in hand are handed out meanwhile, and it goes on after."""
    store = RowDistributor(10)
    async with LeafSegmentId(store, clock=clock, wait_timeout=3) as leaf:
        store.row = StoreError("store", "step is 0")
        ids = await take(leaf, 10)
        call = Call(leaf.next_id)
        await clock.advance(2)
        assert isinstance(call.error, SegmentUnavailableError)
        assert "step is 0" in str(call.error)
        store.row = 10
        call = Call(leaf.next_id)
        await clock.advance(2)
        assert [*ids, call.result] == list(range(1, 12))


async def test_a_prefetch_that_fails_is_tried_again(clock: ManualClock) -> None:
    """While ids are left nobody notices."""
    store = FailingDistributor(counter(step=100))
    async with LeafSegmentId(store, clock=clock) as leaf:
        store.fail(times=2)
        ids = await take(leaf, 12)
        for _ in range(4):
            await clock.advance(5)
            ids += await take(leaf, 40)
        assert ids == list(range(1, 173))
        assert leaf.statistics().starvations == 0


@pytest.mark.parametrize(
    "store",
    [
        WrappedDistributor(counter(step=10, offset=MAX_ID - 55)),
        RowDistributor(10, step=7, offset=MAX_ID - 55),
    ],
)
async def test_at_the_end_of_int64_shorter_steps_are_tried(store: WrappedDistributor) -> None:
    """A doubled one does not fit, nor at last the row's; no id is left unused."""
    async with LeafSegmentId(store) as leaf:
        ids = await leaf.next_ids(20)
        while True:
            try:
                ids.append(await leaf.next_id())
            except IdOverflowError:
                break
    assert ids == list(range(MAX_ID - 54, MAX_ID + 1))


async def test_a_row_above_what_one_call_grants_is_taken_in_parts(clock: ManualClock) -> None:
    """Ids that were not granted are somebody else's."""

    class Limited(RowDistributor):
        @property
        def step_limit(self) -> int | None:  # type: ignore[override]  # the base's own
            return 20

    store = Limited(50)
    async with LeafSegmentId(store, clock=clock) as leaf:
        assert await take(leaf, 45) == list(range(1, 46))
    assert set(store.steps) == {20}


async def test_the_first_id_is_1_whatever_the_row_says(ear: Ear) -> None:
    """An id of 0, which a range may begin with, is none."""

    class FromZero(WrappedDistributor):
        async def next_max_id(self, step: int) -> int:
            return await super().next_max_id(step) - 1

    async with LeafSegmentId(FromZero(counter(step=10)), instrument=ear) as leaf:
        assert await leaf.next_ids(3) == [1, 2, 3]


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("prefetch_at", (-0.1, 1, 1.5, "a", None, True, float("nan"))),
        ("segment_duration", (0, -1, float("inf"), "a")),
        ("max_step", (0, -1, 1.5, True)),
        ("max_id", (0,)),
        ("wait_timeout", (0,)),
    ],
)
async def test_bad_settings_are_refused(argument: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(InvalidArgumentError, match=argument):
            LeafSegmentId(counter(), **{argument: value})


class AtOnce(RowDistributor):
    """Can be asked without waiting, once told so."""

    is_at_once = False

    def next_max_id_nowait(self, step: int) -> int:
        failing = self.inner
        if not self.is_at_once or not isinstance(failing, FailingDistributor):
            raise WouldBlock
        return failing.inner.next_max_id_nowait(step)


async def test_what_a_failed_call_has_asked_for_is_forgotten(clock: ManualClock) -> None:
    """Its row's step is not taken for the length of the next segment."""
    store = AtOnce(10, step=10)
    store.inner = failing = FailingDistributor(store.inner)
    async with LeafSegmentId(store, clock=clock) as leaf:
        ids = [await leaf.next_id()]
        failing.fail()
        batch = await settled(Call, leaf.next_ids, 500)
        await clock.advance(60)
        assert isinstance(batch.error, SegmentUnavailableError)
        await clock.advance(60)
        failing.recover()
        store.is_at_once = True
        ids += await take(leaf, 50)
    assert ids == sorted(set(ids))
