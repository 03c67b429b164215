"""How a line of the shipped code is broken.

By putting another function, or another script, in its place while a world runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from unittest.mock import patch

from tests.simulation import Scenario, World

Break = Callable[[ExitStack], object]


def broken(scenario: Scenario, *breaks: tuple[object, str, object]) -> Scenario:
    """A scenario in which something of the shipped code is replaced."""

    async def run(world: World) -> None:
        with ExitStack() as stack:
            for owner, name, value in breaks:
                stack.enter_context(patch.object(owner, name, value))
            await scenario(world)

    return run


@dataclass(frozen=True)
class Broken:
    """A defect that was planted.

    Attributes:
        scenario: has to find it.
        said: what is said of it.
        seed: the first world that does.
    """

    scenario: Scenario
    said: str
    seed: int
