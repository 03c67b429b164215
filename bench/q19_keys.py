"""What do keys cost a table of a million rows: uuid4, uuid7, Snowflake, chain, opaque?

AIOCOSID_BENCH_ROWS sets how many rows there are.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import asyncpg

import aiocosid

from ._harness import Answer
from ._servers import postgres
from ._snowflake import snowflake

ROWS = int(os.environ.get("AIOCOSID_BENCH_ROWS", "1000000"))
BATCH = 10_000
ROUNDS = 1  # of a million rows, which average by themselves
NOTE = "x" * 40

Keys = Callable[[int], Awaitable[Sequence[Any]]]


async def uuid4(n: int) -> Sequence[uuid.UUID]:
    """Make random keys."""
    return [uuid.uuid4() for _ in range(n)]


async def uuid7(n: int) -> Sequence[uuid.UUID]:
    """Make keys of RFC 9562: milliseconds, then random bits, which need not rise in between."""
    made: list[uuid.UUID] = []
    for _ in range(n):
        head = (time.time_ns() // 1_000_000) << 80
        tail = secrets.randbits(74)
        made.append(
            uuid.UUID(int=head | 7 << 76 | tail >> 62 << 64 | 2 << 62 | tail & (1 << 62) - 1)
        )
    return made


def opaque(keys: Keys) -> Keys:
    """Scatter integers over 63 bits; by a hash, which is quicker than `OpaqueIdConverter`'s AES."""

    def scatter(key: int) -> int:
        return int.from_bytes(blake2b(key.to_bytes(8), digest_size=8).digest()) >> 1

    async def scattered(n: int) -> Sequence[int]:
        return [scatter(each) for each in await keys(n)]

    return scattered


async def into_postgres(server: str, kind: str, keys: Keys) -> tuple[float, int, int]:
    """Copy rows in batches; seconds without making the keys, and bytes of the index and all."""
    connection = await cast("Any", asyncpg).connect(server)
    try:
        await connection.execute("DROP TABLE IF EXISTS t")
        await connection.execute(f"CREATE TABLE t (id {kind} PRIMARY KEY, note text NOT NULL)")
        seconds = 0.0
        for _ in range(ROWS // BATCH):
            rows = [(key, NOTE) for key in await keys(BATCH)]
            begin = time.perf_counter()
            await connection.copy_records_to_table("t", records=rows)
            seconds += time.perf_counter() - begin
        sizes = "SELECT pg_relation_size('t_pkey'), pg_total_relation_size('t')"
        index, whole = await connection.fetchrow(sizes)
        return seconds, index, whole
    finally:
        await connection.close()


async def into_sqlite(folder: str, kind: str, keys: Keys) -> tuple[float, int, int]:
    """Insert rows in batches, a transaction each; an integer key is the table itself."""
    path = Path(folder) / "keys.db"
    path.unlink(missing_ok=True)
    primary, binary = ("INTEGER", False) if kind == "bigint" else ("BLOB", True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t (id {primary} PRIMARY KEY, note TEXT NOT NULL)")
        seconds = 0.0
        for _ in range(ROWS // BATCH):
            made = await keys(BATCH)
            rows = [(key.bytes if binary else key, NOTE) for key in made]
            begin = time.perf_counter()
            with connection:
                connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
            seconds += time.perf_counter() - begin
        index = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name LIKE 'sqlite_auto%'"
        try:
            (size,) = connection.execute(index).fetchone()
        except sqlite3.OperationalError:  # built without dbstat
            size = -1
        return seconds, size, path.stat().st_size


async def ask() -> Answer:
    """Fill both databases with each kind of key, in turn."""
    found: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        async with aiocosid.connect("memory://") as ids, snowflake() as flakes:
            chain = await ids.segment_chain("q19", step=BATCH)
            kinds: dict[str, tuple[str, Keys]] = {
                "chain": ("bigint", chain.next_ids),
                "Snowflake": ("bigint", flakes.next_ids),
                "uuid7": ("uuid", uuid7),
                "uuid4": ("uuid", uuid4),
                "opaque": ("bigint", opaque(chain.next_ids)),
            }
            for _ in range(ROUNDS):
                for name, (kind, keys) in kinds.items():
                    for database, work in (
                        ("PostgreSQL", into_postgres(server, kind, keys)),
                        ("SQLite", into_sqlite(folder, kind, keys)),
                    ):
                        found.setdefault((database, name), []).append(await work)
    rates = {what: ROWS / statistics.median(s for s, _, _ in f) for what, f in found.items()}
    gain = rates["PostgreSQL", "chain"] / rates["PostgreSQL", "uuid4"]
    return Answer(
        f"{ROWS} rows by their kind of key",
        "",
        None,
        f"On PostgreSQL a chain's keys go in {gain:.2f} x as fast as uuid4's.",
        ("database", "key", "rows/s", "against uuid4", "index, MB", "table and index, MB"),
        tuple(
            (
                database,
                name,
                f"{rates[database, name]:,.0f}",
                f"{rates[database, name] / rates[database, 'uuid4']:.2f}",
                f"{runs[-1][1] / 1e6:.1f}",
                f"{runs[-1][2] / 1e6:.1f}",
            )
            for (database, name), runs in sorted(found.items(), key=lambda each: each[0][0])
        ),
        raw={f"{d}, {n}": runs for (d, n), runs in found.items()} | {"rows": ROWS},
    )
