"""What is asked of etcd: one call each, bounded by a deadline."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from ..._clock import SYSTEM_CLOCK
from ...errors import StoreUnavailableError
from ._driver import grpc, rpc
from ._errors import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...abc import Clock

__all__ = ("Member", "Stubs", "put", "remove", "same", "same_value")

PAGE: Final = 1000  # keys that a reply holds at most
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0005, 0.1  # seconds, after another has changed the same key


class Member:
    """One member of a cluster, for one attempt.

    Every read is linearizable, as all of etcd's are unless they are told otherwise.
    """

    __slots__ = ("_clock", "_conflicts", "_stubs", "_until", "metadata")

    def __init__(
        self,
        stubs: Stubs,
        metadata: Sequence[tuple[str, str]],
        until: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._stubs = stubs
        self._until = until  # by the clock
        self._clock = clock
        self._conflicts = 0
        # A member that is cut off from the others refuses at once, instead of being silent.
        self.metadata = (*metadata, ("hasleader", "true"))

    async def look(self, *keys: bytes) -> Any:  # noqa: ANN401 - the driver's
        """Read some keys at one moment; the reply's ``responses`` are in their order."""
        looks = [rpc.RequestOp(request_range=rpc.RangeRequest(key=key)) for key in keys]
        return await self._call(self._stubs.kv.Txn, rpc.TxnRequest(success=looks))

    async def scan(self, prefix: bytes) -> tuple[Any, list[Any]]:
        """Read all keys that begin so, at one moment: the first reply's header, and the keys."""
        start, header, found = prefix, None, list[Any]()
        while True:
            reply = await self._call(
                self._stubs.kv.Range,
                rpc.RangeRequest(
                    key=start,
                    range_end=_span_end(prefix),
                    limit=PAGE,
                    revision=header.revision if header else 0,
                ),
            )
            header = header or reply.header
            found += reply.kvs
            if not reply.more:
                return header, found
            start = reply.kvs[-1].key + b"\0"

    async def change(
        self, compares: Sequence[Any], changes: Sequence[Any], *, else_look: Sequence[bytes] = ()
    ) -> Any:  # noqa: ANN401 - the driver's
        """Write if all comparisons hold, else read; the reply says which by ``succeeded``.

        Sent again, it finds that they do not hold any more.
        """
        looks = [rpc.RequestOp(request_range=rpc.RangeRequest(key=key)) for key in else_look]
        request = rpc.TxnRequest(compare=compares, success=changes, failure=looks)
        return await self._call(self._stubs.kv.Txn, request)

    async def grant(self, seconds: int) -> int:
        """Return a new lease of so many seconds at least; unused, it ends by itself."""
        reply = await self._call(self._stubs.lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=seconds))
        return int(reply.ID)

    async def keep_alive(self, lease: int) -> int:
        """Have a lease begin anew; return how many seconds it is long, 0 if it has ended."""
        call = self._stubs.lease.LeaseKeepAlive(timeout=self._left(), metadata=self.metadata)
        try:
            await call.write(rpc.LeaseKeepAliveRequest(ID=lease))
            reply = await call.read()
        finally:
            call.cancel()
        return 0 if reply is grpc.aio.EOF else int(reply.TTL)

    async def remaining(self, lease: int) -> int:
        """Return how many whole seconds a lease has left, -1 if it has ended."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease)
        return int((await self._call(self._stubs.lease.LeaseTimeToLive, request)).TTL)

    async def pause(self) -> None:
        """Wait a moment, because another has changed what was compared.

        Raises:
            StoreUnavailableError: the time for this call is over.
        """
        if self._until <= self._clock.monotonic():
            raise StoreUnavailableError(STORE, "what was to be changed is always changed by others")
        longest = min(SHORTEST_PAUSE * 2**self._conflicts, LONGEST_PAUSE)
        self._conflicts += 1
        await self._clock.sleep(random.uniform(0, longest))  # noqa: S311 - no secret

    async def _call(self, method: Any, request: Any) -> Any:  # noqa: ANN401 - the driver's
        return await method(request, timeout=self._left(), metadata=self.metadata)

    def _left(self) -> float:
        return max(self._until - self._clock.monotonic(), 0.001)


class Stubs:
    """The driver's callers on one channel."""

    __slots__ = ("kv", "lease")

    def __init__(self, kv: Any, lease: Any) -> None:  # noqa: ANN401 - the driver's
        self.kv = kv
        self.lease = lease


def same(key: bytes, mod_revision: int) -> Any:  # noqa: ANN401 - the driver's
    """Compare: nobody has written the key since; 0 for one that is not there."""
    return rpc.Compare(
        key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=mod_revision
    )


def same_value(key: bytes, value: bytes) -> Any:  # noqa: ANN401 - the driver's
    """Compare: the key is there, with that value."""
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value)


def put(key: bytes, value: bytes, lease: int = 0) -> Any:  # noqa: ANN401 - the driver's
    """Change: write a key, on a lease that takes it away with it if that is not 0."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def remove(key: bytes) -> Any:  # noqa: ANN401 - the driver's
    """Change: remove a key."""
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def _span_end(prefix: bytes) -> bytes:
    """Return where the keys end that begin so; the last byte of ours is never 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
