"""Who asks a cache that did not answer."""

from __future__ import annotations

from aiocosid.stores.tiered import Outage
from aiocosid.testing import ManualClock


async def test_one_asks_and_the_others_need_not_wait() -> None:
    """After each pause one; after an answer all."""
    clock = ManualClock()
    outage = Outage(clock, 5.0)
    assert outage.is_to_be_asked()
    assert outage.is_to_be_asked()
    assert outage.begin()
    assert not outage.is_to_be_asked()
    for _ in range(2):
        await clock.advance(5.0)
        assert [outage.is_to_be_asked() for _ in range(3)] == [True, False, False]
    assert not outage.begin()
    assert not outage.is_to_be_asked()
    outage.end()
    assert outage.is_to_be_asked()
    assert outage.is_to_be_asked()
