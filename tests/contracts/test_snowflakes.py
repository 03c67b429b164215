"""The generator contract for Snowflake ids, with machine ids from every store."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.abc import Store
from aiocosid.snowflake import COSID_MS, COSID_S, SnowflakeId, SnowflakeLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import IdGeneratorContract, MakeGenerator

from ._stores import STORES, Backend

LAYOUTS = {
    "cosid-ms": COSID_MS,
    "cosid-s": COSID_S,
    "narrow": SnowflakeLayout(41, 10, 8, "ms", COSID_MS.epoch_ms, name="narrow"),
}
SERVERS = [name for name in STORES if name != "memory"]


class Snowflakes(IdGeneratorContract):
    """Each generator is an instance of its own, and has a machine id of its own."""

    def maker(self, store: Store, layout: SnowflakeLayout, namespace: str) -> MakeGenerator:
        return lambda: SnowflakeId(
            store.machine_id_distributor(namespace=namespace), name="order", layout=layout
        )


@pytest.mark.asyncio
class TestSnowflakes(Snowflakes):
    ids_per_worker = 1000

    @pytest.fixture(params=SERVERS)
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return STORES[request.param](request)

    @pytest.fixture
    def make_generator(self, store: Store, namespace: str) -> MakeGenerator:
        return self.maker(store, COSID_MS, namespace)


class MemorySnowflakes(Snowflakes):
    @pytest.fixture(params=LAYOUTS)
    def make_generator(self, request: pytest.FixtureRequest, namespace: str) -> MakeGenerator:
        return self.maker(MemoryStore(), LAYOUTS[request.param], namespace)


@pytest.mark.asyncio
class TestMemory(MemorySnowflakes):
    pass


@pytest.mark.anyio
class TestMemoryOnTrio(MemorySnowflakes):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {}
