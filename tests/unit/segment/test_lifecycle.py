"""Opening and closing: from anywhere, in any order, on time, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import anyio
import pytest
import pytest_asyncio

from aiocosid import IdProvider, connect
from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import IdsDiscarded
from aiocosid.errors import (
    BusyError,
    ClosedError,
    InvalidArgumentError,
    SegmentUnavailableError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
)
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.sync._thread import LoopThread
from aiocosid.testing import (
    FailingDistributor,
    GatedDistributor,
    ManualClock,
    RolledBackDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, Ear, settled, tasks
from ._kit import Generator, OneDistributor, counter, drain, gated

KINDS = pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])


@pytest_asyncio.fixture
async def chain(clock: ManualClock) -> AsyncIterator[SegmentChainId]:
    """Opened in one task and closed in another, as pytest-asyncio runs a fixture."""
    async with SegmentChainId(WrappedDistributor(counter()), clock=clock) as chain:
        yield chain
    assert tasks() == []


async def test_it_lives_in_a_fixture(chain: SegmentChainId) -> None:
    """A generator opened in an async generator fixture works in the test and is closed after."""
    assert await chain.next_ids(25) == list(range(1, 26))


# Closing.


@KINDS
async def test_closing_waits_for_the_call_under_way(
    kind: type[Generator], clock: ManualClock
) -> None:
    """Within `close_timeout` the store may answer; only then the distributor is closed.

    Who closes it too waits for the end as well.
    """
    store = gated()
    generator = kind(store, close_timeout=3, clock=clock)
    await generator.__aenter__()
    await drain(generator)
    store.close()
    waiting = Call(generator.next_ids, 50)
    await clock.advance(1)
    closing = [Call(generator.aclose) for _ in range(3)]
    await clock.advance(0.9)
    assert isinstance(waiting.error, ClosedError)
    assert [call.is_done for call in closing] == [False] * 3
    assert (store.closed, store.held) == (0, 1)
    await settled(store.open)
    assert [call.is_done for call in closing] == [True] * 3
    assert (store.closed, store.held) == (1, 0)


@KINDS
async def test_closing_tears_a_call_that_takes_too_long(
    kind: type[Generator], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """At `close_timeout` the call is given up, and everything ends then, not later."""
    store = gated()
    generator = kind(store, close_timeout=3, wait_timeout=60, fetch_timeout=60, clock=clock)
    await generator.__aenter__()
    await drain(generator)
    store.close()
    await settled(Call, generator.next_ids, 50)
    closing = Call(generator.aclose)
    await clock.advance(2.99)
    assert (closing.is_done, store.held) == (False, 1)
    await clock.advance(0.01)
    assert (closing.is_done, store.held, store.closed) == (True, 0, 1)
    assert (tasks(), clock.pending) == ([], 0)
    assert generator.statistics().failures == 0
    assert caplog.records == []


@KINDS
async def test_a_call_that_was_sent_is_not_torn_with_its_task_group(
    kind: type[Generator], clock: ManualClock
) -> None:
    """A torn one would leave its reply on the connection, for whoever asks next."""
    inner = counter()
    store = GatedDistributor(inner, holds_replies=True)
    store.open()
    ended: list[str] = []

    class Connection(WrappedDistributor):
        async def next_max_id(self, step: int) -> int:
            try:
                return await super().next_max_id(step)
            except BaseException:
                ended.append("torn")
                raise
            finally:
                ended.append("answered")

    group = anyio.create_task_group()

    async def user() -> None:
        async with group:
            connection = Connection(store)
            generator = kind(
                connection, close_timeout=3, wait_timeout=60, fetch_timeout=60, clock=clock
            )
            await group.start(generator.run)
            await drain(generator)
            store.close()
            ended.clear()
            await generator.next_ids(50)

    ending = await settled(Call, user)
    assert store.held == 1
    group.cancel_scope.cancel()
    await clock.advance(2)
    assert (ended, store.held) == ([], 1)
    store.open()
    await clock.advance(0.1)
    assert ending.is_done
    assert ended == ["answered"]


@KINDS
async def test_closing_does_not_wait_for_a_pause(kind: type[Generator], clock: ManualClock) -> None:
    """In an outage nothing is under way between two attempts: closing takes no time."""
    store = FailingDistributor(counter())
    generator = kind(store, clock=clock)
    async with generator:
        await drain(generator)
        store.fail()
        waiting = Call(generator.next_ids, 50)
        await clock.advance(2)
        closing = await settled(Call, generator.aclose)
        assert closing.is_done
        assert isinstance(waiting.error, ClosedError)


@KINDS
async def test_closing_gives_up_what_is_left(
    kind: type[Generator], clock: ManualClock, ear: Ear
) -> None:
    """Ids in hand and in the chain are a gap, and counted as such."""
    generator = kind(WrappedDistributor(counter()), clock=clock, instrument=ear)
    async with generator:
        await generator.next_ids(3)
        left = generator.statistics().remaining
    seen = generator.statistics()
    assert (seen.remaining, seen.ids_discarded, seen.ids_handed_out) == (0, left, 3)
    assert sum(event.count for event in ear.of(IdsDiscarded)) == left
    assert {event.reason for event in ear.of(IdsDiscarded)} == {"closed"}


async def test_closing_ends_all_timers(clock: ManualClock) -> None:
    """A ttl and a grown distance have their timers; they end with the generator."""
    store = gated()
    async with SegmentChainId(store, ttl=60, clock=clock) as chain:
        store.close()
        await chain.next_ids(20)
        await settled(Call, chain.next_id)
        await settled(store.open)
        assert [name.split()[1] for name in tasks()] == ["SegmentChainId", "quiet", "ttl"]
        assert clock.pending == 2


async def test_closing_while_opening(clock: ManualClock) -> None:
    """Who opens is told that it was closed."""
    store = GatedDistributor(counter())
    generator = SegmentChainId(store, clock=clock)
    opening = Call(generator.__aenter__)
    await store.arrived()
    closing = await settled(Call, generator.aclose)
    assert isinstance(opening.error, ClosedError)
    await settled(store.open)
    assert closing.is_done


async def test_cancelling_while_opening(clock: ManualClock) -> None:
    """Nothing is left of a generator whose opening was cancelled; it can be opened later."""
    store = GatedDistributor(counter())
    generator = SegmentChainId(store, clock=clock)
    opening = Call(generator.__aenter__)
    await store.arrived()
    await settled(opening.cancel)
    store.open()  # closing waits for the call under way
    await settle()
    assert opening.is_done
    assert (tasks(), clock.pending) == ([], 0)
    async with generator:
        assert await generator.next_id() == 21


async def test_closing_in_a_task_that_asyncio_cancelled(clock: ManualClock) -> None:
    """A native ``task.cancel()`` on a task that holds the block closes the generator as well."""
    generator = SegmentChainId(WrappedDistributor(counter()), clock=clock)
    opened = asyncio.Event()

    async def main() -> None:
        async with generator:
            opened.set()
            await asyncio.sleep(3600)

    task = asyncio.create_task(main())
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tasks() == []
    with pytest.raises(ClosedError):
        await generator.next_id()


@pytest.mark.parametrize("how", ["answered", "failed"])
async def test_a_call_that_cannot_be_torn_stays_in_its_life(how: str, clock: ManualClock) -> None:
    """What a driver does that heeds no cancellation is no matter of the next life."""
    store = Untearable(counter())
    store.release.set()
    provider = IdProvider(OneDistributor(store), clock=clock)
    async with provider:
        generator = await provider.segment("order", step=10, close_timeout=3)
        await generator.next_ids(10)
        first, store.release = anyio.Event(), anyio.Event()
        store.release, store.error = first, None if how == "answered" else ROLLED_BACK
        waiting = await settled(Call, generator.next_id)
        closing = Call(generator.aclose)
        await clock.advance(6)
        assert closing.is_done
        assert isinstance(waiting.error, ClosedError)
        store.release = anyio.Event()
        store.release.set()
        store.error = None
        async with generator:
            await settled(first.set)
            assert (await generator.next_ids(10))[-1] == generator.statistics().max_id
            assert generator.statistics().failures == 0


ROLLED_BACK = StoreRolledBackError("memory", namespace="cosid", name="order", seen=1, expected=2)


class Untearable(WrappedDistributor):
    """Each call heeds no cancellation, and ends when it is released."""

    def __init__(self, inner: IdSegmentDistributor) -> None:
        super().__init__(inner)
        self.release = anyio.Event()
        self.error: Exception | None = None

    async def next_max_id(self, step: int) -> int:
        error = self.error
        with anyio.CancelScope(shield=True):
            await self.release.wait()
        if error is not None:
            raise error
        return await super().next_max_id(step)


# Opening.


async def test_a_failed_opening_leaves_nothing(clock: ManualClock) -> None:
    """There is no task, the distributor is closed, and opening may be tried again."""
    store = FailingDistributor(counter())
    store.fail()
    generator = SegmentChainId(store, clock=clock)
    for _ in range(2):
        opening = Call(generator.__aenter__)
        await clock.advance(5)
        assert isinstance(opening.error, SegmentUnavailableError)
        assert isinstance(opening.error.__cause__, StoreUnavailableError)
        assert (tasks(), clock.pending) == ([], 0)
        with pytest.raises(ClosedError):
            await generator.next_id()
    assert (store.opened, store.closed) == (2, 2)
    store.recover()
    async with generator:
        assert await generator.next_id() == 1


async def test_a_free_threaded_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the GIL two threads could take one id: it is not opened there."""
    generator = SegmentChainId(counter())
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    why = "free-threaded .* one value twice .cpython issue 120496.; use the build with the GIL"
    with pytest.raises(UnsupportedRuntimeError, match=why):
        await generator.__aenter__()
    with pytest.raises(UnsupportedRuntimeError):
        await generator.run()
    with pytest.raises(UnsupportedRuntimeError, match=why):
        LoopThread()
    monkeypatch.setattr("sys._is_gil_enabled", lambda: True, raising=False)
    async with generator:
        assert await generator.next_id() == 1


async def test_a_generator_that_has_ended_leaves_no_task(clock: ManualClock) -> None:
    """One that a rolled back store ended is closed like any other."""
    store = RolledBackDistributor(counter())
    generator = SegmentChainId(store, clock=clock)
    async with generator:
        store.set_back(30)
        with pytest.raises(StoreRolledBackError):
            await generator.next_ids(30)
    assert tasks() == []
    store.set_back(-1000)
    async with generator:
        await generator.next_id()


BAD = [
    ("safe_distance", 0),
    ("safe_distance", True),
    ("safe_distance", 1.5),
    ("safe_distance", 5_000_000),  # above max_distance, however short a segment is
    ("max_distance", 0),
    ("max_ids_ahead", 0),
    ("ttl", 0),
    ("ttl", -1),
    ("ttl", float("nan")),
    ("ttl", "60"),
    ("wait_timeout", 0),
    ("wait_timeout", float("inf")),
    ("wait_timeout", None),
    ("fetch_timeout", 6),  # above wait_timeout
    ("fetch_timeout", 0),
    ("close_timeout", 0),
    ("quiet_period", 0),
    ("quiet_period", False),
]


@pytest.mark.parametrize(("argument", "value"), BAD)
def test_a_bad_setting_is_refused_on_creation(argument: str, value: object) -> None:
    """It is an InvalidArgumentError that names the argument and the value."""
    with pytest.raises(InvalidArgumentError) as info:
        SegmentChainId(counter(), **{argument: value})  # type: ignore[arg-type]  # that is the test
    assert (info.value.argument, info.value.value) == (argument, value)
    assert isinstance(info.value, ValueError)


# In a task group of the user's.


async def test_a_task_group_that_fails_around_run(clock: ManualClock) -> None:
    """The failure comes out as it is, and the generator is closed."""
    generator = SegmentChainId(WrappedDistributor(counter()), clock=clock)
    with pytest.raises(ExceptionGroup) as info:  # noqa: PT012 - the group is what raises
        async with anyio.create_task_group() as group:
            await group.start(generator.run)
            assert await generator.next_id() == 1
            raise KeyError("the user's own")
    assert [type(each) for each in info.value.exceptions] == [KeyError]
    assert tasks() == []
    with pytest.raises(ClosedError):
        await generator.next_id()


async def test_a_cancelled_run_answers_at_once(clock: ManualClock) -> None:
    """While its last call to the store is under way, callers and waiters are told already."""
    store = gated()
    generator = SegmentChainId(store, clock=clock)
    async with anyio.create_task_group() as outer:
        async with anyio.create_task_group() as group:
            await group.start(generator.run)
            await drain(generator)
            await settle()
            await generator.next_ids(5)
            store.close()
            waiting = await settled(Call, generator.next_ids, 500)
            assert store.held == 1
            group.cancel_scope.cancel()
            late = Call(generator.next_id)
            outer.start_soon(let_through_later, store)
        assert isinstance(waiting.error, ClosedError)
        assert isinstance(late.error, ClosedError)


async def let_through_later(store: GatedDistributor) -> None:
    await settle()
    store.open()


async def test_a_generator_whose_root_died_answers_at_once(clock: ManualClock) -> None:
    """If somebody cancels its task, as ``asyncio.run`` does at its end, calls get ClosedError."""
    generator = SegmentChainId(WrappedDistributor(counter()), clock=clock)
    await generator.__aenter__()
    await generator.next_id()
    for task in asyncio.all_tasks():
        if task.get_name().startswith("aiocosid"):
            task.cancel()
    await settle()
    with pytest.raises(ClosedError):
        await generator.next_id()
    await generator.aclose()
    assert tasks() == []
    async with generator:
        await generator.next_id()


async def test_opening_right_after_closing_a_run(clock: ManualClock) -> None:
    """The end of the old life, which comes a turn later, leaves the new one alone."""
    generator = SegmentChainId(WrappedDistributor(counter()), clock=clock)
    async with anyio.create_task_group() as group:
        await group.start(generator.run)
        first = await generator.next_id()
        await generator.aclose()
        async with generator:
            await settle()
            assert await generator.next_id() > first
            await settle()
            assert await generator.next_id() > first


async def test_run_may_be_started_only_once(clock: ManualClock) -> None:
    """The second one is refused, and does not end the first."""
    generator = SegmentChainId(WrappedDistributor(counter()), clock=clock)
    async with anyio.create_task_group() as group:
        await group.start(generator.run)
        with pytest.raises(BusyError):
            await group.start(generator.run)
        assert await generator.next_id() == 1
        await generator.aclose()


# Event loops that come and go.


def test_a_run_that_ends_without_closing() -> None:
    """As in Jupyter: what was left open is closed with its loop, and can be opened on the next."""
    generator = SegmentChainId(WrappedDistributor(counter()))
    ids: list[int] = []

    async def leave_open() -> None:
        await generator.__aenter__()
        ids.append(await generator.next_id())

    async def use() -> None:
        with pytest.raises(ClosedError):
            await generator.next_id()
        await generator.aclose()
        async with generator:
            ids.append(await generator.next_id())

    for _ in range(2):
        asyncio.run(leave_open())
        asyncio.run(use())
    assert ids == sorted(set(ids))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_with_tasks_on_it() -> None:
    """Nobody ended its tasks; when the collector finds them the new life goes on all the same."""
    generator = SegmentChainId(WrappedDistributor(counter()))

    async def leave_open() -> int:
        await generator.__aenter__()
        return await generator.next_id()

    loop = asyncio.new_event_loop()
    first = loop.run_until_complete(leave_open())
    loop.close()
    del loop

    async def use() -> list[int]:
        async with generator:
            ids = [await generator.next_id()]
            gc.collect()
            await settle()
            ids += await generator.next_ids(50)
            return ids

    ids = asyncio.run(use())
    assert [first, *ids] == sorted({first, *ids})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_provider_after_a_loop_that_was_closed() -> None:
    """Opened on another loop it does not hand out the dead one's generators."""
    provider = connect(MemoryStore())

    async def leave_open() -> int:
        await provider.__aenter__()
        return await (await provider.segment("order", step=10)).next_id()

    async def use() -> int:
        async with provider as ids:
            assert len(ids) == 0
            return await (await ids.segment("order", step=10)).next_id()

    loop = asyncio.new_event_loop()
    first = loop.run_until_complete(leave_open())
    loop.close()
    del loop
    assert asyncio.run(use()) > first
    gc.collect()


@KINDS
@pytest.mark.parametrize("used", [True, False])
def test_whoever_lets_go_of_a_generator_frees_it(kind: type[Generator], *, used: bool) -> None:
    """Nothing of it holds it: memory does not wait for the garbage collector."""

    async def made() -> weakref.ref[Generator]:
        generator = kind(counter())
        if used:
            async with generator:
                await generator.next_ids(25)
        return weakref.ref(generator)

    gc.disable()
    try:
        assert asyncio.run(made())() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_caller_left_on_a_dead_loop_changes_nothing_of_the_next_life(ear: Ear) -> None:
    """It had been served, and never ran again: once opened anew nobody speaks of its ids."""
    store = gated()
    generator = SegmentId(store, instrument=ear)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(generator.__aenter__())
    loop.run_until_complete(generator.next_ids(10))
    store.close()
    callers = [loop.create_task(generator.next_ids(3)) for _ in range(2)]
    loop.run_until_complete(asyncio.sleep(0.01))
    store.open()
    while generator.statistics().ids_handed_out == 10:
        loop.call_soon(loop.stop)  # one turn
        loop.run_forever()
    assert not any(caller.done() for caller in callers)
    loop.close()

    async def use() -> int:
        async with generator:
            coroutine = callers[1].get_coro()  # the first one keeps the time, in a scope
            assert coroutine is not None
            coroutine.close()
            assert not ear.of(IdsDiscarded)
            return await generator.next_id()

    assert asyncio.run(use()) > 16
    callers.clear()
    gc.collect()
