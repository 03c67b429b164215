"""``aiocosid machines run``: run a program in any language with a leased machine id.

Three processes.  This one, the *supervisor*, has neither store nor event loop: it starts the other
two, passes signals on, reaps, and ends with the program's exit status, so it can be PID 1.  The
*renewer* (`_renewer`) holds the lease and reports its deadlines.  The *program* runs in a process
group of its own.

If the renewer is killed, stopped or cut off from the store, the supervisor ends the program before
the deadline.  If the supervisor is killed or stopped, the renewer ends it.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

__all__ = (
    "KILL_MARGIN",
    "LOST",
    "POLL",
    "Deadline",
    "Expression",
    "boot_time",
    "kill_group",
    "supervise",
)

KILL_MARGIN: Final = 1.0  # seconds before the deadline at which the program is killed
POLL: Final = 0.25  # seconds between readings of the clocks
FRESH_TIMEOUT: Final = 1.0  # seconds that the renewer's report may take after a stop
RELEASE_TIMEOUT: Final = 5.0  # seconds that the renewer may take to release the id
LOST: Final = 75  # the exit code if the id was lost: EX_TEMPFAIL of sysexits.h
FIRST_FREE: Final = 3  # the first descriptor that is no standard one
CANNOT_RUN: Final = 126  # as a shell reports a program that cannot be executed
NOT_FOUND: Final = 127
BY_SIGNAL: Final = 128

PASSED_ON: Final = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1),
    *(signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM),
)
OF_TERMINAL: Final = {signal.SIGTTIN, signal.SIGTTOU}  # they stop a process in the background

# Taken or ignored by the supervisor or by Python itself, and not by the program.
OWN_SIGNALS: Final = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTTOU, signal.SIGXFSZ)

_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_SET_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER

_EXPRESSION: Final = re.compile(r"([A-Za-z_]\w*)(?:=id((?:(?:>>|&|\+|%)[0-9]{1,10})*))?")
_STEP: Final = re.compile(r"(>>|&|\+|%)([0-9]+)")
_STEPS: Final[dict[str, Callable[[int, int], int]]] = {
    ">>": lambda value, by: value >> by,
    "&": lambda value, by: value & by,
    "+": lambda value, by: value + by,
    "%": lambda value, by: value % by,
}


class Expression(NamedTuple):
    """A variable of the program's environment, computed from the machine id.

    Attributes:
        variable: its name.
        steps: operations from left to right, for example ``(">>", 5)``.
    """

    variable: str
    steps: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Expression | None:
        """Parse ``NAME`` or ``NAME=id>>5&31``; return None if the text is neither."""
        found = _EXPRESSION.fullmatch(text)
        if found is None:
            return None
        steps = tuple((how, int(by)) for how, by in _STEP.findall(found[2] or ""))
        if any(how == "%" and by == 0 for how, by in steps):
            return None
        return cls(found[1], steps)

    def value(self, machine_id: int) -> str:
        """Return the variable's text."""
        for how, by in self.steps:
            machine_id = _STEPS[how](machine_id, by)
        return str(machine_id)


def boot_time() -> float:
    """Return seconds since the boot, time in suspension included; the same in every process."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Deadline(NamedTuple):
    """When the program must have ended, on two clocks.

    Attributes:
        boot_time: when the lease ends, on the clock of `boot_time`.
        fence_ms: the latest time that ids may have, unix time in milliseconds.
    """

    boot_time: float
    fence_ms: float

    def is_nearly(self, other: Deadline) -> bool:
        """Whether both are equal, apart from the time that it took to read the clocks."""
        return self.fence_ms == other.fence_ms and abs(self.boot_time - other.boot_time) < POLL

    def left(self) -> float:
        """Return the seconds left, by the clock that reaches the deadline first."""
        return min(self.boot_time - boot_time(), self.fence_ms / 1000 - time.time())


class _Renewer:
    """The supervisor's side of the renewer.

    Attributes:
        pid: its process.
        deadline: the deadline that it reported last; None before the first report.
        machine_id: the id; -1 before the first report.
        failure: the exit code and the message, if it gave up.
    """

    def __init__(self, serve: Callable[[socket.socket], NoReturn]) -> None:
        """Fork it, before this process has a thread."""
        ours, theirs = socket.socketpair()
        self.pid: int = os.fork()
        if self.pid == 0:
            ours.close()
            serve(theirs)
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._rest = b""
        self.deadline: Deadline | None = None
        self.machine_id = -1
        self.failure: tuple[int, str] | None = None

    def fileno(self) -> int:
        """Return the descriptor that is readable once there is a report."""
        return self._socket.fileno()

    def read(self) -> None:
        """Read all reports that have arrived."""
        while True:
            try:
                data = self._socket.recv(65536)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self.failure = self.failure or (LOST, "the process that renews the lease has ended")
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._note(line.decode())

    def _note(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "until":
            machine_id, until, fence_ms = rest.split()
            self.machine_id = int(machine_id)
            self.deadline = Deadline(float(until), float(fence_ms))
        else:
            code, _, text = rest.partition(" ")
            self.failure = int(code), text

    def tell(self, what: str) -> None:
        """Send it a message, which is lost if the renewer has ended."""
        with suppress(OSError):
            self._socket.send(f"{what}\n".encode())


def supervise(
    serve: Callable[[socket.socket], NoReturn],
    command: Sequence[str],
    variables: Sequence[Expression],
    *,
    grace: float,
) -> int:
    """Run a program under a lease, and return its exit status.

    Args:
        serve: runs the renewer in a process of its own, with its end of a socket.
        command: the program and its arguments.
        variables: the environment variables that hold the machine id or parts of it.
        grace: seconds between SIGTERM and SIGKILL, if the program must end.

    Returns:
        The program's exit code; 128 plus the number of the signal that ended it; 75 if the machine
        id was lost; or the renewer's code if it got no machine id.
    """
    while os.open(os.devnull, os.O_RDWR) < FIRST_FREE:
        pass  # otherwise a pipe would take the place of a standard descriptor that is closed
    with _Signals() as signals:
        _adopt_orphans()
        renewer = _Renewer(serve)
        try:
            return _Supervisor(renewer, signals, grace).run(command, variables)
        finally:
            _end(renewer)


def _end(renewer: _Renewer) -> None:
    """Tell the renewer to release the machine id, and wait for it, for a limited time."""
    renewer.tell("ended")
    until = boot_time() + RELEASE_TIMEOUT
    while boot_time() < until:
        with suppress(ChildProcessError):
            if os.waitpid(renewer.pid, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
                continue
        return
    with suppress(ProcessLookupError):
        os.kill(renewer.pid, signal.SIGKILL)


def _heeded() -> list[signal.Signals]:
    """Return the signals to pass on: not those that are ignored, for example by ``nohup``."""
    return [each for each in PASSED_ON if signal.getsignal(each) != signal.SIG_IGN]


def _wake(_number: int, _frame: object) -> None:
    """Do nothing: the signal's byte in the pipe is enough."""


class _Signals:
    """Receives signals through a pipe: each ends a wait at once, and none is lost."""

    def __enter__(self) -> Self:
        self._read, write = os.pipe()
        self._write = write
        for each in (self._read, write):
            os.set_blocking(each, False)
        self._old_wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        taken = (*_heeded(), signal.SIGCHLD)
        self._old = {each: signal.signal(each, _wake) for each in taken}
        # Only the program must wait for the terminal; these two write to it, or hand it over.
        self._old[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Return the descriptor that is readable once a signal has arrived."""
        return self._read

    def read(self) -> bytes:
        """Return the numbers of the signals that have arrived."""
        with suppress(BlockingIOError):
            return os.read(self._read, 4096)
        return b""


class _Supervisor:
    def __init__(self, renewer: _Renewer, signals: _Signals, grace: float) -> None:
        self._renewer = renewer
        self._signals = signals
        self._grace = grace
        self._program = 0
        self._status: int | None = None
        self._reason = ""
        self._waits_for_terminal = False  # it was stopped because it read from it, or wrote to it
        self._asked_at: float | None = None  # when the program was told to end

    def run(self, command: Sequence[str], variables: Sequence[Expression]) -> int:
        stopped = self._wait_for_id()
        if stopped is not None:
            return stopped
        machine_id = self._renewer.machine_id
        environment = os.environ | {each.variable: each.value(machine_id) for each in variables}
        self._program = _start(command, environment, self._renewer)
        while self._status is None:
            self._wait()
            # The shell's fg gives us the terminal; others of our group may need it, as in "| less".
            if self._waits_for_terminal and _hand_terminal(os.getpgrp(), self._program):
                self._waits_for_terminal = False
                kill_group(self._program, signal.SIGCONT)
            self._judge()
        # Other processes of its group may still use the machine id.
        kill_group(self._program, signal.SIGKILL)
        _kill_orphans(self._renewer.pid)
        _hand_terminal(self._program, os.getpgrp())
        return LOST if self._reason else self._status

    def _wait_for_id(self) -> int | None:
        """Wait for the first deadline; return an exit code if none will come."""
        while self._renewer.deadline is None:
            for number in self._wait():
                if number in {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}:
                    return BY_SIGNAL + number
            if self._renewer.failure is not None:
                code, text = self._renewer.failure
                _say(text)
                return code
        return None

    def _wait(self) -> bytes:
        """Wait a moment for a report or a signal, pass signals on, and reap children."""
        readers: list[_Renewer | _Signals] = [self._renewer, self._signals]
        select.select(readers, [], [], POLL)
        self._renewer.read()
        numbers = self._signals.read()
        for number in numbers:
            if self._program and number != signal.SIGCHLD:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(self._program, number)
        self._reap()
        return numbers

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                if pid == self._program:
                    self._waits_for_terminal = os.WSTOPSIG(status) in OF_TERMINAL
                    self._stop_with_it()
            elif pid == self._program:
                code = os.waitstatus_to_exitcode(status)
                self._status = code if code >= 0 else BY_SIGNAL - code
            elif pid == self._renewer.pid and self._renewer.failure is None:
                self._renewer.failure = LOST, "the process that renews the lease has ended"

    def _left(self) -> float:
        """Return the seconds until the last reported deadline."""
        deadline = self._renewer.deadline
        return 0.0 if deadline is None else deadline.left()

    def _stop_with_it(self) -> None:
        """Stop if Ctrl-Z has stopped the program in the foreground, because the shell waits for us.

        The renewer keeps running, and ends the program if necessary.
        """
        if not _hand_terminal(self._program, os.getpgrp()):
            return
        os.kill(0, signal.SIGTSTP)  # returns after fg or bg, or at once without a shell
        renewer, until = self._renewer, boot_time() + FRESH_TIMEOUT
        renewer.read()
        while renewer.failure is None and boot_time() < until:
            if self._left() > KILL_MARGIN + self._grace:
                _hand_terminal(os.getpgrp(), self._program)
                kill_group(self._program, signal.SIGCONT)
                return
            select.select([renewer], [], [], POLL)
            renewer.read()
        kill_group(self._program, signal.SIGKILL)  # before it runs again with an id that is lost

    def _judge(self) -> None:
        """End the program in time; called after reading all reports that have arrived."""
        renewer, left = self._renewer, self._left()
        if not self._reason and renewer.failure is not None:
            self._reason = renewer.failure[1]
        elif not self._reason and left <= KILL_MARGIN + self._grace:
            self._reason = "the lease was not renewed in time"
        if not self._reason:
            return
        if self._asked_at is None:
            self._asked_at = boot_time()
            _say(f"{self._reason}: ending the program before another process gets its machine id")
            kill_group(self._program, signal.SIGTERM)
            kill_group(self._program, signal.SIGCONT)
        if left <= KILL_MARGIN or boot_time() - self._asked_at >= self._grace:
            kill_group(self._program, signal.SIGKILL)


def _start(command: Sequence[str], environment: Mapping[str, str], renewer: _Renewer) -> int:
    """Start the program in a process group of its own, and return its process."""
    group = os.getpgrp()
    pid = os.fork()
    if pid:
        with suppress(OSError):  # it has done this itself, or has ended
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        _hand_terminal(group, os.getpgrp())  # so that Ctrl-C reaches only the program
        for each in (*_heeded(), *OWN_SIGNALS):
            signal.signal(each, signal.SIG_DFL)
        _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        # Reported here, because the supervisor may be killed or stopped before it can report it.
        renewer.tell(f"program {os.getpid()}")
        os.execvpe(command[0], [*command], environment)  # noqa: S606 - what the user asks for
    except Exception as error:  # noqa: BLE001 - this process must not go on as a second supervisor
        _say(f"{command[0]}: {getattr(error, 'strerror', None) or error}")
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


def _hand_terminal(giver: int, taker: int) -> bool:
    """Move the terminal's foreground from one process group to another; return whether it did."""
    try:
        if os.tcgetpgrp(0) != giver:
            return False
        os.tcsetpgrp(0, taker)
    except OSError:
        return False
    return True


def kill_group(group: int, number: int) -> None:
    """Send a signal to all processes of a group; do nothing if it has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _adopt_orphans() -> None:
    """Become the parent of all orphaned descendants, as PID 1 is."""
    _prctl(_SET_SUBREAPER, 1)


def _kill_orphans(spared: int) -> None:
    """Kill the descendants that have left the program's group, if the system lists them."""
    if not sys.platform.startswith("linux"):
        return
    path = f"/proc/self/task/{os.getpid()}/children"
    for _ in range(100):  # killing one generation makes the next one our children
        try:
            with open(path) as file:  # noqa: PTH123 - a file of the system
                children = {int(each) for each in file.read().split()} - {spared}
        except OSError:
            return
        if not children:
            return
        for each in children:
            with suppress(OSError):  # another user's process can be neither killed nor awaited
                os.kill(each, signal.SIGKILL)
                os.waitpid(each, 0)


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _say(text: str) -> None:
    """Write a line to stderr, but never wait for its reader: the program must end in time."""
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"aiocosid: {text}\n".encode()[: select.PIPE_BUF])
