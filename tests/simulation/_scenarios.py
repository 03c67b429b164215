"""The scenarios that come with the package; each is run by its name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aiocosid.abc import InstanceId
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.snowflake import SnowflakeId, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore

from ._cancellation import How, cancel_everywhere
from ._churn import MakeGenerator, churn
from ._faults import Faults

if TYPE_CHECKING:
    from ._node import Node
    from ._trouble import Act
    from ._world import World

__all__ = (
    "segment_chain_cancelled",
    "segment_chain_crashes",
    "segment_chain_faults",
    "segment_chain_forks",
    "segment_id_faults",
    "snowflake_crashes",
    "snowflake_faults",
    "snowflake_forks",
)

COSID_EPOCH_MS: Final = 1_577_203_200_000  # CosId's own

SAFE_GUARD: Final = 4.0  # seconds
INTERVAL: Final = 0.8  # seconds

STEP: Final = 10  # ids: small, so that there are many trips to the store


def segment_chains(store: MemoryStore, *, endurance: float = 0.0) -> MakeGenerator:
    """Make segment chains on one counter of a store; without a reserve they are often dry."""

    def make(node: Node) -> SegmentChainId:
        counter = store.segment_distributor(name="order", step=STEP)
        link = node.link()
        return SegmentChainId(link.segments(counter), endurance=endurance, clock=node.clock)

    return make


async def segment_chain_faults(world: World) -> None:
    """Segment chains on a bad network: no process dies."""
    await churn(world, segment_chains(MemoryStore()), acts=("pause", "cut", "step"))


async def segment_chain_crashes(world: World) -> None:
    """Segment chains in processes that die, are closed and come back."""
    make = segment_chains(MemoryStore(), endurance=world.rng.choice((0.0, 60.0)))
    await churn(world, make, acts=("crash", "stop", "pause"))


async def segment_id_faults(world: World) -> None:
    """`SegmentId`, with and without ids in hand, under everything."""
    store, step = MemoryStore(), world.rng.choice((1, STEP))

    def make(node: Node) -> SegmentId:
        counter = store.segment_distributor(name="order", step=step)
        return SegmentId(node.link().segments(counter), clock=node.clock)

    await churn(world, make)


async def segment_chain_forks(world: World) -> None:
    """Segment chains in processes that fork, die and are cut off."""
    acts: tuple[Act, ...] = ("fork", "crash", "cut")
    await churn(world, segment_chains(MemoryStore()), acts=acts, seconds=2.5, every=0.6)


async def snowflake_forks(world: World) -> None:
    """Snowflakes in processes that fork, die and are cut off."""
    acts: tuple[Act, ...] = ("fork", "crash", "cut")
    make = snowflakes(MemoryStore(clock=world.clock))
    await churn(
        world, make, acts=acts, seconds=2.5, every=0.6, recovery=20.0, deadline=10.0, parse=parse
    )


async def segment_chain_cancelled(world: World) -> None:
    """Calls that are cancelled at each of their suspensions, on a chain that is always dry."""
    store, rng = MemoryStore(), world.rng
    hows: tuple[How, ...] = ("task", "scope", "reply")

    async def main(node: Node) -> None:
        counter = store.segment_distributor(name="order", step=1)
        chain = SegmentChainId(
            node.link().segments(counter), safe_distance=1, max_distance=1, clock=node.clock
        )
        async with chain:
            ids = node.watch(chain)
            for how in hows:
                n = rng.randrange(1, 8)
                await cancel_everywhere(ids.next_id, how=how)
                await cancel_everywhere(partial(ids.next_ids, n), how=how)
                await ids.next_ids(n)

    faults = Faults(resend=0.1, delay=0.02, delayed=(0.01, 0.5))
    nodes = [world.node(main, faults=faults) for _ in range(2)]
    for node in nodes:
        await node.process.has_ended.wait()


Naming: TypeAlias = Literal["new", "same", "stable"]

LAYOUT: Final = SnowflakeLayout(41, 2, 4, "ms", COSID_EPOCH_MS)
"""Four machine ids, which are soon used up, and sixteen ids a tick."""


def snowflakes(store: MemoryStore, naming: Naming = "new") -> MakeGenerator:
    """Make Snowflakes whose machine ids are leased from a store, for a few seconds.

    Args:
        store: the store.
        naming: whether each process is a new instance, or comes back as the one before it, and
            says so (``"stable"``) or not.
    """

    def make(node: Node) -> SnowflakeId:
        instance = (
            InstanceId(node.process.name)
            if naming == "new"
            else InstanceId(node.name, stable=naming == "stable")
        )
        machine = store.machine_id_distributor(
            instance_id=instance, safe_guard=SAFE_GUARD, interval=INTERVAL
        )
        return SnowflakeId(node.link().machines(machine), layout=LAYOUT, clock=node.clock)

    return make


def parse(new_id: int) -> tuple[int, int]:
    """Return the machine id and the time of an id in `LAYOUT`."""
    # As LAYOUT.parse() does, which says more and takes longer.
    return new_id >> 4 & 0b11, (new_id >> 6) + COSID_EPOCH_MS


async def snowflake_faults(world: World) -> None:
    """Snowflakes on a bad network, with clocks that are set, and stopped past their lease."""
    store = MemoryStore(clock=world.clock)
    await churn(
        world,
        snowflakes(store),
        acts=("pause", "cut", "step"),
        longest=9.0,
        recovery=12.0,
        deadline=10.0,
        parse=parse,
    )


async def snowflake_crashes(world: World) -> None:
    """Snowflakes in processes that die and come back, on few machine ids."""
    store = MemoryStore(clock=world.clock)
    naming: Naming = world.rng.choice(("new", "same", "stable"))
    await churn(
        world, snowflakes(store, naming), longest=9.0, recovery=20.0, deadline=10.0, parse=parse
    )
