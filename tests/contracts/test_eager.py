"""The generator contract where a task begins to run within `create_task`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from aiocosid.segment import GroupBy
from aiocosid.stores.memory import MemoryStore
from aiocosid.testing import MakeGenerator

from .test_generators import Cached, Grouped, MemoryGenerators, MemorySnowflakes, Sharded

FACTORY: Any = getattr(asyncio, "eager_task_factory", None)
if FACTORY is None:
    pytest.skip("asyncio.eager_task_factory came with Python 3.12", allow_module_level=True)


@pytest_asyncio.fixture(autouse=True)
async def eager_tasks() -> None:
    asyncio.get_running_loop().set_task_factory(FACTORY)


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestEagerMemoryGenerators(MemoryGenerators):
    ids_per_worker = 500


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestEagerMemorySnowflakes(MemorySnowflakes):
    ids_per_worker = 500


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestEagerCached(Cached):
    pass


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestEagerSharded(Sharded):
    pass


@pytest.mark.asyncio(loop_factories=["asyncio"])
class TestEagerGrouped(Grouped):
    ids_per_worker = 500

    @pytest.fixture
    def make_generator(self, namespace: str) -> MakeGenerator:
        return self.maker(MemoryStore(), GroupBy.day(zone="UTC"), namespace)
