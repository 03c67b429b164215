"""A line to a store in memory, in time that stands still."""

from __future__ import annotations

import pytest

from aiocosid.testing import ManualClock

from ._kit import Link, store_of


@pytest.fixture
def link(clock: ManualClock) -> Link:
    return Link(store_of(clock))
