"""Scenarios on the shipped transactions of etcd, whose members come and go.

They come with the package; each is run by its name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ...segment import SegmentChainId
from ...snowflake import SnowflakeId
from ._churn import churn
from ._etcd import SimulatedEtcd, etcd_trouble
from ._loss_scenarios import quarantined
from ._scenarios import INTERVAL, LAYOUT, SAFE_GUARD, STEP, parse
from ._store_scenarios import NAMINGS, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...abc import MachineIdDistributor
    from ._node import Node
    from ._scenarios import Naming
    from ._world import World

__all__ = ("etcd_quarantine", "etcd_snowflakes", "segment_chain_etcd")

SECONDS: Final = 3.0  # of trouble


async def segment_chain_etcd(world: World) -> None:
    """Segment chains on an etcd, of one member or of three."""
    from ...stores.etcd import EtcdIdSegmentDistributor  # noqa: PLC0415 - needs the driver

    etcd, offset = (
        SimulatedEtcd(world, members=world.rng.choice((1, 3))),
        world.rng.choice((0, 1000)),
    )

    def make(node: Node) -> SegmentChainId:
        counter = EtcdIdSegmentDistributor(
            etcd.client(node), name="order", step=STEP, offset=offset
        )
        return SegmentChainId(counter, clock=node.clock)

    # A range takes two trips, of which each may be lost.
    acts = partial(etcd_trouble, etcd=etcd, seconds=SECONDS)
    await churn(world, make, meanwhile=acts, recovery=15.0)


def etcd_machines(etcd: SimulatedEtcd, naming: Naming) -> Callable[[Node], MachineIdDistributor]:
    """Make distributors of the machine ids of an etcd, which is marked."""
    from ...stores.etcd import EtcdMachineIdDistributor  # noqa: PLC0415 - as above

    etcd.mark_machines()

    def make(node: Node) -> MachineIdDistributor:
        return EtcdMachineIdDistributor(
            etcd.client(node),
            instance_id=named(node, naming),
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )

    return make


async def etcd_snowflakes(world: World) -> None:
    """Snowflakes whose machine ids come from an etcd, of one member or of three."""
    etcd = SimulatedEtcd(world, members=world.rng.choice((1, 3)))
    machines = etcd_machines(etcd, world.rng.choice(NAMINGS))

    def make(node: Node) -> SnowflakeId:
        return SnowflakeId(machines(node), layout=LAYOUT, clock=node.clock)

    await churn(
        world,
        make,
        longest=9.0,
        recovery=20.0,
        deadline=10.0,
        parse=parse,
        meanwhile=partial(etcd_trouble, etcd=etcd, seconds=SECONDS),
    )


async def etcd_quarantine(world: World) -> None:
    """Machine ids of an etcd that is emptied, or in whose place an older snapshot is put."""
    etcd = SimulatedEtcd(world)
    copies = [etcd.save()]
    machines = etcd_machines(etcd, world.rng.choice(NAMINGS))
    copies.append(etcd.save())

    async def restore(world: World) -> None:
        etcd.restore(world.rng.choice(copies))
        copies.append(etcd.save())

    await quarantined(world, machines, restore)
