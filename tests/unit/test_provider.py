"""Named generators, opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import pytest

from aiocosid import IdProvider, SegmentChainId, SegmentId, connect, store_from_url
from aiocosid.abc import Counter, IdSegmentDistributor, Store
from aiocosid.abc.events import Event
from aiocosid.errors import (
    BusyError,
    ClosedError,
    GeneratorMissingError,
    InvalidArgumentError,
    NotOpenError,
    SegmentUnavailableError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from aiocosid.generators import CounterId
from aiocosid.segment import GroupBy
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    ManualClock,
    RolledBackDistributor,
    WrappedDistributor,
    settle,
)

from ._kit import Call, Ear, settled, tasks


class Wrapping(Store):
    """A memory store whose distributors are wrapped, and which counts how often it is closed."""

    def __init__(self, wrapper: type[WrappedDistributor] = WrappedDistributor) -> None:
        self.memory = MemoryStore()
        self.wrapper = wrapper
        self.made: dict[str, list[Any]] = {}
        self.closed = 0

    def segment_distributor(self, **about: Any) -> IdSegmentDistributor:
        wrapped = self.wrapper(self.memory.segment_distributor(**about))
        self.made.setdefault(about["name"], []).append(wrapped)
        return wrapped

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        pass

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        return await self.memory.counters(namespace=namespace)

    async def set_floor(self, **about: Any) -> Counter:
        return await self.memory.set_floor(**about)

    async def aclose(self) -> None:
        self.closed += 1


async def test_the_same_object_for_the_same_name() -> None:
    """One counter has one generator in a provider; other names have others."""
    async with connect(MemoryStore(), namespace="shop") as ids:
        orders = await ids.segment_chain("order")
        assert await ids.segment_chain("order") is orders
        bills = await ids.segment("bill", step=10, offset=100)
        assert await ids.segment("bill", step=10) is bills
        assert ids["order"] is orders
        assert sorted(ids) == ["bill", "order"]
        assert len(ids) == 2
        assert isinstance(orders, SegmentChainId)
        assert isinstance(bills, SegmentId)
        assert (await orders.next_id(), await bills.next_id()) == (1, 101)
        seen = orders.statistics()
        assert (seen.namespace, seen.name, seen.step) == ("shop", "order", 100)
        with pytest.raises(KeyError, match=r"there are 'bill', 'order'; ") as unknown:
            ids["oder"]
        assert isinstance(unknown.value, GeneratorMissingError)
        assert unknown.value.similar == ("order",)
        assert (ids.get("order"), ids.get("oder"), ids.get("oder", 7)) == (orders, None, 7)
        assert "order" in ids
        assert "oder" not in ids


async def test_the_same_object_also_when_asked_at_once() -> None:
    """Callers that come while it is being opened wait for that one; the store is asked once."""
    store = Wrapping(GatedDistributor)
    async with connect(store) as ids:
        calls = [Call(ids.segment_chain, "order") for _ in range(20)]
        await settle()
        assert not any(call.is_done for call in calls)
        assert len(store.made["order"]) == 1
        store.made["order"][0].open()
        await settle()
        assert len({id(call.result) for call in calls}) == 1
        assert store.made["order"][0].calls == 1


async def test_a_slow_name_does_not_hold_up_another() -> None:
    """While one is being opened others are opened and used."""
    store = Wrapping(GatedDistributor)
    async with connect(store) as ids:
        slow = await settled(Call, ids.segment_chain, "slow")
        fast = await settled(Call, ids.segment_chain, "fast")
        store.made["fast"][0].open()
        await settle()
        assert (slow.is_done, fast.is_done) == (False, True)
        assert await ids["fast"].next_id() == 1
        store.made["slow"][0].open()
        await settle()


@pytest.mark.parametrize(
    ("kind", "step"), [("segment", 100), ("segment_chain", 10), ("segment", 10)]
)
async def test_a_name_is_used_in_one_way(kind: str, step: int) -> None:
    """Another kind or step under the same name is a BusyError that says how it is in use."""
    async with connect(MemoryStore()) as ids:
        await ids.segment_chain("order")
        with pytest.raises(BusyError, match="in use as SegmentChainId with step 100;"):
            await getattr(ids, kind)("order", step=step)


async def test_settings_reach_the_generator(clock: ManualClock) -> None:
    """What the generator's class knows may be given by name; what it does not know is refused."""
    ear = Ear()
    async with connect(MemoryStore(), clock=clock, instrument=ear) as ids:
        chain = await ids.segment_chain("order", step=10, safe_distance=5, max_id=25)
        seen = chain.statistics()
        assert (seen.safe_distance, seen.remaining) == (5, 25)
        assert {type(event).__name__ for event in ear.events} == {"SegmentFetched", "IdsDiscarded"}
        quiet = Ear()
        await ids.segment("bill", instrument=quiet)
        assert quiet.events
        assert {event.name for event in ear.events} == {"order"}
        with pytest.raises(InvalidArgumentError, match="safe_distance"):
            await ids.segment_chain("bad", safe_distance=0)
        with pytest.raises(TypeError):
            await ids.segment("bad", safe_distance=2)  # type: ignore[call-overload]  # that is the test
        assert "bad" not in list(ids)


async def test_all_close_together(clock: ManualClock) -> None:
    """Closing the provider closes every generator; one task has been enough for all."""
    store = MemoryStore()
    async with connect(store, clock=clock) as ids:
        generators = [await ids.segment_chain(f"g{number}") for number in range(100)]
        for generator in generators:
            await generator.next_id()
        assert tasks() == ["aiocosid IdProvider cosid"]
        assert clock.pending == 0
    assert tasks() == []
    for generator in generators:
        with pytest.raises(ClosedError, match=r"SegmentChainId cosid\.g"):
            await generator.next_id()
        assert generator.statistics().remaining == 0
    with pytest.raises(ClosedError, match="IdProvider"):
        await ids.segment_chain("g0")


async def test_closing_fails_who_waits_in_any_generator(clock: ManualClock) -> None:
    """All waiters of all generators are told at once; calls under way have the close timeout."""
    store = Wrapping(GatedDistributor)
    provider = connect(store, clock=clock, close_timeout=3)
    await provider.__aenter__()
    opening = [Call(partial(provider.segment, name, step=10)) for name in "ab"]
    await settle()
    for name in "ab":
        store.made[name][0].open()
    await settle()
    waiting = []
    for call, name in zip(opening, "ab", strict=True):
        store.made[name][0].close()
        waiting.append(Call(call.result.next_ids, 20))
    await settle()
    closing = await settled(Call, provider.aclose)
    assert [type(call.error) for call in waiting] == [ClosedError, ClosedError]
    assert (closing.is_done, [store.made[name][0].held for name in "ab"]) == (False, [1, 1])
    await clock.advance(3)
    assert (closing.is_done, [store.made[name][0].held for name in "ab"]) == (True, [0, 0])


async def test_who_asks_while_it_closes_is_told_at_once(clock: ManualClock) -> None:
    """A generator that is being opened then is closed like the others; no wait for its deadline."""
    store = Wrapping(GatedDistributor)
    provider = connect(store, clock=clock, close_timeout=3)
    await provider.__aenter__()
    calls = [Call(provider.segment_chain, "order") for _ in range(3)]
    await settle()
    closing = await settled(Call, provider.aclose)
    assert [type(call.error) for call in calls] == [ClosedError] * 3
    assert clock.monotonic() == 0
    await clock.advance(3)
    assert closing.is_done


async def test_clear_closes_all_and_frees_their_names(clock: ManualClock) -> None:
    """At once, also one that is being opened; calls under way are told; the provider goes on."""
    store = Wrapping(GatedDistributor)
    async with connect(store, clock=clock, close_timeout=3) as ids:
        await ids.clear()  # there is nothing to clear
        opening = [Call(partial(ids.segment, name, step=10)) for name in "ab"]
        await settle()
        for name in "ab":
            store.made[name][0].open()
        await settle()
        waiting = []
        for call, name in zip(opening, "ab", strict=True):
            store.made[name][0].close()
            waiting.append(Call(call.result.next_ids, 20))
        late = Call(ids.segment_chain, "late")
        await settle()
        clearing = [Call(ids.clear), Call(ids.clear)]
        await settle()
        assert [type(call.error) for call in waiting] == [ClosedError, ClosedError]
        store.made["late"][0].open()
        await settle()
        assert isinstance(late.result, SegmentChainId)
        await clock.advance(3)  # the close timeout, once for all of them
        assert [call.error for call in clearing] == [None, None]
        assert (clearing[0].is_done, clearing[1].is_done, len(ids)) == (True, True, 0)
        with pytest.raises(ClosedError):
            late.result.next_id_nowait()
        again = Call(partial(ids.segment_chain, "a"))
        await settle()
        store.made["a"][-1].open()
        await settle()
        assert await again.result.next_id() > 10
    with pytest.raises(ClosedError):
        await ids.clear()


async def test_clear_raises_an_error_of_closing_once_all_are_closed() -> None:
    class Failing(CounterId):
        async def aclose(self) -> None:
            await super().aclose()
            raise StoreUnavailableError("store", "it is gone")

    async with connect(MemoryStore()) as ids:
        orders, _ = await ids.segment_chain("order"), await ids.add("own", Failing())
        with pytest.raises(StoreUnavailableError, match="it is gone"):
            await ids.clear()
        assert len(ids) == 0
        with pytest.raises(ClosedError):
            orders.next_id_nowait()


async def test_a_generator_may_be_closed_alone() -> None:
    """Others go on; asked for again, the name gets a new one, above all that came before."""
    async with connect(MemoryStore()) as ids:
        orders, bills = await ids.segment_chain("order"), await ids.segment_chain("bill")
        first = await orders.next_id()
        await orders.aclose()
        assert await bills.next_id() == 1
        again = await ids.segment_chain("order")
        assert again is not orders
        assert await again.next_id() > first
        # It has ended, so it may be another kind or step too.
        await again.aclose()
        assert isinstance(await ids.segment("order", step=5), SegmentId)


async def test_a_generator_that_ended_is_replaced(clock: ManualClock) -> None:
    """After the operator has raised the counter, asking for the name is the way out."""
    store = Wrapping(RolledBackDistributor)
    async with connect(store, clock=clock) as ids:
        orders = await ids.segment("order", step=10)
        taken = await orders.next_ids(10)
        store.made["order"][0].set_back(10)
        with pytest.raises(StoreRolledBackError):
            await orders.next_id()
        await store.set_floor(namespace="cosid", name="order", above=100)
        again = await ids.segment("order", step=10)
        assert await again.next_id() == 101
        assert taken == list(range(1, 11))


async def test_a_name_asked_for_again_repeats_no_id(clock: ManualClock) -> None:
    """A new generator knows how far the last one had come, as long as the provider lives."""
    store = Wrapping(AllSetBack)
    AllSetBack.behind = 0
    provider = connect(store, clock=clock)
    async with provider as ids:
        orders = await ids.segment("order", step=10)
        await orders.next_ids(90)
        AllSetBack.behind = 90
        with pytest.raises(StoreRolledBackError):
            await orders.next_id()
        for _ in range(2):
            with pytest.raises(StoreRolledBackError):
                await ids.segment("order", step=10)
    async with provider as ids:
        with pytest.raises(StoreRolledBackError):
            await ids.segment("order", step=10)
        assert list(ids) == []
        await store.set_floor(namespace="cosid", name="order", above=300)
        assert await (await ids.segment("order", step=10)).next_id() == 211


class AllSetBack(WrappedDistributor):
    """The store lost writes: whoever asks it."""

    behind = 0

    async def next_max_id(self, step: int) -> int:
        return await super().next_max_id(step) - self.behind


async def test_a_name_that_could_not_be_opened_can_be_asked_for_again(clock: ManualClock) -> None:
    """The error goes to all who asked; nothing of the attempt stays."""

    class Unplugged(FailingDistributor):
        def __init__(self, inner: IdSegmentDistributor) -> None:
            super().__init__(inner)
            if not store.made:
                self.fail()

    store = Wrapping(Unplugged)
    async with connect(store, clock=clock) as ids:
        call = Call(ids.segment_chain, "order")
        await clock.advance(5)
        assert isinstance(call.error, SegmentUnavailableError)
        assert list(ids) == []
        orders = await ids.segment_chain("order")
        assert await orders.next_id() == 1
        assert tasks() == ["aiocosid IdProvider cosid"]


async def test_callers_fail_soon_while_the_store_is_down_if_it_says_so(clock: ManualClock) -> None:
    """Also those of a generator that is there already; a generator's own word goes before."""
    store = Wrapping(FailingDistributor)
    provider = connect(store, clock=clock)
    with pytest.raises(NotOpenError):
        provider.fail_fast()
    for is_told in (True, False):  # opened again, it has forgotten
        async with provider as ids:
            generators = [await ids.segment("before", step=1)]
            if is_told:
                ids.fail_fast()
            generators.append(await ids.segment("after", step=1))
            generators.append(await ids.segment("patient", step=1, fail_fast=False))
            for each in store.made.values():
                each[-1].fail()
            calls = [Call(each.next_id) for each in generators]
            await clock.advance(1)
            assert [call.is_done for call in calls] == [is_told, is_told, False]
            await clock.advance(5)
            assert all(isinstance(call.error, SegmentUnavailableError) for call in calls)
    with pytest.raises(ClosedError):
        provider.fail_fast()


async def test_before_it_is_opened() -> None:
    """Asking it for a generator is a NotOpenError."""
    with pytest.raises(NotOpenError, match="IdProvider cosid"):
        await connect(MemoryStore()).segment_chain("order")


async def test_run_in_the_users_own_group() -> None:
    """A provider is started like a generator, and ends with the group."""
    provider = connect(MemoryStore())
    async with anyio.create_task_group() as group:
        assert await group.start(provider.run) is provider
        orders = await provider.segment_chain("order")
        assert await orders.next_id() == 1
        group.cancel_scope.cancel()
    for call in (orders.next_id, lambda: provider.segment_chain("order")):
        with pytest.raises(ClosedError):
            await call()
    assert tasks() == []


async def test_when_its_root_dies_all_answer_at_once() -> None:
    """If somebody cancels the provider's task, every generator says ClosedError."""
    provider = connect(MemoryStore())
    await provider.__aenter__()
    orders = await provider.segment_chain("order")
    for task in asyncio.all_tasks():
        if task.get_name().startswith("aiocosid"):
            task.cancel()
    await settle()
    for call in (orders.next_id, lambda: provider.segment_chain("order")):
        with pytest.raises(ClosedError):
            await call()
    await provider.aclose()


async def test_its_close_timeout_is_its_generators(clock: ManualClock) -> None:
    """Unless one is asked for with another."""
    async with connect(MemoryStore(), clock=clock, close_timeout=3) as ids:
        assert (await ids.segment("a")).close_timeout == 3
        assert (await ids.segment_chain("b", close_timeout=7)).close_timeout == 7


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5", True])
async def test_a_bad_close_timeout_is_refused(seconds: Any) -> None:
    """It is an InvalidArgumentError, as of a generator."""
    for function in (connect, IdProvider):
        with pytest.raises(InvalidArgumentError, match="close_timeout"):
            function(MemoryStore(), close_timeout=seconds)


async def test_a_slow_generator_does_not_keep_its_store_open(clock: ManualClock) -> None:
    """One with a longer close timeout is torn at twice the provider's; then the store is closed."""
    store = Wrapping(GatedDistributor)
    provider = IdProvider(store, clock=clock, close_timeout=3, owns_store=True)
    await provider.__aenter__()
    opening = partial(provider.segment, "order", close_timeout=60, wait_timeout=60)
    call = await settled(Call, partial(opening, fetch_timeout=60))
    closing = Call(provider.aclose)
    await clock.advance(5.9)
    assert (call.is_done, closing.is_done, store.closed) == (True, False, 0)
    await clock.advance(0.1)
    assert (closing.is_done, store.closed) == (True, 1)


async def test_opened_anew_it_has_new_generators() -> None:
    """The old ones stay closed; ids go on above."""
    provider = connect(MemoryStore())
    ids = []
    for _ in range(3):
        async with provider:
            ids.append(await (await provider.segment_chain("order")).next_id())
            assert len(provider) == 1
        assert len(provider) == 0
    assert ids == sorted(set(ids))


async def test_only_what_it_opened_is_closed() -> None:
    """A store from the user stays open; one from a URL is the provider's own."""
    store = Wrapping()
    async with connect(store) as ids:
        await ids.segment_chain("order")
    assert store.closed == 0
    own = Wrapping()
    async with IdProvider(own, owns_store=True) as ids:
        await ids.segment_chain("order")
    assert own.closed == 1


async def test_memory_urls_share_one_store() -> None:
    """``memory://`` is one store in this process, whoever connects."""
    async with connect("memory://", namespace="test-provider") as one:
        first = await (await one.segment("order")).next_id()
        async with connect("memory://", namespace="test-provider") as other:
            assert await (await other.segment("order")).next_id() > first


@pytest.mark.parametrize("url", [None, 5, "://", "Memory//", "ftp://user:secret@host"])
async def test_a_url_that_names_no_store(url: Any) -> None:
    """It is an InvalidArgumentError with examples of URLs, and repeats no password."""
    for function in (connect, store_from_url):
        with pytest.raises(InvalidArgumentError, match=r"memory:|sqlite:///ids\.db") as info:
            function(url)
        assert "secret" not in str(info.value)


async def test_an_event_tells_which_generator() -> None:
    """One instrument may listen to all generators of a provider."""
    ear = Ear()
    async with connect(MemoryStore(), namespace="shop", instrument=ear) as ids:
        for name in ("a", "b"):
            await ids.segment_chain(name)
    assert {(event.namespace, event.name) for event in ear.of(Event)} == {
        ("shop", "a"),
        ("shop", "b"),
    }


async def test_grouped_counters_agree_on_their_function() -> None:
    """The same one, however it is called: else one would count in the other's groups."""
    tenant, shop = ContextVar[str]("tenant"), ContextVar[str]("shop")
    tenant.set("tenant-7")
    async with connect(MemoryStore()) as ids:
        orders = await ids.grouped("order", group_by=GroupBy.key(tenant.get), max_groups=7)
        assert orders._max_groups == 7
        assert await ids.grouped("order", group_by=GroupBy.key(tenant.get)) is orders
        with pytest.raises(BusyError, match="another function"):
            await ids.grouped("order", group_by=GroupBy.key(shop.get))


async def test_groups_that_went_backwards() -> None:
    """As with a chain: not below what was seen, and healed by asking for the generator again."""
    store = MemoryStore()
    day = GroupBy.key(lambda: "20260116")
    provider = connect(store)
    async with provider as ids:
        orders = await ids.grouped("order", group_by=day, step=10)
        assert await orders.next_ids(95)
        store._backend._counters.clear()
        for _ in range(20):  # it does not climb over what was seen
            with pytest.raises(StoreRolledBackError):
                await orders.next_ids(950)
        assert await ids.grouped("order", group_by=day, step=10) is orders
        with pytest.raises(StoreRolledBackError):
            await orders.next_id()
        await store.set_floor(name="order@20260116", above=1000)
        await ids.grouped("order", group_by=day, step=10)
        assert await orders.next_id() == 1001
        await orders.aclose()
        store._backend._counters.clear()
        orders = await ids.grouped("order", group_by=day, step=10)
        with pytest.raises(StoreRolledBackError):
            await orders.next_id()
    async with provider as ids:
        with pytest.raises(StoreRolledBackError):
            await (await ids.grouped("order", group_by=day, step=10)).next_id()


async def test_grouped_counters_are_named_beside_the_others() -> None:
    """The same object for the same name; another step or group needs another name."""
    clock = ManualClock(wall_ms=1_768_521_599_000)  # 2026-01-15T23:59:59Z
    day, month = GroupBy.day(zone="UTC"), GroupBy.month(zone="UTC")
    async with connect(MemoryStore(clock=clock), clock=clock) as ids:
        orders = await ids.grouped("order", group_by=day, step=10)
        assert await ids.grouped("order", group_by=day, step=10) is orders is ids["order"]
        with pytest.raises(BusyError, match="another name"):
            await ids.grouped("order", group_by=day, step=20)
        with pytest.raises(BusyError):
            await ids.grouped("order", group_by=day, step=10, group_kind="segment")
        with pytest.raises(BusyError):
            await ids.grouped("order", group_by=month, step=10)
        assert [(int(each), each.group) for each in await orders.with_group.next_ids(2)] == [
            (1, "20260115"),
            (2, "20260115"),
        ]
        await clock.advance(1)
        first = await orders.with_group.next_id()
        assert (first, first.group) == (1, "20260116")
    with pytest.raises(ClosedError):
        await orders.next_id()
    assert tasks() == []
