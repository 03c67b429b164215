"""Many processes that number invoices in real transactions, killed and restarted in the middle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from aiocosid.errors import CosIdError
from aiocosid.integrations.sqlalchemy import begin_immediate, gapless_batch
from aiocosid.stores.series_admin import audit_series, open_series
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from tests.chaos._fleet import forkserver
from tests.servers import MariadbServer, PostgresServer, Server

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(0)]  # see PATIENCE

TRANSACTIONS: Final = int(os.environ.get("AIOCOSID_GAPLESS_TRANSACTIONS", "600"))
"""Commits of each case.  There are some 200 a second on two cores."""

KILLS, RESTARTS = 6, 2  # of workers and of the server, in the course of a case
PATIENCE: Final = 60.0  # seconds without any further commit

INSERT: Final = "INSERT INTO invoice (number, is_first) VALUES (:number, :is_first)"
SEEN: Final = text("SELECT count(*), max(number), sum(is_first) FROM invoice")


def engine_on(url: str) -> AsyncEngine:
    """An application's engine."""
    if url.startswith("sqlite"):
        engine = create_async_engine(url, connect_args={"timeout": 30})
        begin_immediate(engine)
        return engine
    return create_async_engine(url, isolation_level="READ COMMITTED")


async def transact(connection: AsyncConnection, draw: random.Random) -> None:
    """Write invoices, of which some are taken back before the commit, or all of them."""
    before = draw.random() < 0.3
    if before:
        savepoint = await connection.begin_nested()
        await write(connection, draw.randint(1, 3))
        await savepoint.rollback()
    await write(connection, draw.choice([1, 1, 1, 7]))
    if draw.random() < 0.2:
        await connection.rollback()
    else:
        await connection.commit()


async def write(connection: AsyncConnection, count: int) -> None:
    """Number so many invoices, and write them."""
    numbers = await gapless_batch(connection, "invoice", count)
    rows = [{"number": each.number, "is_first": int(each == numbers[0])} for each in numbers]
    await connection.execute(text(INSERT), rows)


async def work(url: str, seed: int) -> None:
    """Run transactions until killed; begin again after whatever goes wrong."""
    engine, draw = engine_on(url), random.Random(seed)  # noqa: S311 - nothing secret
    while True:
        with suppress(CosIdError, DBAPIError, OSError):
            async with engine.connect() as connection:
                for _ in range(100):
                    await transact(connection, draw)
        await asyncio.sleep(0.02)


def run(url: str, seed: int) -> None:
    """Run in a process of its own."""
    asyncio.run(work(url, seed))


class Crowd:
    """Processes that run transactions; a context manager, at whose end none of them is left.

    Attributes:
        started: how many were, in all.
    """

    def __init__(self, url: str, size: int) -> None:
        self._url, self.started = url, 0
        self._running = [self._spawn() for _ in range(size)]

    def _spawn(self) -> BaseProcess:
        process = forkserver().Process(target=run, args=(self._url, self.started), daemon=True)
        self.started += 1
        process.start()
        return process

    def replace_one(self, draw: random.Random) -> None:
        """Kill -9 one of them and start another one."""
        at = draw.randrange(len(self._running))
        self._end(self._running[at])
        self._running[at] = self._spawn()

    def close(self) -> None:
        """Kill -9 all of them."""
        assert all(each.is_alive() for each in self._running)  # none has ended by itself
        for each in self._running:
            self._end(each)

    @staticmethod
    def _end(process: BaseProcess) -> None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()


@contextmanager
def database(driver: str, folder: Path) -> Generator[tuple[str, Server | None]]:
    """A database of the test's own: its URL and its server, if it has one."""
    if driver == "aiosqlite":
        with sqlite3.connect(folder / "shop.db") as file:
            file.execute("PRAGMA journal_mode = WAL")
        file.close()
        yield f"sqlite+aiosqlite:///{folder / 'shop.db'}", None
        return
    made = MariadbServer() if driver == "asyncmy" else PostgresServer()
    with made as server:
        url = server.create_database("shop")
        yield url.replace(":", f"+{driver}:", 1), server


@pytest.mark.parametrize(
    ("driver", "size"), [("asyncpg", 16), ("psycopg", 16), ("asyncmy", 16), ("aiosqlite", 4)]
)
def test_neither_a_hole_nor_a_repeat(
    driver: str, size: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """At each moment what is committed is 1 to some number; so the numbers rise as commits do."""
    with database(driver, tmp_path) as (url, server):
        found = asyncio.run(watched(url, size, server))
    print(driver, found)  # noqa: T201 - the figures
    record_property(driver, found)
    assert (found["holes"], found["repeats"], found["foreign"]) == (0, 0, 0)
    assert found["transactions"] >= TRANSACTIONS


async def watched(url: str, size: int, server: Server | None) -> dict[str, Any]:
    """Watch a crowd until it has committed enough; return what is to be said of its invoices."""
    engine, draw = engine_on(url), random.Random(size)  # noqa: S311 - nothing secret
    store = SqlAlchemyStore(engine, durability="ignore")
    await store.create_schema()
    async with engine.begin() as connection:
        await connection.execute(
            text("CREATE TABLE invoice (number BIGINT NOT NULL, is_first INTEGER NOT NULL)")
        )
    await open_series(store, "invoice")
    kills = [TRANSACTIONS * each // (KILLS + 1) for each in range(1, KILLS + 1)]
    restarts = [TRANSACTIONS * each // (RESTARTS + 1) for each in range(1, RESTARTS + 1)]
    if server is None:
        restarts.clear()
    transactions, looks, began = 0, 0, time.monotonic()
    progress = began
    with ExitStack() as stack:
        crowd = Crowd(url, size)
        stack.callback(crowd.close)
        while transactions < TRANSACTIONS:
            await asyncio.sleep(max(0.02, transactions / 1_000_000))
            async with engine.connect() as connection:
                count, last, firsts = (await connection.execute(SEEN)).one()
            assert count == (last or 0), f"{count} rows up to {last}"
            looks += 1
            if (firsts or 0) > transactions:
                transactions, progress = int(firsts), time.monotonic()
            assert time.monotonic() - progress < PATIENCE, f"stuck after {transactions}"
            if kills and transactions >= kills[0]:
                crowd.replace_one(draw)
                del kills[0]
            if server and restarts and transactions >= restarts[0]:
                server.kill() if len(restarts) % 2 else server.restart()
                if not server.running:
                    server.start()
                await engine.dispose()
                del restarts[0]
    took = time.monotonic() - began
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT number FROM invoice GROUP BY number HAVING count(*) > 1")
        )
        assert not rows.all()
        count, last, firsts = (await connection.execute(SEEN)).one()
        transactions = int(firsts)
    audit = await audit_series(store, "invoice", column="invoice.number")
    await engine.dispose()
    assert (audit.count, audit.last, audit.series.last_number) == (count, last, last)
    return {
        "transactions": transactions,
        "numbers": count,
        "holes": len(audit.missing),
        "repeats": len(audit.repeated),
        "foreign": audit.foreign,
        "workers": crowd.started,
        "looks": looks,
        "transactions a second": round(transactions / took),
    }
