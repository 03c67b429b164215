"""Stores that do what a test says, in time that stands still."""

from __future__ import annotations

import pytest

from aiocosid.testing import ManualClock

from ..machine._kit import Link, store_of
from ._sequences import Sequences


@pytest.fixture
def store(clock: ManualClock) -> Sequences:
    return Sequences(clock)


@pytest.fixture
def link(clock: ManualClock) -> Link:
    return Link(store_of(clock))
