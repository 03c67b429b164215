"""Broken lines of the MySQL store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from aiocosid import SegmentChainId, SnowflakeId
from aiocosid.stores import mysql
from aiocosid.stores._mysql import COMMIT, in_foreign_session
from aiocosid.stores._mysql_machines import MYSQL_MACHINES, mysql_machines
from aiocosid.stores._mysql_markers import same
from aiocosid.stores.mysql import MysqlIdSegmentDistributor, MysqlMachineIdDistributor
from aiocosid.testing.simulation import (
    SCENARIOS,
    Faults,
    Node,
    SimulatedMysql,
    World,
    _mysql,
    churn,
    mysql_trouble,
)
from aiocosid.testing.simulation._scenarios import INTERVAL, LAYOUT, SAFE_GUARD, parse

from ._breaking import Broken, broken


async def busy_mysql(world: World) -> None:
    """A trip to the store for each id; the primary moves, and nothing else goes wrong."""
    server = SimulatedMysql(world)

    def make(node: Node) -> SegmentChainId:
        counter = MysqlIdSegmentDistributor(server.pool(node), name="order", step=1)
        return SegmentChainId(counter, clock=node.clock, safe_distance=1, max_distance=1)

    moves = partial(mysql_trouble, mysql=server, seconds=2.0, acts=("fail over",))
    await churn(world, make, faults=Faults(), acts=(), seconds=2.0, meanwhile=moves)


async def mysql_rush(world: World) -> None:
    """Processes that begin and end all at once, or are stopped past their leases."""
    server = SimulatedMysql(world)

    def make(node: Node) -> SnowflakeId:
        machine = MysqlMachineIdDistributor(
            server.pool(node),
            instance_id=node.process.name,
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )
        return SnowflakeId(machine, layout=LAYOUT, clock=node.clock)

    async def rush(world: World) -> None:
        for _ in range(3):
            await world.sleep(world.rng.uniform(1.0, 2.0))
            for node in world.nodes:
                await node.stop()
            for node in world.nodes:
                node.start()
        await world.sleep(1.0)
        for node in world.nodes[:2]:
            node.pause(SAFE_GUARD + 2.0)
        await world.sleep(SAFE_GUARD + 1.0)
        for node in world.nodes[2:]:
            node.restart()
        await world.sleep(2.0)

    await churn(
        world,
        make,
        nodes=4,
        callers=1,
        pause=0.2,
        faults=Faults(),
        acts=(),
        seconds=0.0,
        recovery=20.0,
        deadline=10.0,
        parse=parse,
        meanwhile=rush,
    )


READ_AFTERWARDS = replace(
    MysqlIdSegmentDistributor.dialect,
    next_max_id="""
INSERT INTO cosid (name, last_max_id, last_fetch_time)
VALUES (%(name)s, %(first)s, UNIX_TIMESTAMP())
ON DUPLICATE KEY UPDATE last_max_id = last_max_id + %(step)s;
SELECT last_max_id FROM cosid WHERE name = %(name)s
""",
)
SAME_SERVER = mysql_machines(identity="'same'")


def without_commit(statement: str) -> str:
    """As shipped, but what was written is not committed."""
    text = statement.strip()
    return in_foreign_session(text).replace(f"{text};\n{COMMIT};", f"{text};")


def without(statement: str, *conditions: str) -> tuple[object, str, object]:
    """Leave conditions out of a statement about machine ids."""
    text: str = getattr(MYSQL_MACHINES, statement)
    for condition in conditions:
        assert condition in text
        text = text.replace(condition, "1")
    changed: dict[str, Any] = {statement: text}
    return MysqlMachineIdDistributor, "machine_dialect", replace(MYSQL_MACHINES, **changed)


HOLDER_IS_ME = same("m.instance_id", "%(instance_id)s")
IS_LATEST = "(%(token)s = '' OR a.token = %(token)s)"


def stays_connected(connection: object) -> None:
    """As if a connection were good whatever it has answered."""


BROKEN: dict[str, Broken] = {
    "a counter that is read in a statement of its own": Broken(
        broken(busy_mysql, (MysqlIdSegmentDistributor, "dialect", READ_AFTERWARDS)),
        "handed out twice",
        1,
    ),
    "a segment that is not committed": Broken(
        broken(SCENARIOS["segment_chain_mysql"], (mysql, "in_foreign_session", without_commit)),
        "handed out twice",
        5,
    ),
    "a connection that leads to a replica": Broken(
        broken(busy_mysql, (mysql, "_hang_up", stays_connected)), "got no ids", 1
    ),
    "a mark that is not read": Broken(
        broken(mysql_rush, without("take", "a.mark")), "machine id|handed out twice", 0
    ),
    "a sign of life of somebody else's": Broken(
        broken(mysql_rush, without("guard", HOLDER_IS_ME, IS_LATEST)),
        "machine id|handed out twice",
        0,
    ),
    "no quarantine after a fail-over": Broken(
        broken(
            SCENARIOS["mysql_quarantine"],
            (MysqlMachineIdDistributor, "machine_dialect", SAME_SERVER),
            (_mysql, "MYSQL_MACHINES", SAME_SERVER),
        ),
        "machine id|handed out twice",
        12,
    ),
}
