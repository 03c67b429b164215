"""A store in memory that is away, refuses, hangs or loses its replies when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from aiocosid.abc import Counter, IdSegmentDistributor
from aiocosid.errors import CosIdError, StoreUnavailableError
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import WrappedDistributor

T = TypeVar("T")

AWAY = StoreUnavailableError("flaky", "away")


class Flaky(MemoryStore):
    """Counters in memory behind a call that takes a turn or two.

    Attributes:
        error: what each call raises, or None.
        is_lossy: whether it does so after the call has taken effect.
        hangs: whether calls never come back.
        calls: how many came.
        closed: how often it was closed.
        draw: says what happens to each call: ``""``, ``"away"`` or ``"lost"``.
    """

    __slots__ = ("calls", "closed", "draw", "error", "hangs", "is_lossy")

    def __init__(self, draw: Callable[[], str] = lambda: "") -> None:
        super().__init__()
        self.error: CosIdError | BaseException | None = None
        self.is_lossy = self.hangs = False
        self.calls = self.closed = 0
        self.draw = draw

    async def _call(self, act: Callable[[], T]) -> T:
        self.calls += 1
        fate = self.draw()
        await checkpoint()
        if self.hangs:
            await anyio.sleep_forever()
        if (self.error is not None and not self.is_lossy) or fate == "away":
            raise self.error or AWAY
        done = act()
        await checkpoint()
        if self.error is not None or fate == "lost":
            raise self.error or AWAY
        return done

    def segment_distributor(self, **described: Any) -> IdSegmentDistributor:  # type: ignore[override]
        return _Flaky(self, super().segment_distributor(**described))

    async def set_floor(self, **asked: Any) -> Counter:
        def act() -> Counter:
            key = f"{asked['namespace']}.{asked['name']}"
            self._backend._counters[key] = max(self._backend._counters.get(key, 0), asked["above"])
            return Counter(namespaced_name=key, last_max_id=self._backend._counters[key])

        return await self._call(act)

    async def aclose(self) -> None:
        self.closed += 1


class _Flaky(WrappedDistributor):
    def __init__(self, store: Flaky, inner: IdSegmentDistributor) -> None:
        super().__init__(inner)
        self._flaky = store

    async def next_max_id(self, step: int) -> int:
        self.steps.append(step)
        return await self._flaky._call(lambda: self.inner.next_max_id_nowait(step))
