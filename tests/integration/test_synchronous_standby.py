"""A fail-over takes back a commit whose wait for a synchronous standby was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid import store_from_url
from aiocosid.abc import Store
from aiocosid.errors import StoreUnavailableError
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from tests.servers import PostgresPair, PostgresServer, eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

driver: Any = asyncpg  # its annotations stop half-way

T, FAR = 1_700_000_000_000, 2_000_000_000_000

WAITS = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

# An ordinary warning, of the same class: a trigger's.
TALKS = """
CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; RETURN NEW; END $$;
CREATE TRIGGER talk BEFORE UPDATE ON cosid FOR EACH ROW EXECUTE FUNCTION talk();
"""


async def cancelled_wait(primary: PostgresServer, call: Awaitable[object]) -> object:
    """Make a call, and cancel its commit while it waits for the standby."""
    task = asyncio.ensure_future(call)

    async def waits() -> bool:
        return primary.execute(f"SELECT count(*) {WAITS}") == "1"

    await eventually(waits)
    assert primary.execute(f"SELECT pg_cancel_backend(pid) {WAITS}") == "t"
    return await task


async def test_what_no_standby_has_is_no_grant(
    pair_factory: Callable[..., PostgresPair],
) -> None:
    """By each driver and in each session, one that hides warnings included; then a fail-over."""
    pair = pair_factory(synchronous=True)
    primary, url = pair.primary, pair.primary.url
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(store_from_url(url))
        await own.create_schema()
        primary.execute(TALKS)
        silent: Any = {"client_min_messages": "error"}
        pool = await stack.enter_async_context(
            driver.create_pool(url, min_size=1, max_size=1, server_settings=silent)
        )
        stores: dict[str, Store] = {"own": own, "pool": PostgresStore(pool, durability="ignore")}
        for name in ("asyncpg", "psycopg"):
            # Not in autocommit, as an application's own.
            engine = create_async_engine(url.replace(":", f"+{name}:", 1), pool_size=1)
            stack.push_async_callback(engine.dispose)
            stores[name] = SqlAlchemyStore(engine, durability="ignore")
        granted: dict[str, int] = {}
        for name, store in stores.items():
            counter = store.segment_distributor(name=name)
            await counter.next_max_id(10)
            granted[name] = await counter.next_max_id(10)  # the trigger's warning comes with it
        holder = own.machine_id_distributor(instance_id="a")
        held = await holder.distribute(10, now_ms=T, latest_ms=FAR)
        pair.standby.cut()

        for name, store in stores.items():
            counter = store.segment_distributor(name=name)
            machine = store.machine_id_distributor(instance_id=name)
            distribution = machine.distribute(10, now_ms=T, latest_ms=FAR)
            for call in (counter.next_max_id(10), distribution):
                with pytest.raises(StoreUnavailableError, match="standby has not confirmed"):
                    await cancelled_wait(primary, call)
        with pytest.raises(StoreUnavailableError, match="standby has not confirmed"):
            await cancelled_wait(
                primary, holder.renew(held.machine_id, now_ms=T + 1, fence_ms=T + 9)
            )

        pair.fail_over()
        async with store_from_url(pair.standby.url) as promoted:
            for name, last in granted.items():
                assert await promoted.segment_distributor(name=name).peek() == last
