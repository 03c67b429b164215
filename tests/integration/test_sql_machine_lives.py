"""Machine ids on SQLite and PostgreSQL in many processes: started at once, forked, killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiocosid import open_store
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
    async with open_store(url) as store:
        one = store.machine_id_distributor(namespace="dev", instance_id="first")
        await one.distribute(2, now_ms=NOW, latest_ms=NOW)
        await one.revert(0, last_ms=NOW)


async def _take_all(url: str, count: int) -> list[int]:
    async with open_store(url) as store:
        others = [
            store.machine_id_distributor(namespace="dev", instance_id=f"other{i}")
            for i in range(count)
        ]
        return [
            (await each.distribute(2, now_ms=2 * NOW, latest_ms=4 * NOW)).machine_id
            for each in others
        ]


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child(tables: Tables, ending: str) -> None:
    """It is refused until it is opened anew, and is another instance then, unless told which."""
    told = run_python(FORK.replace("ENDING", ending), tables.url)
    assert told == {
        "refused": ["ForkedError"] * 8,
        "new instance": True,
        "new id": True,
        "same name": [told["parent"][1], True],
        "parent": [0, 1],
        "parent goes on": "None",
        "parent of the same name": "MachineIdLostError",
    }


MANY = """
import asyncio, json, sys
from aiocosid import open_store

async def main():
    async with open_store(sys.argv[1]) as store:
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
from aiocosid import open_store
from aiocosid.abc import InstanceId
from tests.integration._machine_tables import Tapped

_, url, step, when, stable = sys.argv
NOW = {NOW}

async def main():
    async with open_store(url) as store:
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
        await one.guard(grant.machine_id, now_ms=NOW, mark_ms=NOW + 1)
        await one.revert(grant.machine_id, last_ms=NOW)

asyncio.run(main())
"""

FORK = """
import asyncio, gc, json, os, sys, warnings
from aiocosid import open_store

warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: a fork beside threads
url = sys.argv[1]
NOW = 1_700_000_000_000

async def outcome(awaitable):
    try:
        return str(await awaitable)
    except Exception as exc:
        return type(exc).__name__

async def take(one, now=NOW):
    return (await one.distribute(4, now_ms=now, latest_ms=2**53)).machine_id

async def child(unique, named, store, before, ids, machines):
    refused = [await outcome(each) for each in (
        take(unique), unique.guard(0, now_ms=NOW, mark_ms=NOW), unique.revert(0, last_ms=-1),
        take(named), store.machines(), store.revert_machine(machine_id=0))]
    gc.collect()
    await store.aopen()
    refused += [await outcome(take(each, now=NOW + 9)) for each in (unique, named)]
    assert await store.machines(namespace="cosid") == machines
    await unique.aopen()
    await named.aopen()
    new = await take(unique)
    same = await named.distribute(4, now_ms=NOW, latest_ms=2**53)
    told = {"refused": refused, "new instance": unique.instance_id != before,
            "new id": new not in ids, "same name": [same.machine_id, same.floor_ms >= NOW + 5]}
    await unique.revert(new, last_ms=-1)
    await store.aclose()
    return told

async def main():
    store = open_store(url)
    unique = store.machine_id_distributor()
    named = store.machine_id_distributor(instance_id="10.0.0.1:80")
    ids = [await take(unique), await take(named)]
    await named.guard(ids[1], now_ms=NOW, mark_ms=NOW + 5)
    machines = await store.machines(namespace="cosid")
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        return theirs, unique, named, store, unique.instance_id, ids, machines
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status == 0, status
    after = {"parent": ids,
        "parent goes on": await outcome(unique.guard(ids[0], now_ms=NOW, mark_ms=NOW)),
        "parent of the same name": await outcome(named.guard(ids[1], now_ms=NOW, mark_ms=NOW))}
    await store.aclose()
    print(json.dumps(json.loads(os.read(ours, 10_000)) | after))

runner = asyncio.Runner()
forked = runner.run(main())
if forked:
    theirs, *objects = forked
    os.write(theirs, json.dumps(asyncio.run(child(*objects))).encode())
    ENDING
runner.close()
"""
