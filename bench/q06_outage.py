"""How much of an outage does a consumer notice?"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiocosid import CosIdError, SegmentChainId, SegmentId
from aiocosid.abc import IdGenerator
from aiocosid.errors import StoreUnavailableError

from ._harness import Answer, SlowDistributor

OUTAGES, RATES = (1.0, 10.0, 60.0), (10, 100, 1000)
WARM_UP = 3.0  # seconds
LATE = 0.1  # seconds; a call that takes longer has noticed something


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
        "seconds_left_before": before.seconds_left,
        "recovered": after > 0,
    }


async def ask() -> Answer:
    """Break stores for 1, 10 and 60 s at three rates, chain beside `SegmentId`, side by side."""
    runs = await asyncio.gather(
        *(
            one(kind, rate, outage)
            for rate in RATES
            for outage in OUTAGES
            for kind in (SegmentChainId, SegmentId)
        )
    )
    rows = tuple(
        (
            f"{run['outage']:g} s",
            f"{run['rate']:,}/s",
            run["kind"],
            f"{run['at_once']:.1%}",
            f"{run['late']:.1%}",
            f"{run['failed']:.1%}",
            "" if run["seconds_left_before"] is None else f"{run['seconds_left_before']:.2f} s",
        )
        for run in runs
    )
    return Answer(
        "The store is down: what share of calls is served?",
        "",
        None,
        "Default settings (step 1000, safe distance 2, waits of at most 5 s); "
        "a larger safe distance is what buys time.",
        (
            "outage",
            "rate",
            "generator",
            "served at once",
            "served late",
            "failed",
            "`seconds_left` just before",
        ),
        rows,
        {"runs": runs},
    )
