"""Grouped counters on real servers: CosId's names, and nodes side by side over midnight."""

from __future__ import annotations

import anyio
import pytest

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.segment import GroupBy, GroupedSegmentId
from aiocosid.testing import ManualClock
from tests.servers import PostgresServer, ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

MIDNIGHT = 1_768_608_000_000  # 2026-01-17T00:00Z
DAYS = ("20260116", "20260117")


async def nodes_cross_midnight(store: Store, namespace: str) -> dict[str, set[int]]:
    """Three nodes, each with a clock of its own, which are not quite in step; the ids by day."""
    found: dict[str, set[int]] = {day: set() for day in DAYS}
    taken = 0

    async def node(ahead_ms: int) -> None:
        nonlocal taken
        clock = ManualClock(wall_ms=MIDNIGHT - 50 + ahead_ms)
        async with GroupedSegmentId(
            store,
            namespace=namespace,
            name="order",
            group_by=GroupBy.day(zone="UTC"),
            step=7,
            clock=clock,
        ) as orders:
            for n in range(100):
                clock.step_wall_ms(1)
                given = orders.with_group
                ids = [await given.next_id(), *await given.next_ids(n % 5 + 1)]
                for new_id in ids:
                    found[new_id.group].add(int(new_id))
                taken += len(ids)

    async with anyio.create_task_group() as group:
        for ahead_ms in (-20, 0, 20):
            group.start_soon(node, ahead_ms)
    assert sum(map(len, found.values())) == taken
    return found


async def test_on_redis(valkey: ValkeyServer, namespace: str) -> None:
    """One key for each day, by the name that CosId gives it."""
    async with store_from_url(valkey.url) as store:
        found = await nodes_cross_midnight(store, namespace)
    for day in DAYS:
        last = valkey.call("GET", f"cosid:{{{namespace}.order@{day}}}.adder")
        assert min(found[day]) == 1
        assert int(str(last)) >= max(found[day])


async def test_on_postgresql(postgres: PostgresServer, namespace: str) -> None:
    """One row for each day, by the name that CosId gives it."""
    async with store_from_url(postgres.url) as store:
        await store.create_schema()
        found = await nodes_cross_midnight(store, namespace)
        counters = await store.counters(namespace=namespace)
    assert [each.namespaced_name for each in counters] == [
        f"{namespace}.order@{day}" for day in DAYS
    ]
    for day, counter in zip(DAYS, counters, strict=True):
        assert min(found[day]) == 1
        assert counter.last_max_id >= max(found[day])
