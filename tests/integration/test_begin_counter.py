"""A counter that a client creates by its name begins under the store's marker, with no id taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiocosid import connect, store_from_url
from aiocosid.abc import Store
from aiocosid.errors import CounterNotCreatedError
from aiocosid.server import SpanStore
from aiocosid.server._service import Service
from aiocosid.stores.base import BackendStore
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.striped import StripedStore
from aiocosid.stores.tiered import TieredStore
from tests.contracts._stores import STORES, Backend
from tests.servers import EtcdServer, MariadbServer, ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

KINDS = ("memory", "sqlite", "postgres", "mariadb", "valkey", "etcd", "nats", "zookeeper")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Backend:
    return STORES[request.param](request)


async def test_it_begins_at_its_offset(kind: Backend, namespace: str) -> None:
    async with kind.open() as store:
        assert isinstance(store, BackendStore)
        await store.create_schema(disposable=True)
        kind.mark(namespace)
        for _ in range(2):
            assert await store.begin_counter(namespace=namespace, name="order", offset=7) == 7
        counter = store.segment_distributor(namespace=namespace, name="order", offset=3)
        assert await counter.next_max_id(10) == 17
        assert await store.begin_counter(namespace=namespace, name="order", offset=7) == 17
        assert await store.begin_counter(namespace=namespace, name="other", offset=0) == 0
        assert await counter.next_max_id(10) == 27


@pytest.mark.parametrize("offset", [0, 7])
@pytest.mark.parametrize("server", ["valkey_factory", "etcd_factory", "zookeeper_factory"])
async def test_not_in_a_new_or_emptied_store(
    request: pytest.FixtureRequest, server: str, offset: int
) -> None:
    """A Java client asks for it at each start, through the id service."""
    found = request.getfixturevalue(server)()
    if isinstance(found, ValkeyServer):
        found.call("FLUSHALL")  # the fixture has initialised it
    async with store_from_url(found.url) as store:
        assert isinstance(store, BackendStore)
        with pytest.raises(CounterNotCreatedError):
            await store.begin_counter(name="order", offset=offset)
        assert await store.counters() == []


@pytest.mark.parametrize("offset", [0, 7])
async def test_not_in_an_emptied_table(
    mariadb: MariadbServer, mariadb_database: str, namespace: str, offset: int
) -> None:
    async with store_from_url(mariadb_database) as store:
        assert isinstance(store, BackendStore)
        await store.create_schema()
        assert await store.begin_counter(name="order", offset=offset) == offset
        assert await store.segment_distributor(name="order").next_max_id(10) == offset + 10
        for lost in ("cosid", "aiocosid_cell"):
            mariadb.execute(f"delete from {lost}", database=namespace)  # noqa: S608 - a test's
            with pytest.raises(CounterNotCreatedError):
                await store.begin_counter(name="order", offset=offset)


@pytest.fixture(params=["tiered", "striped", "span"])
def whole(
    request: pytest.FixtureRequest, etcd_factory: Callable[[], EtcdServer], valkey: ValkeyServer
) -> Store:
    """A store over others, whose root was never initialised, as one that was emptied."""
    new = store_from_url(etcd_factory().url)
    if request.param == "tiered":
        return TieredStore(new, RedisStore.from_url(valkey.url), root_name="r", owns_stores=True)
    if request.param == "striped":
        return StripedStore([new, MemoryStore()], owns_stores=True)
    return SpanStore(new, owns_root=True)


async def test_a_service_on_several_stores(whole: Store, namespace: str) -> None:
    """It creates a counter under the marker of the store beneath, and leaves one that exists."""
    async with whole:
        service = Service(connect(MemoryStore()), store=whole)
        service._store = whole
        order: dict[str, Any] = {"namespace": namespace, "name": "order"}
        with pytest.raises(CounterNotCreatedError):
            await service.create_counter(**order, offset=7)
        root = whole.parts[0]
        assert await root.counters() == []
        await root.initialize(confirm_no_holders=True)
        assert await service.create_counter(**order, offset=7) is None
        first = await whole.segment_distributor(**order, step=1).next_max_id(1)
        assert first > 7
        for offset in (3, first + 10**9):
            found = await service.create_counter(**order, offset=offset)
            assert found is not None
            assert 7 < found < first + 10**7
