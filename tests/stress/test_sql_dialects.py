"""The statements of SQLite, PostgreSQL and MariaDB answer alike, whatever is asked of them."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from aiocosid import CosIdError
from aiocosid.abc import Counter, IdSegmentDistributor, InstanceId, Store
from tests import sql_cells
from tests.integration._machine_tables import (
    T0,
    MariadbTables,
    PostgresTables,
    SqliteTables,
    Tables,
)
from tests.servers import MariadbServer, PostgresServer

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.integration,
    pytest.mark.asyncio,
    pytest.mark.timeout(240),
]

SECONDS = 20.0
AT_LEAST = 12  # sequences, however slow the machine is
LENGTH = 25  # calls in a sequence
BITS = 2


class Side:
    """One of the databases."""

    def __init__(self, store: Store, tables: Tables) -> None:
        self.store = store
        self.tables = tables
        self.made: dict[tuple[str, str], Any] = {}

    def machines(self, namespace: str, who: str) -> Any:
        if (namespace, who) not in self.made:
            self.made[namespace, who] = self.store.machine_id_distributor(
                namespace=namespace,
                instance_id=InstanceId(who, stable=who == "stable"),
                safe_guard=6.0 if who == "short" else 10.0,
                interval=1.0,
            )
        return self.made[namespace, who]

    def held(self, namespace: str, who: str, otherwise: int) -> int:
        """The id that an instance was handed last: only for that it can assert anything."""
        taken = self.machines(namespace, who)._taken
        return otherwise if taken is None else int(taken.machine_id)

    def segments(self, namespace: str, who: str) -> IdSegmentDistributor:
        if (namespace, f"segments {who}") not in self.made:
            made = self.store.segment_distributor(namespace=namespace, name="order", offset=5)
            self.made[namespace, f"segments {who}"] = made
        found: IdSegmentDistributor = self.made[namespace, f"segments {who}"]
        return found

    async def forget(self, namespace: str) -> None:
        """Become another store."""
        sql_cells.forget(self.tables.run, namespace, everything=False)

    async def java(self, namespace: str, machine_id: int, stamp: int) -> None:
        """Have a node of CosId's hold an id."""
        self.tables.execute(
            f"UPDATE cosid_machine SET instance_id = 'java', last_timestamp = {stamp} "
            f"WHERE namespace = '{namespace}' AND machine_id = {machine_id};"
        )

    async def state(self, namespace: str) -> object:
        """All that there is of a namespace."""
        return (
            await self.store.machines(namespace=namespace),
            await self.store.machine_bits(namespace=namespace),
            await self.store.machine_markers(namespace=namespace),
            [each.last_max_id for each in await self.store.counters(namespace=namespace)],
        )


def _call(rng: random.Random, ns: str, now: int) -> tuple[str, Callable[[Side], Awaitable[object]]]:
    """Draw one call, to be made on each side."""
    who = rng.choice(("a", "b", "c", "short", "stable"))
    machine_id, n = rng.randrange(4), rng.choice((1, 3, 3, 10))
    stamp = now + rng.choice((-9000, -20, 0, 0, 0, 4000))
    later = stamp + rng.choice((-1, 0, 500, 3000))
    bits = BITS if rng.random() < 0.9 else 3
    is_new, floor = rng.random() < 0.3, rng.choice((0, 4, 20))
    signs = {"now_ms": stamp, "mark_ms": later}
    calls: dict[str, tuple[int, Callable[[Side], Awaitable[object]]]] = {
        "distribute": (
            6,
            lambda at: at.machines(ns, who).distribute(bits, now_ms=stamp, latest_ms=later),
        ),
        "guard": (2, lambda at: at.machines(ns, who).guard(machine_id, **signs)),
        "reassert": (
            9,
            lambda at: at.machines(ns, who).reassert(at.held(ns, who, machine_id), **signs),
        ),
        "revert": (2, lambda at: at.machines(ns, who).revert(machine_id, last_ms=later)),
        "free": (3, lambda at: at.store.revert_machine(namespace=ns, machine_id=machine_id)),
        "width": (1, lambda at: at.store.set_machine_bits(namespace=ns, bits=bits)),
        "mark": (2, lambda at: at.store.mark_machines(namespace=ns, is_new=is_new)),
        "forget": (2, lambda at: at.forget(ns)),
        "java": (1, lambda at: at.java(ns, machine_id, stamp)),
        "grant": (4, lambda at: at.segments(ns, who).next_max_id(n)),
        "floor": (1, lambda at: at.store.set_floor(namespace=ns, name="order", above=floor)),
    }
    name = rng.choices(tuple(calls), [weight for weight, _ in calls.values()])[0]
    return f"{name} {who} {machine_id} {n} {signs}", calls[name][1]


async def outcome(call: Awaitable[object]) -> object:
    """What came of it: errors as their kind, for their texts name the store."""
    try:
        found = await call
    except CosIdError as error:
        return type(error).__name__, getattr(error, "seconds_left", None)
    if isinstance(found, Counter):
        return found.last_max_id
    return found


async def _double(at: Side, ns: str, now: int, one: str, other: str) -> None:
    """Have two hold one id in a store that forgets."""
    for who, stamp in ((one, now), (other, now + 1)):
        grant = await at.machines(ns, who).distribute(BITS, now_ms=stamp, latest_ms=now * 2)
        if who == one:
            await at.store.revert_machine(namespace=ns, machine_id=grant.machine_id)
    await at.forget(ns)


def _clock(sides: list[Side], ms: int) -> None:
    for side in sides:
        side.tables.set_clock(ms)


async def _sequence(seed: int, sides: list[Side]) -> None:
    rng, ns, now = random.Random(seed), f"n{seed}", T0 + seed * 100_000  # noqa: S311
    if rng.random() < 0.5:
        pair = rng.sample(("a", "b", "c"), 2)
        _clock(sides, now)
        for side in sides:
            await _double(side, ns, now, *pair)
    for number in range(LENGTH):
        now += rng.choice((0, 1, 700, 2500, 9000))
        _clock(sides, now)
        what, call = _call(rng, ns, now)
        ours, *theirs = [await outcome(call(side)) for side in sides]
        assert [ours] * len(theirs) == theirs, f"seed {seed}, call {number}: {what}"
        if number % 5 == 0 or number == LENGTH - 1:
            state, *others = [await side.state(ns) for side in sides]
            assert [state] * len(others) == others, f"seed {seed}, after call {number}: {what}"


async def test_all_answer_alike(
    postgres: PostgresServer,
    postgres_database: str,
    mariadb: MariadbServer,
    mariadb_database: str,
    tmp_path: Path,
) -> None:
    """As many random sequences as there is time for, through the distributors' public calls."""
    databases: list[Tables] = [
        SqliteTables(tmp_path / "ids.db"),
        PostgresTables(postgres, postgres_database),
        MariadbTables(mariadb, mariadb_database),
    ]
    async with AsyncExitStack() as stack:
        sides: list[Side] = []
        for tables in databases:
            await tables.prepare()
            store = await stack.enter_async_context(tables.open_set())
            sides.append(Side(store, tables))
        end, seed = time.monotonic() + SECONDS, 0
        while seed < AT_LEAST or time.monotonic() < end:
            await _sequence(seed, sides)
            for side in sides:
                side.made.clear()
            seed += 1
