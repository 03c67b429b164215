"""Taskiq, FastStream, Dramatiq and dishka in one process: names, overrides, and both ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, NewType

import pytest

pytest.importorskip("dramatiq")  # not among the oldest libraries, nor are the others

import anyio
import dramatiq
from dishka import make_async_container
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import MiddlewareError
from dramatiq.middleware.asyncio import AsyncIO
from faststream import Depends, FastStream
from faststream.redis import RedisBroker, TestRedisBroker
from taskiq import InMemoryBroker, TaskiqDepends

import aiocosid
import aiocosid.sync
from aiocosid.abc import IdGenerator, Provider
from aiocosid.errors import ClosedError, InvalidArgumentError, NotOpenError
from aiocosid.generators import CounterId
from aiocosid.integrations import faststream as for_faststream
from aiocosid.integrations import taskiq as for_taskiq
from aiocosid.integrations.dishka import CosIdProvider
from aiocosid.integrations.dramatiq import CosIdMiddleware
from aiocosid.stores.memory import MemoryStore

OrderIds = NewType("OrderIds", IdGenerator)
TaskiqOrders = Annotated[IdGenerator, TaskiqDepends(for_taskiq.generator("order"))]
FastStreamOrders = Annotated[IdGenerator, Depends(for_faststream.generator("order"))]


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


# Taskiq


@pytest.mark.asyncio
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


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_taskiq_without_a_provider_says_so() -> None:
    broker = InMemoryBroker()

    @broker.task
    async def place_order(orders: TaskiqOrders) -> int:
        return await orders.next_id()

    result = await (await place_order.kiq()).wait_result()  # type: ignore[call-overload]
    assert isinstance(result.error, NotOpenError)
    assert "setup_ids" in str(result.error)


# FastStream


@pytest.mark.asyncio
async def test_faststream_handlers_get_generators() -> None:
    broker = RedisBroker()
    app = FastStream(broker, lifespan=for_faststream.lifespan(open_ids))

    @broker.subscriber(list="orders")
    async def place_order(customer: str, orders: FastStreamOrders, ids: for_faststream.Ids) -> str:
        return f"{customer} {await orders.next_id()} {sorted(ids)}"

    async with TestRedisBroker(broker), app.lifespan_context():
        reply = await broker.request("ann", list="orders")
        assert await reply.decode() == "ann 1 ['order']"
        async with CounterId() as counter:
            await counter.next_ids(70)
            with app.config.provider.scope(for_faststream.generator("order"), lambda: counter):
                reply = await broker.request("ben", list="orders")
        assert await reply.decode() == "ben 71 ['order']"
    with pytest.raises(NotOpenError):
        aiocosid.default_provider()


@pytest.mark.asyncio
async def test_faststream_does_not_start_with_a_misspelt_name() -> None:
    broker = RedisBroker()
    app = FastStream(broker, lifespan=for_faststream.lifespan(plain_ids))

    @broker.subscriber(list="orders")
    async def place_order(
        customer: str, ids: Annotated[IdGenerator, Depends(for_faststream.generator("ordr"))]
    ) -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"'ordr'.*'order'"):
        async with app.lifespan_context():
            pass


# Dramatiq


def worked(source: object, *before: dramatiq.Middleware) -> tuple[StubBroker, dramatiq.Worker]:
    broker = StubBroker(middleware=[*before, CosIdMiddleware(source)])  # type: ignore[arg-type]
    broker.emit_after("process_boot")
    return broker, dramatiq.Worker(broker, worker_threads=1)


def test_dramatiq_opens_what_modules_have_asked_for(namespace: str) -> None:
    ids = aiocosid.sync.connect("memory://", namespace=namespace)
    orders = ids.segment_chain("order")
    broker, worker = worked(ids)
    found: list[int] = []

    @dramatiq.actor(broker=broker)
    def place_order() -> None:
        found.append(orders.next_id_nowait())

    worker.start()
    place_order.send()
    broker.join("default")
    worker.stop()
    assert found == [1]
    with pytest.raises(ClosedError):
        orders.next_id()


def test_dramatiq_opens_a_provider_on_its_loop() -> None:
    broker, worker = worked(open_ids, AsyncIO())
    found: list[int | str] = []

    @dramatiq.actor(broker=broker)
    async def place_order() -> None:
        found.append(await aiocosid.generator_named("order").next_id())

    worker.start()
    place_order.send()
    broker.join("default")
    worker.stop()
    assert found == [1]
    with pytest.raises(NotOpenError):
        aiocosid.default_provider()


def test_dramatiq_says_that_the_loop_is_missing() -> None:
    _, worker = worked(open_ids)
    with pytest.raises(MiddlewareError, match="AsyncIO"):
        worker.start()


# dishka


@pytest.mark.asyncio
async def test_dishka_gives_generators_by_type_until_it_is_closed() -> None:
    container = make_async_container(CosIdProvider(open_ids, {OrderIds: "order"}))
    orders = await container.get(OrderIds)
    assert await orders.next_id() == 1
    assert await container.get(OrderIds) is orders
    assert sorted(await container.get(Provider)) == ["order"]
    await container.close()
    with pytest.raises(ClosedError):
        await orders.next_id()


@pytest.mark.asyncio
async def test_dishka_refuses_a_misspelt_name_when_it_opens() -> None:
    misspelt = NewType("misspelt", IdGenerator)
    container = make_async_container(
        CosIdProvider(plain_ids, {OrderIds: "order", misspelt: "ordr"})
    )
    with pytest.raises(InvalidArgumentError, match=r"'ordr'.*'order'"):
        await container.get(OrderIds)
    await container.close()
