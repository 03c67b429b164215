"""The pytest plugin of aiocosid: fixtures for tests without a server.

pytest imports this module in every suite of an environment that has aiocosid installed.  So it
imports nothing of aiocosid until a test asks for a fixture.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiocosid.testing import CountingProvider, FailingStore, ManualClock

__all__ = ("aiocosid_clock", "aiocosid_ids", "aiocosid_store", "pytest_configure")


def pytest_configure() -> None:
    """Let stores of tests be disposable, and have each id checked for its loop and thread."""
    os.environ.setdefault("AIOCOSID_DISPOSABLE", "1")
    os.environ.setdefault("AIOCOSID_DEBUG", "1")


@pytest.fixture
def aiocosid_clock() -> Iterator[ManualClock]:
    """A clock that stands still until the test advances it, for all that the test opens."""
    from aiocosid.testing import ManualClock, use_clock

    with use_clock(clock := ManualClock()):
        yield clock


@pytest.fixture
def aiocosid_store() -> Iterator[FailingStore]:
    """An empty store in memory that every URL of a store opens; it fails on demand."""
    from aiocosid.testing import FailingStore, use_store

    with use_store(store := FailingStore()):
        yield store


@pytest.fixture
def aiocosid_ids(request: pytest.FixtureRequest) -> Iterator[CountingProvider]:
    """The default provider of the test: under every name, ids 1, 2, 3 ..."""
    from aiocosid import use_provider
    from aiocosid.testing import CountingProvider

    has_clock = "aiocosid_clock" in request.fixturenames
    ids = CountingProvider(clock=request.getfixturevalue("aiocosid_clock") if has_clock else None)
    with use_provider(ids):
        yield ids
    ids.close()
