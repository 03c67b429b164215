"""Several processes on one store: is an id ever handed out twice, even if they are killed?"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import aiocosid

from ._harness import Answer
from ._servers import postgres, valkey

TOTAL = 10_000_000
BATCH = 1000
COUNTS = (1, 2, 8)
KILL_EVERY, KILL_FOR = 0.2, 20.0  # seconds


async def consume(url: str, name: str, n: int, path: Path) -> None:
    """Take n ids one by one and record them, as runs of consecutive ids."""
    with path.open("ab", buffering=0) as record:
        async with aiocosid.connect(url, namespace="bench") as ids:
            chain = await ids.segment_chain(name)
            while n > 0:
                taken = [await chain.next_id() for _ in range(min(BATCH, n))]
                n -= len(taken)
                runs, first, last = [], taken[0], taken[0]
                for new_id in taken[1:]:
                    if new_id != last + 1:
                        runs.append(f"{first} {last}\n")
                        first = new_id
                    last = new_id
                runs.append(f"{first} {last}\n")
                record.write("".join(runs).encode())


def work(url: str, name: str, n: int, path: Path) -> None:
    """Run in a process of its own."""
    asyncio.run(consume(url, name, n, path))


def overlaps(folder: Path) -> tuple[int, int]:
    """Return how many ids were recorded, and how many of them twice."""
    runs = sorted(
        tuple(map(int, line.split()))
        for path in folder.iterdir()
        for line in path.read_text().splitlines()
        if line.count(" ") == 1  # a killed process may leave half a line
    )
    count = twice = end = 0
    for first, last in runs:
        count += last - first + 1
        twice += max(0, min(end, last) - first + 1)
        end = max(end, last)
    return count, twice


def spawn(url: str, name: str, n: int, path: Path) -> BaseProcess:
    """Start one consumer."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(url, name, n, path))
    process.start()
    return process


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
        paths = (Path(folder, str(i)) for i in range(10_000))
        running = [spawn(url, name, TOTAL, next(paths)) for _ in range(8)]
        until, kills = time.perf_counter() + KILL_FOR, 0
        while time.perf_counter() < until:
            time.sleep(KILL_EVERY)
            victim = running.pop(random.randrange(len(running)))
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            kills += 1
            running.append(spawn(url, name, TOTAL, next(paths)))
        for process in running:
            process.kill()
            process.join()
        count, twice = overlaps(Path(folder))
    return {"processes": "8, killed", "ids": count, "twice": twice, "kills": kills}


async def ask() -> Answer:
    """Ask it of Valkey, PostgreSQL and a SQLite file."""
    runs: list[dict[str, Any]] = []
    with valkey() as redis_url, postgres() as postgres_url, tempfile.TemporaryDirectory() as folder:
        async with aiocosid.open_store(postgres_url) as store:
            await store.create_schema()
        stores = {
            "Valkey": redis_url,
            "PostgreSQL": postgres_url,
            "SQLite": f"sqlite:///{folder}/ids.db",
        }
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
