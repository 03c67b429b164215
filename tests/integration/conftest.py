"""A database for what users and other systems keep in theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from ._other_tables import Execute, engine_on, executes


@pytest_asyncio.fixture(params=["mariadb", "postgres", "sqlite"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine of the user's own, on an empty database."""
    engine = engine_on(request, request.param)
    yield engine
    await engine.dispose()


@pytest.fixture
def execute(engine: AsyncEngine) -> Execute:
    """Run SQL in the database."""
    return executes(engine)
