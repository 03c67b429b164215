"""Time that stands still, and an ear for events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import settings

from aiocosid.testing import ManualClock, settle

from ._kit import Ear, calls_under_way, tasks

# A busy machine is no defect.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest_asyncio.fixture
async def clock() -> AsyncIterator[ManualClock]:
    """Of a test that leaves nothing: no task, no timer, no call of its own."""
    clock = ManualClock()
    yield clock
    await settle()
    assert (tasks(), clock.pending, calls_under_way()) == ([], 0, [])


@pytest.fixture
def ear() -> Ear:
    return Ear()
