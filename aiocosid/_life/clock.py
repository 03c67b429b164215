"""The only module that reads a clock or sleeps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import anyio

from ..abc import Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ("SYSTEM_CLOCK", "SystemClock")


class SystemClock(Clock):
    """The operating system's clocks and the event loop's timers."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return the system's monotonic time in seconds."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Return the system's wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def wall_reader(self) -> Callable[[], int]:
        """Return the system call itself."""
        return time.time_ns

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task on the event loop's timer."""
        await anyio.sleep(seconds)

    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """Return a cancel scope with a deadline on the event loop's clock."""
        return anyio.move_on_after(seconds, shield=shield)


SYSTEM_CLOCK: Final = SystemClock()
