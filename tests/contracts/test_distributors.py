"""The distributor contract on every store; asyncio and uvloop, and memory on trio as well."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.abc import IdSegmentDistributor, Store
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import IdSegmentDistributorContract, MakeDistributor

from ._stores import Backend


@pytest.mark.asyncio
class TestDistributors(IdSegmentDistributorContract):
    @pytest.fixture(autouse=True)
    def _backend(self, backend: Backend) -> None:
        self.backend = backend

    @pytest.fixture
    def make_distributor(self, store: Store) -> MakeDistributor:
        return store.segment_distributor

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.backend.set_counter(distributor, to)


@pytest.mark.anyio
class TestMemoryOnTrio(IdSegmentDistributorContract):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}

    @pytest.fixture
    def make_distributor(self) -> MakeDistributor:
        self.store = MemoryStore()
        return self.store.segment_distributor

    async def set_back(self, distributor: IdSegmentDistributor, to: int) -> None:
        self.store._counters[distributor.namespaced_name] = to
