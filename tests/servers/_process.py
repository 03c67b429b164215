"""A real server in a child process: started on demand, killed at will, never left behind."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

HOST: Final = "127.0.0.1"
START_DEADLINE: Final = 30.0  # seconds; ten times the slowest start seen on a busy machine
STOP_DEADLINE: Final = 10.0  # seconds a server has to end by itself before it is killed
POLL: Final = 0.005  # seconds between two looks at something that has no event to wait for
LOG_TAIL: Final = 4000  # characters of a server's log shown when it does not start

# Below every usual ephemeral range (Linux from 32768, macOS from 49152).  A client that keeps
# dialling a closed ephemeral port ends up connected to itself, and then holds the port.
PORTS: Final = range(15_000, 32_000)

NOBODY: Final = 65_534

CHOSEN: Final = os.environ.get("AIOCOSID_TEST_SERVERS")  # now: some tests take such variables away


class ServerMissingError(Exception):
    """The program for a server is not on this machine."""

    def __init__(self, name: str, *, remedy: str) -> None:
        super().__init__(f"{name} is not installed: {remedy}")
        self.name = name
        self.remedy = remedy


def chosen_program(*names: str) -> Path | None:
    """The first of them in the folder that AIOCOSID_TEST_SERVERS names; it comes before all else.

    ``.ci/servers`` makes such folders, each with another version of a server.
    """
    paths = (Path(CHOSEN, name) for name in names) if CHOSEN else ()
    return next((path for path in paths if path.exists()), None)


def find_program(name: str, *, remedy: str) -> Path:
    """The path of a program of the system; ServerMissingError where it is not installed.

    Debian keeps some of them where the PATH of a user does not look.
    """
    if chosen := chosen_program(name):
        return chosen
    if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        return Path(found)
    raise ServerMissingError(name, remedy=remedy)


class ServerStartError(Exception):
    """A server ended, or stayed silent, instead of becoming ready."""

    def __init__(self, name: str, *, reason: str, log: str) -> None:
        super().__init__(f"{name} {reason}; the end of its log:\n{log[-LOG_TAIL:]}")


def wait_until(condition: Callable[[], bool], what: str, *, deadline: float = 10.0) -> None:
    """Poll until the condition holds; TimeoutError names what did not happen in time."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline} s: {what}")
        time.sleep(POLL)


def free_port() -> int:
    """A loopback port for a TCP server, ours until this process ends.

    Nobody else who asks here gets it, in this process or another, even while our server is down.
    """
    for port in random.SystemRandom().sample(PORTS, k=len(PORTS)):
        with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as claim:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                # The UDP port of the same number is the claim: of no use to a TCP server, and
                # released by the system however we end.  Without it two test runs side by side
                # collided in a cluster's twelve ports.
                claim.bind((HOST, port))
                probe.bind((HOST, port))
            except OSError:
                continue
            claim.detach()
            return port
    raise RuntimeError(f"no free port in {PORTS}")


@dataclass(frozen=True)
class Account:
    """How to run a program that refuses to be root."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None

    def popen(
        self, argv: Sequence[str | Path], *, directory: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start the program in a session of its own, so that Ctrl-C reaches only the tests."""
        with log.open("ab") as sink:
            return subprocess.Popen(
                [*self.prefix, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
                user=self.uid,
                group=self.uid,
                extra_groups=None if self.uid is None else [],
            )

    def own(self, *paths: Path) -> None:
        """Make the paths belong to whom the program runs as."""
        if self.uid is not None:
            for path in paths:
                os.chown(path, self.uid, self.uid)


@functools.cache
def unprivileged() -> Account:
    """Ourselves, unless we are root."""
    if os.geteuid() != 0:
        return Account()
    # First choice: a user namespace still reads a virtual environment in root's home (mode 0700),
    # and an IPC namespace takes a killed server's shared memory with it.  A container may
    # forbid namespaces, so it has to be tried.
    namespaces = ("unshare", "--user", "--ipc", "--map-user=1000", "--map-group=1000", "--")
    if shutil.which("unshare"):
        probe = subprocess.run([*namespaces, "true"], capture_output=True, check=False)
        if probe.returncode == 0:
            return Account(prefix=namespaces)
    return Account(uid=NOBODY)


BOOK: Final = "book"  # where processes of a test run note for its reaper what outlives them

_REAPER_CODE: Final = """
import os, shutil, signal, sys, time
processes, directories, books = set(), set(), set()
def note(lines):
    for line in lines:
        verb, value = line.rstrip("\\n").split(" ", 1)
        if verb == "process": processes.add(int(value))
        elif verb == "ended": processes.discard(int(value))
        elif verb == "directory": directories.add(value)
        elif verb == "removed": directories.discard(value)
        elif verb == "book": books.add(value)
note(sys.stdin)
for book in books:
    try: os.rename(book, book + ".read")
    except OSError: continue
    with open(book + ".read") as lines: note(lines)
for pid in processes:
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
for directory in directories:
    for _ in range(100):  # PostgreSQL's sessions write for a moment after its end
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory): break
        time.sleep(0.02)
"""


class _Reaper:
    """Outlives us by a moment and removes what we could not, even after a kill -9 of us.

    A pipe that closes, not PR_SET_PDEATHSIG: that one is lost on a change of user, is tied to
    the starting *thread*, and needs a preexec_fn, which warns when there are threads.
    """

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _REAPER_CODE],
            stdin=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        atexit.register(self._close)

    def tell(self, verb: str, value: object) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{verb} {value}\n")
        self._popen.stdin.flush()

    def _close(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        self._popen.wait()


_reaper = functools.cache(_Reaper)


def outlived_by_nobody(pid: int) -> None:
    """Have a process killed when we end, however we end; it has to be one that we started."""
    _reaper().tell("process", pid)


def ended(pid: int) -> None:
    """Its number may be another's soon."""
    _reaper().tell("ended", pid)


def _children(pid: int) -> list[int]:
    """The direct children, where the system tells (Linux); PostgreSQL has one per session."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def is_gone(pid: int) -> bool:
    """True for a zombie, too: in a container nobody may ever collect it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class _Lent:
    """The process of a server that other processes use as well."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        """It runs as long as the tests do."""


class Server:
    """One server: keeps its port and its data directory over stop, kill -9 and start.

    A context manager: started on entry; stopped, and its directory removed, on exit.
    """

    name = "server"
    host = HOST
    stop_signal = signal.SIGTERM
    account = Account()
    is_shared = False  # by all processes of a test run, so none of them may end it
    is_anybodys = False  # and used by any of them now

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"aiocosid-{self.name}-"))
        _reaper().tell("directory", self.directory)
        self._popen: subprocess.Popen[bytes] | None = None  # elsewhere _Lent stands for it

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.running else "down"
        return f"<{type(self).__name__} {self.host}:{self.port} {state}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_popen": _Lent(self.pid), "is_shared": True, "is_anybodys": True}

    @property
    def servers(self) -> Sequence[Server]:
        """Itself; a group has several."""
        return [self]

    def enter_into(self, book: Path) -> None:
        """Note what the reader of the book has to end; OSError where it is gone."""
        line = os.open(book, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(line, f"process {self.pid}\ndirectory {self.directory}\n".encode())
        finally:
            os.close(line)

    def share(self) -> None:
        """Let it outlive this process; who has the book ends it."""
        self.is_shared = self.is_anybodys = True
        _reaper().tell("ended", self.pid)
        _reaper().tell("removed", self.directory)

    def settle_in(self, part: str) -> None:
        """Have a part of it for this process alone, where it has parts that cost little."""

    def leave(self) -> None:
        """Close what this process has open at it."""

    def _must_be_ours(self) -> None:
        assert not self.is_shared, f"{self!r} is for all tests: start one of your own"

    def _must_be_alone(self, command: str, changes: re.Pattern[str]) -> None:
        assert not (self.is_anybodys and changes.match(command)), (
            f"{self!r} is for all tests: {command!r} needs one of its own, or a turn alone on one"
        )

    # What a kind of server says about itself.

    def prepare(self) -> None:
        """Write configuration and data into the new directory; once, before the first start."""

    def argv(self) -> Sequence[str | Path]:
        """The command line; the same for every start."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Does the server answer a real request?"""
        raise NotImplementedError

    # What a test does with it.

    @property
    def running(self) -> bool:
        """True from start to stop or kill, and no longer when the server ended by itself."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._popen is not None, f"{self!r} was not started"
        return self._popen.pid

    def log(self) -> str:
        """Everything the server wrote so far."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def spawn(self) -> None:
        """Start without waiting until the server is ready."""
        self._must_be_ours()
        assert not self.running, f"{self!r} is running"
        self._forget()
        self._popen = self.account.popen(
            self.argv(), directory=self.directory, log=self.directory / "server.log"
        )
        _reaper().tell("process", self._popen.pid)

    def wait_ready(self, *, deadline: float = START_DEADLINE) -> None:
        """Wait until the server answers; its log is in the error when it does not."""
        end = time.monotonic() + deadline
        while not self.is_ready():
            assert self._popen is not None
            if (code := self._popen.poll()) is not None:
                reason = f"ended with code {code}"
            elif time.monotonic() > end:
                reason = f"was not ready within {deadline} s"
            else:
                time.sleep(POLL)
                continue
            raise ServerStartError(self.name, reason=reason, log=self.log())

    def start(self) -> None:
        """Start on the same port and directory as ever, and wait until the server answers."""
        self.spawn()
        self.wait_ready()

    def stop(self) -> None:
        """End the server in its own orderly way, or by force when it takes too long."""
        self._must_be_ours()
        if self.running:
            assert self._popen is not None
            self.resume()
            self._popen.send_signal(self.stop_signal)
            try:
                self._popen.wait(STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill -9, sessions included; returns when the process is gone."""
        self._must_be_ours()
        if not self.running:
            return
        assert self._popen is not None
        children = _children(self.pid)
        _signal([self.pid, *children], signal.SIGKILL)
        self._popen.wait()
        # PostgreSQL does not start again while a session of its predecessor is alive.
        wait_until(lambda: all(map(is_gone, children)), f"the sessions of {self!r} are gone")
        self._forget()

    def restart(self) -> None:
        """Stop in the orderly way and start again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections open and requests arrive, but nothing is answered."""
        self._must_be_ours()
        _signal([self.pid, *_children(self.pid)], signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: what arrived during the pause is answered now."""
        _signal([*_children(self.pid), self.pid], signal.SIGCONT)

    def _forget(self) -> None:
        # The number of a process that was waited for may be another's soon.
        if self._popen is not None:
            _reaper().tell("ended", self._popen.pid)

    def close(self) -> None:
        """Stop and remove the directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        _reaper().tell("removed", self.directory)

    def __enter__(self) -> Self:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Group:
    """Several servers that come and go together.

    A context manager, whose `begin` starts them on entry.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stack": None}

    @property
    def servers(self) -> Sequence[Server]:
        """All of them."""
        raise NotImplementedError

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def spawn_all(self, stack: contextlib.ExitStack, *members: Server) -> None:
        """Start members that are not ready before they have found each other."""
        for member in members:
            stack.callback(member.close)
            member.prepare()
            member.spawn()
        for member in members:
            member.wait_ready()
