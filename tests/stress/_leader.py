"""An ensemble of ZooKeeper whose leader is killed again and again, under load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from aiocosid import SegmentChainId, SnowflakeId
from aiocosid.errors import CosIdError
from aiocosid.stores.zookeeper import ZookeeperStore
from tests.servers import ZookeeperEnsemble

__all__ = ("Told", "under_load")

GENERATORS = 3  # of each kind, on one counter and in one namespace
PATIENCE = 60.0  # seconds that a generator waits, so that the longest wait is seen
PAUSE = 0.001  # seconds between two ids of one of them


@dataclass
class Told:
    """What one kind of caller was told.

    Attributes:
        ids: all that were handed out, in whatever order.
        longest: seconds that the longest call took, whatever came of it.
        errors: calls that failed, by the name of the error.
    """

    ids: list[int] = field(default_factory=list[int])
    longest: float = 0.0
    errors: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def duplicates(self) -> int:
        """How many ids came twice."""
        return len(self.ids) - len(set(self.ids))


async def under_load(ensemble: ZookeeperEnsemble, *, kills: int, every: float) -> dict[str, Told]:
    """Kill the leader so many times, start it again, and have ids taken all the while.

    Args:
        ensemble: which one.
        kills: how often.
        every: seconds from one to the next.

    Returns:
        What was told to those who ask the store itself for one id after the other, to those who
        take ids of chains, and of Snowflakes.
    """
    told = {name: Told() for name in ("store", "chain", "snowflake")}
    over = asyncio.Event()
    async with ZookeeperStore.from_url(ensemble.url) as store:
        await store.create_schema(disposable=True)
        await store.mark_machines()
        counter = store.segment_distributor(name="one by one", step=1)
        chains = [
            SegmentChainId(
                store.segment_distributor(name="chain", step=100),
                endurance=0,
                wait_timeout=PATIENCE,
            )
            for _ in range(GENERATORS)
        ]
        snowflakes = [
            SnowflakeId(
                store.machine_id_distributor(instance_id=f"i{number}"), wait_timeout=PATIENCE
            )
            for number in range(GENERATORS)
        ]
        async with asyncio.TaskGroup() as group:
            for generator in (*chains, *snowflakes):
                await generator.__aenter__()
            group.create_task(_take(lambda: counter.next_max_id(1), told["store"], over))
            for name, generators in (("chain", chains), ("snowflake", snowflakes)):
                for generator in generators:
                    group.create_task(_take(generator.next_id, told[name], over))
            for _ in range(kills):
                began = monotonic()
                killed = await asyncio.to_thread(ensemble.kill_leader)
                await asyncio.to_thread(ensemble.wait_until_it_serves)
                await asyncio.to_thread(ensemble.restart, killed)
                await asyncio.sleep(max(0.0, every - (monotonic() - began)))
            over.set()
        for generator in (*chains, *snowflakes):
            await generator.aclose()
    return told


async def _take(call: Callable[[], Awaitable[int]], told: Told, over: asyncio.Event) -> None:
    while not over.is_set():
        began = monotonic()
        try:
            told.ids.append(await call())
        except CosIdError as error:
            name = type(error).__name__
            told.errors[name] = told.errors.get(name, 0) + 1
        told.longest = max(told.longest, monotonic() - began)
        await asyncio.sleep(PAUSE)
