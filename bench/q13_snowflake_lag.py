"""How long is the event loop kept from others while many wait for a tick, or for the clock?"""

from __future__ import annotations

import asyncio
import time

from aiocosid._life.clock import SystemClock
from aiocosid.snowflake import SnowflakeLayout

from ._harness import Answer
from ._snowflake import EPOCH, snowflake

TASKS, SECONDS, BACK = 100, 2.0, 1.0
BAR = 0.020
TIGHT = SnowflakeLayout(41, 10, 2, "ms", EPOCH)  # four ids a millisecond


class SteppingClock(SystemClock):
    """The system's clock, moved by some seconds."""

    def __init__(self) -> None:
        self.moved_ns = 0

    def now_ms(self) -> int:
        """Return the moved time."""
        return (time.time_ns() + self.moved_ns) // 1_000_000

    def wall_reader(self):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as the base's
        """Return what reads the moved time."""
        return lambda: time.time_ns() + self.moved_ns


async def longest_lag(until: float) -> float:
    """Return by how much a sleep of a millisecond overshot at most, beyond the timer's own."""
    longest = 0.0
    while (now := time.perf_counter()) < until:
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - now - 0.001)
    return longest


async def measure(*, back: bool) -> tuple[float, int, int]:
    """Let a hundred tasks take ids; returns the lag, and how many ids and different ids."""
    clock = SteppingClock()
    ids: list[int] = []
    async with snowflake(layout=TIGHT, clock=clock) as gen:
        end = time.perf_counter() + SECONDS

        async def take() -> None:
            while time.perf_counter() < end:
                ids.append(await gen.next_id())

        tasks = [asyncio.create_task(take()) for _ in range(TASKS)]
        await asyncio.sleep(0.1)
        if back:
            clock.moved_ns = -int(BACK * 1e9)
        lag = await longest_lag(end)
        await asyncio.gather(*tasks)
    return lag, len(ids), len(set(ids))


async def ask() -> Answer:
    """Four ids a millisecond for a hundred tasks; and the same with a clock that went back 1 s."""
    ticks, clock = await measure(back=False), await measure(back=True)
    repeats = ticks[1] - ticks[2] + clock[1] - clock[2]
    longest = max(ticks[0], clock[0])
    return Answer(
        f"Loop lag while {TASKS} tasks wait for ticks, or for a clock that went back {BACK:g} s",
        f"under {BAR * 1000:g} ms",
        longest < BAR and repeats == 0,
        f"At most {longest * 1000:.1f} ms; {repeats} ids twice.",
        ("waiting for", "longest lag", "ids"),
        (
            ("ticks", f"{ticks[0] * 1000:.1f} ms", f"{ticks[1]:,}"),
            ("the clock", f"{clock[0] * 1000:.1f} ms", f"{clock[1]:,}"),
        ),
        {"ticks": ticks, "clock": clock},
    )
