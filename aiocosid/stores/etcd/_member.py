"""The calls on a member of a cluster, each bounded by a deadline."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from ..._life.clock import SYSTEM_CLOCK
from ...errors import StoreUnavailableError
from ._driver import STORE, grpc, rpc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._driver import Message

__all__ = ("Member", "Stubs", "put", "remove", "span", "unchanged", "unwritten")

PAGE: Final = 1000  # maximum number of keys in a reply
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0005, 0.1  # seconds, after a conflict over a key


class Stubs(NamedTuple):
    """The driver's stubs on one channel; they are expensive to create."""

    channel: Message
    kv: Message
    lease: Message


class Member:
    """One member of a cluster, for one attempt.

    Every read is linearizable, which is etcd's default.
    """

    __slots__ = ("_conflicts", "_kv", "_lease", "_metadata", "_until")

    def __init__(self, stubs: Stubs, metadata: Sequence[tuple[str, str]], until: float) -> None:
        """Ask on a channel.

        Args:
            stubs: the driver's stubs on that channel.
            metadata: the login's metadata.
            until: the deadline, by the monotonic clock.
        """
        self._kv, self._lease = stubs.kv, stubs.lease
        # A member that is partitioned from the others then refuses at once, instead of not
        # answering.
        self._metadata = (*metadata, ("hasleader", "true"))
        self._until = until
        self._conflicts = 0

    async def read_ranges(self, *ranges: Message) -> Message:
        """Read ranges at one moment; the reply's ``responses`` are in the same order."""
        return await self.write((), [rpc.RequestOp(request_range=each) for each in ranges])

    async def read(
        self, *keys: str, prefix: str = "", keys_only: bool = False
    ) -> tuple[Message, list[Message]]:
        """Read some keys, and all with a prefix, at one moment.

        Returns:
            The reply's header, and the keys that exist.
        """
        ranges = [span(key) for key in keys]
        if prefix:
            ranges.append(span(prefix, is_prefix=True, limit=PAGE, keys_only=keys_only))
        reply = await self.read_ranges(*ranges)
        found = [each for part in reply.responses for each in part.response_range.kvs]
        page = reply.responses[-1].response_range
        while page.more:
            ranges[-1].key, ranges[-1].revision = page.kvs[-1].key + b"\0", reply.header.revision
            page = await self._call(self._kv.Range, ranges[-1])
            found += page.kvs
        return reply.header, found

    async def write(
        self, compares: Sequence[Message], changes: Sequence[Message], *, else_read: str = ""
    ) -> Message:
        """Write if all comparisons hold, else read a key; the reply's ``succeeded`` says which.

        If it is sent again, the comparisons do not hold any more.
        """
        looks = [rpc.RequestOp(request_range=span(else_read))] if else_read else ()
        request = rpc.TxnRequest(compare=compares, success=changes, failure=looks)
        return await self._call(self._kv.Txn, request)

    async def write_and_keep(
        self, compares: Sequence[Message], changes: Sequence[Message], lease: int
    ) -> tuple[Message, int]:
        """Do the same, and extend a lease without a further round trip.

        Returns:
            The reply, or None if the lease had ended and nothing was written; and the lease's
            length in seconds, 0 if it has ended since.
        """
        request = rpc.LeaseKeepAliveRequest(ID=lease)
        beat = self._lease.LeaseKeepAlive(
            iter((request,)), timeout=self._left(), metadata=self._metadata
        )
        try:
            reply = await self.write(compares, changes)
            kept = await beat.read()
        except grpc.aio.AioRpcError as exc:
            if exc.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return None, 0
        finally:
            beat.cancel()
        return reply, 0 if kept is grpc.aio.EOF else int(kept.TTL)

    async def grant(self, seconds: int) -> int:
        """Return a new lease of at least so many seconds; if it is unused, it expires."""
        reply = await self._call(self._lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=seconds))
        return int(reply.ID)

    async def remaining(self, lease: int) -> int:
        """Return the whole seconds that a lease has left, -1 if it has ended."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease)
        return int((await self._call(self._lease.LeaseTimeToLive, request)).TTL)

    async def pause(self) -> None:
        """Wait a moment after a conflict.

        Raises:
            StoreUnavailableError: the deadline of this call has passed.
        """
        if self._until <= SYSTEM_CLOCK.monotonic():
            raise StoreUnavailableError(STORE, "other clients change the same keys each time")
        longest = min(SHORTEST_PAUSE * 2**self._conflicts, LONGEST_PAUSE)
        self._conflicts += 1
        await SYSTEM_CLOCK.sleep(random.uniform(0, longest))  # noqa: S311 - no secret

    async def _call(self, method: Message, request: Message) -> Message:
        return await method(request, timeout=self._left(), metadata=self._metadata)

    def _left(self) -> float:
        return max(self._until - SYSTEM_CLOCK.monotonic(), 0.001)


def span(key: str, *, is_prefix: bool = False, **how: object) -> Message:
    """Return a request for a key, or for all keys with that prefix."""
    end = _span_end(key) if is_prefix else b""
    return rpc.RangeRequest(key=key.encode(), range_end=end, **how)


def unchanged(key: str, value: bytes | None) -> Message:
    """Return a comparison: the key has that value; None for a missing key."""
    if value is None:
        condition = {"target": rpc.Compare.MOD, "mod_revision": 0}
    else:
        condition = {"target": rpc.Compare.VALUE, "value": value}
    return rpc.Compare(key=key.encode(), result=rpc.Compare.EQUAL, **condition)


def unwritten(prefix: str, revision: int) -> Message:
    """Return a comparison: no key with that prefix was written after that revision."""
    return rpc.Compare(
        key=prefix.encode(),
        range_end=_span_end(prefix),
        target=rpc.Compare.MOD,
        result=rpc.Compare.LESS,
        mod_revision=revision + 1,
    )


def put(key: str, value: bytes, lease: int = 0) -> Message:
    """Return an operation: write a key; on a lease that removes it when it ends, if not 0."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value, lease=lease))


def remove(key: str, *, is_prefix: bool = False) -> Message:
    """Return an operation: remove a key, or all with that prefix."""
    end = _span_end(key) if is_prefix else b""
    deletion = rpc.DeleteRangeRequest(key=key.encode(), range_end=end)
    return rpc.RequestOp(request_delete_range=deletion)


def _span_end(prefix: str) -> bytes:
    """Return the end of the range of keys with a prefix, which ends with ``/`` or a dot."""
    return f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}".encode()
