"""Databases with other systems' tables, and what old nodes do in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aiocosid.abc import IdSegmentDistributor

Execute: TypeAlias = Callable[..., Awaitable[Sequence[Any]]]

TURNS = pytest.mark.parametrize("turns", [60, pytest.param(1000, marks=pytest.mark.nightly)])
"""How often an old node and ours take turns."""


def engine_on(request: pytest.FixtureRequest, database: str) -> AsyncEngine:
    """Make an engine on an empty database: ``mariadb``, ``postgres`` or ``sqlite``."""
    if database == "sqlite":
        return create_async_engine(
            f"sqlite+aiosqlite:///{request.getfixturevalue('tmp_path')}/a.db"
        )
    url: str = request.getfixturevalue(f"{database}_database")
    url = url.replace("mysql://", "mysql+asyncmy://")
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))


def executes(engine: AsyncEngine) -> Execute:
    """Return what runs SQL in the database, by nobody's leave."""

    async def execute(statement: str, **values: Any) -> Sequence[Any]:
        async with engine.begin() as connection:
            result = await connection.execute(text(statement), values)
            return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    return execute


async def take_turns(
    turns: int, ours: IdSegmentDistributor, old: Callable[[], range], steps: Sequence[int]
) -> list[range]:
    """Let ours and an old node take ranges in turn, ours by one step after the other."""
    ranges: list[range] = []
    for turn in range(turns):
        if turn % 2:
            ranges.append(old())
        else:
            step = steps[turn // 2 % len(steps)]
            last = await ours.next_max_id(step)
            ranges.append(range(last - step + 1, last + 1))
    return ranges


def assert_disjoint(ranges: Sequence[range]) -> None:
    """Check that no id is in two of the ranges."""
    ids = [number for each in ranges for number in each]
    assert len(set(ids)) == len(ids)
