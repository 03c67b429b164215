"""What do Leaf's double buffer and a chain make of a burst at equal step, on a slow MariaDB?"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aiocosid import SegmentChainId
from aiocosid.abc import IdGenerator
from aiocosid.compat.leaf import LeafStore, TableDistributor
from aiocosid.segment import LeafSegmentId
from tests.servers.mariadb import MariadbServer
from tests.servers.proxy import FaultProxy

from ._harness import ROUNDS, Answer, percentiles

TASKS, STEP = 200, 10
LATENCY = 0.005  # seconds that a trip takes on top, there and back
BAR = 5.0  # ids/s of the chain, in ids/s of the double buffer

Make = Callable[[TableDistributor], IdGenerator]

# Each with the ids that a task takes: where the step stays what it is, a trip brings few, the last
# one as the first.
KINDS: dict[str, tuple[Make, int]] = {
    "`LeafSegmentId`, its step doubled by each load": (LeafSegmentId, 1000),
    f"`LeafSegmentId`, kept to a step of {STEP}": (partial(LeafSegmentId, max_step=STEP), 20),
    "`SegmentChainId`": (SegmentChainId, 1000),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One burst.

    Attributes:
        rate: ids a second, from opening the generator to the last id.
        p99_99: of single awaits, in milliseconds.
        trips: requests that went to the server.
        errors: calls that raised.
        duplicates: ids that came twice.
    """

    rate: float
    p99_99: float
    trips: int
    errors: int
    duplicates: int


async def burst(store: LeafStore, line: FaultProxy, name: str, make: Make, ids: int) -> Run:
    """Let all tasks take their ids at once from a new tag, and a generator just opened."""
    await store.create_tag(name, step=STEP)
    distributor = await store.tag(name)
    taken: list[int] = []
    took: list[int] = []
    errors = 0

    async def task(generator: IdGenerator) -> None:
        nonlocal errors
        for _ in range(ids):
            begin = time.perf_counter_ns()
            try:
                taken.append(await generator.next_id())
            except Exception:  # noqa: BLE001 - the bar is none
                errors += 1
            took.append(time.perf_counter_ns() - begin)

    before, begin = line.requests, time.perf_counter()
    async with make(distributor) as generator:
        await asyncio.gather(*(task(generator) for _ in range(TASKS)))
        elapsed = time.perf_counter() - begin
    return Run(
        len(taken) / elapsed,
        percentiles(took)["p99.99"] / 1000,
        line.requests - before,
        errors,
        len(taken) - len(set(taken)),
    )


async def ask() -> Answer:
    """Time bursts of each kind in turn."""
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    async with far_away() as (store, line):
        await store.create_schema()
        for number in range(ROUNDS):
            for kind, (make, ids) in KINDS.items():
                runs[kind].append(await burst(store, line, f"{number} {kind}", make, ids))
    leaf, kept, chain = (statistics.median(each.rate for each in runs[k]) for k in runs)
    spoilt = sum(run.errors + run.duplicates for each in runs.values() for run in each)
    return Answer(
        f"{TASKS} tasks at once, step {STEP}, MariaDB with {LATENCY * 1000:g} ms more a trip",
        f"no error, no duplicate; the chain at least {BAR:g} times the double buffer of equal step",
        spoilt == 0 and chain >= BAR * kept,
        f"{spoilt} errors and duplicates; the chain {chain / kept:.1f} times the double buffer at "
        f"equal step, {chain / leaf:.1f} times while that doubles its step.",
        ("generator", "ids", "ids/s", "p99.99, ms", "round trips", "errors", "duplicates"),
        tuple(_row(kind, each) for kind, each in runs.items()),
        {
            kind: [[getattr(run, name) for name in Run.__slots__] for run in each]
            for kind, each in runs.items()
        },
    )


def _row(kind: str, runs: list[Run]) -> tuple[str, ...]:
    def median(name: str) -> float:
        values: list[float] = [getattr(run, name) for run in runs]
        return statistics.median(values)

    return (
        kind,
        f"{TASKS} x {KINDS[kind][1]}",
        f"{median('rate'):,.0f}",
        f"{median('p99_99'):.3g}",
        f"{median('trips'):.0f}",
        str(sum(run.errors for run in runs)),
        str(sum(run.duplicates for run in runs)),
    )


@asynccontextmanager
async def far_away() -> AsyncGenerator[tuple[LeafStore, FaultProxy]]:
    """Run a MariaDB behind a slow line, which has a thread of its own; give a store on it."""
    with MariadbServer() as server:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        proxy = FaultProxy(server.host, server.port)
        proxy.latency = LATENCY / 2
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop))
        url = server.url.replace(str(server.port), str(proxy.port))
        try:
            async with LeafStore.from_url(url) as store:
                yield store, proxy
        finally:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
