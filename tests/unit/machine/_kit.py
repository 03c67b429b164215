"""A line to a store in memory, for the tests of leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from aiocosid.abc import InstanceId, MachineGrant, MachineIdDistributor
from aiocosid.errors import StoreUnavailableError
from aiocosid.machine import rules
from aiocosid.machine.cells import ReadRequest
from aiocosid.machine.distributor import transact
from aiocosid.machine.rules import Caller
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock


class Link(MachineIdDistributor):
    """Passes calls on to a store; fails or holds them when told to."""

    def __init__(
        self, store: MemoryStore, name: InstanceId | str = "one", **described: Any
    ) -> None:
        inner = store.machine_id_distributor(instance_id=name, **described)
        super().__init__(
            namespace=inner.namespace,
            instance_id=inner.instance_id,
            safe_guard=inner.safe_guard,
            interval=inner.interval,
        )
        self.inner = inner
        self.region_code = inner.region_code
        self.store_ = store
        self.answer: Any = None  # instead of a grant
        self.floor_ms: int | None = None  # instead of the store's
        self.slowness = 0.0  # seconds before a renewal is answered
        self.clock: ManualClock | None = None
        self.failure: Callable[[], Exception] | None = None
        self.refused = ""
        self.is_silent = self.stray = False
        self.loses_grants = False  # what is handed out never arrives
        self.held: anyio.Event | None = None
        self.opens: anyio.Event | None = None
        self.returns: list[Callable[[], None]] | None = None  # kept back
        self.calls: list[str] = []
        self.closed = 0

    def cut(self) -> None:
        self.failure = lambda: StoreUnavailableError("memory", "cut")

    def refuse(self, call: str) -> None:
        self.refused = call

    def heal(self) -> None:
        self.failure = None
        self.refused = ""

    async def aclose(self) -> None:
        self.closed += 1
        await self.inner.aclose()

    async def aopen(self) -> None:
        if self.opens is not None:
            await self.opens.wait()

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        self._pass("distribute")
        if self.is_silent:
            await anyio.sleep_forever()
        if self.held is not None:
            await self.held.wait()
        grant = await self.inner.distribute(bits, now_ms=now_ms, latest_ms=latest_ms)
        if self.loses_grants:
            await anyio.sleep_forever()
        if self.floor_ms is not None:
            grant = MachineGrant(grant.machine_id, self.floor_ms)
        return self.answer or grant

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        self._pass("guard")
        await self.inner.renew(machine_id, now_ms=now_ms, fence_ms=fence_ms)
        await self._answer()

    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        self._pass("guard")
        await self.inner.reassert(machine_id, now_ms=now_ms, fence_ms=fence_ms)
        await self._answer()

    async def _answer(self) -> None:
        if self.clock is not None:
            await self.clock.sleep(self.slowness)
            self.calls.append("guarded")

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        self._pass("revert")
        if self.held is not None:
            await self.held.wait()
        if self.returns is None:
            await self.inner.release(machine_id, last_ms=last_ms)
        else:  # as it was sent
            who, token = self.inner.instance_id, self.inner._token
            give_back = partial(
                rules.give_back, machine_id=machine_id, last_ms=last_ms, token=token
            )

            def late() -> None:
                """Arrive at a store that answers without a suspension."""
                sent = transact(
                    self.store_._backend,
                    self.namespace,
                    ReadRequest(),
                    lambda found, _: give_back(found, Caller(who.text, who.stable)),
                )
                with suppress(StopIteration):
                    sent.send(None)

            self.returns.append(late)

    def _pass(self, call: str) -> None:
        self.calls.append(call)
        if self.stray:
            raise asyncio.CancelledError
        if self.failure is not None:
            raise self.failure()
        if call == self.refused:
            raise StoreUnavailableError("memory", "refused")


def store_of(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)
