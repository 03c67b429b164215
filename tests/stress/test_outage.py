"""Ten thousand callers wait while a server is down: for minutes in the nightly form."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aiocosid.errors import SegmentUnavailableError
from aiocosid.segment import SegmentChainId
from aiocosid.stores.redis import RedisStore
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.asyncio, pytest.mark.stress, pytest.mark.integration]

CALLERS = 10_000  # as many as `max_waiters`
PAGE = os.sysconf("SC_PAGE_SIZE")
GROWTH = 16 * 2**20  # bytes; a leak of one error for each caller and attempt would be more
MOMENTS = pytest.mark.parametrize(
    "moments",
    [
        pytest.param((10, 20), marks=pytest.mark.timeout(120)),
        pytest.param((10, 60, 150, 300), marks=[pytest.mark.nightly, pytest.mark.timeout(600)]),
    ],
    ids=lambda moments: f"{moments[-1]} s",
)


def resident() -> int:
    """Bytes of this process in memory, without what is garbage."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@MOMENTS
@pytest.mark.parametrize("wait_timeout", [900.0, 5.0], ids=["patient", "trying again"])
async def test_waiting_callers_cost_no_more_by_and_by(
    valkey_factory: Callable[..., ValkeyServer],
    record_property: Callable[[str, object], None],
    wait_timeout: float,
    moments: tuple[int, ...],
) -> None:
    """Memory is the same at the end as after ten seconds, and then each gets an id of its own."""
    server = valkey_factory(persistent=True)
    failures = 0

    async def call() -> int:
        nonlocal failures
        while True:
            try:
                return await chain.next_id()
            except SegmentUnavailableError as error:
                failures += 1
                await asyncio.sleep(error.retry_after or 0.0)

    async with RedisStore.from_url(server.url) as store:
        distributor = store.segment_distributor(name="order")
        chain = SegmentChainId(distributor, wait_timeout=wait_timeout, fetch_timeout=2.0)
        async with chain:
            await asyncio.to_thread(server.kill)
            taken = await chain.next_ids(chain.statistics().remaining)
            callers = [asyncio.create_task(call()) for _ in range(CALLERS)]
            began = time.monotonic()
            sizes = []
            for moment in moments:
                await asyncio.sleep(began + moment - time.monotonic())
                sizes.append(resident())
            assert not any(each.done() for each in callers)
            began = time.monotonic()
            await asyncio.to_thread(server.start)
            taken += await asyncio.gather(*callers)
            took = time.monotonic() - began
    shown = ", ".join(
        f"{size / 2**20:.1f} MB after {moment} s"
        for moment, size in zip(moments, sizes, strict=True)
    )
    told = f"{shown}; {failures} errors; all served {took:.2f} s after the server's start"
    print(told)  # noqa: T201 - the report
    record_property("outage", told)
    assert max(sizes) < sizes[0] + GROWTH
    assert len(set(taken)) == len(taken)
