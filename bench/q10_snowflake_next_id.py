"""What does an awaited Snowflake id cost beside awaiting nothing?"""

from __future__ import annotations

from ._harness import SHORT_ROUNDS, Answer, Empty, beside, ratio
from ._snowflake import WIDE, snowflake

N = 100_000
BAR = 3.0


async def ask() -> Answer:
    """Await ids on a layout wide enough not to end, and empty coroutines."""
    empty = Empty()
    async with snowflake(layout=WIDE) as gen:

        async def nothing() -> None:
            for _ in range(N):
                await empty.coroutine()

        async def take() -> None:
            for _ in range(N):
                await gen.next_id()

        floor, ours = await beside(nothing, take, SHORT_ROUNDS)
    found = ratio(ours, floor)
    return Answer(
        "`await SnowflakeId.next_id()` against awaiting an empty `async def` method, 41/1/21 bits",
        f"at most {BAR:g}",
        found <= BAR,
        f"Ratio {found:.2f}.",
        raw={"ratio": found, "seconds": ours, "floor_seconds": floor, "n": N},
    )
