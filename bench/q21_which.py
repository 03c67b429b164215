"""Which generator?  What an awaited id costs with each kind, beside `uuid.uuid4()`."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import redis.asyncio

from aiocosid import SegmentChainId, SegmentId
from aiocosid.abc import AnyGenerator
from aiocosid.generators import Uuid4Id, Uuid7Id
from aiocosid.stores.redis import RedisStore

from ._harness import ROUNDS, Answer, percentiles, timed
from ._servers import valkey
from ._snowflake import WIDE, snowflake
from .q05_latency import Block

N = 200_000
SAMPLES = 500_000
NAMES = ("uuid4", "uuid7", "Snowflake", "SegmentId", "chain")
BY_HAND, EACH = "INCRBY 1000 by hand", "INCR for each id"
SLOWER = 50  # times: so many fewer are taken of EACH
BYTES = {"uuid4": 16, "uuid7": 16}

NextId = Callable[[], Awaitable[object]]


async def taken(next_id: NextId, n: int = N) -> None:
    """Await ids, as fast as it goes."""
    for _ in range(n):
        await next_id()


async def stdlib() -> None:
    """Make UUIDs without a generator: the floor."""
    for _ in range(N):
        uuid.uuid4()


async def far_end(next_id: NextId) -> float:
    """Return p99.99 of single awaits in microseconds."""
    took = [0] * SAMPLES
    now = time.perf_counter_ns
    for i in range(SAMPLES):
        begin = now()
        await next_id()
        took[i] = now() - begin
    return percentiles(took)["p99.99"]


async def ask() -> Answer:
    """Await ids of all kinds in turn, those of a store from Valkey on loopback."""
    with valkey() as url:
        async with AsyncExitStack() as opened:
            store = RedisStore.from_url(url)
            opened.push_async_callback(store.aclose)
            made: tuple[AnyGenerator, ...] = (
                Uuid4Id(),
                Uuid7Id(),
                snowflake(layout=WIDE),
                SegmentId(store.segment_distributor(name="segment", step=1000)),
                SegmentChainId(store.segment_distributor(name="chain", step=1000)),
            )
            calls: dict[str, NextId] = {}
            for name, generator in zip(NAMES, made, strict=True):
                await opened.enter_async_context(generator)
                calls[name] = generator.next_id
                await taken(calls[name])
            client = redis.asyncio.from_url(url)
            opened.push_async_callback(client.aclose)
            calls[BY_HAND] = Block(client).next_id

            async def incr() -> None:
                await taken(lambda: client.incr("bench:each"), N // SLOWER)

            floor: list[float] = []
            times: dict[str, list[float]] = {name: [] for name in (*calls, EACH)}
            for _ in range(ROUNDS):
                floor.append(await timed(stdlib))
                for name, call in calls.items():
                    times[name].append(await timed(lambda call=call: taken(call)))  # type: ignore[misc]
                times[EACH].append(await timed(incr) * SLOWER)
            ends = {name: await far_end(call) for name, call in calls.items()}
    ratios = {
        n: statistics.median(f / t for f, t in zip(floor, each, strict=True))
        for n, each in times.items()
    }
    rates = {n: N / statistics.median(each) for n, each in times.items()}
    return Answer(
        "Which generator? One task awaits ids without a pause; the store is Valkey on loopback",
        "",
        None,
        "Ids a second beside calling `uuid.uuid4()`, and the far end of single awaits.",
        ("generator", "x uuid4()", "ids/s", "p99.99, us", "bytes"),
        tuple(
            (
                n,
                f"{ratios[n]:.{1 if ratios[n] > 1 else 2}f}",
                f"{rates[n]:,.0f}",
                f"{ends[n]:,.0f}" if n in ends else "",
                BYTES.get(n, 8),
            )
            for n in times
        ),
        raw={"floor": floor, "times": times, "p99.99": ends, "n": N},
    )
