"""How close do batches come to what the layout holds?"""

from __future__ import annotations

import statistics
import time

from ._harness import ROUNDS, Answer, timed
from ._snowflake import snowflake

N, BATCH = 4_096_000, 4096
CEILING = 4_096_000  # ids a second: 4096 a millisecond
BAR = 4.0e6


async def ask() -> Answer:
    """Take batches of one tick's ids for a second, several times."""
    rates: list[float] = []
    shares: list[float] = []
    async with snowflake() as gen:

        async def take() -> None:
            for _ in range(N // BATCH):
                await gen.next_ids(BATCH)

        for _ in range(ROUNDS):
            cpu = time.process_time()
            seconds = await timed(take)
            rates.append(N / seconds)
            shares.append((time.process_time() - cpu) / seconds)
    rate, share = statistics.median(rates), statistics.median(shares)
    return Answer(
        f"`await SnowflakeId.next_ids({BATCH})` without a pause, 41/10/12 bits",
        f"at least {BAR / 1e6:g} million ids a second, of {CEILING / 1e6:g} million in the layout",
        rate >= BAR,
        f"{rate / 1e6:.2f} million ids a second ({rate / CEILING:.1%}), {share:.0%} CPU.",
        raw={"rates": rates, "cpu": shares, "n": N},
    )
