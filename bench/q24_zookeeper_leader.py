"""What does an election of ZooKeeper's leader cost who takes ids?"""

from __future__ import annotations

import asyncio

from tests.leader_kills import PERIOD, STEP, take_under_kills
from tests.servers import ZookeeperEnsemble

from ._harness import Answer

KILLS = 10
NAMES = {
    "SegmentId": f"`SegmentId`, step {STEP}",
    "SegmentChainId": f"`SegmentChainId`, step {STEP}",
    "SnowflakeId": "`SnowflakeId`, leased machine ids",
}


async def ask() -> Answer:
    """Kill the leader of three every 3 s, start it again, and take ids all the while."""
    ensemble = await asyncio.to_thread(ZookeeperEnsemble().__enter__)
    try:
        taken = await take_under_kills(ensemble, kills=KILLS)
    finally:
        await asyncio.to_thread(ensemble.__exit__, None, None, None)
    told: dict[str, dict[str, float]] = {}
    for kind in NAMES:
        ids = [new_id for each in taken if each.kind == kind for new_id in each.ids]
        longest = max(max(each.waits) for each in taken if each.kind == kind)
        told[kind] = {"ids": len(ids), "twice": len(ids) - len(set(ids)), "longest": longest}
    segments = [new_id for each in taken if each.kind != "SnowflakeId" for new_id in each.ids]
    duplicates = len(segments) - len(set(segments)) + int(told["SnowflakeId"]["twice"])
    return Answer(
        f"A ZooKeeper ensemble of three, its leader killed {KILLS} times, every {PERIOD:g} s",
        "no id twice, no error; the longest wait in a table",
        duplicates == 0,
        f"{duplicates} ids came twice.",
        ("who", "ids", "longest wait"),
        tuple(
            (NAMES[kind], f"{each['ids']:,}", f"{each['longest']:.2f} s")
            for kind, each in told.items()
        ),
        {"waits": told, "duplicates": duplicates},
    )
