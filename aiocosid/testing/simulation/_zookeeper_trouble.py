"""Trouble of a ZooKeeper: it has no leader, closes connections, ends sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ._faults import draw_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._world import World
    from ._zookeeper import SimulatedZooKeeper

__all__ = ("ZooKeeperAct", "zookeeper_trouble")

ZooKeeperAct: TypeAlias = Literal["outage", "drop", "expire"]

ACTS: Final[tuple[ZooKeeperAct, ...]] = ("outage", "drop", "expire")

DOWN: Final = (0.01, 3.0)  # seconds


async def zookeeper_trouble(
    world: World,
    zookeeper: SimulatedZooKeeper,
    *,
    seconds: float,
    every: float = 0.7,
    acts: Sequence[ZooKeeperAct] = ACTS,
) -> None:
    """Do something to a ZooKeeper, now and then; have it run in the end.

    Args:
        world: the world.
        zookeeper: whom.
        seconds: for how long.
        every: seconds between two acts, on average.
        acts: what may be done: an ``outage`` of seconds without a leader, a ``drop`` of some
            connections, as when a server of several is restarted, the ``expire`` of a session.
    """
    rng, end = world.rng, world.time + seconds
    while (rest := rng.expovariate(1 / every)) < end - world.time:
        await world.sleep(rest)
        match rng.choice(acts):
            case "outage":
                zookeeper.stop()
                await world.sleep(draw_between(rng, DOWN))
                zookeeper.start()
            case "drop":
                zookeeper.drop(share=0.5)
            case "expire":
                zookeeper.expire()
    await world.sleep(max(0.0, end - world.time))
