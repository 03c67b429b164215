"""How long does a single await take, at the far end of the distribution?"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import redis.asyncio

from aiocosid import SegmentChainId, SegmentId
from aiocosid.stores.redis import RedisStore

from ._harness import Answer, SlowDistributor, percentiles
from ._servers import valkey

N, WARM_UP, ROUNDS = 1_000_000, 2_000_000, 5
BAR = 50.0  # microseconds at p99.99


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
    """The floor: an await of nothing, with a turn of the loop after each thousand."""

    def __init__(self) -> None:
        self.left = 1000

    async def next_id(self) -> None:
        """Return nothing."""
        self.left -= 1
        if not self.left:
            self.left = 1000
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


async def ask() -> Answer:
    """Time awaits of a greedy task: ours on slow stores and on Valkey, and what others do."""
    found: dict[str, list[dict[str, float]]] = {}
    with valkey() as url:
        client = redis.asyncio.from_url(url)
        for _ in range(ROUNDS):
            for latency in (0.005, 0.05):
                name = f"SegmentChainId, {latency * 1000:g} ms store"
                async with SegmentChainId(SlowDistributor(latency)) as chain:
                    for _ in range(WARM_UP):
                        await chain.next_id()
                    found.setdefault(name, []).append(await sample(chain.next_id, N))
            async with SegmentChainId(RedisStore(client).segment_distributor(name="q05")) as chain:
                for _ in range(WARM_UP):
                    await chain.next_id()
                found.setdefault("SegmentChainId, Valkey", []).append(
                    await sample(chain.next_id, N)
                )
            found.setdefault("nothing, a turn of the loop each 1000", []).append(
                await sample(Nothing().next_id, N)
            )
            async with SegmentId(SlowDistributor(0.005)) as segment:
                found.setdefault("SegmentId, 5 ms store", []).append(
                    await sample(segment.next_id, N // 10)
                )
            async with SegmentId(RedisStore(client).segment_distributor(name="q05s")) as segment:
                found.setdefault("SegmentId, Valkey", []).append(await sample(segment.next_id, N))
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
    p9999 = max(middle[f"SegmentChainId, {ms} ms store"]["p99.99"] for ms in ("5", "50"))
    return Answer(
        "Latency of single awaits of one greedy task, after warm-up",
        f"p99.99 at most {BAR:g} us",
        p9999 <= BAR,
        f"p99.99 {p9999:.1f} us. Microseconds, the two clock readings included.",
        ("generator", *names),
        tuple((name, *(f"{m[p]:,.2f}" for p in names)) for name, m in middle.items()),
        {"rounds": found},
    )
