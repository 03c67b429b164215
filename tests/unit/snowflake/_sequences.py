"""A store of sequences that does what a test says."""

from __future__ import annotations

import anyio

from aiocosid.abc import SequenceGrant, SequenceReply
from aiocosid.errors import CosIdError
from aiocosid.snowflake import ShardedLayout
from aiocosid.stores.memory import MemoryBackend, MemorySequenceDistributor
from aiocosid.testing import ManualClock

LAYOUT = ShardedLayout(1_546_300_800)


class Sequences(MemorySequenceDistributor):
    """Counts its calls, and answers something else if it is told so.

    Attributes:
        asked: second and size of each call.
        grants: what it has granted.
        error: what it raises, if it does.
        replies: what it answers first, before it grants anything.
        gate: what each call waits for, if anything.
    """

    __slots__ = ("asked", "error", "gate", "grants", "replies")

    def __init__(self, clock: ManualClock, *, max_sequence: int = 524_287) -> None:
        super().__init__(namespace="shop", name="order", max_sequence=max_sequence, clock=clock)
        self.asked: list[tuple[int, int]] = []
        self.grants: list[SequenceGrant] = []
        self.error: CosIdError | None = None
        self.replies: list[SequenceReply] = []
        self.gate: anyio.Event | None = None

    @property
    def counts(self) -> MemoryBackend:
        """Where it counts."""
        assert isinstance(self._backend, MemoryBackend)
        return self._backend

    async def grant(self, second: int, size: int) -> SequenceReply:
        self.asked.append((second, size))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error.again()
        reply = self.replies.pop(0) if self.replies else await super().grant(second, size)
        if isinstance(reply, SequenceGrant):
            self.grants.append(reply)
        return reply

    def holds(self, new_id: int) -> bool:
        """Has it granted the id's sequence, for the id's second?"""
        second, _, sequence = LAYOUT.parse(new_id)
        return any(
            each.second == second and each.first <= sequence <= each.last for each in self.grants
        )
