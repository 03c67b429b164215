"""Each store in turn, opened on the test's own loop and closed with it.

``make test`` runs every store on one loop; ``make stress`` runs them on the other one too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aiocosid.abc import Store

from ._stores import STORES, Backend

HERE = Path(__file__).parent

NOT_ON_TRIO = {"chain-1", "chain-1000", "far-chain-7", "segment-1", "segment-1000"}  # kinds


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to ``make stress`` what nearly repeats another test."""
    for item in items:
        if HERE in item.path.parents and is_repetition(item):
            item.add_marker(pytest.mark.stress)


def is_repetition(item: pytest.Item) -> bool:
    """Tell whether a test has a twin: Redis is Valkey's, on uvloop; uvloop is asyncio's else.

    A tiered store differs from others in what its distributors do, and in no generator.
    """
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    words = item.callspec.id.split("-")
    if not {"tiered", "tiered_pg"}.isdisjoint(words):
        needed = (
            ["TestOnOneStore"] if "tiered_pg" in words else ["TestOnOneStore", "TestOnTheirOwn"]
        )
        return "uvloop" in words or item.cls is None or item.cls.__name__ not in needed
    if "asyncio" in words or "uvloop" in words:
        return ("uvloop" in words) != ("redis" in words)
    return item.callspec.params.get("kind") in NOT_ON_TRIO


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
