"""Generators for threads: what is in hand, what is waited for, and who may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import aiocosid
from aiocosid import StringIdGenerator, sync
from aiocosid.abc import IdSegmentDistributor
from aiocosid.converter import (
    DatePrefixIdConverter,
    PrefixIdConverter,
    Radix62IdConverter,
    ShardedTextConverter,
    SuffixIdConverter,
    ToStringIdConverter,
)
from aiocosid.errors import (
    BusyError,
    ClosedError,
    CosIdError,
    GeneratorMissingError,
    IdOverflowError,
    InvalidArgumentError,
    SegmentUnavailableError,
    StoreAuthenticationError,
    StoreUnavailableError,
    UnsupportedByStoreError,
    WouldBlock,
)
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.segment import GroupBy, GroupedSegmentId
from aiocosid.snowflake import COSID_MS, ShardedId, ShardedLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.sync import _thread
from aiocosid.sync._batches import grow_old
from aiocosid.testing import ManualClock, settle
from tests.script import run_python

from ._interrupted import interrupted


class Store(IdSegmentDistributor):
    """A counter that can be held and broken from another thread."""

    order_risk = ""

    def __init__(self, *, step: int = 100) -> None:
        super().__init__(name="order", step=step)
        self.max_id = 0
        self.error: Exception | None = None
        self.arrived = threading.Event()
        self._gate: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def next_max_id(self, step: int) -> int:
        self._loop = asyncio.get_running_loop()
        if self._gate is not None:
            self.arrived.set()
            await self._gate.wait()
        if self.error is not None:
            raise self.error
        self.max_id += step
        return self.max_id

    def hold(self) -> None:
        self.arrived.clear()
        self._gate = asyncio.Event()

    def release(self) -> None:
        assert self._gate is not None
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.set)
        self._gate = None


Make = Callable[..., sync.SyncIdGenerator[int]]


@pytest.fixture
def make() -> Iterator[Make]:
    """What makes a SyncIdGenerator on a store, closed at the end, with no thread left."""
    made: list[sync.SyncIdGenerator[int]] = []

    def of(store: Store, *, batch: int | None = None, timeout: float = 10, **options: Any) -> Any:
        generator = sync.SyncIdGenerator(
            lambda: aiocosid.SegmentChainId(store, **options), batch=batch, timeout=timeout
        )
        made.append(generator)
        return generator

    yield of
    for generator in made:
        generator.close()
    assert [each.name for each in threading.enumerate() if "aiocosid" in each.name] == []


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Start a call in another thread; its future."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - for who waits
            future.set_exception(error)

    threading.Thread(target=run).start()
    return future


def in_hand(generator: sync.SyncIdGenerator[Any]) -> int:
    return length_hint(generator._piece)


def wait_for_batch(generator: sync.SyncIdGenerator[Any]) -> None:
    """Until the one that is under way has come."""
    assert generator._pending is not None
    generator._pending.result(10)


class Nth:
    """A handler that acts when it is called for the nth time.

    Attributes:
        has_acted: whether it was called so often.
    """

    def __init__(self, n: int, act: Callable[[], object]) -> None:
        self._left, self._act = n, act

    @property
    def has_acted(self) -> bool:
        return self._left <= 0

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()


# Taking ids.


def test_ids_rise_whichever_way_they_are_asked_for(make: Make) -> None:
    orders = make(Store())
    ids = [orders.next_id(), *orders.next_ids(5), orders.next_id(), *orders.next_ids(350)]
    ids += [orders.next_id(), orders.next_id_nowait()]
    assert ids == sorted(set(ids))
    assert len(ids) == 359
    assert in_hand(orders) > 0


def test_many_threads_share_one_generator(make: Make) -> None:
    orders = make(Store(), batch=50)

    def take(n: int) -> list[int]:
        ids = [orders.next_id() for _ in range(2000)]
        return [*ids, *orders.next_ids(60 * n + 1)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(take, range(8)))
    assert all(ids == sorted(ids) for ids in found)
    assert len({new_id for ids in found for new_id in ids}) == sum(map(len, found))


def test_the_next_batch_comes_before_it_is_needed(make: Make) -> None:
    orders = make(Store(), batch=10)
    orders.next_id()
    wait_for_batch(orders)
    assert [orders.next_id_nowait() for _ in range(19)] == list(range(2, 21))


def test_what_is_in_hand_needs_no_loop(make: Make) -> None:
    store = Store()
    orders = make(store)
    orders.next_id()

    async def main() -> int:
        return orders.next_id()

    assert asyncio.run(main()) == 2


def test_a_running_loop_is_not_blocked(make: Make) -> None:
    """There the call says what to do instead, and has more brought for the next one."""
    orders, fresh = make(Store(), batch=2), make(Store())
    ids = orders.next_ids(2)

    async def main() -> None:
        for call in (
            lambda: orders.next_ids(50),
            fresh.next_id,
            fresh.open,
            fresh.close,
            fresh.statistics,
        ):
            with pytest.raises(WouldBlock, match="would block the event loop"):
                call()

    asyncio.run(main())
    wait_for_batch(fresh)
    assert fresh.next_id_nowait() == 1
    assert orders.next_id() > max(ids)


def test_calls_wait_on_a_loop_that_allows_it() -> None:
    """As a notebook's: its cells hold it anyway.  Another loop still allows nothing."""

    async def kernel() -> None:
        with sync.connect("memory://", namespace="sync-cell") as ids:
            orders = ids.segment_chain("order", step=10, batch=10)
            assert [orders.next_id(), *orders.next_ids(30)] == [*range(1, 32)]
            assert ids.statistics()["order"]["kind"] == "SegmentChainId"

    async def cells() -> None:
        with pytest.raises(WouldBlock, match=r"in a notebook, call aiocosid\.sync\.allow_waiting"):
            await kernel()
        sync.allow_waiting()
        await kernel()

    sync.allow_waiting()  # in a script
    asyncio.run(cells())
    with pytest.raises(WouldBlock):
        asyncio.run(kernel())


def test_nowait_never_waits(make: Make) -> None:
    store = Store()
    orders = make(store)
    store.hold()
    with pytest.raises(WouldBlock):
        orders.next_id_nowait()
    assert store.arrived.wait(10)
    store.release()
    assert orders.next_id() == 1
    assert orders.next_id_nowait() == 2


def test_the_last_ids_are_handed_out_too(make: Make) -> None:
    orders = make(Store(), max_id=250)
    assert [*orders.next_ids(160), *(orders.next_id() for _ in range(90))] == list(range(1, 251))
    with pytest.raises(IdOverflowError):
        orders.next_id()


def test_wrong_arguments_are_named_at_once(make: Make) -> None:
    orders = make(Store())
    for n in (0, -1, True, 2.0, 10**8):
        with pytest.raises(InvalidArgumentError, match="n must be"):
            orders.next_ids(n)  # type: ignore[arg-type]  # the point
    ids = sync.connect("memory://")
    wrong: tuple[Callable[[], object], ...] = (
        lambda: make(Store(), batch=0),
        lambda: make(Store(), timeout=0),
        lambda: make(Store(), timeout=1e10),  # OverflowError where a thread waits
        lambda: make(Store(), timeout=10**400),
        lambda: sync.connect("memory://", timeout=1e10),
        lambda: sync.SyncIdGenerator(aiocosid.SegmentChainId(Store())),  # type: ignore[call-overload]
        lambda: sync.SyncProvider(aiocosid.connect("memory://")),  # type: ignore[arg-type]
        lambda: sync.connect("nowhere://"),
        lambda: sync.connect("memory://", timeout=-1),
        lambda: ids.segment_chain("order", step=0),
        lambda: ids.segment_chain("order", safe_distance=-1),
        lambda: ids.segment("order", ttl=0),
        lambda: ids.segment("order", batch=-1),
        lambda: ids.snowflake(""),
    )
    for call in wrong:
        with pytest.raises(InvalidArgumentError):
            call()


# How many are in hand.


def test_each_kind_has_its_batch() -> None:
    """Ids that tell a time, or stand in the store's order, are made when they are asked for."""
    with sync.connect("memory://", namespace="sync-batches") as ids:
        for generator, ahead in (
            (ids.segment_chain("chain"), 99),
            (ids.segment_chain("small", step=10), 9),
            (ids.segment("segment"), 999),
            (ids.segment_chain("given", batch=30), 29),
            (ids.segment("store order", step=1), 0),
            (ids.segment("ttl", ttl=60), 0),
            (ids.snowflake("flake"), 0),
        ):
            first = generator.next_id()
            assert in_hand(generator) == ahead, generator
            assert first < generator.next_id() < generator.next_ids(3)[0]
            assert in_hand(generator) == max(0, ahead - 4)
        with pytest.raises(WouldBlock):
            ids["flake"].next_id_nowait()


def test_a_kind_that_keeps_none_brings_exactly_what_is_asked_for() -> None:
    store = Store(step=1)
    with sync.SyncIdGenerator(lambda: aiocosid.SegmentId(store)) as orders:
        assert [orders.next_id(), *orders.next_ids(3), orders.next_id()] == [1, 2, 3, 4, 5]
        assert store.max_id == 5


def test_a_batch_by_position() -> None:
    """Type checkers allow it, so it works."""
    with sync.connect("memory://", namespace="sync-positions") as ids:
        for generator in (
            ids.segment_chain("chain", None, 5),
            ids.cosid_text("cosid_text", 5),
            ids.uuid4("uuid4", 5),
            ids.counter("counter", 5),
        ):
            generator.next_id()
            assert in_hand(generator) == 4


@pytest.mark.parametrize("batch", [None, 1])
def test_of_a_strict_generator_none_is_taken_ahead(batch: int | None) -> None:
    """Each call of a thread is a call of the generator."""
    store = Store(step=100)
    make = partial(aiocosid.SegmentId, store, strict=True)
    with sync.SyncIdGenerator(make, batch=batch) as orders:
        assert [orders.next_id(), *orders.next_ids(3), orders.next_id()] == [1, 2, 3, 4, 5]
        with pytest.raises(WouldBlock):
            orders.next_id_nowait()
        assert store.max_id == 5


def test_a_batch_of_a_strict_generator_is_refused() -> None:
    """The ids in hand would be lower than later ones of other processes."""
    with sync.connect("memory://", namespace="sync-strict") as ids:
        for generator in (
            ids.segment("order", strict=True, batch=10),
            ids.segment("text", strict=True, batch=10, converter=Radix62IdConverter()),
        ):
            with pytest.raises(InvalidArgumentError, match="strict generator"):
                generator.next_id()


async def test_a_batch_that_tells_a_time_grows_old() -> None:
    clock, piece = ManualClock(), iter([1, 2, 3])
    task = asyncio.create_task(grow_old(piece, clock))
    await settle()
    assert next(piece) == 1
    await clock.advance(0.11)
    await task
    assert list(piece) == []


async def test_a_batch_whose_loop_ends_does_not_stay_in_hand() -> None:
    piece = iter([1, 2, 3])
    task = asyncio.create_task(grow_old(piece, ManualClock()))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(piece) == []


def test_a_batch_of_snowflakes_is_used_within_its_age() -> None:
    ids_of = sync.connect("memory://", namespace="sync-age")
    with ids_of, ids_of.snowflake(batch=50) as flakes:
        ids = [flakes.next_id(), *flakes.next_ids(60), flakes.next_id()]
        assert ids == sorted(set(ids))
        assert flakes._pending is None, "no batch is brought to grow old"
        timer = flakes._timer
        assert isinstance(timer, asyncio.Task)
        done = threading.Event()

        def has_ended(_: object) -> None:
            done.set()

        timer.get_loop().call_soon_threadsafe(timer.add_done_callback, has_ended)
        assert done.wait(10)
        assert in_hand(flakes) == 0
        assert flakes.next_id() > ids[-1]


def test_groups_by_a_function_are_refused() -> None:
    """It would be called on the background loop, and find none of the caller's context there."""
    tenant = ContextVar[str]("tenant", default="public")

    def orders(group_by: GroupBy) -> GroupedSegmentId:
        return GroupedSegmentId(MemoryStore(), name="order", group_by=group_by)

    for group_by in (GroupBy.key(tenant.get), GroupBy.day(zone="UTC", within=tenant.get)):
        for batch in (None, 50):
            for make_one in (
                lambda group_by=group_by: orders(group_by),
                lambda group_by=group_by: StringIdGenerator(orders(group_by), Radix62IdConverter()),
            ):
                generator: Any = sync.SyncIdGenerator(make_one, batch=batch)
                with pytest.raises(InvalidArgumentError, match="by date alone"):
                    generator.open()
                with pytest.raises(InvalidArgumentError, match="by date alone"):
                    generator.next_id()
                generator.close()
    with sync.SyncIdGenerator(lambda: orders(GroupBy.year(zone="UTC"))) as yearly:
        assert yearly.next_id() == 1


def test_texts() -> None:
    machine = MemoryStore().machine_id_distributor(namespace="sync-texts")
    with sync.SyncIdGenerator(lambda: aiocosid.CosIdGenerator(machine)) as texts:
        found = [texts.next_id(), *texts.next_ids(2)]
    assert [type(each) for each in found] == [str, str, str]
    assert len(set(found)) == 3


def test_texts_of_a_chain_lie_in_hand_if_no_time_is_in_them() -> None:
    class Mine(Radix62IdConverter):
        """A user's, of which nothing is known."""

    class Stated(Mine):
        """One that says so."""

        is_timeless = True

    plain = PrefixIdConverter("A", SuffixIdConverter("Z", ToStringIdConverter()))
    dated = DatePrefixIdConverter("yyMMdd", Radix62IdConverter(), zone="UTC")
    for converter, ttl, ahead in (
        (Radix62IdConverter(), None, 99),
        (plain, None, 99),
        (plain, 60, 0),
        (dated, None, 0),
        (PrefixIdConverter("A", dated), None, 0),
        (Mine(), None, 0),
        (Stated(), None, 99),
        (PrefixIdConverter("A", Stated()), None, 99),
    ):

        def text() -> aiocosid.StringIdGenerator:
            chain = aiocosid.SegmentChainId(Store(), ttl=ttl)  # noqa: B023 - called at once
            return aiocosid.StringIdGenerator(chain, converter)  # noqa: B023

        with sync.SyncIdGenerator(text) as generator:
            assert generator.next_id()
            assert in_hand(generator) == ahead, converter


# Opening and closing.


def test_it_is_opened_at_the_first_use_and_closed_once_for_all(make: Make) -> None:
    store = Store()
    orders = make(store)
    assert store.max_id == 0
    assert orders.next_id() == 1
    orders.close()
    orders.close()
    for call in (orders.next_id, orders.next_id_nowait, lambda: orders.next_ids(2)):
        with pytest.raises(ClosedError):
            call()
    with orders:
        assert orders.next_id() > 1
        assert in_hand(orders)
    assert in_hand(orders) == 0
    with pytest.raises(ClosedError):
        orders.statistics()


def test_closing_fails_whoever_waits(make: Make) -> None:
    store = Store()
    store.hold()
    opening = make(store, fetch_timeout=0.1)
    orders = make(other := Store(), batch=2, fetch_timeout=0.1)
    first = in_thread(opening.next_id)
    assert store.arrived.wait(10)
    orders.next_ids(2)
    other.hold()
    second = in_thread(lambda: orders.next_ids(1000))
    assert other.arrived.wait(10)
    for generator, waiting in ((opening, first), (orders, second)):
        generator.close()
        with pytest.raises(ClosedError):
            waiting.result(10)
        with pytest.raises(ClosedError):
            generator.next_id()


def test_one_thread_serves_all_and_ends_with_the_last(make: Make) -> None:
    one, two = make(Store()), make(Store())
    one.open()
    two.open()
    threads = [each for each in threading.enumerate() if "aiocosid" in each.name]
    assert len(threads) == 1
    one.close()
    assert threads[0].is_alive()
    two.close()
    assert not threads[0].is_alive()


def test_what_is_made_is_entered_and_left_by_one_task() -> None:
    """So any context manager will do, also one with a task group or a timeout in it."""
    said: list[Any] = []

    @asynccontextmanager
    async def orders() -> AsyncGenerator[aiocosid.SegmentChainId]:
        said.append(asyncio.current_task())
        async with (
            asyncio.timeout(None),
            asyncio.TaskGroup(),
            aiocosid.connect("memory://", namespace="sync-cm") as ids,
        ):
            yield await ids.segment_chain("order")
        said.append(asyncio.current_task())

    with sync.SyncIdGenerator(orders) as generator:
        assert generator.next_id() == 1
    assert said[0] is said[1]


def test_what_making_raises_is_raised_to_the_caller() -> None:
    failures = [KeyError("odd"), KeyError("odder")]

    @asynccontextmanager
    async def broken() -> AsyncGenerator[aiocosid.SegmentChainId]:
        if failures:
            raise failures.pop()
        async with aiocosid.SegmentChainId(Store()) as generator:
            yield generator

    generator = sync.SyncIdGenerator(broken)
    for word in ("odder", "odd"):
        with pytest.raises(KeyError, match=word):
            generator.next_id()
    assert generator.next_id() == 1, "the next call tries again"
    generator.close()


# What goes wrong.


def test_an_outage_is_an_error_for_who_needs_ids_and_ends_by_itself(make: Make) -> None:
    store = Store()
    orders = make(store, batch=2, wait_timeout=0.05, safe_distance=1)
    assert orders.next_id() == 1
    store.error = StoreUnavailableError("store", "it is unplugged")
    with pytest.raises(SegmentUnavailableError) as caught:
        [orders.next_id() for _ in range(1000)]
    assert isinstance(caught.value.__cause__, StoreUnavailableError)
    store.error = None
    assert orders.next_id() > 1


def test_an_error_from_before_a_call_is_not_its_own(make: Make) -> None:
    """A batch was brought for nobody, and failed: whoever comes then has another one tried."""
    store = Store(step=2)
    orders = make(store, batch=500, wait_timeout=5, max_distance=2)
    orders.open()
    wait_for_batch(orders)
    store.hold()
    orders.next_id()
    assert store.arrived.wait(10)
    waiting = in_thread(lambda: orders.next_ids(500))
    store.error = StoreAuthenticationError("store", "a wrong password")  # fails who waits at once
    fetch = orders._pending
    assert fetch is not None
    store.release()
    assert isinstance(fetch.exception(10), SegmentUnavailableError)
    store.error = None
    assert len(waiting.result(10)) == 500


def test_no_wait_is_longer_than_the_timeout(make: Make) -> None:
    store = Store()
    orders = make(store, timeout=0.05)
    store.hold()
    for call in (orders.next_id, lambda: orders.next_ids(3), orders.open, orders.statistics):
        with pytest.raises(SegmentUnavailableError, match=r"within 0\.05 s"):
            call()
    store.release()
    orders._session.timeout = 10
    assert orders.next_id() == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_dies_is_replaced(make: Make) -> None:
    """Ids in hand are still ours; the next batch is brought by another loop."""
    store = Store()
    orders = make(store, batch=5)
    ids = orders.next_ids(2)

    async def stop(_: object) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    async def leave(_: object) -> None:
        raise SystemExit

    for die in (stop, leave):
        thread = orders._session._thread
        assert thread is not None
        with pytest.raises(SegmentUnavailableError, match="loop has ended"):
            orders._session.call(die)
        thread.join(10)
        ids += [orders.next_id() for _ in range(10)]
    assert ids == sorted(set(ids))


# Signal handlers and finalizers.


def test_whoever_interrupts_takes_no_id_twice(make: Make) -> None:
    """At every line, as a signal handler does: an id of its own, or WouldBlock, and no dead end."""
    orders, others = make(Store(), batch=3), make(Store(), batch=3)
    ids: list[int] = []
    refused = lines = 0

    def handler() -> None:
        nonlocal refused, lines
        lines += 1
        if lines % 7:  # at another line each time; at all of them it would take all there are
            return
        for generator in (orders, others):
            try:
                new_id = generator.next_id_nowait()
            except WouldBlock:
                refused += 1
            else:
                if generator is orders:
                    ids.append(new_id)

    orders.open()
    others.open()
    for _ in range(20):
        with interrupted(sync, "line", handler):
            ids += [orders.next_id(), *orders.next_ids(4)]
    assert len(ids) == len(set(ids))
    assert refused


def test_whoever_interrupts_the_opening_opens_nothing_twice(make: Make) -> None:
    """At the k-th line of the first call, for every k."""
    ids: list[int] = []
    made: list[aiocosid.SegmentChainId] = []

    def make_one() -> aiocosid.SegmentChainId:
        made.append(aiocosid.SegmentChainId(Store()))
        return made[-1]

    def take() -> None:
        with suppress(WouldBlock):
            ids.append(orders.next_id_nowait())

    make(Store()).open()  # else each round would start a thread
    handlers = [Nth(k, take) for k in range(1, 200)]
    for handler in handlers:
        ids.clear()
        made.clear()
        orders = sync.SyncIdGenerator(make_one)
        with interrupted(sync, "line", handler):
            ids.append(orders.next_id())
        assert (len(made), len(set(ids))) == (1, len(ids))
        orders.close()
    assert not handlers[-1].has_acted, "there are more lines than that"


def test_a_batch_that_died_with_its_loop_is_asked_for_again(make: Make) -> None:
    orders = make(Store(), batch=2)
    orders.open()
    thread = orders._session._thread
    assert thread is not None
    orders._pending = Future()  # the loop died before it began with it
    thread.stop()
    thread.join(10)
    assert orders.next_id() > 0


def test_nothing_is_imported_on_the_background_loop() -> None:
    """A fork in the middle of that would leave the child with an import that never ends."""
    code = """
import json, sys
from aiocosid import sync
ids = sync.connect("memory://")
ids.segment_chain("order")
ids.snowflake("flake")
before = set(sys.modules)
ids["order"].next_id(), ids["flake"].next_id()
ids.close()
print(json.dumps(sorted(name for name in set(sys.modules) - before if "io" in name)))
"""
    assert run_python(code) == []


def interrupted_at(k: int, call: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt where our k-th function is called; False if there are not so many."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    handler = Nth(k, interrupt)
    with suppress(KeyboardInterrupt), interrupted(sync, "call", handler):
        call()
    return handler.has_acted


def test_ctrl_c_leaves_gaps_at_most(make: Make) -> None:
    """Raised wherever one of our functions is called."""
    orders = make(Store(), batch=3)
    ids: list[int] = []

    def take() -> None:
        ids.extend(orders.next_ids(4))
        ids.append(orders.next_id())

    k = 0
    while interrupted_at(k := k + 1, take):
        ids.append(orders.next_id())
    assert 10 < k < 60
    assert len(ids) == len(set(ids))
    assert orders.next_id() > max(ids)


def test_ctrl_c_in_the_first_call_is_no_dead_end(make: Make) -> None:
    make(Store()).open()  # else each round would start a thread
    for k in range(1, 100):
        orders = make(Store(), timeout=2)
        was_interrupted = interrupted_at(k, orders.next_id)
        assert orders.next_id() >= 1
        orders.close()
        if not was_interrupted:
            break
    assert 10 < k < 99


def test_ctrl_c_while_closing_leaves_something_to_close(make: Make) -> None:
    """A second close() does what is left to do, and so does opening it again."""
    is_open = 0

    @asynccontextmanager
    async def one() -> AsyncGenerator[aiocosid.SegmentChainId]:
        nonlocal is_open
        async with aiocosid.SegmentChainId(Store()) as generator:
            is_open += 1
            yield generator
        is_open -= 1

    make(Store()).open()
    thread = _thread._shared.thread
    assert thread is not None
    for k in range(1, 100):
        orders = sync.SyncIdGenerator(one)
        orders.next_id()
        was_interrupted = interrupted_at(k, orders.close)
        if k % 2:
            orders.open()
            assert orders.next_id()
        orders.close()
        assert thread.is_alive, "others are on it"
        with pytest.raises(ClosedError):
            orders.next_id()
        if not was_interrupted:
            break
    thread.submit(lambda: asyncio.sleep(0)).result(10)  # type: ignore[union-attr]  # it is alive
    assert is_open == 0
    assert 5 < k < 99
    thread.users = 1  # who was interrupted there is counted for good


# Providers.


def test_a_provider_gives_the_same_object_for_the_same_name() -> None:
    with sync.connect("memory://", namespace="sync-provider") as ids:
        orders = ids.segment_chain("order", step=10)
        assert ids.segment_chain("order", step=10, safe_distance=3) is orders
        assert ids["order"] is orders
        others: tuple[Callable[[], object], ...] = (
            lambda: ids.segment_chain("order"),
            lambda: ids.segment("order", step=10),
            lambda: ids.snowflake("order"),
        )
        for other in others:
            with pytest.raises(BusyError, match="in use as SegmentChainId with step 10"):
                other()
        assert orders.next_id() == 1
        orders.close()
        assert orders.next_id() > 1, "it is the provider's"
        assert ids.statistics()["order"]["kind"] == "SegmentChainId"
        assert orders.statistics().namespace == "sync-provider"
    for call in (orders.next_id, orders.next_id_nowait, ids.statistics):
        with pytest.raises(ClosedError):
            call()
    ids.open()
    assert orders.next_id() > 1
    ids.close()


def test_a_provider_has_groups_and_cosid_texts() -> None:
    by_year, by_day = GroupBy.year(zone="UTC"), GroupBy.day(zone="UTC")
    with sync.connect("memory://", namespace="sync-kinds") as ids:
        numbers = ids.grouped("invoice", group_by=by_year, step=10)
        assert (numbers.next_id(), type(numbers.next_id())) == (1, int)
        assert ids.grouped("invoice", group_by=by_year, step=10) is numbers
        with pytest.raises(BusyError, match="GroupedSegmentId with step 10"):
            ids.grouped("invoice", group_by=by_day, step=10)
        with pytest.raises(InvalidArgumentError, match="by date alone"):
            ids.grouped("tenant", group_by=GroupBy.key(lambda: "a"))
        with pytest.raises(InvalidArgumentError, match="kind"):
            ids.grouped("tenant", group_by=by_day, group_kind="ring")  # type: ignore[call-overload]
        texts = ids.cosid_text()
        assert texts.next_id() < texts.next_id()
        assert ids["cosid_text"] is texts


def test_a_provider_has_the_kinds_of_the_other_one() -> None:
    """What each of them is has been shown there: in numbers, in texts, and where it is refused."""
    orders = PrefixIdConverter("O-", Radix62IdConverter())
    with sync.connect("memory://", namespace="sync-all-kinds") as ids:
        made: dict[str, Any] = {
            "LeafSegmentId": ids.leaf_segment("leaf", step=10),
            "CachedSnowflakeId": ids.cached_snowflake("cached", boost=4),
            "CounterId": ids.counter("counter"),
            "IntegerIdGenerator": ids.int32("short", step=10, kind="segment"),
            "UncertaintyIdGenerator": ids.uncertainty("blurred", bits=8, batch=2),
            "Uuid7Id": ids.uuid7("token"),
        }
        for kind, generator in made.items():
            first = generator.next_id()
            assert first < generator.next_id()
            assert generator.statistics().kind == kind
        assert UUID(ids.uuid4("random").next_id()).version == 4
        with pytest.raises(InvalidArgumentError, match="1 to 62"):
            ids.uncertainty("other", bits=0)
        texts, flakes = (
            ids.segment_chain("c", converter=orders),
            ids.cached_snowflake("f", converter=orders),
        )
        assert texts.next_id() == "O-00000000001"
        assert flakes.next_id().startswith("O-")
        assert (in_hand(texts), in_hand(flakes)) == (99, 0)
        assert ids.segment_chain("c", converter=orders) is texts
        with pytest.raises(BusyError, match="with step 100 and PrefixIdConverter"):
            ids.segment_chain("c")
        with pytest.raises(UnsupportedByStoreError, match="no generators"):
            ids.remote("event", block=10).next_id()


def test_ids_that_carry_the_shard_that_a_thread_names() -> None:
    """Of the provider, of settings, and of one's own; each call is a new id of the generator."""
    layout = ShardedLayout()
    with sync.connect("memory://", namespace="sync-sharded") as ids:
        early = ids["order", int]
        orders = ids.sharded("order", sharding_id=3)
        assert type(orders) is sync.SyncShardedId
        assert orders is ids.sharded("order", sharding_id=3) is ids["order", int]
        found = [orders.next_id(), orders.next_id(7), *orders.next_ids(2, 4095), early.next_id()]
        assert [layout.parse(each).sharding_id for each in found] == [3, 7, 4095, 4095, 3]
        text = orders.next_str(7, "A-")
        assert layout.parse_text(text, "A-").sharding_id == 7
        assert len({layout.parse(each)[::2] for each in found}) == 5
        refused: list[Any] = [4096, -1, True, "7"]
        for wrong in refused:
            for call in (orders.next_id, partial(orders.next_ids, 2), orders.next_str):
                with pytest.raises(InvalidArgumentError, match=r"sharding_id.*0 to 4095"):
                    call(wrong)
        with pytest.raises(InvalidArgumentError, match="10000000"):
            orders.next_ids(0, 7)
        with pytest.raises(WouldBlock):
            orders.next_id_nowait(7)
        written = ids.sharded("bill", converter=ShardedTextConverter(layout, "B"), sharding_id=5)
        assert type(written) is sync.SyncIdGenerator
        assert layout.parse_text(written.next_id(), "B").sharding_id == 5
        assert ids["order", sync.SyncShardedId].next_id(1) > 0
        ids.segment("chain", step=1)
        with pytest.raises(InvalidArgumentError, match="a ShardedId"):
            ids["chain", sync.SyncShardedId].next_id(1)
    with pytest.raises(ClosedError):
        orders.next_id_nowait()

    distributor = MemoryStore().sequence_distributor(name="own")
    with sync.SyncShardedId(lambda: ShardedId(distributor), timeout=5) as own:
        assert layout.parse(own.next_id(9)).sharding_id == 9


async def test_a_loop_is_not_held_up_for_an_id_of_a_shard() -> None:
    distributor = MemoryStore().sequence_distributor(name="own")
    own = sync.SyncShardedId(lambda: ShardedId(distributor))
    for call in (own.next_id, partial(own.next_ids, 2), own.next_str):
        with pytest.raises(WouldBlock, match="event loop"):
            call(1)


def test_machine_ids_that_somebody_has_chosen(tmp_path: Path) -> None:
    manual = ManualMachineIdDistributor(3, state_dir=tmp_path)
    with sync.connect("memory://", machine=manual, on_lost="raise") as ids:
        orders = ids.snowflake("order")
        assert COSID_MS.parse(orders.next_id()).machine_id == 3
        with pytest.raises(InvalidArgumentError, match="on_lost"):
            ids.snowflake("other", on_lost="redistribute").next_id()


def test_a_generator_of_ones_own_is_made_where_it_lives() -> None:
    made: list[aiocosid.SegmentChainId] = []

    def bills() -> aiocosid.SegmentChainId:
        made.append(aiocosid.SegmentChainId(Store()))
        return made[-1]

    with sync.connect("memory://", namespace="sync-own") as ids:
        bill = ids.add("bill", bills, batch=10)
        assert ids.add("bill", bills) is bill is ids["bill"]
        assert (bill.next_id(), in_hand(bill)) == (1, 9)
        others: tuple[Callable[[], object], ...] = (
            lambda: ids.add("bill", partial(bills)),
            lambda: ids.segment("bill"),
        )
        for other in others:
            with pytest.raises(BusyError, match="in use as a generator of your own"):
                other()
        with pytest.raises(InvalidArgumentError, match="make"):
            ids.add("other", bills())  # type: ignore[call-overload]  # the point
        assert ids.statistics()["bill"]["kind"] == "SegmentChainId"
    assert len(made) == 2, "one for the provider, one by hand"
    ids.open()
    assert bill.next_id() == 1, "of another counter"
    assert len(made) == 3
    ids.close()


def test_a_name_says_which_ids_it_gives() -> None:
    """At once if its kind is known, else at the first use."""
    with sync.connect("memory://", namespace="sync-types") as ids:
        orders, tokens = ids.segment_chain("order"), ids.uuid7("token")
        assert ids["order", int] is orders
        assert ids["token", str] is tokens
        with pytest.raises(InvalidArgumentError, match="a generator whose ids are str"):
            ids["order", str]
        with pytest.raises(InvalidArgumentError, match="int or str"):
            ids["bill", float]  # type: ignore[index]  # the point
        own = ids.add("own", lambda: aiocosid.SegmentChainId(Store()), batch=10)
        assert own.next_id() == 1
        assert ids["own", int] is own
        assert own.next_id() > 10, "what was in hand is a gap"
        assert ids["own", str] is own  # type: ignore[comparison-overlap]  # the point
        with pytest.raises(InvalidArgumentError, match="a generator whose ids are str"):
            own.next_id()
        ids.remove("own")
        assert ids.segment("own").next_id() == 1
        bills = ids.segment("bill", converter=Radix62IdConverter())
        assert ids["bill", str] is bills
        before = ids["later", int]
        assert before is ids.segment("later")
        assert before.next_id() == 1


def test_removing_closes_and_frees_the_name() -> None:
    ids = sync.connect("memory://", namespace="sync-removed")
    ids.segment("never used")
    ids.remove("never used")
    assert not ids._session.is_alive, "there was nothing to close"
    orders, other = ids.segment_chain("order", step=100), ids.segment("other")
    first = orders.next_id()
    ids.segment("unused")
    for name in ("order", "unused"):
        ids.remove(name)
        with pytest.raises(GeneratorMissingError, match="there is no generator"):
            ids.remove(name)
    with pytest.raises(GeneratorMissingError, match="has none yet"):
        orders.next_id()
    again = ids.segment("order", step=5)
    assert again is not orders
    assert again.next_id() > first
    assert other.next_id() == 1
    ids.close()


def test_clear_closes_all_and_frees_their_names() -> None:
    ids = sync.connect("memory://", namespace="sync-cleared")
    ids.segment("never used")
    ids.clear()
    assert not ids._session.is_alive, "there was nothing to close"
    orders, others = ids.segment_chain("order", step=100), ids.segment("other")
    first = orders.next_id()
    assert others.next_id() == 1
    for _ in range(2):
        ids.clear()
    for each in (orders, others):
        with pytest.raises(GeneratorMissingError, match="has none yet"):
            each.next_id()
    assert ids.segment("order", step=5).next_id() > first
    ids.close()


@pytest.mark.parametrize("free", ["clear", "remove"])
def test_a_thread_asks_while_a_name_is_freed(make: Make, free: str) -> None:
    """Between any two lines; what it leaves buffered is of the generator that is closed."""
    asked: list[int] = []

    def ask() -> None:
        asked.append(k)
        with suppress(CosIdError):
            orders.next_id()

    make(Store()).open()  # else each round would start a thread
    for k in range(1, 300):
        ids = sync.connect("memory://", namespace="sync-freed")
        orders = ids.segment_chain("order", step=100)
        orders.next_id()
        with interrupted(sync, "line", Nth(k, ask)):
            ids.clear() if free == "clear" else ids.remove("order")
        with pytest.raises(GeneratorMissingError, match="has none yet"):
            orders.next_id()
        ids.close()
        if k not in asked:
            break
    assert k > 10


def test_threads_get_one_generator_for_a_name() -> None:
    """Also if another thread asks between any two lines."""
    others: list[object] = []

    def ask() -> None:
        others.append(ids.segment("order"))

    for k in range(1, 200):
        ids = sync.connect("memory://", namespace="sync-one")
        others.clear()
        with interrupted(sync, "line", Nth(k, ask)):
            mine = ids.segment("order")
        if not others:
            break
        assert others == [mine]
        assert ids["order"] is mine
    assert k > 5


def test_a_name_may_be_asked_for_before_its_kind_is_known() -> None:
    with sync.connect("memory://", namespace="sync-name") as ids:
        orders = ids["order"]
        with pytest.raises(GeneratorMissingError, match="has none yet"):
            orders.next_id()
        assert ids.segment_chain("order", batch=7) is orders
        assert orders.next_id() == 1
        assert in_hand(orders) == 6
        with pytest.raises(BusyError):
            ids.segment("order")


def test_two_kinds_cannot_both_have_a_name(make: Make) -> None:
    """Two threads ask at once, and meet between any two lines."""
    asked: list[str] = []

    def ask() -> None:
        asked.append("snowflake")
        with suppress(BusyError):
            ids.snowflake("order")
            asked.append("and got it")

    make(Store()).open()  # else each round would start a thread
    for k in range(1, 200):
        ids, kind = sync.connect("memory://", namespace="sync-race"), "SnowflakeId"
        asked.clear()
        with interrupted(sync, "line", Nth(k, ask)), suppress(BusyError):
            ids.segment_chain("order")
            kind = "SegmentChainId"
        if not asked:
            break
        assert (len(asked) == 2) == (kind == "SnowflakeId"), "one of them has it"
        assert ids["order"].statistics().kind == kind
        ids.close()
    assert 10 < k < 199


def test_any_provider_will_do() -> None:
    @asynccontextmanager
    async def shop() -> AsyncGenerator[aiocosid.IdProvider]:
        async with aiocosid.connect("memory://", namespace="sync-any") as ids:
            await ids.segment_chain("order")
            yield ids

    with sync.SyncProvider(shop) as ids:
        assert ids["order"].next_id() == 1
        with pytest.raises(InvalidArgumentError, match="there are 'order'"):
            ids["bill"].next_id()
