"""Closing gives unused ids back: what goes, what stays, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import anyio
import pytest

import aiocosid.segment
from aiocosid import connect
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import ClosedError, CosIdError, InvalidArgumentError
from aiocosid.events import IdsDiscarded, IdsGivenBack
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import GatedDistributor, ManualClock, WrappedDistributor, settle

from .. import _interrupted
from ._kit import Call, Ear, counter

pytestmark = pytest.mark.asyncio


class Slow(WrappedDistributor):
    """Takes ids back when it is told to, or is cut off after it has done so."""

    def __init__(self, inner: IdSegmentDistributor) -> None:
        super().__init__(inner)
        self.gate = anyio.Event()
        self.asked: list[tuple[int, int]] = []

    async def give_back(self, max_id: int, unused: int) -> int:
        self.asked.append((max_id, unused))
        back = await self.inner.give_back(max_id, unused)
        await self.gate.wait()
        return back


def at(store: MemoryStore) -> int:
    return store._backend._counters["cosid.order"]


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_what_is_left_goes_back_and_is_counted(
    kind: type[SegmentChainId | SegmentId], ear: Ear
) -> None:
    store = MemoryStore()
    generator = kind(
        WrappedDistributor(store.segment_distributor(name="order", step=100)),
        give_back=True,
        instrument=ear,
    )
    for life in (1, 2):
        async with generator:
            await generator.next_ids(30)
            await settle()
        assert at(store) == 30 * life
        seen = generator.statistics()
        assert (seen.ids_handed_out, seen.ids_discarded) == (30, 0)
        assert seen.ids_given_back == seen.ids_fetched - 30 == ear.of(IdsGivenBack)[-1].count
        assert seen.as_tree()["idsGivenBack"] == seen.ids_given_back
    assert not ear.of(IdsDiscarded)


async def test_it_is_off_by_default_and_said_as_true_or_false() -> None:
    store = MemoryStore()
    async with connect(store) as ids:
        await (await ids.segment_chain("order", step=10)).next_id()
    assert at(store) > 1
    assert not store._backend._notes, "a grant was noted for nobody"
    wrong: object = "yes"
    with pytest.raises(InvalidArgumentError, match="True or False"):
        SegmentId(counter(), give_back=wrong)  # type: ignore[arg-type]  # a user's mistake


async def test_a_distributor_that_takes_nothing_back_is_refused() -> None:
    class Own(IdSegmentDistributor):
        async def next_max_id(self, step: int) -> int:
            return step

    own = Own(name="order")
    with pytest.raises(InvalidArgumentError, match="Own takes no ids back"):
        SegmentChainId(own, give_back=True)
    assert await own.give_back(10, 5) == 0


async def test_a_provider_and_groups_pass_it_on() -> None:
    store = MemoryStore()
    async with connect(store) as ids:
        orders = await ids.segment_chain("order", give_back=True)
        assert await orders.next_id() == 1
        await orders.aclose()
        orders = await ids.segment_chain("order", give_back=True)
        assert await orders.next_id() == 2, "its successor goes on below what it had bought"
    assert at(store) == 2
    day = GroupBy.key(lambda: "a")
    async with GroupedSegmentId(store, name="order", group_by=day, give_back=True) as bills:
        assert await bills.next_ids(3) == [1, 2, 3]
    assert store._backend._counters["cosid.order@a"] == 3


async def test_a_provider_waits_for_it() -> None:
    store = MemoryStore()
    slow = Slow(store.segment_distributor(name="order"))

    class One(MemoryStore):
        def segment_distributor(self, **_: object) -> Slow:  # type: ignore[override]  # this one
            return slow

    ids = connect(One())
    async with anyio.create_task_group() as group, ids:
        await (await ids.segment_chain("order", give_back=True)).next_id()
        closing = Call(group, ids.aclose)
        await settle()
        assert not closing.is_done
        slow.gate.set()
        await settle()
        assert closing.is_done


async def test_nothing_goes_back_while_a_call_is_under_way() -> None:
    """It may land after the ids went back; they are a gap."""
    store = MemoryStore()
    gate = GatedDistributor(store.segment_distributor(name="order", step=10))
    gate.let_through()
    generator = SegmentChainId(gate, give_back=True)
    async with generator, anyio.create_task_group() as group:
        await generator.next_ids(15)
        await settle()
        assert gate.held == 1
        closing = Call(group, generator.aclose)
        await settle()
        gate.open()
        await settle()
        assert closing.is_done
    assert at(store) > 20
    assert generator.statistics().ids_given_back == 0
    assert generator.statistics().ids_discarded == 5


async def test_what_was_cut_off_at_the_limit_is_not_given_back() -> None:
    """The ids above it were given up when they came, and what lies below is not the topmost."""
    store = MemoryStore()
    distributor = Slow(store.segment_distributor(name="order", step=10))
    async with SegmentId(distributor, max_id=7, give_back=True) as generator:
        assert await generator.next_id() == 1
    assert at(store) == 10
    assert not distributor.asked


async def test_of_a_chain_with_a_hole_only_the_end_goes_back() -> None:
    store = MemoryStore()
    distributor = Slow(store.segment_distributor(name="order", step=10))
    distributor.gate.set()
    async with SegmentChainId(distributor, give_back=True) as generator:
        await generator.next_ids(5)
        await settle()
        await store.segment_distributor(name="order").next_max_id(100)
        await generator.next_ids(10)
        await settle()
        held = generator.statistics()
    assert held.max_id == 140
    seen = generator.statistics()
    assert seen.ids_given_back == 20, "all of the last range, and none before the hole"
    assert seen.ids_given_back + seen.ids_discarded == held.remaining
    assert at(store) == 120
    assert distributor.asked == [(140, 20)]


async def test_closing_ends_in_time_and_what_is_torn_is_a_gap(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows whether the ids went back: they are not handed out, and it is not said again."""
    store = MemoryStore()
    slow = Slow(store.segment_distributor(name="order", step=10))
    generator = SegmentChainId(slow, give_back=True, close_timeout=3, clock=clock)
    async with anyio.create_task_group() as group, generator:
        await generator.next_id()
        closing = Call(group, generator.aclose)
        await settle()
        closing.cancel()
        assert generator.statistics().ids_handed_out == 1
        await clock.advance(2.9)
        assert not closing.is_done
        await clock.advance(0.2)
        assert closing.is_done
    assert len(slow.asked) == 1
    assert "cannot give ids back: no answer" in caplog.text
    seen = generator.statistics()
    assert (seen.ids_given_back, seen.ids_discarded, seen.ids_handed_out) == (0, 19, 1)
    slow.gate.set()
    async with generator:  # the store had done it: that is no roll-back
        assert await generator.next_id() == 2


async def test_an_error_is_told_and_closing_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(WrappedDistributor):
        async def give_back(self, max_id: int, unused: int) -> int:
            raise KeyError(max_id, unused)

    broken = Broken(counter())
    caplog.set_level(logging.WARNING)
    async with SegmentChainId(broken, give_back=True) as generator:
        await generator.next_id()
    assert broken.closed == 1
    assert "cannot give ids back" in caplog.text
    assert generator.statistics().ids_discarded == 19


async def test_a_call_on_the_same_distributor_keeps_it_from_giving_back() -> None:
    """Its answer would be below what was known when it was sent."""
    distributor = counter(step=10)
    distributor.allow_give_back()
    run = distributor._run
    assert await distributor.next_max_id(10) == 10
    with run.call():
        assert await distributor.give_back(10, 5) == 0
    assert await distributor.next_max_id(10) == 20
    assert await distributor.give_back(20, 5) == 5


def calls() -> list[Callable[[SegmentChainId], Any]]:
    return [
        lambda generator: generator.next_id(),
        lambda generator: generator.next_ids(3),
        lambda generator: generator.next_ids(25),
        lambda generator: generator.next_id_nowait(),
    ]


async def test_closed_in_the_middle_of_a_call_gives_back_nothing_that_the_call_returns() -> None:
    """A signal handler or an instrument may close it between any two steps of Python."""
    closed_within = 0
    for call in calls():
        for opcode in count(1, 11):
            store = MemoryStore()
            distributor = store.segment_distributor(name="order", step=10)
            generator = SegmentChainId(distributor, give_back=True, wait_timeout=0.01)
            await generator.__aenter__()
            left = opcode

            def handler(generator: SegmentChainId = generator) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    generator._retire(ClosedError("it"))

            taken = list[int]()
            with _interrupted.interrupted(aiocosid.segment, "opcode", handler):
                try:
                    found = call(generator)
                    answer = await found if asyncio.iscoroutine(found) else found
                    taken += answer if isinstance(answer, list) else [answer]
                except CosIdError:
                    pass
            closed_within += left <= 0
            await generator.aclose()
            assert at(store) >= max(taken, default=0), (opcode, taken)
            if left > 0:
                break
    assert closed_within > 50
