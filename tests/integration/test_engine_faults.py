"""An engine under distress: torn calls, a pool that is too small, outages, forks, loops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from aiocosid._life import fork
from aiocosid.errors import (
    ForkedError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
    WrongLoopError,
)
from aiocosid.stores import _sqlite
from aiocosid.stores._mysql import atomic
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from aiocosid.testing import settle
from tests.servers import HOST, FaultProxy, PostgresServer, free_port

from ._engines import EACH_DRIVER, EACH_SERVER, url_of
from ._sql import within

pytestmark = [pytest.mark.integration]


SECRET = "horse:/@"  # noqa: S105 - nobody has it


@pytest.fixture(params=EACH_DRIVER)
def url(request: pytest.FixtureRequest) -> str:
    """A database, by each driver."""
    return url_of(request, request.param)


@pytest.fixture(params=EACH_SERVER)
def server_url(request: pytest.FixtureRequest) -> str:
    """The same, of each server's drivers."""
    return url_of(request, request.param)


@asynccontextmanager
async def engine_of(url: str, **options: Any) -> AsyncGenerator[AsyncEngine]:
    """A user's engine of one connection, on a database with its tables."""
    options = {"pool_size": 1, "max_overflow": 0, **options}
    if "poolclass" in options:
        options = {"poolclass": options["poolclass"]}
    engine = create_async_engine(url, **options)
    await SqlAlchemyStore(engine, durability="ignore").create_schema()
    try:
        yield engine
    finally:
        await asyncio.wait_for(engine.dispose(), 10)


def counter_on(engine: AsyncEngine, of: str, name: str = "order", offset: int = 0) -> Any:
    """A counter on a user's engine."""
    store = SqlAlchemyStore(engine, durability="ignore")
    return store.segment_distributor(namespace=of, name=name, offset=offset)


@asynccontextmanager
async def proxied(url: str) -> AsyncGenerator[tuple[FaultProxy, str]]:
    """A proxy in front of a server, and the URL through it."""
    parts = make_url(url)
    assert parts.host is not None
    assert parts.port is not None
    async with FaultProxy(parts.host, parts.port) as proxy:
        through = parts.set(host=proxy.host, port=proxy.port)
        yield proxy, through.render_as_string(hide_password=False)


class TestTornCalls:
    """A cancelled call: a gap at most, and nobody else's reply."""

    async def test_a_scope_that_strikes_at_each_await(self, url: str, namespace: str) -> None:
        """As anyio's do: the connection is closed or given back all the same."""
        async with engine_of(url) as engine:
            counter = counter_on(engine, namespace)
            for turns in range(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(counter.next_max_id, 1)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    group.cancel_scope.cancel()
                assert await within(5, counter.next_max_id(1)) <= 2 * turns + 2
        gc.collect()

    async def test_on_a_silent_server(self, server_url: str, namespace: str) -> None:
        """The farewell is bounded, and the connection is used no more."""
        async with proxied(server_url) as (proxy, through), engine_of(through) as engine:
            counter = counter_on(engine, namespace)
            assert await counter.next_max_id(1) == 1
            proxy.blackhole(replies=True)
            sent = proxy.next_request()
            torn = asyncio.ensure_future(counter.next_max_id(1))
            await sent
            torn.cancel()
            await asyncio.wait([torn], timeout=2)
            assert torn.cancelled()
            proxy.heal()
            assert await within(10, counter.next_max_id(1)) in {2, 3}

    async def test_forked_while_it_waits_for_a_connection(
        self, url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the child nothing is sent on the connection, which is the parent's."""
        async with engine_of(url) as engine:
            counter = counter_on(engine, namespace)
            assert await counter.next_max_id(1) == 1
            async with engine.connect():
                waits = asyncio.ensure_future(counter.next_max_id(10))
                await settle()
                monkeypatch.setattr(fork, "generation", fork.generation + 1)
            with pytest.raises(ForkedError):
                await waits
            monkeypatch.undo()
            kept = fork.abandoned.pop()
            await greenlet_spawn(kept.close)
            assert await counter_on(engine, namespace).next_max_id(1) == 2


class TestPools:
    """The user's pool: small, empty, disposed of, checked."""

    async def test_many_callers_of_one_connection(self, url: str, namespace: str) -> None:
        """They take turns; whoever waits too long for the pool is told so, and may come again."""
        async with engine_of(url, pool_pre_ping=True) as engine:
            counters = [counter_on(engine, namespace, f"c{number}") for number in range(30)]
            found = await asyncio.gather(*(each.next_max_id(5) for each in counters))
            assert found == [5] * 30
        async with engine_of(url, pool_timeout=0.01) as engine:
            counter = counter_on(engine, namespace, "c0")
            async with engine.connect():
                with pytest.raises(StoreUnavailableError, match="QueuePool limit"):
                    await counter.next_max_id(5)
            assert await counter.next_max_id(5) == 10

    async def test_an_engine_that_is_disposed_of(self, url: str, namespace: str) -> None:
        """Between two calls, and during one."""
        async with engine_of(url) as engine:
            counter = counter_on(engine, namespace)
            assert await counter.next_max_id(1) == 1
            await engine.dispose()
            assert await counter.next_max_id(1) == 2
            call = asyncio.ensure_future(counter.next_max_id(1))
            await settle()
            await engine.dispose()
            assert await within(5, call) == 3
        gc.collect()

    async def test_a_server_that_comes_back(self, server_url: str, namespace: str) -> None:
        """Whether or not the pool looks at a connection before it lends it."""
        async with proxied(server_url) as (proxy, through):
            for pings in (False, True):
                async with engine_of(through, pool_pre_ping=pings) as engine:
                    counter = counter_on(engine, namespace)
                    first = await counter.next_max_id(1)
                    proxy.refuse()
                    proxy.cut()
                    with pytest.raises(StoreUnavailableError) as outage:
                        await within(10, counter.next_max_id(1))
                    assert outage.value.retryable
                    assert outage.value.__cause__ is not None
                    await proxy.accept()
                    assert await within(10, counter.next_max_id(1)) == first + 1


async def test_closed_during_a_call(
    server_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes waits for it, but not for ever: then it fails, and leaves nothing open."""
    monkeypatch.setattr("aiocosid.stores._connection.CLOSE_TIMEOUT", 0.1)
    await _create_schema(server_url)
    async with proxied(server_url) as (proxy, through):
        store = SqlAlchemyStore.from_url(f"{through}?durability=ignore")
        counter = store.segment_distributor(namespace=namespace, name="order")
        assert await counter.next_max_id(1) == 1
        proxy.blackhole(replies=True)
        sent = proxy.next_request()
        call = asyncio.ensure_future(counter.next_max_id(1))
        await sent
        line: Any = store._backend.link._connection._client  # type: ignore[attr-defined]
        await asyncio.wait_for(store.aclose(), 5)
        with pytest.raises(StoreUnavailableError):
            await within(5, call)
        assert not line.calls
        proxy.heal()
        assert await within(5, counter.next_max_id(1)) >= 2
        await store.aclose()


async def test_a_transaction_that_failed_half_way(mariadb_database: str) -> None:
    """It is given up with its connection: no lock stays, and what it had done is undone."""
    url = mariadb_database.replace(":", "+asyncmy:", 1) + "?durability=ignore"
    async with SqlAlchemyStore.from_url(url) as store, SqlAlchemyStore.from_url(url) as other:
        await store.create_schema()
        made = "INSERT INTO cosid (name, last_max_id) VALUES ('cosid.order', 1)"
        with pytest.raises(SchemaMissingError):
            await store._backend._run(atomic(made, "INSERT INTO cosid_gone VALUES (1)"))
        assert await other.segment_distributor(name="order").next_max_id(10) == 10


async def test_who_is_not_let_in(server_url: str, namespace: str) -> None:
    """A wrong password, no such database, nobody there: each has its own error, without secrets."""
    parts = make_url(server_url)
    wrong = {
        "who": (parts.set(username="guest", password=SECRET), StoreAuthenticationError),
        "what": (parts.set(database="nowhere"), StoreError),
        "where": (parts.set(host=HOST, port=free_port()), StoreUnavailableError),
    }
    for bad, meaning in wrong.values():
        async with SqlAlchemyStore.from_url(bad.render_as_string(hide_password=False)) as store:
            with pytest.raises(StoreError) as refused:
                await asyncio.wait_for(store.counters(), 10)
            assert type(refused.value) is meaning, bad
            assert SECRET not in str(refused.value)


async def test_a_file_that_was_replaced(tmp_path: Path, namespace: str) -> None:
    """Nobody counts on in a file that is gone: the next connection opens the one that is there."""
    file = tmp_path / "ids.db"
    async with engine_of(f"sqlite+aiosqlite:///{file}") as engine:
        counter = counter_on(engine, namespace)
        assert await counter.next_max_id(1000) == 1000
        file.rename(tmp_path / "old.db")
        fresh = counter_on(engine, namespace)
        with pytest.raises(StoreUnavailableError, match="replaced"):
            await fresh.next_max_id(10)
        assert await fresh.next_max_id(10) == 10
        with pytest.raises(StoreError, match="backwards"):
            await counter.next_max_id(10)


async def test_a_file_locked_by_the_callers_own_transaction(
    tmp_path: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine may wait longer than a generator's call, whose error has to name the cause."""
    monkeypatch.setattr(_sqlite, "BUSY_TIMEOUT", 0.05)
    url = f"sqlite+aiosqlite:///{tmp_path}/ids.db"
    async with engine_of(url, max_overflow=1, connect_args={"timeout": 40.0}) as engine:
        counter = counter_on(engine, namespace)
        assert await counter.next_max_id(10) == 10
        async with engine.connect() as mine:
            await mine.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError, match="locked; try again when") as caught:
                await asyncio.wait_for(counter.next_max_id(10), 30)
            assert "server" not in str(caught.value)
            await mine.exec_driver_sql("ROLLBACK")
        assert await counter.next_max_id(10) == 20
        async with engine.connect() as one, engine.connect() as other:
            for each in (one, other):
                found = await each.exec_driver_sql("PRAGMA busy_timeout")
                assert found.scalar() == 40_000, "the engine's own setting has changed"


@pytest.mark.parametrize("driver", ["asyncpg", pytest.param("psycopg", marks=pytest.mark.stress)])
async def test_a_server_that_became_read_only(
    postgres: PostgresServer, postgres_database: str, namespace: str, driver: str
) -> None:
    """Its sessions are not used again: the next one may be on the new primary."""
    async with engine_of(postgres_database.replace(":", f"+{driver}:", 1)) as engine:
        counter = counter_on(engine, namespace)
        assert await counter.next_max_id(1) == 1
        setting = f"alter database {namespace} set default_transaction_read_only ="
        postgres.execute(f"{setting} on")
        await engine.dispose()
        with pytest.raises(StoreUnavailableError, match="read-only"):
            await counter.next_max_id(1)
        postgres.execute(f"{setting} off")
        assert await counter.next_max_id(1) == 2


class TestLoops:
    """One object, several event loops one after the other."""

    def test_an_engine_of_ours(self, url: str, namespace: str) -> None:
        """After aclose, in another asyncio.run, also of an object that nobody closed."""
        asyncio.run(_create_schema(url))
        store = SqlAlchemyStore.from_url(url)
        counter = store.segment_distributor(namespace=namespace, name="order")

        async def life() -> int:
            first = await counter.next_max_id(10)
            await store.aclose()
            return await counter.next_max_id(10) - first

        assert [asyncio.run(life()) for _ in range(3)] == [10, 10, 10]
        with asyncio.Runner() as one, asyncio.Runner() as other:
            assert one.run(counter.next_max_id(10)) == 70
            with pytest.raises(WrongLoopError):
                other.run(counter.next_max_id(10))
            one.run(store.aclose())
            assert other.run(counter.next_max_id(10)) == 80
        gc.collect()

    def test_a_users_engine(self, url: str, namespace: str) -> None:
        """It lives on one loop, unless it is disposed of in between, or keeps no connections."""

        async def life(engine: AsyncEngine, *, dispose: bool) -> int:
            found: int = await counter.next_max_id(10)
            if dispose:
                await engine.dispose()
            return found

        asyncio.run(_create_schema(url))
        engine = create_async_engine(url)
        counter = counter_on(engine, namespace)
        granted = [asyncio.run(life(engine, dispose=True)) for _ in range(2)]
        with asyncio.Runner() as one, asyncio.Runner() as other:
            one.run(life(engine, dispose=False))
            with pytest.raises(WrongLoopError, match="engine"):
                other.run(life(engine, dispose=True))
            one.run(engine.dispose())
        engine = create_async_engine(url, poolclass=NullPool)
        counter = counter_on(engine, namespace)
        granted += [asyncio.run(life(engine, dispose=False)) for _ in range(2)]
        assert granted == [10, 20, 40, 50]

    def test_not_under_trio(self, url: str, namespace: str) -> None:
        """The drivers run on asyncio only, and the error says so."""
        import trio

        for counter in (
            SqlAlchemyStore.from_url(url).segment_distributor(namespace=namespace, name="order"),
            counter_on(create_async_engine(url), namespace),
        ):
            with pytest.raises(UnsupportedRuntimeError, match="asyncio"):
                trio.run(counter.next_max_id, 10)


async def _create_schema(url: str) -> None:
    async with SqlAlchemyStore.from_url(url) as store:
        await store.create_schema()
