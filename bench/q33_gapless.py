"""What does a gapless number cost beside an `UPDATE ... RETURNING` that somebody wrote by hand?"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

import aiocosid
from aiocosid.abc import IdGenerator
from aiocosid.integrations.sqlalchemy import gapless
from aiocosid.stores.series_admin import open_series
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from tests.servers import PostgresServer

from ._harness import Answer, beside, ratio

COMMITS = 160  # of each round
ROUNDS = 21
BAR = 0.95

TABLES = (
    "CREATE TABLE invoice (number BIGINT PRIMARY KEY, title TEXT)",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, last_number BIGINT)",
    "INSERT INTO counter VALUES ('invoice', 0)",
)
BY_HAND = text(
    "UPDATE counter SET last_number = last_number + 1 WHERE name = :name RETURNING last_number"
)
INSERT = text("INSERT INTO invoice VALUES (:number, 'tea')")

Take = Callable[[AsyncConnection], Awaitable[Any]]


async def by_hand(connection: AsyncConnection) -> int:
    """Take the number with a statement of the application's own."""
    number: int = (await connection.execute(BY_HAND, {"name": "invoice"})).scalar_one()
    return number


async def ours(connection: AsyncConnection) -> int:
    """Take the number of a series."""
    return (await gapless(connection, "invoice")).number


async def commits(engine: AsyncEngine, take: Take, tasks: int) -> None:
    """Write an invoice a transaction, of so many tasks at once."""

    async def some() -> None:
        async with engine.connect() as connection:
            for _ in range(COMMITS // tasks):
                async with connection.begin():
                    await connection.execute(INSERT, {"number": await take(connection)})

    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM invoice"))
    await asyncio.gather(*(some() for _ in range(tasks)))


def with_ids_of(orders: IdGenerator) -> Take:
    """Return what takes a chain's id, for which nobody waits, and which may leave a gap."""

    async def take(_: AsyncConnection) -> int:
        return await orders.next_id()

    return take


async def ask() -> Answer:
    """Commit invoices in turn: numbers by hand, of a series, and ids of a chain."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    with PostgresServer("-c", "fsync=on") as server:
        engine = create_async_engine(server.url.replace("://", "+asyncpg://"), pool_size=8)
        async with SqlAlchemyStore(engine) as store:
            await store.create_schema()
            await store.initialize(confirm_no_holders=True)
            async with engine.begin() as connection:
                for statement in TABLES:
                    await connection.execute(text(statement))
            await open_series(store, "invoice")
            async with aiocosid.connect(store) as ids:
                chain = with_ids_of(await ids.segment_chain("order"))
                ways: dict[str, tuple[Take, int]] = {
                    "`gapless`, one task": (ours, 1),
                    "`gapless`, eight tasks": (ours, 8),
                    "a chain's id, eight tasks": (chain, 8),
                }
                for way, (take, tasks) in ways.items():
                    for each in (by_hand, take):
                        await commits(engine, each, tasks)  # the first one compiles
                    found[way] = await beside(
                        lambda tasks=tasks: commits(engine, by_hand, tasks),  # type: ignore[misc]
                        lambda take=take, tasks=tasks: commits(engine, take, tasks),  # type: ignore[misc]
                        ROUNDS,
                    )
        await engine.dispose()
    # Commits a second, so more is better.
    ratios = {way: ratio(hand, taken) for way, (hand, taken) in found.items()}
    judged = [way for way in found if way.startswith("`gapless`")]
    worst = min(ratios[way] for way in judged)
    return Answer(
        "Commits a second with a gapless number, against a hand-written `UPDATE ... RETURNING`",
        f"at least {BAR:.0%}, with fsync, as invoices need it",
        worst >= BAR,
        f"{worst:.0%} of its commits a second, on PostgreSQL.",
        ("number from", "by hand, commits/s", "commits/s", "ratio"),
        tuple(
            (
                way,
                f"{COMMITS / statistics.median(hand):.0f}",
                f"{COMMITS / statistics.median(taken):.0f}",
                f"{ratios[way]:.2f}",
            )
            for way, (hand, taken) in found.items()
        ),
        raw={"seconds": found, "commits": COMMITS, "rounds": ROUNDS},
    )
