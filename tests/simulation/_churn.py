"""A fleet of nodes that take ids while everything goes wrong that may."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from aiocosid.errors import CosIdError

from ._cancellation import How, cancel_at
from ._faults import Faults
from ._trouble import ACTS, trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiocosid.abc import IdGenerator

    from ._ledger import Parse
    from ._node import Node
    from ._trouble import Act
    from ._witness import Witness
    from ._world import World

__all__ = ("ROUGH", "MakeGenerator", "churn")

MakeGenerator: TypeAlias = "Callable[[Node], IdGenerator]"
"""Returns a new generator for a new process of a node."""

ROUGH: Final = Faults(
    lose_request=0.03, lose_reply=0.05, resend=0.05, delay=0.05, pause=0.001, stall=0.001, hold=0.02
)
"""Everything goes wrong, often."""

HOWS: Final[tuple[How, ...]] = ("task", "scope", "reply")


RECOVERY_STEP: Final = 0.25  # seconds between two looks


async def churn(
    world: World,
    make: MakeGenerator,
    *,
    nodes: int = 3,
    callers: int = 2,
    seconds: float = 3.0,
    pause: float = 0.5,
    faults: Faults = ROUGH,
    acts: Sequence[Act] = ACTS,
    every: float = 0.3,
    longest: float = 5.0,
    skew: float = 0.05,
    drift: float = 1e-4,
    deadline: float = 5.0,
    recovery: float = 6.0,
    parse: Parse | None = None,
    fair: bool = True,
    meanwhile: Callable[[World], Awaitable[None]] | None = None,
) -> None:
    """Let nodes take ids from their generators, under trouble, and recover.

    Each process opens a generator and lets several tasks call it: one id, many, without waiting,
    cancelled at some suspension.  When the trouble is over, each node has to get ids again, and to
    close without leaving anything behind.

    Args:
        world: the world.
        make: makes the generator of a new process.
        nodes: how many nodes.
        callers: tasks a node.
        seconds: how long the trouble lasts.
        pause: seconds that a task rests between two calls, on average.
        faults: what may go wrong with nodes and links, meanwhile and later.
        acts: see `trouble`.
        every: seconds between two acts, on average.
        longest: seconds that a pause or a cut lasts at most.
        skew: seconds that a wall clock is off at most, at the beginning.
        drift: by how much clocks run too fast or too slow at most.
        deadline: see `Node.watch`.
        recovery: seconds within which each node has to hand out ids again.
        parse: see `Node.watch`.
        fair: see `Node.watch`.
        meanwhile: does something to the stores while the trouble lasts, and mends it.
    """
    rng = world.rng

    async def main(node: Node) -> None:
        def watch(generator: IdGenerator) -> Witness:
            return node.watch(generator, deadline=deadline, parse=parse, fair=fair)

        await _serve(node, make(node), watch, callers=callers, pause=pause)

    for _ in range(nodes):
        world.node(
            main, faults=faults, skew=rng.uniform(-skew, skew), drift=rng.uniform(-drift, drift)
        )
    others = [] if meanwhile is None else [meanwhile(world)]
    await asyncio.gather(
        trouble(world, world.nodes, seconds=seconds, every=every, acts=acts, longest=longest),
        *others,
    )
    await _recover(world, recovery)
    for node in world.nodes:
        await node.stop()


async def _recover(world: World, seconds: float) -> None:
    """Have every node hand out ids again, within so many seconds."""
    before = {node.name: node.ids for node in world.nodes}
    end = world.time + seconds
    while waiting := [node for node in world.nodes if node.ids == before[node.name]]:
        if world.time >= end:
            world.fail(f"{waiting[0].name} got no ids in the {seconds:g} s after all was mended")
            return
        await world.sleep(RECOVERY_STEP)


async def _serve(
    node: Node,
    generator: IdGenerator,
    watch: Callable[[IdGenerator], Witness],
    *,
    callers: int,
    pause: float,
) -> None:
    """Open the generator until that succeeds, and anew when it has ended."""
    while True:
        try:
            async with generator:
                ids = watch(generator)
                async with anyio.create_task_group() as group:
                    for _ in range(callers):
                        group.start_soon(_take, node, ids, pause)
        except CosIdError as error:
            node.world.note(node.name, "cannot open", type(error).__name__)
            await node.clock.sleep(node.world.rng.uniform(0.1, 1.0))


async def _take(node: Node, ids: Witness, pause: float) -> None:
    """Take ids for ever."""
    rng = node.world.rng
    while True:
        await node.clock.sleep(rng.expovariate(1 / pause))
        choice = rng.random()
        try:
            if choice < 0.4:
                for _ in range(rng.randrange(1, 10)):
                    await ids.next_id()
            elif choice < 0.7:
                await ids.next_ids(rng.randrange(1, 40))
            elif choice < 0.8:
                ids.next_id_nowait()
            else:
                call = ids.next_ids(rng.randrange(1, 20)) if choice < 0.9 else ids.next_id()
                await cancel_at(call, rng.randrange(1, 4), how=rng.choice(HOWS))
        except CosIdError:
            pass  # counted by the witness
