"""``aiocosid machines run``: real processes that are killed, stopped and cut off."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.servers import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

# A lease that is renewed every half second, and ends within 3 s without a renewal.
SHORT = ("--safe-guard", "4", "--interval", "0.5", "--lead", "3", "--grace", "0.5")

# Writes its worker id and the time, every 20 ms, whatever signal it gets.
STUBBORN = """
import os, signal, sys, time
for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, signal.SIG_IGN)
with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        file.write(f"{os.environ['MACHINE_ID']} {os.getpid()} {int(time.time() * 1000)}\\n")
        time.sleep(0.02)
"""


# Something happens to the supervisor just after it has forked the program.
FORKED = """
import os, sys, time
from aiocosid.cli._program import run
setpgid = os.setpgid
def interrupted(pid, group):
    if pid:
        os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(0.3)
    setpgid(pid, group)
os.setpgid = interrupted
sys.exit(run(sys.argv[4:]))
"""


# A variable without a name, which C programs can pass on and Python cannot.
NAMELESS = """
import os, sys
from aiocosid.cli._program import run
os.environ._data[b""] = b"value"
sys.exit(run(sys.argv[3:]))
"""


class Runs:
    """Programs under ``machines run`` on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / 'ids.db'}"
        self.started: list[subprocess.Popen[str]] = []
        self.cli("init", "--store", self.store, "--disposable")

    def cli(self, *words: str) -> str:
        """Run a command to its end, and return what it printed."""
        command = [sys.executable, "-m", "aiocosid", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def command(self, *words: str, options: tuple[str, ...] = SHORT) -> list[str]:
        """The words that start a program, from ``machines`` on."""
        return ["machines", "run", "--store", self.store, *options, "--", *words]

    def start(
        self,
        *words: str,
        options: tuple[str, ...] = SHORT,
        stderr: int = subprocess.PIPE,
        before: tuple[str, ...] = (),
    ) -> subprocess.Popen[str]:
        """Start a program, the command itself behind the words ``before``."""
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "aiocosid", *self.command(*words, options=options)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self.started.append(process)
        return process

    def stubborn(self, stderr: int = subprocess.PIPE) -> tuple[subprocess.Popen[str], Path]:
        """Start a program that ignores signals, and wait until it writes to its file."""
        file = self.folder / f"{len(self.started)}.txt"
        file.touch()
        process = self.start(sys.executable, "-c", STUBBORN, str(file), stderr=stderr)
        wait_until(
            lambda: file.read_text().count("\n") > 2 or process.poll() is not None,
            "the program to write",
        )
        assert process.poll() is None, process.communicate()
        return process, file

    def holders(self) -> list[dict[str, Any]]:
        """The machine ids that are held."""
        listed = json.loads(self.cli("machines", "list", "--store", self.store, "--format", "json"))
        return [each for each in listed if each["instance_id"]]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """A store of the test's own, and what runs on it."""
    made = Runs(tmp_path)
    yield made
    for process in made.started:
        for each in (*family(process), process.pid):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.communicate()


def family(process: subprocess.Popen[str]) -> list[int]:
    """The renewer and the program of a supervisor, in this order."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(each) for each in path.read_text().split()] if path.exists() else []


def pid_of(file: Path) -> int:
    """The process that writes to a file."""
    return int(file.read_text().splitlines()[-1].split()[1])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has just ended
        return ""


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_gives_the_program_its_id_and_returns_its_status(runs: Runs) -> None:
    """Parts of the id are in the environment; the id is free as soon as the program has ended."""
    parts = ("--env", "WORKER=id&31", "--env", "DATACENTER=id>>5", "--bits", "10")
    for _ in range(2):
        process = runs.start("sh", "-c", "echo $WORKER $DATACENTER; exit 7", options=parts)
        assert process.communicate() == ("0 0\n", "")
        assert process.returncode == 7
    assert runs.holders() == []


def test_a_region_s_ids(runs: Runs) -> None:
    """The highest bits are the region's; without it, the store refuses the program."""
    split = ("--region", "2", "--region-bits", "2", "--bits", "4")
    process = runs.start("sh", "-c", "echo $MACHINE_ID", options=split)
    assert process.communicate() == ("8\n", "")
    process = runs.start("true", options=("--bits", "4"))
    assert "with region=2, region_bits=2 in this store" in process.communicate()[1]
    assert process.returncode == 4


def test_an_instance_comes_back_with_its_id(runs: Runs) -> None:
    """Another one gets another id in between."""
    for instance, machine_id in (("shop-0", "0\n"), ("shop-1", "1\n"), ("shop-0", "0\n")):
        process = runs.start("sh", "-c", "echo $MACHINE_ID", options=("--instance", instance))
        assert process.communicate() == (machine_id, "")


@pytest.mark.parametrize(
    ("options", "words", "code", "says"),
    [
        (("--env", "A=id-1"), ["true"], 2, "--env"),
        (("--grace", "40"), ["true"], 2, "--grace"),
        (("--grace", "nan"), ["true"], 2, "--grace"),
        ((), [], 2, "after '--'"),
        ((), ["no-such-program"], 127, "no-such-program"),
        (("--store", "sqlite:////nowhere/ids.db"), ["true"], 4, "/nowhere"),
        ((), ["sh", "-c", "kill -9 $$"], 137, ""),
    ],
)
def test_says_what_is_wrong(
    runs: Runs, options: tuple[str, ...], words: list[str], code: int, says: str
) -> None:
    """Wrong options and stores start nothing; a program's own end is the supervisor's."""
    process = runs.start(*words, options=options)
    _, error = process.communicate()
    assert process.returncode == code, error
    assert says in error


def test_a_program_that_cannot_be_executed_at_all(runs: Runs) -> None:
    """The process that was to become the program never goes on as a second supervisor."""
    process = subprocess.Popen(
        [sys.executable, "-c", NAMELESS, *runs.command("true")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    runs.started.append(process)
    assert process.communicate()[1] == "aiocosid: true: illegal environment variable name\n"
    assert process.returncode == 126
    assert runs.holders() == []


def test_the_program_ignores_no_signal_that_its_parent_ignores(runs: Runs) -> None:
    """Python ignores two of them, and the supervisor one."""
    process = runs.start("sh", "-c", "grep SigIgn /proc/self/status")
    ignored = int(process.communicate()[0].split()[1], 16)
    usual = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)
    assert [each for each in usual if ignored >> each - 1 & 1] == []


def test_passes_signals_on_and_releases_last(runs: Runs) -> None:
    """A program that takes its time to end keeps its id until then."""
    (flag := runs.folder / "flag").touch()
    slow = f"while [ -e {flag} ]; do sleep 0.05; done; echo bye; exit 3"
    trap = f"trap '{slow}' TERM; echo here; while :; do sleep 0.05; done"
    process = runs.start("sh", "-c", trap)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.terminate()
    assert len(runs.holders()) == 1
    flag.unlink()
    assert process.communicate()[0] == "bye\n"
    assert process.returncode == 3
    assert runs.holders() == []


def test_goes_on_after_the_end_of_its_terminal_if_it_was_told_to(runs: Runs) -> None:
    """``nohup`` has SIGHUP ignored, by the program too."""
    script = "kill -HUP $PPID $$; sleep 0.5; echo here"
    process = runs.start("sh", "-c", script, before=("nohup",))
    assert process.communicate()[0] == "here\n"
    assert process.returncode == 0


def test_reaps_and_ends_what_the_program_leaves_behind(runs: Runs) -> None:
    """Children that outlive the program, also in a session of their own, end with it."""
    script = "sleep 1000 & setsid sleep 1000 & (exit 0) & sleep 0.2; echo $!"
    process = runs.start("sh", "-c", script)
    process.communicate()
    commands = (each / "cmdline" for each in Path("/proc").glob("[0-9]*"))
    left = [each for each in commands if _text(each) == "sleep\0001000\000"]
    assert left == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("who", ["renewer", "supervisor"])
def test_the_program_ends_before_its_id_is_free(runs: Runs, who: str, how: signal.Signals) -> None:
    """Whichever of the two is killed or stopped: a program that ignores SIGTERM ends in time."""
    process, file = runs.stubborn()
    renewer, _ = family(process)
    program = pid_of(file)
    os.kill(renewer if who == "renewer" else process.pid, how)
    if (who, how) == ("supervisor", signal.SIGSTOP):  # the renewer goes on, and so may the program
        assert is_running(program)
        os.kill(process.pid, signal.SIGCONT)
        process.kill()
    wait_until(lambda: not is_running(program), "the end of the program")
    mine = [each.split() for each in file.read_text().splitlines()]
    _, others = runs.stubborn()
    theirs = [each.split() for each in others.read_text().splitlines()]
    if mine[0][0] == theirs[0][0]:
        assert max(int(ms) for *_, ms in mine) < min(int(ms) for *_, ms in theirs)


def test_ends_the_program_when_the_store_is_away(runs: Runs) -> None:
    """Without renewals the program gets SIGTERM, then SIGKILL, before its deadline."""
    process, _ = runs.stubborn()
    began = time.monotonic()
    runs.folder.joinpath("ids.db").rename(runs.folder / "away.db")
    _, error = process.communicate()
    assert process.returncode == 75, error
    assert "machine id" in error
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("reader", ["asleep", "gone"])
def test_ends_the_program_whoever_reads_its_errors(runs: Runs, reader: str) -> None:
    """A message that cannot be written holds nothing up, and loses no exit status."""
    reading, writing = os.pipe()
    try:
        process, file = runs.stubborn(stderr=writing)
        if reader == "gone":
            os.close(reading)
        else:
            os.set_blocking(writing, False)
            with suppress(BlockingIOError):
                while os.write(writing, bytes(4096)):
                    pass
            os.set_blocking(writing, True)
        program = pid_of(file)
        os.kill(family(process)[0], signal.SIGKILL)
        wait_until(lambda: not is_running(program), "the end of the program")
        assert process.wait(10) == 75
    finally:
        os.close(writing)
        if reader != "gone":
            os.close(reading)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_renewer_knows_the_program_at_once(runs: Runs, how: signal.Signals) -> None:
    """A supervisor that is killed or stopped before it could say a word leaves no program."""
    (file := runs.folder / "forked.txt").touch()
    words = runs.command(sys.executable, "-c", STUBBORN, str(file))
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, str(int(how)), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    runs.started.append(process)
    if how == signal.SIGSTOP:
        wait_until(lambda: bool(file.read_text()), "the program to write")
        runs.folder.joinpath("ids.db").rename(runs.folder / "away.db")
        program = pid_of(file)
    else:
        process.wait(10)
        time.sleep(1)
        program = pid_of(file) if file.read_text() else 0
    try:
        wait_until(lambda: not is_running(program), "the end of the program", deadline=15)
    finally:
        if program:
            with suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="libfaketime is preloaded on Linux")
def test_runs_on_after_a_clock_that_steps_back(runs: Runs, tmp_path: Path) -> None:
    """The fence stands still then; renewals move the end of the lease."""
    faketime = pytest.importorskip("libfaketime")
    (clock := tmp_path / "clock").write_text("+0")
    words = ("sh", "-c", "echo here; sleep 8; echo done")
    process = subprocess.Popen(
        [sys.executable, "-m", "aiocosid", *runs.command(*words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "LD_PRELOAD": next(map(str, Path(faketime.__file__).parent.rglob("libfaketime.so.1"))),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        },
    )
    runs.started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    clock.write_text("-60")
    out, error = process.communicate()
    assert out == "done\n", error


@pytest.mark.parametrize("script", ["{}; read line", "set -m; {} & wait; read line"])
def test_leaves_the_terminal_as_it_was(runs: Runs, script: str) -> None:
    """A script reads on after its program; one in the background takes no terminal away."""
    command = shlex.join([sys.executable, "-m", "aiocosid", *runs.command("true")])
    out = runs.folder / "out.txt"
    words = f"{script.format(command)}; echo $line >{shlex.quote(str(out))}"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", words])  # noqa: S606 - a terminal of its own
    try:
        os.write(terminal, b"one\n")
        wait_until(lambda: out.exists() and out.read_text() != "", "the script to end")
        assert out.read_text() == "one\n"
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_stops_and_goes_on_with_its_program(runs: Runs) -> None:
    """Ctrl-Z gives the shell its terminal back, ``fg`` the program; the id stays held."""
    out, back = runs.folder / "out.txt", runs.folder / "back"
    program = f"echo $$ >{back}; read line; echo $line >{out}"
    command = runs.command("sh", "-c", program)
    words = shlex.join([sys.executable, "-m", "aiocosid", *command])
    script = f"set -m; {words}; echo stopped >{back}; read line; fg; read line; echo $line >>{out}"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", script])  # noqa: S606 - a terminal of its own
    try:
        wait_until(lambda: _text(back) != "", "the program to read")
        os.write(terminal, b"\x1a")
        wait_until(lambda: _text(back) == "stopped\n", "the shell to go on")
        time.sleep(4.5)  # longer than a lease without a renewal
        assert len(runs.holders()) == 1
        for line in (b"none\n", b"one\n"):
            os.write(terminal, line)
        wait_until(lambda: _text(out) == "one\n", "the program to end")
        os.write(terminal, b"two\n")
        wait_until(lambda: _text(out) == "one\ntwo\n", "the script to end")
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_program_in_the_background_comes_to_the_terminal(runs: Runs) -> None:
    """It waits for the terminal, while the shell takes the job for a running one."""
    out, started = runs.folder / "out.txt", runs.folder / "started"
    program = f"echo >{started}; read line; echo $line >{out}"
    words = shlex.join([sys.executable, "-m", "aiocosid", *runs.command("sh", "-c", program)])
    script = f"set -m; {words} & while ! test -e {started}; do sleep 0.05; done; fg"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", script])  # noqa: S606 - a terminal of its own
    try:
        wait_until(started.exists, "the program to start")
        os.write(terminal, b"one\n")
        wait_until(lambda: _text(out) == "one\n", "the program to read")
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_terminal_that_stops_writers_in_the_background(runs: Runs) -> None:
    """The supervisor says why it ends the program, and is not stopped for it."""
    out = runs.folder / "out.txt"
    program = "read renewer rest </proc/$PPID/task/$PPID/children; kill -9 $renewer; sleep 50"
    words = shlex.join([sys.executable, "-m", "aiocosid", *runs.command("sh", "-c", program)])
    pid, terminal = pty.fork()
    if pid == 0:
        script = f"set -m; stty tostop; {words}; echo $? >{out}"
        os.execvp("sh", ["sh", "-c", script])  # noqa: S606 - a terminal of its own
    try:
        wait_until(lambda: _text(out) != "", "the supervisor to end")
        assert out.read_text() == "75\n"
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_standard_descriptors_may_be_closed(runs: Runs, closed: str) -> None:
    """No message is written into a pipe that has taken their place."""
    program = "read renewer rest </proc/$PPID/task/$PPID/children; kill -9 $renewer; sleep 50"
    words = shlex.join([sys.executable, "-m", "aiocosid", *runs.command("sh", "-c", program)])
    process = subprocess.Popen(["sh", "-c", f"{words} {closed}"], stderr=subprocess.DEVNULL)
    assert process.wait(20) == 75


def test_a_supervisor_that_stops_just_before_the_deadline(runs: Runs) -> None:
    """The renewer ends the program in time, however short before the supervisor was alive."""
    process, file = runs.stubborn()
    program = pid_of(file)
    runs.folder.joinpath("ids.db").rename(runs.folder / "away.db")
    fence_ms = (time.time() + 3) * 1000  # --lead: no renewal comes after this
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: not is_running(program), "the end of the program")
    assert int(file.read_text().splitlines()[-1].split()[2]) < fence_ms
