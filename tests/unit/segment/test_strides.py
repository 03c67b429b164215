"""Counters of one residue class, and stores that grant so many ids at a time."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import InvalidArgumentError, StoreRolledBackError, WouldBlock
from aiocosid.segment import GroupBy, GroupedSegmentId, LeafSegmentId, SegmentChainId, SegmentId
from aiocosid.stores.counters import CounterDistributor
from aiocosid.testing import ManualClock

from ._kit import OneDistributor, counter

pytestmark = pytest.mark.anyio


class Residue(IdSegmentDistributor):
    """Every third id, the second of the three; at most ``limit`` at a time."""

    def __init__(self, *, step: int = 10, limit: int | None = None, at_once: bool = False) -> None:
        super().__init__(name="order", step=step)
        self.inner: CounterDistributor = counter(step=step)
        self.step_limit = limit
        self.stride = 0  # as long as nobody has asked
        self.steps: list[int] = []
        self.at_once = at_once

    async def next_max_id(self, step: int) -> int:
        self.steps.append(step)
        self.stride = 3
        return await self.inner.next_max_id(step) * 3 + 1

    def next_max_id_nowait(self, step: int) -> int:
        if not self.at_once:
            raise WouldBlock
        self.steps.append(step)
        self.stride = 3
        return self.inner.next_max_id_nowait(step) * 3 + 1


async def test_a_group_has_the_step_of_its_counter() -> None:
    """Which may be below the one that was asked for, as the range of a TDDL sequence is."""
    made = Residue(step=10, limit=10)
    one = GroupBy.key(lambda: "x")
    async with GroupedSegmentId(OneDistributor(made), name="order", step=20, group_by=one) as ids:
        assert [int(await ids.next_id()) for _ in range(25)] == list(range(4, 79, 3))
    assert set(made.steps) == {10}


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
@pytest.mark.parametrize("at_once", [False, True])
async def test_every_way_to_take_ids_keeps_the_class(
    kind: type[SegmentChainId | SegmentId], *, at_once: bool
) -> None:
    """One by one, in batches within a piece and across segments, and without waiting."""
    ids: list[int] = []
    async with kind(Residue(at_once=at_once), clock=ManualClock()) as generator:
        for n in (1, 3, 4, 25, 1, 100):
            ids += await generator.next_ids(n)
            ids += [await generator.next_id(), await generator.next_id()]
            picture = generator.statistics()
            assert picture.head_sequence is not None
            assert picture.head_sequence >= ids[-1]
            assert picture.head_sequence % 3 == 1
            if picture.remaining:
                ids.append(generator.next_id_nowait())
    assert ids == list(range(4, 4 + 3 * len(ids), 3))


async def test_the_ids_are_clipped_by_the_limit() -> None:
    """The last one is the highest of the class below it."""
    async with SegmentChainId(Residue(), max_id=30, clock=ManualClock()) as generator:
        assert await generator.next_ids(9) == list(range(4, 30, 3))
        assert generator.statistics().remaining == 0


async def test_a_store_that_went_back_is_found_by_the_ids() -> None:
    """The whole grant has to lie above the last id."""
    for back_to, seen in ((0, 31), (9, 58)):
        distributor = Residue()
        async with SegmentId(distributor, clock=ManualClock()) as generator:
            await generator.next_ids(10)
            distributor.inner = counter(step=10, offset=back_to)
            with pytest.raises(StoreRolledBackError) as caught:
                await generator.next_id()
            assert (caught.value.seen, caught.value.expected) == (seen, 59)


async def test_no_call_asks_for_more_than_the_store_grants() -> None:
    """However far the chain wants to be ahead, and however many ids are waited for."""
    distributor = Residue(step=10, limit=20)
    async with SegmentChainId(distributor, safe_distance=8, clock=ManualClock()) as generator:
        assert len(await generator.next_ids(300)) == 300
        with anyio.fail_after(5):
            while generator.statistics().remaining < 80:
                await anyio.lowlevel.checkpoint()
    assert {20} <= {*distributor.steps} <= {10, 20}


async def test_groups_have_it_as_well() -> None:
    """The distributor of a group is opened late, and knows its stride later."""
    distributor = Residue(limit=10)
    store = OneDistributor(distributor)
    async with GroupedSegmentId(
        store, name="order", group_by=GroupBy.day(zone="UTC"), step=10, clock=ManualClock()
    ) as generator:
        assert [int(each) for each in await generator.next_ids(25)] == list(range(4, 79, 3))
    assert max(distributor.steps) == 10


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId, LeafSegmentId])
def test_a_step_above_the_limit_is_refused(kind: Callable[[Residue], object]) -> None:
    """A segment would hold more ids than one call grants, and others have those as well."""
    with pytest.raises(
        InvalidArgumentError, match=r"at most 10, the distributor's step_limit, not 11"
    ):
        kind(Residue(step=11, limit=10))
    kind(Residue(step=10, limit=10))


async def test_a_group_is_refused_it_as_well() -> None:
    """The counter of a group is made with its first call."""
    store, one = OneDistributor(Residue(step=11, limit=10)), GroupBy.key(lambda: "x")
    async with GroupedSegmentId(store, name="order", group_by=one) as generator:
        with pytest.raises(InvalidArgumentError, match="step_limit"):
            await generator.next_id()


def test_strict_order_needs_no_step_within_the_limit() -> None:
    """It asks for as many as callers wait for, whatever the step."""
    distributor = Residue(step=11, limit=10)
    distributor.order_risk = ""
    SegmentId(distributor, strict=True)


async def test_a_limit_that_has_sunk_since_holds(clock: ManualClock) -> None:
    """A segment is then shorter than the step."""
    distributor = Residue(step=10, limit=10)
    async with SegmentId(distributor, clock=clock) as generator:
        await generator.next_ids(10)
        distributor.step_limit = 4
        assert await generator.next_ids(6) == list(range(34, 34 + 18, 3))
    assert distributor.steps == [10, 4, 4]


def test_it_cannot_be_the_root_of_spans() -> None:
    """A span is handed out without holes."""
    from aiocosid.stores.redis import RedisStore
    from aiocosid.stores.tiered import TieredStore

    cache = RedisStore.from_url("redis://localhost")
    for root in (Residue(), Residue(limit=20)):
        root.stride = root.stride if root.step_limit is None else 1
        with pytest.raises(InvalidArgumentError, match="contiguous ranges"):
            TieredStore(OneDistributor(root), cache, root_name="here").segment_distributor(name="a")
