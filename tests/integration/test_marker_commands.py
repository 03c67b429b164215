"""The commands of the page Operate it delete what the store takes for its marker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.errors import CounterNotCreatedError, StoreNotEmptyError
from tests.servers import EtcdServer, NatsServer, ValkeyServer, ZookeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "operate.md"


def of_page(command: str) -> list[str]:
    """Return what the page gives a command."""
    [found] = re.findall(rf"`{command} ([^`]+)`", PAGE.read_text("utf-8"))
    return str(found).split()


async def lived(store: Store) -> None:
    """Use a store until it has a marker and a counter."""
    await store.create_schema()
    await store.initialize()
    assert await store.is_initialized()
    assert await store.segment_distributor(name="order").next_max_id(10) == 10


async def check_unmarked(store: Store) -> None:
    """A counter that is there goes on, a new one does not begin, and only a person can vouch."""
    assert not await store.is_initialized()
    assert await store.segment_distributor(name="order").next_max_id(10) == 20
    with pytest.raises(CounterNotCreatedError):
        await store.segment_distributor(name="new").next_max_id(10)
    with pytest.raises(StoreNotEmptyError):
        await store.initialize()


async def test_redis(valkey_factory: Callable[..., ValkeyServer]) -> None:
    server = valkey_factory()
    async with store_from_url(server.url) as store:
        await lived(store)
        assert server.call("DEL", *of_page("redis-cli DEL")) == 1
        await check_unmarked(store)


async def test_etcd(etcd_factory: Callable[..., EtcdServer]) -> None:
    server = etcd_factory()
    [key] = of_page("etcdctl del")
    async with store_from_url(server.url) as store:
        await lived(store)
        assert server.get(key) is not None
        server.delete(key)
        await check_unmarked(store)


async def test_zookeeper(zookeeper_factory: Callable[..., ZookeeperServer]) -> None:
    server = zookeeper_factory()
    [path] = of_page("deleteall")
    async with store_from_url(server.url) as store:
        await lived(store)
        server.behind.delete(path, recursive=True)
        await check_unmarked(store)


async def test_nats(nats_factory: Callable[..., NatsServer]) -> None:
    server = nats_factory()
    stream, option, subject, force = of_page("nats stream purge")
    assert (option, force) == ("--subject", "--force")
    async with store_from_url(server.url) as store:
        await lived(store)
        assert server.subjects(stream, subject)
        server.purge(stream, subject)
        await check_unmarked(store)
