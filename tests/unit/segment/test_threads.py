"""A generator belongs to one loop and thread; elsewhere it is an error, and never a repeat."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import anyio
import pytest

from aiocosid import connect
from aiocosid.abc.events import Event, SegmentFetched
from aiocosid.errors import ClosedError, CosIdError, NotOpenError, WouldBlock, WrongLoopError
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import WrappedDistributor

from ._kit import Generator, counter


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., object]]:
    """Run a function in another thread, and wait for it; this loop stands still meanwhile."""
    with ThreadPoolExecutor(1) as executor:

        def run(function: Callable[..., object], *args: object) -> object:
            return executor.submit(function, *args).result(20)

        yield run


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_another_loop_gets_an_error_at_the_boundary_at_the_latest(
    kind: type[Generator], elsewhere: Callable[..., object]
) -> None:
    """Ids in hand may be taken, each once; then it is WrongLoopError, and the owner goes on."""
    stolen: list[int] = []

    async def steal() -> None:
        with pytest.raises(WrongLoopError):  # noqa: PT012 - sooner or later
            while True:
                stolen.append(await generator.next_id())

    async with kind(WrappedDistributor(counter())) as generator:
        mine = [await generator.next_id()]
        elsewhere(asyncio.run, steal())
        mine += [await generator.next_id() for _ in range(30)]
    assert len(stolen) < 10
    assert len({*mine, *stolen}) == len(mine) + len(stolen)


@pytest.mark.parametrize("switch", ["AIOCOSID_DEBUG", "asyncio"])
@pytest.mark.parametrize(
    "kind", ["segment", "segment_chain", "snowflake", "cached_snowflake", "counter"]
)
async def test_a_switch_checks_every_call(
    kind: str, switch: str, elsewhere: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it no id goes astray; the owner takes all of them."""
    if switch == "asyncio":
        asyncio.get_running_loop().set_debug(True)
    else:
        monkeypatch.setenv(switch, "1")

    async def steal() -> None:
        for call in (generator.next_id, lambda: generator.next_ids(1)):
            with pytest.raises(WrongLoopError):
                await call()

    try:
        async with connect(MemoryStore(), create="disposable") as ids:
            generator = await getattr(ids, kind)("order")
            mine = [await generator.next_id() for _ in range(3)]
            for _ in range(3):
                elsewhere(asyncio.run, steal())
                with pytest.raises(WrongLoopError):
                    elsewhere(generator.next_id_nowait)
                mine += [await generator.next_id(), *await generator.next_ids(2)]
        assert len(set(mine)) == 12
        if kind == "segment":
            assert mine == [*range(1, 13)], "none was taken from it"
    finally:
        asyncio.get_running_loop().set_debug(False)


async def test_a_batch_is_refused_at_once(elsewhere: Callable[..., object]) -> None:
    """`next_ids` looks at the loop first, whatever is in hand."""

    async def steal() -> None:
        for n in (1, 5, 100):
            with pytest.raises(WrongLoopError):
                await generator.next_ids(n)

    async with SegmentChainId(counter()) as generator:
        elsewhere(asyncio.run, steal())
        assert await generator.next_id() == 1


async def test_what_is_closed_or_not_open_says_so_first(elsewhere: Callable[..., object]) -> None:
    """Of two reasons the one that no other loop would mend is told, by batches too."""

    async def use(error: type[CosIdError]) -> None:
        for call in (generator.next_id, lambda: generator.next_ids(1)):
            with pytest.raises(error):
                await call()

    generator = SegmentChainId(counter())
    elsewhere(asyncio.run, use(NotOpenError))
    async with generator:
        await generator.next_id()
    elsewhere(asyncio.run, use(ClosedError))


async def test_closing_and_opening_elsewhere_is_refused(elsewhere: Callable[..., object]) -> None:
    """Its tasks live on this loop: nobody else can end them, or start others beside them."""

    async def meddle() -> None:
        with pytest.raises(WrongLoopError):
            await generator.aclose()
        with pytest.raises(CosIdError):
            await generator.__aenter__()

    async with SegmentChainId(counter()) as generator:
        elsewhere(asyncio.run, meddle())
        elsewhere(partial(anyio.run, meddle, backend="trio"))
        assert await generator.next_id() == 1


@pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
async def test_a_thread_without_a_loop_that_steps_a_call_is_refused(
    kind: type[Generator], elsewhere: Callable[..., object]
) -> None:
    """Also in the middle of a step of the owner's: it is never anyio's error."""
    refused: list[str] = []

    def step() -> None:
        with pytest.raises(WrongLoopError):  # noqa: PT012 - sooner or later
            while True:
                with suppress(StopIteration):
                    generator.next_id().send(None)
        refused.append("")

    class Meddler:
        def on_event(self, event: Event) -> None:
            if isinstance(event, SegmentFetched):
                elsewhere(step)

    generator = kind(counter(), instrument=Meddler())
    async with generator:
        assert await generator.next_ids(15)
        elsewhere(step)
    assert len(refused) >= 2


async def test_a_thread_without_a_loop_is_refused(elsewhere: Callable[..., object]) -> None:
    """Without a loop `next_id_nowait` gives what is in hand, and then WrongLoopError."""
    stolen: list[int] = []

    def steal() -> None:
        with pytest.raises(WrongLoopError):  # noqa: PT012 - sooner or later
            while True:
                stolen.append(generator.next_id_nowait())

    async with SegmentChainId(WrappedDistributor(counter())) as generator:
        elsewhere(steal)
        mine = await generator.next_ids(30)
    assert len({*mine, *stolen}) == len(mine) + len(stolen)


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Let threads interrupt each other as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("step", [3, 100])
async def test_racing_threads_never_share_an_id(step: int, busy_switching: None) -> None:
    """While the owner takes single ids and batches, thieves take what they can: nothing twice."""
    stop = threading.Event()
    stolen: list[list[int]] = []

    def steal() -> None:
        loot: list[int] = []
        stolen.append(loot)
        asyncio.run(steal_singles(loot))

    async def steal_singles(loot: list[int]) -> None:
        while not stop.is_set():
            try:
                loot.append(await generator.next_id())
                loot.append(generator.next_id_nowait())
                loot.extend(await generator.next_ids(2))
            except (WrongLoopError, WouldBlock):
                pass

    mine: list[int] = []
    async with SegmentChainId(WrappedDistributor(counter(step=step))) as generator:
        threads = [threading.Thread(target=steal) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            turn = 0
            while turn < 15_000 or sum(map(len, stolen)) < 1000:
                turn += 1
                mine += await generator.next_ids(turn % 7 + 1)
                mine.append(await generator.next_id())
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
    loot = [each for one in stolen for each in one]
    assert len({*mine, *loot}) == len(mine) + len(loot)
    assert mine == sorted(mine)
