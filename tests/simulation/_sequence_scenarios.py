"""Sequences of a second on a Redis that loses what it has granted.

They come with the package; each is run by its name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aiocosid.snowflake import ShardedId, ShardedLayout

from ._churn import churn
from ._redis import SimulatedRedis
from ._store_trouble import redis_trouble

if TYPE_CHECKING:
    from ._node import Node
    from ._redis import Persistence
    from ._store_trouble import RedisAct
    from ._world import World

__all__ = ("sharded_losses",)

LAYOUT: Final = ShardedLayout(1_546_300_800)
PERSISTENCES: Final[tuple[Persistence, ...]] = ("none", "everysec", "snapshot", "always")
ACTS: Final[tuple[RedisAct, ...]] = (
    *("restart", "outage", "save", "flush", "fail over", "fail back", "split"),
)
MARGIN: Final = 2  # seconds; as long as a split may last


async def sharded_losses(world: World) -> None:
    """Many nodes on one name; clocks are nearly right, and the server is anything but reliable."""
    from aiocosid.stores.redis import RedisStore

    redis = SimulatedRedis(world, persistence=world.rng.choice(PERSISTENCES), replicas=1)
    most = world.rng.choice((400, 524_287))

    def make(node: Node) -> ShardedId:
        sequences = RedisStore(redis.client(node)).sequence_distributor(
            name="order", max_sequence=most, tolerance=1, margin=MARGIN
        )
        return ShardedId(sequences, layout=LAYOUT, clock=node.clock, wait_timeout=4.0, nodes=4)

    await churn(
        world,
        make,
        acts=("crash", "pause", "cut"),
        deadline=10.0,
        recovery=15.0,
        meanwhile=partial(redis_trouble, redis=redis, seconds=5.0, every=1.5, acts=ACTS),
    )
