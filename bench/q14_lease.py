"""How many renewals do ten generators of one process cost?"""

from __future__ import annotations

import asyncio

from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from ._harness import Answer

GENERATORS, MINUTES = 10, 60
BAR = 1.12  # a minute; each interval is up to a tenth shorter, so that processes are not in step


async def ask() -> Answer:
    """Hold ten generators on one distributor for an hour of a clock that is advanced."""
    clock = ManualClock()
    distributor = MemoryStore(clock=clock).machine_id_distributor(namespace="bench")
    gens = [SnowflakeId(distributor, name=f"g{n}", clock=clock) for n in range(GENERATORS)]
    async with asyncio.TaskGroup():
        for gen in gens:
            await gen.__aenter__()
        before = gens[0].statistics().machine.renewals
        await clock.advance(60.0 * MINUTES)
        renewals = gens[0].statistics().machine.renewals - before
        for gen in gens:
            await gen.aclose()
    rate = renewals / MINUTES
    return Answer(
        f"Lease renewals a minute, {GENERATORS} generators in one process",
        "one (intervals of 54 to 60 s, so that processes are not in step)",
        rate <= BAR,
        f"{rate:.2f} a minute for all of them.",
        raw={"renewals": renewals, "minutes": MINUTES},
    )
