"""Stores for the command line that answer what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiocosid.abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter, IdSegmentDistributor, Store
from aiocosid.errors import CosIdError


class ScriptedDistributor(IdSegmentDistributor):
    """Counts, unless the store's script has an error for this call."""

    def __init__(self, store: ScriptedStore, namespace: str, name: str, step: int) -> None:
        super().__init__(namespace=namespace, name=name, step=step)
        self._script = store

    async def next_max_id(self, step: int) -> int:
        self._script.steps.append(step)
        await self._script.answer()
        return self._script.count(step)


class ScriptedStore(Store):
    """One counter, and a list of what goes wrong.

    Attributes:
        urls: by which it was opened.
        script: for each call an error to raise, or None for an answer; answers when it is used up.
        steps: what the distributor was asked for.
        closed: what was closed, in order.
        held: what `counters` returns.
        silent: whether it never answers.
        stuck: whether it never ends closing.
    """

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.script: list[CosIdError | None] = []
        self.steps: list[int] = []
        self.closed: list[str] = []
        self.held: list[Counter] = []
        self.silent = False
        self.stuck = False
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

    async def create_schema(self) -> None:
        await self.answer()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        await self.answer()
        return self.held

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        await self.answer()
        return Counter(namespaced_name=f"{namespace}.{name}", last_max_id=above)

    async def aclose(self) -> None:
        self.closed.append("store")
        if self.stuck:
            await asyncio.Event().wait()
