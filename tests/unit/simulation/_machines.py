"""A store of machine ids and a Snowflake, as small as they can be, with switches to break them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiocosid.abc import IdGenerator, InstanceId, MachineGrant, MachineIdDistributor, Statistics
from aiocosid.errors import (
    CosIdError,
    MachineIdLostError,
    MachineIdOverflowError,
    MachineIdUnavailableError,
    WouldBlock,
)
from tests.simulation import MakeGenerator, Node

SAFE_GUARD = 4.0
INTERVAL = 1.0
LEAD = 1.5
WAIT = 4.0
BITS = 2


def parse_machine(number: int) -> tuple[int, int]:
    """The machine id in an id of `TinySnowflake`, and its time."""
    return (number >> 10) & 0xF, number >> 14


@dataclass
class Row:
    owner: str = ""
    last_ms: int = -1
    mark_ms: int = -1
    seen: float = 0.0  # by the store's own clock


@dataclass
class TinyMachines:
    """The store: who holds which machine id."""

    rows: dict[int, Row] = field(default_factory=dict)
    recycles_early: bool = False  # the defect: an id is free long before its lease has ended


class TinyMachineIdDistributor(MachineIdDistributor):
    def __init__(self, machines: TinyMachines, instance: str) -> None:
        super().__init__(instance_id=InstanceId(instance), safe_guard=SAFE_GUARD, interval=INTERVAL)
        self._machines = machines

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        rows, me = self._machines.rows, self.instance_id.text
        share = 0.1 if self._machines.recycles_early else 1.0
        now = asyncio.get_running_loop().time()
        for machine_id in range(1 << bits):
            row = rows.setdefault(machine_id, Row())
            if row.owner in {me, ""} or row.seen < now - self.safe_guard * share:
                floor = max(row.last_ms, row.mark_ms)
                rows[machine_id] = Row(me, max(now_ms, row.last_ms), row.mark_ms, now)
                return MachineGrant(machine_id, floor)
        raise MachineIdOverflowError(self.namespace, size=1 << bits)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        row = self._machines.rows[machine_id]
        if row.owner != self.instance_id.text:
            raise MachineIdLostError(self.namespace, machine_id, reason=f"{row.owner!r} holds it")
        row.seen = asyncio.get_running_loop().time()
        row.last_ms = max(row.last_ms, now_ms)
        row.mark_ms = max(row.mark_ms, mark_ms)

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        row = self._machines.rows[machine_id]
        if row.owner == self.instance_id.text:
            self._machines.rows[machine_id] = Row("", last_ms, last_ms)


class TinySnowflake(IdGenerator):
    """Ids under a lease and below a time mark.

    Args:
        checks_lease: False for the defect that nobody looks whether the lease has ended.
        minds_mark: False for the defect that ids are issued beyond the mark that the store has.
        minds_floor: False for the defect that ids are issued where the former owner's may be.
    """

    def __init__(
        self,
        distributor: MachineIdDistributor,
        node: Node,
        *,
        checks_lease: bool = True,
        minds_mark: bool = True,
        minds_floor: bool = True,
    ) -> None:
        self._distributor = distributor
        self._clock = node.clock
        self._checks_lease = checks_lease
        self._minds_mark = minds_mark
        self._minds_floor = minds_floor
        self._machine_id = -1
        self._mark_ms = self._last_ms = -1
        self._ends_at = 0.0
        self._guard: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._take()
        self._guard = asyncio.create_task(self._keep(), name="guard")
        return self

    async def _take(self) -> None:
        self._machine_id = -1
        now_ms = self._clock.now_ms()
        grant = await self._distributor.distribute(BITS, now_ms=now_ms, latest_ms=now_ms)
        if self._minds_floor:
            self._last_ms = max(self._last_ms, grant.floor_ms)
        await self._renew(grant.machine_id)
        self._machine_id = grant.machine_id

    async def _renew(self, machine_id: int) -> None:
        sent_at, now_ms = self._clock.monotonic(), self._clock.now_ms()
        mark_ms = max(self._mark_ms, now_ms + int(LEAD * 1000))
        await self._distributor.guard(machine_id, now_ms=now_ms, mark_ms=mark_ms)
        self._ends_at = sent_at + SAFE_GUARD * 0.8
        self._mark_ms = mark_ms

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL)
            try:
                if self._machine_id < 0:
                    await self._take()
                else:
                    await self._renew(self._machine_id)
            except MachineIdLostError:
                self._machine_id = -1
            except CosIdError:
                pass

    def _stamp(self) -> int | None:
        """One id a millisecond, or none."""
        now_ms = self._clock.now_ms()
        if self._machine_id < 0 or now_ms <= self._last_ms:
            return None
        if self._checks_lease and self._clock.monotonic() >= self._ends_at:
            return None
        if self._minds_mark and now_ms > self._mark_ms:
            return None
        self._last_ms = now_ms
        return now_ms << 14 | self._machine_id << 10

    async def next_id(self) -> int:
        return (await self.next_ids(1))[0]

    async def next_ids(self, n: int) -> list[int]:
        until = self._clock.monotonic() + WAIT
        ids: list[int] = []
        while len(ids) < n:
            if (new_id := self._stamp()) is not None:
                ids.append(new_id)
            elif self._clock.monotonic() >= until:
                raise MachineIdUnavailableError(self._distributor.namespace, waited=WAIT)
            else:
                await self._clock.sleep(0.001 if ids else 0.1)
        return ids

    def next_id_nowait(self) -> int:
        if (new_id := self._stamp()) is None:
            raise WouldBlock
        return new_id

    def statistics(self) -> Statistics:
        return Statistics(kind="TinySnowflake", namespace="cosid", name="order")

    async def run(self, **_: Any) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
        machine_id, self._machine_id = self._machine_id, -1
        if machine_id >= 0:
            with suppress(CosIdError):
                await self._distributor.revert(machine_id, last_ms=self._last_ms)


def snowflakes(machines: TinyMachines, **switches: bool) -> MakeGenerator:
    """Make Snowflakes that lease their machine ids from one store."""

    def make(node: Node) -> TinySnowflake:
        inner = TinyMachineIdDistributor(machines, node.process.name)
        return TinySnowflake(node.link().machines(inner), node, **switches)

    return make
