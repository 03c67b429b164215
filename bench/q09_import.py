"""What does importing the package cost?"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from ._harness import ROUNDS, Answer, ratio

DRIVERS = ("redis", "asyncpg", "aiosqlite", "sqlite3", "typer", "rich")


def seconds(code: str) -> float:
    """Return what a fresh interpreter takes for it."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code
    return time.perf_counter() - begin


async def ask() -> Answer:
    """Import it in fresh interpreters, beside anyio; look at what came along."""
    bare: list[float] = []
    anyio: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS + 4):
        bare.append(seconds("pass"))
        anyio.append(seconds("import anyio"))
        ours.append(seconds("from aiocosid import connect, SegmentChainId, SnowflakeId"))
    look = f"import sys, aiocosid; print(*(set(sys.modules) & set({DRIVERS!r})))"
    loaded = subprocess.run(  # noqa: S603, ASYNC221 - our own code, and nobody else runs
        [sys.executable, "-c", look], check=True, capture_output=True, text=True
    ).stdout.split()
    took = {
        name: statistics.median(v) * 1000
        for name, v in (("bare", bare), ("anyio", anyio), ("ours", ours))
    }
    return Answer(
        "`from aiocosid import connect, SegmentChainId, SnowflakeId`",
        "no driver loaded",
        not loaded,
        f"{took['ours'] - took['bare']:.0f} ms beside {took['anyio'] - took['bare']:.0f} ms for "
        f"`import anyio` (ratio of whole runs {ratio(ours, anyio):.2f}); "
        f"drivers loaded: {', '.join(loaded) or 'none'}.",
        raw={"bare": bare, "anyio": anyio, "aiocosid": ours, "loaded": loaded},
    )
