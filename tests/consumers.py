"""Processes that take ids from one store and record them, for the stress tests and the bench."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import aiocosid
from tests.chaos._fleet import forkserver
from tests.servers import wait_until

BATCH = 1000  # ids between two writes to the record


async def consume(url: str, name: str, n: int, path: Path) -> None:
    """Take n ids one by one and record them, as runs of consecutive ids."""
    with path.open("ab", buffering=0) as record:
        async with aiocosid.connect(url, namespace="bench") as ids:
            chain = await ids.segment_chain(name)
            while n > 0:
                taken = [await chain.next_id() for _ in range(min(BATCH, n))]
                n -= len(taken)
                record.write(runs_of(taken))


def runs_of(taken: Sequence[int]) -> bytes:
    """Return ids as lines with the first and the last one of each run."""
    runs, first, last = [], taken[0], taken[0]
    for new_id in taken[1:]:
        if new_id != last + 1:
            runs.append(f"{first} {last}\n")
            first = new_id
        last = new_id
    runs.append(f"{first} {last}\n")
    return "".join(runs).encode()


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
    process = forkserver().Process(target=work, args=(url, name, n, path))
    process.start()
    return process


def _has_taken(record: Path) -> bool:
    return record.exists() and record.stat().st_size > 0


def kill_now_and_then(
    url: str, name: str, folder: Path, *, processes: int, every: float, kills: int
) -> None:
    """Kill a random one every now and then, and start another in its place.

    The one that has run longest has taken ids by then, however slow the machine is.
    """
    paths = (folder / str(i) for i in range(1_000_000))

    def started() -> tuple[Path, BaseProcess]:
        path = next(paths)
        return path, spawn(url, name, 10**9, path)

    running = [started() for _ in range(processes)]
    try:
        for _ in range(kills):
            time.sleep(every)
            oldest, _ = running[0]
            wait_until(partial(_has_taken, oldest), "a process takes ids", deadline=60)
            _, victim = running.pop(random.randrange(len(running)))  # noqa: S311 - any of them
            assert victim.exitcode is None, f"it ended by itself with {victim.exitcode}"
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            running.append(started())
    finally:
        for _, process in running:
            process.kill()
            process.join()
