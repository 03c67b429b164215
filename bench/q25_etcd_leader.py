"""How long does somebody wait for an id when etcd's leader is killed every 3 s?"""

from __future__ import annotations

import asyncio

from tests.leader_kills import PERIOD, STEP, Taken, take_under_kills
from tests.servers import EtcdEnsemble
from tests.servers.etcd import ELECTION_MS

from ._harness import Answer, percentiles

KILLS, EACH = 10, 2
KINDS = ("SegmentId", "SegmentChainId", "SnowflakeId")


async def ask() -> Answer:
    """Kill it, and take ids meanwhile by six generators with connections of their own."""
    ensemble = await asyncio.to_thread(EtcdEnsemble().__enter__)
    try:
        taken = await take_under_kills(ensemble, kills=KILLS, each=EACH)
    finally:
        await asyncio.to_thread(ensemble.__exit__, None, None, None)
    twice = _twice(taken, {"SegmentId", "SegmentChainId"}) + _twice(taken, {"SnowflakeId"})
    rows, raw = list[tuple[str, str, str]](), dict[str, dict[str, float]]()
    for kind in KINDS:
        waits = [wait for each in taken if each.kind == kind for wait in each.waits]
        raw[kind] = percentiles([round(wait * 1e9) for wait in waits])
        rows.append((kind, f"{len(waits):,}", f"{max(waits):.3f}"))
    longest = max(max(each.waits) for each in taken)
    return Answer(
        f"etcd, three members, leader killed every {PERIOD:g} s, {KILLS} times",
        "no duplicate",
        twice == 0,
        f"{twice} duplicates, no error; nobody waited for more than {longest:.2f} s "
        f"(election timeout {ELECTION_MS} ms, {STEP} ids a segment).",
        ("generator", "ids", "longest wait, s"),
        tuple(rows),
        {"waits": raw, "duplicates": twice},
    )


def _twice(taken: list[Taken], kinds: set[str]) -> int:
    ids = [new_id for each in taken if each.kind in kinds for new_id in each.ids]
    return len(ids) - len(set(ids))
