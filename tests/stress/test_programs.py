"""Programs of any language under ``machines run``, killed and stopped at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.servers import ValkeyServer

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(0)]

PROGRAMS: Final = int(os.environ.get("AIOCOSID_PROGRAMS", "6"))
SECONDS: Final = float(os.environ.get("AIOCOSID_PROGRAMS_SECONDS", "15"))
"""For which something happens to one of the processes every now and then."""

FIRST: Final = 0.1 * PROGRAMS + 10  # seconds in which all have written once, on a busy machine

# A lease that is renewed every second and ends within 6 s without a renewal.
SHORT: Final = ("--safe-guard", "8", "--interval", "1", "--lead", "6", "--grace", "1")

# Writes its worker id and the time, about every 20 ms, and ignores what asks it to end.
SHELL: Final = """
trap '' TERM INT
exec 3<> <(:)
while :; do
  printf '%s %s %s\\n' "$MACHINE_ID" "$$" "${EPOCHREALTIME/[.,]/}"
  read -t 0.02 -u 3
done >> "$1"
"""


class Crowd:
    """The programs, which are started again when they have ended."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.running: list[subprocess.Popen[bytes] | None] = [None] * PROGRAMS
        self.starts = 0

    def start_missing(self) -> None:
        """Start those that have ended, and of the others none."""
        for place, process in enumerate(self.running):
            if process is not None and process.poll() is None:
                continue
            self.starts += 1
            words = ("bash", "-c", SHELL, "bash", str(self.folder / f"{self.starts}.txt"))
            command = ("machines", "run", "--store", self.store, *SHORT, "--", *words)
            self.running[place] = subprocess.Popen(
                [sys.executable, "-m", "aiocosid", *command],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def members(self) -> list[tuple[str, int]]:
        """A supervisor, chosen at random, and its children: what each is, and its process id."""
        process = random.choice([each for each in self.running if each is not None])  # noqa: S311
        return [("supervisor", process.pid), *zip(("renewer", "program"), children(process.pid))]  # noqa: B905

    def texts(self) -> Iterator[list[list[str]]]:
        """The lines of each program, as words."""
        for path in self.folder.glob("*.txt"):
            lines = path.read_text().splitlines()
            yield [found for each in lines if len(found := each.split()) == 3]

    def end(self) -> None:
        """Kill what is left."""
        for process in self.running:
            if process is not None:
                for pid in (*children(process.pid), process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()


def children(pid: int) -> list[int]:
    """The children of a process, in the order of their starts."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def test_no_time_of_an_id_is_anothers(
    valkey: ValkeyServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Of each two programs with one id the earlier has ended when the later begins."""
    store = f"redis://127.0.0.1:{valkey.port}/0"
    init = ("init", "--store", store, "--yes")
    subprocess.run([sys.executable, "-m", "aiocosid", *init], check=True, capture_output=True)
    crowd, acts, stopped = Crowd(store, tmp_path), Counter[str](), dict[int, float]()
    pace = min(0.5, SECONDS / PROGRAMS / 3)
    try:
        until = time.monotonic() + FIRST + SECONDS
        while (now := time.monotonic()) < until:
            crowd.start_missing()
            for pid in [pid for pid, at in stopped.items() if at < now]:
                del stopped[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            members = crowd.members()
            # Never two of one crowd at a time: that is beyond what is promised.
            if len(members) == 3 and not stopped.keys() & {pid for _, pid in members}:
                who, pid = random.choice(members[:2])  # noqa: S311
                how = random.choice([signal.SIGKILL, signal.SIGSTOP])  # noqa: S311
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
                    acts[f"{who} {how.name}"] += 1
                if how is signal.SIGSTOP:
                    stopped[pid] = now + random.uniform(0.1, 20)  # noqa: S311
            time.sleep(pace)
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        crowd.end()
    spans = defaultdict[str, list[tuple[int, int]]](list)
    ticks = 0
    for lines in crowd.texts():
        if lines:
            times = [int(words[2]) for words in lines]
            spans[lines[0][0]].append((min(times), max(times)))
            ticks += len(times)
    found = {"programs": crowd.starts, "ids": len(spans), "ticks": ticks, **acts}
    print(found)  # noqa: T201 - the figures
    record_property("programs", found)
    shared = {
        number: times
        for number, each in spans.items()
        for times in zip(sorted(each), sorted(each)[1:], strict=False)
        if times[0][1] >= times[1][0]
    }
    assert shared == {}
    assert len(acts) == 4, f"something was never done: {acts}"
    assert any(len(each) > 1 for each in spans.values()), "no id was used by two programs at all"
