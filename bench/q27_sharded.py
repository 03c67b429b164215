"""How many sharded ids a second has one name, and what comes twice when Redis forgets."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiocosid.errors import CosIdError
from aiocosid.snowflake import ShardedId, ShardedLayout
from aiocosid.stores.redis import RedisStore
from tests.chaos import SCENARIOS, Options, run
from tests.consumers import overlaps, runs_of

from ._harness import Answer
from ._servers import valkey

PROCESSES = 8
SECONDS = 10.0
BATCH = 2000
CAP = 524_287
NEARLY = 0.95  # of the cap, in whole seconds

LAYOUT = ShardedLayout(1_546_300_800)

KILLS, FAIL_OVERS = 20.0, 45.0  # seconds: a kill each, a fail-over in six to eight


async def _take(url: str, path: Path, seconds: float) -> int:
    """Take ids as fast as they come; return how many calls failed."""
    distributor = RedisStore.from_url(url).sequence_distributor(name="bench")
    errors = 0
    with path.open("ab", buffering=0) as record:
        async with ShardedId(distributor, layout=LAYOUT, nodes=PROCESSES) as ids:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    record.write(runs_of(await ids.next_ids(BATCH)))
                except CosIdError:
                    errors += 1
    return errors


def take(url: str, path: Path, seconds: float) -> None:
    """One process; its status is the number of failed calls."""
    raise SystemExit(min(255, asyncio.run(_take(url, path, seconds))))


def _ids_a_second(folder: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            first, last = map(int, line.split())
            found[LAYOUT.parse(first).second] += last - first + 1
    return found


def crowd(url: str, processes: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Let them take ids, all as fast as they can."""
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as name:
        folder = Path(name)
        started = [
            spawn.Process(target=take, args=(url, folder / str(each), seconds))
            for each in range(processes)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join()
        count, twice = overlaps(folder)
        by_second = _ids_a_second(folder)
    whole = sorted(by_second)[2:-2]  # all of them run in these
    rates = [by_second[each] for each in whole]
    return {
        "processes": processes,
        "ids": count,
        "twice": twice,
        "errors": sum(process.exitcode or 0 for process in started),
        "mean": sum(rates) / max(1, len(rates)),
        "highest": max(rates, default=0),
    }


def broken(scenario: str, store: str, seconds: float) -> dict[str, Any]:
    """Have Redis forget, again and again."""
    options = Options(store=store, seconds=seconds, processes=PROCESSES)
    result = run(scenario, SCENARIOS[scenario], options)
    return {
        "scenario": scenario,
        "script": "with the fence" if store == "sharded" else "as published",
        "faults": {name: n for name, n in result.faults.items() if not name.startswith("all")},
        "ids": result.ids,
        "twice": result.duplicates,
        "longest": result.longest,
        "failures": result.failures,
    }


async def ask() -> Answer:
    """Ask it of a Valkey that runs, and of some that do not."""
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # processes may use all cores
    with valkey() as url:
        crowds = [await asyncio.to_thread(crowd, url, each) for each in (1, PROCESSES)]
    chaos = [
        await asyncio.to_thread(broken, scenario, store, seconds)
        for scenario, seconds in (("redis-kill", KILLS), ("sentinel", FAIL_OVERS))
        for store in ("sharded", "published")
    ]
    os.sched_setaffinity(0, affinity)
    many = crowds[-1]
    fenced = sum(each["twice"] for each in chaos if each["script"] == "with the fence")
    reached = NEARLY * CAP <= many["mean"] <= CAP and many["highest"] <= CAP
    reached = reached and fenced == sum(each["twice"] + each["errors"] for each in crowds) == 0
    reached = reached and not any(each["failures"] for each in chaos)
    rows: list[tuple[Any, ...]] = []
    for each in crowds:
        rate = f"{each['mean']:,.0f}, at most {each['highest']:,}"
        counts = f"{each['ids']:,}", each["twice"], each["errors"]
        rows.append((f"{each['processes']} processes", *counts, rate))
    for each in chaos:
        what = ", ".join(f"{count} x {name}" for name, count in each["faults"].items())
        row = (f"{each['script']}: {what}", f"{each['ids']:,}", f"{each['twice']:,}", "")
        told = [f"longest wait {each['longest']:.1f} s", *each["failures"]]
        rows.append((*row, "; ".join(told)))
    return Answer(
        f"Sharded ids: {PROCESSES} processes on one name, and on a Redis that forgets",
        f"the cap of {CAP:,} ids a second, no error, no duplicate; with the fence none either",
        reached,
        f"{many['mean']:,.0f} ids a second; {fenced} duplicates with the fence.",
        ("what", "ids", "handed out twice", "errors", "ids a second"),
        tuple(rows),
        {"crowds": crowds, "chaos": chaos},
    )
