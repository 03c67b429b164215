"""Broken lines of the etcd store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aiocosid.abc import MachineIdDistributor
from aiocosid.machine import MachineIdLease
from aiocosid.stores._memory_marker import Marker
from aiocosid.stores.etcd._machine_calls import LONGEST_LEASE
from aiocosid.stores.etcd._server import Member
from aiocosid.testing.simulation import (
    SCENARIOS,
    Node,
    SimulatedEtcd,
    World,
)
from aiocosid.testing.simulation._etcd_scenarios import etcd_machines

from ._breaking import Broken, broken
from ._broken_leases import ignores_lease, silent_past_the_lease


def machines_on_etcd(world: World) -> Callable[[Node], MachineIdDistributor]:
    return etcd_machines(SimulatedEtcd(world), "new")


silent_on_etcd = partial(silent_past_the_lease, machines=machines_on_etcd)


async def writes_anyway(member: Member, _: Any, changes: Any, **how: Any) -> Any:
    """As shipped, but whatever others have written since."""
    return await change(member, [], changes, **how)


change: Any = Member.change


async def keeps_none(_member: Member, _lease: int) -> int:
    """As if the lease had begun anew."""
    return LONGEST_LEASE


def looks_away(*_: Any) -> float:
    """As if nothing were ever forgotten."""
    return 0.0


BROKEN: dict[str, Broken] = {
    "no guard of a counter on etcd": Broken(
        broken(SCENARIOS["segment_chain_etcd"], (Member, "change", writes_anyway)),
        "handed out twice",
        0,
    ),
    "no guard of machine ids on etcd": Broken(
        broken(SCENARIOS["etcd_snowflakes"], (Member, "change", writes_anyway)),
        "machine id|handed out twice",
        2,
    ),
    "a lease of etcd's that nobody renews": Broken(
        broken(SCENARIOS["etcd_snowflakes"], (Member, "keep_alive", keeps_none)),
        "its lease had ended",
        2,
    ),
    "no lease check on etcd": Broken(
        broken(silent_on_etcd, (MachineIdLease, "limit_ms", ignores_lease)),
        "its lease had ended",
        0,
    ),
    "no quarantine on etcd": Broken(
        broken(SCENARIOS["etcd_quarantine"], (Marker, "look", looks_away)),
        "machine id|handed out twice",
        2,
    ),
}
