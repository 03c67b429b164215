"""What only a process of its own can show: pipes, signals, missing libraries."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import signal
import subprocess
import termios
from array import array
from importlib.metadata import version
from pathlib import Path
from typing import IO

import pytest

from tests.command import command, environment, run
from tests.servers._process import wait_until

NEXT = ("next", "order", "--store", "redis://host")
ENDLESS = ("next", "order", "-n", 10**9, "--step", 1000, "--store", "memory:")


class Started(subprocess.Popen[str]):
    """A command that runs."""

    def __init__(self, *words: str | int, module: str = "aiocosid", **changes: str) -> None:
        pipe = subprocess.PIPE
        super().__init__(
            command(*words, module=module),
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=environment(**changes),
        )

    @property
    def out(self) -> IO[str]:
        assert self.stdout is not None
        return self.stdout

    def interrupt(self) -> None:
        self.send_signal(signal.SIGINT)

    def ended(self) -> tuple[int, str, str]:
        """Its code, and what is left of its output and its errors."""
        out, err = self.communicate(timeout=30)
        return self.returncode, out, err


SILENT = "tests.unit.cli._silent"


def test_version() -> None:
    """The version is the one that is installed."""
    done = run("--version")
    found = (done.returncode, done.stdout, done.stderr)
    assert found == (0, f"aiocosid {version('aiocosid')}\n", "")


def test_without_a_command() -> None:
    """A bare `aiocosid` shows the help, which ends with the exit codes."""
    done, helped = run(), run("--help")
    assert (done.returncode, done.stderr) == (2, "")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert done.stdout.strip() == helped.stdout.strip()
    assert "Exit codes" in done.stdout


def test_a_reader_that_goes_away() -> None:
    """`aiocosid next ... | head -1` ends quietly, as any program ends of SIGPIPE."""
    with Started(*ENDLESS) as process:
        assert process.out.readline() == "1\n"
        process.out.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk(tmp_path: Path) -> None:
    """It is told once, also when the interpreter flushes its streams at the end."""
    done = shell("next", "order", "--store", "memory:", closed=">/dev/full", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "aiocosid: error: cannot write to standard output: No space left on device\n",
    )


def shell(*words: str, closed: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with some of its streams closed, which only a shell can do."""
    return subprocess.run(
        ["sh", "-c", f"{shlex.join(command(*words))} {closed}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=cwd,
        env=environment(),
    )


@pytest.mark.parametrize(("closed", "lines"), [(">&-", 1), (">&- 2>&-", 0)])
def test_a_closed_standard_output(closed: str, lines: int, tmp_path: Path) -> None:
    """Nothing is reserved that nobody could see."""
    done = shell("next", "order", "--store", "sqlite:///ids.db", closed=closed, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", lines)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_standard_error(tmp_path: Path) -> None:
    """An error that cannot be shown does not end up among the ids."""
    done = shell("next", "order", "--store", "nothing://", closed="2>&-", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_terminal_that_is_not_utf_8() -> None:
    """A name that it cannot show is escaped; the table's lines become ASCII."""
    done = run(
        *("inspect", "--store", "redis://host"),
        module=SILENT,
        PYTHONIOENCODING="ascii",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"cosid.\xe9\u756a\udcff" in done.stdout
    assert done.stdout.isascii()
    assert r"\u" not in done.stdout.replace(r"\u756a\udcff", "")


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the pipe's size cannot be set")
def test_ctrl_c_while_nobody_reads() -> None:
    """A command that is stuck in a full pipe ends at the first Ctrl-C, and does not flush."""
    with Started("next", "order", "-n", 1200, "--step", 300, "--store", "memory:") as process:
        pipe = process.out.fileno()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        fits = sum(len(f"{i}\n") for i in range(1, 901))  # the last 300 ids do not

        def is_stuck() -> bool:
            waiting = array("i", [0])
            fcntl.ioctl(pipe, termios.FIONREAD, waiting)
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            return waiting[0] == fits and state == "S"

        wait_until(is_stuck, "the command sleeps in write()")
        process.interrupt()
        try:
            assert process.wait(timeout=10) == 130
            assert process.ended()[2] == ""
        finally:
            process.kill()


def test_ctrl_c_while_the_store_is_silent() -> None:
    """The call is cancelled, the store is closed, and nothing is said."""
    with Started(*NEXT, "--timeout", 600, module=SILENT) as process:
        assert process.out.readline() == "asked\n"
        process.interrupt()
        assert process.ended() == (130, "cancelled\nstore\n", "")


def test_a_second_ctrl_c() -> None:
    """It does not wait for a store that does not let itself be closed."""
    with Started(*NEXT, module=SILENT, STUCK="1") as process:
        assert process.out.readline() == "asked\n"
        process.interrupt()
        assert [process.out.readline() for _ in range(2)][-1] == "store\n"
        process.interrupt()
        assert process.ended() == (130, "", "")


def test_ctrl_c_during_the_benchmark() -> None:
    """The chain is closed, and no warning about it or the store is on standard error."""
    with Started("bench", "--store", "memory:", "--seconds", 600, module=SILENT) as process:
        assert process.out.readline() == "measuring\n"
        process.interrupt()
        assert process.ended() == (130, "", "ClosedError\n")


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra(package: str, tmp_path: Path) -> None:
    """The entry point is there without the extra, and names it instead of failing to import."""
    done = run("next", "order", module="tests.unit.cli._blocked", cwd=tmp_path, BLOCKED=package)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"aiocosid: error: {package} is not installed; "
        "install it with: pip install 'aiocosid[cli]'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_a_driver() -> None:
    """A driver that is missing is named with its own extra."""
    arguments = ("next", "order", "--store", "redis://:s3cr3t@localhost")
    done = run(*arguments, module="tests.unit.cli._blocked", BLOCKED="redis")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'aiocosid[redis]'" in done.stderr
    assert "s3cr3t" not in done.stderr


def test_a_bug_in_the_package_is_no_missing_extra() -> None:
    """Only what somebody else's package lacks is blamed on the extra."""
    done = run("--version", module="tests.unit.cli._blocked", BLOCKED="aiocosid.cli._session")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr


def test_the_traceback_of_a_bug_shows_no_password() -> None:
    """A traceback with the values of variables, as typer would print it, would show the URL."""
    arguments = ("inspect", "--store", "redis://:s3cr3t@localhost")
    done = run(*arguments, module="tests.unit.cli._blocked", BLOCKED="aiocosid.stores.redis")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "s3cr3t" not in done.stderr


def test_the_progress_bar_is_for_a_terminal() -> None:
    """Standard error shows a bar if it is a terminal; standard output stays clean for a pipe."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        command("bench", "--store", "memory:", "--seconds", "0.05", "--format", "json"),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=False,
        timeout=30,
        env=environment(TERM="xterm"),
    )
    os.close(theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "measuring" in drawn
    assert json.loads(done.stdout)["rounds"] >= 1
