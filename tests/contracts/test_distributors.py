"""The distributor contract on every store; asyncio and uvloop, and memory on trio as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.abc import IdSegmentDistributor, Store
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import DistributorFactory, IdSegmentDistributorContract

from ._stores import Backend


class Distributors(IdSegmentDistributorContract):
    """One kind of store."""

    @pytest.fixture(autouse=True)
    def _backend(self, backend: Backend) -> None:
        self.backend = backend

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.backend.set_counter(distributor, to)


@pytest.mark.asyncio
class TestOnOneStore(Distributors):
    """All share the connections of a store, which closes them."""

    @pytest.fixture
    def make_distributor(self, store: Store) -> DistributorFactory:
        return store.segment_distributor


@pytest.mark.asyncio
class TestOnTheirOwn(Distributors):
    """Each has connections of its own, which it closes, and opens again when it is used."""

    @pytest_asyncio.fixture
    async def make_distributor(self, store: Store) -> AsyncIterator[DistributorFactory]:
        async with AsyncExitStack() as stack:

            def make(
                *, namespace: str, name: str, offset: int = 0, step: int = 100
            ) -> IdSegmentDistributor:
                own = self.backend.open()
                stack.push_async_callback(own.aclose)
                return own.segment_distributor(
                    namespace=namespace, name=name, offset=offset, step=step
                )

            yield make


@pytest.mark.anyio
class TestMemoryOnTrio(IdSegmentDistributorContract):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}

    @pytest.fixture
    def make_distributor(self) -> DistributorFactory:
        self.store = MemoryStore()
        return self.store.segment_distributor

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.store._backend._counters[distributor.namespaced_name] = to
