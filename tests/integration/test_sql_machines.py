"""Machine ids on SQLite and PostgreSQL: what the contract leaves to the store."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from aiocosid.abc import MachineGrant
from aiocosid.errors import (
    InvalidArgumentError,
    MachineIdLostError,
    SchemaDroppedError,
)
from aiocosid.machine.cells import MachineRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlite import SqliteStore
from tests.servers import PostgresServer

from ._machine_tables import (
    T0,
    PostgresTables,
    SqliteTables,
    Tables,
    tables_of,
    who,
)
from ._snowflakes import until
from ._sql import SqlStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = T0 * 2
WAITS = "datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.stress)])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables of one database after the other."""
    return tables_of(request, request.param)


@pytest_asyncio.fixture
async def store(tables: Tables) -> AsyncIterator[SqlStore]:
    """A store whose clock stands at T0."""
    await tables.prepare()
    async with tables.open_set() as store:
        yield store


class Fleet:
    """Instances of the namespace ``dev`` with two bits, by number."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.made: dict[tuple[int, bool], CellMachineIdDistributor] = {}

    def make(self, number: int, *, stable: bool = False) -> CellMachineIdDistributor:
        """Another object of an instance."""
        return self.store.machine_id_distributor(
            namespace="dev", instance_id=who(number, stable=stable)
        )

    def __call__(self, number: int, *, stable: bool = False) -> CellMachineIdDistributor:
        """An instance's only object."""
        return self.made.setdefault((number, stable), self.make(number, stable=stable))

    async def take(
        self,
        number: int,
        *,
        stable: bool = False,
        now: int = T0,
        latest: int = FAR,
        bits: int = 2,
    ) -> MachineGrant:
        """Distribute to an instance."""
        return await self(number, stable=stable).distribute(bits, now_ms=now, latest_ms=latest)


@pytest.fixture
def fleet(store: SqlStore) -> Fleet:
    """Instances on one store."""
    return Fleet(store)


class TestStore:
    """What the command line works on."""

    async def test_machines(self, fleet: Fleet, store: SqliteStore, tables: Tables) -> None:
        await fleet.take(1, stable=True)
        await fleet.take(0)
        await fleet(0).renew(1, now_ms=T0 + 1, fence_ms=T0 + 2)
        tables.put_row(7, "java", T0, namespace="a")
        tables.write_note(7, MachineRecord("gone", stable=True, fence_ms=5), 0, namespace="a")
        found = await store.machines()
        assert [(each.namespace, each.machine_id) for each in found] == [
            ("a", 7),
            ("dev", 0),
            ("dev", 1),
        ]
        java, stable, other = found
        assert (java.instance_id, java.fence_ms, java.stable) == ("java", -1, False)
        assert (stable.instance_id, stable.fence_ms, stable.stable) == (who(1).text, -1, True)
        assert (other.last_timestamp_ms, other.fence_ms, other.stable) == (T0 + 1, T0 + 2, False)
        assert await store.machines(namespace="a") == [java]
        with pytest.raises(InvalidArgumentError):
            await store.machines(namespace="")

    async def test_the_tables_may_be_made_by_many(self, tables: Tables) -> None:
        stores = [tables.store.from_url(tables.url) for _ in range(8)]
        await asyncio.gather(*(each.create_schema() for each in stores))
        for each in stores:
            assert await each.machines() == []
            await each.aclose()


driver: Any = asyncpg  # its annotations stop half-way


class TestPostgres:
    """What only a server has."""

    @pytest.mark.parametrize(
        "table",
        ["cosid_machine", "aiocosid_cell"],
    )
    async def test_a_missing_table_is_named(
        self, postgres: PostgresServer, postgres_database: str, table: str
    ) -> None:
        async with PostgresStore.from_url(postgres_database) as store:
            await store.create_schema()
            postgres.execute(f"drop table {table}", database=postgres_database.rpartition("/")[2])
            one = store.machine_id_distributor(namespace="dev")
            with pytest.raises(SchemaDroppedError) as caught:
                await one.distribute(2, now_ms=T0, latest_ms=T0)
            assert caught.value.tables == (table,)

    async def test_a_name_at_its_widest(self, postgres_database: str) -> None:
        async with PostgresStore.from_url(postgres_database) as store:
            await store.create_schema()
            one = store.machine_id_distributor(namespace="é" * 91, instance_id="主" * 100)
            assert await one.distribute(2, now_ms=T0, latest_ms=T0) == MachineGrant(0, -1)
            await one.renew(0, now_ms=T0, fence_ms=T0)
            await one.release(0, last_ms=T0)

    @pytest.mark.parametrize("call", ["guard", "revert"])
    async def test_a_call_that_waits_for_a_namesake(
        self, postgres: PostgresServer, postgres_database: str, call: str
    ) -> None:
        """By when it has the row, that was handed out again: it is lost, and writes nothing."""
        tables = PostgresTables(postgres, postgres_database)
        await tables.prepare()
        async with PostgresStore.from_url(tables.url) as store:
            fleet = Fleet(store)
            older, newer = fleet.make(0), fleet.make(0)
            await older.distribute(2, now_ms=T0, latest_ms=FAR)
            await older.renew(0, now_ms=T0, fence_ms=T0 + 50)
            blocker = await driver.connect(tables.url)
            await blocker.execute("begin; select from cosid_machine for update")

            async def queued(count: int) -> None:
                waiting = f"select count(*) from pg_stat_activity where {WAITS}"
                await until(lambda: tables.execute(waiting) == [[f"{count}"]])

            taking = asyncio.ensure_future(newer.distribute(2, now_ms=T0 + 1, latest_ms=FAR))
            await queued(1)
            late: dict[str, Callable[[], Awaitable[None]]] = {
                "guard": lambda: older.renew(0, now_ms=T0 + 9, fence_ms=T0 + 99),
                "revert": lambda: older.release(0, last_ms=T0 + 9),
            }
            calling = asyncio.ensure_future(late[call]())
            await queued(2)
            await blocker.close()
            assert await taking == MachineGrant(0, T0 + 50)
            [outcome] = await asyncio.gather(calling, return_exceptions=True)
            assert isinstance(outcome, MachineIdLostError) == (call == "guard")
            assert (tables.holder(0), tables.stamp(0)) == (who(0).text, T0 + 1)
            assert tables.record(0) == T0 + 50
            await newer.renew(0, now_ms=T0 + 2, fence_ms=T0 + 60)


class TestSqlite:
    """What only a file can be."""

    async def test_the_tables_are_made_on_first_use(self, tmp_path: Path) -> None:
        tables = SqliteTables(tmp_path / "ids.db")
        tables.execute("vacuum")
        async with SqliteStore.from_url(tables.url) as store:
            assert await store.machines() == []
            one = store.machine_id_distributor(namespace="dev")
            assert (await one.distribute(2, now_ms=T0, latest_ms=T0)).machine_id == 0
