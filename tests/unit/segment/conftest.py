"""Time that stands still, and an ear for events."""

from __future__ import annotations

import pytest

from aiocosid.testing import ManualClock

from ._kit import Ear


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ear() -> Ear:
    return Ear()
