"""Counters that start anew with each group: midnight, memory, clocks, and the generator's life."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import aiocosid.segment
from aiocosid._life.loop import TaskRoot
from aiocosid.abc import GroupedId, IdSegmentDistributor
from aiocosid.abc.events import IdsDiscarded, SegmentFetched
from aiocosid.errors import (
    ClosedError,
    InvalidArgumentError,
    SegmentUnavailableError,
    StoreAuthenticationError,
    StoreRolledBackError,
    WouldBlock,
)
from aiocosid.segment import GroupBy, GroupedSegmentId, grouped_id
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    ManualClock,
    RolledBackDistributor,
    WrappedDistributor,
    settle,
)

from .. import _interrupted
from .._kit import Call, Ear, settled, tasks

MIDNIGHT = 1_768_608_000_000  # 2026-01-17T00:00Z
FRIDAY, SATURDAY = "20260116", "20260117"
DAY = GroupBy.day(zone="UTC")
ROOT_ONLY = ["aiocosid GroupedSegmentId cosid.order"]


@pytest.fixture
def clock(clock: ManualClock) -> ManualClock:
    """Ten seconds before midnight."""
    clock.set_wall_ms(MIDNIGHT - 10_000)
    return clock


class Distributors:
    """Makes one distributor a counter, in a wrapper, and keeps them by name."""

    def __init__(self, wrapper: Callable[[IdSegmentDistributor], Any] = WrappedDistributor) -> None:
        self.memory = MemoryStore()
        self.wrapper = wrapper
        self.made: dict[str, Any] = {}
        self.every: list[Any] = []

    def __call__(self, **about: Any) -> IdSegmentDistributor:
        made = self.made[about["name"]] = self.wrapper(self.memory.segment_distributor(**about))
        self.every.append(made)
        return made  # type: ignore[no-any-return]  # of any wrapper


def as_it_is(inner: IdSegmentDistributor) -> IdSegmentDistributor:
    return inner


def grouped(store: Any, clock: ManualClock, **options: Any) -> GroupedSegmentId:
    """A generator of daily numbers, in segments of ten."""
    usual: dict[str, Any] = {"name": "order", "group_by": DAY, "step": 10}
    return GroupedSegmentId(store, clock=clock, **{**usual, **options})


def read(*ids: GroupedId) -> list[tuple[str, int]]:
    return [(each.group, int(each)) for each in ids]


# The id.


async def test_an_id_is_an_int_that_knows_its_group() -> None:
    """Also after it was pickled or copied."""
    new_id = GroupedId(42, FRIDAY)
    for each in (
        new_id,
        copy.copy(new_id),
        copy.deepcopy(new_id),
        pickle.loads(pickle.dumps(new_id)),  # noqa: S301 - our own
    ):
        assert (each, each.group, type(each)) == (42, FRIDAY, GroupedId)
    assert (repr(new_id), f"{new_id:06}", new_id + 1) == ("42", "000042", 43)


# Midnight.


async def test_the_counter_starts_anew_at_midnight(clock: ManualClock) -> None:
    """Not a moment sooner, and with every way of taking ids; the names are CosId's."""
    for kind in ("chain", "segment"):
        clock.set_wall_ms(MIDNIGHT - 1)
        store = MemoryStore()
        async with grouped(store, clock, group_kind=kind) as orders:
            assert read(await orders.with_group.next_id()) == [(FRIDAY, 1)]
            assert read(orders.with_group.next_id_nowait()) == [(FRIDAY, 2)]
            assert read(*await orders.with_group.next_ids(2)) == [(FRIDAY, 3), (FRIDAY, 4)]
            clock.set_wall_ms(MIDNIGHT)
            assert read(await orders.with_group.next_id()) == [(SATURDAY, 1)]
            assert read(orders.with_group.next_id_nowait()) == [(SATURDAY, 2)]
            assert read(*await orders.with_group.next_ids(2)) == [(SATURDAY, 3), (SATURDAY, 4)]
        names = [counter.namespaced_name for counter in await store.counters()]
        assert names == [f"cosid.order@{FRIDAY}", f"cosid.order@{SATURDAY}"]


async def test_the_last_millisecond_of_a_day_has_ids(clock: ManualClock) -> None:
    """Also if a segment has to be fetched in it: there CosId raises."""
    clock.set_wall_ms(MIDNIGHT - 1)
    async with grouped(Distributors(), clock, step=1) as orders:
        taken = [await orders.with_group.next_id() for _ in range(30)]
    assert read(*taken) == [(FRIDAY, n) for n in range(1, 31)]


async def test_ids_are_plain_integers(clock: ManualClock) -> None:
    """An encoder or a driver may know no other type; both kinds of calls share the counter."""
    async with grouped(MemoryStore(), clock) as orders:
        ids = [await orders.next_id(), orders.next_id_nowait(), *await orders.next_ids(2)]
        with pytest.raises(InvalidArgumentError):
            await orders.with_group.next_ids(0)
        clock.set_wall_ms(MIDNIGHT)
        ids += [await orders.next_id(), await orders.next_id()]  # the first one opens the group
        assert {type(each) for each in ids} == {int}
        assert ids == [1, 2, 3, 4, 1, 2]
        assert read(await orders.with_group.next_id()) == [(SATURDAY, 3)]


async def test_a_call_that_waits_over_midnight_is_of_the_day_before(clock: ManualClock) -> None:
    """Number and group come from the same day; a batch is of one day, however long it waits."""
    stores = Distributors(GatedDistributor)
    orders = grouped(stores, clock, group_kind="segment")
    opening = await settled(Call, orders.__aenter__)
    await settled(stores.made[f"order@{FRIDAY}"].let_through)
    assert opening.is_done
    await orders.next_ids(10)
    one, batch = Call(orders.with_group.next_id), Call(orders.with_group.next_ids, 25)
    await clock.advance(0)
    clock.set_wall_ms(MIDNIGHT)
    new = await settled(Call, orders.with_group.next_ids, 2)
    await settled(stores.made[f"order@{SATURDAY}"].open)
    assert read(*new.result) == [(SATURDAY, 1), (SATURDAY, 2)]
    assert orders.statistics().open_groups == 2  # somebody waits in the old one
    await settled(stores.made[f"order@{FRIDAY}"].open)
    assert read(one.result) == [(FRIDAY, 11)]
    assert read(*batch.result) == [(FRIDAY, n) for n in range(12, 37)]
    assert orders.statistics().open_groups == 1
    assert tasks() == ROOT_ONLY
    await orders.aclose()
    await settle()


async def test_a_batch_cancelled_while_it_is_made_is_a_gap(clock: ManualClock) -> None:
    """A long one gives the loop turns; its ids are counted as given up then."""
    async with grouped(MemoryStore(), clock, step=10_000, group_kind="segment") as orders:
        await orders.next_id()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await orders.with_group.next_ids(5000)
        assert await orders.next_id() == 5002
        actual = orders.statistics().actual
        assert actual is not None
        assert (actual.ids_discarded, actual.ids_handed_out) == (5000, 2)


async def test_callers_of_a_new_day_line_up_in_their_order(clock: ManualClock) -> None:
    """All of them wait for one call to the store, and none opens the group again."""
    stores = Distributors(GatedDistributor)
    async with grouped(stores, clock, group_by=GroupBy.key(lambda: "a")) as orders:
        with pytest.raises(WouldBlock):
            orders.next_id_nowait()
        calls = [Call(orders.next_id) for _ in range(5)]
        await settle()
        await settled(stores.made["order@a"].open)
        assert [call.result for call in calls] == [1, 2, 3, 4, 5]
        assert stores.made["order@a"].opened == 1


async def test_a_clock_that_steps_back_over_midnight(clock: ManualClock) -> None:
    """The older group goes on above all that it has handed out; then the newer one does."""
    ids: dict[str, list[int]] = {FRIDAY: [], SATURDAY: []}
    async with grouped(MemoryStore(), clock) as orders:
        for wall_ms in (-10_000, 0, -1, 1, -10_000, 0):
            clock.set_wall_ms(MIDNIGHT + wall_ms)
            given = orders.with_group
            for new_id in (await given.next_id(), *await given.next_ids(3)):
                assert new_id.group == (FRIDAY if wall_ms < 0 else SATURDAY)
                ids[new_id.group].append(int(new_id))
    for numbers in ids.values():
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 12


# Memory.


async def test_an_old_day_is_dropped(clock: ManualClock, ear: Ear) -> None:
    """Its ids in hand are given up, its tasks end, and its connections are closed."""
    stores = Distributors()
    async with grouped(stores, clock, ttl=3600, instrument=ear) as orders:
        await orders.next_id()
        await settle()
        await clock.advance(10)
        await orders.next_id()
        await settle()
        seen = orders.statistics()
        assert (seen.group, seen.open_groups, seen.dropped_groups) == (SATURDAY, 1, 1)
        assert stores.made[f"order@{FRIDAY}"].closed == 1
        assert [(e.name, e.count, e.reason) for e in ear.of(IdsDiscarded)] == [
            ("order", 19, "closed")
        ]
        assert {e.name for e in ear.of(SegmentFetched)} == {"order"}
        assert clock.pending == 1  # the ttl of the ids in hand, not that of yesterday's


async def test_an_idle_generator_costs_nothing(clock: ManualClock) -> None:
    """The end of a day is found by the next call: no task, no timer, no call to the store."""
    stores = Distributors()
    async with grouped(stores, clock) as orders:
        await orders.next_id()
        await settle()
        calls = stores.made[f"order@{FRIDAY}"].calls
        await clock.advance(100_000)
        assert (tasks(), clock.pending) == (ROOT_ONLY, 0)
        assert stores.made[f"order@{FRIDAY}"].calls == calls
        assert await orders.next_id() == 1


async def test_the_longest_unused_group_is_dropped(clock: ManualClock) -> None:
    """Above the bound; when it comes again it goes on above its ids.  All of it is bounded."""
    present = "a"
    store = MemoryStore()
    async with grouped(
        store, clock, group_by=GroupBy.key(lambda: present), max_groups=2, group_kind="segment"
    ) as gen:
        ids: list[GroupedId] = []
        for key in "abacab":
            present = key
            ids += [await gen.with_group.next_id(), await gen.with_group.next_id()]
            assert gen.statistics().open_groups <= 2
        assert read(*ids) == [
            *[("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4)],
            *[("c", 1), ("c", 2), ("a", 5), ("a", 6), ("b", 11), ("b", 12)],
        ]
        assert gen.statistics().dropped_groups == 2
        for number in range(50):
            present = f"tenant-{number}"
            await gen.next_id()
        assert len(gen._groups.floors) == 2


async def test_a_group_with_callers_is_never_dropped(clock: ManualClock) -> None:
    """However many others come; it goes when its last caller has left."""
    present = "busy"
    stores = Distributors(GatedDistributor)
    group_by = GroupBy.key(lambda: present)
    async with grouped(stores, clock, group_by=group_by, max_groups=1, group_kind="segment") as gen:
        waiting = await settled(Call, gen.with_group.next_id)
        for present in ("b", "c", "d"):
            call = await settled(Call, gen.with_group.next_id)
            await settled(stores.made[f"order@{present}"].open)
            assert read(call.result) == [(present, 1)]
        assert gen.statistics().open_groups <= 2
        await settled(stores.made["order@busy"].open)
        assert read(waiting.result) == [("busy", 1)]
        assert gen.statistics().open_groups == 1


async def test_a_new_group_is_not_dropped_for_the_oldest_ones_that_are_stuck(
    clock: ManualClock,
) -> None:
    """The longest unused idle one goes; who has just come stays and uses up its segment."""
    present = "stuck-1"
    stores = Distributors(GatedDistributor)
    group_by = GroupBy.key(lambda: present)
    async with grouped(stores, clock, group_by=group_by, max_groups=4, group_kind="segment") as gen:
        calls: list[Call] = []
        for present in ("stuck-1", "stuck-2", "idle-1", "idle-2", "new", "new", "new"):
            calls.append(await settled(Call, gen.with_group.next_id))
            if not present.startswith("stuck"):
                await settled(stores.made[f"order@{present}"].open)
        assert read(calls[-1].result) == [("new", 3)]
        assert set(gen._groups.by_key) == {"stuck-1", "stuck-2", "idle-2", "new"}
        for gate in stores.every:
            gate.open()
        await settle()


async def test_a_group_dropped_in_a_callback_of_the_loop(clock: ManualClock) -> None:
    """Where no task runs that could start the one which closes its connections."""
    present = "a"
    stores = Distributors()
    group_by = GroupBy.key(lambda: present)
    async with grouped(stores, clock, group_by=group_by, max_groups=1) as gen:
        await gen.next_id()
        ended_by: list[BaseException] = []

        def ask() -> None:
            nonlocal present
            present = "b"
            try:
                gen.next_id_nowait()
            except BaseException as error:  # noqa: BLE001 - for the test to look at
                ended_by.append(error)

        asyncio.get_running_loop().call_soon(ask)
        await settle()
        assert [type(error) for error in ended_by] == [WouldBlock]
        assert stores.made["order@a"].closed == 1
        assert read(gen.with_group.next_id_nowait()) == [("b", 1)]


async def test_yesterdays_tenants_leave_as_todays_come(clock: ManualClock) -> None:
    """A day and a key: two old ones go for each new one, so that no midnight stops the loop."""
    shop = 0
    group_by = GroupBy.day(zone="UTC", within=lambda: f"shop-{shop}")
    async with grouped(MemoryStore(), clock, group_by=group_by) as orders:
        for shop in range(20):
            assert read(await orders.with_group.next_id()) == [(f"shop-{shop}-{FRIDAY}", 1)]
        await clock.advance(10)
        for shop in range(20):
            assert read(await orders.with_group.next_id()) == [(f"shop-{shop}-{SATURDAY}", 1)]
        assert orders.statistics().open_groups == 20


# Its life.


async def test_closing_fails_who_waits_and_ends_every_task(clock: ManualClock) -> None:
    """Also those of a group that was given up a moment ago; opened anew it goes on above."""
    stores = Distributors(GatedDistributor)
    orders = grouped(stores, clock, group_by=GroupBy.key(lambda: "a"))
    async with orders:
        waiting = await settled(Call, orders.next_id)
        closing = await settled(Call, orders.aclose)
        assert isinstance(waiting.error, ClosedError)
        assert "GroupedSegmentId cosid.order" in str(waiting.error)
        assert len(tasks()) > 1  # its call to the store is waited for
        await settled(stores.made["order@a"].open)
        assert closing.is_done
    assert (tasks(), stores.made["order@a"].closed) == ([], 1)
    assert not orders._groups.ending
    with pytest.raises(ClosedError):
        orders.next_id_nowait()
    await settle()


async def test_closing_waits_for_the_call_of_a_dropped_group(clock: ManualClock) -> None:
    """A call that was sent is not torn, although nobody wants its group any more."""
    present = "a"
    stores = Distributors(GatedDistributor)
    group_by = GroupBy.key(lambda: present)
    orders = grouped(stores, clock, group_by=group_by, max_groups=1)
    await orders.__aenter__()
    first = await settled(Call, orders.next_id)
    gate = stores.made["order@a"]
    await settled(gate.let_through)
    assert first.result == 1
    await orders.next_ids(15)
    await settle()
    assert gate.held == 1  # fetched ahead
    present = "b"
    with pytest.raises(WouldBlock):
        orders.next_id_nowait()
    stores.made["order@b"].open()
    closing = await settled(Call, orders.aclose)
    assert (gate.held, closing.is_done) == (1, False)
    await settled(gate.open)
    assert closing.is_done
    assert (gate.closed > 0, tasks()) == (True, [])


async def test_it_lives_in_anothers_root(clock: ManualClock) -> None:
    """As in a provider: all groups' tasks run in the one root, and end with it."""
    store = MemoryStore()
    orders = grouped(store, clock)
    root = TaskRoot(lambda: (orders,))
    await root.start("aiocosid other")
    await orders._open(root)
    assert await orders.next_id() == 1
    await clock.advance(10)
    assert await orders.next_id() == 1
    assert tasks() == ["aiocosid other"]
    await root.aclose(1)
    with pytest.raises(ClosedError):
        await orders.next_id()


async def test_opening_tells_what_is_wrong(clock: ManualClock) -> None:
    """The store's own refusal, as with any generator; and a store that is away."""
    stores = Distributors(FailingDistributor)
    refusal = StoreAuthenticationError("memory", "no such user")

    def failing(error: Exception | None) -> Callable[[IdSegmentDistributor], Any]:
        def wrapper(inner: IdSegmentDistributor) -> FailingDistributor:
            made = FailingDistributor(inner)
            made.fail(error)
            return made

        return wrapper

    stores.wrapper = failing(refusal)
    with pytest.raises(StoreAuthenticationError):
        await grouped(stores, clock).__aenter__()
    stores.wrapper = failing(None)
    opening = Call(grouped(stores, clock).__aenter__)
    await clock.advance(6)
    assert isinstance(opening.error, SegmentUnavailableError)


async def test_a_counter_that_went_backwards_ends_its_group(clock: ManualClock) -> None:
    """Also after the group was dropped and the generator opened anew."""
    stores = Distributors(RolledBackDistributor)
    orders = grouped(stores, clock, step=1)
    async with orders:
        await orders.next_ids(30)
    memory = stores.memory
    memory._backend._counters[f"cosid.order@{FRIDAY}"] = 5
    with pytest.raises(StoreRolledBackError):
        await orders.__aenter__()
    await memory.set_floor(name=f"order@{FRIDAY}", above=100)
    async with orders:
        assert await orders.next_id() == 101


async def test_what_was_seen_outlives_a_loop_that_died() -> None:
    """A counter that went back meanwhile is found, as a chain finds it."""
    store = MemoryStore()
    orders = grouped(store, ManualClock())

    async def use() -> None:
        await orders.__aenter__()
        assert await orders.next_ids(25)

    def in_a_loop() -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(use())
        finally:
            loop.close()

    await asyncio.to_thread(in_a_loop)
    store._backend._counters.clear()
    with pytest.raises(StoreRolledBackError):
        await orders.__aenter__()


async def test_distributors_of_ones_own(clock: ManualClock) -> None:
    """A class of distributors does, or a partial of one; its connections are closed at the end."""
    memory = MemoryStore()
    async with grouped(memory.segment_distributor, clock, namespace="shop", offset=100) as orders:
        assert await orders.next_id() == 101
    assert [c.namespaced_name for c in await memory.counters()] == [f"shop.order@{FRIDAY}"]


async def test_bad_arguments() -> None:
    """Each is named at once, before anything is sent."""
    store = MemoryStore()
    for bad in (
        {"name": ""},
        {"namespace": "a\0"},
        {"step": 0},
        {"offset": -1},
        {"group_kind": "snowflake"},
        {"max_groups": 0},
        {"group_by": "yyyyMMdd"},
        {"wait_timeout": 0},
        {"safe_distance": 0},
    ):
        (argument,) = bad
        with pytest.raises(InvalidArgumentError, match=argument):
            grouped(store, ManualClock(), **bad)


# Between two lines.


async def test_a_handler_between_any_two_steps_finds_groups_that_are_whole(
    clock: ManualClock,
) -> None:
    """While they are opened, used and dropped, it does the same."""
    room: Any = SimpleNamespace(__path__=[grouped_id.__file__])
    steps = Random(2)  # noqa: S311 - chooses steps
    ids: list[GroupedId] = []
    present, left = "a", 0

    def handler() -> None:
        nonlocal present, left
        if left and steps.random() < 0.03:
            left -= 1
            before, present = present, steps.choice("abcd")
            with suppress(WouldBlock):
                ids.append(gen.with_group.next_id_nowait())
            present = before

    gen = grouped(MemoryStore(), clock, group_by=GroupBy.key(lambda: present), max_groups=1, step=3)
    async with gen:
        with _interrupted.interrupted(room, "opcode", handler):
            for _ in range(150):
                left, present = 9, steps.choice("abcd")
                ids.append(await gen.with_group.next_id())
        assert len(set(read(*ids))) == len(ids) > 110
        assert gen.statistics().open_groups <= 2


async def test_a_handler_at_any_line_gets_no_id_that_another_gets(clock: ManualClock) -> None:
    """Not in a group that is being opened or dropped either, while the clock crosses midnight."""
    lines = Random(1)  # noqa: S311 - chooses lines
    ids: list[GroupedId] = []
    present = "a"
    left = 0

    def handler() -> None:
        nonlocal present, left
        if left and lines.random() < 0.1:
            left -= 1  # else each one's groups bring the lines for more than one more
            present = lines.choice("abc")
            clock.set_wall_ms(MIDNIGHT + lines.choice((-1, 0)))
            with suppress(WouldBlock):
                ids.append(gen.with_group.next_id_nowait())

    for wrapper in (WrappedDistributor, as_it_is):
        for group_by in (DAY, GroupBy.day(zone="UTC", within=lambda: present)):
            stores = Distributors(wrapper)
            gen = grouped(stores, clock, group_by=group_by, max_groups=2)
            ids, left = [], 0
            async with gen:
                with _interrupted.interrupted(aiocosid.segment, "line", handler):
                    for turn in range(50):
                        left += 5
                        if turn % 2:
                            ids += await gen.with_group.next_ids(turn % 13 + 1)
                        else:
                            ids.append(await gen.with_group.next_id())
                        await asyncio.sleep(0)
                assert gen.statistics().open_groups <= 3
            assert len({(each.group, int(each)) for each in ids}) == len(ids)
            if wrapper is WrappedDistributor:  # no group was lost sight of
                assert [each for each in stores.every if each.opened > each.closed] == []
