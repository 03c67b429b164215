"""The scenarios that come with the package; each is run by its name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ...segment import SegmentChainId, SegmentId
from ...stores.memory import MemoryStore
from ._cancellation import How, cancel_everywhere
from ._churn import MakeGenerator, churn
from ._faults import Faults

if TYPE_CHECKING:
    from ._node import Node
    from ._world import Scenario, World

__all__ = (
    "SCENARIOS",
    "segment_chain_cancelled",
    "segment_chain_crashes",
    "segment_chain_faults",
    "segment_id_faults",
)

STEP: Final = 10  # ids: small, so that there are many trips to the store


def segment_chains(store: MemoryStore) -> MakeGenerator:
    """Make segment chains on one counter of a store."""

    def make(node: Node) -> SegmentChainId:
        counter = store.segment_distributor(name="order", step=STEP)
        return SegmentChainId(node.link().segments(counter), clock=node.clock)

    return make


async def segment_chain_faults(world: World) -> None:
    """Segment chains on a bad network: no process dies."""
    await churn(world, segment_chains(MemoryStore()), acts=("pause", "cut", "step"))


async def segment_chain_crashes(world: World) -> None:
    """Segment chains in processes that die, are closed and come back."""
    await churn(world, segment_chains(MemoryStore()), acts=("crash", "stop", "pause"))


async def segment_id_faults(world: World) -> None:
    """`SegmentId`, with and without ids in hand, under everything."""
    store, step = MemoryStore(), world.rng.choice((1, STEP))

    def make(node: Node) -> SegmentId:
        counter = store.segment_distributor(name="order", step=step)
        return SegmentId(node.link().segments(counter), clock=node.clock)

    await churn(world, make)


async def segment_chain_cancelled(world: World) -> None:
    """Calls that are cancelled at each of their suspensions, on a chain that is always dry."""
    store, rng = MemoryStore(), world.rng
    hows: tuple[How, ...] = ("task", "scope", "reply")

    async def main(node: Node) -> None:
        counter = store.segment_distributor(name="order", step=1)
        chain = SegmentChainId(
            node.link().segments(counter), safe_distance=1, max_distance=1, clock=node.clock
        )
        async with chain:
            ids = node.watch(chain)
            for how in hows:
                n = rng.randrange(1, 8)
                await cancel_everywhere(ids.next_id, how=how)
                await cancel_everywhere(partial(ids.next_ids, n), how=how)
                await ids.next_ids(n)

    faults = Faults(resend=0.1, delay=0.02, delayed=(0.01, 0.5))
    nodes = [world.node(main, faults=faults) for _ in range(2)]
    for node in nodes:
        await node.process.has_ended.wait()


SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.__name__: scenario
    for scenario in (
        segment_chain_cancelled,
        segment_chain_crashes,
        segment_chain_faults,
        segment_id_faults,
    )
}
"""By the name that the command line knows."""
