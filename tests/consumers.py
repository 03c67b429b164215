"""Processes that take ids from one store and record them, for the stress tests and the bench."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import aiocosid

BATCH = 1000  # ids between two writes to the record


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


def kill_now_and_then(
    url: str, name: str, folder: Path, *, processes: int, every: float, seconds: float
) -> int:
    """Kill a random one every now and then, and start another in its place; return how many."""
    paths = (folder / str(i) for i in range(1_000_000))
    running = [spawn(url, name, 10**9, next(paths)) for _ in range(processes)]
    until, kills = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < until:
            time.sleep(every)
            victim = running.pop(random.randrange(len(running)))  # noqa: S311 - any of them
            assert victim.exitcode is None, f"it ended by itself with {victim.exitcode}"
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            kills += 1
            running.append(spawn(url, name, 10**9, next(paths)))
    finally:
        for process in running:
            process.kill()
            process.join()
    return kills
