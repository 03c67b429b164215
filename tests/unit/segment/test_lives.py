"""Lives that end badly: what is torn, stuck, ended by itself, or opened anew all the same."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aiocosid import connect
from aiocosid._life import component
from aiocosid.errors import ClosedError, StoreRolledBackError
from aiocosid.segment import SegmentChainId, SegmentId
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import (
    GatedDistributor,
    ManualClock,
    RolledBackDistributor,
    WrappedDistributor,
    settle,
)

from .._kit import Call, settled, tasks
from ._kit import Generator, OneDistributor, counter, drain, gated

KINDS = pytest.mark.parametrize("kind", [SegmentChainId, SegmentId])
HOW = pytest.mark.parametrize("how", ["async with", "run"])


@KINDS
@pytest.mark.parametrize("step", [1, 10])
async def test_who_comes_while_it_opens_waits(
    kind: type[Generator], step: int, clock: ManualClock
) -> None:
    """A call made then is served when the first ids are there, and not lost."""
    store = GatedDistributor(counter(step=step))
    generator = kind(store, clock=clock)
    opening = Call(generator.__aenter__)
    early = Call(generator.next_id)
    await store.arrived()
    late = await settled(Call, generator.next_ids, 3)
    assert generator.statistics().waiting >= 2
    await settled(store.open)
    assert opening.is_done
    assert (early.result, late.result) == (1, [2, 3, 4])
    await generator.aclose()
    await settle()


@HOW
async def test_opening_what_has_ended_by_itself(how: str, clock: ManualClock) -> None:
    """Its root, or the `run` that it was opened with, ends before the next life begins."""
    store = RolledBackDistributor(counter())
    generator = SegmentChainId(store, clock=clock)
    first = await settled(Call, generator.run if how == "run" else generator.__aenter__)
    store.set_back(1000)
    with pytest.raises(StoreRolledBackError):
        await generator.next_ids(100)
    store.set_back(-10_000)
    async with generator:
        await settle()
        assert first.is_done
        assert tasks() == ["aiocosid SegmentChainId cosid.order"]
        assert await generator.next_id() > 20
    assert store.closed == 2


# Closing.


async def test_a_cancelled_closing_goes_on(clock: ManualClock) -> None:
    """A native ``task.cancel()`` reaches who waits for the end, and not the closing itself."""
    store = gated()
    generator = SegmentId(store, clock=clock)
    await generator.__aenter__()
    await drain(generator)
    store.close()
    await settled(Call, generator.next_id)
    task = asyncio.create_task(generator.aclose())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (store.closed, store.held) == (0, 1)
    await settled(store.open)
    assert (tasks(), store.closed, clock.pending) == ([], 1, 0)
    async with generator:
        assert await generator.next_id() > 20


class Unclosable(WrappedDistributor):
    """Fails to close."""

    async def aclose(self) -> None:
        await super().aclose()
        raise KeyError("odd")


@HOW
async def test_a_distributor_that_cannot_be_closed(how: str, clock: ManualClock) -> None:
    """Whoever closes is told; nothing is left all the same."""
    generator = SegmentId(Unclosable(counter()), clock=clock)
    opening = await settled(Call, generator.run if how == "run" else generator.__aenter__)
    with pytest.raises(KeyError, match="odd"):
        await generator.aclose()
    await settle()
    assert opening.is_done
    assert tasks() == []
    with pytest.raises(ClosedError):
        await generator.next_id()


class Unending(WrappedDistributor):
    """Never comes to an end of closing."""

    async def aclose(self) -> None:
        await super().aclose()
        await anyio.sleep_forever()


async def test_a_distributor_that_closes_for_ever(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up in time, and the rest is closed."""
    monkeypatch.setattr(component, "RELEASE_TIMEOUT", 0.0)
    generator = SegmentId(Unending(counter()), clock=clock)
    async with generator:
        assert await generator.next_id() == 1


# In a provider.


async def test_two_close_at_once(clock: ManualClock) -> None:
    """A generator that is closed while its provider is: both end when its call has landed."""
    gate = gated()
    provider = connect(OneDistributor(gate), clock=clock)
    await provider.__aenter__()
    orders = await provider.segment("order", step=10)
    await drain(orders)
    gate.close()
    await settled(Call, orders.next_id)
    closing = [Call(orders.aclose), Call(provider.aclose)]
    await settle()
    await settled(gate.open)
    assert [call.is_done for call in closing] == [True, True]


async def test_a_generator_of_a_provider_opened_on_its_own(clock: ManualClock) -> None:
    """It lives in a root of its own then, and outlives the provider."""
    provider = connect(MemoryStore(), clock=clock)
    async with provider:
        orders = await provider.segment("order", step=10)
        first = await orders.next_id()
        await orders.aclose()
        await orders.__aenter__()
        assert await provider.segment("order", step=10) is orders
    assert await orders.next_id() > first
    assert tasks() == ["aiocosid SegmentId cosid.order"]
    await orders.aclose()
