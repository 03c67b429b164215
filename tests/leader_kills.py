"""Ids from an ensemble whose leader is killed: for stress tests and the bench."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from aiocosid import SegmentChainId, SegmentId, SnowflakeId, store_from_url
from aiocosid.abc import IdGenerator
from tests.servers import Server

__all__ = ("PERIOD", "Taken", "take_under_kills")

PERIOD = 3.0  # seconds between two kills
STEP, PAUSE = 20, 0.002  # ids a segment, so that the stock is small; seconds between two ids
WAIT_TIMEOUT = 60.0  # seconds; an election takes about one on etcd, on NATS four to nine
SAFE_GUARD, INTERVAL = 20.0, 0.5  # seconds; of the machine ids


class Ensemble(Protocol):
    """Servers that elect a leader."""

    @property
    def url(self) -> str:
        """What names them."""
        raise NotImplementedError

    def kill_leader(self) -> Server:
        """Kill -9 it; ``start()`` brings it back."""
        raise NotImplementedError


@dataclass(slots=True)
class Taken:
    """What one generator has handed out.

    Attributes:
        kind: which one it is.
        ids: all of them, in order.
        waits: how long each took in seconds.
    """

    kind: str
    ids: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


async def take_under_kills(ensemble: Ensemble, *, kills: int, each: int = 2) -> list[Taken]:
    """Take ids by several generators of both kinds until the leader was killed so often.

    Each has connections of its own.  A killed member is started before the next one is killed.
    Any error is the caller's.

    Args:
        ensemble: the servers.
        kills: how often.
        each: generators of a kind.
    """
    over = asyncio.Event()
    async with store_from_url(ensemble.url) as store:
        await store.create_schema(disposable=True)
        await store.initialize_namespace(
            namespace="leaders", confirm_no_holders=True, safe_guard=SAFE_GUARD
        )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(take(ensemble.url, over))
            for _ in range(each)
            for take in (
                partial(_segments, SegmentId),
                partial(_segments, SegmentChainId),
                _snowflakes,
            )
        ]
        try:
            for _ in range(kills):
                await asyncio.sleep(PERIOD)
                killed = await asyncio.to_thread(ensemble.kill_leader)
                await asyncio.sleep(PERIOD / 2)
                await asyncio.to_thread(killed.start)
        finally:
            over.set()
    return [task.result() for task in tasks]


async def _segments(kind: type[SegmentId | SegmentChainId], url: str, over: asyncio.Event) -> Taken:
    async with store_from_url(url) as store:
        counter = store.segment_distributor(namespace="leaders", name="order", step=STEP)
        async with kind(counter, wait_timeout=WAIT_TIMEOUT) as generator:
            return await _take(kind.__name__, generator, over)


async def _snowflakes(url: str, over: asyncio.Event) -> Taken:
    async with store_from_url(url) as store:
        machine = store.machine_id_distributor(
            namespace="leaders", safe_guard=SAFE_GUARD, interval=INTERVAL
        )
        async with SnowflakeId(machine, wait_timeout=WAIT_TIMEOUT) as generator:
            return await _take("SnowflakeId", generator, over)


async def _take(kind: str, generator: IdGenerator, over: asyncio.Event) -> Taken:
    taken = Taken(kind)
    while not over.is_set():
        begin = time.perf_counter()
        taken.ids.append(await generator.next_id())
        taken.waits.append(time.perf_counter() - begin)
        await asyncio.sleep(PAUSE)
    return taken
