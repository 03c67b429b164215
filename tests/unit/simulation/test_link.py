"""Links: what is lost, late, and done twice."""

from __future__ import annotations

import pytest

from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import MachineIdLostError, StoreUnavailableError
from aiocosid.stores.counters import CounterDistributor
from aiocosid.stores.memory import MemoryStore
from tests.simulation import Faults, Link, Node, World

EXACTLY = (0.1, 0.1 + 1e-12)


class Calls:
    """What one node did at the store."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.store = MemoryStore()
        self.links: list[Link] = []
        self.outcomes: list[object] = []
        self.times: list[float] = []

    def distributor(self, node: Node) -> IdSegmentDistributor:
        self.links.append(node.link())
        return self.links[-1].segments(self.store.segment_distributor(name="order", step=10))

    async def call_twice(self, node: Node) -> None:
        distributor = self.distributor(node)
        for _ in range(2):
            try:
                self.outcomes.append(await distributor.next_max_id(10))
            except StoreUnavailableError as error:
                self.outcomes.append(error.reason)
            self.times.append(round(node.world.time, 6))

    async def scenario(self, world: World) -> None:
        node = world.node(self.call_twice, faults=self.faults)
        await node.process.has_ended.wait()
        await world.sleep(10)

    async def counter(self) -> int:
        return sum(counter.last_max_id for counter in await self.store.counters())


@pytest.mark.parametrize(
    ("faults", "outcomes", "times", "counted"),
    [
        (Faults(latency=EXACTLY), [10, 20], [0.2, 0.4], 20),
        (
            Faults(latency=EXACTLY, lose_request=1, reset=0),
            ["no reply within 1 s"] * 2,
            [1.0, 2.0],
            0,
        ),
        (
            Faults(latency=EXACTLY, lose_reply=1, reset=0),
            ["no reply within 1 s"] * 2,
            [1.0, 2.0],
            20,
        ),
        (
            Faults(latency=EXACTLY, lose_reply=1, reset=1),
            ["the connection was reset"] * 2,
            [0.2, 0.4],
            20,
        ),
        (Faults(latency=EXACTLY, resend=1), [20, 40], [0.4, 0.8], 40),
        (
            Faults(latency=EXACTLY, delay=1, delayed=(5, 5.001)),
            ["no reply within 1 s"] * 2,
            [1.0, 2.0],
            20,
        ),
    ],
)
def test_what_becomes_of_a_call(
    faults: Faults, outcomes: list[object], times: list[float], counted: int
) -> None:
    calls = Calls(faults)
    World(0).run(calls.scenario)
    assert (calls.outcomes, calls.times) == (outcomes, times)
    assert calls.store._backend._counters.get("cosid.order", 0) == counted


@pytest.mark.parametrize("ways", [(True, True), (True, False), (False, True)])
def test_a_cut_link_is_silent_until_it_is_healed(ways: tuple[bool, bool]) -> None:
    requests, replies = ways
    outcomes: list[object] = []
    calls = Calls(Faults(latency=EXACTLY, reset=0))

    async def main(node: Node) -> None:
        distributor = calls.distributor(node)
        (link,) = calls.links
        link.cut(requests=requests, replies=replies)
        with pytest.raises(StoreUnavailableError):
            await distributor.next_max_id(10)
        link.heal()
        outcomes.append(await distributor.next_max_id(10))

    async def scenario(world: World) -> None:
        node = world.node(main)
        await node.process.has_ended.wait()

    World(0).run(scenario)
    assert outcomes == [10 if requests else 20]


def test_a_call_outlives_its_sender() -> None:
    calls = Calls(Faults(latency=EXACTLY))

    async def scenario(world: World) -> None:
        node = world.node(calls.call_twice, faults=calls.faults)
        await world.sleep(0.05)
        node.crash()
        await world.sleep(5)
        assert await calls.counter() == 10
        assert calls.outcomes == []

    World(0).run(scenario)


def test_later_calls_overtake_a_late_one() -> None:
    """A counter shared by two nodes: the one that asked first is answered last."""
    calls = Calls(Faults())
    got: dict[str, int] = {}

    async def main(node: Node) -> None:
        got[node.name] = await calls.distributor(node).next_max_id(10)

    async def scenario(world: World) -> None:
        world.node(main, faults=Faults(latency=(0.4, 0.41)))
        await world.sleep(0.1)
        node = world.node(main, faults=Faults(latency=(0.1, 0.11)))
        await node.process.has_ended.wait()
        await world.sleep(2)

    World(0).run(scenario)
    assert got == {"b": 10, "a": 20}


def test_an_error_of_the_store_comes_back_as_it_is() -> None:
    store = MemoryStore()

    async def main(node: Node) -> None:
        distributor = node.link().machines(store.machine_id_distributor(safe_guard=4, interval=1))
        grant = await distributor.distribute(2, now_ms=1, latest_ms=1)
        await distributor.renew(grant.machine_id, now_ms=2, fence_ms=3)
        await distributor.release(grant.machine_id, last_ms=1)
        with pytest.raises(MachineIdLostError):
            await distributor.renew(grant.machine_id, now_ms=4, fence_ms=5)
        assert distributor.store == "memory"
        assert distributor.is_leased
        assert distributor.safe_guard == 4.0

    async def scenario(world: World) -> None:
        node = world.node(main)
        await node.process.has_ended.wait()

    World(0).run(scenario)


def test_which_ids_a_call_grants_is_passed_on() -> None:
    """Also over a link: a counter of one residue class, of so many ids a call."""
    found: list[tuple[int, int | None]] = []

    class Third(CounterDistributor):
        __slots__ = ()
        stride, step_limit = 3, 4

    async def serve(node: Node) -> None:
        linked = node.link().segments(Third(MemoryStore()._backend, name="order", step=4))
        found.append((linked.stride, linked.step_limit))

    async def scenario(world: World) -> None:
        await world.node(serve).process.has_ended.wait()

    World(0).run(scenario)
    assert found == [(3, 4)]
