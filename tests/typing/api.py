"""The public names, used as a user would.

mypy and basedpyright read this file in strict mode and nothing runs it: a change of a signature
that would break a user's checker shows here first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import anyio

import aiocosid
from aiocosid import IdSegment, SegmentChainId, SegmentId, WouldBlock
from aiocosid.abc import Clock, IdGenerator, IdSegmentDistributor, Statistics
from aiocosid.events import Event
from aiocosid.stores.memory import MemoryIdSegmentDistributor
from aiocosid.stores.postgres import PostgresIdSegmentDistributor
from aiocosid.stores.redis import RedisIdSegmentDistributor
from aiocosid.stores.sqlite import SqliteIdSegmentDistributor
from aiocosid.testing import IdGeneratorContract, IdSegmentDistributorContract, ManualClock

if TYPE_CHECKING:
    import asyncpg
    from redis.asyncio import Redis, RedisCluster


class OwnDistributor(IdSegmentDistributor):
    """A stranger's store: one method."""

    async def next_max_id(self, step: int) -> int:
        """Count on from nowhere."""
        return step


class TestOwnDistributor(IdSegmentDistributorContract):
    """The kit is inherited, nothing more."""


class TestOwnGenerator(IdGeneratorContract):
    """As above."""


class OwnInstrument:
    """It needs no base class."""

    def on_event(self, event: Event) -> None:
        """Take what is common to all events."""
        assert_type(event.namespace, str)
        assert_type(event.name, str)


async def by_url() -> None:
    """Named generators from a URL."""
    async with aiocosid.connect("sqlite:///ids.db") as ids:
        chain = await ids.segment_chain("order", step=100, safe_distance=3)
        assert_type(chain, SegmentChainId)
        assert_type(await chain.next_id(), int)
        assert_type(await ids.segment("invoice"), SegmentId)


async def by_hand(client: Redis, cluster: RedisCluster, pool: asyncpg.Pool) -> None:
    """Distributors on the user's own clients, and by URL."""
    distributors: list[IdSegmentDistributor] = [
        OwnDistributor(name="order"),
        MemoryIdSegmentDistributor(name="order"),
        RedisIdSegmentDistributor(client, namespace="shop", name="order", offset=5, step=1000),
        RedisIdSegmentDistributor(cluster, name="order"),
        RedisIdSegmentDistributor.from_url("redis://localhost", name="order"),
        PostgresIdSegmentDistributor(pool, name="order"),
        PostgresIdSegmentDistributor.from_url("postgresql://localhost/shop", name="order"),
        SqliteIdSegmentDistributor.from_url("sqlite:///ids.db", name="order"),
    ]
    for distributor in distributors:
        assert_type(await distributor.next_max_id(10), int)


async def generators(clock: Clock) -> None:
    """What every generator offers, in every way to open one."""
    distributor = MemoryIdSegmentDistributor(name="order")
    async with SegmentChainId(
        distributor,
        safe_distance=2,
        ttl=60.0,
        wait_timeout=1,
        max_id=2**53 - 1,
        instrument=OwnInstrument(),
        clock=clock,
    ) as chain:
        assert_type(chain, SegmentChainId)
        assert_type(await chain.next_ids(500), list[int])
        try:
            assert_type(chain.next_id_nowait(), int)
        except WouldBlock as error:
            assert_type(error.retryable, bool)
        statistics: Statistics = chain.statistics()
        assert_type(statistics.namespace, str)
        assert_type(chain.statistics().starvations, int)

    generator: IdGenerator = SegmentId(distributor, clock=ManualClock())
    async with anyio.create_task_group() as group:
        await group.start(generator.run)
        await generator.aclose()


def segment(of: IdSegment) -> None:
    """A range of ids."""
    assert_type(of.max_id, int)
    assert_type(of.step, int)


def errors(error: aiocosid.CosIdError) -> bool:
    """One root, with a fact that all of them have."""
    return error.retryable
