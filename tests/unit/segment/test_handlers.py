"""Ids taken by what Python runs between two lines: signal handlers, finalizers, instruments.

A trace function stands in for them: it runs at every line, or at every call, of the generator's own
code, and nowhere else.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import aiocosid._life.waiting_line
import aiocosid.segment
from aiocosid import connect
from aiocosid._life.loop import TaskRoot
from aiocosid.abc import IdSegmentDistributor
from aiocosid.abc.events import DistanceChanged, Event, SegmentFetched, Starved
from aiocosid.errors import ClosedError, WouldBlock
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, WrappedDistributor, settle

from .. import _interrupted
from .._kit import Call, settled, tasks
from ._kit import Generator as IdGenerator
from ._kit import counter, gated

interrupted = partial(_interrupted.interrupted, aiocosid.segment)


def stores() -> list[IdSegmentDistributor]:
    return [counter(), WrappedDistributor(counter())]


async def take(generator: IdGenerator, ids: list[int], turn: int) -> None:
    match turn % 4:
        case 0:
            ids.append(await generator.next_id())
        case 1:
            with suppress(WouldBlock):
                ids.append(generator.next_id_nowait())
        case _:
            ids += await generator.next_ids(turn % 13 + 1)


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_a_handler_at_any_line_gets_no_id_that_another_gets(kind: type[IdGenerator]) -> None:
    """Nor does it take any from under a call; each has rising ids, and none is lost."""
    for store in stores():
        lines = Random(1)  # noqa: S311 - chooses lines
        taken: list[int] = []
        ids: list[int] = []
        refused = 0

        def handler(ids: list[int] = taken, lines: Random = lines) -> None:
            nonlocal refused
            if lines.random() > 0.1:  # else no fetch would ever bring enough
                return
            try:
                ids.append(generator.next_id_nowait())
            except WouldBlock:
                refused += 1

        async with kind(store, ttl=1000) as generator:
            with interrupted("line", handler):
                for turn in range(200):
                    await take(generator, ids, turn)
                    await asyncio.sleep(0)
            assert generator.statistics().ids_handed_out == len(ids) + len(taken)
        assert refused
        assert len(taken) > 100
        assert len({*ids, *taken}) == len(ids) + len(taken)
        assert (ids, taken) == (sorted(ids), sorted(taken))


async def test_a_caller_that_leaves_and_ids_that_expire(clock: ManualClock) -> None:
    """Whoever stands behind is served, and what is given up is counted, handler or not."""
    store = gated(step=1000)
    taken: list[int] = []

    def handler() -> None:
        with suppress(WouldBlock):
            taken.append(chain.next_id_nowait())

    chain = SegmentChainId(store, safe_distance=4, ttl=3, clock=clock)
    async with chain:
        store.close()
        first, second = Call(chain.next_ids, 7000), Call(chain.next_ids, 3500)
        await settle()
        assert chain.statistics().waiting == 2
        with interrupted("line", handler):
            await settled(first.cancel)
        assert len(second.result) == 3500
        assert chain.statistics().ids_handed_out == 3500 + len(taken)
        with interrupted("line", handler):
            await clock.advance(3.001)
            handler()  # whoever asks next drops what is in no piece
        assert chain.statistics().remaining == 0
        assert chain.statistics().ids_handed_out == 3500 + len(taken)
        assert len({*second.result, *taken}) == 3500 + len(taken)
        await settled(store.open)


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_a_handler_may_raise_anywhere(kind: type[IdGenerator]) -> None:
    """As for Ctrl-C: the call ends with its error, ids may be a gap, and the generator goes on."""
    ids: list[int] = []
    async with kind(counter()) as generator:
        for nth in range(1, 40):
            calls = count(1)

            def handler(calls: count[int] = calls, nth: int = nth) -> None:
                if next(calls) == nth:
                    raise KeyboardInterrupt

            for turn in range(8):
                with suppress(KeyboardInterrupt), interrupted("call", handler):
                    await take(generator, ids, turn)
            ids.append(await generator.next_id())
            ids.append(generator.next_id_nowait())
    assert ids == sorted(set(ids))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer signals")
async def test_a_real_signal_handler() -> None:
    """It comes wherever it likes while batches are taken."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signal handlers run in the main thread")
    stolen: list[int] = []
    odd: list[Exception] = []
    heard = 0

    def handler(*_: object) -> None:
        nonlocal heard
        heard += 1
        try:
            stolen.append(chain.next_id_nowait())
        except WouldBlock:
            pass
        except Exception as error:  # noqa: BLE001 - for the test to look at
            odd.append(error)

    ids: list[int] = []
    async with SegmentChainId(counter()) as chain:
        before = signal.signal(signal.SIGALRM, handler)
        timer = signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
        try:
            while heard < 1500 or len(ids) < 50_000:
                ids += await chain.next_ids(3)
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, before)
    assert odd == []
    assert stolen
    assert len({*ids, *stolen}) == len(ids) + len(stolen)
    assert ids == sorted(ids)


# Closing.


class Remote(MemoryStore):
    """Wants a fetch for each call."""

    def segment_distributor(self, **about: Any) -> Any:
        return WrappedDistributor(super().segment_distributor(**about))


@pytest.mark.parametrize("of", [aiocosid.segment, aiocosid._life.waiting_line])
async def test_closed_at_any_line(of: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A call ends at once, with all its ids or as closed; what others count on goes on."""
    room: Any = SimpleNamespace(__path__=[str(of.__file__).removesuffix("__init__.py")])
    endings = set[object]()
    for store in (MemoryStore(), Remote()):
        for nth in count(1, 2 if of is aiocosid.segment else 1):
            async with connect(store) as ids:
                about: Any = {"step": 10, "wait_timeout": 1000}
                generator = await ids.segment_chain(f"a{nth}", **about)
                other = await ids.segment_chain("b", step=10)
                assert await generator.next_id() == 1
                left, closing = nth, list[asyncio.Future[None]]()

                def handler(generator: Any = generator, closing: list[Any] = closing) -> None:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        generator._retire(ClosedError("it"))
                        closing.append(asyncio.ensure_future(generator.aclose()))

                ended: object = 50
                with _interrupted.interrupted(room, "line", handler), anyio.fail_after(5):
                    try:
                        assert await generator.next_ids(50) == list(range(2, 52))
                        await generator.next_id()
                    except ClosedError as error:
                        ended = type(error)
                    await settle()
                endings.add(ended)
                for each in closing:
                    await each
                await generator.aclose()
                seen = generator.statistics()
                assert (seen.remaining, seen.waiting) == (0, 0)
                assert seen.ids_discarded >= 0
                assert len(await other.next_ids(25)) == 25
            if left > 0:
                break
        assert nth > 10
    assert endings == {50, ClosedError}
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def take_all_and_one(generator: IdGenerator) -> None:
    while left := generator.statistics().remaining:
        await generator.next_ids(left)
    await generator.next_id()


async def test_a_provider_closed_in_the_middle_of_a_step_fails_who_waits() -> None:
    """By the time it looks at the generator the step is done."""

    class Closing:
        def on_event(self, event: Event) -> None:
            if isinstance(event, Starved):
                ids._retire(ClosedError("it"))
                closing.append(asyncio.ensure_future(ids.aclose()))

    closing = list[asyncio.Future[None]]()
    ids = connect(Remote(), instrument=Closing())
    async with ids:
        chain = await ids.segment_chain("a", step=10, wait_timeout=1000)
        with anyio.fail_after(5), pytest.raises(ClosedError):
            await take_all_and_one(chain)
        await closing[0]
    assert chain.statistics().remaining == 0


# Where no task runs.


class Bell(WrappedDistributor):
    """Tells when it is asked."""

    def __init__(self, inner: IdSegmentDistributor) -> None:
        super().__init__(inner)
        self.rung = anyio.Event()

    async def next_max_id(self, step: int) -> int:
        self.rung.set()
        return await super().next_max_id(step)


async def ask_where_no_task_runs(ask_later: Callable[[Callable[[], None]], object]) -> None:
    """The next fetch takes off all the same, at once, and one for all."""
    for kind in (SegmentChainId, SegmentId):
        bell = Bell(counter(step=5))
        async with kind(bell, ttl=1000) as generator:
            taken: list[int] = []
            ended_by: list[BaseException] = []
            bell.rung = anyio.Event()
            ask_later(partial(take_all, generator, taken, ended_by))
            with anyio.fail_after(5):
                await bell.rung.wait()
            assert [type(error) for error in ended_by] == [WouldBlock]
            taken += await generator.next_ids(20)
        assert taken == list(range(1, len(taken) + 1))


def take_all(generator: IdGenerator, taken: list[int], ended_by: list[BaseException]) -> None:
    try:
        while True:
            taken.append(generator.next_id_nowait())
    except BaseException as error:  # noqa: BLE001 - for the test to look at
        ended_by.append(error)


@contextmanager
def alarms() -> Generator[Callable[[Callable[[], None]], None]]:
    """Have functions called by a signal handler, when the loop is idle."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("this system has no timer signals")
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signal handlers run in the main thread")

    def ask_later(take: Callable[[], None]) -> None:
        def handler(*_: object) -> None:
            take()

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    before = signal.getsignal(signal.SIGALRM)
    try:
        yield ask_later
    finally:
        signal.signal(signal.SIGALRM, before)


async def test_a_callback_of_the_loop() -> None:
    """As the protocols of asyncio, and ``loop.add_signal_handler``, call it."""
    loop: Any = asyncio.get_running_loop()
    await ask_where_no_task_runs(loop.call_soon)


async def test_a_signal_handler_while_the_loop_is_idle() -> None:
    """The loop is woken for what it has to fetch."""
    with alarms() as ask_later:
        await ask_where_no_task_runs(ask_later)


async def test_the_same_on_trio() -> None:
    """In a loop of its own, in the main thread."""
    loop = asyncio.get_running_loop()
    with alarms() as ask_later:
        asyncio._set_running_loop(None)
        try:
            anyio.run(ask_where_no_task_runs, ask_later, backend="trio")
        finally:
            asyncio._set_running_loop(loop)


async def test_a_store_in_this_process_asked_in_a_callback() -> None:
    """The timer of the ttl is started there, too."""
    ended_by: list[BaseException] = []

    def take() -> None:
        try:
            ids.extend(chain.next_id_nowait() for _ in range(30_000))
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            ended_by.append(error)

    ids: list[int] = []
    async with SegmentChainId(counter(), ttl=1000) as chain:
        asyncio.get_running_loop().call_soon(take)
        await settle()
        assert "ttl" in {name.split()[1] for name in tasks()}
    assert (ended_by, ids) == ([], list(range(1, 30_001)))
    assert tasks() == []


async def test_what_was_asked_for_in_a_callback_is_started_before_the_root_ends() -> None:
    """Else closing would wait for a fetch that never takes off."""
    root = TaskRoot(tuple)
    await root.start("aiocosid other")
    started: list[str] = []

    async def work() -> None:
        started.append("work")
        await anyio.sleep_forever()

    def begin_and_close() -> None:
        root.start_soon(work, name="aiocosid work")
        root.end()

    asyncio.get_running_loop().call_soon(begin_and_close)
    await root._ended.wait()
    assert tasks() == []
    root.start_soon(work, name="aiocosid work")
    await settle()
    assert (started, root.is_alive, tasks()) == (["work"], False, [])


async def test_a_flight_that_could_not_be_started_is_started_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when Ctrl-C came just there."""

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    async with SegmentId(WrappedDistributor(counter())) as generator:
        await generator.next_ids(10)
        with monkeypatch.context() as patch:
            patch.setattr(TaskRoot, "start_soon", fail)
            with pytest.raises(KeyboardInterrupt):
                await generator.next_id()
        assert await generator.next_id() > 10


# Instruments.


class Thief:
    """Takes an id at each event, and looks at how far the ids have come."""

    def __init__(self) -> None:
        self.generator: SegmentChainId | None = None
        self.ids: list[int] = []
        self.seen: list[tuple[Event, int | None]] = []

    def on_event(self, event: Event) -> None:
        if self.generator is None:
            return
        self.seen.append((event, self.generator.statistics().max_id))
        with suppress(WouldBlock, ClosedError):
            self.ids.append(self.generator.next_id_nowait())


async def test_an_instrument_that_takes_ids_repeats_none() -> None:
    """And is told of a segment, and of a distance that grew, when the segment is linked."""
    for store in stores():
        thief = Thief()
        ids: list[int] = []
        async with SegmentChainId(store, instrument=thief) as thief.generator:
            ids += [await thief.generator.next_id() for _ in range(15_000)]
        assert ids == sorted(ids)
        assert len({*ids, *thief.ids}) == len(ids) + len(thief.ids)
        told = thief.seen
        grown = [at for at, (event, _) in enumerate(told) if isinstance(event, DistanceChanged)]
        assert grown
        for at in grown:
            fetched = told[at + 1][0]
            assert isinstance(fetched, SegmentFetched)
            assert fetched.max_id == told[at][1] == told[at + 1][1]


@pytest.mark.parametrize("n", [1, 3, 30])
async def test_a_call_that_begins_within_an_event_waits_for_the_end_of_the_step(n: int) -> None:
    """As an eager task does (`asyncio.eager_task_factory`)."""
    begun: list[Any] = []

    class Eager:
        def on_event(self, event: Event) -> None:
            if isinstance(event, SegmentFetched) and event.max_id == 20 and not begun:
                call = chain.next_ids(n)
                begun.append(call)
                call.send(None)

    chain = SegmentChainId(counter(), instrument=Eager())
    async with chain:
        ids = await chain.next_ids(5)

        class Rest:
            def __await__(self) -> Any:
                return (yield from begun[0].__await__())

        ids += await Rest()
        ids += await chain.next_ids(5)
    assert ids == list(range(1, 11 + n))
