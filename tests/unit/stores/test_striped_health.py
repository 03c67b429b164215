"""When a store that fails is asked again."""

from __future__ import annotations

import random

import pytest

from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.over import StoreHealth
from aiocosid.testing import ManualClock


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    def longest(_: float, highest: float) -> float:
        return highest

    monkeypatch.setattr(random, "uniform", longest)


async def test_longer_each_time_and_at_most_30_s() -> None:
    clock = ManualClock()
    health, error = StoreHealth(clock), StoreUnavailableError("s", "away")
    for seconds in (0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30):
        health.failed(error)
        await clock.advance(seconds - 0.25)
        assert health.is_resting
        await clock.advance(0.25)
        assert not health.is_resting
    assert health.answered()
    assert not health.answered()
    health.failed(error)
    await clock.advance(0.5)
    assert not health.is_resting


async def test_another_failure_meanwhile_changes_nothing() -> None:
    clock = ManualClock()
    health, error = StoreHealth(clock), StoreUnavailableError("s", "away")
    assert health.failed(error)
    await clock.advance(0.25)
    assert not health.failed(error)
    await clock.advance(0.25)
    assert not health.is_resting
    assert health.failures == 2
