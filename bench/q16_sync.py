"""What does an id cost a thread, and do eight threads share a generator?"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from aiocosid import sync

from ._harness import ROUNDS, SHORT_ROUNDS, Answer, ratio, timed

BATCH = 200_000  # in hand while the floor is measured next to it
N = 100_000
THREADS = 8
BAR = 6.0


class One:
    """The language's floor: a method that returns a number."""

    def next_id(self) -> int:
        """Return it."""
        return 1


def take(generator: sync.SyncIdGenerator[int] | One) -> list[int]:
    """Call it so often that a thread has its share."""
    return [generator.next_id() for _ in range(N // THREADS)]


async def in_hand(ids: sync.SyncIdProvider) -> tuple[float, dict[str, list[float]]]:
    """Take ids in hand, beside calling a method that does nothing."""
    floor, ours = One(), ids.segment_chain("hand", step=BATCH, batch=BATCH)

    async def call() -> None:
        for _ in range(N):
            floor.next_id()

    async def take_one_by_one() -> None:
        # It runs on an event loop: a refill in here would raise.
        for _ in range(N):
            ours.next_id()

    left, calls, times = 0, list[float](), list[float]()
    for _ in range(SHORT_ROUNDS):
        if left < N:
            await asyncio.to_thread(ours.next_ids, left + 1)
            left = BATCH - 1
        calls.append(await timed(call))
        times.append(await timed(take_one_by_one))
        left -= N
    return ratio(times, calls), {"seconds": times, "floor_seconds": calls}


def together(ids: sync.SyncIdProvider) -> dict[str, list[float]]:
    """Take ids with one thread, with eight, and with batches of ten times the size."""
    seconds: dict[str, list[float]] = {}
    for batch in (1000, 10_000):
        generator = ids.segment_chain(f"together-{batch}", step=batch, batch=batch)
        for threads in (1, THREADS):
            found: list[int] = []
            times = seconds[f"{threads} thread{'s' * (threads > 1)}, batch {batch}"] = []
            for _ in range(ROUNDS):
                with ThreadPoolExecutor(threads) as pool:
                    begin = time.perf_counter()
                    for each in pool.map(take, [generator] * THREADS):
                        found += each
                    times.append(time.perf_counter() - begin)
            assert len(set(found)) == len(found) == ROUNDS * (N // THREADS) * THREADS
    return seconds


async def ask() -> Answer:
    """Take ids in hand, and then with the refills, by one thread and by eight."""
    ids = sync.connect("memory://", namespace="bench")
    try:
        found, raw = await in_hand(ids)
        seconds = await asyncio.to_thread(together, ids)
    finally:
        await asyncio.to_thread(ids.close)
    rows = tuple(
        (how, f"{N / sorted(times)[len(times) // 2] / 1e6:.2f} M") for how, times in seconds.items()
    )
    return Answer(
        "`SyncIdGenerator.next_id()` with ids in hand, against a plain method call",
        f"at most {BAR:g}; no duplicate",
        found <= BAR,
        f"Ratio {found:.2f}; no id twice. With refills from a store in memory:",
        ("threads and batch", "ids/s"),
        rows,
        raw={"ratio": found, **raw, "together_seconds": seconds, "n": N},
    )
