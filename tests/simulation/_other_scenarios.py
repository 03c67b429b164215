"""Generators and stores of other systems: cached ids, Leaf's double buffer, CosId's proxy.

They come with the package; each is run by its name.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Final

from aiocosid.machine import MachineIdLease
from aiocosid.segment import LeafSegmentId, SegmentChainId
from aiocosid.snowflake import CachedSnowflakeId, SnowflakeId, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore

from ._churn import churn
from ._distributors import LinkedIdSegmentDistributor
from ._scenarios import COSID_EPOCH_MS, STEP
from ._store_scenarios import NAMINGS, SECONDS, named

if TYPE_CHECKING:
    from ._http import SimulatedProxy
    from ._link import Link
    from ._node import Node
    from ._world import World

__all__ = ("cached_snowflakes", "http_snowflakes", "leaf_segments", "segment_chain_http")

MACHINE_BITS: Final = 1  # for two nodes: who dies leaves none to whoever comes next
SEQUENCE_BITS: Final = 4
IN_SECONDS: Final = SnowflakeLayout(30, MACHINE_BITS, SEQUENCE_BITS, "s", COSID_EPOCH_MS)
"""Sixteen ids a second: bursts take those of seconds to come."""
IN_MS: Final = SnowflakeLayout(41, MACHINE_BITS, SEQUENCE_BITS, "ms", COSID_EPOCH_MS)

SAFE_GUARD: Final = 2.5  # seconds
MARGIN: Final = 1.0  # seconds: of a piece in hand, which is looked at once a second
INTERVAL: Final = 0.5  # seconds
BORROWED: Final = 2.0  # seconds


def parse(new_id: int, *, unit_ms: int = 1) -> tuple[int, int]:
    """Return the machine id and the time of an id in `IN_MS`, or in `IN_SECONDS`."""
    return new_id >> 4 & 0b1, (new_id >> 5) * unit_ms + COSID_EPOCH_MS


async def rob(world: World) -> None:
    """Stop a process for as long as another one needs to take its machine id."""
    await world.sleep(world.rng.uniform(0.5, 1.0))
    world.nodes[0].pause(SAFE_GUARD + MARGIN + 1.5)
    await world.sleep(world.rng.uniform(0.1, 1.0))
    world.nodes[1].restart()


async def cached_snowflakes(world: World) -> None:
    """Ids of seconds that are yet to come, in processes that die and come back among them."""
    store, naming = MemoryStore(clock=world.clock), world.rng.choice(NAMINGS)
    refill_interval = world.rng.choice((None, 0.3))

    def make(node: Node) -> CachedSnowflakeId:
        machine = store.machine_id_distributor(
            instance_id=named(node, naming), safe_guard=SAFE_GUARD + MARGIN, interval=INTERVAL
        )
        lease = MachineIdLease(
            node.link().machines(machine),
            bits=MACHINE_BITS,
            peer_safe_guard=SAFE_GUARD,
            clock=node.clock,
        )
        return CachedSnowflakeId(
            lease,
            layout=IN_SECONDS,
            boost=1,
            max_borrow=BORROWED,
            refill_interval=refill_interval,
            clock=node.clock,
        )

    await churn(
        world,
        make,
        nodes=2,
        seconds=7.0,
        every=1.0,
        recovery=30.0,
        deadline=15.0,
        parse=partial(parse, unit_ms=1000),
        meanwhile=rob,
    )


class Row(LinkedIdSegmentDistributor):
    """A counter with a step of its own, as a row of Leaf's, which somebody changes."""

    __slots__ = ("_steps",)

    def __init__(self, link: Link, store: MemoryStore, steps: list[int]) -> None:
        super().__init__(link, store.segment_distributor(name="order", step=STEP))
        self._steps = steps

    async def row_step(self) -> int:
        """Send the call."""

        async def read() -> int:
            return self._steps[-1]

        return await self._link.call(self.store, "row_step()", read)


async def leaf_segments(world: World) -> None:
    """Leaf's double buffer, whose steps become longer and shorter all the time."""
    store, rng, steps = MemoryStore(), world.rng, [STEP]
    has_row = rng.random() < 0.5

    def make(node: Node) -> LeafSegmentId:
        plain = store.segment_distributor(name="order", step=STEP)
        counter = Row(node.link(), store, steps) if has_row else node.link().segments(plain)
        return LeafSegmentId(
            counter,
            prefetch_at=rng.choice((0.1, 0.5)),
            segment_duration=0.4,
            max_step=16 * STEP,
            clock=node.clock,
        )

    async def change_steps(world: World) -> None:
        for _ in range(6):
            await world.sleep(rng.uniform(0.1, 1.0))
            steps.append(rng.randrange(1, 4 * STEP))

    await churn(world, make, recovery=15.0, meanwhile=change_steps)  # two calls for one segment


def proxy_in(world: World) -> SimulatedProxy:
    """Make a proxy."""
    state = random.getstate()
    from ._http import SimulatedProxy

    random.setstate(state)  # the import draws as well, once in each program
    return SimulatedProxy(world, safe_guard=SAFE_GUARD)


async def segment_chain_http(world: World) -> None:
    """Segment chains on a CosId proxy that is started anew and goes away."""
    proxy = proxy_in(world)

    def make(node: Node) -> SegmentChainId:
        return SegmentChainId(proxy.segments(node, name="order", step=STEP), clock=node.clock)

    troubles = partial(proxy.trouble, seconds=SECONDS)
    await churn(world, make, recovery=15.0, meanwhile=troubles)


async def http_snowflakes(world: World) -> None:
    """Snowflakes on a CosId proxy: time alone parts them, so that clocks are right."""
    proxy = proxy_in(world)

    def make(node: Node) -> SnowflakeId:
        machine = proxy.machines(node, interval=INTERVAL)
        return SnowflakeId(machine, layout=IN_MS, clock=node.clock)

    async def troubles(world: World) -> None:
        await asyncio.gather(rob(world), proxy.trouble(world, seconds=SECONDS, every=3.0))

    await churn(
        world,
        make,
        nodes=2,
        seconds=6.0,
        every=1.5,
        acts=("crash", "stop", "pause", "cut"),
        skew=0.0,
        drift=0.0,
        recovery=20.0,
        deadline=10.0,
        parse=parse,
        meanwhile=troubles,
    )
