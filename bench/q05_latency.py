"""How long does a single await take, at the far end of the distribution?"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import redis.asyncio

from aiocosid import SegmentChainId, SegmentId, store_from_url
from aiocosid.abc import IdSegmentDistributor
from aiocosid.stores.redis import RedisStore

from ._harness import Answer, SlowDistributor, percentiles
from ._servers import postgres, valkey

N, ROUNDS = 1_000_000, 5
WARM_UP = 3.0  # seconds: the rate is known after two, and then the seconds ahead are bought
PIECE, SHORT_PIECE = 10_000, 1000  # ids between two turns of the loop, in stock and short of it
BARS = {"5 ms store": 2.5, "Valkey": 5.0, "PostgreSQL": 5.0}  # times the floor's p99.99


async def sample(next_id: Callable[[], Awaitable[object]], n: int) -> dict[str, float]:
    """Time n single awaits."""
    took = [0] * n
    now = time.perf_counter_ns
    for i in range(n):
        begin = now()
        await next_id()
        took[i] = now() - begin
    return percentiles(took)


class Nothing:
    """The floor: an await of nothing, with a turn of the loop after each so many."""

    def __init__(self, piece: int) -> None:
        self.piece = self.left = piece

    async def next_id(self) -> None:
        """Return nothing."""
        self.left -= 1
        if not self.left:
            self.left = self.piece
            await asyncio.sleep(0)


class Block:
    """What people write by hand: INCRBY a block under a lock, and count through it."""

    def __init__(self, client: redis.asyncio.Redis, step: int = 1000) -> None:
        self.client, self.step = client, step
        self.lock = asyncio.Lock()
        self.next, self.last = 1, 0

    async def next_id(self) -> int:
        """Return the next id."""
        async with self.lock:
            if self.next > self.last:
                self.last = await self.client.incrby("bench:block", self.step)
                self.next = self.last - self.step + 1
            new_id, self.next = self.next, self.next + 1
            return new_id


async def chain(distributor: IdSegmentDistributor, endurance: float = 60) -> dict[str, float]:
    """Time awaits of a chain that knows its load."""
    async with SegmentChainId(distributor, endurance=endurance) as made:
        until = time.perf_counter() + WARM_UP
        while time.perf_counter() < until:
            for _ in range(PIECE):
                await made.next_id()
        return await sample(made.next_id, N)


async def nothing(piece: int) -> dict[str, float]:
    """Time awaits of nothing, after as many as make a loop warm."""
    made = Nothing(piece)
    await sample(made.next_id, N)
    return await sample(made.next_id, N)


async def ask() -> Answer:
    """Time awaits of a greedy task: ours on slow and on real stores, and what others do."""
    found: dict[str, list[dict[str, float]]] = {}
    in_stock, short = (f"nothing, a turn of the loop each {n:,}" for n in (PIECE, SHORT_PIECE))
    with valkey() as url, postgres() as sql:
        client = redis.asyncio.from_url(url)
        redis_store = RedisStore(client, durability="ignore")
        async with store_from_url(sql) as sql_store:
            await sql_store.create_schema()
            for _ in range(ROUNDS):
                stores: dict[str, IdSegmentDistributor] = {
                    "5 ms store": SlowDistributor(0.005),
                    "50 ms store": SlowDistributor(0.05),
                    "Valkey": redis_store.segment_distributor(name="q05"),
                    "PostgreSQL": sql_store.segment_distributor(name="q05"),
                }
                for name, each in stores.items():
                    found.setdefault(f"SegmentChainId, {name}", []).append(await chain(each))
                found.setdefault(in_stock, []).append(await nothing(PIECE))
                hungry = await chain(SlowDistributor(0.005), endurance=0)
                found.setdefault("SegmentChainId, 5 ms store, endurance=0", []).append(hungry)
                found.setdefault(short, []).append(await nothing(SHORT_PIECE))
                async with SegmentId(SlowDistributor(0.005)) as segment:
                    found.setdefault("SegmentId, 5 ms store", []).append(
                        await sample(segment.next_id, N // 10)
                    )
                async with SegmentId(redis_store.segment_distributor(name="q05s")) as segment:
                    found.setdefault("SegmentId, Valkey", []).append(
                        await sample(segment.next_id, N)
                    )
                found.setdefault("INCRBY 1000 by hand, Valkey", []).append(
                    await sample(Block(client).next_id, N)
                )
                found.setdefault("INCR for each id, Valkey", []).append(
                    await sample(lambda: client.incr("bench:one"), N // 50)
                )
        await client.aclose()
    names = ("p50", "p99", "p99.9", "p99.99", "max")
    middle = {
        name: {p: statistics.median(r[p] for r in rounds) for p in names}
        for name, rounds in found.items()
    }
    times = {
        name: statistics.median(
            ours["p99.99"] / floor["p99.99"]
            for ours, floor in zip(found[f"SegmentChainId, {name}"], found[in_stock], strict=True)
        )
        for name in BARS
    }
    told = ", ".join(f"{each:.2f} x on {name}" for name, each in times.items())
    return Answer(
        "Latency of single awaits of one greedy task, once the chain knows its load",
        "p99.99 beside awaits of nothing with as many turns of the loop: "
        + ", ".join(f"at most {bar:g} x on {name}" for name, bar in BARS.items()),
        all(times[name] <= bar for name, bar in BARS.items()),
        f"p99.99 {told}. Microseconds, the two clock readings included.",
        ("generator", *names),
        tuple((name, *(f"{m[p]:,.2f}" for p in names)) for name, m in middle.items()),
        {"rounds": found},
    )
