"""How much of an outage does a consumer notice, and what does that cost?"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiocosid import CosIdError, SegmentChainId, SegmentId
from aiocosid.abc import IdGenerator
from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock
from aiocosid.testing import SlowDistributor as TimedDistributor

from ._harness import Answer, SlowDistributor

OUTAGES, RATES = (10.0, 60.0), (10, 100, 1000, 10_000, 100_000)
PLAIN_RATES = (10, 100, 1000)  # of `SegmentId`, for the record; its callers wait, each in a task
WARM_UP = 6.0  # seconds: the rate is taken over two to four of them
LATE = 0.1  # seconds; a call that takes longer has noticed something

TICK = 0.005  # seconds of a clock that the bench advances
MILLION, STEADY, TRIPS_BAR = 1_000_000, 1000, 50
JUMP_STEP, JUMP_RATE, JUMP_LATENCY = 100, 1000, 0.05
BURST_RATE, BURST = 100_000, 0.05
LEAST_BETWEEN, BETWEEN = 10, 10.0


class Breakable(SlowDistributor):
    """A store of 5 ms that can be down."""

    def __init__(self, name: str) -> None:
        super().__init__(0.005, name=name)
        self.down = False

    async def next_max_id(self, step: int) -> int:
        """Answer, or refuse as a closed port does."""
        if self.down:
            await asyncio.sleep(0)
            raise StoreUnavailableError(self.store, "connection refused")
        return await super().next_max_id(step)


class Load:
    """Calls at a fixed rate, and what became of them."""

    def __init__(self, generator: IdGenerator, rate: int) -> None:
        self.generator, self.rate = generator, rate
        self.at_once = self.late = self.failed = 0
        self.calls: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Call for that long; slow callers do not hold back the next ones."""
        begin, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - begin) < seconds:
            due = int(now * self.rate)
            for _ in range(due - sent):
                self.one()
            sent = due
            await asyncio.sleep(0.005)
        await asyncio.gather(*self.calls)

    def one(self) -> None:
        """Make one call; a task only for the one that has to wait."""
        try:
            self.generator.next_id_nowait()
        except CosIdError:
            task = asyncio.create_task(self.wait())
            self.calls.add(task)
            task.add_done_callback(self.calls.discard)
        else:
            self.at_once += 1

    async def wait(self) -> None:
        """Wait as a caller does."""
        begin = time.perf_counter()
        try:
            await self.generator.next_id()
        except CosIdError:
            self.failed += 1
        else:
            if time.perf_counter() - begin > LATE:
                self.late += 1
            else:
                self.at_once += 1


async def one(kind: type[SegmentChainId | SegmentId], rate: int, outage: float) -> dict[str, Any]:
    """Break the store under one generator."""
    distributor = Breakable(f"{kind.__name__}{rate}")
    async with kind(distributor) as generator:
        await Load(generator, rate).run(WARM_UP)
        before = generator.statistics()
        distributor.down = True
        load = Load(generator, rate)

        async def mend() -> None:
            await asyncio.sleep(outage)
            distributor.down = False

        await asyncio.gather(mend(), load.run(outage))
        after = await generator.next_id()
    calls = load.at_once + load.late + load.failed
    return {
        "kind": kind.__name__,
        "rate": rate,
        "outage": outage,
        "calls": calls,
        "at_once": load.at_once / calls,
        "late": load.late / calls,
        "failed": load.failed / calls,
        "in_hand_before": before.remaining,
        "seconds_left_before": before.seconds_left,
        "recovered": after > 0,
    }


class Simulated:
    """A chain on a clock that the bench advances: half an hour of it takes seconds."""

    def __init__(self, *, step: int = 1000, latency: float = 0.005, **options: float) -> None:
        self.clock = ManualClock()
        inner = MemoryStore().segment_distributor(name="simulated", step=step)
        self.store = TimedDistributor(inner, latency=latency, clock=self.clock)
        self.chain = SegmentChainId(self.store, clock=self.clock, **options)  # type: ignore[arg-type]
        self.longest = 0.0
        self.calls: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the chain; the clock is advanced for its first call."""
        opening = asyncio.ensure_future(self.chain.__aenter__())
        while not opening.done():
            await self.clock.advance(TICK)
        await opening

    async def close(self) -> None:
        """Wait for the callers, and close."""
        while self.calls:
            await self.clock.advance(TICK)
        await self.chain.aclose()

    async def load(self, rate: float, seconds: float, tick: float = TICK) -> None:
        """Take ids at an even rate, a batch for each tick; slow callers hold back nobody."""
        taken = 0
        for turn in range(1, round(seconds / tick) + 1):
            due = round(turn * tick * rate)
            if due > taken:
                task = asyncio.create_task(self._take(due - taken))
                self.calls.add(task)
                task.add_done_callback(self.calls.discard)
            taken = due
            await self.clock.advance(tick)

    async def _take(self, count: int) -> None:
        begin = self.clock.monotonic()
        await self.chain.next_ids(count)
        self.longest = max(self.longest, self.clock.monotonic() - begin)


async def trips(endurance: float) -> int:
    """Count the calls to the store for a million ids, after a minute."""
    simulated = Simulated(endurance=endurance)
    await simulated.open()
    await simulated.load(STEADY, 60.0, tick=0.05)
    before = simulated.store.calls
    await simulated.load(STEADY, MILLION / STEADY, tick=0.05)
    await simulated.close()
    return simulated.store.calls - before


async def jump(endurance: float) -> float:
    """Return how long a caller waits at most when the rate jumps tenfold, in trips."""
    simulated = Simulated(endurance=endurance, step=JUMP_STEP, latency=JUMP_LATENCY)
    await simulated.open()
    await simulated.load(JUMP_RATE, 30.0)
    simulated.longest = 0.0
    await simulated.load(JUMP_RATE * 10, 10.0)
    await simulated.close()
    return simulated.longest / JUMP_LATENCY


async def burst(endurance: float) -> int:
    """Return how many ids are in hand at most after bursts on a low rate."""
    simulated, most = Simulated(endurance=endurance), 0
    await simulated.open()
    await simulated.load(LEAST_BETWEEN, 30.0)
    for _ in range(5):
        await simulated.load(BURST_RATE, BURST)
        await simulated.load(LEAST_BETWEEN, BETWEEN)
        most = max(most, simulated.chain.statistics().remaining)
    await simulated.close()
    return most


async def ask() -> Answer:
    """Break stores for 10 and 60 s at five rates, all side by side; then trips and bursts."""
    runs = await asyncio.gather(
        *(one(SegmentChainId, rate, outage) for rate in RATES for outage in OUTAGES),
        *(one(SegmentId, rate, outage) for rate in PLAIN_RATES for outage in OUTAGES),
    )
    rows: list[tuple[Any, ...]] = [
        (
            f"{run['outage']:g} s",
            f"{run['rate']:,}/s",
            run["kind"],
            f"{run['at_once']:.1%}",
            f"{run['late']:.1%}",
            f"{run['failed']:.1%}",
            f"{run['in_hand_before']:,}",
            "" if run["seconds_left_before"] is None else f"{run['seconds_left_before']:.2f} s",
        )
        for run in runs
    ]
    costs = [
        {
            "endurance": endurance,
            "trips": await trips(endurance),
            "jump": await jump(endurance),
            "burst": await burst(endurance),
        }
        for endurance in (60.0, 0.0)
    ]
    headline = "Default settings (step 1000, an endurance of 60 s). " + " ".join(
        f"With `endurance={each['endurance']:g}`: {each['trips']} trips to the store for a million "
        f"ids at {STEADY:,}/s after the first minute; a rate that jumps tenfold makes a caller "
        f"wait for {each['jump']:.1f} trips at most; after bursts of {BURST * 1000:g} ms at "
        f"{BURST_RATE:,}/s on {LEAST_BETWEEN}/s at most {each['burst']:,} ids are in hand."
        for each in costs
    )
    chains = [run for run in runs if run["kind"] == SegmentChainId.__name__]
    return Answer(
        "The store is down: what share of calls is served?",
        f"a chain serves 100 % at once, and takes at most {TRIPS_BAR} trips for the million",
        all(run["at_once"] == 1 for run in chains) and costs[0]["trips"] <= TRIPS_BAR,
        headline,
        (
            "outage",
            "rate",
            "generator",
            "served at once",
            "served late",
            "failed",
            "ids in hand just before",
            "`seconds_left`",
        ),
        tuple(rows),
        {"runs": runs, "costs": costs},
    )
