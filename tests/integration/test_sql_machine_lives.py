"""Machine ids on SQLite and PostgreSQL in many processes: started at once, killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiocosid import store_from_url
from tests.script import run_python

from ._machine_tables import Tables, tables_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

NOW = 1_700_000_000_000


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.nightly)])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables of one database after the other."""
    tables = tables_of(request, request.param)
    asyncio.run(tables.prepare())
    return tables


def test_fifty_instances_in_ten_processes(tables: Tables) -> None:
    """All at once, from nothing: fifty different ids of sixty-four, each in its row."""
    with ThreadPoolExecutor(10) as pool:
        told = [pool.submit(run_python, MANY, tables.url, f"{number}") for number in range(10)]
    ids = [each for process in told for each in process.result()]
    assert len(set(ids)) == 50
    assert set(ids) <= set(range(64))
    assert sorted(row["machine_id"] for row in tables.rows()) == sorted(ids)


@pytest.mark.stress
@pytest.mark.parametrize("stable", ["", "stable"])
@pytest.mark.parametrize(
    ("when", "step"),
    [
        ("before", "look"),
        *(("after", step) for step in ("look", "take", "insert", "guard", "look again", "revert")),
    ],
)
def test_killed_at_any_step(tables: Tables, step: str, when: str, stable: str) -> None:
    """A kill -9 between any two statements loses nothing for ever.

    The instance finds its own again, and once it is silent for good others get all four; only a
    stable one's stays its own.
    """
    asyncio.run(_give_one_back(tables.url))
    arguments = (tables.url, step, when, stable)
    killed = subprocess.run([sys.executable, "-c", VICTIM, *arguments], check=False, timeout=60)
    assert killed.returncode == -9
    held = [row["machine_id"] for row in tables.rows() if row["instance_id"] == "victim"]
    holds = {"look": (0, 0), "take": (0, 1), "insert": (0, 1)}
    holds |= {"guard": (1, 1), "look again": (1, 1)}
    assert len(held) == holds.get(step, (1, bool(stable)))[when == "after"]
    tables.execute("update cosid_machine set last_timestamp = 1")
    tables.execute("update aiocosid_cell set written_ms = 1 where name like 'note/%'")
    kept = held if stable else []
    others = asyncio.run(_take_all(tables.url, 4 - len(kept)))
    assert sorted(others + kept) == [0, 1, 2, 3]


async def _give_one_back(url: str) -> None:
    """Leave one id that was given back, so that it is taken, unless the victim is to insert."""
    async with store_from_url(url) as store:
        one = store.machine_id_distributor(namespace="dev", instance_id="first")
        await one.distribute(2, now_ms=NOW, latest_ms=NOW)
        await one.release(0, last_ms=NOW)


async def _take_all(url: str, count: int) -> list[int]:
    async with store_from_url(url) as store:
        others = [
            store.machine_id_distributor(namespace="dev", instance_id=f"other{i}")
            for i in range(count)
        ]
        return [
            (await each.distribute(2, now_ms=2 * NOW, latest_ms=4 * NOW)).machine_id
            for each in others
        ]


MANY = """
import asyncio, json, sys
from aiocosid import store_from_url

async def main():
    async with store_from_url(sys.argv[1]) as store:
        made = [
            store.machine_id_distributor(namespace="dev", instance_id=f"{sys.argv[2]}-{i}")
            for i in range(5)
        ]
        grants = await asyncio.gather(
            *(each.distribute(6, now_ms=1, latest_ms=2**53) for each in made)
        )
        print(json.dumps([grant.machine_id for grant in grants]))

asyncio.run(main())
"""

# The clock of whoever asks is far behind, so that only the store's can tell that it lives.
VICTIM = f"""
import asyncio, os, signal, sys
from aiocosid import store_from_url
from aiocosid.abc import InstanceId
from tests.integration._machine_tables import Tapped

_, url, step, when, stable = sys.argv
NOW = {NOW}

async def main():
    async with store_from_url(url) as store:
        who = InstanceId("victim", stable=bool(stable))
        one = store.machine_id_distributor(namespace="dev", instance_id=who)
        # Each call looks and commits, but for a renewal, which goes on from what was read.
        due = {{"look": 1, "take": 2, "insert": 2, "guard": 3, "look again": 4, "revert": 5}}[step]
        if step == "insert":
            other = store.machine_id_distributor(namespace="dev", instance_id="second")
            await other.distribute(2, now_ms=NOW, latest_ms=NOW)

        async def kill(_):
            nonlocal due
            due -= 1
            if due == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        Tapped.on(one, **{{when: kill}})
        grant = await one.distribute(2, now_ms=NOW, latest_ms=NOW)
        await one.renew(grant.machine_id, now_ms=NOW, fence_ms=NOW + 1)
        await one.release(grant.machine_id, last_ms=NOW)

asyncio.run(main())
"""
