"""SQL stores that may have forgotten who holds which machine id."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import asyncpg
import pytest
import pytest_asyncio

from aiocosid.abc import MachineMarker
from aiocosid.errors import (
    MachineIdLostError,
    MachineIdQuarantineError,
    SchemaDroppedError,
    StoreUnavailableError,
)
from aiocosid.machine.cells import NamespaceRecord
from aiocosid.machine.distributor import CellMachineIdDistributor
from aiocosid.stores._postgres import IDENTITY
from aiocosid.stores.postgres import PostgresStore
from aiocosid.stores.sqlite import SqliteStore
from tests import sql_cells
from tests.servers import GUEST, GUEST_PASSWORD, PostgresPair, PostgresServer, eventually

from ._machine_tables import (
    T0,
    Tables,
    tables_of,
    who,
)
from ._snowflakes import until
from ._sql import SqlStore

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FAR = T0 * 2
WAITS = "datname = current_database() and wait_event_type = 'Lock'"

driver: Any = asyncpg  # its annotations stop half-way
T = TypeVar("T")


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.stress)])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables of one database after the other."""
    return tables_of(request, request.param)


@pytest_asyncio.fixture
async def store(tables: Tables) -> AsyncIterator[SqlStore]:
    """A store whose clock stands at T0, marked."""
    await tables.prepare()
    async with tables.open_set() as store:
        yield store


def of(store: SqlStore, number: int, safe_guard: float = 300) -> CellMachineIdDistributor:
    """Another object of an instance."""
    return store.machine_id_distributor(
        namespace="dev", instance_id=who(number), safe_guard=safe_guard
    )


async def take(one: CellMachineIdDistributor, now: int = T0) -> int:
    """Distribute one of four."""
    return (await one.distribute(2, now_ms=now, latest_ms=FAR)).machine_id


async def reassert(one: CellMachineIdDistributor, machine_id: int = 0, now: int = T0) -> str:
    """Assert an id; tell how that ended."""
    try:
        await one.reassert(machine_id, now_ms=now, fence_ms=now + 60)
    except MachineIdLostError as error:
        return error.reason
    return "kept"


async def refused(awaitable: Awaitable[object]) -> float:
    """Be refused by a quarantine; the seconds that are left."""
    with pytest.raises(MachineIdQuarantineError) as caught:
        await awaitable
    assert caught.value.namespace == "dev"
    return caught.value.seconds_left


def forget(tables: Tables) -> None:
    """Become another store."""
    sql_cells.forget(tables.execute, "dev", everything=False)


class TestOnBoth:
    """SQLite and PostgreSQL."""

    async def test_markers(self, store: SqlStore, tables: Tables) -> None:
        """All that are listed, and one that is asked for."""
        await store.initialize_namespace(namespace="ok")
        await store.set_machine_bits(namespace="dev", bits=2)
        forget(tables)
        due = [MachineMarker(namespace="dev", seconds_left=305), MachineMarker(namespace="ok")]
        assert await store.machine_markers() == due
        assert await store.machine_markers(namespace="dev") == due[:1]
        assert await store.initialize_namespace(namespace="dev") == due[0]


def changed(fact: str, value: str | int, *, of: str = "space/dev") -> str:
    """The statement that changes one fact of a cell, on PostgreSQL."""
    new = f"jsonb_build_object('{fact}', {value if isinstance(value, int) else repr(value)})"
    return f"update aiocosid_cell set value = value::jsonb || {new} where name = '{of}'"


class TestPostgres:
    """Which server, which database, which table; and who waits for whom."""

    @pytest.mark.parametrize(
        "synchronous",
        [
            pytest.param(False, marks=pytest.mark.nightly),
            pytest.param(True, marks=pytest.mark.stress),
        ],
    )
    async def test_a_promoted_standby(
        self, pair_factory: Callable[..., PostgresPair], *, synchronous: bool
    ) -> None:
        """It is another store, whatever it has lost; the same server started anew is not."""
        pair = pair_factory(synchronous=synchronous)
        async with PostgresStore.from_url(pair.url) as store:
            await store.create_schema()
            owners = [of(store, number) for number in range(2)]
            assert await take(owners[0]) == 0
            pair.primary.restart()
            pair.catch_up()
            async with PostgresStore.from_url(pair.standby.url) as standby:
                for call in (take(of(standby, 2)), reassert(of(standby, 0), 0)):
                    with pytest.raises(StoreUnavailableError):
                        await call
            if not synchronous:
                pair.standby.cut()
            assert await eventually(lambda: take(owners[1]), StoreUnavailableError) == 1
            pair.fail_over()
            left = await eventually(lambda: refused(take(of(store, 2))), StoreUnavailableError)
            assert 295 < left <= 305
            assert [await reassert(owners[number], number) for number in (0, 1)] == ["kept"] * 2
            held = [each.instance_id for each in await store.machines(namespace="dev")]
            assert held == [who(0).text, who(1).text]
            await refused(take(of(store, 2)))

    @pytest_asyncio.fixture
    async def tables(self, request: pytest.FixtureRequest) -> Tables:
        tables = tables_of(request, "postgres")
        await tables.prepare()
        return tables

    async def test_a_dump_that_was_read_in(self, tables: Tables) -> None:
        """The same rows in another table."""
        tables.execute("create table dump as select * from aiocosid_cell")
        tables.execute("drop table aiocosid_cell")
        async with PostgresStore.from_url(tables.url) as store:
            with pytest.raises(SchemaDroppedError, match=r"aiocosid_cell.*--after-loss"):
                await take(of(store, 0))
            await store.create_schema(after_loss=True)
            tables.execute("insert into aiocosid_cell select * from dump")
            await refused(take(of(store, 0)))

    async def test_rights_of_an_ordinary_user(
        self, tables: Tables, postgres: PostgresServer
    ) -> None:
        """It needs none to know which server it is."""
        tables.execute(f"grant select, insert, update on cosid_machine to {GUEST}")
        tables.execute(f"grant select, insert, update, delete on aiocosid_cell to {GUEST}")
        url = postgres.url_for(
            user=GUEST, password=GUEST_PASSWORD, database=tables.url.rpartition("/")[2]
        )
        async with PostgresStore.from_url(url) as store:
            owner = of(store, 0)
            assert await take(owner) == 0
            forget(tables)
            await refused(take(of(store, 1)))
            assert await reassert(owner) == "kept"
            await store.initialize_namespace(namespace="dev", confirm_no_holders=True)
            assert await take(of(store, 1)) == 1

    @pytest.mark.parametrize("is_there", [False, True])
    async def test_one_that_is_about_to_take_when_it_begins(
        self, tables: Tables, *, is_there: bool
    ) -> None:
        """Its statement has begun on a sound store; it waits, and then finds that it is not."""
        if is_there:
            tables.put_row(0, "", 0)
        begins = changed("identity", "another")
        async with PostgresStore.from_url(tables.url) as store:
            await store.initialize_namespace(namespace="dev")
            await refused(await self._meanwhile(tables, begins, take(of(store, 0))))
        assert [row["instance_id"] for row in tables.rows()] == [""] * is_there

    async def test_who_waits_for_the_marker_holds_no_row(self, tables: Tables) -> None:
        """A first renewal with a longer safe guard: whoever takes an id locks both as well."""
        async with PostgresStore.from_url(tables.url) as store:
            owner = of(store, 0)
            await take(owner)
            shorter = changed("guard_ms", 1)
            tables.execute(shorter)
            guarding = owner.renew(0, now_ms=T0 + 1, fence_ms=T0)
            locked = "select 1 from cosid_machine for update nowait"
            await (await self._meanwhile(tables, shorter, guarding, also=locked))
        space = sql_cells.read_space(tables.execute, "dev") or NamespaceRecord()
        assert (space.guard_ms, tables.stamp(0)) == (300_000, T0 + 1)

    async def _meanwhile(
        self, tables: Tables, change: str, call: Coroutine[Any, Any, T], *, also: str = ""
    ) -> asyncio.Task[T]:
        """Change the marker in a transaction that ends when the call waits for it.

        Another statement may be run there before it ends.
        """
        connection = await driver.connect(tables.url)
        try:
            async with connection.transaction():
                await connection.execute(change)
                task = asyncio.create_task(call)
                await until(
                    lambda: tables.execute(f"select 1 from pg_stat_activity where {WAITS}") != []
                )
                if also:
                    await connection.execute(also)
        finally:
            await connection.close(timeout=5)
        return task

    async def test_what_an_identity_is(
        self, tables: Tables, postgres: PostgresServer, namespace: str
    ) -> None:
        """The cluster, its timeline, the database and the table."""
        (text,) = tables.execute(f"select {IDENTITY}")[0]
        system, timeline, database, table = text.split("/")
        assert system == postgres.execute("select system_identifier from pg_control_system()")
        assert timeline == "00000001"
        asked = f"select oid from pg_database where datname = '{namespace}'"
        assert database == postgres.execute(asked)
        assert [[table]] == tables.execute("select 'aiocosid_cell'::regclass::oid")


class TestSqlite:
    """Which file."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "ids.db"
        path.touch()
        return path

    @pytest_asyncio.fixture
    async def owner(self, path: Path) -> AsyncIterator[CellMachineIdDistributor]:
        """Who holds 0 in a file that nobody has marked."""
        async with SqliteStore.from_url(f"sqlite:///{path}") as store:
            owner = of(store, 0)
            assert await take(owner) == 0
            yield owner

    @staticmethod
    def copy(path: Path, name: str = "copy.db") -> Path:
        """Copy a file that is in use, in the way that SQLite offers."""
        target = path.with_name(name)
        with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)
        return target

    async def test_a_copy_is_another_store(
        self, path: Path, owner: CellMachineIdDistributor
    ) -> None:
        """Also for a namespace that is new; the file that was copied is what it was."""
        copied = self.copy(path)
        async with SqliteStore.from_url(f"sqlite:///{copied}") as store:
            await refused(take(of(store, 1)))
            other = store.machine_id_distributor(namespace="new")
            with pytest.raises(MachineIdQuarantineError):
                await take(other)
            for namespace in ("dev", "newer"):
                assert (await store.initialize_namespace(namespace=namespace)).is_quarantined
                assert (
                    await store.initialize_namespace(namespace=namespace, confirm_no_holders=True)
                ).is_created
            assert await take(of(store, 1)) == 1
        async with SqliteStore.from_url(f"sqlite:///{path}") as store:
            assert await take(of(store, 1)) == 1
        await owner.renew(0, now_ms=T0, fence_ms=T0)

    async def test_a_file_that_was_moved_is_the_same(
        self, path: Path, owner: CellMachineIdDistributor
    ) -> None:
        await owner._backend.aclose()  # type: ignore[attr-defined]
        moved = path.with_name("moved.db")
        os.rename(path, moved)  # noqa: PTH104
        async with SqliteStore.from_url(f"sqlite:///{moved}") as store:
            assert await take(of(store, 1)) == 1
            await store._backend.link.fetch_rows("VACUUM")
            assert await take(of(store, 2)) == 2

    async def test_one_is_put_in_its_place(
        self, path: Path, owner: CellMachineIdDistributor
    ) -> None:
        """While its owner lives, who says so."""
        copied = self.copy(path)
        with closing(sqlite3.connect(copied)) as database, database:
            database.execute("delete from cosid_machine")
        os.replace(copied, path)  # noqa: PTH105
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with pytest.raises(StoreUnavailableError, match="replaced"):
            await reassert(owner)
        async with SqliteStore.from_url(f"sqlite:///{path}") as store:
            await refused(take(of(store, 1)))
            with pytest.raises(MachineIdQuarantineError):
                await owner.renew(0, now_ms=T0, fence_ms=T0)
            assert await reassert(owner) == "kept"
            await refused(take(of(store, 1)))
            await store.initialize_namespace(namespace="dev", confirm_no_holders=True)
            assert await take(of(store, 1)) == 1
        await owner.renew(0, now_ms=T0, fence_ms=T0)

    async def test_a_file_without_our_table(
        self, path: Path, owner: CellMachineIdDistributor
    ) -> None:
        """As CosId makes it: nobody knows whether somebody holds an id, until it is marked."""
        for namespace in ("dev", "marked"):
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("drop view aiocosid_witness")
                database.execute("drop table aiocosid_cell")
            async with SqliteStore.from_url(f"sqlite:///{path}") as store:
                if namespace == "dev":
                    await refused(take(of(store, 1)))
                    continue
                assert (await store.initialize_namespace(namespace="dev")).is_created
                assert await take(of(store, 1)) == 1

    async def test_connections_of_the_users(self, path: Path) -> None:
        """By their file as well; what has none is never another."""
        for place in (":memory:", "", path):
            async with aiosqlite.connect(place) as connection:
                store = SqliteStore(connection)
                assert await take(of(store, 0)) == 0
                assert await take(of(SqliteStore(connection), 1)) == 1
        copied = Path(shutil.copy(path, path.with_name("copied.db")))
        async with aiosqlite.connect(copied) as connection:
            await refused(take(of(SqliteStore(connection), 2)))
        async with aiosqlite.connect(path) as connection:
            assert await take(of(SqliteStore(connection), 2)) == 2

    async def test_a_users_connection_to_a_file_that_is_not_there_any_more(
        self, path: Path
    ) -> None:
        """Its owner falls silent, and who comes as well: others work on the file that is there."""
        async with aiosqlite.connect(path) as connection:
            owner = of(SqliteStore(connection), 0)
            assert await take(owner) == 0
            old, copied = path.with_name("old.db"), self.copy(path)
            os.rename(path, old)  # noqa: PTH104
            for replaced in (False, True):
                if replaced:
                    os.rename(copied, path)  # noqa: PTH104
                with pytest.raises(StoreUnavailableError, match="replaced or deleted"):
                    await reassert(owner)
                with pytest.raises(StoreUnavailableError, match="replaced or deleted"):
                    await take(of(SqliteStore(connection), 1))
            os.replace(old, path)  # noqa: PTH105
            assert await reassert(owner) == "kept"
