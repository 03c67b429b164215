"""The workers of one run: started, killed, stopped, squeezed, and told to end."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Final, Self

from tests.servers import wait_until
from tests.servers._process import ended, is_gone, outlived_by_nobody

from ._history import HISTORY, last_call
from ._job import Job
from ._worker import work

GRACE: Final = 20.0  # seconds that a worker has to end once it is told to
ALONE: Final = "import sys; from tests.chaos._worker import work; work(sys.argv[1])"
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@functools.cache
def forkserver() -> ForkServerContext:
    """A process that has imported everything and forks others: 10 ms each instead of 500."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "tests.chaos._everything"])
    return context


@dataclass
class Member:
    """One worker.

    Attributes:
        pid: its process.
        name: how its files are called.
        code: gives how it ended, or None while it runs.
        stopped: whether it is stopped by SIGSTOP.
        rss: samples of its memory in bytes.
    """

    pid: int
    name: str
    code: Callable[[], int | None]
    stopped: bool = False
    rss: list[int] = field(default_factory=list)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.code() is None:
            os.kill(self.pid, number)


class Fleet:
    """Workers that do one job; a context manager, at whose end none of them is left.

    Attributes:
        members: those that run, stopped ones included.
        gone: those that were killed.
        complaints: what was not as it has to be: one that ended by itself, or did not end.
        may_end: whether a worker may end by itself, as one without memory may.
        prefix: the command that runs those that are started from now on, such as ``nsenter``.
        environment: variables for those that are started from now on.
    """

    def __init__(self, job: Job, draw: random.Random) -> None:
        self.job = job
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.complaints: list[str] = []
        self.may_end = False
        self._draw = draw
        self.prefix: Sequence[str] = ()
        self.environment: Mapping[str, str] = {}
        self._count = 0

    # Comings and goings.

    def add(self, count: int = 1, **changes: object) -> list[Member]:
        """Start workers, whose job may differ in something."""
        return [self._start(changes) for _ in range(count)]

    def kill_one(self) -> Member:
        """Kill -9 any of them, start another in its place, and return that one."""
        self.check()
        self.kill(self.any())
        return self.add()[0]

    @contextmanager
    def nobody_there(self) -> Generator[None]:
        """Kill -9 all of them, and start as many when the block is over: who remembers nothing."""
        self.check()
        count = len(self.members)
        for member in list(self.members):
            self.kill(member)
        yield
        self.add(count)

    def kill(self, member: Member) -> None:
        """Kill -9 one."""
        member.send(signal.SIGKILL)
        wait_until(lambda: member.code() is not None, f"{member.name} is dead")
        self._lose(member)

    def any(self) -> Member:
        """Any that is not stopped."""
        return self._draw.choice([each for each in self.members if not each.stopped])

    def stop(self, member: Member) -> None:
        """SIGSTOP: it does not notice, and time passes."""
        member.send(signal.SIGSTOP)
        member.stopped = True

    def go_on(self, member: Member) -> None:
        """SIGCONT."""
        member.send(signal.SIGCONT)
        member.stopped = False

    def squeeze(self, what: int, soft: Callable[[Member], int] | None) -> None:
        """Lower a limit of the system for all; None raises it again."""
        for member in self.members:
            with suppress(ProcessLookupError):
                hard = resource.prlimit(member.pid, what)[1]
                resource.prlimit(member.pid, what, (soft(member) if soft else hard, hard))

    # How they do.

    def check(self) -> None:
        """Complain of those that ended by themselves, and replace them."""
        for member in [each for each in self.members if each.code() is not None]:
            self._lose(member)
            if self.job.ids and member.code() == 0:
                continue  # it has taken all its ids
            if not self.may_end:
                self.complaints.append(f"{member.name} ended with {member.code()}")
            self.add()

    def sample(self) -> None:
        """Look at how much memory each of them has."""
        for member in self.members:
            with suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{member.pid}/statm").read_text().split()[1])
                member.rss.append(pages * PAGE)

    def wait_for_more(self, what: str, *, deadline: float = 30.0) -> None:
        """Wait until each of them has taken further ids; complain of those that do not."""
        before = {member.name: self._served(member) for member in self.members}
        end = time.monotonic() + deadline
        while waiting := [
            each
            for each in self.members
            if each.name in before and self._served(each) <= before[each.name]
        ]:
            if time.monotonic() > end:
                names = ", ".join(each.name for each in waiting)
                self.complaints.append(f"no id within {deadline:.0f} s {what}: {names}")
                return
            time.sleep(0.05)
            self.check()

    def wait_for(self, member: Member, *, deadline: float = 30.0) -> None:
        """Wait until one has taken its first ids."""
        what = f"{member.name} has an id"
        wait_until(lambda: self._served(member) > 0, what, deadline=deadline)

    def _served(self, member: Member) -> int:
        """Return when its last call ended, by the host's monotonic clock; 0 before its first."""
        return int(last_call(self.job.histories / f"{member.name}{HISTORY}")[2])

    # Beginning and end.

    def _start(self, changes: dict[str, object]) -> Member:
        self._count += 1
        name = f"{self.job.worker}w{self._count:04}"
        text = replace(self.job, worker=name, **changes).to_json()  # type: ignore[arg-type]
        if self.prefix or self.environment:
            member = _popen([*self.prefix, sys.executable], name, text, self.environment)
        else:
            member = _forked(name, text)
        outlived_by_nobody(member.pid)
        self.members.append(member)
        return member

    def _lose(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
        self.gone.append(member)
        ended(member.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.check()
        for member in self.members:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        end = time.monotonic() + GRACE
        for member in self.members:
            while member.code() is None and time.monotonic() < end:
                time.sleep(0.01)
            if member.code() is None:
                self.complaints.append(f"{member.name} did not end within {GRACE:.0f} s")
                member.send(signal.SIGKILL)
                wait_until(functools.partial(is_gone, member.pid), "it is gone")
            elif member.code() and not self.may_end:
                self.complaints.append(f"{member.name} ended with {member.code()}")
            ended(member.pid)


def _forked(name: str, text: str) -> Member:
    process = forkserver().Process(target=work, args=(text,))
    process.start()
    assert process.pid is not None
    return Member(process.pid, name, lambda: process.exitcode)


def _popen(argv: list[str], name: str, text: str, environment: Mapping[str, str]) -> Member:
    process = subprocess.Popen(
        [*argv, "-c", ALONE, text],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    return Member(process.pid, name, process.poll)
