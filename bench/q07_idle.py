"""What do a hundred thousand idle generators cost?"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import aiocosid

from ._harness import Answer

COUNT, IDLE = 100_000, 30.0
BAR = 4096  # bytes each


def resident() -> int:
    """Return the bytes that this process has in memory."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - one read
        return int(statm.read().split()[1]) * resource.getpagesize()


async def ask() -> Answer:
    """Open them in one provider, look at the memory, then do nothing for half a minute."""
    loop = asyncio.get_running_loop()
    async with aiocosid.connect("memory://", namespace="idle") as ids:
        gc.collect()
        before = resident()
        for i in range(COUNT):
            await ids.segment_chain(f"idle-{i}")
        gc.collect()
        grown = (resident() - before) / COUNT
        turns = 0
        selector: Any = vars(loop)["_selector"]  # to count wake-ups
        select = cast("Callable[[float | None], object]", selector.select)

        def counted(timeout: float | None = None) -> object:
            nonlocal turns
            turns += 1
            return select(timeout)

        selector.select = counted
        cpu = time.process_time()
        await asyncio.sleep(IDLE)
        cpu = time.process_time() - cpu
        selector.select = select
    tracemalloc.start()
    async with aiocosid.connect("memory://", namespace="idle2") as ids:
        allocated = tracemalloc.get_traced_memory()[0]
        for i in range(COUNT // 10):
            await ids.segment_chain(f"idle-{i}")
        gc.collect()
        allocated = (tracemalloc.get_traced_memory()[0] - allocated) * 10 // COUNT
    tracemalloc.stop()
    # Two turns are the bench's own: going to sleep and waking up.
    quiet = turns <= 2
    return Answer(
        f"{COUNT:,} idle generators in one provider on `memory://`",
        f"at most {BAR} bytes each; no wake-up and no CPU in {IDLE:g} s",
        grown <= BAR and quiet and cpu < 0.05,
        f"{grown:,.0f} bytes each resident, {allocated:,} allocated; in {IDLE:g} s "
        f"{max(0, turns - 2)} wake-ups and {cpu * 1000:.1f} ms of CPU.",
        raw={"resident": grown, "allocated": allocated, "turns": turns, "cpu": cpu},
    )
