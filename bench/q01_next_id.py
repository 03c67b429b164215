"""What does an awaited id cost beside awaiting nothing?"""

from __future__ import annotations

import aiocosid
from aiocosid.abc.events import Event

from ._harness import SHORT_ROUNDS, Answer, Empty, beside, ratio

N = 100_000
BAR = 1.45


class Counting:
    """An instrument that does the least."""

    def __init__(self) -> None:
        self.events = 0

    def on_event(self, _event: Event, /) -> None:
        """Count."""
        self.events += 1


async def ask() -> Answer:
    """Await a million ids from ``connect("memory://")``, and a million empty coroutines."""
    empty = Empty()
    instrument = Counting()
    async with aiocosid.connect("memory://", namespace="bench", instrument=instrument) as ids:
        chain = await ids.segment_chain("q01")

        async def nothing() -> None:
            for _ in range(N):
                await empty.coroutine()

        async def take() -> None:
            for _ in range(N):
                await chain.next_id()

        floor, ours = await beside(nothing, take, SHORT_ROUNDS)
        handed_out = chain.statistics().ids_handed_out
    assert handed_out == SHORT_ROUNDS * N, "the statistics count every id"
    found = ratio(ours, floor)
    return Answer(
        "`await gen.next_id()` against awaiting an empty `async def` method",
        f"at most {BAR}",
        found <= BAR,
        f"Ratio {found:.2f}.",
        raw={
            "ratio": found,
            "seconds": ours,
            "floor_seconds": floor,
            "n": N,
            "events": instrument.events,
        },
    )
