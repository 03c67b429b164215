"""Each store in turn, opened on the test's own loop and closed with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from aiocosid.abc import Store

from ._stores import STORES, Backend


@pytest.fixture(params=STORES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the kinds of store."""
    return STORES[request.param](request)


@pytest_asyncio.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    """An open store with its tables."""
    async with backend.open() as store:
        await store.create_schema()
        yield store
