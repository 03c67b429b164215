"""Scenarios of leases, and their lines broken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from aiocosid import CosIdError, SnowflakeId
from aiocosid.abc import MachineIdDistributor
from aiocosid.abc.restart import Found
from aiocosid.machine import MachineIdLease
from aiocosid.machine._opening import LeaseOpening
from aiocosid.machine._tenure import Tenure
from aiocosid.machine.restart import early_floor_ms, offline_floor_ms
from aiocosid.snowflake._sequencer import Sequencer
from aiocosid.snowflake._stamping import SnowflakeOpening
from aiocosid.stores.memory import MemoryStore
from tests.machine_disk import Disk
from tests.simulation import Faults, Node, World, churn, trouble
from tests.simulation._restart_scenarios import restarting
from tests.simulation._scenarios import INTERVAL, LAYOUT, SAFE_GUARD, parse


def machines_in_memory(world: World) -> Callable[[Node], MachineIdDistributor]:
    store = MemoryStore(clock=world.clock)

    def make(node: Node) -> MachineIdDistributor:
        machine = store.machine_id_distributor(
            instance_id=node.process.name, safe_guard=SAFE_GUARD, interval=INTERVAL
        )
        return node.link().machines(machine)

    return make


async def silent_past_the_lease(
    world: World,
    machines: Callable[[World], Callable[[Node], MachineIdDistributor]] = machines_in_memory,
) -> None:
    """Nodes that are cut off while their clocks are set back: their marks last longer than leases.

    Only the lease silences them.
    """
    machine = machines(world)

    def make(node: Node) -> SnowflakeId:
        lease = MachineIdLease(
            machine(node), bits=LAYOUT.machine_bits, lead=0.9 * SAFE_GUARD, clock=node.clock
        )
        return SnowflakeId(lease, layout=LAYOUT, clock=node.clock)

    async def strike(world: World) -> None:
        for node in world.nodes:
            await world.sleep(world.rng.uniform(0.5, 2.0))
            node.step_clock(-world.rng.uniform(0.5, 2.0))
            for link in node.links:
                link.cut()
        await world.sleep(SAFE_GUARD + 2.0)
        for link in (link for node in world.nodes for link in node.links):
            link.heal()

    await churn(
        world,
        make,
        faults=Faults(delay=0.3, delayed=(0.4, 1.5), timeout=3.0, reset=0.0),
        acts=(),
        seconds=0.0,
        pause=0.2,
        recovery=20.0,
        deadline=10.0,
        parse=parse,
        meanwhile=strike,
    )


async def twins_on_a_disk(world: World) -> None:
    """Two processes of one instance on one machine, whose lock file is removed now and then."""
    disks: dict[str, Disk] = {}
    make = restarting(world, disks, name="one")
    world.ledger.forgets = True

    async def main(node: Node) -> None:
        while True:
            gen = make(node)
            with suppress(CosIdError):
                async with gen:
                    ids = node.watch(gen, parse=parse, deadline=60.0)
                    for _ in range(40):
                        await ids.next_ids(3)
                        await node.clock.sleep(0.1)
            await node.clock.sleep(0.3)

    for _ in range(2):
        world.node(main)
        await world.sleep(1.0)
    for _ in range(12):
        node = world.rng.choice(world.nodes)
        node.crash()
        node.start()
        await world.sleep(world.rng.uniform(0.5, 4.0))
        disks["one"].remove_lock()
        await world.sleep(world.rng.uniform(0.5, 4.0))
    for node in world.nodes:
        node.crash()


def believes(**facts: Callable[[Found, str], Any]) -> Callable[[Found, str], int | None]:
    """The decision as shipped, but for some of what it looks at.

    Args:
        **facts: of the record, taken from what was found instead.
    """

    def decide(found: Found, former: str) -> int | None:
        if found.record is None:
            return None
        seen = {name: fact(found, former) for name, fact in facts.items()}
        return early_floor_ms(replace(found, record=replace(found.record, **seen)), former)

    return decide


RULES: dict[str, Callable[[Found, str], int | None]] = {
    "renewal": believes(renewal=lambda found, former: former),
    "lock": believes(lock=lambda found, former: found.lock),
    "boot": believes(boot=lambda found, former: found.boot),
    "time since": believes(boot_ms=lambda found, former: found.boot_ms),
    "floor": believes(floor_ms=lambda found, former: -1),
}
"""Decisions on a restart without one of their rules each."""


def goes_back(found: Found, former: str) -> int | None:
    """As shipped, but does not mind a boot clock that has gone back."""
    record = found.record
    if record is not None and record.boot_ms > found.boot_ms:
        found = replace(found, boot_ms=record.boot_ms)
    return early_floor_ms(found, former)


def begins_anywhere(found: Found, bits: int, now_ms: int) -> int | None:
    """As shipped, but at no floor."""
    return None if offline_floor_ms(found, bits, now_ms) is None else -1


def begins_anyhow(found: Found, bits: int, now_ms: int) -> int | None:
    """As shipped, but takes any lock and any boot for those of the record."""
    record = found.record
    if record is None:
        return None
    boot_ms = max(found.boot_ms, record.boot_ms)
    found = replace(found, lock=record.lock, boot=record.boot, boot_ms=boot_ms)
    return offline_floor_ms(found, bits, now_ms)


def bounds_nothing(tenure: Tenure) -> int:
    """As shipped, but writes a bound that does not bind."""
    return tenure.fence_ms if tenure.seconds_left > 0 else -1


def ignores_lease(lease: MachineIdLease) -> int:
    return lease.statistics().fence_ms


async def renews_late(opening: LeaseOpening) -> CosIdError | None:
    """As shipped, but counts from the reply."""
    result = await renew(opening)
    if result is None:
        opening.tenure.ends_at = opening.clock.monotonic() + opening._options.lease_time
    return result


async def marks_early(opening: LeaseOpening) -> CosIdError | None:
    """As shipped, but uses the mark before the store has it."""
    now_ms = opening.clock.now_ms() + int(opening._options.lead_seconds * 1000)
    opening.tenure.fence_ms = max(opening.tenure.fence_ms, now_ms)
    return await renew(opening)


renew = LeaseOpening._renew


async def twins(world: World) -> None:
    """Two generators of one name on one lease, in each process."""
    store = MemoryStore(clock=world.clock)

    async def main(node: Node) -> None:
        while True:
            machine = store.machine_id_distributor(
                instance_id=node.process.name, safe_guard=SAFE_GUARD, interval=INTERVAL
            )
            lease = MachineIdLease(node.link().machines(machine), bits=2, clock=node.clock)
            first, second = (SnowflakeId(lease, layout=LAYOUT, clock=node.clock) for _ in range(2))
            with suppress(CosIdError):
                async with first, second, anyio.create_task_group() as group:
                    for each in (first, second):
                        watched = node.watch(each, parse=parse)
                        watched._counter = "cosid.order"
                        group.start_soon(taking, node, watched)
            await node.clock.sleep(0.3)

    await life(world, main)


async def taking(node: Node, ids: Any, n: int = 0) -> None:
    """Take ids for ever."""
    while True:
        with suppress(CosIdError):
            await ids.next_ids(n or node.world.rng.randrange(1, 20))
        await node.clock.sleep(node.world.rng.expovariate(3.0))


async def life(world: World, main: Any, nodes: int = 2, **faults: Any) -> None:
    """Let processes run for some seconds, die and come back."""
    for _ in range(nodes):
        world.node(main, faults=Faults(**faults))
    await trouble(world, world.nodes, seconds=5.0, every=0.8, acts=("crash",))
    for node in world.nodes:
        node.crash()


def attached_alone(stamping: Any) -> Sequencer:
    """As shipped, but never to what is there."""
    stamping.name = f"{stamping.name}/{id(stamping)}"
    sequencer: Sequencer = attached(stamping)
    return sequencer


attached = SnowflakeOpening._attached
