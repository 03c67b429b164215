"""The published generator of sharded ids, put together from its description, for comparison.

Right is it not: it trusts whatever counter it finds.  What made it hang is left out, and so is the
random sequence that it falls back to.
"""

from __future__ import annotations

import time
from typing import Any, Final

from aiocosid.errors import StoreUnavailableError
from aiocosid.snowflake import ShardedLayout

__all__ = ("EPOCH_MS", "PUBLISHED", "PublishedId")

PUBLISHED: Final = """\
local sequence_key, app_second = KEYS[1], ARGV[1]
local max_sequence, size = tonumber(ARGV[2]), tonumber(ARGV[3])
local lock_key = 'lock-' .. sequence_key
if redis.pcall('EXISTS', lock_key) == 1 then
  redis.log(redis.LOG_WARNING, 'sequence is locked: ' .. sequence_key)
  return redis.error_reply('LOCKED ' .. sequence_key)
end
local last = redis.pcall('INCRBY', sequence_key, size)
redis.pcall('EXPIRE', sequence_key, 600)
local first = last - size + 1
if last >= max_sequence then
  redis.log(redis.LOG_WARNING, 'rolling back to the start: ' .. sequence_key)
  redis.pcall('PSETEX', lock_key, 1000, '1')
  last = max_sequence
end
return {first, last, app_second}
"""

EPOCH_MS: Final = 1_546_300_800_000  # 2019-01-01T00:00Z
MAX_SEQUENCE: Final = 524_287


class PublishedId:
    """One node, with a segment of this second in its cache."""

    def __init__(self, client: Any, name: str, *, size: int = 1000) -> None:
        self._client = client
        self._script = client.register_script(PUBLISHED)
        self._name = name
        self._size = size
        self._layout = ShardedLayout(EPOCH_MS)
        self._second = -1
        self._ids = range(0)

    async def next_ids(self, n: int) -> list[int]:
        """Return ids of the sharding id 0."""
        ids: list[int] = []
        while len(ids) < n:
            second = int(time.time())
            if second != self._second or not self._ids:
                await self._refill(second)
            taken = self._ids[: n - len(ids)]
            self._ids = self._ids[len(taken) :]
            ids += taken
        return ids

    async def next_id(self) -> int:
        """Return one."""
        return (await self.next_ids(1))[0]

    async def _refill(self, second: int) -> None:
        try:
            first, last, _ = await self._script(
                keys=[f"{self._name}{second}"], args=[second, MAX_SEQUENCE, self._size]
            )
        except Exception as error:
            # What was a master may be a replica by now, which the script does not tell.
            await self._client.connection_pool.disconnect()
            raise StoreUnavailableError("redis", str(error)) from error
        self._second = second
        if first > last:  # an inverted range
            raise StoreUnavailableError("redis", "the second is used up")
        start = self._layout.compose(second, 0, first)
        self._ids = range(start, start + last - first + 1)
