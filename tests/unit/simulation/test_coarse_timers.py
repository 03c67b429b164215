"""Timers that end a little early, as uvloop's do, which counts whole milliseconds."""

from __future__ import annotations

from contextlib import AbstractContextManager

import anyio

from aiocosid import SegmentChainId, SnowflakeId
from aiocosid.errors import MachineIdUnavailableError
from aiocosid.stores.memory import MemoryStore
from tests.simulation import Node, NodeClock, World


class Coarse(NodeClock):
    """Rounds down; in virtual time whoever waits for a rest of a millisecond waits for ever."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(int(seconds * 1000) / 1000)

    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        return super().move_on_after(int(seconds * 1000) / 1000, shield=shield)


def test_a_wait_for_a_silent_lease_ends() -> None:
    store = MemoryStore()

    async def main(node: Node) -> None:
        clock = Coarse(node)
        machine = store.machine_id_distributor(safe_guard=4.0, interval=0.8)
        link = node.link()
        async with SnowflakeId(link.machines(machine), clock=clock, wait_timeout=1.0007) as ids:
            link.cut()
            await clock.sleep(9.0)
            before = clock.monotonic()
            try:
                await ids.next_id()
            except MachineIdUnavailableError:
                node.world.note(node.name, "fails")
            assert 1.0 - 1e-6 <= clock.monotonic() - before <= 1.002

    async def scenario(world: World) -> None:
        await world.node(main).process.has_ended.wait()

    assert World(0).run(scenario).events["fails"] == 1


def test_ids_that_grow_old_are_let_go() -> None:
    store = MemoryStore()

    async def main(node: Node) -> None:
        clock = Coarse(node)
        counter = store.segment_distributor(name="order", step=10)
        chain = SegmentChainId(counter, clock=clock, ttl=1.0007, safe_distance=1)
        async with chain:
            assert await chain.next_id() == 1
            await clock.sleep(3.0)
            assert await chain.next_id() > 10

    async def scenario(world: World) -> None:
        await world.node(main).process.has_ended.wait()

    World(0).run(scenario)
