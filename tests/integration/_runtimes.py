"""Programs with processes and interpreters; run by test_runtimes, each in a process of its own.

``python -m tests.integration._runtimes SCENARIO METHOD PLACE`` ends with 0 if all is as it has to
be; a place is a URL and a namespace.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, cast

import aiocosid
import aiocosid.sync
from aiocosid.errors import ForkedError, UnsupportedRuntimeError
from aiocosid.generators import CounterId, Uuid4Id, Uuid7Id
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.snowflake import SnowflakeId
from aiocosid.sync import SyncIdGenerator

WORKERS = 2
THREADS = 8
CALLS = 6
IDS = 700  # of a call, in segments of 100


async def _take(place: str) -> list[int]:
    url, namespace = place.split()
    async with aiocosid.connect(url, namespace=namespace) as ids:
        orders = await ids.segment_chain("order", step=100)
        return [*await orders.next_ids(IDS - 1), await orders.next_id()]


def take(place: str) -> list[int]:
    """Take ids from a provider of this process."""
    return asyncio.run(_take(place))


@functools.cache
def threads_ids(place: str) -> SyncIdGenerator[int]:
    """Return what the threads of this process share; a forked child has its parent's."""
    url, namespace = place.split()
    return aiocosid.sync.connect(url, namespace=namespace).segment_chain("order", step=100)


def take_for_threads(place: str) -> list[int]:
    """Take ids from the provider for threads of this process."""
    return [threads_ids(place).next_id() for _ in range(IDS)]


def check_no_repeats(pool: Executor, func: Callable[[str], list[int]], place: str) -> None:
    """Take ids in the workers, and in this process before and meanwhile; no id comes twice."""
    found = func(place)
    calls = [pool.submit(func, place) for _ in range(CALLS)]
    found += func(place)
    for call in calls:
        found += call.result(timeout=30)
    assert len({*found}) == len(found) == (CALLS + 2) * IDS


def processes(method: str, place: str) -> None:
    """Each worker of a pool opens a provider of its own."""
    for func in (take, take_for_threads):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
            check_no_repeats(pool, func, place)
    threads_ids(place).close()


def use(generator: Any) -> None:
    """End with 0 if this child, which has got a generator, cannot use it."""
    try:
        asyncio.run(generator.next_id())
    except ForkedError as error:
        os._exit(0 if "open" in str(error) else 4)
    os._exit(3)


def passed_on(method: str, place: str) -> None:
    """A generator that is passed to a child is refused: in the parent, or after a fork there."""
    context: Any = multiprocessing.get_context(method)
    url, namespace = place.split()
    with asyncio.Runner() as runner:
        provider = runner.run(aiocosid.connect(url, namespace=namespace).__aenter__())
        orders = runner.run(provider.segment_chain("order"))
        child = context.Process(target=use, args=(orders,))
        if method == "fork":
            child.start()
            child.join(30)
            assert child.exitcode == 0, child.exitcode
        else:
            check_refused(child.start)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            check_refused(lambda: pool.submit(use, orders).result(timeout=30))
            check_refused(lambda: pool.submit(use, threads_ids(place)).result(timeout=30))
        runner.run(provider.aclose())


def check_refused(call: Callable[[], object]) -> None:
    """Raise unless the call ends with the sentence about copies."""
    try:
        call()
    except TypeError as error:
        if "share it within a process, and make one in each process" in str(error):
            return
        raise
    raise AssertionError("it was pickled")


# Sub-interpreters.


def importable(module: str) -> str:
    """Try to import a module; return why it cannot be imported, or nothing."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return ""


def interpreters(_method: str, place: str) -> None:
    """Each interpreter opens a provider of its own; the driver has to support interpreters."""
    with new_pool() as pool:
        check_no_repeats(pool, take, place)


def refused_drivers(_method: str, modules: str) -> None:
    """These drivers' modules in C cannot be imported, and say so."""
    with new_pool() as pool:
        for module in modules.split(","):
            reason = pool.submit(importable, module).result(timeout=30)
            assert "does not support loading in subinterpreters" in reason, (module, reason)


def refused_thread() -> str:
    """Return why an interpreter has no provider for threads."""
    try:
        aiocosid.sync.connect("memory://").segment_chain("order").next_id()
    except UnsupportedRuntimeError as error:
        return str(error)
    return "it has one"


def no_threads(_method: str, _place: str) -> None:
    """What needs a background loop is refused with the reason."""
    with new_pool() as pool:
        call: Future[str] = pool.submit(refused_thread)
        assert "daemon threads are disabled" in call.result(timeout=30)


# Free-threaded Python.


def in_threads(func: Callable[[str], list[int]], place: str) -> list[int]:
    """Call it in eight threads at once; return the ids of all."""
    together = threading.Barrier(THREADS)

    def one() -> list[int]:
        together.wait(timeout=30)
        return func(place)

    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(one) for _ in range(THREADS)]
        return [each for call in calls for each in call.result(timeout=30)]


def openings(url: str) -> Iterator[AbstractAsyncContextManager[object]]:
    """Yield generators by themselves, and a provider."""
    store = aiocosid.store_from_url(url)
    yield from (Uuid4Id(), Uuid7Id(), CounterId())
    yield SegmentId(store.segment_distributor(name="order"))
    yield SegmentChainId(store.segment_distributor(name="order"))
    yield SnowflakeId(store.machine_id_distributor())
    yield aiocosid.connect(url)


async def open_it(generator: AbstractAsyncContextManager[object]) -> None:
    """Open one, and close it."""
    async with generator:
        pass


def check_asks_for_the_lock(call: Callable[[], object]) -> None:
    """Raise unless the call ends with the sentence about the lock."""
    try:
        call()
    except UnsupportedRuntimeError as error:
        if "PYTHON_GIL=1" in str(error):
            return
        raise
    raise AssertionError("it was opened")


def take_nothing(url: str) -> list[int]:
    """Return no id, as none is to be had on a loop, or without one."""
    for each in openings(url):
        check_asks_for_the_lock(partial(asyncio.run, open_it(each)))
    check_asks_for_the_lock(aiocosid.sync.connect(url).segment_chain("order").next_id)
    return []


def without_gil(_method: str, places: str) -> None:
    """No generator can be opened."""
    assert not cast("Any", sys)._is_gil_enabled()
    for url in places.split():
        assert in_threads(take_nothing, url) == []


def with_gil(_method: str, places: str) -> None:
    """If the same interpreter is given its lock, each id comes once."""
    assert cast("Any", sys)._is_gil_enabled()
    for url in places.split():
        place = f"{url} shop"
        found = in_threads(take, place) + in_threads(take_for_threads, place)
        assert len({*found}) == len(found) == 2 * THREADS * IDS
        threads_ids(place).close()


def new_pool() -> Executor:
    """Return a pool of interpreters, which Python has from 3.14 on."""
    futures: Any = importlib.import_module("concurrent.futures")
    pool: Executor = futures.InterpreterPoolExecutor(WORKERS)
    return pool


SCENARIOS = {
    "processes": processes,
    "passed on": passed_on,
    "interpreters": interpreters,
    "refused drivers": refused_drivers,
    "no threads": no_threads,
    "without gil": without_gil,
    "with gil": with_gil,
}

if __name__ == "__main__":
    # By its name as a module: children and interpreters import the functions from there.
    scenarios = importlib.import_module("tests.integration._runtimes").SCENARIOS
    scenarios[sys.argv[1]](*sys.argv[2:])
