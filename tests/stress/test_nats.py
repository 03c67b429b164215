"""Three NATS servers that lose a leader every three seconds, under several processes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import pytest

from aiocosid import SegmentChainId, SegmentId, SnowflakeId, open_store
from aiocosid.abc import IdGenerator
from aiocosid.errors import MachineIdUnavailableError, SegmentUnavailableError
from tests.servers import NatsCluster, wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.integration]

PROCESSES: Final = 4
# Two streams each.  An election takes four to nine seconds: of few streams none would have a leader
# to be killed every three, and none would keep one for long enough to be used.
STORES: Final = ("one", "two", "three")
KILLS, PERIOD = 20, 3.0  # seconds from one to the next
STEP, PAUSE = 20, 0.01  # ids a segment, so that the stock is small; seconds between two ids
TENURE: Final = 20  # ids that are made under a machine id before it is given back
PATIENCE: Final = 60.0  # seconds that a generator waits
SAFE_GUARD, INTERVAL = 60.0, 0.5  # seconds; of the machine ids


@dataclass
class Taken:
    """What one process was given by one store.

    Attributes:
        counter: ids of the counter, each generator's in its order.
        snowflakes: ids under machine ids, likewise.
        tenures: each machine id that it held, from when until when, by the host's monotonic clock.
        unserved: how often nothing was to be had within `PATIENCE`, for want of a leader.
    """

    counter: list[list[int]] = field(default_factory=list)
    snowflakes: list[list[int]] = field(default_factory=list)
    tenures: list[tuple[int, float, float]] = field(default_factory=list)
    unserved: int = 0


class Taker:
    """One process on one store.

    Two generators are on a counter, one is on a machine id, and one on one after the other.
    """

    def __init__(self, url: str, over: asyncio.Event) -> None:
        self.store = open_store(url)
        self.over = over
        self.ready = asyncio.Event()
        self.taken = Taken()

    async def run(self) -> None:
        """Take ids until it is over."""
        async with self.store, asyncio.TaskGroup() as group:
            for kind in (SegmentId, SegmentChainId):
                group.create_task(self._count(kind))
            group.create_task(self._keep())
            group.create_task(self._change())

    async def _count(self, kind: type[SegmentId | SegmentChainId]) -> None:
        counter = self.store.segment_distributor(namespace="leaders", name="order", step=STEP)
        ids: list[int] = []
        self.taken.counter.append(ids)
        async with kind(counter, wait_timeout=PATIENCE) as generator:
            await self._take(generator, ids)

    async def _keep(self) -> None:
        ids: list[int] = []
        self.taken.snowflakes.append(ids)
        async with self._machine() as generator:
            self.ready.set()
            await self._take(generator, ids)

    async def _change(self) -> None:
        ids: list[int] = []
        self.taken.snowflakes.append(ids)
        while not self.over.is_set():
            try:
                async with self._machine() as generator:
                    await self._take(generator, ids, TENURE)
            except MachineIdUnavailableError:
                self.taken.unserved += 1

    @asynccontextmanager
    async def _machine(self) -> AsyncGenerator[SnowflakeId]:
        """Make ids under one machine id, and note for how long."""
        machine = self.store.machine_id_distributor(
            namespace="leaders", safe_guard=SAFE_GUARD, interval=INTERVAL
        )
        async with SnowflakeId(machine, wait_timeout=PATIENCE) as generator:
            number, began = generator.statistics().machine_id, time.monotonic()
            assert number is not None
            yield generator
            if generator.statistics().machine_id == number:  # else it was lost meanwhile
                self.taken.tenures.append((number, began, time.monotonic()))

    async def _take(self, generator: IdGenerator, ids: list[int], most: int = 1 << 30) -> None:
        end = len(ids) + most
        while len(ids) < end and not self.over.is_set():
            try:
                ids.append(await generator.next_id())
            except (SegmentUnavailableError, MachineIdUnavailableError):
                self.taken.unserved += 1
            await asyncio.sleep(PAUSE)


def work(url: str, path: Path, is_over: Event) -> None:
    """Run in a process of its own, and write down what was taken by store."""

    async def main() -> dict[str, Taken]:
        over = asyncio.Event()
        takers = {name: Taker(f"{url}/{name}", over) for name in STORES}
        async with asyncio.TaskGroup() as group:
            for each in takers.values():
                group.create_task(each.run())
            for each in takers.values():
                await each.ready.wait()
            path.with_suffix(".ready").touch()
            await asyncio.to_thread(is_over.wait)
            over.set()
        return {name: each.taken for name, each in takers.items()}

    taken = asyncio.run(main())
    path.write_text(json.dumps({name: asdict(each) for name, each in taken.items()}))


def kill_leaders(cluster: NatsCluster) -> None:
    """One every `PERIOD`, later only if nobody leads by then; a member is back after half of it."""
    for _ in range(KILLS):
        due = time.monotonic() + PERIOD
        killed = cluster.kill_any_leader()
        time.sleep(PERIOD / 2)
        killed.spawn()  # and nobody waits until it has caught up
        time.sleep(max(0.0, due - time.monotonic()))


@pytest.fixture
def taken(nats_cluster: NatsCluster, tmp_path: Path) -> dict[str, list[Taken]]:
    """What each store gave to some processes while the leaders were killed."""

    async def prepare() -> None:
        for name in STORES:
            async with open_store(f"{nats_cluster.url}/{name}") as store:
                await store.create_schema()

    asyncio.run(prepare())
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    paths = [tmp_path / f"{number}.json" for number in range(PROCESSES)]
    running: list[BaseProcess] = [
        context.Process(target=work, args=(nats_cluster.url, path, over)) for path in paths
    ]
    try:
        for process in running:
            process.start()
        for path in paths:
            is_ready = path.with_suffix(".ready").exists
            wait_until(is_ready, "a process takes ids", deadline=30)
        kill_leaders(nats_cluster)
        over.set()
        for process in running:
            process.join(PATIENCE)
        assert [process.exitcode for process in running] == [0] * PROCESSES
    finally:
        for process in running:
            process.kill()
            process.join()
    told = [json.loads(path.read_text()) for path in paths]
    return {name: [Taken(**each[name]) for each in told] for name in STORES}


@pytest.mark.timeout(180)
def test_the_leader_is_killed(taken: dict[str, list[Taken]]) -> None:
    """No caller gets an id twice, whoever waits in vain; no machine id has two owners at a time."""
    for each in taken.values():
        for lists in (_joined(each, "counter"), _joined(each, "snowflakes")):
            assert all(ids == sorted(ids) for ids in lists)
            ids = [new_id for ids in lists for new_id in ids]
            assert len(ids) == len(set(ids)) > 500
        tenures = sorted(_joined(each, "tenures"))
        assert len(tenures) > 2 * PROCESSES, "nobody was handed a machine id under the kills"
        for (number, _, ended), (next_number, began, _) in pairwise(tenures):
            assert number != next_number or ended < began


def _joined(processes: list[Taken], name: str) -> list[Any]:
    return [each for taken in processes for each in getattr(taken, name)]
