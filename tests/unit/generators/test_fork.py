"""After a fork a counter stays the parent's, and a UUID generator counts for itself."""

from __future__ import annotations

import os

import pytest

from tests.script import run_python

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

FORKS = """
import asyncio, os, sys
from aiocosid.errors import ForkedError
from aiocosid.generators import CounterId, Uuid4Id, Uuid7Id
from aiocosid.testing import ManualClock

counter, uuids, randoms = CounterId(), Uuid7Id(clock=ManualClock()), Uuid4Id()

def counted(text):
    return int(text.replace("-", ""), 16) >> 32

async def main():
    async with counter, uuids, randoms:
        await counter.next_id()
        last = counted(await uuids.next_id())
        pid = os.fork()
        if pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert await counter.next_id() == 2
            assert counted(await uuids.next_id()) == last + 1
            return
        for each in (counter, uuids, randoms):
            for call in (each.next_id_nowait, lambda: each.next_id().send(None)):
                try:
                    call()
                except ForkedError:
                    continue
                os._exit(3)
        if sys.version_info >= (3, 14):  # where `run_python` lets a child be its parent's task
            asyncio.tasks._leave_task(asyncio.get_running_loop(), asyncio.current_task())
        asyncio._set_running_loop(None)  # as Python itself does from 3.12 on
        asyncio.run(child(last))

async def anew(last):
    try:
        await counter.__aenter__()
    except ForkedError as error:
        assert "count in a store" in str(error)
    else:
        os._exit(4)
    async with uuids:
        assert counted(await uuids.next_id()) != last + 1

async def child(last):
    try:
        await anew(last)
    except BaseException:
        os._exit(5)
    os._exit(0)

asyncio.run(main())
print('"parent"')
"""


def test_a_forked_child() -> None:
    """It is refused a counter, for good; a UUID generator opened anew there counts for itself."""
    assert run_python(FORKS) == "parent"
