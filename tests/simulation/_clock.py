"""Clocks in virtual time: the right one of the world, and those of the nodes."""

from __future__ import annotations

import asyncio
from math import floor
from typing import TYPE_CHECKING, Final

import anyio

from aiocosid.abc import Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ._loop import VirtualTimeLoop
    from ._node import Node

__all__ = ("NodeClock", "WorldClock")

START_NS: Final = 1_700_000_000 * 10**9
"""2023-11-14T22:13:20Z, as `ManualClock` begins."""

NS: Final = 10**9
NS_PER_MS: Final = 10**6


class WorldClock(Clock):
    """A clock that is right: for stores that tell the time by themselves."""

    __slots__ = ("_loop",)

    def __init__(self, loop: VirtualTimeLoop) -> None:
        """Read the virtual time of a loop."""
        self._loop = loop

    def monotonic(self) -> float:
        """Return virtual seconds since the world began."""
        return self._loop.time()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, of a world that began in November 2023."""
        return self.wall_reader()() // NS_PER_MS

    def wall_reader(self) -> Callable[[], int]:
        """Return a function that reads the wall clock, in nanoseconds since 1970."""
        return lambda: START_NS + floor(self._loop.time() * NS)

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)

    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """Return a cancel scope that ends its block in virtual time."""
        return anyio.move_on_after(seconds, shield=shield)


class NodeClock(Clock):
    """The clocks of one node, in virtual time."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        """Read the clocks of a node."""
        self._node = node

    def monotonic(self) -> float:
        """Return seconds since the world began, as this node's oscillator counts them."""
        return self._node._read()

    def now_ms(self) -> int:
        """Return the node's wall clock in milliseconds since 1970."""
        return self._wall_ns() // NS_PER_MS

    def wall_reader(self) -> Callable[[], int]:
        """Return a function that reads the node's wall clock, in nanoseconds since 1970."""
        return self._wall_ns

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for so many seconds of this node."""
        await asyncio.sleep(self._node._virtual(seconds))

    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """Return a cancel scope that ends its block after so many seconds of this node."""
        return anyio.move_on_after(self._node._virtual(seconds), shield=shield)

    def _wall_ns(self) -> int:
        return START_NS + floor((self._node._read() + self._node.skew) * NS)
