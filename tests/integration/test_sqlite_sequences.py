"""Sequences of a second in a SQLite file: processes beside each other, and files that lose them."""

# ruff: noqa: ASYNC220, ASYNC240 - nothing else runs on the loop meanwhile

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import aiosqlite
import pytest
import pytest_asyncio

import aiocosid
from aiocosid.abc import SecondFenced, SequenceGrant
from aiocosid.errors import (
    CorruptCounterError,
    SchemaDroppedError,
    SequenceUnavailableError,
    StoreError,
)
from aiocosid.snowflake import ShardedId, ShardedLayout
from aiocosid.stores._sequence_rules import SequenceAnswer, SequenceState
from aiocosid.stores.sqlite import SqliteStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LAYOUT = ShardedLayout()
LONG: Final[dict[str, Any]] = {"tolerance": 60}  # seconds: for tests that stay in one second

NODE = """
import asyncio, json, sys
from aiocosid.snowflake import ShardedId
from aiocosid.stores.sqlite import SqliteStore
async def main():
    async with SqliteStore.from_url(sys.argv[1]) as store:
        made = store.sequence_distributor(name="order", max_sequence=20_000)
        async with ShardedId(made, batch=7, wait_timeout=20, on_unavailable="wait") as ids:
            while True:
                print(json.dumps(await ids.next_ids(100, int(sys.argv[2]))), flush=True)
asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ids.db"


@pytest_asyncio.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store with its tables, and the marker of a file that has lost nothing."""
    async with SqliteStore.from_url(f"sqlite:///{path}") as store:
        await store.create_schema()
        yield store


def execute(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Run a statement behind everybody's back."""
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, values).fetchall()


def open_fence(path: Path, name: str = "cosid.order") -> None:
    """Have a name that has lost nothing, so that no test waits for a second."""
    text = SequenceState(f"{path.stat().st_ino}").text(SequenceAnswer(0, 1, 1, 0, 0))
    cell = f"sequence/{name}", text, 0
    execute(path, "insert or replace into aiocosid_cell values (?, ?, ?)", *cell)


async def test_a_new_name_is_behind_a_fence_of_a_second(store: SqliteStore, path: Path) -> None:
    """A row that was never there looks like one that was deleted."""
    asked = store.sequence_distributor(namespace="shop", name="order")
    now = int(time.time())
    reply = await asked.grant(now, 5)
    assert isinstance(reply, SecondFenced)
    assert reply.opens == reply.now + 3
    [(name, text)] = execute(path, "select name, value from aiocosid_cell where name <> 'marker'")
    assert name == "sequence/shop.order"
    assert json.loads(str(text))["identity"] == str(path.stat().st_ino)


@pytest.mark.stress  # seconds of three processes
async def test_processes_of_which_some_are_killed(store: SqliteStore, path: Path) -> None:
    """On one file: second and sequence alone tell any two ids apart, of all shards."""
    open_fence(path)
    texts: list[str] = []
    running: list[subprocess.Popen[str]] = []
    for shard in range(6):
        command = [sys.executable, "-c", NODE, f"sqlite:///{path}", str(shard)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        if len(running) > 2:
            texts += _killed(running.pop(0), lines=20)
    for node in running:
        texts += _killed(node, lines=5)
    ids = [each for text in texts for each in json.loads(text)]
    assert len({LAYOUT.parse(each)[::2] for each in ids}) == len(ids) >= 6 * 500
    assert {LAYOUT.parse(each).sharding_id for each in ids} == set(range(6))


def _killed(node: subprocess.Popen[str], *, lines: int) -> list[str]:
    """Kill a node after some of its lines; return all that are whole."""
    assert node.stdout is not None
    found = [node.stdout.readline() for _ in range(lines)]
    os.kill(node.pid, signal.SIGKILL)
    found += node.stdout.read().splitlines(keepends=True)
    node.stdout.close()
    node.wait()
    return [each for each in found if each.endswith("]\n")]


async def test_its_row_is_deleted_while_generators_run(store: SqliteStore, path: Path) -> None:
    """They wait for a second of which nothing was granted, and repeat nothing."""
    open_fence(path)
    ids: list[int] = []
    made = store.sequence_distributor(name="order", tolerance=1)
    async with (
        ShardedId(made, batch=1, on_unavailable="wait") as one,
        ShardedId(made, batch=1, on_unavailable="wait") as other,
    ):
        for _ in range(2):
            for each in (one, other, one, other):
                ids += await each.next_ids(3)
            execute(path, "delete from aiocosid_cell where name like 'sequence/%'")
        ids += await one.next_ids(3)
        ids += await other.next_ids(3)
        assert one.statistics().fenced + other.statistics().fenced > 0
    assert len({LAYOUT.parse(each)[::2] for each in ids}) == len(ids) == 30


async def test_its_table_is_dropped_while_a_generator_runs(store: SqliteStore, path: Path) -> None:
    """The error says so; and neither it nor another generator makes the table again."""
    open_fence(path)
    made = store.sequence_distributor(name="order")
    async with ShardedId(made, batch=1) as ids:
        await ids.next_id(7)
        execute(path, "drop table aiocosid_cell")
        with pytest.raises(SequenceUnavailableError, match="aiocosid_cell") as caught:
            await ids.next_ids(3, 7)
        assert isinstance(caught.value.__cause__, SchemaDroppedError)
        assert not caught.value.retryable
    with pytest.raises(SchemaDroppedError, match="aiocosid_cell"):
        await made.grant(int(time.time()), 1)
    assert not execute(path, "select 1 from sqlite_master where name = 'aiocosid_cell'")


async def test_a_file_restored_from_a_backup(path: Path) -> None:
    """What was granted after the backup is granted no more, nor what was granted before."""
    url, backup = f"sqlite:///{path}", path.with_name("backup.db")
    async with SqliteStore.from_url(url) as store:
        await store.create_schema()
        open_fence(path)
        made = store.sequence_distributor(name="order", **LONG)
        second = int(time.time())
        assert await made.grant(second, 5) == SequenceGrant(second, 1, 5)
        backup.write_bytes(path.read_bytes())
        assert await made.grant(second + 50, 5) == SequenceGrant(second + 50, 1, 5)
    backup.replace(path)
    async with SqliteStore.from_url(url) as store:
        made = store.sequence_distributor(name="order", **LONG)
        for late in (0, 50):
            reply = await made.grant(second + late, 5)
            assert isinstance(reply, SecondFenced)
            assert reply.opens > second + 60


@pytest.mark.parametrize("value", ["", "7", "x", "{}", 7, b"\xff", '{"answer": [1e999]}'])
async def test_what_is_no_state(store: SqliteStore, path: Path, value: object) -> None:
    """It stays as it is, and no sequence is granted."""
    open_fence(path)
    execute(path, "update aiocosid_cell set value = ? where name like 'sequence/%'", value)
    made = store.sequence_distributor(name="order")
    with pytest.raises(CorruptCounterError, match=r"sequence/cosid\.order") as caught:
        await made.grant(int(time.time()), 1)
    assert not caught.value.retryable
    assert execute(path, "select value from aiocosid_cell where name like 'sequence/%'") == [
        (value if value != 7 else "7",)
    ]


async def test_on_a_connection_of_ones_own(store: SqliteStore, path: Path) -> None:
    """Beside a store from a URL; in an open transaction nothing is granted."""
    open_fence(path)
    second = int(time.time())
    mine = store.sequence_distributor(name="order", **LONG)
    async with aiosqlite.connect(path) as connection:
        yours = SqliteStore(connection, durability="ignore").sequence_distributor(
            name="order", **LONG
        )
        assert await yours.grant(second, 5) == SequenceGrant(second, 1, 5)
        assert await mine.grant(second, 5) == SequenceGrant(second, 6, 10)
        await connection.execute("begin")
        with pytest.raises(StoreError, match="transaction"):
            await yours.grant(second, 5)
        await connection.rollback()
        assert await yours.grant(second, 5) == SequenceGrant(second, 11, 15)


async def test_a_provider_creates_the_file(path: Path) -> None:
    """With the default layout, and nothing but a URL."""
    async with aiocosid.connect(f"sqlite:///{path}", create=True) as ids:
        orders = await ids.sharded("order")
        assert LAYOUT.parse(await orders.next_id(1234)).sharding_id == 1234
    with pytest.raises(StoreError, match="no such file"):
        async with aiocosid.connect(f"sqlite:///{path}.other") as ids:
            await ids.sharded("order")
