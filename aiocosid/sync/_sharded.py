"""The generator for threads whose ids contain their shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .. import snowflake
from .._life.clock import SYSTEM_CLOCK
from ..errors import InvalidArgumentError, WouldBlock
from ._generator import AWAIT, DEFAULT_TIMEOUT, SyncIdGenerator
from ._session import refuse_on_a_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from ..snowflake import ShardedId

__all__ = ("SyncShardedId",)

R = TypeVar("R")


class SyncShardedId(SyncIdGenerator[int]):
    """A `ShardedId` for threads and synchronous code: each call may name a sharding id.

    It opens and closes as `SyncIdGenerator` does.  Each call waits for the background loop, because
    a buffered id would be from an earlier second.
    """

    __slots__ = ()

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[ShardedId]],
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Describe a generator; the first use creates and opens it.

        Args:
            make: returns a `ShardedId` that is not open yet; see `SyncIdGenerator`.
            timeout: maximum seconds that a call waits, including opening.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(make, batch=1, timeout=timeout)

    def next_id(self, sharding_id: int | None = None) -> int:
        """Return the next id; see `aiocosid.snowflake.ShardedId.next_id`.

        Args:
            sharding_id: 0 to the layout's maximum; None for the generator's own.

        Raises:
            InvalidArgumentError: there is no such sharding id.
            WouldBlock: an event loop runs in this thread.
            CosIdError: as for `SyncIdGenerator.next_id`.
        """
        return self._ask(lambda ids: ids.next_id(sharding_id))

    def next_ids(self, n: int, sharding_id: int | None = None) -> list[int]:
        """Return exactly ``n`` ids with one sharding id in rising order, 1 to 10 million.

        Args:
            n: the number of ids.
            sharding_id: as for `next_id`.

        Raises:
            InvalidArgumentError: ``n`` or the sharding id is outside its range.
            CosIdError: as for `next_id`.
        """
        return self._ask(lambda ids: ids.next_ids(n, sharding_id))

    def next_str(self, sharding_id: int | None = None, prefix: str = "") -> str:
        """Return the next id as a text; see `aiocosid.snowflake.ShardedLayout.compose_text`.

        Args:
            sharding_id: as for `next_id`.
            prefix: a text before the digits.

        Raises:
            CosIdError: as for `next_id`.
        """
        return self._ask(lambda ids: ids.next_str(sharding_id, prefix))

    def next_id_nowait(self, sharding_id: int | None = None) -> int:  # noqa: ARG002 - as `next_id`
        """Raise `WouldBlock`, because no ids are buffered for threads.

        Raises:
            WouldBlock: always, unless the generator was closed.
            ClosedError: the generator was closed.
        """
        self._session.check_open()
        raise WouldBlock

    def _ask(self, take: Callable[[ShardedId], Awaitable[R]]) -> R:
        """Take ids from the generator itself, on the background loop."""
        refuse_on_a_loop("waiting for an id", AWAIT)
        deadline = SYSTEM_CLOCK.monotonic() + self._session.timeout

        async def work(value: object) -> R:
            found = await self._find(value)
            if not isinstance(found, snowflake.ShardedId):
                rule = "must be a ShardedId: other kinds take no sharding id without await"
                raise InvalidArgumentError("generator", found, rule)
            return await take(found)

        return self._in_one_process(lambda: self._outcome(work, deadline))
