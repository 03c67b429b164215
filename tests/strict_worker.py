"""One process of several that take ids of one counter in strict order, and what they took.

Run as ``python -m tests.strict_worker URL NAMESPACE``.  It prints a line once it has made `CALLS`
calls, and the history of all as JSON when its standard input ends; the moments are nanoseconds of
the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiocosid import SegmentId, store_from_url
from tests.histories import GrantReceipt, History

__all__ = ("CALLS", "PROCESSES", "take_in_processes")

PROCESSES, TASKS = 3, 20  # of each
CALLS = 100  # of each process, at least
PAUSE = 0.005  # seconds at most, between two calls of a task
WAIT_TIMEOUT = 60.0  # seconds; a server that was killed is back by then
SIZES = (1, 1, 1, 4)  # of batches


@asynccontextmanager
async def take_in_processes(url: str, namespace: str) -> AsyncGenerator[list[GrantReceipt]]:
    """Take ids in several processes while a block runs, and give their history at its end.

    It begins when each has made `CALLS`.  All ids are different, or this raises.
    """
    ids, history = list[int](), list[GrantReceipt]()
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.strict_worker", url, namespace)
    workers = [
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(PROCESSES)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            await worker.stdout.readline()
        yield history
    finally:
        replies = await asyncio.gather(*(each.communicate(b"") for each in workers))
    for worker, (out, problems) in zip(workers, replies, strict=True):
        assert worker.returncode == 0, problems.decode()
        told = json.loads(out)
        ids += told["ids"]
        history += [GrantReceipt(*each) for each in told["calls"]]
    assert len({*ids}) == len(ids)


async def _work(url: str, namespace: str) -> History:
    history = History(time.monotonic_ns)

    async def take(generator: SegmentId) -> None:
        while not is_over.is_set():
            await history.take(generator.next_ids, random.choice(SIZES))  # noqa: S311
            if len(history.calls) == CALLS:
                sys.stdout.write("\n")
                sys.stdout.flush()
            await asyncio.sleep(random.uniform(0, PAUSE))  # noqa: S311

    is_over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, is_over.set)
    async with store_from_url(url) as store:
        counter = store.segment_distributor(namespace=namespace, name="order")
        generator = SegmentId(counter, strict=True, wait_timeout=WAIT_TIMEOUT, fetch_timeout=2)
        async with generator, asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(take(generator))
    return history


if __name__ == "__main__":
    logging.getLogger("aiocosid").setLevel(logging.CRITICAL)  # outages are what they are for
    _history = asyncio.run(_work(*sys.argv[1:]))
    sys.stdout.write(json.dumps({"calls": _history.calls, "ids": _history.ids}))
