"""What do ids of ours cost a bulk insert by SQLAlchemy, beside the database's own?"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import BigInteger, Integer, insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import aiocosid
from aiocosid.integrations.sqlalchemy import SegmentPrimaryKey, assign_ids

from ._harness import Answer, beside, ratio
from ._servers import postgres

N = int(os.environ.get("AIOCOSID_BENCH_ROWS", "10000"))
PLAIN = "insert(Model), rows"
ROUNDS = 21
SLOW_ROUNDS = 5  # of the other ways, where SQLite goes row by row for ids of its own
AIM = 1.0


class Base(DeclarativeBase):
    """Both tables."""


class Ours(SegmentPrimaryKey, Base):
    """Its ids are taken from a chain."""

    __tablename__ = "ours"

    title: Mapped[str]
    amount: Mapped[int]


class Theirs(Base):
    """Its ids are the database's: BIGSERIAL on PostgreSQL, the rowid on SQLite."""

    __tablename__ = "theirs"

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite"), primary_key=True
    )
    title: Mapped[str]
    amount: Mapped[int]


def rows() -> list[dict[str, Any]]:
    """Make the rows of one insert, without ids."""
    return [{"title": f"order {n}", "amount": n} for n in range(N)]


async def bulk(engine: AsyncEngine, model: type[Base]) -> None:
    """Insert dictionaries."""
    async with AsyncSession(engine) as session:
        await session.execute(insert(model), rows())
        await session.commit()


async def returning(engine: AsyncEngine, model: type[Ours | Theirs]) -> None:
    """Insert dictionaries, and learn their ids in their order."""
    async with AsyncSession(engine) as session:
        statement = insert(model).returning(model.id, sort_by_parameter_order=True)
        found = await session.scalars(statement, rows())
        assert len(found.all()) == N
        await session.commit()


async def flush(engine: AsyncEngine, model: type[Base]) -> None:
    """Add objects."""
    async with AsyncSession(engine, expire_on_commit=False) as session:
        session.add_all([model(**row) for row in rows()])
        await session.commit()


async def assigned(engine: AsyncEngine, model: type[Base]) -> None:
    """Add objects; ours have their ids before the flush."""
    async with AsyncSession(engine, expire_on_commit=False) as session:
        session.add_all([model(**row) for row in rows()])
        await assign_ids(session)
        await session.commit()


WAYS = {
    PLAIN: bulk,
    "the same, RETURNING the ids": returning,
    "add_all": flush,
    "add_all, assign_ids": assigned,
}


@asynccontextmanager
async def database(url: str) -> AsyncGenerator[AsyncEngine]:
    """Make the tables, empty."""
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        yield engine
    finally:
        await engine.dispose()


async def ask() -> Answer:
    """Insert so many rows in turn, ids by us and by the database, on two databases."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        urls = {
            "PostgreSQL": server.replace("://", "+asyncpg://"),
            "SQLite": f"sqlite+aiosqlite:///{folder}/app.db",
        }
        async with aiocosid.connect(f"sqlite:///{folder}/ids.db", create=True) as ids:
            await ids.segment_chain("ours")
            with aiocosid.use_provider(ids):
                for name, url in urls.items():
                    for way, work in WAYS.items():
                        async with database(url) as engine:
                            await work(engine, Ours)  # the first one compiles
                            await work(engine, Theirs)
                            found[f"{name}, {way}"] = await beside(
                                lambda w=work, e=engine: w(e, Theirs),  # type: ignore[misc]
                                lambda w=work, e=engine: w(e, Ours),  # type: ignore[misc]
                                ROUNDS if way == PLAIN else SLOW_ROUNDS,
                            )
    ratios = {what: ratio(ours, theirs) for what, (theirs, ours) in found.items()}
    plain = [each for what, each in ratios.items() if what.endswith(PLAIN)]
    return Answer(
        f"{N} rows by SQLAlchemy with our ids, against the database's own",
        f"none; the aim is {AIM} for a bulk insert",
        None,
        f"Ratio {' and '.join(f'{each:.2f}' for each in plain)} (PostgreSQL and SQLite).",
        ("database, way", "the database's, µs/row", "ours, µs/row", "ratio"),
        tuple(
            (
                what,
                f"{statistics.median(theirs) / N * 1e6:.1f}",
                f"{statistics.median(ours) / N * 1e6:.1f}",
                f"{ratios[what]:.2f}",
            )
            for what, (theirs, ours) in found.items()
        ),
        raw={"seconds": found, "n": N, "rounds": ROUNDS},
    )
