"""What a store tells an operator about its server: its clock, its settings, the safe guards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiocosid import store_from_url
from aiocosid.errors import UnsupportedByStoreError
from aiocosid.stores.inspection import read_store
from aiocosid.stores.memory import MemoryStore
from tests.servers import ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


async def test_the_clock_of_a_file(tmp_path: Path) -> None:
    async with store_from_url(f"sqlite:///{tmp_path / 'ids.db'}") as store:
        await store.create_schema()
        before_ms = time.time_ns() // 1_000_000
        found = await store.clock_ms()
        assert before_ms - 1 <= found <= time.time_ns() // 1_000_000 + 1


async def test_the_clock_and_the_settings_of_a_server(valkey: ValkeyServer, namespace: str) -> None:
    async with store_from_url(valkey.url) as store:
        before_ms = time.time_ns() // 1_000_000
        found = await store.clock_ms()
        assert before_ms - 1 <= found <= time.time_ns() // 1_000_000 + 1
        assert not store.durability_warnings  # nothing was granted yet
        counter = store.segment_distributor(namespace=namespace, name="order")
        await counter.next_max_id(1)
        durability_warnings: Any = store.durability_warnings
        assert any(each.startswith("appendonly is no") for each in durability_warnings)


@pytest.mark.parametrize(
    ("server", "setting"),
    [
        ("nats_cluster", "sync_interval"),
        ("nats", "sync_interval"),
        ("etcd", "unsafe-no-fsync"),
        ("zookeeper", "forceSync"),
    ],
)
async def test_a_setting_that_no_client_can_see(
    request: pytest.FixtureRequest, server: str, setting: str
) -> None:
    """It is named, and not taken for good; NATS syncs too rarely at any number of replicas."""
    url: str = request.getfixturevalue(server).url
    async with store_from_url(url) as store:
        facts = await store.ask_server()
        assert facts.durability_warnings == ()
        assert [each.partition(" ")[0] for each in facts.unproved] == [setting]
        shown = (await read_store(store)).server
        assert shown is not None
        assert shown.unproved == facts.unproved
    if setting == "sync_interval":
        async with store_from_url(f"{url}?sync_always=true") as store:
            assert not (await store.ask_server()).unproved


async def test_a_store_that_does_not_answer(valkey_factory: Callable[..., ValkeyServer]) -> None:
    """What it was found to be before proves nothing."""
    server = valkey_factory("--appendonly", "yes")
    async with store_from_url(server.url) as store:
        reading = await read_store(store)
        durability_warnings: Any = reading.server and reading.server.durability_warnings
        assert any(each.startswith("appendfsync is everysec") for each in durability_warnings)
        server.kill()
        reading = await read_store(store)
        assert (reading.server, reading.errors["server"]) == (None, "StoreUnavailableError")


async def test_the_longest_safe_guard(valkey: ValkeyServer, namespace: str) -> None:
    async with store_from_url(valkey.url) as store:
        await store.initialize_namespace(
            namespace=namespace, confirm_no_holders=True, safe_guard=45.0
        )
        [marker] = await store.machine_markers(namespace=namespace)
        assert marker.safe_guard == 45.0
        await store.initialize_namespace(namespace=namespace, safe_guard=float("inf"))
        [marker] = await store.machine_markers(namespace=namespace)
        assert marker.safe_guard == float("inf")


async def test_a_store_without_a_clock() -> None:
    async with MemoryStore() as store:
        with pytest.raises(UnsupportedByStoreError):
            await store.clock_ms()
        assert store.durability_warnings is None
