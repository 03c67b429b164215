"""Stores for the command line that answer what a test wants."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from io import StringIO

from aiocosid.abc import (
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
    Counter,
    IdSegmentDistributor,
    InstanceId,
    Machine,
    MachineGrant,
    MachineMarker,
    Store,
)
from aiocosid.errors import CosIdError
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores.memory import MemoryStore


class Terminal(StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


class ScriptedDistributor(IdSegmentDistributor):
    """Counts, unless the store's script has an error for this call."""

    def __init__(self, store: ScriptedStore, namespace: str, name: str, step: int) -> None:
        super().__init__(namespace=namespace, name=name, step=step)
        self._script = store
        self.stride, self.step_limit = store.stride, store.step_limit

    async def next_max_id(self, step: int) -> int:
        self._script.steps.append(step)
        await self._script.answer()
        return self._script.count(step * self.stride)


class ScriptedMachines(CellMachineIdDistributor):
    """Hands out machine ids, unless the store's script has an error for this call."""

    def __init__(self, store: ScriptedStore, namespace: str) -> None:
        super().__init__(store.memory._backend, namespace=namespace)
        self.store = "redis"
        self._script = store

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        await self._script.answer()
        return await super().distribute(bits, now_ms=now_ms, latest_ms=latest_ms)


class ScriptedStore(Store):
    """One counter, and a list of what goes wrong.

    Attributes:
        urls: by which it was opened.
        script: for each call an error to raise, or None for an answer; answers when it is used up.
        steps: what the distributor was asked for.
        closed: what was closed, in order.
        held: what `counters` returns.
        known: what `machines` returns, one list a call; the last one again and again.
        reverted: which machine ids were taken from their owners.
        memory: where the machine ids lie that are handed out.
        silent: whether it never answers.
        stuck: whether it never ends closing.
        stride: from one id to the next.
        step_limit: how many ids one call grants at most.
    """

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.script: list[CosIdError | None] = []
        self.steps: list[int] = []
        self.closed: list[str] = []
        self.held: list[Counter] = []
        self.known: list[list[Machine]] = [[]]
        self.reverted: list[tuple[str, int]] = []
        self.memory = MemoryStore()
        self.silent = False
        self.stuck = False
        self.stride = 1
        self.step_limit: int | None = None
        self._max_id = 0

    async def answer(self) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.script and (error := self.script.pop(0)) is not None:
            raise error

    def count(self, step: int) -> int:
        self._max_id += step
        return self._max_id

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> ScriptedDistributor:
        return ScriptedDistributor(self, namespace, name, step)

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float | None = None,
        region: int | None = None,
        region_bits: int = 0,
        state_dir: str | os.PathLike[str] | None = None,
        offline: float = 0.0,
        offline_beside_cosid: bool = False,
    ) -> ScriptedMachines:
        return ScriptedMachines(self, namespace)

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        await self.answer()
        return self.known[0] if len(self.known) == 1 else self.known.pop(0)

    async def evict_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        await self.answer()
        self.reverted.append((namespace, machine_id))

    async def initialize_namespace(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        confirm_no_holders: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        return await self.memory.initialize_namespace(
            namespace=namespace, confirm_no_holders=confirm_no_holders, safe_guard=safe_guard
        )

    async def is_initialized(self) -> bool:
        if self.silent:
            await self.answer()
        return await self.memory.is_initialized()

    async def initialize(
        self, *, confirm_no_holders: bool = False, after_loss: bool = False
    ) -> None:
        await self.memory.initialize(confirm_no_holders=confirm_no_holders, after_loss=after_loss)

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        return await self.memory.machine_markers(namespace=namespace)

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        await self.answer()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        await self.answer()
        return self.held

    async def set_floor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        above: int,
        create: bool = True,
    ) -> Counter:
        await self.answer()
        return Counter(namespaced_name=f"{namespace}.{name}", last_max_id=above)

    async def aclose(self) -> None:
        self.closed.append("store")
        if self.stuck:
            await asyncio.Event().wait()
