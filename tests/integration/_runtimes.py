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
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

import aiocosid
import aiocosid.sync
from aiocosid.errors import ForkedError, UnsupportedRuntimeError
from aiocosid.sync import SyncIdGenerator

WORKERS = 2
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
        if "share it in a process, and make one in each process" in str(error):
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
}

if __name__ == "__main__":
    # By its name as a module: children and interpreters import the functions from there.
    scenarios = importlib.import_module("tests.integration._runtimes").SCENARIOS
    scenarios[sys.argv[1]](*sys.argv[2:])
