"""Stable instances that are killed and start again on their machine, above their own record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiocosid.abc import InstanceId
from aiocosid.machine._restart import RestartRecord
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.memory import MemoryStore
from tests.machine_disk import Disk, MemoryPlace

from ._churn import churn
from ._faults import Faults
from ._scenarios import LAYOUT, parse

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ._node import Node
    from ._world import World

__all__ = ("snowflake_restarts",)

SAFE_GUARD: Final = 40.0  # seconds
INTERVAL: Final = 6.0  # seconds: the mark is far ahead, and a start that waits for it is late

BAD: Final = Faults(
    lose_request=0.02,
    lose_reply=0.05,
    resend=0.05,
    delay=0.05,
    delayed=(0.5, 4.0),
    pause=0.0005,
    hold=0.02,
)
"""Without stalls in the middle of a step: a process that is killed in one has been ahead."""


def restarting(
    world: World, disks: dict[str, Disk], name: str = ""
) -> Callable[[Node], SnowflakeId]:
    """Make Snowflakes of stable instances with a record on their machine's disk.

    Args:
        world: the world.
        disks: by the name of the instance.
        name: of the one instance; by default each node is one.
    """
    store = MemoryStore(clock=world.clock)

    def make(node: Node) -> SnowflakeId:
        process = node.process
        who = name or node.name
        disk = disks.setdefault(who, Disk(node.clock.monotonic, boot=who))
        machine = store.machine_id_distributor(
            instance_id=InstanceId(who, stable=True),
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
        )
        machine.restart = MemoryPlace(disk, lambda: not process.is_dead)
        return SnowflakeId(node.link().machines(machine), layout=LAYOUT, clock=node.clock)

    return make


def set_clock(rng: random.Random, node: Node) -> None:
    """Set the wall clock, which was off, to be off in another way."""
    node.step_clock(rng.uniform(-3.0, 3.0) - node.skew)


def harm(rng: random.Random, node: Node, disk: Disk, copies: dict[str, str]) -> None:
    """Do to a machine's disk what operators and power cuts do."""
    match rng.choice(("copy", "restore", "restore", "unlock", "lose", "boot", "back")):
        case "copy":
            copies[node.name] = disk.text
        case "restore":
            disk.text = copies.get(node.name, disk.text)
        case "unlock":
            disk.remove_lock()
        case "lose":
            disk.is_lost = not disk.is_lost
        case "boot":
            node.crash()
            disk.boot_anew()
            record = RestartRecord.read(disk.text) if disk.text else None
            if record is not None:  # at worst its clock seems to go on
                disk.behind = disk.monotonic() - record.boot_ms / 1000 - 0.01
            set_clock(rng, node)
            node.start()
        case "back":  # another machine's memory: the boot clock is behind every record
            node.crash()
            disk.behind += rng.uniform(20.0, 60.0)
            node.start()


async def snowflake_restarts(world: World) -> None:
    """Processes that die and come back at once, while clocks are set and disks are harmed."""
    disks: dict[str, Disk] = {}
    copies: dict[str, str] = {}
    world.ledger.forgets = True

    async def strike(world: World) -> None:
        rng = world.rng
        for _ in range(24):
            await world.sleep(rng.expovariate(1.5))
            node = rng.choice(world.nodes)
            choice = rng.random()
            if choice < 0.5:
                node.crash()
                if rng.random() < 0.5:
                    set_clock(rng, node)
                node.start()
            elif choice < 0.75:
                set_clock(rng, node)
            elif node.name in disks:
                harm(rng, node, disks[node.name], copies)

    await churn(
        world,
        restarting(world, disks),
        faults=BAD,
        acts=("crash", "stop", "pause", "cut"),
        seconds=12.0,
        every=1.5,
        pause=0.2,
        recovery=40.0,
        deadline=12.0,
        parse=parse,
        meanwhile=strike,
    )
