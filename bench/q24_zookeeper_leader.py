"""What does an election of ZooKeeper's leader cost who takes ids?"""

from __future__ import annotations

from tests.servers import ZookeeperEnsemble
from tests.stress._leader import under_load

from ._harness import Answer

KILLS, EVERY = 10, 3.0
NAMES = {
    "store": "the store itself, one id a call",
    "chain": "`SegmentChainId`, step 100",
    "snowflake": "`SnowflakeId`, leased machine ids",
}


async def ask() -> Answer:
    """Kill the leader of three every 3 s, start it again, and take ids all the while."""
    with ZookeeperEnsemble() as ensemble:
        told = await under_load(ensemble, kills=KILLS, every=EVERY)
    duplicates = sum(each.duplicates for each in told.values())
    rows = tuple(
        (
            NAMES[name],
            f"{len(each.ids):,}",
            each.duplicates,
            f"{each.longest:.2f} s",
            ", ".join(f"{count} {error}" for error, count in each.errors.items()) or "none",
        )
        for name, each in told.items()
    )
    return Answer(
        f"A ZooKeeper ensemble of three, its leader killed {KILLS} times, every {EVERY:g} s",
        "no id twice; the longest wait in a table",
        duplicates == 0,
        f"{duplicates} ids came twice.",
        ("who", "ids", "twice", "longest wait", "calls that failed"),
        rows,
        {
            name: {"ids": len(each.ids), "longest": each.longest, "errors": each.errors}
            for name, each in told.items()
        },
    )
