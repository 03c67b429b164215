"""What the tests of the generators share: calls in the background, and an ear for events."""

from __future__ import annotations

from typing import Any

from aiocosid.abc import IdSegmentDistributor
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import GatedDistributor

Generator = SegmentChainId | SegmentId


def counter(*, step: int = 10, offset: int = 0) -> CounterDistributor:
    """A new counter in a store of its own."""
    return MemoryStore().segment_distributor(name="order", offset=offset, step=step)


def gated(*, step: int = 10, holds_replies: bool = False) -> GatedDistributor:
    """A new counter behind a gate that is open."""
    gate = GatedDistributor(counter(step=step), holds_replies=holds_replies)
    gate.open()
    return gate


class OneDistributor(MemoryStore):
    """Gives the same distributor to everybody."""

    def __init__(self, distributor: IdSegmentDistributor) -> None:
        super().__init__()
        self.distributor = distributor

    def segment_distributor(self, **_: Any) -> Any:
        return self.distributor


async def drain(generator: Generator) -> list[int]:
    """Take what is in hand; the next call has to wait."""
    ids: list[int] = []
    while remaining := generator.statistics().remaining:
        # One by one: a chain keeps more ahead for callers that take many at once.
        ids += [generator.next_id_nowait() for _ in range(remaining)]
    return ids
