"""Scenarios in which stores lose what they have written, and nothing may come of it.

They come with the package; each is run by its name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from aiocosid.segment import SegmentChainId
from aiocosid.snowflake import SnowflakeId

from ._churn import ROUGH, churn
from ._faults import CALM, Faults, draw_between
from ._redis import SimulatedRedis
from ._scenarios import LAYOUT, SAFE_GUARD, STEP, parse
from ._store import SimulatedStore
from ._store_scenarios import NAMINGS, store_machines
from ._store_trouble import redis_trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiocosid.abc import MachineIdDistributor
    from aiocosid.machine import MachineIdLease

    from ._churn import MakeGenerator
    from ._node import Node
    from ._redis import Persistence
    from ._world import World

    Forget = Callable[[World], Awaitable[None]]

__all__ = ("store_quarantine", "tiered_faults", "tiered_losses")

SECONDS: Final = 3.0  # of trouble
PERSISTENCES: Final[tuple[Persistence, ...]] = ("none", "everysec", "snapshot", "always")
HISTORY: Final = 20  # writes that may be lost
EXPECTED: Final = frozenset({"ClosedError", "WouldBlock"})
"""Errors that callers see of a generator that is closed, or that is not waited for."""


def tiered_chains(
    world: World, redis: SimulatedRedis, *, of_root: Faults, of_cache: Faults
) -> MakeGenerator:
    """Make segment chains on spans of a store that a Redis hands out."""
    from aiocosid.stores.redis import RedisStore
    from aiocosid.stores.tiered import TieredStore

    root, span = SimulatedStore(world), STEP * world.rng.choice((3, 20, 100))

    def make(node: Node) -> SegmentChainId:
        store = TieredStore(
            root.store(node, faults=of_root),
            RedisStore(redis.client(node, faults=of_cache)),
            span=span,
            root_name="root",
            clock=node.clock,
        )
        counter = store.segment_distributor(name="order", step=STEP)
        return SegmentChainId(counter, clock=node.clock)

    return make


async def tiered_losses(world: World) -> None:
    """Spans on a Redis that loses, forgets and is split: callers see nothing of it."""
    redis = SimulatedRedis(world, persistence=world.rng.choice(PERSISTENCES), replicas=1)
    make = tiered_chains(world, redis, of_root=CALM, of_cache=ROUGH)
    acts = partial(redis_trouble, redis=redis, seconds=SECONDS, every=0.6)
    await churn(world, make, faults=CALM, acts=("crash", "stop"), meanwhile=acts)
    for error in world.errors.keys() - EXPECTED:
        world.fail(f"a caller was told of a {error}, although the root was there")


async def tiered_faults(world: World) -> None:
    """The same where nothing else can be relied on either: processes stop, links are cut."""
    redis = SimulatedRedis(world, persistence=world.rng.choice(PERSISTENCES), replicas=1)
    make = tiered_chains(world, redis, of_root=ROUGH, of_cache=ROUGH)
    acts = partial(redis_trouble, redis=redis, seconds=SECONDS, every=0.8)
    await churn(world, make, meanwhile=acts)


async def store_quarantine(world: World) -> None:
    """Machine ids of a store that is emptied, in part as well, restored, or loses its last writes.

    What no store can see is not among it: two servers that write at the same time.
    """
    store, rng = SimulatedStore(world, history=HISTORY), world.rng
    copies = [store.save()]

    async def forget(_: World) -> None:
        match rng.randrange(5):
            case 0:
                store.empty()
            case 1:
                store.empty_machines()
            case 2:
                store.restore(rng.choice(copies))
            case 3:
                store.lose(rng.randrange(HISTORY))
            case _:
                store.start_anew()
        copies.append(store.save())

    await quarantined(world, store_machines(store, rng.choice(NAMINGS)), forget)


async def quarantined(
    world: World, machines: Callable[[Node], MachineIdDistributor | MachineIdLease], forget: Forget
) -> None:
    """Let Snowflakes take ids while their store forgets; of clocks that nobody sets.

    A mark that is forgotten says no more how far ahead of the others a clock is.
    """
    world.ledger.forgets = True

    def make(node: Node) -> SnowflakeId:
        return SnowflakeId(machines(node), layout=LAYOUT, clock=node.clock)

    async def forgets(world: World) -> None:
        for _ in range(3):
            await world.sleep(draw_between(world.rng, (0.2, 2.0)))
            for node in world.nodes:
                _befall(world, node)
            await forget(world)

    await churn(
        world,
        make,
        seconds=SECONDS,
        callers=1,
        pause=0.3,
        # To open takes several calls.
        faults=replace(ROUGH, lose_request=0.01, lose_reply=0.02, delay=0.02),
        acts=("stop", "pause"),
        every=1.0,
        recovery=SAFE_GUARD + 5.0 + 25.0,
        deadline=10.0,
        parse=parse,
        meanwhile=forgets,
    )


def _befall(world: World, node: Node) -> None:
    """Have an owner not hear of it for a while, or somebody new come at that moment."""
    rng = world.rng
    fate = rng.random()
    if fate < 0.4:
        for link in node.links:
            link.cut()
            world.loop.call_later(rng.uniform(0.1, 5.0), link.heal, context=world.context)
    elif fate < 0.8:
        world.loop.call_later(rng.uniform(0.0, 0.3), node.restart, context=world.context)
