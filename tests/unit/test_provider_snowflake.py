"""A provider's Snowflake generators: one machine id for all, with the other kinds beside them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import aiocosid
from aiocosid.abc import Counter, Store
from aiocosid.errors import BusyError, ClosedError, MachineBitsMismatchError, StoreError
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    JAVASCRIPT_SAFE_MS,
    RADIX36,
    RADIX62,
    SnowflakeId,
)
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import ManualClock

from ._kit import tasks


async def test_all_share_one_machine_id_and_give_it_back() -> None:
    """The same object for the same name; another width is refused."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with aiocosid.connect(store, instance_id="me", clock=clock) as ids:
        order, user = await ids.snowflake("order"), await ids.snowflake("user", layout=COSID_S)
        assert await ids.snowflake("order") is order is ids["order"]
        assert order.layout is COSID_MS
        assert await order.next_id() > 0
        assert await user.next_id() > 0
        [machine] = await store.machines()
        assert (machine.namespace, machine.machine_id, machine.instance_id) == ("cosid", 0, "me")
        with pytest.raises(MachineBitsMismatchError):
            await ids.snowflake("small", layout=JAVASCRIPT_SAFE_MS)
        with pytest.raises(BusyError, match="another name"):
            await ids.snowflake("order", layout=COSID_S)
        with pytest.raises(BusyError):
            await ids.segment("order")
        chain = await ids.segment_chain("counter")
        with pytest.raises(BusyError):
            await ids.snowflake("counter")
        assert await chain.next_id() == 1
        assert set(ids) == {"order", "user", "counter"}
    [machine] = await store.machines()
    assert machine.instance_id == ""
    assert tasks() == []
    with pytest.raises(ClosedError):
        await order.next_id()


async def test_opened_anew_it_takes_a_machine_id_again() -> None:
    """And the ids go on above, in the same object's second life too."""
    clock = ManualClock()
    provider = aiocosid.connect(MemoryStore(clock=clock), clock=clock)
    seen: list[int] = []
    for _ in range(3):
        async with provider as ids:
            seen += await (await ids.snowflake()).next_ids(3)
        await clock.advance(0.002)
    assert seen == sorted(set(seen))


async def test_the_same_name_at_once_is_one_generator() -> None:
    """And one lease, though several names are asked for at once."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    found: list[SnowflakeId] = []

    async with aiocosid.connect(store, clock=clock) as ids:

        async def ask(name: str) -> None:
            found.append(await ids.snowflake(name))

        async with anyio.create_task_group() as group:
            for n in range(12):
                group.start_soon(ask, f"g{n % 3}")
        assert len({id(each) for each in found}) == 3
        assert len(await store.machines()) == 1


async def test_it_runs_in_a_task_group_that_fails() -> None:
    """The machine id is given back all the same."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)

    async def serve() -> None:
        async with anyio.create_task_group() as group:
            ids = aiocosid.connect(store, clock=clock)
            await group.start(ids.run)
            await (await ids.snowflake()).next_id()
            raise RuntimeError

    with pytest.raises(ExceptionGroup):
        await serve()
    assert [machine.instance_id for machine in await store.machines()] == [""]
    assert tasks() == []


async def test_a_store_without_machine_ids_says_so() -> None:
    """A stranger's store need not have them."""

    class Bare(Store):
        def segment_distributor(self, **_described: object) -> None:  # type: ignore[override]
            raise AssertionError

        async def create_schema(
            self, *, disposable: bool = False, after_loss: bool = False
        ) -> None: ...

        async def counters(self, *, namespace: str | None = None) -> list[Counter]:
            del namespace
            return []

        async def set_floor(self, **_described: object) -> None:  # type: ignore[override]
            raise AssertionError

        async def aclose(self) -> None: ...

    async with aiocosid.connect(Bare()) as ids:
        with pytest.raises(StoreError, match="no machine ids"):
            await ids.snowflake()


async def test_cosid_generators_are_named_beside_the_others() -> None:
    """The same object for the same name; one width of machine ids for all of a provider."""
    clock = ManualClock()
    async with aiocosid.connect(MemoryStore(clock=clock), clock=clock) as ids:
        token = await ids.cosid_text()
        assert await ids.cosid_text(text=RADIX62) is token is ids["cosid_text"]
        assert len(await token.next_id()) == 15
        with pytest.raises(BusyError, match="another name"):
            await ids.cosid_text(text=RADIX36)
        with pytest.raises(MachineBitsMismatchError):
            await ids.snowflake()
        assert len((await ids.cosid_text("other", text=RADIX36)).next_id_nowait()) == 17
        tree: dict[str, Any] = ids.statistics()
        assert tree["cosid_text"]["converter"]["radix"] == 62
    with pytest.raises(ClosedError):
        await token.next_id()
    assert tasks() == []
