"""Segments that a broker cuts from spans: contiguous, rising, and few calls to the root."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
import pytest_asyncio

from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import (
    CounterMissingError,
    IdOverflowError,
    InvalidArgumentError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.server._span_store import SpanDistributor, SpanStore
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import DistributorFactory, IdSegmentDistributorContract, ManualClock, settle

from .._kit import Call

SPAN = 1000


class RootCounter(IdSegmentDistributor):
    """A counter that has to be awaited, counts its calls, and can be out of reach."""

    store = "root"

    def __init__(self, root: TaskRoot, **described: Any) -> None:
        super().__init__(**described)
        self._root, self._counter = root, root.memory.segment_distributor(**described)

    async def next_max_id(self, step: int) -> int:
        root = self._root
        root.steps.append(step)
        await anyio.lowlevel.checkpoint()
        if root.gate is not None:
            await root.gate.wait()
        if root.is_down:
            raise StoreUnavailableError("root", "unplugged")
        return await self._counter.next_max_id(step)


class TaskRoot(MemoryStore):
    """A store of such counters."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryStore()
        self.steps: list[int] = []
        self.is_down = False
        self.gate: anyio.Event | None = None

    def segment_distributor(self, **described: Any) -> Any:
        return RootCounter(self, **described)

    async def set_floor(self, **told: Any) -> Any:
        return await self.memory.set_floor(**told)

    async def counters(self, *, namespace: str | None = None) -> Any:
        return await self.memory.counters(namespace=namespace)


async def ended(clock: ManualClock, *call: Any) -> Call:
    """Make a call, and let time pass until it has ended."""
    made = Call(*call)
    while not made.is_done:
        await clock.advance(0.1)
    await settle()
    return made


@pytest.fixture
def root() -> TaskRoot:
    return TaskRoot()


@pytest_asyncio.fixture
async def store(root: TaskRoot, clock: ManualClock) -> AsyncIterator[SpanStore]:
    async with SpanStore(root, span=SPAN, clock=clock) as store:
        yield store


@pytest.fixture
def order(store: SpanStore) -> SpanDistributor:
    return store.segment_distributor(name="order")


@pytest.mark.asyncio
class TestContract(IdSegmentDistributorContract):
    """Cut from spans, every answer is what the store itself would answer."""

    @pytest_asyncio.fixture
    async def make_distributor(self) -> AsyncIterator[DistributorFactory]:
        async with SpanStore(TaskRoot(), span=SPAN, largest=2**60) as store:
            yield store.segment_distributor


class TestCutting:
    async def test_many_segments_are_few_calls(
        self, root: TaskRoot, order: SpanDistributor
    ) -> None:
        """A hundred segments of a tenth of a span cost a tenth of the calls at most."""
        answers = [await order.next_max_id(SPAN // 10) for _ in range(100)]
        assert answers == [(number + 1) * SPAN // 10 for number in range(100)]
        assert len(root.steps) <= 10

    async def test_a_hole_is_never_inside_a_segment(
        self, root: TaskRoot, order: SpanDistributor
    ) -> None:
        """Where another process has taken ids meanwhile, what is too short is a gap."""
        other = root.memory.segment_distributor(name="order")
        cut: list[range] = []
        foreign: list[range] = []
        for number in range(200):
            step = 1 + number * 37 % 700
            max_id = await order.next_max_id(step)
            cut.append(range(max_id - step + 1, max_id + 1))
            theirs = await other.next_max_id(3)
            foreign.append(range(theirs - 2, theirs + 1))
        ends = [piece.stop for piece in cut]
        assert ends == sorted(ends), "a later segment is not above the earlier ones"
        every = [each for piece in cut + foreign for each in piece]
        assert len(set(every)) == len(every), "a segment holds ids of the other process"

    async def test_a_segment_larger_than_the_span(
        self, root: TaskRoot, order: SpanDistributor
    ) -> None:
        """It takes one call, whatever lies in hand and whoever has counted meanwhile."""
        await order.next_max_id(1)
        for size in (50, 60, 70):
            await root.memory.segment_distributor(name="order").next_max_id(5)
            calls = len(root.steps)
            last = await order.next_max_id(size * SPAN)
            assert len(root.steps) <= calls + 2
            assert await order.next_max_id(1) == last + 1

    async def test_what_is_in_hand_does_not_make_a_larger_segment_wait(
        self, root: TaskRoot, order: SpanDistributor
    ) -> None:
        """The first call asks for the whole segment: what is in hand may end at a hole."""
        await order.next_max_id(1)
        await anyio.wait_all_tasks_blocked()  # nothing is missing
        root.gate = anyio.Event()
        left = Call(order.next_max_id, 50 * SPAN)
        await anyio.wait_all_tasks_blocked()
        left.cancel()
        root.gate.set()
        await settle()
        await anyio.wait_all_tasks_blocked()
        await root.memory.segment_distributor(name="order").next_max_id(5)
        calls = len(root.steps)
        await order.next_max_id(600 * SPAN)
        assert root.steps[calls] >= 600 * SPAN

    async def test_a_segment_above_the_largest_is_the_roots(self, root: TaskRoot) -> None:
        """It is one call for exactly so many, and what was in hand is not used after it."""
        async with SpanStore(root, span=10, largest=100) as store:
            order = store.segment_distributor(name="order")
            await order.next_max_id(1)
            last = await order.next_max_id(1000)
            assert root.steps.count(1000) == 1
            assert await order.next_max_id(1) > last

    async def test_waiters_are_served_in_the_order_in_which_they_came(
        self, root: TaskRoot, order: SpanDistributor
    ) -> None:
        """All of them by one call to the root."""
        await order.next_max_id(1)
        root.gate = anyio.Event()
        calls = len(root.steps)
        waiting = [Call(order.next_max_id, 2 * SPAN) for _ in range(5)]
        await anyio.wait_all_tasks_blocked()
        root.gate.set()
        await settle()
        answers = [each.result for each in waiting]
        assert answers == sorted(answers)
        assert len(set(answers)) == 5
        assert len(root.steps) <= calls + 3

    async def test_a_cancelled_call_leaves_a_gap(
        self, root: TaskRoot, order: SpanDistributor
    ) -> None:
        """Nobody else gets its ids twice, and the next one is served."""
        await order.next_max_id(1)
        root.gate = anyio.Event()
        first, second = (Call(order.next_max_id, 5 * SPAN) for _ in range(2))
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        root.gate.set()
        await settle()
        assert first.result is None
        assert await order.next_max_id(1) > second.result

    async def test_spans_grow_with_the_rate(
        self, root: TaskRoot, order: SpanDistributor, clock: ManualClock
    ) -> None:
        """After some seconds what is in hand lasts for the endurance, so a call is rare."""
        for _ in range(200):
            for _ in range(10):
                await order.next_max_id(100)
            await clock.advance(1.0)
        grown = len(root.steps)
        for _ in range(60):
            for _ in range(10):
                await order.next_max_id(100)
            await clock.advance(1.0)
        assert len(root.steps) - grown <= 3
        root.is_down = True
        for _ in range(60):
            await order.next_max_id(1000)
            await clock.advance(1.0)


class TestOutages:
    async def test_it_serves_what_is_in_hand(
        self, root: TaskRoot, order: SpanDistributor, clock: ManualClock
    ) -> None:
        """While the root is away, until it is used up; then callers are told in time."""
        await order.next_max_id(SPAN // 2)
        root.is_down = True
        await order.next_max_id(SPAN // 4)
        failed = await ended(clock, order.next_max_id, 10 * SPAN)
        assert isinstance(failed.error, StoreUnavailableError)
        assert "unplugged" in str(failed.error)

    async def test_it_goes_on_afterwards(
        self, root: TaskRoot, order: SpanDistributor, clock: ManualClock
    ) -> None:
        """Without a repeat, and without being opened again."""
        last = await order.next_max_id(SPAN)
        root.is_down = True
        failed = await ended(clock, order.next_max_id, 100 * SPAN)
        assert isinstance(failed.error, StoreUnavailableError)
        root.is_down = False
        served = await ended(clock, order.next_max_id, SPAN)
        assert served.result >= last + SPAN

    async def test_a_call_waits_for_so_long_at_most(
        self, root: TaskRoot, order: SpanDistributor, clock: ManualClock
    ) -> None:
        """A root that does not answer at all."""
        await order.next_max_id(1)
        root.gate = anyio.Event()
        call = Call(order.next_max_id, 100 * SPAN)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(1.31)
        root.gate.set()
        await settle()
        assert isinstance(call.error, StoreUnavailableError)

    async def test_a_root_that_lost_writes_is_the_end(
        self, root: TaskRoot, order: SpanDistributor, store: SpanStore
    ) -> None:
        """No id repeats, until the floor is raised above what was handed out."""
        last = await order.next_max_id(SPAN)
        root.memory._backend._counters.clear()
        with suppress(StoreRolledBackError):
            for _ in range(100):
                last = await order.next_max_id(SPAN)
        for _ in range(3):
            with pytest.raises(StoreRolledBackError):
                await order.next_max_id(SPAN)
        await store.set_floor(name="order", above=1000 * SPAN)
        assert await order.next_max_id(1) == 1000 * SPAN + 1
        assert last < 1000 * SPAN

    async def test_used_up(self, order: SpanDistributor, store: SpanStore) -> None:
        """What does not fit is refused whole."""
        await store.set_floor(name="order", above=2**63 - 1 - 5)
        with pytest.raises(IdOverflowError):
            await order.next_max_id(6)
        assert await order.next_max_id(5) == 2**63 - 1


class TestFloors:
    async def test_a_floor_ends_what_is_in_hand(
        self, store: SpanStore, order: SpanDistributor
    ) -> None:
        """Every later id is above it."""
        await order.next_max_id(10)
        await store.set_floor(name="order", above=10**6)
        assert await order.next_max_id(10) == 10**6 + 10

    async def test_calls_under_way_are_above_it_too(
        self, root: TaskRoot, store: SpanStore, order: SpanDistributor
    ) -> None:
        """They begin anew when the floor has been raised."""
        await order.next_max_id(10)
        root.gate = anyio.Event()
        call = Call(order.next_max_id, 10 * SPAN)
        await anyio.wait_all_tasks_blocked()
        raising = Call(partial(store.set_floor, name="order", above=10**6))
        await anyio.wait_all_tasks_blocked()
        root.gate.set()
        await settle()
        assert raising.error is None
        assert call.result >= 10**6 + 10 * SPAN

    async def test_a_missing_counter(self, store: SpanStore) -> None:
        """It stays missing."""
        with pytest.raises(CounterMissingError):
            await store.set_floor(name="none", above=5, create=False)
        assert not await store.counters()


class TestLife:
    async def test_it_opens_by_itself_and_again(self, root: TaskRoot) -> None:
        """Also at the first use; what was in hand at closing is a gap."""
        store = SpanStore(root, span=SPAN)
        order = store.segment_distributor(name="order")
        calls = [Call(order.next_max_id, 10) for _ in range(5)]
        await settle()
        assert sorted(each.result for each in calls) == [10, 20, 30, 40, 50]
        assert store.statistics()["cosid.order"]["idsHandedOut"] == 50
        await store.aclose()
        assert await order.next_max_id(10) > SPAN
        await store.aclose()

    async def test_few_counters_are_kept(
        self, root: TaskRoot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one that was not used for longest is given up, and begins anew."""
        monkeypatch.setattr("aiocosid.server._span_store.COUNTERS_KEPT", 2)
        async with SpanStore(root, span=SPAN) as store:
            counters = [store.segment_distributor(name=name) for name in "abc"]
            for each in counters:
                await each.next_max_id(10)
            assert len(store.statistics()) == 2
            assert await counters[0].next_max_id(10) > SPAN

    async def test_more_counters_at_once_than_are_kept(
        self, root: TaskRoot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They do not take each other's place for ever."""
        monkeypatch.setattr("aiocosid.server._span_store.COUNTERS_KEPT", 2)
        async with SpanStore(root, span=SPAN) as store:
            counters = [store.segment_distributor(name=f"c{each}") for each in range(30)]
            calls = [Call(each.next_max_id, 10) for each in counters * 3]
            await settle()
            assert len([each.result for each in calls]) == 90


class TestDescribing:
    def test_a_root_without_runs_is_refused(self) -> None:
        """Of one residue class there is nothing contiguous."""
        root = TaskRoot()
        RootCounter.stride = 3
        try:
            with pytest.raises(InvalidArgumentError, match="contiguous"):
                SpanStore(root).segment_distributor(name="order")
        finally:
            del RootCounter.stride

    @pytest.mark.parametrize(
        "wrong", [{"span": 0}, {"largest": 9, "span": 10}, {"endurance": -1}, {"wait_timeout": 0}]
    )
    def test_wrong_arguments(self, root: TaskRoot, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgumentError):
            SpanStore(root, **wrong)

    def test_machine_ids_are_the_roots(self, root: TaskRoot) -> None:
        """The broker keeps none."""
        assert SpanStore(root).machine_id_distributor(namespace="a").namespace == "a"
