"""What does an id of a batch cost beside making the list of integers?"""

from __future__ import annotations

from aiocosid import SegmentChainId
from aiocosid.stores.memory import MemoryStore

from ._harness import SHORT_ROUNDS, Answer, beside, ratio

BATCHES, SIZE, FIRST = 300, 1000, 10**12
BAR = 1.5


async def ask() -> Answer:
    """Take batches of a thousand, and make lists of a thousand with the same numbers."""
    distributor = MemoryStore().segment_distributor(name="q03", offset=FIRST)
    async with SegmentChainId(distributor) as chain:

        async def lists() -> None:
            first = FIRST
            for _ in range(BATCHES):
                list(range(first, first + SIZE))
                first += SIZE

        async def take() -> None:
            for _ in range(BATCHES):
                await chain.next_ids(SIZE)

        floor, ours = await beside(lists, take, SHORT_ROUNDS)
    found = ratio(ours, floor)
    return Answer(
        "`await next_ids(1000)` for each id against `list(range(a, a + 1000))`, a around 10^12",
        f"at most {BAR}",
        found <= BAR,
        f"Ratio {found:.2f}.",
        raw={"ratio": found, "seconds": ours, "floor_seconds": floor, "batches": BATCHES},
    )
