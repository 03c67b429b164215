"""Two data centres with a Redis each, and the line between them cut: both go on, no id twice.

``AIOCOSID_REGION_SECONDS`` is for how long it is cut.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any, Final

import pytest
import pytest_asyncio

from aiocosid import store_from_url
from aiocosid.errors import MachineBitsMismatchError, StoreError
from aiocosid.stores.striped import StripedStore
from tests.region_worker import LAYOUT, REGION_BITS
from tests.servers import FaultProxy, ValkeyServer

SECONDS: Final = float(os.environ.get("AIOCOSID_REGION_SECONDS", "3"))
PROCESSES: Final = 4  # of each region
COMMAND: Final = (sys.executable, "-m", "tests.region_worker")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio,
    pytest.mark.timeout(120 + 2 * SECONDS),
]


class Regions:
    """Two servers, and the line from each region to the server of the other one.

    Attributes:
        urls: for each region, the stores of both as it reaches them.
        proxies: the lines.
        told: what the processes that have ended got.
        failures: the errors of their calls.
    """

    def __init__(self, servers: list[ValkeyServer], proxies: list[FaultProxy]) -> None:
        self.direct = [each.url for each in servers]
        self.proxies = proxies
        far = [
            url.replace(f"{server.host}:{server.port}", f"{line.host}:{line.port}")
            for url, server, line in zip(self.direct, servers, reversed(proxies), strict=True)
        ]
        assert {*far}.isdisjoint(self.direct)
        self.urls = [[self.direct[0], far[1]], [far[0], self.direct[1]]]
        self.told: list[tuple[int, dict[str, list[int]]]] = []
        self.failures: list[str] = []

    async def start(self, region: int) -> Process:
        """Start a process, and wait for its first ids."""
        words = (*COMMAND, str(region), "shop", *self.urls[region])
        process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            pytest.fail((await process.communicate())[1].decode())
        return process

    async def start_all(self) -> list[list[Process]]:
        """Start all processes of both regions, by their region."""
        return [
            [*await asyncio.gather(*(self.start(region) for _ in range(PROCESSES)))]
            for region in range(2)
        ]

    async def end(self, region: int, process: Process) -> None:
        """Have a process end in order, and keep what it got."""
        out, problems = await process.communicate(b"")
        assert process.returncode == 0, problems.decode()
        told: dict[str, Any] = json.loads(out)
        self.failures += told.pop("failures")
        self.told.append((region, told))

    async def cut(self) -> list[int]:
        """Cut both lines; return how many connections were made so far."""
        for line in self.proxies:
            line.refuse()
            line.cut()
        return [line.connections for line in self.proxies]


@pytest_asyncio.fixture
async def regions(valkey_factory: Callable[..., ValkeyServer]) -> AsyncIterator[Regions]:
    """Both servers are initialised, and nobody has taken anything yet."""
    servers = [await asyncio.to_thread(valkey_factory, persistent=True) for _ in range(2)]
    async with AsyncExitStack() as stack:
        proxies = [
            await stack.enter_async_context(FaultProxy(each.host, each.port))
            for each in reversed(servers)
        ]
        made = Regions(servers, proxies)
        for url in made.direct:
            store = await stack.enter_async_context(store_from_url(url))
            await store.initialize(confirm_no_holders=True)
        yield made


async def test_two_regions_that_are_cut_apart(regions: Regions) -> None:
    """No call fails and no id comes twice, also of processes that start meanwhile."""
    running = await regions.start_all()
    assert regions.proxies[0].connections, "the first process has begun the counter in both"
    connections = await regions.cut()
    for region, processes in enumerate(running):
        await regions.end(region, processes.pop())
        processes.append(await regions.start(region))
    await asyncio.sleep(SECONDS)
    assert [line.connections for line in regions.proxies] == connections
    for line in regions.proxies:
        await line.accept()
    await asyncio.sleep(min(SECONDS, 3))
    ends = (
        regions.end(region, process)
        for region, processes in enumerate(running)
        for process in processes
    )
    await asyncio.gather(*ends)
    assert regions.failures == []
    events = [each for _, told in regions.told for each in told["events"]]
    orders = [each for _, told in regions.told for each in told["orders"]]
    assert len({*events}) == len(events)
    assert len({*orders}) == len(orders)
    for region, told in regions.told:
        assert {LAYOUT.parse(each).region for each in told["events"]} == {region}
        assert {(each - 1) % 2 for each in told["orders"]} == {region}
        for ids in told.values():
            assert all(before < after for before, after in pairwise(ids))
    figures = f"{len(events)} Snowflake ids and {len(orders)} of the counter, {SECONDS:g} s cut"
    sys.stdout.write(f"{figures}\n")


@pytest.mark.parametrize(
    "wrong", [{}, {"region": 1, "region_bits": 1}, {"region": 0, "region_bits": 2}]
)
async def test_a_process_that_names_another_region(regions: Regions, wrong: Any) -> None:
    """It is refused at its start; those that run notice nothing, and none gets an id twice."""
    running = await regions.start_all()
    async with store_from_url(regions.direct[0]) as store:
        machines = store.machine_id_distributor(namespace="shop", **wrong)
        before = await store.machines(namespace="shop")
        with pytest.raises(MachineBitsMismatchError, match="region=0, region_bits=1 in this store"):
            await machines.distribute(LAYOUT.machine_bits, now_ms=1, latest_ms=1)
        after = await store.machines(namespace="shop")
    held = [(each.machine_id, each.instance_id) for each in before]
    assert [(each.machine_id, each.instance_id) for each in after] == held
    assert {each >> LAYOUT.machine_bits - REGION_BITS for each, _ in held} == {0}
    # The same mistake with the counter: the stores in another order, or one more.
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(store_from_url(url)) for url in regions.direct]
        swapped = StripedStore([*reversed(stores)], region=0)
        with pytest.raises(StoreError, match="was requested as place 0 of 2"):
            await swapped.segment_distributor(namespace="shop", name="order").next_max_id(1)
    for region, processes in enumerate(running):
        await asyncio.gather(*(regions.end(region, each) for each in processes))
    assert regions.failures == []
    for kind in ("events", "orders"):
        ids = [each for _, told in regions.told for each in told[kind]]
        assert len({*ids}) == len(ids)
