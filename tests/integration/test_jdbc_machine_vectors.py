"""What CosId 3.2.1 does with machine ids on PostgreSQL, step by step, and the same through ours.

Each step begins with the table as CosId's own step before left it, so that one difference on
purpose does not hide the steps after it.  CosId's processes keep a state of their own and answer
from it; such steps do not reach the store, and are left out.  The differences:

* **Order.**  CosId takes an expired row before a new one, and does not know its own once that has
  expired.  Ours: own, given back, new, expired.
* **Stable owners.**  CosId asks whether the newcomer is stable, and hands a stable owner's id to
  one that is not.  Ours asks whether the owner is; a stable newcomer may take an expired id.
* **Time.**  CosId takes a row whose stamp is ahead of the clock, *lowers* the stamp and raises; the
  retry succeeds inside the used time (scenarios 7 and 20).  Ours never lowers one, and leaves a row
  that is late for another.
* **Widths.**  CosId takes a row beyond the width, and then finds that it is too wide (scenario 8).
  Ours does not touch it.
* **Giving back.**  CosId gives back whatever the instance holds; ours the id that it was handed.
"""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from aiocosid.abc import InstanceId, MachineGrant
from aiocosid.errors import MachineIdLostError, MachineIdOverflowError, SchemaMissingError
from aiocosid.machine.cells import MachineRecord
from aiocosid.stores.mysql import MysqlStore
from aiocosid.stores.postgres import PostgresStore

from ._machine_tables import MACHINE_COLUMNS, believe_table

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FILE: Final = Path(__file__).parents[1] / "vectors" / "jdbc_pg_machine.json.gz"
VECTORS: Final[list[dict[str, Any]]] = json.loads(gzip.decompress(FILE.read_bytes()))["vectors"]
OURS: Final = {"guard": "renew", "revert": "release"}
"""Our names for what CosId does."""

SCENARIOS: Final = [
    pytest.param(each, id=f"{each['args']['no']}")
    for each in VECTORS
    if each["op"] == "jdbc.machine_scenario"
]
BROKEN: Final = 500  # ms that CosId waits for a clock

driver: Any = asyncpg  # its annotations stop half-way
Row = dict[str, Any]


@pytest_asyncio.fixture
async def raw(postgres_database: str) -> AsyncIterator[Any]:
    """A connection for what others do to the tables."""
    connection = await driver.connect(postgres_database)
    yield connection
    await connection.close(timeout=5)


@pytest_asyncio.fixture
async def store(postgres_database: str, raw: Any) -> AsyncIterator[PostgresStore]:
    """A store in an empty database, with a clock that is set."""
    async with believe_table(PostgresStore.from_url(postgres_database)) as store:
        await raw.execute("CREATE TABLE test_clock (ms bigint); INSERT INTO test_clock VALUES (0)")
        await store.create_schema()
        yield store


class Step:
    """One step of CosId's, and what ours does in its place.

    Attributes:
        before: the table as CosId's step before left it, by machine id.
        due: the same after this step.
        raised: CosId's error, if there was one.
    """

    def __init__(
        self, replay: Replay, args: dict[str, Any], before: list[Row], done: dict[str, Any]
    ) -> None:
        self.replay = replay
        self.args = args
        self.now: int = args["now_ms"]
        self.before = {row["machine_id"]: row for row in before}
        self.due = {row["machine_id"]: row for row in done["state"]}
        result = done["result"]
        error = isinstance(result, dict) and result.get("error")
        self.raised: str | None = error["type"] if error else None
        self.result: Any = None if error else result
        self.who = InstanceId(args["instance_id"], stable=args["stable"])

    def make(self) -> Any:
        """Return the distributor of a process that has just begun."""
        guard = self.args.get("safe_guard_ms", 300_000)
        return self.replay.store.machine_id_distributor(
            namespace=self.replay.namespace,
            instance_id=self.who,
            safe_guard=inf if guard == "forever" else guard / 1000,
            interval=1,
        )

    async def distribute(self) -> None:
        """Take an id, by our order."""
        size = 1 << self.args["machine_bit"]
        kinds = {number: self.kind(row) for number, row in self.before.items() if number < size}
        if len(kinds) < size:
            kinds[min(set(range(size)) - set(kinds))] = "new"
        early = {
            number: kind
            for number, kind in kinds.items()
            if kind
            and (self.floor(number) <= self.now + BROKEN or (kind == "own" and self.who.stable))
        }
        candidates = early or {number: kind for number, kind in kinds.items() if kind}
        if not candidates:
            with pytest.raises(MachineIdOverflowError):
                await self.take()
            assert await self.replay.rows() == self.before
            if self.raised != "MachineIdOverflowException" or self.due != self.before:
                reason = self.why()
                assert reason is not None
                self.replay.differences.add(reason)
            return
        grant = await self.take()
        best = min(candidates.values(), key=["own", "returned", "new", "expired"].index)
        assert candidates.get(grant.machine_id) == best
        assert grant.floor_ms == self.floor(grant.machine_id)
        rows = await self.replay.rows()
        assert rows == self.taken(grant.machine_id)
        self.compare(grant, rows)

    def kind(self, row: Row) -> str | None:
        """Say what a row is to who asks, by our rules; None if it is somebody else's."""
        if row["instance_id"] == self.who.text:
            return "own"
        if row["instance_id"] == "":
            return "returned"
        return "expired" if self.is_expired(row) and not self.replay.is_stable(row) else None

    def is_expired(self, row: Row) -> bool:
        """Whether CosId would take it from its owner, if it is asked by one that is not stable."""
        guard = self.args["safe_guard_ms"]
        return guard != "forever" and bool(row["last_timestamp"] <= self.now - guard)

    def floor(self, number: int) -> int:
        """Return above what its next owner has to be."""
        row = self.before.get(number)
        return row["last_timestamp"] if row else -1

    def taken(self, number: int) -> dict[int, Row]:
        """Return the table as it has to be when that id was taken."""
        row = self.before.get(number) or {
            "name": f"{self.replay.namespace}.{number:08d}",
            "namespace": self.replay.namespace,
            "machine_id": number,
            "last_timestamp": 0,
            "instance_id": "",
            "distribute_time": 0,
            "revert_time": 0,
        }
        is_own = row["instance_id"] == self.who.text
        changed = row | {
            "instance_id": self.who.text,
            "last_timestamp": max(row["last_timestamp"], self.now),
            "distribute_time": row["distribute_time"] if is_own else self.now,
        }
        left = {
            # Its own that is late is given back for another.
            other: each | {"instance_id": "", "revert_time": self.now}
            for other, each in self.before.items()
            if each["instance_id"] == self.who.text and other != number
        }
        return self.before | left | {number: changed}

    def compare(self, grant: MachineGrant, rows: dict[int, Row]) -> None:
        """Compare with CosId, unless one of the differences is at work."""
        if (reason := self.why()) is not None:
            self.replay.differences.add(reason)
            return
        assert self.raised is None
        chosen = self.result["machine_id"]
        if grant.machine_id == chosen:
            assert rows == self.due
            return
        # One of several of a kind: which one is not said, neither there nor here.
        assert self.kind(self.before[chosen]) == self.kind(self.before[grant.machine_id])
        assert self.taken(chosen) == self.due

    def why(self) -> str | None:
        """Name the difference that is at work in this step."""
        if self.raised == "ClockTooManyBackwardsException":
            return "time"
        if self.raised is not None and self.due != self.before:
            return "widths"
        if self.raised is not None:
            is_any = any(self.is_expired(row) for row in self.before.values())
            return "stable" if self.who.stable and is_any else None
        chosen = self.before.get(self.result["machine_id"])
        if chosen and chosen["instance_id"] != self.who.text:
            if self.replay.is_stable(chosen):
                return "stable"
            if chosen["last_timestamp"] > self.now:
                return "time"  # which it lowers
        return "order" if self.is_out_of_order(chosen) else None

    def is_out_of_order(self, chosen: Row | None) -> bool:
        """Whether CosId passes over what comes first with us."""
        kinds = {self.kind(row) for row in self.before.values()}
        if chosen is None or chosen["instance_id"] == "":
            return "own" in kinds
        if chosen["instance_id"] == self.who.text:
            return self.is_expired(chosen)
        is_room = len(self.before) < 1 << self.args["machine_bit"]
        return is_room or bool(kinds & {"own", "returned"})

    async def take(self) -> MachineGrant:
        """Distribute."""
        grant: MachineGrant = await self.make().distribute(
            self.args["machine_bit"], now_ms=self.now, latest_ms=self.now + BROKEN
        )
        return grant

    async def renew(self) -> None:
        """Send a renewal."""
        number = self.replay.local[self.args["process"]]
        guarding = self.make().renew(number, now_ms=self.now, fence_ms=-1)
        if self.raised is not None:
            assert self.raised == "MachineIdLostException"
            with pytest.raises(MachineIdLostError):
                await guarding
        else:
            await guarding
        assert await self.replay.rows() == self.due

    async def release(self) -> None:
        """Give it back."""
        assert self.raised is None
        number = self.replay.local[self.args["process"]]
        await self.make().release(number, last_ms=self.now)
        if self.before[number]["instance_id"] != self.who.text and self.due != self.before:
            self.replay.differences.add("another id")
            assert await self.replay.rows() == self.before
        else:
            assert await self.replay.rows() == self.due


class Replay:
    """One scenario of CosId's."""

    def __init__(self, args: dict[str, Any], store: PostgresStore | MysqlStore, raw: Any) -> None:
        self.namespace: str = args["namespace"]
        self.steps: list[dict[str, Any]] = args["steps"]
        self.store, self.raw = store, raw
        self.local: dict[str, int] = {}  # what CosId's processes remember
        self.owners: dict[str, bool] = {}  # whether they are stable, as they said last
        self.differences: set[str] = set()

    def is_stable(self, row: Row) -> bool:
        """Whether a row's owner is."""
        return self.owners.get(row["instance_id"], False)

    async def run(self, done: list[dict[str, Any]]) -> None:
        """Replay all steps."""
        before: list[Row] = []
        for args, each in zip(self.steps, done, strict=True):
            step = Step(self, args, before, each)
            remembers = args["process"] in self.local
            if remembers if args["do"] != "distribute" else not remembers:
                await self.put(before, args["now_ms"])
                await getattr(step, OURS.get(args["do"], args["do"]))()
            self.remember(step)
            before = each["state"]

    def remember(self, step: Step) -> None:
        """Do what CosId's process does with its own state."""
        process = step.args["process"]
        if step.args["do"] == "distribute" and step.raised is None:
            self.local[process] = step.result["machine_id"]
            self.owners[step.who.text] = step.who.stable
        elif step.args["do"] == "revert":
            self.local.pop(process, None)

    def record(self, row: Row) -> tuple[str, str]:
        """The name and value of our record on a stable owner."""
        return f"note/{row['name']}", MachineRecord(row["instance_id"], stable=True).text()

    async def put(self, rows: list[Row], now: int) -> None:
        """Write the table as CosId has left it, our records on stable owners, and the clock."""
        await self.raw.execute("TRUNCATE cosid_machine")
        await self.raw.execute("DELETE FROM aiocosid_cell WHERE name <> 'marker'")
        await self.raw.executemany(
            f"INSERT INTO cosid_machine ({', '.join(MACHINE_COLUMNS)}) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7)",
            [[row[column] for column in MACHINE_COLUMNS] for row in rows],
        )
        await self.raw.executemany(
            "INSERT INTO aiocosid_cell (name, value, written_ms) VALUES ($1, $2, 0)",
            [self.record(row) for row in rows if self.is_stable(row)],
        )
        await self.raw.execute("UPDATE test_clock SET ms = $1", now)

    async def rows(self) -> dict[int, Row]:
        """CosId's table, by machine id."""
        found = await self.raw.fetch(f"SELECT {', '.join(MACHINE_COLUMNS)} FROM cosid_machine")
        return {row["machine_id"]: dict(row) for row in found}


# Where ours differs, by scenario; a difference that is gone, or is new, has to be told.
DIFFERENCES: Final[dict[int, set[str]]] = {
    1: {"time"},
    5: {"stable"},
    7: {"time"},
    8: {"widths"},
    9: {"time"},
    13: {"order", "another id"},
    14: {"order"},
    16: {"order"},
    17: {"order"},
    19: {"order", "stable"},
    20: {"time"},
}


@pytest.mark.parametrize("vector", SCENARIOS)
async def test_scenario(vector: dict[str, Any], store: PostgresStore, raw: Any) -> None:
    """The same id and rows after every step, but for the differences above."""
    replay = Replay(vector["args"], store, raw)
    await replay.run(vector["result"])
    assert replay.differences == DIFFERENCES.get(vector["args"]["no"], set())


async def test_table(postgres_database: str, raw: Any) -> None:
    """The same columns, types, defaults, key and indexes as CosId's; a missing table is named."""
    (vector,) = (each for each in VECTORS if each["op"] == "jdbc.init_machine_table")
    async with PostgresStore.from_url(postgres_database) as store:
        with pytest.raises(SchemaMissingError, match="'cosid_machine'"):
            await store.machines()
        await store.create_schema()
        await store.create_schema()
    columns = await raw.fetch(
        "SELECT column_name, data_type, character_maximum_length, column_default, is_nullable "
        "FROM information_schema.columns WHERE table_name = 'cosid_machine' "
        "ORDER BY ordinal_position"
    )
    assert [dict(column) for column in columns] == vector["result"]["schema"]["columns"]
    indexes = await raw.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'cosid_machine' "
        "ORDER BY indexname"
    )
    assert [dict(index) for index in indexes] == vector["result"]["schema"]["indexes"]
