"""Several processes behind the same sockets, replaced when they die, and ended together."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from .._life.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Work = Callable[[int, Any], None]

__all__ = ("supervise",)

logger = logging.getLogger("aiocosid.server")

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CONTEXT: Final = get_context("spawn")
PAUSE: Final = 1.0  # seconds before a process that died is replaced


def supervise(
    work: Work,
    count: int,
    *,
    on_ready: Callable[[], None],
    on_none: Callable[[], None] = lambda: None,
    reload: signal.Signals | None = None,
) -> None:
    """Run a function in several processes until a signal ends them.

    A process that dies is replaced, unless no process has ever been ready.

    Args:
        work: called with the number of its process, from 0, and a connection, to which it sends
            None once it is ready, or the error with which it ends.
        count: how many processes.
        on_ready: called once all of them are ready.
        on_none: called when no process is left, before others are started.
        reload: the signal that is passed on to all processes, once they are ready.

    Raises:
        Exception: the error that the first process sent, if no process has been ready.
        KeyboardInterrupt: the processes ended because of SIGINT.
    """
    _Crew(work, count, on_ready, on_none, reload).run()


@dataclass(eq=False, slots=True)
class _Member:
    index: int
    process: Any
    connection: Any
    is_ready: bool = False
    is_behind: bool = False


@dataclass(eq=False, slots=True)
class _Crew:
    work: Work
    count: int
    on_ready: Callable[[], None]
    on_none: Callable[[], None]
    reload: signal.Signals | None
    has_reloaded: bool = False
    members: list[_Member] = field(default_factory=list[_Member])
    due: dict[int, float] = field(default_factory=dict[int, float])
    ended_by: int = 0
    error: Exception | None = None
    were_ready: bool = False

    def run(self) -> None:
        before: dict[signal.Signals, Any] = {
            each: signal.signal(each, self._end) for each in SIGNALS
        }
        if self.reload is not None:
            before[self.reload] = signal.signal(self.reload, self._pass_on)
        try:
            for index in range(self.count):
                self._start(index)
            while self.members or self.due:
                self._turn()
        finally:
            for member in self.members:
                member.process.kill()
            for each, handler in before.items():
                signal.signal(each, handler)
        if self.error is not None and not self.were_ready:
            raise self.error
        if self.ended_by == signal.SIGINT:
            raise KeyboardInterrupt

    def _start(self, index: int) -> None:
        if self._is_ending():  # a signal arrived while others were being started
            return
        ours, theirs = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=self.work, args=(index, theirs))
        process.start()
        theirs.close()
        # The new process begins with the settings from the start.
        self.members.append(_Member(index, process, ours, is_behind=self.has_reloaded))
        if self._is_ending():  # a signal arrived while this process was being started
            process.terminate()

    def _is_ending(self) -> bool:
        return bool(self.ended_by)

    def _turn(self) -> None:
        """Wait for news from the processes, and replace those that died."""
        watched: dict[Any, _Member] = {each.process.sentinel: each for each in self.members}
        watched |= {each.connection: each for each in self.members if not each.is_ready}
        found = [watched[each] for each in wait([*watched], PAUSE)] if watched else []
        for member in dict.fromkeys(found):
            self._hear(member)
            if not member.process.is_alive():
                self._replace(member)
        for index, time in [*self.due.items()]:
            if SYSTEM_CLOCK.monotonic() >= time:
                self.due.pop(index, None)
                self._start(index)

    def _hear(self, member: _Member) -> None:
        if member.is_ready or not member.connection.poll():
            return
        try:
            error: Exception | None = member.connection.recv()
        except EOFError:
            return  # the process ended without a message
        if error is not None:
            self.error = error
            return
        member.is_ready = True
        if member.is_behind:
            self._tell(member)
        if not self.were_ready and all(each.is_ready for each in self.members):
            self.were_ready = True
            self.on_ready()

    def _replace(self, member: _Member) -> None:
        member.process.join()
        member.connection.close()
        self.members.remove(member)
        if self.ended_by:
            return
        if not self.members:
            self.on_none()
        if self.error is not None and not self.were_ready:
            self._end(signal.SIGTERM, None)
            return
        logger.error(
            "process %d has ended with code %s; another one takes its place",
            member.process.pid,
            member.process.exitcode,
        )
        self.due[member.index] = SYSTEM_CLOCK.monotonic() + PAUSE

    def _pass_on(self, _number: int, _frame: FrameType | None) -> None:
        self.has_reloaded = True
        for member in self.members:
            member.is_behind = True
            if member.is_ready:
                self._tell(member)

    def _tell(self, member: _Member) -> None:
        member.is_behind = False
        if self.reload is not None:
            with suppress(ProcessLookupError):  # the process has ended and is being replaced
                os.kill(member.process.pid, self.reload)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        is_second, self.ended_by = bool(self.ended_by), number
        self.due.clear()
        for member in self.members:
            if is_second:
                member.process.kill()
            else:
                member.process.terminate()
