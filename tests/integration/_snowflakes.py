"""What the tests with leased Snowflakes on real servers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final

from aiocosid.abc import InstanceId
from aiocosid.errors import CosIdError, MachineIdUnavailableError
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeId, SnowflakeLayout
from tests.servers import eventually

# Two machine ids, and a sequence so short that two who stamped at once would meet soon.
LAYOUT: Final = SnowflakeLayout(41, 1, 4, "ms", 1_577_203_200_000)
INTERVAL: Final = 0.1  # seconds
SAFE_GUARD: Final = 0.6  # seconds
PAUSE: Final = 0.002  # seconds between two batches of a consumer


def lease_on(
    store: Any, namespace: str, instance: InstanceId | str | None = None, **options: Any
) -> MachineIdLease:
    """A lease of one bit with short times."""
    distributor = store.machine_id_distributor(
        namespace=namespace, instance_id=instance, safe_guard=SAFE_GUARD, interval=INTERVAL
    )
    given: dict[str, Any] = {"call_timeout": 0.25, **options}
    return MachineIdLease(distributor, bits=1, **given)


class Consumer:
    """Takes ids as long as there are any to come.

    Attributes:
        ids: all that it got.
        refusals: how often there was none in time.
        ended: why there will be none any more.
    """

    def __init__(self, generator: SnowflakeId) -> None:
        self.generator = generator
        self.ids: list[int] = []
        self.refusals = 0
        self.ended: CosIdError | None = None

    async def run(self) -> None:
        """Until cancelled, or told that it is over."""
        while self.ended is None:
            try:
                self.ids += await self.generator.next_ids(3)
            except MachineIdUnavailableError:
                self.refusals += 1
            except CosIdError as error:
                self.ended = error
            await asyncio.sleep(PAUSE)

    async def more(self, count: int = 50) -> None:
        """Wait for further ids."""
        wanted = len(self.ids) + count
        await until(lambda: len(self.ids) >= wanted)

    def ticks(self, machine_id: int) -> list[int]:
        """The times of the ids under a machine id."""
        parsed = [LAYOUT.parse(each) for each in self.ids]
        return [each.timestamp_ms for each in parsed if each.machine_id == machine_id]


@asynccontextmanager
async def consuming(*generators: SnowflakeId) -> AsyncGenerator[list[Consumer]]:
    """Consumers of open generators."""
    consumers = [Consumer(each) for each in generators]
    tasks = [asyncio.create_task(each.run()) for each in consumers]
    try:
        yield consumers
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each for each in ended if isinstance(each, Exception)] == []


def check_unique(*issued: list[int]) -> None:
    """All ids differ, and rise for each."""
    for ids in issued:
        assert all(one < other for one, other in pairwise(ids))
    together = [each for ids in issued for each in ids]
    assert len(set(together)) == len(together)


def check_owners(*consumers: Consumer) -> None:
    """All ids of a machine id's next owner are later than those of the one before."""
    for machine_id in range(LAYOUT.machine_count):
        owners = sorted(ticks for each in consumers if (ticks := each.ticks(machine_id)))
        for before, after in pairwise(owners):
            assert before[-1] < after[0]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""

    async def attempt() -> bool:
        return condition()

    await eventually(attempt)
