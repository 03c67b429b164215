"""Real processes whose wall clock jumps, and one that is stopped: not one id comes twice.

The wall clock is libfaketime's, in a child; the monotonic clock runs on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiocosid.snowflake import COSID_MS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="libfaketime is preloaded on Linux"),
]

# Writes each id as a line; a jump of the clock is asked for by the file that libfaketime reads.
CHILD = """
import asyncio, os, sys
from aiocosid.errors import ClockTooManyBackwardsError, MachineIdUnavailableError
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import SnowflakeId
from aiocosid.stores.sqlite import SqliteStore

async def main(url, safe_guard, interval, seconds):
    loop = asyncio.get_running_loop()
    async with SqliteStore.from_url(url) as store:
        await store.create_schema()
        machines = store.machine_id_distributor(
            instance_id=f"{os.getpid()}", safe_guard=safe_guard, interval=interval
        )
        await take_ids(MachineIdLease(machines), loop.time() + seconds)

async def take_ids(lease, end):
    loop = asyncio.get_running_loop()
    async with SnowflakeId(lease) as gen:
        while loop.time() < end:
            try:
                ids = await gen.next_ids(50)
            except (ClockTooManyBackwardsError, MachineIdUnavailableError):
                await asyncio.sleep(0.02)
                continue
            os.write(1, b"".join(b"%d\\n" % each for each in ids))
            await asyncio.sleep(0.001)

asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:])))
"""


def start(url: str, *numbers: float, out: Path, **environment: str) -> subprocess.Popen[bytes]:
    with out.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, url, *map(str, numbers)],
            stdout=file,
            stderr=subprocess.PIPE,
            env=os.environ | environment,
        )


def ids_of(out: Path) -> list[int]:
    return [int(line) for line in out.read_text().split()]


def wait_for_ids(out: Path, more_than: int, *, deadline: float = 20) -> int:
    """Wait until a child has written more; returns how many there are."""
    until = time.monotonic() + deadline
    while (found := len(ids_of(out))) <= more_than:
        assert time.monotonic() < until, f"no id after the {more_than} first"
        time.sleep(0.02)
    return found


@pytest.mark.stress
def test_a_wall_clock_that_jumps_back_and_forth(tmp_path: Path) -> None:
    """Two processes on one file, one of which has a clock that jumps: all ids differ, and rise."""
    faketime = pytest.importorskip("libfaketime")
    offset = tmp_path / "offset"
    offset.write_text("+0")
    wrong = {
        "LD_PRELOAD": next(map(str, Path(faketime.__file__).parent.rglob("libfaketime.so.1"))),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
    url = f"sqlite:///{tmp_path}/ids.db"
    outs = [tmp_path / "jumping", tmp_path / "steady"]
    for out in outs:
        out.touch()
    children = [start(url, 300, 60, 6, out=outs[0], **wrong), start(url, 300, 60, 6, out=outs[1])]
    try:
        seen = wait_for_ids(outs[0], 0)
        for jump in ("-1", "+0", "+30", "+29", "-3600", "+30", "+31", "+29.5", "+32"):
            offset.write_text(jump)
            time.sleep(0.25)
        offset.write_text("+40")
        wait_for_ids(outs[0], seen)
    finally:
        errors = [child.communicate(timeout=60)[1] for child in children]
    assert errors == [b"", b""]
    jumping, steady = map(ids_of, outs)
    assert jumping == sorted(set(jumping))
    assert steady == sorted(set(steady))
    assert set(jumping).isdisjoint(steady)
    latest_ms = max(COSID_MS.parse(each).timestamp_ms for each in jumping)
    assert latest_ms > (time.time() + 20) * 1000, "the clock did not jump"


@pytest.mark.nightly
def test_a_stopped_owner_stays_silent_until_it_has_an_id_again(tmp_path: Path) -> None:
    """SIGSTOP for longer than the lease: somebody else takes the machine id; nothing repeats."""
    url = f"sqlite:///{tmp_path}/ids.db"
    outs = [tmp_path / "stopped", tmp_path / "heir"]
    for out in outs:
        out.touch()
    owner = start(url, 1.5, 0.3, 8, out=outs[0])
    heir = None
    try:
        seen = wait_for_ids(outs[0], 0)
        owner.send_signal(signal.SIGSTOP)
        time.sleep(2.0)
        heir = start(url, 1.5, 0.3, 3, out=outs[1])
        wait_for_ids(outs[1], 0)
        owner.send_signal(signal.SIGCONT)
        wait_for_ids(outs[0], max(seen, len(ids_of(outs[0]))))
    finally:
        owner.send_signal(signal.SIGCONT)
        started = [owner] if heir is None else [owner, heir]
        errors = [child.communicate(timeout=60)[1] for child in started]
    assert all(b"Traceback" not in each for each in errors)  # a warning of the loss may be there
    mine, theirs = map(ids_of, outs)
    assert mine == sorted(set(mine))
    assert set(mine).isdisjoint(theirs)
    assert theirs
