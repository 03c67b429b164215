"""Taskiq in one process: names, overrides, and both ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import pytest

pytest.importorskip("taskiq")  # not among the oldest libraries

import anyio
from taskiq import InMemoryBroker, TaskiqDepends

import aiocosid
from aiocosid.abc import IdGenerator
from aiocosid.errors import ClosedError, InvalidArgumentError, NotOpenError
from aiocosid.generators import CounterId
from aiocosid.integrations import taskiq as for_taskiq
from aiocosid.stores.memory import MemoryStore

TaskiqOrders = Annotated[IdGenerator, TaskiqDepends(for_taskiq.generator("order"))]


@asynccontextmanager
async def plain_ids() -> AsyncGenerator[aiocosid.IdProvider]:
    async with aiocosid.connect(MemoryStore(), namespace="shop") as ids:
        await ids.segment_chain("order")
        yield ids


@asynccontextmanager
async def open_ids() -> AsyncGenerator[aiocosid.IdProvider]:
    """A provider in a task group, which can be left only in the task that entered it."""
    async with anyio.create_task_group(), plain_ids() as ids:
        yield ids


async def nested(ids: Annotated[IdGenerator, TaskiqDepends(for_taskiq.generator("ordr"))]) -> int:
    return await ids.next_id()


async def test_taskiq_tasks_get_generators_until_the_worker_ends() -> None:
    broker = InMemoryBroker()
    for_taskiq.setup_ids(broker, open_ids)

    @broker.task
    async def place_order(orders: TaskiqOrders, ids: for_taskiq.Ids) -> tuple[int, list[str]]:
        return await orders.next_id(), sorted(ids)

    await broker.startup()
    orders = aiocosid.generator_named("order")
    async with CounterId() as counter:
        await counter.next_ids(70)
        result = await (await place_order.kiq()).wait_result()  # type: ignore[call-overload]
        assert result.return_value == (1, ["order"])
        broker.dependency_overrides[for_taskiq.generator("order")] = lambda: counter
        result = await (await place_order.kiq()).wait_result()  # type: ignore[call-overload]
        assert result.return_value[0] == 71
    # In another task than the one that has opened it.
    async with anyio.create_task_group() as group:
        group.start_soon(broker.shutdown)
    with pytest.raises(ClosedError):
        await orders.next_id()


async def test_taskiq_does_not_start_with_a_misspelt_name() -> None:
    """Also one that only a dependency of a task asks for; nothing stays open."""
    broker = InMemoryBroker()
    for_taskiq.setup_ids(broker, plain_ids)

    @broker.task
    async def place_order(order_id: Annotated[int, TaskiqDepends(nested)]) -> int:
        return order_id

    with pytest.raises(InvalidArgumentError, match=r"'ordr'.*'order'"):
        await broker.startup()
    with pytest.raises(NotOpenError):
        aiocosid.default_provider()
    await broker.shutdown()


async def test_taskiq_without_a_provider_says_so() -> None:
    broker = InMemoryBroker()

    @broker.task
    async def place_order(orders: TaskiqOrders) -> int:
        return await orders.next_id()

    result = await (await place_order.kiq()).wait_result()  # type: ignore[call-overload]
    assert isinstance(result.error, NotOpenError)
    assert "setup_ids" in str(result.error)
