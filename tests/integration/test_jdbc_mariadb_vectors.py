"""What CosId 3.2.1 does on MariaDB, step by step, and the same through ours.

The differences on purpose are those of the vectors for PostgreSQL: see `test_jdbc_vectors` and
`test_jdbc_machine_vectors`.  The tables here are CosId's own, in the database's default collation,
which takes ``a`` and ``A`` for one.
"""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pymysql  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from aiocosid import SegmentId
from aiocosid.errors import InvalidArgumentError, SchemaMissingError
from aiocosid.stores.mysql import MysqlStore
from tests.servers import IS_MYSQL, MariadbServer

from . import test_jdbc_machine_vectors, test_jdbc_vectors
from ._machine_tables import MACHINE_COLUMNS, believe_table

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FOLDER: Final = Path(__file__).parents[1] / "vectors"
SEGMENTS: Final = json.loads((FOLDER / "jdbc_mariadb_segment.json").read_text(encoding="utf-8"))
MACHINES: Final = json.loads(
    gzip.decompress((FOLDER / "jdbc_mariadb_machine.json.gz").read_bytes())
)
COSIDS: Final[dict[str, str]] = SEGMENTS["vectors"][0]["result"]

ROWS: Final = """
SELECT name, last_max_id, last_fetch_time,
    abs(CAST(last_fetch_time AS SIGNED) - unix_timestamp()) < 60 FROM cosid ORDER BY name
"""


def vectors(op: str, source: dict[str, Any] = SEGMENTS) -> list[dict[str, Any]]:
    """The vectors of one operation."""
    chosen = [each for each in source["vectors"] if each["op"] == f"jdbc.{op}"]
    assert chosen
    return chosen


@pytest.fixture
def raw(mariadb: MariadbServer, mariadb_database: str, namespace: str) -> Iterator[Any]:
    """A connection for what others do to the tables."""
    with closing(mariadb.connect(namespace)) as connection:
        yield connection


@pytest_asyncio.fixture
async def store(mariadb_database: str) -> AsyncIterator[MysqlStore]:
    """A store in an empty database."""
    async with believe_table(MysqlStore.from_url(mariadb_database)) as store:
        yield store


def fetch(raw: Any, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement, with ``?`` or ``$1`` for values, as CosId's JDBC driver does."""
    with raw.cursor() as cursor:
        cursor.execute(re.sub(r"\$\d|\?", "%s", sql.rstrip(";")), values or None)
        return list(cursor.fetchall())


class Replay(test_jdbc_vectors.Replay):
    """One scenario about segments."""

    init_segment = COSIDS["INIT_ID_SEGMENT_SQL"]
    duplicate = pymysql.err.IntegrityError

    async def execute(self, sql: str, *values: Any) -> None:
        fetch(self.raw, sql, *values)

    async def rows(self) -> list[dict[str, Any]]:
        return segment_rows(self.raw)

    async def do_set(self, step: dict[str, Any], result: Any, error: str | None) -> None:
        sql = "UPDATE cosid SET last_max_id = ?, last_fetch_time = 5 WHERE name = ?"
        fetch(self.raw, sql, step["value"], self.key)


def segment_rows(raw: Any) -> list[dict[str, Any]]:
    """The table as the vectors write it."""
    return [
        {"name": name, "last_max_id": value, "last_fetch_time": "db_now" if is_now else at}
        for name, value, at, is_now in fetch(raw, ROWS)
    ]


async def test_segments(store: MysqlStore, raw: Any) -> None:
    """Replies and rows after every step; two SegmentId in turn; what CosId refuses to be made."""
    with pytest.raises(SchemaMissingError, match="'cosid'"):
        await store.segment_distributor(name="order").next_max_id(1)
    fetch(raw, COSIDS["INIT_COSID_TABLE_SQL"])
    fetch(raw, "CREATE TABLE test_clock (ms bigint)")
    fetch(raw, "INSERT INTO test_clock VALUES (0)")
    await store.create_schema()
    await store.initialize(confirm_no_holders=True)
    for vector in vectors("segment_scenario"):
        replay = Replay(vector["args"], store, raw)
        for step, due in zip(vector["args"]["steps"], vector["result"], strict=True):
            await replay.step(step, due)
        fetch(raw, "DELETE FROM cosid")
        fetch(raw, "DELETE FROM aiocosid_cell WHERE name = 'counters'")
    for vector in vectors("segment_id"):
        args = vector["args"]
        described = {key: args[key] for key in ("namespace", "name", "offset", "step")}
        async with (
            SegmentId(store.segment_distributor(**described)) as one,
            SegmentId(store.segment_distributor(**described)) as other,
        ):
            turns = [
                (await one.next_id(), await other.next_id()) for _ in range(args["count_each"])
            ]
        clients = {f"client{i}": list(ids) for i, ids in enumerate(zip(*turns, strict=True))}
        assert clients | {"rows": segment_rows(raw)} == vector["result"]
        fetch(raw, "DELETE FROM cosid")
        fetch(raw, "DELETE FROM aiocosid_cell WHERE name = 'counters'")
    for vector in vectors("segment_new"):
        with pytest.raises(InvalidArgumentError):
            MysqlStore.from_url("mysql:///x").segment_distributor(**vector["args"])


async def test_tables(mariadb_database: str, raw: Any) -> None:
    """The same columns, types, defaults, comments, keys and indexes as CosId's."""
    async with MysqlStore.from_url(mariadb_database) as store:
        with pytest.raises(SchemaMissingError, match="'cosid_machine'"):
            await store.machines()
        await store.create_schema()
        await store.create_schema()
    made = {
        "cosid": vectors("init_table")[0]["result"][1]["schema"],
        "cosid_machine": vectors("init_machine_table", MACHINES)[0]["result"]["schema"],
    }
    facts: tuple[str, ...]
    for table, schema in made.items():
        facts = ("column_name", "column_type", "column_default", "is_nullable", "column_comment")
        columns = fetch(
            raw,
            f"SELECT {', '.join(facts)} FROM information_schema.columns "
            "WHERE table_schema = database() AND table_name = ? ORDER BY ordinal_position",
            table,
        )
        due = schema["columns"]
        if IS_MYSQL:  # it tells no width of a number, and quotes no default
            due = json.loads(re.sub(r"(?<=int)\(\d+\)|(?<=\")''(?=\")", "", json.dumps(due)))
        assert [dict(zip(facts, each, strict=True)) for each in columns] == due
        facts = ("index_name", "column_name", "non_unique")
        indexes = fetch(
            raw,
            f"SELECT {', '.join(facts)} FROM information_schema.statistics "
            "WHERE table_schema = database() AND table_name = ? ORDER BY index_name",
            table,
        )
        assert [dict(zip(facts, each, strict=True)) for each in indexes] == schema["indexes"]


class MachineReplay(test_jdbc_machine_vectors.Replay):
    """One scenario about machine ids."""

    async def put(self, rows: list[dict[str, Any]], now: int) -> None:
        fetch(self.raw, "DELETE FROM cosid_machine")
        fetch(self.raw, "DELETE FROM aiocosid_cell WHERE name <> 'marker'")
        with self.raw.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO cosid_machine ({', '.join(MACHINE_COLUMNS)}) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [[row[column] for column in MACHINE_COLUMNS] for row in rows],
            )
            cursor.executemany(
                "INSERT INTO aiocosid_cell (name, value, written_ms) VALUES (%s, %s, 0)",
                [self.record(row) for row in rows if self.is_stable(row)],
            )
        fetch(self.raw, "UPDATE test_clock SET ms = ?", now)

    async def rows(self) -> dict[int, dict[str, Any]]:
        found = fetch(self.raw, f"SELECT {', '.join(MACHINE_COLUMNS)} FROM cosid_machine")
        rows: list[dict[str, Any]]
        rows = [dict(zip(MACHINE_COLUMNS, each, strict=True)) for each in found]
        return {row["machine_id"]: row for row in rows}


async def test_machines(store: MysqlStore, raw: Any) -> None:
    """The same id and rows after every step, but for the differences on purpose."""
    fetch(raw, COSIDS["INIT_COSID_MACHINE_TABLE_SQL"])
    fetch(raw, "CREATE TABLE test_clock (ms bigint)")
    fetch(raw, "INSERT INTO test_clock VALUES (0)")
    await store.create_schema()
    await store.initialize(confirm_no_holders=True)
    for vector in vectors("machine_scenario", MACHINES):
        replay = MachineReplay(vector["args"], store, raw)
        await replay.run(vector["result"])
        due = test_jdbc_machine_vectors.DIFFERENCES.get(vector["args"]["no"], set())
        assert replay.differences == due, vector["args"]["no"]
