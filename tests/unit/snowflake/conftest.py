"""Time that stands still, and an ear for events."""

from __future__ import annotations

import pytest
from hypothesis import settings

from aiocosid.testing import ManualClock

from ._kit import Ear

# A busy machine is no defect.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ear() -> Ear:
    return Ear()
