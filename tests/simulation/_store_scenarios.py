"""Scenarios on stores that have troubles of their own, and beside CosId's generators."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from aiocosid.abc import InstanceId
from aiocosid.errors import CosIdError, CounterNotCreatedError, StoreRolledBackError
from aiocosid.segment import SegmentChainId
from aiocosid.snowflake import SnowflakeId

from ._churn import ROUGH, churn
from ._faults import Faults
from ._java import JavaSegmentId, JavaSnowflakeId, jdbc_counter, redis_counter
from ._redis import SimulatedRedis
from ._scenarios import INTERVAL, LAYOUT, SAFE_GUARD, STEP, Naming, parse
from ._store import SimulatedStore
from ._store_trouble import redis_trouble
from ._trouble import trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiocosid.abc import IdGenerator, MachineIdDistributor

    from ._churn import MakeGenerator
    from ._node import Node
    from ._store_trouble import RedisAct
    from ._world import World

__all__ = (
    "segment_chain_peers",
    "segment_chain_redis",
    "segment_chain_rolled_back",
    "segment_chain_store",
    "segment_chain_striped",
    "snowflake_peers",
    "store_snowflakes",
)

SECONDS: Final = 3.0  # of trouble
COUNTER: Final = "cosid.order"


def redis_chains(redis: SimulatedRedis, *, offset: int = 0) -> MakeGenerator:
    """Make segment chains on one counter of a Redis."""
    from aiocosid.stores.redis import RedisStore

    def make(node: Node) -> SegmentChainId:
        store = RedisStore(redis.client(node))
        counter = store.segment_distributor(name="order", step=STEP, offset=offset)
        return SegmentChainId(counter, clock=node.clock)

    return make


async def segment_chain_redis(world: World) -> None:
    """Segment chains on a Redis that keeps what it has written, whatever happens."""
    redis = SimulatedRedis(world)
    make = redis_chains(redis, offset=world.rng.choice((0, 1000)))
    acts = partial(redis_trouble, redis=redis, seconds=SECONDS, acts=("restart", "outage"))
    await churn(world, make, meanwhile=acts)


def store_chains(store: SimulatedStore) -> MakeGenerator:
    """Make segment chains on one counter of a store."""

    def make(node: Node) -> SegmentChainId:
        counter = store.store(node).segment_distributor(name="order", step=STEP)
        return SegmentChainId(counter, clock=node.clock)

    return make


async def segment_chain_store(world: World) -> None:
    """Segment chains on the one store that all servers have."""
    await churn(world, store_chains(SimulatedStore(world)))


async def segment_chain_striped(world: World) -> None:
    """Segment chains on three Redis side by side that keep what they have written.

    Each has outages of its own, and any one of them alive is enough.
    """
    from aiocosid.stores.redis import RedisStore
    from aiocosid.stores.striped import StripedStore

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
    from aiocosid.stores.redis import RedisStore

    redis = SimulatedRedis(world, persistence=world.rng.choice(("none", "everysec")), replicas=1)

    async def use(node: Node, chain: SegmentChainId) -> None:
        ids = node.watch(chain)
        while True:
            try:
                await ids.next_ids(world.rng.randrange(1, 30))
            except (StoreRolledBackError, CounterNotCreatedError):
                raise
            except CosIdError:
                pass
            await node.clock.sleep(world.rng.expovariate(4.0))

    async def main(node: Node) -> None:
        store = RedisStore(redis.client(node))
        # One for all chains: it remembers what it has seen.
        counter = store.segment_distributor(name="order", step=STEP)
        while True:
            with suppress(CosIdError):
                try:
                    async with SegmentChainId(counter, clock=node.clock) as chain:
                        await use(node, chain)
                except StoreRolledBackError as error:
                    world.note(node.name, "sees it")
                    await store.set_floor(name="order", above=error.expected)
                except CounterNotCreatedError:
                    redis.initialize()  # by somebody who takes it for new
            await node.clock.sleep(0.1)

    node = world.node(main, faults=ROUGH)
    await redis_trouble(world, redis, seconds=SECONDS, every=0.7)
    for link in node.links:
        link.heal()
    node.wake()
    await node.stop()


async def segment_chain_peers(world: World) -> None:
    """Segment chains beside CosId's own generators, on Redis or in SQL."""
    redis, store = SimulatedRedis(world), SimulatedStore(world)
    on_redis = world.rng.random() < 0.5
    make_chain = redis_chains(redis) if on_redis else store_chains(store)

    def make(node: Node) -> IdGenerator:
        if node is not world.nodes[0]:
            return make_chain(node)
        if on_redis:
            return JavaSegmentId(node, redis_counter(redis.client(node), COUNTER), STEP)
        return JavaSegmentId(node, jdbc_counter(store, node, COUNTER), STEP)

    # CosId's waits have no deadline.
    await churn(world, make, deadline=60.0, acts=("crash", "pause", "step"))


def named(node: Node, naming: Naming) -> InstanceId:
    if naming == "new":
        return InstanceId(node.process.name)
    return InstanceId(node.name, stable=naming == "stable")


def store_machines(store: SimulatedStore, naming: Naming) -> Callable[[Node], MachineIdDistributor]:
    """Make distributors of the machine ids of a store."""

    def make(node: Node) -> MachineIdDistributor:
        return store.store(node).machine_id_distributor(
            instance_id=named(node, naming), safe_guard=SAFE_GUARD, interval=INTERVAL
        )

    return make


async def store_snowflakes(world: World) -> None:
    """Snowflakes whose machine ids come from the one store that all servers have."""
    machines = store_machines(SimulatedStore(world), world.rng.choice(NAMINGS))

    def make(node: Node) -> SnowflakeId:
        return SnowflakeId(machines(node), layout=LAYOUT, clock=node.clock)

    await churn(world, make, longest=9.0, recovery=20.0, deadline=10.0, parse=parse)


async def snowflake_peers(world: World) -> None:
    """Snowflakes beside CosId's own: only time parts them, so clocks are right and theirs run."""
    store = SimulatedStore(world)
    machines = store_machines(store, "new")

    def make(node: Node) -> SnowflakeId:
        return SnowflakeId(machines(node), layout=LAYOUT, clock=node.clock)

    async def java(node: Node) -> None:
        while True:
            peer = JavaSnowflakeId(node, store, LAYOUT, safe_guard=SAFE_GUARD, interval=INTERVAL)
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
