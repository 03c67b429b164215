"""The contract of machine ids on every store; asyncio and uvloop, and memory on trio as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.abc import InstanceId, MachineIdDistributor, Store
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import MachineIdDistributorContract, MakeMachineIdDistributor, ManualClock

from ._stores import KEEP_MACHINES, STORES, Backend


@pytest.fixture(params=KEEP_MACHINES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the kinds of store that keep machine ids."""
    return STORES[request.param](request)


class Machines(MachineIdDistributorContract):
    """One kind of store."""

    backend: Backend

    @pytest.fixture(autouse=True)
    def _backend(self, backend: Backend) -> None:
        self.backend = backend

    async def age(self, namespace: str, seconds: float) -> None:
        self.backend.age(namespace, seconds)


@pytest.mark.asyncio
class TestOnOneStore(Machines):
    """All share the connections of a store, which closes them."""

    @pytest.fixture
    def make_machines(self, store: Store) -> MakeMachineIdDistributor:
        return store.machine_id_distributor


@pytest.mark.asyncio
class TestOnTheirOwn(Machines):
    """Each has connections of its own, which it closes, and opens again when it is used."""

    @pytest_asyncio.fixture
    async def make_machines(self, store: Store) -> AsyncIterator[MakeMachineIdDistributor]:
        async with AsyncExitStack() as stack:

            def make(
                *,
                namespace: str,
                instance_id: InstanceId | str | None = None,
                safe_guard: float = 300,
                interval: float = 60,
            ) -> MachineIdDistributor:
                made = self.backend.machine_distributor.from_url(
                    self.backend.url,
                    namespace=namespace,
                    instance_id=instance_id,
                    safe_guard=safe_guard,
                    interval=interval,
                )
                stack.push_async_callback(made.aclose)
                return made

            yield make


@pytest.mark.anyio
class TestMemoryOnTrio(MachineIdDistributorContract):
    """With the clock of a test in the store, which then need not be rewritten."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}

    @pytest.fixture
    def make_machines(self) -> MakeMachineIdDistributor:
        self.clock = ManualClock()
        return MemoryStore(clock=self.clock).machine_id_distributor

    async def age(self, namespace: str, seconds: float) -> None:
        await self.clock.advance(seconds)
