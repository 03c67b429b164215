"""How many ids in strict order do 1, 100 and 1,000 tasks get, beside one call to the store each?"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg

from aiocosid import SegmentId, store_from_url
from tests.servers import EtcdServer, PostgresServer
from tests.servers.proxy import FaultProxy

from ._harness import Answer, beside, ratio

TASKS = {1: 300, 100: 20, 1000: 4}  # tasks, and how many ids each takes in a round
ROUNDS = 5
BAR = 20  # times as many, with 1,000 tasks
AWAY = 0.001  # seconds of a trip to another machine

Take = Callable[[], Awaitable[object]]
Found = dict[int, dict[str, float]]
driver: Any = asyncpg  # its annotations stop half-way


async def ask() -> Answer:
    """Let tasks take ids one by one: by a strict generator, and by a call to the store each."""
    raw: dict[str, Found] = {}
    async with _postgres() as (server, url):
        raw["PostgreSQL on loopback"] = await _beside_nextval(url)
        async with FaultProxy(server.host, server.port) as line:
            line.latency = AWAY / 2
            far = url.replace(f":{server.port}/", f":{line.port}/")
            raw["PostgreSQL 1 ms away"] = await _beside_nextval(far)
    async with _etcd() as url:
        raw["etcd on loopback"] = await _beside_transactions(url)
    ratios = {name: found[1000]["ratio"] for name, found in raw.items()}
    told = " and ".join(f"{each:.1f} times as many on {name}" for name, each in ratios.items())
    return Answer(
        "Ids in strict order, one by one, beside a call to the store for each",
        f"with 1,000 tasks at least {BAR} times as many",
        min(ratios.values()) >= BAR,
        f"With 1,000 tasks {told}.",
        ("store", "tasks", "a call each: ids/s", "strict: ids/s", "ratio", "ids a trip"),
        tuple(
            (
                name,
                f"{tasks:,}",
                f"{each['each']:,.0f}",
                f"{each['strict']:,.0f}",
                f"{each['ratio']:.1f}",
                f"{each['trip']:.0f}",
            )
            for name, found in raw.items()
            for tasks, each in found.items()
        ),
        {name: {str(tasks): each for tasks, each in found.items()} for name, found in raw.items()},
    )


@asynccontextmanager
async def _postgres() -> AsyncGenerator[tuple[PostgresServer, str]]:
    with PostgresServer() as server:
        one: Any = await driver.connect(server.url)
        await one.execute("CREATE SEQUENCE beside")
        await one.close()
        yield server, server.url


@asynccontextmanager
async def _etcd() -> AsyncGenerator[str]:
    with EtcdServer() as server:
        yield server.url


async def _beside_nextval(url: str) -> Found:
    """Measure beside ``nextval`` on one connection, as the generator has one call at a time."""
    one: Any = await driver.connect(url)
    try:
        return await _measure(url, partial(one.fetchval, "SELECT nextval('beside')"))
    finally:
        await one.close()


async def _beside_transactions(url: str) -> Found:
    """Measure beside a transaction that compares and writes."""
    async with store_from_url(url) as store:
        counter = store.segment_distributor(name="beside")
        return await _measure(url, partial(counter.next_max_id, 1))


async def _measure(url: str, call: Take) -> Found:
    found: Found = {}
    lock = asyncio.Lock()

    async def in_turn() -> None:
        async with lock:
            await call()

    async with store_from_url(url) as store:
        await store.create_schema()
        async with SegmentId(store.segment_distributor(name="order"), strict=True) as strict:
            for tasks, each in TASKS.items():
                before = strict.statistics().fetches
                ways = partial(_crowd, tasks, in_turn), partial(_crowd, tasks, strict.next_id)
                floors, times = await beside(*ways, ROUNDS)
                found[tasks] = {
                    "each": tasks * each / statistics.median(floors),
                    "strict": tasks * each / statistics.median(times),
                    "ratio": ratio(floors, times),
                    "trip": tasks * each * ROUNDS / (strict.statistics().fetches - before),
                }
    return found


async def _crowd(tasks: int, take: Take) -> None:
    async def one() -> None:
        for _ in range(TASKS[tasks]):
            await take()

    await asyncio.gather(*(one() for _ in range(tasks)))
