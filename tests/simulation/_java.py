"""CosId's own generators as peers on the same store: they know of no mark and no fence."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from aiocosid.abc import IdGenerator, Statistics
from aiocosid.errors import CosIdError, StoreUnavailableError, WouldBlock

from ._store import peer_guards, peer_takes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiocosid.snowflake import SnowflakeLayout

    from ._node import Node
    from ._redis_client import SimulatedRedisClient
    from ._store import SimulatedStore

__all__ = ("JavaSegmentId", "JavaSnowflakeId", "jdbc_counter", "redis_counter")

RETRY: Final = 0.2  # seconds
NAMESPACE: Final = "cosid"


class _Peer(IdGenerator):
    """What both have in common."""

    name = "order"

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = asyncio.Lock()

    async def next_id(self) -> int:
        """Return the next id."""
        return (await self.next_ids(1))[0]

    def next_id_nowait(self) -> int:
        """Refuse: CosId has no such thing."""
        raise WouldBlock

    def statistics(self) -> Statistics:
        """Name the counter."""
        return Statistics(kind=type(self).__name__, namespace="cosid", name=self.name)

    async def run(self, **_: Any) -> None:
        """Refuse: it is opened by ``async with``."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        """Begin."""
        return self


class JavaSegmentId(_Peer):
    """CosId's `SegmentId`: one range at a time, on whatever counts."""

    def __init__(self, node: Node, next_max_id: Callable[[int], Awaitable[int]], step: int) -> None:
        """Take ranges.

        Args:
            node: where it runs.
            next_max_id: advances the counter.
            step: ids in a range.
        """
        super().__init__(node)
        self._next_max_id = next_max_id
        self._step = step
        self._hand: deque[int] = deque()
        self._max_id = 0

    async def next_ids(self, n: int) -> list[int]:
        """Return ``n`` ids."""
        async with self._lock:
            while len(self._hand) < n:
                max_id = await self._next_max_id(self._step)
                # A late one: CosId raises, and the next call takes another one.
                if max_id - self._step >= self._max_id:
                    self._hand.extend(range(max_id - self._step + 1, max_id + 1))
                    self._max_id = max_id
            return [self._hand.popleft() for _ in range(n)]


def redis_counter(client: SimulatedRedisClient, name: str) -> Callable[[int], Awaitable[int]]:
    """Return what CosId does on Redis: SETNX once, INCRBY for each range.

    Args:
        client: the client.
        name: namespace and name.
    """
    key = f"cosid:{{{name}}}.adder"

    async def next_max_id(step: int) -> int:
        await _told(client, "SETNX", key, 0)
        return int(await _told(client, "INCRBY", key, step))

    return next_max_id


def jdbc_counter(store: SimulatedStore, node: Node, name: str) -> Callable[[int], Awaitable[int]]:
    """Return what CosId does by JDBC: a row is made once, and raised for each range.

    Args:
        store: the database.
        node: where it is called.
        name: namespace and name.
    """
    link = node.link()

    async def next_max_id(step: int) -> int:
        async def operation() -> int:
            return store.server.add_nowait(name, step, first=step)

        return await link.call("jdbc", f"add({step})", operation)

    return next_max_id


class JavaSnowflakeId(_Peer):
    """CosId's `MillisecondSnowflakeId` on a machine id of a store, guarded and never given up.

    As CosId goes on when its guard fails, nothing may happen to it but its end.
    """

    def __init__(
        self,
        node: Node,
        store: SimulatedStore,
        layout: SnowflakeLayout,
        *,
        safe_guard: float,
        interval: float,
    ) -> None:
        """Describe it.

        Args:
            node: where it runs; the process's name is the instance.
            store: where the machine ids lie.
            layout: the layout, of milliseconds.
            safe_guard: seconds after which a silent owner's id is taken.
            interval: seconds between two renewals.
        """
        super().__init__(node)
        self._store = store
        self._link = node.link()
        self._layout = layout
        self._safe_guard_ms = int(safe_guard * 1000)
        self._interval = interval
        self._machine_id = -1
        self._last_ms = self._sequence = -1
        self._guard: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Take a machine id."""
        now_ms = self._node.clock.now_ms()
        process = self._node._current()
        size = 1 << self._layout.machine_bits

        async def take() -> tuple[int, int] | None:
            found = peer_takes(
                self._store.server,
                NAMESPACE,
                self._instance,
                size=size,
                now_ms=now_ms,
                dead_ms=now_ms - self._safe_guard_ms,
            )
            if found is not None:
                machine_id, stamp_ms = found
                ledger = self._node.world.ledger
                ledger.granted(
                    NAMESPACE, machine_id, process, floor_ms=stamp_ms - 1, has_marks=False
                )
            return found

        taken = await self._link.call("jdbc", "take()", take)
        if taken is None:
            raise StoreUnavailableError("jdbc", "all machine ids are in use")
        # As CosId does: at the very stamp, from sequence 0.
        self._machine_id, self._last_ms = taken
        self._guard = asyncio.create_task(self._keep(), name="guard")
        return self

    @property
    def _instance(self) -> str:
        return f"java {self._node.process.name}"

    async def _keep(self) -> None:
        while True:
            await self._node.clock.sleep(self._interval)
            now_ms = self._node.clock.now_ms()

            async def guard(now_ms: int = now_ms) -> None:
                peer_guards(self._store.server, NAMESPACE, self._instance, now_ms)

            try:
                await self._link.call("jdbc", "guard()", guard)
            except CosIdError:
                await self._node.clock.sleep(RETRY)

    async def next_ids(self, n: int) -> list[int]:
        """Return ``n`` ids."""
        async with self._lock:
            return [await self._stamp() for _ in range(n)]

    async def _stamp(self) -> int:
        layout, clock = self._layout, self._node.clock
        while (now := clock.now_ms()) < self._last_ms or self._is_spent(now):
            await clock.sleep(0.001)
        self._sequence = self._sequence + 1 if now == self._last_ms else 0
        self._last_ms = now
        ticks = now - layout.epoch_ms
        shift = layout.machine_bits + layout.sequence_bits
        return ticks << shift | self._machine_id << layout.sequence_bits | self._sequence

    def _is_spent(self, now: int) -> bool:
        return now == self._last_ms and self._sequence + 1 >= 1 << self._layout.sequence_bits

    async def aclose(self) -> None:
        """End as a process does that is killed."""
        if self._guard is not None:
            self._guard.cancel()


async def _told(client: SimulatedRedisClient, *words: Any) -> Any:
    from aiocosid.stores.redis._link import as_store_error

    with as_store_error():
        return await client.execute_command(*words)
