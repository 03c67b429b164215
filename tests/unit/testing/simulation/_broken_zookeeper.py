"""Broken lines of the ZooKeeper store."""

from __future__ import annotations

from aiocosid.compat.twitter import TwitterMachineIdDistributor
from aiocosid.stores.zookeeper import ZookeeperMachineIdDistributor, _nodes
from aiocosid.stores.zookeeper._machine_take import Candidate
from aiocosid.stores.zookeeper._nodes import Nodes
from aiocosid.testing.simulation import (
    SCENARIOS,
)

from ._breaking import Broken, broken


async def writes_blindly(nodes: Nodes, path: str, data: bytes, _: int) -> object:
    """As shipped, but whatever was written since."""
    return await write(nodes, path, data, _nodes.ANY)


write = Nodes.write


above_its_stamp = property(lambda candidate: candidate.stamp_ms)


BROKEN: dict[str, Broken] = {
    "a counter on ZooKeeper without a version": Broken(
        broken(SCENARIOS["segment_chain_zookeeper"], (Nodes, "write", writes_blindly)),
        "handed out twice",
        1,
    ),
    "a machine id of ZooKeeper above its stamp, not its mark": Broken(
        broken(SCENARIOS["zookeeper_snowflakes"], (Candidate, "floor_ms", above_its_stamp)),
        "machine id|handed out twice",
        5,
    ),
    "a session that is suspended, and its lease is not": Broken(
        broken(SCENARIOS["zookeeper_snowflakes"], (ZookeeperMachineIdDistributor, "session", 1)),
        "its lease had ended",
        0,
    ),
    "the same with a node of that session": Broken(
        broken(SCENARIOS["twitter_snowflakes"], (TwitterMachineIdDistributor, "session", 1)),
        "its lease had ended",
        1,
    ),
}
