"""One life of a node: it runs, is stopped and continued, and dies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._loop import SimulatedTask, VirtualTimeLoop

__all__ = ("Entry", "Process")

Entry: TypeAlias = "tuple[asyncio.Handle, Process | None]"


class Process:
    """What runs in it can be stopped at any step, as by SIGSTOP, and ended at any, as by SIGKILL.

    Nothing of a dead process runs any more, not even its clean-up.

    Attributes:
        is_running: False while it is stopped, and once it is dead.
        is_dead: whether it was killed, or its main task has ended.
        has_ended: set with it.
        stopped_until: when it goes on, in virtual seconds.
        parked: what it could not run.
        corpses: its tasks, kept from the garbage collector, which would run their clean-up.
    """

    __slots__ = (
        "_interrupt",
        "_loop",
        "_steps",
        "corpses",
        "has_ended",
        "is_dead",
        "is_running",
        "name",
        "parked",
        "stopped_until",
        "was_told_to_stop",
    )

    def __init__(self, name: str, loop: VirtualTimeLoop, interrupt: Callable[[], int]) -> None:
        """Make a process in which nothing runs yet.

        Args:
            name: for the trace.
            loop: where it runs.
            interrupt: called at the step that was drawn; returns in how many steps it wants to be
                called next, 0 for never.
        """
        self.name = name
        self.is_running = True
        self.is_dead = False
        self.was_told_to_stop = False
        self.has_ended = asyncio.Event()
        self.stopped_until = 0.0
        self.parked: list[Entry] = []
        self.corpses: list[SimulatedTask] = []
        self._loop = loop
        self._interrupt = interrupt
        self._steps = 0

    def interrupt_in(self, steps: int) -> None:
        """Call back in so many steps of its tasks; 0 for never."""
        self._steps = steps

    def admits(self, entry: Entry) -> bool:
        """Tell whether a callback of this process may run now; it is kept if not."""
        if self.is_running:
            self._steps -= 1
            if self._steps != 0:
                return True
            self._steps = self._interrupt()
            if self.is_running:
                return True
        self.parked.append(entry)
        return False

    def stop_until(self, when: float) -> None:
        """Stop it; it goes on at a virtual time."""
        if not self.is_dead:
            self.is_running = False
            self.stopped_until = max(when, self.stopped_until)

    def go_on(self) -> bool:
        """Let it go on if it is time; tell whether it does."""
        if self.is_dead or self.is_running or self._loop.time() < self.stopped_until:
            return False
        self._release()
        return True

    def kill(self) -> None:
        """End it at once."""
        self.corpses = self._loop.tasks(self)
        self.is_running = False
        self.is_dead = True
        self.has_ended.set()

    def exhume(self) -> None:
        """Let its tasks end, in a world that is over."""
        self.is_dead = False
        self._steps = 0
        self._release()

    def _release(self) -> None:
        self.is_running = True
        parked, self.parked = self.parked, []
        self._loop.requeue(parked)

    def __repr__(self) -> str:
        """Name it."""
        return self.name
