"""One process of several that take ids of one counter in strict order, and what they took.

Run as ``python -m tests.strict_worker URL NAMESPACE SECONDS TASKS``.  It prints the history of its
calls as JSON; the moments are nanoseconds of the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time

from aiocosid import SegmentId, open_store
from tests.histories import History, Taken

__all__ = ("take_in_processes",)

PAUSE = 0.005  # seconds at most, between two calls of a task
WAIT_TIMEOUT = 60.0  # seconds; a server that was killed is back by then
SIZES = (1, 1, 1, 4)  # of batches


async def take_in_processes(
    url: str, namespace: str, *, seconds: float, processes: int = 3, tasks: int = 20
) -> list[Taken]:
    """Return the history of several processes; ids are different, or this raises."""
    command = (sys.executable, "-m", "tests.strict_worker", url, namespace, f"{seconds}")
    workers = [
        await asyncio.create_subprocess_exec(
            *command, f"{tasks}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(processes)
    ]
    replies = await asyncio.gather(*(each.communicate() for each in workers))
    ids, history = list[int](), list[Taken]()
    for worker, (out, problems) in zip(workers, replies, strict=True):
        assert worker.returncode == 0, problems.decode()
        told = json.loads(out)
        ids += told["ids"]
        history += [Taken(*each) for each in told["calls"]]
    assert len({*ids}) == len(ids)
    return history


async def _work(url: str, namespace: str, seconds: float, tasks: int) -> History:
    history = History(time.monotonic_ns)
    end = time.monotonic() + seconds

    async def take(generator: SegmentId) -> None:
        while time.monotonic() < end:
            await history.take(generator.next_ids, random.choice(SIZES))  # noqa: S311
            await asyncio.sleep(random.uniform(0, PAUSE))  # noqa: S311

    async with open_store(url) as store:
        counter = store.segment_distributor(namespace=namespace, name="order")
        generator = SegmentId(counter, strict=True, wait_timeout=WAIT_TIMEOUT, fetch_timeout=2)
        async with generator, asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(take(generator))
    return history


if __name__ == "__main__":
    logging.getLogger("aiocosid").setLevel(logging.CRITICAL)  # outages are what they are for
    _url, _namespace, _seconds, _tasks = sys.argv[1:]
    _history = asyncio.run(_work(_url, _namespace, float(_seconds), int(_tasks)))
    sys.stdout.write(json.dumps({"calls": _history.calls, "ids": _history.ids}))
