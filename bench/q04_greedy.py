"""Does a consumer that never suspends starve its own prefetcher?  What does it leave behind?"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from aiocosid import SegmentChainId
from aiocosid.stores.memory import MemoryStore

from ._harness import Answer, SlowDistributor, timed

N, WARM_UP = 20_000_000, 2_000_000
ROUNDS = 3
BUSY = 20  # seconds, after which the distance has to come back to rest
FULL = 2_000_000  # ids of a full chain, beside each round
DEFAULT = 60.0  # seconds of endurance; the bars are those of a chain without it
BAR = 1.3
TRIPS_BAR = 100
COSID_RESERVED = "52-67 million reserved for 20 million used"


async def take(chain: SegmentChainId, n: int, tasks: int) -> None:
    """Take n ids in tight loops."""

    async def loop(count: int) -> None:
        for _ in range(count):
            await chain.next_id()

    if tasks == 1:
        await loop(n)
    else:
        await asyncio.gather(*(loop(n // tasks) for _ in range(tasks)))


async def full_chain(tasks: int) -> float:
    """Return seconds for an id of a chain that is never short."""
    distributor = MemoryStore().segment_distributor(name="full")
    async with SegmentChainId(distributor) as chain:
        return await timed(lambda: take(chain, FULL, tasks)) / FULL


async def measure(latency: float, tasks: int, n: int, endurance: float) -> dict[str, Any]:
    """Take n ids from a store of this latency."""
    full = await full_chain(tasks)
    distributor = SlowDistributor(latency)
    async with SegmentChainId(distributor, endurance=endurance) as chain:
        await take(chain, WARM_UP, tasks)
        warm, calls = chain.statistics(), distributor.calls
        rest = n - WARM_UP
        seconds = await timed(lambda: take(chain, rest, tasks))
        end = chain.statistics()
    rate_x_latency = rest / seconds * latency
    return {
        "latency": latency,
        "tasks": tasks,
        "endurance": endurance,
        "n": n,
        "starvations_warm": warm.starvations,
        "starvations_after": end.starvations - warm.starvations,
        "per_id_x_full": seconds / rest / full,
        "in_hand": end.remaining,
        "in_hand_bar": 3 * rate_x_latency + end.safe_distance * end.step,
        "reserved": end.ids_fetched,
        "trips_per_million": (distributor.calls - calls) / rest * 1e6,
        "distance": end.prefetch_distance,
    }


async def busy_then_quiet(latency: float) -> dict[str, Any]:
    """Take ids for a while, then wait for the distance to come back to rest."""
    distributor = SlowDistributor(latency)
    async with SegmentChainId(distributor, endurance=0) as chain:
        await take(chain, WARM_UP, 1)
        warm = chain.statistics()
        until = time.perf_counter() + BUSY
        while time.perf_counter() < until:
            await take(chain, 100_000, 1)
        busy = chain.statistics()
        quiet_since = time.perf_counter()
        while chain.statistics().prefetch_distance > busy.safe_distance:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.5)
        quiet = time.perf_counter() - quiet_since
        # What is in hand is used up before anything is bought again.
        calls = distributor.calls
        while chain.statistics().remaining > busy.safe_distance * busy.step:
            await chain.next_ids(100)
        bought = distributor.calls - calls
        end = chain.statistics()
    return {
        "latency": latency,
        "ids": busy.ids_handed_out,
        "starvations_after": busy.starvations - warm.starvations,
        "distance_busy": busy.prefetch_distance,
        "in_hand_busy": busy.remaining,
        "seconds_to_rest": quiet,
        "distance_at_rest": end.prefetch_distance,
        "in_hand_at_rest": end.remaining,
        "bought_on_the_way": bought,
    }


async def ask() -> Answer:
    """Take 20 million ids at 5 and 50 ms, with 1 and 1000 tasks, several rounds; then rest."""
    cases = [
        (latency, tasks, endurance)
        for latency in (0.005, 0.05)
        for tasks in (1, 1000)
        for endurance in (0.0, DEFAULT)
    ]
    runs = {
        case: [await measure(case[0], case[1], N, case[2]) for _ in range(ROUNDS)] for case in cases
    }
    rests = [await busy_then_quiet(0.005), await busy_then_quiet(0.05)]
    rows: list[tuple[Any, ...]] = []
    reached = True
    for (latency, tasks, endurance), these in runs.items():

        def mid(key: str, these: list[dict[str, Any]] = these) -> float:
            return float(statistics.median(r[key] for r in these))

        starved = max(r["starvations_after"] for r in these)
        fits = mid("in_hand") <= mid("in_hand_bar")
        trips_fit = latency > 0.005 or mid("trips_per_million") <= TRIPS_BAR
        if not endurance:
            reached &= starved == 0 and mid("per_id_x_full") <= BAR and fits and trips_fit
        rows.append(
            (
                f"{latency * 1000:g} ms",
                tasks,
                f"{endurance:g} s",
                starved,
                f"{mid('per_id_x_full'):.2f}",
                f"{mid('in_hand'):,.0f}",
                "" if endurance else f"{mid('in_hand_bar'):,.0f}",
                f"{mid('reserved') / 1e6:.2f} M",
                f"{mid('trips_per_million'):.0f}",
            )
        )
    for run in rests:
        reached &= run["starvations_after"] == 0 and run["distance_at_rest"] == 2
        rows.append(
            (
                f"{run['latency'] * 1000:g} ms, {BUSY} s",
                1,
                "0 s",
                run["starvations_after"],
                "",
                f"{run['in_hand_busy']:,} busy, {run['in_hand_at_rest']:,} at rest",
                f"at rest after {run['seconds_to_rest']:.0f} s",
                f"{run['ids'] / 1e6:.0f} M used",
                "",
            )
        )
    return Answer(
        "A greedy consumer on a store that takes 5 ms, and 50 ms: 20 million ids",
        "with `endurance=0` no starvation after 2 million, per id at most 1.3 x the full chain, "
        "in hand at most 3 x rate x latency + the safe distance, at most 100 trips a million at "
        "5 ms",
        reached,
        f"CosId on the JVM: {COSID_RESERVED}. The default `endurance` is for the record.",
        (
            "store",
            "tasks",
            "`endurance`",
            "starvations after 2 M",
            "per id / full chain",
            "ids in hand at the end",
            "bar",
            "reserved for 20 M used",
            "trips a million ids",
        ),
        tuple(rows),
        {"runs": [run for these in runs.values() for run in these], "rests": rests},
    )
