"""One broker for sixteen processes: nothing repeats, however often it is killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import aiocosid
from aiocosid.abc import IdGenerator
from tests.chaos._fleet import forkserver
from tests.consumers import BATCH, overlaps, runs_of
from tests.servers import Broker, wait_until

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(300)]

WORKERS = 16
KINDS = ("order", "event")  # a chain of the broker, and its Snowflake
PATIENCE = 30.0  # seconds; a start takes some while sixteen processes run at full speed


async def work(url: str, namespace: str, folder: Path, number: int) -> None:
    """Take ids of both kinds at full speed until told to stop; write down the longest wait.

    A caller who waited longer than it has patience would end it with an error.
    """
    longest = 0.0

    async def take(generator: IdGenerator, kind: str) -> None:
        nonlocal longest
        with (folder / kind / str(number)).open("ab", buffering=0) as record:
            while not (folder / "stop").exists():
                began, taken = time.monotonic(), list[int]()
                for _ in range(BATCH):
                    taken.append(await generator.next_id())
                record.write(runs_of(taken))
                longest = max(longest, time.monotonic() - began)
                await asyncio.sleep(0)

    async with aiocosid.connect(url, namespace=namespace) as ids:
        order = await ids.segment_chain("order", wait_timeout=PATIENCE)
        event = await ids.remote("event", wait_timeout=PATIENCE)
        await asyncio.gather(take(order, "order"), take(event, "event"))
    (folder / "waits" / str(number)).write_text(str(longest))


def run(url: str, namespace: str, folder: Path, number: int) -> None:
    """Run in a process of its own."""
    asyncio.run(work(url, namespace, folder, number))


@pytest.fixture
def broker(namespace: str) -> Iterator[Broker]:
    with Broker(namespace) as broker:
        yield broker


def spawn(broker: Broker, folder: Path, number: int) -> BaseProcess:
    process = forkserver().Process(target=run, args=(broker.url, broker.namespace, folder, number))
    process.start()
    return process


@pytest.mark.parametrize(
    "kills", [pytest.param(2, id="2 kills"), pytest.param(10, marks=pytest.mark.nightly)]
)
def test_nothing_repeats(
    broker: Broker, tmp_path: Path, kills: int, record_property: Callable[[str, object], None]
) -> None:
    """Workers go on with what they have, then wait within their deadlines; one machine id."""
    for each in (*KINDS, "waits"):
        (tmp_path / each).mkdir()
    running = [spawn(broker, tmp_path, number) for number in range(WORKERS)]
    records = [tmp_path / kind / str(number) for kind in KINDS for number in range(WORKERS)]
    try:
        wait_until(
            lambda: all(path.exists() and path.stat().st_size for path in records),
            "all workers take ids",
            deadline=120,
        )
        for _ in range(kills):
            time.sleep(random.uniform(0.1, 1.0))  # noqa: S311 - any moment
            broker.kill()
            broker.start()
        time.sleep(1.0)
        (tmp_path / "stop").touch()
        for process in running:
            process.join(60)
        assert [process.exitcode for process in running] == [0] * WORKERS
    finally:
        for process in running:
            process.kill()
            process.join()
    for kind in KINDS:
        count, twice = overlaps(tmp_path / kind)
        record_property(kind, count)
        assert count > WORKERS * BATCH
        assert twice == 0
    waits = [float(path.read_text()) for path in (tmp_path / "waits").iterdir()]
    record_property("longest wait", max(waits))
    machines = asyncio.run(machine_ids(broker))
    assert machines == [0]


async def machine_ids(broker: Broker) -> list[int]:
    async with aiocosid.store_from_url(broker.root) as store:
        return [each.machine_id for each in await store.machines(namespace=broker.namespace)]
