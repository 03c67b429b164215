"""Several processes on one store: is an id ever handed out twice, even if they are killed?"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import aiocosid
from tests.consumers import kill_now_and_then, overlaps, spawn

from ._harness import Answer
from ._servers import postgres, valkey

TOTAL = 10_000_000
COUNTS = (1, 2, 8)
KILL_EVERY, KILLS = 0.2, 50  # seconds


def together(url: str, name: str, processes: int) -> dict[str, Any]:
    """Let them take ten million ids in all."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        started = [
            spawn(url, name, TOTAL // processes, Path(folder, str(i))) for i in range(processes)
        ]
        for process in started:
            process.join()
        seconds = time.perf_counter() - begin
        assert all(process.exitcode == 0 for process in started)
        count, twice = overlaps(Path(folder))
    assert count == TOTAL // processes * processes
    return {"processes": processes, "ids": count, "twice": twice, "per_second": count / seconds}


def killed(url: str, name: str) -> dict[str, Any]:
    """Kill a random one of eight every fifth of a second, and start another in its place."""
    with tempfile.TemporaryDirectory() as folder:
        kill_now_and_then(url, name, Path(folder), processes=8, every=KILL_EVERY, kills=KILLS)
        count, twice = overlaps(Path(folder))
    return {"processes": "8, killed", "ids": count, "twice": twice, "kills": KILLS}


async def ask() -> Answer:
    """Ask it of Valkey, PostgreSQL and a SQLite file."""
    runs: list[dict[str, Any]] = []
    with valkey() as redis_url, postgres() as postgres_url, tempfile.TemporaryDirectory() as folder:
        stores = {
            "Valkey": redis_url,
            "PostgreSQL": postgres_url,
            "SQLite": f"sqlite:///{folder}/ids.db",
        }
        for url in (postgres_url, stores["SQLite"]):
            async with aiocosid.store_from_url(url) as store:
                await store.create_schema()
        affinity = os.sched_getaffinity(0)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # processes may use all cores
        for store_name, url in stores.items():
            for processes in COUNTS:
                found = await asyncio.to_thread(together, url, f"q08-{processes}", processes)
                runs.append({"store": store_name, **found})
            found = await asyncio.to_thread(killed, url, "q08-killed")
            runs.append({"store": store_name, **found})
        os.sched_setaffinity(0, affinity)
    twice = sum(run["twice"] for run in runs)
    rows = tuple(
        (
            run["store"],
            run["processes"],
            f"{run['ids']:,}",
            run["twice"],
            f"{run['per_second']:,.0f}" if "per_second" in run else f"{run['kills']} kills",
        )
        for run in runs
    )
    return Answer(
        "1, 2 and 8 processes on one store, 10 million ids in all; kill -9 every 0.2 s",
        "zero duplicates",
        twice == 0,
        f"{twice} duplicates. Starting the interpreters is included; the server shares the cores.",
        ("store", "processes", "ids", "handed out twice", "ids a second"),
        rows,
        {"runs": runs},
    )
