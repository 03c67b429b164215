"""Trouble from outside: crashes, partitions, clocks that are set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ._faults import draw_between

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ._link import Link
    from ._node import Node
    from ._world import World

__all__ = ("ACTS", "Act", "trouble")

Act: TypeAlias = Literal["crash", "stop", "pause", "cut", "step", "fork"]

ACTS: Final[tuple[Act, ...]] = ("crash", "stop", "pause", "cut", "step")
"""All but forks, which cost time."""

DOWN: Final = (0.001, 5.0)  # seconds between a crash and the next start
STEP: Final = (0.001, 5.0)  # seconds by which a wall clock is set


async def trouble(
    world: World,
    nodes: Sequence[Node],
    *,
    seconds: float,
    every: float = 1.0,
    acts: Sequence[Act] = ACTS,
    longest: float = 5.0,
) -> None:
    """Do something to some node, now and then; mend everything in the end.

    Args:
        world: the world.
        nodes: whom it may hit.
        seconds: for how long.
        every: seconds between two acts, on average.
        acts: what may be done: ``crash`` and a restart, a ``stop`` as by Ctrl-C and a restart, a
            ``pause`` of the process, a ``cut`` of its links, a ``step`` of its wall clock, a
            ``fork``, which takes milliseconds of real time.
        longest: seconds that a pause or a cut lasts at most.
    """
    rng = world.rng
    end = world.time + seconds
    while acts and (rest := rng.expovariate(1 / every)) < end - world.time:
        await world.sleep(rest)
        node = rng.choice(nodes)
        if node.is_up:
            await _DO[rng.choice(acts)](world, node, longest)
    await world.sleep(max(0.0, end - world.time))
    for node in nodes:
        _mend(node)


def _mend(node: Node) -> None:
    _heal(node.links)
    if node.is_up:
        node.wake()
    else:
        node.start()


async def _crash(world: World, node: Node, _: float) -> None:
    node.crash()
    _start_later(world, node)


async def _stop(world: World, node: Node, _: float) -> None:
    await node.stop()
    _start_later(world, node)


async def _pause(world: World, node: Node, longest: float) -> None:
    node.pause(draw_between(world.rng, (0.001, longest)))


async def _cut(world: World, node: Node, longest: float) -> None:
    ways = world.rng.choice(((True, True), (True, False), (False, True)))
    links = tuple(node.links)
    for link in links:
        link.cut(requests=ways[0], replies=ways[1])
    seconds = draw_between(world.rng, (0.01, longest))
    world.loop.call_later(seconds, _heal, links, context=world.context)


def _heal(links: Sequence[Link]) -> None:
    for link in links:
        link.heal()


async def _step(world: World, node: Node, _: float) -> None:
    node.step_clock(draw_between(world.rng, STEP) * world.rng.choice((-1, 1)))


async def _fork(_: World, node: Node, __: float) -> None:
    node.fork()


def _start_later(world: World, node: Node) -> None:
    seconds = draw_between(world.rng, DOWN)
    world.loop.call_later(seconds, _start, node, context=world.context)


def _start(node: Node) -> None:
    if not node.is_up and not node.world.is_over:
        node.start()


_DO: Final[dict[Act, Callable[[World, Node, float], Awaitable[None]]]] = {
    "crash": _crash,
    "stop": _stop,
    "pause": _pause,
    "cut": _cut,
    "step": _step,
    "fork": _fork,
}
