"""What a counter is at, without changing it."""

from __future__ import annotations

import pytest

from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import NotOpenError, StoreError, StoreUnavailableError, UnsupportedByStoreError
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.testing import ManualClock, WrappedDistributor, settle

from .._kit import Call, settled
from ._kit import counter


class Mute(WrappedDistributor):
    """Never answers a look."""

    async def peek(self) -> int | None:
        await ManualClock().sleep(1)
        raise AssertionError


class Broken(WrappedDistributor):
    """Answers a look with a driver's error."""

    async def peek(self) -> int | None:
        raise OSError("unplugged")


class Blind(WrappedDistributor):
    """Has no way to look."""

    peek = IdSegmentDistributor.peek


async def test_it_is_the_last_id_reserved() -> None:
    """By any process; ids in hand of one are below it."""
    inner = counter(step=10)
    async with SegmentId(inner, strict=True) as strict, SegmentChainId(inner) as chain:
        reserved = chain.statistics().max_id
        assert reserved is not None
        assert await chain.peek() == reserved
        assert await strict.next_id() == reserved + 1
        assert await chain.peek() == await strict.peek() == reserved + 1
        assert await chain.next_id() == 1


async def test_before_the_first_id_there_is_none() -> None:
    async with SegmentId(counter(), strict=True) as generator:
        assert await generator.peek() is None


async def test_only_an_open_generator_looks() -> None:
    generator = SegmentId(counter())
    with pytest.raises(NotOpenError):
        await generator.peek()


async def test_errors_are_the_stores(clock: ManualClock) -> None:
    """A driver's exception is the cause; there is a deadline, and no end of the generator."""
    async with SegmentId(Broken(counter()), clock=clock) as generator:
        with pytest.raises(StoreError, match="unplugged") as caught:
            await generator.peek()
        assert isinstance(caught.value.__cause__, OSError)
        assert await generator.next_id() == 1
    async with SegmentId(Blind(counter()), clock=clock) as generator:
        with pytest.raises(UnsupportedByStoreError, match="without changing it"):
            await generator.peek()


async def test_a_look_has_a_deadline_and_can_be_cancelled(clock: ManualClock) -> None:
    async with SegmentId(Mute(counter()), clock=clock, fetch_timeout=1) as generator:
        late, cancelled = Call(generator.peek), Call(generator.peek)
        await settle()
        await settled(cancelled.cancel)
        assert cancelled.is_done
        assert cancelled.error is None
        await clock.advance(1.1)
        assert isinstance(late.error, StoreUnavailableError)
        assert "no answer within 1 s" in str(late.error)
