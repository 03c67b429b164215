"""What CosId 3.2.1 does on PostgreSQL, step by step, and the same through our distributor.

The rows are the same after every step.  Where CosId's behaviour is not ours, the step says so:

* **Creation.**  CosId's factory creates the row, or, told not to, its distributor raises
  SegmentNameMissingException.  Ours has nothing to create beforehand: the first call does it.
* **A counter that went back.**  CosId hands the ids out again.  Ours raises StoreRolledBackError;
  the row has been advanced all the same, as it has there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, Final

import asyncpg
import pytest
import pytest_asyncio

from aiocosid import SegmentId
from aiocosid.errors import InvalidArgumentError, SchemaMissingError, StoreRolledBackError
from aiocosid.stores.base import BackendStore
from aiocosid.stores.postgres import PostgresStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FILE: Final = Path(__file__).parents[1] / "vectors" / "jdbc_pg_segment.json"
VECTORS: Final[list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))["vectors"]

driver: Any = asyncpg  # its annotations stop half-way
Connection = Any

# The statement that the vectors' source gives for CosId's own INSERT.
INIT_SEGMENT: Final = (
    "INSERT INTO cosid (name, last_max_id, last_fetch_time) "
    "VALUES ($1, $2, extract(epoch from now())::bigint)"
)
ROWS: Final = """
SELECT name, last_max_id, last_fetch_time,
       abs(last_fetch_time - extract(epoch from now())::bigint) < 60 AS is_now
FROM cosid ORDER BY name
"""


def vectors(op: str) -> list[Any]:
    """The vectors of one operation, as parameters."""
    chosen = [each for each in VECTORS if each["op"] == f"jdbc.{op}"]
    assert chosen
    return [pytest.param(each, id=f"{op}-{i}") for i, each in enumerate(chosen)]


@pytest_asyncio.fixture
async def raw(postgres_database: str) -> AsyncIterator[Connection]:
    """A connection for what others do to the table."""
    connection = await driver.connect(postgres_database)
    yield connection
    await connection.close(timeout=5)


@pytest_asyncio.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    """A store in an empty database."""
    async with PostgresStore.from_url(postgres_database) as store:
        yield store


async def rows(raw: Connection) -> list[dict[str, Any]]:
    """The table as the vectors write it."""
    return [
        {
            "name": row["name"],
            "last_max_id": row["last_max_id"],
            "last_fetch_time": "db_now" if row["is_now"] else row["last_fetch_time"],
        }
        for row in await raw.fetch(ROWS)
    ]


class Replay:
    """One scenario of CosId's, step by step."""

    init_segment: ClassVar[str] = INIT_SEGMENT
    duplicate: ClassVar[type[Exception]] = asyncpg.UniqueViolationError

    def __init__(self, args: dict[str, Any], store: BackendStore[Any], raw: Connection) -> None:
        self.args, self.store, self.raw = args, store, raw
        self.key = f"{args['namespace']}.{args['name']}"
        self.counter: Any = None
        self.highest = 0  # what the present distributor has seen

    async def execute(self, sql: str, *values: Any) -> None:
        """Do what others do to the table."""
        await self.raw.execute(sql, *values)

    async def rows(self) -> list[dict[str, Any]]:
        """The table as the vectors write it."""
        return await rows(self.raw)

    def distributor(self, offset: int) -> Any:
        """Make one as the scenario describes it."""
        described = {key: self.args[key] for key in ("namespace", "name", "step")}
        return self.store.segment_distributor(offset=offset, **described)

    async def delete(self) -> None:
        """Delete the row, and what says that there was one."""
        await self.execute("DELETE FROM cosid WHERE name = $1", self.key)
        await self.execute("DELETE FROM aiocosid_cell WHERE name = $1", "counters")

    async def step(self, step: dict[str, Any], due: dict[str, Any]) -> None:
        """Do one step and compare the row."""
        result = due["result"]
        error = result["error"]["type"] if isinstance(result, dict) else None
        undo = await getattr(self, f"do_{step['do']}")(step, result, error)
        if undo:
            await self.delete()
        expected = due["rows"]
        if step["do"] == "create" and not await self.rows():
            # Created by the first call, and not before.
            expected = [row for row in expected if row["last_max_id"] != self.args["offset"]]
        assert await self.rows() == expected, step

    async def do_create(self, step: dict[str, Any], result: Any, error: str | None) -> None:
        """A new distributor, as in another process."""
        self.counter, self.highest = self.distributor(self.args["offset"]), 0

    async def do_next(self, step: dict[str, Any], result: Any, error: str | None) -> bool:
        """The next max id; tells whether the row has to go, which CosId would not have created."""
        size = step.get("step", self.args["step"])
        if error == "IllegalArgumentException":
            with pytest.raises(InvalidArgumentError):
                await self.counter.next_max_id(size)
            return False
        missing = error == "SegmentNameMissingException"
        assert missing or error is None
        due = self.args["offset"] + size if missing else result
        if self.highest and (missing or due < self.highest + size):
            with pytest.raises(StoreRolledBackError) as caught:
                await self.counter.next_max_id(size)
            seen = 0 if missing else due  # and then no row is made, as by CosId
            assert (caught.value.seen, caught.value.expected) == (seen, self.highest + size)
            return False
        assert await self.counter.next_max_id(size) == due
        self.highest = due
        return missing

    async def do_foreign(self, step: dict[str, Any], result: Any, error: str | None) -> None:
        """Another process takes a range."""
        foreign = self.distributor(self.args["offset"])
        assert await foreign.next_max_id(step["by"]) > self.highest

    async def do_set(self, step: dict[str, Any], result: Any, error: str | None) -> None:
        """Somebody sets the counter back, and the time with it."""
        sql = "UPDATE cosid SET last_max_id = $2, last_fetch_time = 5 WHERE name = $1"
        await self.execute(sql, self.key, step["value"])

    async def do_delete(self, step: dict[str, Any], result: Any, error: str | None) -> None:
        """Somebody deletes the row."""
        await self.delete()

    async def do_init_segment(self, step: dict[str, Any], result: Any, error: str | None) -> None:
        """CosId's own INSERT; ours has no such step, but a row made by it is used as it lies."""
        if error == "IllegalArgumentException":
            with pytest.raises(InvalidArgumentError):
                self.distributor(step["offset"])
        elif error is not None or result is False:
            with pytest.raises(self.duplicate):
                await self.execute(self.init_segment, self.key, step["offset"])
        else:
            await self.execute(self.init_segment, self.key, step["offset"])

    async def do_try_init_segment(
        self, step: dict[str, Any], result: Any, error: str | None
    ) -> None:
        """The same, which answers False where the other raises."""
        assert result is False
        if step["offset"] >= 0:
            await self.do_init_segment(step, result, error)


@pytest.mark.parametrize("vector", vectors("segment_scenario"))
async def test_segment_scenario(
    vector: dict[str, Any], store: PostgresStore, raw: Connection
) -> None:
    """Replies and rows after every step."""
    await store.create_schema()
    replay = Replay(vector["args"], store, raw)
    for step, due in zip(vector["args"]["steps"], vector["result"], strict=True):
        await replay.step(step, due)


@pytest.mark.parametrize("vector", vectors("segment_id"))
async def test_segment_id(vector: dict[str, Any], store: PostgresStore, raw: Connection) -> None:
    """Two SegmentId in turn on one counter give the same ids, and leave the same row."""
    await store.create_schema()
    args = vector["args"]
    assert args["clients"] == 2
    described = {key: args[key] for key in ("namespace", "name", "offset", "step")}
    async with (
        SegmentId(store.segment_distributor(**described)) as one,
        SegmentId(store.segment_distributor(**described)) as other,
    ):
        turns = [(await one.next_id(), await other.next_id()) for _ in range(args["count_each"])]
    clients = {f"client{i}": list(ids) for i, ids in enumerate(zip(*turns, strict=True))}
    assert clients | {"rows": await rows(raw)} == vector["result"]


@pytest.mark.parametrize("vector", vectors("init_table"))
async def test_table(vector: dict[str, Any], store: PostgresStore, raw: Connection) -> None:
    """The same columns, types, defaults and key as CosId's; a missing table is an error first."""
    _, made = vector["result"]
    with pytest.raises(SchemaMissingError):
        await store.segment_distributor(name="order").next_max_id(1)
    await store.create_schema()
    await store.create_schema()
    columns = await raw.fetch(
        "SELECT column_name, data_type, character_maximum_length, column_default, is_nullable "
        "FROM information_schema.columns WHERE table_name = 'cosid' ORDER BY ordinal_position"
    )
    assert [dict(column) for column in columns] == made["schema"]["columns"]
    indexes = await raw.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'cosid'"
    )
    assert [dict(index) for index in indexes] == made["schema"]["indexes"]


@pytest.mark.parametrize("vector", vectors("segment_new"))
async def test_bad_description(vector: dict[str, Any]) -> None:
    """What CosId refuses to be made, ours does as well."""
    assert vector["error"]["type"] == "IllegalArgumentException"
    with pytest.raises(InvalidArgumentError):
        PostgresStore.from_url("postgresql:///x").segment_distributor(**vector["args"])
