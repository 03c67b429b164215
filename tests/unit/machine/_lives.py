"""The lives of one stable instance on a machine with a disk, in memory."""

from __future__ import annotations

from typing import Any, Final

from aiocosid.abc import InstanceId
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import COSID_MS, SnowflakeId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock, settle
from tests.machine_disk import Disk, MemoryPlace

from .._kit import Call
from ._kit import Link

POD: Final = InstanceId("pod-0", stable=True)


class Bench:
    """A store, a machine with a disk, and the lives of one stable instance on it."""

    def __init__(self, offline: float = 0.0, **described: Any) -> None:
        self.clock = ManualClock()
        self.offline = offline
        self.store = MemoryStore(clock=self.clock)
        self.disk = Disk(self.clock.monotonic)
        if offline:
            described |= {"offline": offline, "state_dir": "unused"}
        self.described = described
        self.lives: list[MachineIdLease] = []
        self.links: list[Link] = []
        self._alive: set[int] = set()

    def lease(self, disk: Disk | None = None, **options: Any) -> MachineIdLease:
        number = len(self.lives)
        self._alive.add(number)
        link = Link(self.store, POD, **self.described)
        place = MemoryPlace(disk or self.disk, lambda: number in self._alive, self.offline)
        link.inner.restart = link.restart = place
        lease = MachineIdLease(link, clock=self.clock, **options)
        self.links.append(link)
        self.lives.append(lease)
        return lease

    def kill(self, number: int = -1) -> None:
        """Nothing of a life reaches the store any more, and the system unlocks its files."""
        self.links[number].cut()
        self._alive.discard(number % len(self.lives))

    async def wait_of_start(self, lease: MachineIdLease) -> float:
        """Return the seconds that a start takes, or raise its error."""
        return await wait_of_start(lease, self.clock)

    async def end(self) -> None:
        for link, lease in zip(self.links, self.lives, strict=True):
            link.heal()
            await lease.aclose()


async def wait_of_start(lease: MachineIdLease, clock: ManualClock) -> float:
    """Return the seconds that a start takes, or raise its error."""
    began = clock.monotonic()
    opening = Call(lease.__aenter__)
    while not opening.is_done and clock.monotonic() - began < 100:
        await clock.advance(0.01)
    await settle()
    if opening.error is not None:
        raise opening.error
    return clock.monotonic() - began


async def highest(lease: MachineIdLease, clock: ManualClock) -> int:
    """Return the time of the next id."""
    gen = SnowflakeId(lease, clock=clock)
    await gen.__aenter__()
    return COSID_MS.parse(await gen.next_id()).timestamp_ms
