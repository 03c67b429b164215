"""The lock of a manual machine id between real processes: refused, killed, forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from aiocosid.errors import MachineIdInUseError
from aiocosid.machine import ManualMachineIdDistributor
from tests.command import environment
from tests.script import run_python
from tests.servers import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9 and fork"),
]

NOW = 1_700_000_000_000

HOLD = """
import asyncio, os, sys
from aiocosid.machine import ManualMachineIdDistributor

async def main():
    who = ManualMachineIdDistributor(7, state_dir=sys.argv[1])
    await who.distribute(10, now_ms=1, latest_ms=1)
    await who.renew(7, now_ms=1, fence_ms=1700000000000)
    print(os.getpid(), flush=True)
    if len(sys.argv) > 2 and not os.fork():
        print(os.getpid(), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""

FORKED = """
import asyncio, json, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: a fork beside threads
from aiocosid.errors import CosIdError
from aiocosid.machine import ManualMachineIdDistributor

who = ManualMachineIdDistributor(7, state_dir=sys.argv[1])
TIMES = dict(now_ms=1, latest_ms=1)

async def answers():
    said = []
    for call in (
        lambda: who.distribute(10, **TIMES),
        lambda: who.renew(7, now_ms=1, fence_ms=1),
        lambda: who.aopen(),
        lambda: who.release(7, last_ms=1),
        lambda: who.aclose(),
        lambda: ManualMachineIdDistributor(7, state_dir=sys.argv[1]).distribute(10, **TIMES),
        lambda: ManualMachineIdDistributor(8, state_dir=sys.argv[1]).distribute(10, **TIMES),
    ):
        try:
            said.append(repr(await call()))
        except CosIdError as error:
            said.append(type(error).__name__)
    return said

asyncio.run(who.distribute(10, **TIMES))
asyncio.run(who.renew(7, now_ms=1, fence_ms=2))
reader, writer = os.pipe()
who._held._mutex.acquire()  # as if a worker thread were at it: nobody releases it in the child
pid = os.fork()
if not pid:
    os.write(writer, json.dumps(asyncio.run(answers())).encode())
    os._exit(0)
os.waitpid(pid, 0)
who._held._mutex.release()
asyncio.run(who.renew(7, now_ms=1, fence_ms=3))
print(os.read(reader, 10000).decode())
"""


class Holder:
    """A process that holds machine id 7."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), *options],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.pid = self.read_pid()

    def read_pid(self) -> int:
        return int(self.output.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.output.close()


@pytest.fixture
def holders() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def take(folder: Path) -> tuple[ManualMachineIdDistributor, int]:
    distributor = ManualMachineIdDistributor(7, state_dir=folder)
    grant = await distributor.distribute(10, now_ms=NOW, latest_ms=NOW)
    return distributor, grant.floor_ms


async def test_a_second_process_is_refused(tmp_path: Path, holders: ExitStack) -> None:
    """And told which process has it; killed with -9 the id is free at once, above its mark."""
    holder = holders.enter_context(Holder(tmp_path))
    with pytest.raises(MachineIdInUseError, match=f"process {holder.pid} on"):
        await take(tmp_path)
    holder.kill()
    distributor, floor = await take(tmp_path)
    assert floor == NOW
    await distributor.aclose()


async def test_a_stopped_process_keeps_its_id(tmp_path: Path, holders: ExitStack) -> None:
    """The lock is not a lease: however long it is silent, it is its own."""
    holder = holders.enter_context(Holder(tmp_path))
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with pytest.raises(MachineIdInUseError):
            await take(tmp_path)
    finally:
        os.kill(holder.pid, signal.SIGCONT)


async def test_a_child_does_not_go_on_holding_it(tmp_path: Path, holders: ExitStack) -> None:
    """A lock is shared by the copies of a file; the child closed its own when it was forked."""
    holder = holders.enter_context(Holder(tmp_path, "fork"))
    child = holder.read_pid()
    try:
        holder.kill()
        distributor, _ = await take(tmp_path)
        await distributor.aclose()
        os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)


def test_in_the_child_it_is_refused(tmp_path: Path) -> None:
    """Taking, guarding and opening; giving back and closing touch nothing of the parent's."""
    answers = run_python(FORKED, str(tmp_path))
    assert answers == [
        *("ForkedError", "ForkedError", "ForkedError", "None", "None", "MachineIdInUseError"),
        "MachineGrant(machine_id=8, floor_ms=-1, is_fenced=True)",
    ]
    assert (tmp_path / "aiocosid.Y29zaWQ.7.mark").read_text() == "7|3\n"


def test_one_of_many_processes_gets_it(tmp_path: Path) -> None:
    """Six that start at once: one holds it, five are refused."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for _ in range(6)
    ]
    try:
        wait_until(
            lambda: sum(each.poll() is not None for each in started) == 5,
            "all but one have ended",
            deadline=30,
        )
        (holder,) = [each for each in started if each.poll() is None]
        ended = [each.communicate()[1] for each in started if each is not holder]
        assert all("MachineIdInUseError" in error for error in ended)
    finally:
        for each in started:
            each.kill()
            each.communicate()
