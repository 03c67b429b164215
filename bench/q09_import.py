"""What does importing the package cost?"""

from __future__ import annotations

import os
import subprocess
import sys

from ._harness import ROUNDS, Answer

MOST = 4.0  # times `import anyio`
DRIVERS = ("redis", "asyncpg", "aiosqlite", "sqlite3", "typer", "rich")


def seconds(code: str) -> float:
    """Return the processor's time that a fresh interpreter takes for it."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


async def ask() -> Answer:
    """Import it in fresh interpreters, beside anyio; look at what came along."""
    bare: list[float] = []
    anyio: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS * 3):
        bare.append(seconds("pass"))
        anyio.append(seconds("import anyio"))
        ours.append(seconds("from aiocosid import connect, SegmentChainId, SnowflakeId"))
    look = f"import sys, aiocosid; print(*(set(sys.modules) & set({DRIVERS!r})))"
    loaded = subprocess.run(  # noqa: S603, ASYNC221 - our own code, and nobody else runs
        [sys.executable, "-c", look], check=True, capture_output=True, text=True
    ).stdout.split()
    beside = (min(anyio) - min(bare)) * 1000
    took = (min(ours) - min(bare)) * 1000
    return Answer(
        "`from aiocosid import connect, SegmentChainId, SnowflakeId`",
        f"at most {MOST:g} times the processor's time of `import anyio`, and no driver loaded",
        took <= MOST * beside and not loaded,
        f"{took:.0f} ms beside {beside:.0f} ms for `import anyio` (ratio {took / beside:.2f}); "
        f"drivers loaded: {', '.join(loaded) or 'none'}.",
        raw={"bare": bare, "anyio": anyio, "aiocosid": ours, "loaded": loaded},
    )
