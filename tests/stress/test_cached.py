"""A cached generator that is killed in the middle of a burst, again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress

LIVES = 5
BURSTS = 12  # of 20,000 ids each: half a minute of ids is borrowed in a moment

SCRIPT = """
import asyncio, sys
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.snowflake import CachedSnowflakeId

async def main():
    machine = ManualMachineIdDistributor(5, state_dir=sys.argv[1])
    async with CachedSnowflakeId(machine, max_borrow=3600) as gen:
        while True:
            ids = await gen.next_ids(20_000)
            print(ids[0], ids[-1], gen.statistics().borrowed, flush=True)

asyncio.run(main())
"""


def test_kill_9_in_a_burst(tmp_path: Path) -> None:
    """Each life begins above all ids of those before, at once, although they are ahead: N24."""
    highest = borrowed = 0
    for _ in range(LIVES):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as life:
            assert life.stdout is not None
            for line in life.stdout:
                first, last, ahead = map(int, line.split())
                assert first > highest
                highest = last
                if ahead - borrowed >= BURSTS * 2:
                    borrowed = ahead
                    break
            life.kill()
            for line in life.stdout:  # what it had printed until then
                if line.endswith("\n") and len(fields := line.split()) == 3:
                    assert int(fields[0]) > highest
                    highest, borrowed = int(fields[1]), int(fields[2])
    assert borrowed > LIVES * BURSTS
