"""One event of each kind, and what the two exporters of metrics share in their tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from aiocosid import SegmentChainId
from aiocosid.abc import Statistics
from aiocosid.abc.events import (
    CacheFound,
    CacheLost,
    ClockBackwards,
    DistanceChanged,
    Event,
    FetchFailed,
    IdsDiscarded,
    Instrument,
    MachineIdDistributed,
    MachineIdGuarded,
    MachineIdGuardFailed,
    MachineIdLost,
    MachineIdsQuarantined,
    RingEmptied,
    RingFilled,
    SegmentFetched,
    SnowflakeOpened,
    SpanLeased,
    Starved,
    WaitTimedOut,
)
from aiocosid.errors import MachineIdLostError, StoreUnavailableError
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, SlowDistributor

SHOP: dict[str, Any] = {"namespace": "shop", "name": "order"}
HOST: dict[str, Any] = {"namespace": "shop", "name": "10.0.0.1:80"}
DOWN = StoreUnavailableError("redis", "no answer within 2 s, 100% of the time")

EVENTS: list[Event] = [
    SegmentFetched(**SHOP, max_id=2000, count=2000, took=0.004, starved=False),
    FetchFailed(**SHOP, error=DOWN, attempt=1, took=2.0),
    Starved(**SHOP),
    DistanceChanged(**SHOP, before=2, after=4),
    WaitTimedOut(**SHOP, waited=5.0),
    IdsDiscarded(**SHOP, count=7, reason="cancelled"),
    ClockBackwards(**SHOP, backwards=0.03),
    SnowflakeOpened(**SHOP, machine_id=3),
    RingFilled(**SHOP, filled=65_536, borrowed=0),
    RingEmptied(**SHOP, borrowed=60),
    MachineIdDistributed(**HOST, machine_id=3, wait=0.0),
    MachineIdGuarded(**HOST, machine_id=3, fence_ms=90_000, took=0.002),
    MachineIdGuardFailed(**HOST, error=DOWN, attempt=2),
    MachineIdsQuarantined(**HOST, seconds_left=305.0),
    SpanLeased(**SHOP, max_id=9000, count=1000, reason="server", took=0.002),
    CacheLost(**SHOP, error=DOWN),
    CacheFound(**SHOP, lasted=1.5),
    MachineIdLost(**HOST, machine_id=3, error=MachineIdLostError("shop", 3, reason="taken")),
]


class Picture:
    """A generator that is nothing but its statistics."""

    def __init__(self, statistics: Statistics | Exception) -> None:
        self.shown = statistics

    def statistics(self) -> Statistics:
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown


@asynccontextmanager
async def starved(instrument: Instrument) -> AsyncGenerator[SegmentChainId]:
    """A chain of ten ids a segment, on a store that needs half a second, that starved once."""
    clock = ManualClock()
    store = MemoryStore().segment_distributor(namespace="shop", name="order", step=10)
    slow = SlowDistributor(store, latency=0.5, clock=clock)
    chain = SegmentChainId(slow, clock=clock, instrument=instrument)
    async with anyio.create_task_group() as group:
        group.start_soon(chain.__aenter__)
        await clock.advance(0.5)
        await chain.next_ids(20)
        group.start_soon(chain.next_id)
        await clock.advance(0.5)
    yield chain
    async with anyio.create_task_group() as group:
        group.start_soon(chain.aclose)
        await clock.advance(0.5)  # for the fetch under way
