"""Scenarios on a MySQL that has troubles of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ...segment import SegmentChainId
from ...snowflake import SnowflakeId
from ._churn import churn
from ._faults import draw_between
from ._loss_scenarios import quarantined
from ._mysql import SimulatedMysql
from ._scenarios import INTERVAL, LAYOUT, SAFE_GUARD, STEP, parse
from ._store_scenarios import NAMINGS, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...abc import MachineIdDistributor
    from ._node import Node
    from ._world import World

__all__ = ("mysql_quarantine", "mysql_snowflakes", "segment_chain_mysql")

MysqlAct: TypeAlias = Literal["restart", "outage", "fail over"]

SECONDS: Final = 3.0  # of trouble
DOWN: Final = (0.01, 2.0)  # seconds
COMMITS: Final = 12  # that a replica is behind at most


async def mysql_trouble(
    world: World,
    mysql: SimulatedMysql,
    *,
    seconds: float,
    every: float = 1.0,
    acts: Sequence[MysqlAct] = ("restart", "outage", "fail over"),
) -> None:
    """Do something to a MySQL, now and then; have it run in the end.

    Args:
        world: the world.
        mysql: whom.
        seconds: for how long.
        every: seconds between two acts, on average.
        acts: what may be done: a ``restart``, an ``outage`` of seconds and a start, a ``fail over``
            to a replica that has seen everything.
    """
    rng, end = world.rng, world.time + seconds
    while (rest := rng.expovariate(1 / every)) < end - world.time:
        await world.sleep(rest)
        act = rng.choice(acts)
        if act == "fail over":
            mysql.fail_over()
        else:
            mysql.crash()
            await world.sleep(draw_between(rng, DOWN) if act == "outage" else 0.0)
            mysql.start()
    await world.sleep(max(0.0, end - world.time))


async def segment_chain_mysql(world: World) -> None:
    """Segment chains on a MySQL that keeps what it has committed, whatever happens."""
    from ...stores.mysql import MysqlIdSegmentDistributor  # noqa: PLC0415 - needs the driver

    mysql, rng = SimulatedMysql(world), world.rng
    gives_back, offset, autocommit = rng.random() < 0.5, rng.choice((0, 1000)), rng.random() < 0.5

    def make(node: Node) -> SegmentChainId:
        pool = mysql.pool(node, autocommit=autocommit)
        counter = MysqlIdSegmentDistributor(pool, name="order", step=STEP, offset=offset)
        return SegmentChainId(counter, clock=node.clock, give_back=gives_back)

    acts = partial(mysql_trouble, mysql=mysql, seconds=SECONDS)
    # The first grant of a process takes three trips.
    await churn(world, make, meanwhile=acts, recovery=15.0)


def mysql_machines(world: World, mysql: SimulatedMysql) -> Callable[[Node], MachineIdDistributor]:
    """Make distributors of machine ids."""
    from ...stores.mysql import MysqlMachineIdDistributor  # noqa: PLC0415 - needs the driver

    naming, autocommit = world.rng.choice(NAMINGS), world.rng.random() < 0.5

    def machines(node: Node) -> MachineIdDistributor:
        return MysqlMachineIdDistributor(
            mysql.pool(node, autocommit=autocommit),
            instance_id=named(node, naming),
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )

    return machines


async def mysql_snowflakes(world: World) -> None:
    """Snowflakes whose machine ids come from a MySQL that keeps what it has committed."""
    mysql = SimulatedMysql(world)
    machines = mysql_machines(world, mysql)

    def make(node: Node) -> SnowflakeId:
        return SnowflakeId(machines(node), layout=LAYOUT, clock=node.clock)

    acts = partial(mysql_trouble, mysql=mysql, seconds=SECONDS, acts=("restart", "outage"))
    await churn(
        world,
        make,
        longest=9.0,
        recovery=20.0,
        deadline=10.0,
        parse=parse,
        meanwhile=acts,
    )


async def mysql_quarantine(world: World) -> None:
    """Machine ids of a MySQL that fails over to replicas which are behind."""
    mysql = SimulatedMysql(world, history=COMMITS)

    async def forget(_: World) -> None:
        mysql.fail_over(behind=world.rng.randrange(COMMITS))

    await quarantined(world, mysql_machines(world, mysql), forget)
