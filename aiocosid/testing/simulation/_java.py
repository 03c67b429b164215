"""CosId's own generators as peers on the same store: they know of no mark and no fence."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from ...abc import IdGenerator, Statistics
from ...errors import CosIdError, StoreUnavailableError, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...snowflake import SnowflakeLayout
    from ._node import Node
    from ._redis_client import SimulatedRedisClient
    from ._sqlite import SimulatedSqlite

__all__ = ("JavaSegmentId", "JavaSnowflakeId", "jdbc_counter", "redis_counter")

RETRY: Final = 0.2  # seconds

# What CosId's scripts do, on CosId's keys: by the owner's clock alone.  The reply is ours: who
# was given which machine id, and its ids are later than.
DISTRIBUTE: Final = b"""
local entries, adder, pool = unpack(KEYS)
local instance, max_id, now, dead = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local function text(number) return string.format('%.0f', number) end
local function bind(id, stamp)
  redis.call('HSET', entries, instance, id .. '|' .. text(stamp))
  return {'taken', id, text(stamp - 1), 'unmarked'}
end
local function parts(entry)
  local id, stamp = entry:match('^(%d+)|(%d+)$')
  return id, tonumber(stamp)
end
local own = redis.call('HGET', entries, instance)
if own then
  local id, stamp = parts(own)
  return bind(id, math.max(stamp, now))
end
local returned = redis.call('HGETALL', pool)
if #returned > 0 then
  redis.call('HDEL', pool, returned[1])
  return bind(returned[1], math.max(tonumber(returned[2]), now))
end
redis.call('SETNX', adder, -1)
if tonumber(redis.call('GET', adder)) < max_id then
  return bind(text(redis.call('INCR', adder)), now)
end
local held = redis.call('HGETALL', entries)
for i = 1, #held, 2 do
  local id, stamp = parts(held[i + 1])
  if stamp <= dead then
    redis.call('HDEL', entries, held[i])
    return bind(id, now)
  end
end
return {'full'}
"""
GUARD: Final = b"""
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], entry:match('^%d+') .. '|' .. ARGV[2])
return 1
"""


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

    async def run(self, **_: Any) -> None:  # noqa: ANN401 - as the contract has it
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


def jdbc_counter(sqlite: SimulatedSqlite, node: Node, name: str) -> Callable[[int], Awaitable[int]]:
    """Return what CosId does by JDBC: a row is made once, and raised for each range.

    Args:
        sqlite: the database.
        node: where it is called.
        name: namespace and name.
    """
    executor = sqlite.executor(node)

    async def next_max_id(step: int) -> int:
        await executor.fetch_rows(
            "INSERT OR IGNORE INTO cosid (name, last_max_id, last_fetch_time) VALUES (:name, 0, 0)",
            name=name,
        )
        # An update and a look in one transaction there.
        row = await executor.fetch_row(
            "UPDATE cosid SET last_max_id = last_max_id + :step WHERE name = :name "
            "RETURNING last_max_id",
            step=step,
            name=name,
        )
        assert row is not None
        return int(row[0])

    return next_max_id


class JavaSnowflakeId(_Peer):
    """CosId's `MillisecondSnowflakeId` on a machine id of Redis, guarded and never given up.

    As CosId goes on when its guard fails, nothing may happen to it but its end.
    """

    def __init__(
        self,
        node: Node,
        client: SimulatedRedisClient,
        layout: SnowflakeLayout,
        *,
        safe_guard: float,
        interval: float,
    ) -> None:
        """Describe it.

        Args:
            node: where it runs; the process's name is the instance.
            client: the client.
            layout: the layout, of milliseconds.
            safe_guard: seconds after which a silent owner's id is taken.
            interval: seconds between two signs of life.
        """
        super().__init__(node)
        self._client = client
        self._layout = layout
        self._safe_guard_ms = int(safe_guard * 1000)
        self._interval = interval
        self._machine_id = -1
        self._last_ms = self._sequence = -1
        self._guard: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Take a machine id."""
        now = self._node.clock.now_ms()
        size = 1 << self._layout.machine_bits
        keys = ("cosid:{cosid}:itc_idx", "cosid:{cosid}:adder", "cosid:{cosid}:revert")
        facts = (self._instance, size - 1, now, now - self._safe_guard_ms)
        reply = await _told(self._client, "EVAL", DISTRIBUTE, 3, *keys, *facts)
        if reply[0] == b"full":
            raise StoreUnavailableError("redis", "all machine ids are in use")
        self._machine_id = int(reply[1])
        self._last_ms = int(reply[2]) + 1  # as CosId does: at the very stamp, from sequence 0
        self._guard = asyncio.create_task(self._keep(), name="guard")
        return self

    @property
    def _instance(self) -> str:
        return f"java {self._node.process.name}"

    async def _keep(self) -> None:
        while True:
            await self._node.clock.sleep(self._interval)
            key, now = "cosid:{cosid}:itc_idx", self._node.clock.now_ms()
            try:
                await _told(self._client, "EVAL", GUARD, 1, key, self._instance, now)
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


async def _told(client: SimulatedRedisClient, *words: Any) -> Any:  # noqa: ANN401 - the driver's
    from ...stores.redis._errors import translated  # noqa: PLC0415 - needs the driver

    with translated():
        return await client.execute_command(*words)
