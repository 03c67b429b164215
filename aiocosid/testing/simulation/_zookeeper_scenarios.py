"""Scenarios on the shipped code for ZooKeeper; each is run by its name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ...segment import SegmentChainId
from ...snowflake import SnowflakeId, SnowflakeLayout
from ._churn import ROUGH, churn
from ._scenarios import COSID_EPOCH_MS, INTERVAL, LAYOUT, SAFE_GUARD, STEP, parse
from ._store_scenarios import NAMINGS, named
from ._zookeeper import SimulatedZooKeeper
from ._zookeeper_trouble import zookeeper_trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...abc import MachineIdDistributor
    from ._churn import MakeGenerator
    from ._ledger import Parse
    from ._node import Node
    from ._world import World

__all__ = (
    "segment_chain_zookeeper",
    "twitter_snowflakes",
    "zookeeper_snowflakes",
)

SECONDS: Final = 3.0  # of trouble
SESSIONS: Final = (2.0, 6.0)  # seconds: shorter than the safe guard, or longer
STOPPED: Final = 0.3  # share of the processes that are, when the data is put back

LOSSY: Final = replace(ROUGH, lose_request=0.01, lose_reply=0.02, delay=0.02)
"""What is lost takes the connection with it, and to open takes many calls."""

TWITTER: Final = SnowflakeLayout(41, 10, 4, "ms", COSID_EPOCH_MS)
"""Twitter's machine ids, and sixteen ids a tick."""


async def segment_chain_zookeeper(world: World) -> None:
    """Segment chains on a ZooKeeper whose sessions are interrupted and end."""
    from ...stores.zookeeper import ZookeeperIdSegmentDistributor  # noqa: PLC0415 - the driver's

    zookeeper, offset = SimulatedZooKeeper(world), world.rng.choice((0, 1000))

    def make(node: Node) -> SegmentChainId:
        client = zookeeper.client(node, session_timeout=world.rng.choice(SESSIONS))
        counter = ZookeeperIdSegmentDistributor(client, name="order", step=STEP, offset=offset)
        return SegmentChainId(counter, clock=node.clock)

    acts = partial(zookeeper_trouble, zookeeper=zookeeper, seconds=SECONDS)
    await churn(world, make, faults=LOSSY, meanwhile=acts, recovery=15.0)


async def zookeeper_snowflakes(world: World) -> None:
    """Snowflakes whose machine ids come from a ZooKeeper: an interrupted session silences them."""
    zookeeper = SimulatedZooKeeper(world)
    machines = await _marked(world, zookeeper)

    def make(node: Node) -> SnowflakeId:
        return SnowflakeId(machines(node), layout=LAYOUT, clock=node.clock)

    await _churn(world, make, zookeeper, parse)


async def twitter_snowflakes(world: World) -> None:
    """Snowflakes with Twitter's worker ids, of ephemeral nodes, which go with their sessions."""
    from ...compat.twitter import TwitterMachineIdDistributor  # noqa: PLC0415 - the driver's

    zookeeper = SimulatedZooKeeper(world)

    def make(node: Node) -> SnowflakeId:
        client = zookeeper.client(node, session_timeout=world.rng.choice(SESSIONS))
        machine = TwitterMachineIdDistributor(client, host=node.name)
        return SnowflakeId(machine, layout=TWITTER, clock=node.clock)

    await _churn(world, make, zookeeper, parse_twitter)


async def _churn(
    world: World, make: MakeGenerator, zookeeper: SimulatedZooKeeper, parse: Parse
) -> None:
    await churn(
        world,
        make,
        faults=LOSSY,
        longest=9.0,
        recovery=20.0,
        deadline=10.0,
        parse=parse,
        meanwhile=partial(zookeeper_trouble, zookeeper=zookeeper, seconds=SECONDS),
    )


def parse_twitter(new_id: int) -> tuple[int, int]:
    """Return the machine id and the time of an id in `TWITTER`."""
    return new_id >> 4 & 0x3FF, (new_id >> 14) + COSID_EPOCH_MS


async def _marked(
    world: World, zookeeper: SimulatedZooKeeper
) -> Callable[[Node], MachineIdDistributor]:
    """Mark the namespace, as ``aiocosid init`` does, and return what describes who asks there."""
    from ...stores.zookeeper import (  # noqa: PLC0415 - the driver's
        ZookeeperMachineIdDistributor,
        ZookeeperStore,
    )

    naming = world.rng.choice(NAMINGS)
    await ZookeeperStore(zookeeper.operator()).mark_machines()

    def machines(node: Node) -> MachineIdDistributor:
        return ZookeeperMachineIdDistributor(
            zookeeper.client(node, session_timeout=world.rng.choice(SESSIONS)),
            instance_id=named(node, naming),
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )

    return machines
