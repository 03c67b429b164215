"""Stable instances that are killed and start again on their machine, above their own record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aiocosid.abc import InstanceId
from aiocosid.abc.restart import Found, RestartRecord
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.memory import MemoryStore
from tests.machine_disk import Disk, MemoryPlace

from ._churn import churn
from ._faults import Faults
from ._scenarios import LAYOUT, parse

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from ._node import Node
    from ._trouble import Act
    from ._world import World

__all__ = ("snowflake_offline", "snowflake_restarts")

SAFE_GUARD: Final = 40.0  # seconds
OFFLINE: Final = 30.0  # seconds, of instances that may start without the store
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


class _WatchedPlace(MemoryPlace):
    """A place whose record may give a machine id to a process; the world takes note of that."""

    def __init__(self, node: Node, namespace: str, disk: Disk, offline: float) -> None:
        self._node, self._namespace, self._process = node, namespace, node.process
        process = node.process
        super().__init__(disk, lambda: not process.is_dead, offline)

    async def take(self) -> Found:
        found = await super().take()
        if found.record is not None and found.record.fence_ms >= 0:
            ledger, number = self._node.world.ledger, found.record.machine_id
            ledger.granted(self._namespace, number, self._process, floor_ms=-1)
        return found


def restarting(
    world: World, disks: dict[str, Disk], name: str = "", offline: float = 0.0
) -> Callable[[Node], SnowflakeId]:
    """Make Snowflakes of stable instances with a record on their machine's disk.

    Args:
        world: the world.
        disks: by the name of the instance.
        name: of the one instance; by default each node is one.
        offline: seconds without the store for which ids may be issued.
    """
    store = MemoryStore(clock=world.clock)

    def make(node: Node) -> SnowflakeId:
        who = name or node.name
        disk = disks.setdefault(who, Disk(node.clock.monotonic, boot=who))
        machine = store.machine_id_distributor(
            instance_id=InstanceId(who, stable=True),
            safe_guard=SAFE_GUARD,
            interval=INTERVAL,
            offline=offline,
            state_dir=who if offline else None,
        )
        machine.restart = _WatchedPlace(node, machine.namespace, disk, offline)
        return SnowflakeId(node.link().machines(machine), layout=LAYOUT, clock=node.clock)

    return make


def set_clock(rng: random.Random, node: Node) -> None:
    """Set the wall clock, which was off, to be off in another way."""
    node.step_clock(rng.uniform(-3.0, 3.0) - node.skew)


Harm: TypeAlias = Literal["copy", "restore", "unlock", "lose", "boot", "back"]
HARMS: Final[Sequence[Harm]] = ("copy", "restore", "restore", "unlock", "lose", "boot", "back")


def harm(
    rng: random.Random, node: Node, disk: Disk, copies: dict[str, str], harms: Sequence[Harm]
) -> None:
    """Do to a machine's disk what operators and power cuts do."""
    match rng.choice(harms):
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


async def snowflake_offline(world: World) -> None:
    """The same with starts that need no store; a disk that is restored would be believed."""
    harms: list[Harm] = [each for each in HARMS if each != "restore"]
    await _restarts(world, OFFLINE, harms, acts=("crash", "stop", "pause", "cut", "cut"))


async def snowflake_restarts(world: World) -> None:
    """Processes that die and come back at once, while clocks are set and disks are harmed."""
    await _restarts(world, 0.0, HARMS, acts=("crash", "stop", "pause", "cut"))


async def _restarts(
    world: World, offline: float, harms: Sequence[Harm], *, acts: Sequence[Act]
) -> None:
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
                harm(rng, node, disks[node.name], copies, harms)
        for disk in disks.values():
            disk.is_lost = False

    await churn(
        world,
        restarting(world, disks, offline=offline),
        faults=BAD,
        acts=acts,
        seconds=12.0,
        every=1.5,
        pause=0.2,
        # Without a proof an instance waits for the mark; and again after a lost first renewal.
        recovery=40.0 + 2 * offline,
        deadline=12.0,
        parse=parse,
        meanwhile=strike,
    )
