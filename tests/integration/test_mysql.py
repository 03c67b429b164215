"""Counters in MySQL and MariaDB: what only this server has."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest
import pytest_asyncio
from asyncmy.cursors import DictCursor

from aiocosid.abc import MAX_ID
from aiocosid.errors import (
    IdOverflowError,
    InvalidArgumentError,
    StoreAuthenticationError,
    StoreError,
)
from aiocosid.stores.mysql import MysqlStore
from tests import sql_cells
from tests.machine_marks import mariadb_run
from tests.servers import IS_MYSQL, MariadbServer

from ._clients import pool_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

T0 = 1_700_000_000_000
NO_PADDING: Final = "utf8mb4_0900_ai_ci" if IS_MYSQL else "utf8mb4_nopad_bin"


@pytest_asyncio.fixture
async def store(mariadb_database: str) -> AsyncIterator[MysqlStore]:
    """A store in a database of the test's own, with its tables."""
    async with MysqlStore.from_url(mariadb_database) as store:
        await store.create_schema()
        yield store


@pytest.fixture
def execute(mariadb: MariadbServer, mariadb_database: str) -> Callable[[str], str]:
    """Run SQL there behind everybody's back."""
    database = mariadb_database.rpartition("/")[2]
    return lambda sql: mariadb.execute(sql, database=database)


@pytest.fixture
def raw(mariadb: MariadbServer, mariadb_database: str) -> Iterator[Any]:
    """A blocking connection behind everybody's back."""
    with closing(mariadb.connect(mariadb_database.rpartition("/")[2])) as connection:
        yield connection


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged since the last call."""
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return found


class TestCounter:
    """One counter and its row."""

    async def test_a_column_that_holds_more(
        self, store: MysqlStore, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """It is full at 2^63-1 all the same, by the other scheme as well."""
        async with MysqlStore.from_url(mariadb_database.replace("mysql:", "mariadb:")) as other:
            await store.set_floor(name="end", above=1)
            for value in (2**63, 2**64 - 1):
                execute(f"update cosid set last_max_id = {value}")
                for each in (store, other):
                    with pytest.raises(IdOverflowError):
                        await each.segment_distributor(name="end").next_max_id(1)
        assert execute("select last_max_id from cosid") == f"{2**64 - 1}"

    async def test_other_columns(self, store: MysqlStore, execute: Callable[[str], str]) -> None:
        """CosId's older signed ones, and numeric; a narrow one is full earlier, never cut."""
        for kind, end in (("bigint", MAX_ID), ("decimal(20)", MAX_ID), ("int unsigned", 2**32 - 1)):
            execute(f"delete from cosid; alter table cosid modify last_max_id {kind} not null")
            execute("delete from aiocosid_cell where name = 'counters'")
            counter = store.segment_distributor(name="order")
            assert [await counter.next_max_id(10) for _ in range(2)] == [10, 20]
            await store.set_floor(name="order", above=end - 10)
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(11)
            assert await counter.next_max_id(10) == end
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(1)
            (listed,) = await store.counters()
            assert listed.last_max_id == end
        execute("delete from cosid; alter table cosid modify last_max_id bigint not null")
        execute("insert into cosid values ('cosid.order', -5, 0)")
        assert await store.segment_distributor(name="order").next_max_id(3) == -2


class TestSessions:
    """A user's pool, whatever it is set to."""

    async def test_not_strict_and_not_in_autocommit_mode(
        self, store: MysqlStore, mariadb_database: str, execute: Callable[[str], str]
    ) -> None:
        """Grants are committed and never cut, and the session is left as it was."""
        execute("alter table cosid modify last_max_id int unsigned not null")
        options: dict[str, Any] = {"autocommit": False, "sql_mode": "''", "charset": "latin1"}
        async with pool_of(mariadb_database, cursor_cls=DictCursor, **options) as pool:
            counter = MysqlStore(pool).segment_distributor(name="order")
            for end in (10, 20):
                assert await counter.next_max_id(10) == end
                assert execute("select last_max_id from cosid") == f"{end}"
            await store.set_floor(name="order", above=2**32 - 5)
            with pytest.raises(IdOverflowError):
                await counter.next_max_id(10)
            assert execute("select last_max_id from cosid") == f"{2**32 - 5}"
            assert await counter.next_max_id(4) == 2**32 - 1
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute(
                    "select @@sql_mode m, @@autocommit a, @@innodb_lock_wait_timeout w"
                )
                assert await cursor.fetchall() == [{"m": "", "a": 0, "w": 50}]

    async def test_machine_ids_on_it(self, store: MysqlStore, mariadb_database: str) -> None:
        """The same, in another time zone, and with other numbers of affected rows."""
        await store.initialize_namespace(namespace="shop")
        for init in ("SET time_zone = '-11:00'", "SET time_zone = '+13:00', sql_mode = ''"):
            async with pool_of(mariadb_database, init_command=init, client_flag=2) as pool:
                mine = MysqlStore(pool)
                one = mine.machine_id_distributor(namespace="shop", instance_id=init)
                grant = await one.distribute(4, now_ms=T0, latest_ms=T0)
                await one.renew(grant.machine_id, now_ms=T0 + 1, fence_ms=T0 + 2)
        assert [each.machine_id for each in await store.machines()] == [0, 1]
        assert {each.fence_ms for each in await store.machines()} == {T0 + 2}

    async def test_durability(
        self,
        mariadb_alone: MariadbServer,
        mariadb_alone_database: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """What a crash may take back is told once, or refused."""
        refuse = f"{mariadb_alone_database}?durability=refuse"
        async with MysqlStore.from_url(refuse) as store:
            await store.create_schema()
        try:
            mariadb_alone.execute("set global innodb_flush_log_at_trx_commit = 0")
            async with MysqlStore.from_url(mariadb_alone_database) as store:
                await store.counters()
            (told,) = warnings(caplog)
            assert "innodb_flush_log_at_trx_commit is 0" in told
            mariadb_alone.execute("set global innodb_flush_log_at_trx_commit = 2")
            async with MysqlStore.from_url(mariadb_alone_database) as store:
                for name in "ab":
                    await store.segment_distributor(name=name).next_max_id(1)
            (told,) = warnings(caplog)
            place = mariadb_alone_database.rpartition("@")[2].partition("?")[0]
            assert told.startswith(f"mysql {place}: innodb_flush_log_at_trx_commit is 2: a crash")
            async with MysqlStore.from_url(refuse) as store:
                for _ in range(2):
                    with pytest.raises(StoreError, match=r"refuse.*trx_commit is 2"):
                        await store.segment_distributor(name="a").next_max_id(1)
            async with pool_of(mariadb_alone_database) as pool:
                for name in "ab":
                    await MysqlStore(pool).segment_distributor(name=name).next_max_id(1)
                assert len(warnings(caplog)) == 1
                with pytest.raises(StoreError, match="durability='refuse'"):
                    await MysqlStore(pool, durability="refuse").counters()
                await MysqlStore(pool, durability="ignore").counters()
            assert not warnings(caplog)
            mariadb_alone.execute("set global innodb_flush_log_at_trx_commit = 1")
            if IS_MYSQL:  # the rest is a plugin there, and it has no Aria
                return
            # Without replicas it falls back at once.
            mariadb_alone.execute("set global rpl_semi_sync_master_timeout = 1")
            mariadb_alone.execute("set global rpl_semi_sync_master_enabled = on")
            mariadb_alone.execute(
                f"alter table {mariadb_alone_database.rpartition('/')[2]}.cosid engine = Aria"
            )
            async with MysqlStore.from_url(refuse) as store:
                with pytest.raises(StoreError, match=r"master_timeout is 1: .*cosid is Aria"):
                    await store.segment_distributor(name="a").next_max_id(1)
        finally:
            mariadb_alone.execute("set global innodb_flush_log_at_trx_commit = 1")
            if not IS_MYSQL:
                mariadb_alone.execute("set global rpl_semi_sync_master_enabled = default")
                mariadb_alone.execute("set global rpl_semi_sync_master_timeout = default")


class TestRefusals:
    """What retrying does not mend."""

    async def test_a_password_beyond_latin(self, mariadb: MariadbServer, namespace: str) -> None:
        """It is sent as it was set."""
        mariadb.execute(f"create user {namespace} identified by 'p命😀'")
        store = MysqlStore.from_url(mariadb.url_for(user=namespace, password="p命😀"))  # noqa: S106
        with pytest.raises(StoreAuthenticationError, match=f"to database '{mariadb.database}'"):
            await store.counters()
        mariadb.execute(f"drop user {namespace}")

    async def test_wrong_options(self) -> None:
        """Refused with those that there are."""
        for options, expected in (
            ("charset=utf8", "options are durability"),
            ("durability=warn&durability=warn", "at most once"),
            ("durability=maybe", "warn, refuse or ignore"),
            ("ssl-mode=PREFERRED", "VERIFY_IDENTITY"),
            (f"ssl-mode=DISABLED&ssl-ca={__file__}", "another ssl-mode"),
            ("ssl-ca=/no/such.pem", "can be read"),
        ):
            with pytest.raises(InvalidArgumentError, match=expected):
                MysqlStore.from_url(f"mysql://host/db?{options}")


class TestSchema:
    """The table: ours, CosId's, or none."""

    @pytest.mark.parametrize(
        "collation",
        [
            "utf8mb4_unicode_ci",
            *(
                pytest.param(name, marks=pytest.mark.stress)
                for name in ("latin1_swedish_ci", "utf8mb3_bin", NO_PADDING)
            ),
        ],
    )
    async def test_somebodys_collation(
        self,
        mariadb: MariadbServer,
        mariadb_database: str,
        execute: Callable[[str], str],
        collation: str,
    ) -> None:
        """Names that are one name there share a row; no id comes twice, and all goes its way."""
        charset = collation.partition("_")[0]
        execute(
            f"alter database character set {charset} collate {collation};"
            "create table cosid (name varchar(100) primary key,"
            "last_max_id bigint unsigned not null, last_fetch_time bigint unsigned not null);"
            "create table cosid_machine (name varchar(100) primary key, namespace varchar(100),"
            "machine_id int unsigned, last_timestamp bigint unsigned not null default 0,"
            "instance_id varchar(100) not null default '', distribute_time bigint unsigned not null"
            " default 0, revert_time bigint unsigned not null default 0,"
            "key idx_namespace (namespace), key idx_instance_id (instance_id))"
        )
        is_exact = collation.endswith("bin")
        async with MysqlStore.from_url(mariadb_database) as store:
            await store.create_schema()
            await store.initialize(confirm_no_holders=True)
            ends = [
                await store.segment_distributor(name=name).next_max_id(10) for name in ("ä", "Ä")
            ]
            assert ends == ([10, 10] if is_exact else [10, 20])
            await store.initialize_namespace(namespace="shop", safe_guard=1)
            made = [
                store.machine_id_distributor(namespace="shop", instance_id=name, safe_guard=300)
                for name in ("ä", "Ä", "a ")
            ]
            for number, each in enumerate(made):
                grant = await each.distribute(2, now_ms=T0, latest_ms=2 * T0)
                assert grant.machine_id == number, "an instance is another, however it is compared"
                await each.renew(number, now_ms=T0 + 1, fence_ms=T0 + 5)
            run = mariadb_run(mariadb, mariadb_database.rpartition("/")[2])
            sql_cells.forget(run, "shop", everything=False)
            assert (await store.machine_markers())[0].is_quarantined
            for number, each in enumerate(made):
                await each.reassert(number, now_ms=T0 + 2, fence_ms=T0 + 6)
                await each.release(number, last_ms=T0 + 3)
            assert {each.instance_id for each in await store.machines()} == {""}
            await store.initialize_namespace(namespace="shop", confirm_no_holders=True)
            await store.set_machine_bits(namespace="shop", bits=5)


async def test_tls(mariadb_factory: Callable[..., MariadbServer]) -> None:
    """With whom the authority vouches for, or anybody, or nobody."""
    server = mariadb_factory(tls=True)
    asked = {
        "": None,
        "ssl-mode=REQUIRED": None,
        f"ssl-ca={server.ca_path}": None,
        f"ssl-mode=VERIFY_IDENTITY&ssl-ca={server.ca_path}": None,
        f"ssl-ca={server.stranger_ca_path}": "not trusted",
        "ssl-mode=VERIFY_CA": "not trusted",
    }
    for options, refusal in asked.items():
        async with MysqlStore.from_url(f"{server.url}?{options}") as store:
            if refusal is None:
                executor = store._backend.link
                ((_, cipher),) = await executor.fetch_rows("SHOW STATUS LIKE 'Ssl_cipher'")
                assert bool(cipher) is bool(options)
            else:
                with pytest.raises(StoreError, match=refusal) as caught:
                    await store.counters()
                assert not caught.value.retryable


class JavaNode:
    """CosId's JDBC store, by its own statements."""

    def __init__(self, connection: Any, name: str) -> None:
        self.connection, self.name = connection, name
        connection.autocommit(False)

    def next_max_id(self, step: int) -> int:
        """Its one transaction."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                "update cosid set last_max_id=(last_max_id + %s),last_fetch_time=unix_timestamp() "
                "where name = %s",
                (step, self.name),
            )
            cursor.execute("select last_max_id from cosid where name = %s", (self.name,))
            ((max_id,),) = cursor.fetchall()
        self.connection.commit()
        return int(max_id)


@pytest.mark.parametrize("turns", [100, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_beside_a_java_node(store: MysqlStore, raw: Any, turns: int) -> None:
    """Many turns on CosId's row: ranges are ``(old, new]`` on both sides, and tile."""
    with raw.cursor() as cursor:
        cursor.execute(
            "insert into cosid (name, last_max_id,last_fetch_time) "
            "value ('ns.order', 0,unix_timestamp())"
        )
    java = JavaNode(raw, "ns.order")
    ours = store.segment_distributor(namespace="ns", name="order")
    kept: list[tuple[int, int]] = []
    for turn in range(turns):
        step = turn * 7 % 20 + 1
        if turn % 2:
            end = java.next_max_id(step)
            kept.append((end - step, end))
        else:
            end = await ours.next_max_id(step)
            kept.append((end - step, end))
    assert [start for start, _ in kept] == [0, *(end for _, end in kept[:-1])]


async def test_a_rebuilt_table_is_another_store(
    mariadb: MariadbServer, mariadb_database: str, namespace: str
) -> None:
    """The server cannot tell it from one that was read in; statistics alone rebuild nothing."""
    async with MysqlStore.from_url(mariadb_database) as store:
        await store.create_schema()
        for statement, is_same in (("analyze", True), ("optimize", False)):
            await asyncio.sleep(1.1)  # the table's time is in seconds
            mariadb.execute(f"{statement} table aiocosid_cell", database=namespace)
            assert await store.is_initialized() is is_same
