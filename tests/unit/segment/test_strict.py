"""Strict order: an id is above every id whose call had ended before, over all generators."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from aiocosid import IdProvider
from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import IdsDiscarded
from aiocosid.errors import BusyError, InvalidArgumentError, UnsupportedByStoreError, WouldBlock
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    ManualClock,
    WrappedDistributor,
    settle,
)

from ...histories import GrantReceipt, History, violations
from .._kit import Call, Ear, settled, tasks
from ._kit import counter


class Short(WrappedDistributor):
    """Grants three ids at most in one call."""

    @property
    def step_limit(self) -> int:  # type: ignore[override]  # as the base's
        return 3


class Undeclared(IdSegmentDistributor):
    """Says nothing of the order of its ids."""

    store = "a store of my own"

    async def next_max_id(self, step: int) -> int:
        raise NotImplementedError


async def test_callers_that_wait_share_one_trip() -> None:
    """A thousand tasks are one call to the store, of as many ids, whatever the step is."""
    store = WrappedDistributor(counter(step=10))
    async with SegmentId(store, strict=True) as generator:
        assert store.calls == 0  # nothing is fetched ahead
        calls = [Call(generator.next_id) for _ in range(1000)]
        await settle()
        assert sorted(call.result for call in calls) == list(range(1, 1001))
        assert store.steps == [1000]
        calls = [Call(generator.next_ids, n) for n in (3, 1, 400)]
        await settle()
        assert store.steps == [1000, 404]
        assert generator.statistics().remaining == 0
        with pytest.raises(WouldBlock):
            generator.next_id_nowait()
        await settle()
        assert store.calls == 2  # which does not order any
    assert tasks() == []


async def test_tasks_that_ask_again_and_again_cost_one_trip_each_time() -> None:
    """The callers of a trip are woken together, and so are served by the next one together."""
    store = WrappedDistributor(counter())

    async def take() -> None:
        for _ in range(20):
            await generator.next_id()

    async with SegmentId(store, strict=True) as generator, anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(take)
    assert store.steps == [100] * 20


async def test_a_caller_joins_no_trip_that_was_sent(clock: ManualClock) -> None:
    """However many have left it."""
    store = GatedDistributor(counter(), holds_replies=True)
    async with SegmentId(store, clock=clock, strict=True) as generator:
        early = [Call(generator.next_id) for _ in range(3)]
        await store.arrived()  # the store has counted to 3
        between = await store.inner.next_max_id(1)  # another process has its 4 by now
        late = await settled(Call, generator.next_ids, 2)
        await settled(early[0].cancel)
        await settled(store.open)
        assert sorted(call.result for call in early[1:]) == [1, 2]
        assert min(late.result) > between


async def test_what_a_cancelled_caller_leaves_is_a_gap(clock: ManualClock, ear: Ear) -> None:
    """Also to callers that came with it: who is cancelled when it was served gives nothing back."""
    store = GatedDistributor(counter())
    generator = SegmentId(store, clock=clock, instrument=ear, strict=True)
    async with generator:
        call, other = Call(generator.next_ids, 3), Call(generator.next_id)
        await settle()
        await settled(call.cancel)
        await settled(store.open)
        assert [(e.count, e.reason) for e in ear.of(IdsDiscarded)] == [(3, "out_of_order")]
        assert await generator.next_id() == 5 > other.result
    seen = generator.statistics()
    assert seen.ids_fetched == seen.ids_handed_out + seen.ids_discarded


async def test_a_call_that_failed_is_sent_again_for_those_who_wait_then(clock: ManualClock) -> None:
    """Who came meanwhile shares the second attempt, which was not sent before it came."""
    store = FailingDistributor(WrappedDistributor(counter()))
    store.fail(times=1)
    async with SegmentId(store, clock=clock, strict=True) as generator:
        calls = [Call(generator.next_id) for _ in range(2)]
        await settle()
        calls.append(await settled(Call, generator.next_id))
        await clock.advance(1)
        assert sorted(call.result for call in calls) == [1, 2, 3]
        assert store.steps == [2, 3]


async def test_ids_of_several_trips_are_for_who_came_before_the_first(clock: ManualClock) -> None:
    """A store that grants few at a time: what one leaves is not for a caller that came later."""
    gate = GatedDistributor(counter(), holds_replies=True)
    store = Short(gate)
    async with SegmentId(store, clock=clock, strict=True) as generator:
        many = Call(generator.next_ids, 5)
        await gate.arrived()  # for three
        between = await gate.inner.next_max_id(1)
        late = await settled(Call, generator.next_id)
        gate.open()
        gate.close()
        await gate.arrived()  # for the rest; the first three are in hand
        await settled(many.cancel)
        await settled(gate.open)
        assert late.result > between


async def test_histories_of_many_callers_are_in_strict_order() -> None:
    """Two generators on one counter, calls of any size, some of them cancelled."""
    rng = random.Random(7)  # noqa: S311 - which sizes, and who is cancelled
    history, store = History(), MemoryStore()

    async def take(generator: SegmentId) -> None:
        for _ in range(30):
            n = rng.choice((1, 1, 1, 2, 7))
            with anyio.CancelScope() as scope:
                if rng.random() < 0.1:
                    scopes.append(scope)
                await history.take(generator.next_ids, n)
            if scopes and rng.random() < 0.3:
                scopes.pop().cancel()
            for _ in range(rng.randrange(3)):
                await anyio.lowlevel.checkpoint()

    scopes: list[anyio.CancelScope] = []
    distributors = [
        WrappedDistributor(store.segment_distributor(name="order", step=10)) for _ in range(2)
    ]
    async with (
        SegmentId(distributors[0], strict=True) as one,
        SegmentId(distributors[1], strict=True) as two,
        anyio.create_task_group() as group,
    ):
        for generator in (one, two) * 20:
            group.start_soon(take, generator)
    assert len(history.calls) > 1000
    history.check()
    assert sum(each.calls for each in distributors) < len(history.calls) / 2


async def test_a_step_without_strict_is_out_of_order() -> None:
    """What the check is worth: two generators with segments are caught."""
    history, store = History(), MemoryStore()
    made = [SegmentId(store.segment_distributor(name="order", step=10)) for _ in range(2)]
    async with made[0], made[1]:
        for generator in (made[0], made[1], made[0]):
            await history.take(generator.next_ids)
    assert violations(history.calls) == [(GrantReceipt(2, 3, 11, 11), GrantReceipt(4, 5, 2, 2))]


async def test_a_store_that_does_not_declare_itself_is_refused() -> None:
    """At construction, with the reason; `SegmentChainId` has no such option."""
    with pytest.raises(UnsupportedByStoreError, match=r"a store of my own: .* does not declare"):
        SegmentId(Undeclared(name="order"), strict=True)
    with pytest.raises(UnsupportedByStoreError, match="does not declare"):
        SegmentId(WrappedDistributor(Undeclared(name="order")), strict=True)
    with pytest.raises(InvalidArgumentError, match="strict"):
        SegmentId(counter(), strict=1)  # type: ignore[arg-type]
    refused: Any = SegmentChainId
    with pytest.raises(TypeError, match="strict"):
        refused(counter(), strict=True)


async def test_a_provider_makes_it_for_all_who_ask_alike() -> None:
    """A name is strict or not."""
    async with IdProvider(MemoryStore()) as ids:
        generator = await ids.segment("order", strict=True)
        assert generator.strict
        assert await ids.segment("order", strict=True, step=7) is generator
        with pytest.raises(BusyError, match="strict order"):
            await ids.segment("order")
        assert not (await ids.segment("other")).strict


async def test_groups_are_in_strict_order_each() -> None:
    """Nothing is kept in hand between two calls, whatever the step; and each group has its own."""
    store, year = MemoryStore(), GroupBy.year(zone="UTC")
    options: dict[str, Any] = {
        "name": "order",
        "group_by": year,
        "group_kind": "segment",
        "step": 10,
    }
    async with (
        GroupedSegmentId(store, strict=True, **options) as one,
        GroupedSegmentId(store, strict=True, **options) as two,
    ):
        assert [await each.next_id() for each in (one, two, one)] == [1, 2, 3]


async def test_groups_are_refused_where_a_counter_is() -> None:
    """When they are made: chains, and a store that does not declare itself."""
    options: dict[str, Any] = {
        "name": "order",
        "group_by": GroupBy.year(zone="UTC"),
        "strict": True,
    }
    with pytest.raises(InvalidArgumentError, match="False for chains"):
        GroupedSegmentId(MemoryStore(), **options)
    with pytest.raises(UnsupportedByStoreError, match="does not declare"):
        GroupedSegmentId(Undeclared, group_kind="segment", **options)


async def test_a_provider_agrees_on_strict_groups() -> None:
    """Whatever the step, which is not used."""
    year = GroupBy.year(zone="UTC")
    async with IdProvider(MemoryStore()) as ids:
        made = await ids.grouped("order", group_by=year, group_kind="segment", strict=True)
        options: dict[str, Any] = {"group_by": year, "group_kind": "segment"}
        assert await ids.grouped("order", strict=True, step=7, **options) is made
        with pytest.raises(BusyError, match="strict order"):
            await ids.grouped("order", **options)
