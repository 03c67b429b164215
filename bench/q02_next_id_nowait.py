"""What does an id cost that is taken without awaiting?"""

from __future__ import annotations

from aiocosid import SegmentChainId
from aiocosid.errors import WouldBlock
from aiocosid.stores.memory import MemoryStore

from ._harness import SHORT_ROUNDS, Answer, Empty, beside, ratio

N = 100_000
BAR = 2.5


async def ask() -> Answer:
    """Take a million ids at once, and call a million empty methods."""
    empty = Empty()
    async with SegmentChainId(MemoryStore().segment_distributor(name="bench.q02")) as chain:

        async def nothing() -> None:
            for _ in range(N):
                empty.method()

        async def take() -> None:
            for _ in range(N):
                try:
                    chain.next_id_nowait()
                except WouldBlock:
                    raise AssertionError("the memory store answers at once") from None

        floor, ours = await beside(nothing, take, SHORT_ROUNDS)
    found = ratio(ours, floor)
    return Answer(
        "`next_id_nowait()` against calling an empty method",
        f"at most {BAR}",
        found <= BAR,
        f"Ratio {found:.2f}.",
        raw={"ratio": found, "seconds": ours, "floor_seconds": floor, "n": N},
    )
