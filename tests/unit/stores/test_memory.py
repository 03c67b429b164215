"""Counters in this process's memory."""

from __future__ import annotations

import asyncio
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from aiocosid import store_from_url
from aiocosid.abc import DEFAULT_STEP, MAX_ID, Counter, IdSegmentDistributor
from aiocosid.errors import InvalidArgumentError, WouldBlock
from aiocosid.stores import memory
from aiocosid.stores.memory import MemoryStore
from tests.script import run_python

FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from aiocosid.errors import ForkedError
from aiocosid.stores.memory import MemoryStore

store = MemoryStore()
# As another thread does that is at work in the moment of the fork.
other = threading.Thread(target=store._backend._lock.acquire)
other.start()
other.join()
if os.fork():
    os.wait()
    sys.exit()
try:
    store._backend.add_nowait("cosid.order", 1, first=1)
    sys.exit("a child counts on")
except ForkedError:
    pass
try:
    store.counters().send(None)
except StopIteration as done:
    print(done.value)
"""


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def test_the_defaults_are_the_contracts() -> None:
    """Namespace cosid, offset 0, and a step of 1000."""
    distributor = MemoryStore().segment_distributor(name="order")
    described = (distributor.namespace, distributor.offset, distributor.step)
    assert described == ("cosid", 0, DEFAULT_STEP)
    assert distributor.store == "memory"
    assert repr(distributor) == "<CounterDistributor cosid.order step=1000>"


async def test_distributors_of_one_process_share_counters() -> None:
    """By the class or by a URL, in whatever notation: one counter for one name."""
    name = uuid.uuid4().hex
    made: list[IdSegmentDistributor] = [
        MemoryStore.from_url().segment_distributor(name=name),
        MemoryStore.from_url("memory:").segment_distributor(name=name),
        MemoryStore.from_url("memory://").segment_distributor(name=name),
        store_from_url("memory://").segment_distributor(name=name),
    ]
    assert [await each.next_max_id(10) for each in made] == [10, 20, 30, 40]
    assert await MemoryStore().segment_distributor(name=name).next_max_id(10) == 10


@pytest.mark.parametrize("step", [0, -1, 1.5, True, "a", None])
async def test_bad_step(step: Any) -> None:
    """Refused without a suspension as well, and nothing is counted."""
    distributor = MemoryStore().segment_distributor(name="order")
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        distributor.next_max_id_nowait(step)
    assert distributor.next_max_id_nowait(10) == 10


async def test_counters_can_be_listed() -> None:
    """Ordered by name; all of them, or those of one namespace."""
    store = MemoryStore()
    for namespace, name, step in (("b", "x", 5), ("a", "z", 7), ("ab", "y", 1), ("a", "y", 2)):
        await store.segment_distributor(namespace=namespace, name=name).next_max_id(step)
    assert [counter.namespaced_name for counter in await store.counters()] == [
        "a.y",
        "a.z",
        "ab.y",
        "b.x",
    ]
    assert await store.counters(namespace="a") == [
        Counter(namespaced_name="a.y", last_max_id=2),
        Counter(namespaced_name="a.z", last_max_id=7),
    ]
    assert await store.counters(namespace="none") == []


async def test_a_floor_only_raises() -> None:
    """A lower one changes nothing; a missing counter is made; the next id is above it."""
    store = MemoryStore()
    distributor = store.segment_distributor(name="order")
    assert await store.set_floor(name="order", above=100) == Counter(
        namespaced_name="cosid.order", last_max_id=100
    )
    assert await distributor.next_max_id(10) == 110
    assert (await store.set_floor(name="order", above=50)).last_max_id == 110
    assert await distributor.next_max_id(10) == 120
    assert (await store.set_floor(name="order", above=MAX_ID)).last_max_id == MAX_ID


@pytest.mark.usefixtures("restless")
async def test_threads_share_nothing() -> None:
    """Event loops of several threads on one counter, whose floor is raised meanwhile."""
    store, start = MemoryStore(), threading.Barrier(4, timeout=5)

    def count(number: int) -> list[int]:
        distributor = store.segment_distributor(name="order")
        start.wait()
        return [distributor.next_max_id_nowait(1) for _ in range(10_000)]

    with ThreadPoolExecutor(4) as pool:
        told = [each for ids in pool.map(count, range(4)) for each in ids]
    assert sorted(told) == list(range(1, 40_001))


@pytest.mark.usefixtures("restless")
async def test_threads_have_machine_ids_of_their_own() -> None:
    """However many ask at once for one that nobody had."""
    start = threading.Barrier(4, timeout=5)
    stores = [MemoryStore() for _ in range(100)]

    async def ask() -> list[int]:
        found = []
        for store in stores:
            distributor = store.machine_id_distributor()
            start.wait()
            found.append((await distributor.distribute(2, now_ms=1, latest_ms=1)).machine_id)
        return found

    with ThreadPoolExecutor(4) as pool:
        told = [pool.submit(asyncio.run, ask()) for _ in range(4)]
    for ids in zip(*(each.result() for each in told), strict=True):
        assert sorted(ids) == [0, 1, 2, 3]


async def test_a_thread_of_the_parents_does_not_hold_up_the_child() -> None:
    """It was at work in the moment of the fork, and is not there any more."""
    assert run_python(FORK) == []


async def test_closing_keeps_the_counters() -> None:
    """What shares the store goes on with them."""
    async with MemoryStore() as store:
        await store.create_schema()
        distributor = store.segment_distributor(name="order")
        await distributor.next_max_id(10)
    assert await distributor.next_max_id(10) == 20


@pytest.mark.parametrize("url", ["memory://x", "memory:///", "sqlite://", ""])
async def test_a_url_with_more_in_it_is_refused(url: str) -> None:
    """There is one shared store, and nothing to say about it."""
    with pytest.raises(InvalidArgumentError, match="url"):
        MemoryStore.from_url(url)


async def test_a_signal_handler_that_asks_in_the_middle() -> None:
    """Gets nothing there, stands nobody still, and no id is handed out twice."""
    store = MemoryStore()
    one, other = (store.segment_distributor(name="order", step=1) for _ in range(2))
    taken: list[int] = []

    def ask(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != memory.__file__:
            return None
        if event == "line":
            with suppress(WouldBlock):
                taken.append(other.next_max_id_nowait(1))
        return ask

    before = sys.gettrace()
    sys.settrace(ask)
    try:
        taken.append(one.next_max_id_nowait(1))
    finally:
        sys.settrace(before)
    assert len(taken) > 2
    assert len(set(taken)) == len(taken)


async def test_a_floor_is_not_set_amid_a_grant() -> None:
    """It would be lost as soon as the grant goes on."""
    store = MemoryStore()
    store._backend._steps._busy = True
    with pytest.raises(WouldBlock):
        await store.set_floor(name="order", above=50)
    assert store._backend._steps._busy
    assert await store.counters() == []
