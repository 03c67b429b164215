"""Scenarios on the shipped scripts and statements, with stores that have troubles of their own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ...abc import InstanceId
from ...errors import CosIdError, StoreRolledBackError
from ...segment import SegmentChainId
from ...snowflake import SnowflakeId
from ._churn import ROUGH, churn
from ._faults import Faults
from ._java import JavaSegmentId, JavaSnowflakeId, jdbc_counter, redis_counter
from ._redis import SimulatedRedis, mark_machines
from ._scenarios import INTERVAL, LAYOUT, SAFE_GUARD, STEP, Naming, parse
from ._sqlite import SimulatedSqlite
from ._store_trouble import redis_trouble
from ._trouble import trouble

if TYPE_CHECKING:
    from ...abc import IdGenerator
    from ._churn import MakeGenerator
    from ._node import Node
    from ._store_trouble import RedisAct
    from ._world import World

__all__ = (
    "redis_snowflake_peers",
    "redis_snowflakes",
    "segment_chain_peers",
    "segment_chain_redis",
    "segment_chain_rolled_back",
    "segment_chain_sqlite",
    "segment_chain_striped",
    "sqlite_snowflakes",
)

SECONDS: Final = 3.0  # of trouble
COUNTER: Final = "cosid.order"


def redis_chains(redis: SimulatedRedis, *, offset: int = 0) -> MakeGenerator:
    """Make segment chains on one counter of a Redis."""
    from ...stores.redis import RedisIdSegmentDistributor  # noqa: PLC0415 - needs the driver

    def make(node: Node) -> SegmentChainId:
        counter = RedisIdSegmentDistributor(
            redis.client(node), name="order", step=STEP, offset=offset
        )
        return SegmentChainId(counter, clock=node.clock)

    return make


async def segment_chain_redis(world: World) -> None:
    """Segment chains on a Redis that keeps what it has written, whatever happens."""
    redis = SimulatedRedis(world)
    make = redis_chains(redis, offset=world.rng.choice((0, 1000)))
    acts = partial(redis_trouble, redis=redis, seconds=SECONDS, acts=("restart", "outage"))
    await churn(world, make, meanwhile=acts)


async def segment_chain_sqlite(world: World) -> None:
    """Segment chains on a SQLite file."""
    sqlite = SimulatedSqlite(world)

    def make(node: Node) -> SegmentChainId:
        counter = sqlite.segments(node, name="order", step=STEP)
        return SegmentChainId(counter, clock=node.clock)

    await churn(world, make)


async def segment_chain_striped(world: World) -> None:
    """Segment chains on three Redis side by side that keep what they have written.

    Each has outages of its own, and any one of them alive is enough.
    """
    from ...stores.redis import RedisStore  # noqa: PLC0415 - needs the driver
    from ...stores.striped import StripedStore  # noqa: PLC0415 - for this scenario alone

    servers = [SimulatedRedis(world) for _ in range(3)]
    offset = world.rng.choice((0, 1000))

    def make(node: Node) -> SegmentChainId:
        store = StripedStore(
            [RedisStore(redis.client(node)) for redis in servers], clock=node.clock
        )
        counter = store.segment_distributor(name="order", step=STEP, offset=offset)
        return SegmentChainId(counter, clock=node.clock)

    async def troubles(world: World) -> None:
        acts: tuple[RedisAct, ...] = ("restart", "outage")
        each = [redis_trouble(world, redis, seconds=SECONDS, acts=acts) for redis in servers]
        await asyncio.gather(*each)

    # A store has 0.6 s to answer, and the first grant needs all three, whatever is still lost.
    await churn(world, make, meanwhile=troubles, recovery=15.0)


async def segment_chain_rolled_back(world: World) -> None:
    """One generator on a Redis that forgets: it ends rather than repeat an id.

    Somebody raises the counter then, as the error says, and a new one goes on.  With a second
    generator there would be nothing that sees it: see the guarantees.
    """
    from ...stores.redis import RedisIdSegmentDistributor, RedisStore  # noqa: PLC0415 - as above

    redis = SimulatedRedis(world, persistence=world.rng.choice(("none", "everysec")), replicas=1)

    async def use(node: Node, chain: SegmentChainId) -> None:
        ids = node.watch(chain)
        while True:
            try:
                await ids.next_ids(world.rng.randrange(1, 30))
            except StoreRolledBackError:
                raise
            except CosIdError:
                pass
            await node.clock.sleep(world.rng.expovariate(4.0))

    async def main(node: Node) -> None:
        client = redis.client(node)
        # One for all chains: it remembers what it has seen.
        counter = RedisIdSegmentDistributor(client, name="order", step=STEP)
        while True:
            try:
                async with SegmentChainId(counter, clock=node.clock) as chain:
                    await use(node, chain)
            except StoreRolledBackError as error:
                world.note(node.name, "sees it")
                with suppress(CosIdError):
                    await RedisStore(client).set_floor(name="order", above=error.expected)
            except CosIdError:
                pass
            await node.clock.sleep(0.1)

    node = world.node(main, faults=ROUGH)
    await redis_trouble(world, redis, seconds=SECONDS, every=0.7)
    for link in node.links:
        link.heal()
    node.wake()
    await node.stop()


async def segment_chain_peers(world: World) -> None:
    """Segment chains beside CosId's own generators, on Redis or in SQL."""
    redis, sqlite = SimulatedRedis(world), SimulatedSqlite(world)
    on_redis = world.rng.random() < 0.5
    chains = redis_chains(redis)

    def make(node: Node) -> IdGenerator:
        is_java = node is world.nodes[0]
        if on_redis and not is_java:
            return chains(node)
        if on_redis:
            return JavaSegmentId(node, redis_counter(redis.client(node), COUNTER), STEP)
        if is_java:
            return JavaSegmentId(node, jdbc_counter(sqlite, node, COUNTER), STEP)
        counter = sqlite.segments(node, name="order", step=STEP)
        return SegmentChainId(counter, clock=node.clock)

    # CosId's waits have no deadline.
    await churn(world, make, deadline=60.0, acts=("crash", "pause", "step"))


def named(node: Node, naming: Naming) -> InstanceId:
    if naming == "new":
        return InstanceId(node.process.name)
    return InstanceId(node.name, stable=naming == "stable")


async def redis_snowflakes(world: World) -> None:
    """Snowflakes whose machine ids come from a Redis."""
    from ...stores.redis import RedisMachineIdDistributor  # noqa: PLC0415 - as above

    redis, naming = SimulatedRedis(world), world.rng.choice(NAMINGS)
    mark_machines(redis)

    def make(node: Node) -> SnowflakeId:
        machine = RedisMachineIdDistributor(
            redis.client(node),
            instance_id=named(node, naming),
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )
        return SnowflakeId(machine, layout=LAYOUT, clock=node.clock)

    await churn(world, make, longest=9.0, recovery=20.0, deadline=10.0, parse=parse)


async def sqlite_snowflakes(world: World) -> None:
    """Snowflakes whose machine ids come from a SQLite file."""
    sqlite, naming = SimulatedSqlite(world), world.rng.choice(NAMINGS)

    def make(node: Node) -> SnowflakeId:
        machine = sqlite.machines(
            node, instance_id=named(node, naming), safe_guard=SAFE_GUARD, interval=INTERVAL
        )
        return SnowflakeId(machine, layout=LAYOUT, clock=node.clock)

    await churn(world, make, longest=9.0, recovery=20.0, deadline=10.0, parse=parse)


async def redis_snowflake_peers(world: World) -> None:
    """Snowflakes beside CosId's own: only time parts them, so clocks are right and theirs run."""
    from ...stores.redis import RedisMachineIdDistributor  # noqa: PLC0415 - as above

    redis = SimulatedRedis(world)
    mark_machines(redis)

    def make(node: Node) -> SnowflakeId:
        machine = RedisMachineIdDistributor(
            redis.client(node),
            instance_id=node.process.name,
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )
        return SnowflakeId(machine, layout=LAYOUT, clock=node.clock)

    async def java(node: Node) -> None:
        while True:
            peer = JavaSnowflakeId(
                node, redis.client(node), LAYOUT, safe_guard=SAFE_GUARD, interval=INTERVAL
            )
            try:
                async with peer:
                    ids = node.watch(peer, deadline=60.0, parse=parse)
                    while True:
                        await ids.next_ids(world.rng.randrange(1, 20))
                        await node.clock.sleep(world.rng.expovariate(2.0))
            except CosIdError:
                await node.clock.sleep(world.rng.uniform(0.1, 1.0))

    async def restart_java(world: World) -> None:
        await trouble(world, [peer], seconds=SECONDS, every=1.5, acts=("crash",))

    peer = world.node(java, name="j", faults=Faults())
    await churn(
        world,
        make,
        nodes=2,
        skew=0.01,
        longest=9.0,
        recovery=20.0,
        deadline=10.0,
        acts=("crash", "stop"),
        parse=parse,
        meanwhile=restart_java,
    )


NAMINGS: Final[tuple[Naming, ...]] = ("new", "same", "stable")
