"""Three stores side by side, one killed every 2 s in turn: does a caller see anything of it?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field

from aiocosid import CosIdError, SegmentChainId
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.striped import StripedStore
from tests.servers.valkey import ValkeyServer

from ._harness import Answer

SECONDS, EVERY, DOWN = 20.0, 2.0, 1.0
CLIENTS, TASKS, BATCH, STEP = 8, 4, 20, 100


@dataclass
class Load:
    """What callers got.

    Attributes:
        ids: all of them, in no order.
        errors: what was raised to a caller.
        waits: seconds that each call took.
        kills: how many servers were killed.
    """

    ids: list[int] = field(default_factory=list)
    errors: list[CosIdError] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    kills: int = 0

    @property
    def repeated(self) -> int:
        """How many ids came again."""
        return len(self.ids) - len(set(self.ids))


async def under_kills(seconds: float) -> Load:
    """Take ids from three Valkeys that keep what they have written, one of which is often dead."""
    load = Load()
    with ExitStack() as running:
        servers = [running.enter_context(ValkeyServer(persistent=True)) for _ in range(3)]
        async with AsyncExitStack() as stack:
            chains = [await _client(stack, servers) for _ in range(CLIENTS)]
            end = time.monotonic() + seconds
            async with asyncio.TaskGroup() as group:
                for chain in chains * TASKS:
                    group.create_task(_take(chain, end, load))
                group.create_task(_kill(servers, end, load))
    return load


async def _client(stack: AsyncExitStack, servers: Sequence[ValkeyServer]) -> SegmentChainId:
    stores = [RedisStore.from_url(f"{server.url}?durability=ignore") for server in servers]
    store = await stack.enter_async_context(StripedStore(stores, owns_stores=True))
    counter = store.segment_distributor(name="order", step=STEP)
    return await stack.enter_async_context(SegmentChainId(counter))


async def _take(chain: SegmentChainId, end: float, load: Load) -> None:
    while (begin := time.monotonic()) < end:
        try:
            load.ids += await chain.next_ids(BATCH)
        except CosIdError as error:
            load.errors.append(error)
        load.waits.append(time.monotonic() - begin)
        await asyncio.sleep(0.005)


async def _kill(servers: Sequence[ValkeyServer], end: float, load: Load) -> None:
    while time.monotonic() + EVERY < end:
        server = servers[load.kills % len(servers)]
        await asyncio.to_thread(server.kill)
        load.kills += 1
        await asyncio.sleep(DOWN)
        await asyncio.to_thread(server.start)
        await asyncio.sleep(EVERY - DOWN)


async def ask() -> Answer:
    """Count what callers see while one of three servers after the other is killed."""
    load = await under_kills(SECONDS)
    waits = sorted(load.waits)
    rows = [(f"p{share}", f"{_at(waits, share) * 1e3:.3g}") for share in (50, 99, 99.9)]
    rows.append(("longest", f"{waits[-1] * 1e3:.3g}"))
    return Answer(
        "Three stores side by side, one killed every 2 s in turn",
        "no error to callers, no duplicate",
        not load.errors and not load.repeated,
        f"{len(load.ids):,} ids through {load.kills} kills: {len(load.errors)} errors, "
        f"{load.repeated} duplicates.",
        (f"wait for {BATCH} ids", "ms"),
        tuple(rows),
        {
            "ids": len(load.ids),
            "kills": load.kills,
            "errors": [str(error) for error in load.errors],
            "repeated": load.repeated,
            "waits": waits[:: max(1, len(waits) // 1000)] + waits[-20:],
        },
    )


def _at(waits: Sequence[float], share: float) -> float:
    return waits[min(len(waits) - 1, int(len(waits) * share / 100))]
