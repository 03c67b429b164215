"""Counters that a store has lost: whoever knows better is refused, and gets no id again."""

from __future__ import annotations

import pytest

from aiocosid import connect
from aiocosid.errors import CounterMissingError, StoreRolledBackError
from aiocosid.server import SpanStore
from aiocosid.server._service import Service
from aiocosid.server._store_api import dispatch
from aiocosid.server._tokens import Access
from aiocosid.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

EVERYBODY = Access()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def forget(store: MemoryStore) -> None:
    store._backend._counters.clear()


def service_on(store: MemoryStore | SpanStore) -> Service:
    service = Service(connect(MemoryStore()), store=store)
    service._store = store
    return service


async def test_another_offset_does_not_forget_what_was_answered() -> None:
    root = MemoryStore()
    service = service_on(root)
    for expected in (100, 200):
        assert await service.next_max_id("p", namespace="n", step=100, access=EVERYBODY) == expected
    forget(root)
    await service.create_counter("p", namespace="n", offset=7)
    with pytest.raises(StoreRolledBackError):
        await service.next_max_id("p", namespace="n", step=100, access=EVERYBODY)


async def test_a_broker_that_was_restarted_creates_no_counter_anew() -> None:
    """For a client that has been answered before: it says so by sending no first value."""
    root = MemoryStore()
    async with SpanStore(root) as before:
        first = {"name": "n.p", "by": 10, "first": 10}
        assert await dispatch(service_on(before), EVERYBODY, "add", first) == {"max_id": 10}
    again = {"name": "n.p", "by": 10, "first": None}
    async with SpanStore(root) as restarted:
        answer = await dispatch(service_on(restarted), EVERYBODY, "add", again)
        assert answer["max_id"] > 10
    forget(root)
    async with SpanStore(root) as emptied:
        with pytest.raises(CounterMissingError):
            await dispatch(service_on(emptied), EVERYBODY, "add", again)
        assert await root.counters() == []


async def test_large_segments_notice_a_loss_too() -> None:
    root = MemoryStore()
    async with SpanStore(root, span=10, largest=100) as store:
        counter = store.segment_distributor(namespace="n", name="p")
        assert [await counter.next_max_id(200) for _ in range(2)] == [200, 400]
        forget(root)
        for step in (200, 5):
            with pytest.raises(StoreRolledBackError):
                await counter.next_max_id(step)
