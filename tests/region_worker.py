"""One process of a region: Snowflake ids and ids of a counter, from the store of the region alone.

Run as ``python -m tests.region_worker REGION NAMESPACE URL URL``, with the stores of all regions in
their order.  It prints a line once it has ids, and all that it got as JSON when its standard input
ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Final

from aiocosid import SegmentChainId, store_from_url
from aiocosid.errors import CosIdError
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeId, SnowflakeLayout
from aiocosid.stores.striped import StripedStore

__all__ = ("LAYOUT", "REGION_BITS")

REGION_BITS: Final = 1
STEP: Final = 20
BATCH: Final = 2
PAUSE: Final = 0.03  # seconds between two calls
EPOCH_MS: Final = 1_577_203_200_000
# Two who stamped under one machine id would soon meet.
LAYOUT: Final = SnowflakeLayout(41, 4, 6, "ms", EPOCH_MS, region_bits=REGION_BITS)


async def _work(region: int, namespace: str, *urls: str) -> dict[str, list[int] | list[str]]:
    events, orders, failures = list[int](), list[int](), list[str]()
    async with AsyncExitStack() as stack:
        store = StripedStore([*map(store_from_url, urls)], region=region, owns_stores=True)
        await stack.enter_async_context(store)
        machines = store.parts[region].machine_id_distributor(
            namespace=namespace, interval=0.5, region=region, region_bits=REGION_BITS
        )
        lease = MachineIdLease(machines, bits=LAYOUT.machine_bits)
        event = await stack.enter_async_context(SnowflakeId(lease, layout=LAYOUT))
        counter = store.segment_distributor(namespace=namespace, name="order", step=STEP)
        order = await stack.enter_async_context(SegmentChainId(counter))
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while not end.done():
            for generator, taken in ((event, events), (order, orders)):
                try:
                    taken.extend(await generator.next_ids(BATCH))
                except CosIdError as error:
                    failures.append(f"{type(error).__name__}: {error}")
            if len(events) == len(orders) == BATCH:
                sys.stdout.write("ready\n")
                sys.stdout.flush()
            await asyncio.sleep(PAUSE)
    return {"events": events, "orders": orders, "failures": failures}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_work(int(sys.argv[1]), *sys.argv[2:]))))
