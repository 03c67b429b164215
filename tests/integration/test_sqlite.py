"""Counters in a SQLite file: what only a file is, and can be."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import anyio
import pytest
import pytest_asyncio

import aiocosid
from aiocosid._life import fork
from aiocosid.abc import IdSegmentDistributor
from aiocosid.errors import (
    ForkedError,
    InvalidArgumentError,
    SchemaDroppedError,
    StoreAuthenticationError,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
)
from aiocosid.stores.sqlite import SqliteStore

from ._machine_tables import Tapped
from ._snowflakes import until

pytestmark = [pytest.mark.integration]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "ids.db"


@pytest.fixture
def url(path: Path) -> str:
    """Its URL; the file is there, and empty."""
    path.touch()
    return f"sqlite:///{path}"


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[SqliteStore]:
    """A store made from that URL."""
    async with SqliteStore.from_url(url) as store:
        yield store


@pytest_asyncio.fixture
async def connection(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    """A user's connection, as aiosqlite makes it without further words."""
    async with aiosqlite.connect(path) as connection:
        yield connection


def execute(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement behind everybody's back."""
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, values).fetchall()


def rows(path: Path) -> list[tuple[Any, ...]]:
    """What lies in the table, without the times."""
    return execute(path, "SELECT name, last_max_id FROM cosid ORDER BY name")


class TestCounter:
    """One counter and its row."""

    async def test_the_table_is_cosids(self, store: SqliteStore, path: Path) -> None:
        """Its columns are those of CosId's JDBC store."""
        await store.create_schema()
        columns = execute(
            path, "SELECT name, type, \"notnull\", pk FROM pragma_table_info('cosid')"
        )
        assert columns == [
            ("name", "varchar(100)", 1, 1),
            ("last_max_id", "bigint", 1, 0),
            ("last_fetch_time", "bigint", 1, 0),
        ]

    async def test_the_file_survives_a_power_cut(self, url: str, path: Path) -> None:
        """Every commit is synced to the file itself, with at least FULL."""
        own = SqliteStore.from_url(url)
        counter = own.segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        executor: Any = own._backend.link
        assert await executor.fetch_rows("PRAGMA journal_mode") == [("truncate",)]
        assert await executor.fetch_rows("PRAGMA synchronous") == [(3,)]
        await own.aclose()

    @pytest.mark.parametrize("turns", range(1, 12))
    async def test_closed_while_it_opens(self, store: SqliteStore, path: Path, turns: int) -> None:
        """Closing waits for it; nothing is left open, and the call ends either way."""
        await _made(path)
        threads = threading.active_count()
        call = asyncio.ensure_future(store.segment_distributor(name="order").next_max_id(10))
        for _ in range(turns):
            await asyncio.sleep(0)
        await store.aclose()
        assert await call == 10
        await _ended_down_to(threads)

    async def test_closed_in_a_cancelled_scope_while_it_opens(
        self, store: SqliteStore, path: Path
    ) -> None:
        """As a task group does that fails."""
        await _made(path)
        threads = threading.active_count()
        call = asyncio.ensure_future(store.segment_distributor(name="order").next_max_id(10))
        await asyncio.sleep(0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.aclose()
        assert await call == 10
        await _ended_down_to(threads)


class TestEnds:
    """What cannot be granted is refused whole, and nothing is written."""

    async def test_a_file_that_was_replaced(
        self, store: SqliteStore, path: Path, tmp_path: Path
    ) -> None:
        """A backup put in the file's place is seen; the old file is not counted on."""
        counter = store.segment_distributor(name="order")
        await counter.next_max_id(100)
        execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(path, tmp_path / "backup")
        await counter.next_max_id(100)
        for left in path.parent.glob("ids.db-*"):
            left.unlink()
        (tmp_path / "backup").rename(path)
        calls = (counter.next_max_id(100) for _ in range(3))
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, StoreUnavailableError)
            assert "replaced" in error.reason
        with pytest.raises(StoreRolledBackError):
            await counter.next_max_id(100)

    async def test_a_file_that_was_deleted(self, store: SqliteStore, path: Path) -> None:
        """It is not made again under generators that know better, nor under new ones."""
        counter = store.segment_distributor(name="order")
        await counter.next_max_id(100)
        await anyio.Path(path).unlink()
        with pytest.raises(StoreUnavailableError, match="replaced or deleted"):
            await counter.next_max_id(10)
        for each in (counter, store.segment_distributor(name="other")):
            with pytest.raises(StoreError, match="no such file") as caught:
                await each.next_max_id(10)
            assert not caught.value.retryable
        assert not await anyio.Path(path).exists()

    async def test_a_table_that_was_dropped(self, store: SqliteStore, path: Path) -> None:
        """It is created once, and not again in the middle of a life."""
        counter = store.segment_distributor(name="order")
        await counter.next_max_id(100)
        execute(path, "DROP TABLE cosid")
        with pytest.raises(SchemaDroppedError, match="'cosid' existed and was dropped"):
            await counter.next_max_id(100)


class TestFile:
    """Files that cannot be used are told apart."""

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:",
            "sqlite://",
            "sqlite:///",
            "sqlite://ids.db",
            "sqlite:ids.db",
            "sqlite:///:memory:",
            "sqlite:///%3Amemory:",
            "sqlite:///file:ids.db?mode=memory",
            "sqlite:///file::memory:",
            "sqlite:///ids.db?timeout=5",
            "sqlite:///ids.db#x",
            "sqlite:///a%00b",
            "redis://localhost",
        ],
    )
    async def test_wrong_urls(self, url: str) -> None:
        """What names no file is refused, with the right form and the way to memory."""
        for make in (SqliteStore.from_url, _from_url):
            with pytest.raises(
                InvalidArgumentError, match=r"sqlite:///ids\.db.*memory://"
            ) as caught:
                make(url)
            assert caught.value.argument == "url"

    async def test_no_secret_of_a_url_that_is_not_ours(self) -> None:
        """A server's URL, given to the wrong store, is not repeated."""
        with pytest.raises(InvalidArgumentError) as caught:
            SqliteStore.from_url("postgresql://me:secret@host/db")
        assert "secret" not in f"{caught.value!r} {vars(caught.value)}"

    async def test_a_path_is_relative_or_absolute_and_percent_encoded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three slashes start where the program is, for good; four at the root."""
        monkeypatch.chdir(tmp_path)
        store = SqliteStore.from_url("sqlite:///50%25%20off%3F.db")
        monkeypatch.chdir("/")
        async with store:
            await store.create_schema()
        assert (tmp_path / "50% off?.db").exists()
        assert repr(store) == f"<SqliteStore sqlite {tmp_path}/50% off?.db>"

    async def test_a_missing_folder(self, tmp_path: Path) -> None:
        """It is named, and not made."""
        store = SqliteStore.from_url(f"sqlite:///{tmp_path}/nowhere/ids.db")
        with pytest.raises(StoreError, match=f"no folder {tmp_path}/nowhere") as caught:
            await store.create_schema()
        assert not caught.value.retryable
        assert isinstance(caught.value.__cause__, sqlite3.Error)
        assert not (tmp_path / "nowhere").exists()

    async def test_a_folder(self, tmp_path: Path) -> None:
        """A folder is no file."""
        with pytest.raises(StoreError, match="it is a folder"):
            await SqliteStore.from_url(f"sqlite:///{tmp_path}").create_schema()

    @pytest.mark.parametrize("scheme", ["sqlite", "sqlite+aiosqlite"])
    async def test_only_one_call_makes_a_file(
        self, path: Path, caplog: pytest.LogCaptureFixture, scheme: str
    ) -> None:
        """A mistyped path is said, with the folder and the remedy, whatever is asked for."""
        caplog.set_level("INFO", "aiocosid")
        async with aiocosid.store_from_url(f"{scheme}:///{path}") as store:
            calls = (
                store.segment_distributor(name="order").next_max_id,
                partial(store.set_floor, name="order", above=1),
                store.counters,
                store.initialize,
                partial(store.machine_id_distributor().distribute, 10, now_ms=1, latest_ms=2**53),
                store.ask_server,
            )
            for call in calls:
                with pytest.raises(StoreError, match="no such file") as caught:
                    await call(*((1,) if call is calls[0] else ()))
                assert not caught.value.retryable
                for part in (
                    str(path),
                    str(Path.cwd()),
                    "aiocosid init --store URL",
                    "create=True",
                ):
                    assert part in str(caught.value)
            assert not await anyio.Path(path).exists()
            await store.create_schema()
            assert await store.counters() == []
            await store.create_schema()
        assert caplog.messages == [f"sqlite {path}: created the file"]

    async def test_something_else(self, tmp_path: Path) -> None:
        """A file of another kind is left as it is."""
        other = tmp_path / "notes.txt"
        other.write_text("nothing that a database would begin with" * 100)
        await anyio.to_thread.run_sync(int)  # its thread stays
        before, threads = other.read_bytes(), threading.active_count()
        with pytest.raises(StoreError, match="not a database"):
            await SqliteStore.from_url(f"sqlite:///{other}").create_schema()
        assert other.read_bytes() == before
        await _ended_down_to(threads)

    async def test_without_the_right_to_read(self, open_folder: Path) -> None:
        """Rights are a matter of authentication: retrying does not help."""
        path, url = open_folder / "ids.db", f"sqlite:///{open_folder}/ids.db"
        path.touch()
        await _granted(url, 1)
        await anyio.Path(path).chmod(0)
        with _plain_user(), pytest.raises(StoreAuthenticationError) as caught:
            await _granted(url, 1)
        assert not caught.value.retryable

    async def test_without_the_right_to_write(self, open_folder: Path) -> None:
        """A file that may only be read is refused at once."""
        path, url = open_folder / "ids.db", f"sqlite:///{open_folder}/ids.db"
        path.touch()
        await _granted(url, 1)
        await anyio.Path(path).chmod(0o444)
        with _plain_user(), pytest.raises(StoreAuthenticationError, match="readonly"):
            await _granted(url, 1)

    async def test_a_lock_that_goes(self, url: str, path: Path) -> None:
        """Setting the journal mode does not wait for a lock by itself; opening does."""
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            call = asyncio.ensure_future(_granted(url, 10))
            done, _ = await asyncio.wait([call], timeout=0.2)
            assert not done
            other.execute("COMMIT")
            assert await call == 10

    async def test_a_lock_that_stays(self, url: str, path: Path) -> None:
        """After the busy timeout the call fails as retryable, and nothing is written."""
        await _granted(url, 10)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreUnavailableError, match="locked") as caught:
                await _granted(url, 10)
            assert caught.value.retryable
            other.execute("ROLLBACK")
        assert await _granted(url, 10) == 20


@pytest.mark.parametrize("fails", [False, True])
async def test_a_fork_while_the_statement_ran(
    url: str, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """In the child its range, or its error, is the parent's."""
    own = SqliteStore.from_url(url)
    await own.create_schema()
    counter = own.segment_distributor(name="order")

    async def forked(_: str) -> None:
        patch.setattr(fork, "generation", fork.generation + 1)
        if fails:
            raise StoreUnavailableError("sqlite", "it was busy")

    backend: Any = own._backend
    inner, backend.link = backend.link, Tapped(backend.link, after=forked)
    with monkeypatch.context() as patch, pytest.raises(ForkedError):
        await counter.next_max_id(10)
    backend.link = inner
    assert await counter.next_max_id(10) == 20
    await own.aclose()


class TestUsersConnection:
    """On a connection that is passed in."""

    async def test_it_is_used_and_stays_open(
        self, connection: aiosqlite.Connection, path: Path
    ) -> None:
        """A grant is committed at once, although the connection would begin a transaction."""
        counter = SqliteStore(connection).segment_distributor(name="order", step=10)
        assert await counter.next_max_id(10) == 10
        assert rows(path) == [("cosid.order", 10)]
        await SqliteStore(connection).aclose()
        assert not connection.in_transaction
        assert connection.isolation_level == ""
        assert await SqliteStore(connection).counters() != []

    async def test_its_row_factory_is_left_alone(self, connection: aiosqlite.Connection) -> None:
        """Rows of the user's own kind are no matter of ours."""
        connection.row_factory = lambda *_: None  # type: ignore[assignment]  # aiosqlite's hint is too narrow
        store = SqliteStore(connection)
        assert await store.segment_distributor(name="order").next_max_id(10) == 10
        assert len(await store.counters()) == 1

    async def test_its_transaction_gets_no_grant(
        self, connection: aiosqlite.Connection, path: Path
    ) -> None:
        """A rollback would take the grant back: nothing is granted, and the transaction lives."""
        counter = SqliteStore(connection).segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        await connection.execute("CREATE TABLE t (n)")
        await connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(StoreUnavailableError, match="transaction"):
            await counter.next_max_id(10)
        await connection.rollback()
        assert await counter.next_max_id(10) == 20
        assert execute(path, "SELECT * FROM t") == []

    async def test_a_transaction_begun_meanwhile_gets_no_grant(
        self, connection: aiosqlite.Connection
    ) -> None:
        """It is looked for where the statement runs, not where the call was made."""
        counter = SqliteStore(connection).segment_distributor(name="order")
        assert await counter.next_max_id(10) == 10
        begin = asyncio.ensure_future(connection.execute("BEGIN"))
        await asyncio.sleep(0)
        call = asyncio.ensure_future(counter.next_max_id(10))
        await asyncio.sleep(0)
        await begin
        await connection.rollback()
        with pytest.raises(StoreUnavailableError, match="transaction"):
            await call

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with 3.12")
    async def test_with_autocommit(self, path: Path) -> None:
        """Python's newer way to have no transactions is as good as the older one."""
        async with aiosqlite.connect(path, autocommit=True) as connection:
            counter = SqliteStore(connection).segment_distributor(name="order")
            assert await counter.next_max_id(10) == 10
            assert rows(path) == [("cosid.order", 10)]

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with 3.12")
    async def test_without_autocommit_there_is_always_one(self, path: Path) -> None:
        """That is no passing matter, and retrying would not help."""
        async with aiosqlite.connect(path, autocommit=False) as connection:
            with pytest.raises(StoreError, match="transaction") as caught:
                await SqliteStore(connection).segment_distributor(name="order").next_max_id(10)
            assert not caught.value.retryable

    async def test_not_under_trio(self, connection: aiosqlite.Connection) -> None:
        """Its worker answers to asyncio's loops only, and the error says so."""
        import trio

        counter = SqliteStore(connection).segment_distributor(name="order")
        with pytest.raises(UnsupportedRuntimeError, match="asyncio"):
            await asyncio.to_thread(trio.run, counter.next_max_id, 10)

    async def test_a_closed_connection(self, path: Path) -> None:
        """Closed, or never opened: named, not hung on."""
        connection = aiosqlite.connect(path)
        counter = SqliteStore(connection).segment_distributor(name="order")
        with pytest.raises(StoreError, match="never opened"):
            await counter.next_max_id(10)
        async with connection:
            assert await counter.next_max_id(10) == 10
        with pytest.raises(StoreError, match="closed"):
            await counter.next_max_id(10)

    async def test_not_a_connection(self, path: Path) -> None:
        """A URL or path goes to from_url."""
        for wrong in (str(path), path, None):
            with pytest.raises(InvalidArgumentError, match="from_url"):
                SqliteStore(wrong).segment_distributor(name="order")  # type: ignore[arg-type]  # on purpose


def test_an_old_sqlite(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without RETURNING there is no grant, and the error says which version has it."""
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    with pytest.raises(aiocosid.errors.UnsupportedRuntimeError, match=r"3\.35"):
        SqliteStore.from_url(url)


def _from_url(url: str) -> IdSegmentDistributor:
    return SqliteStore.from_url(url).segment_distributor(name="order")


async def _made(path: Path) -> None:
    """Make the tables, so that a call is one statement."""
    async with SqliteStore.from_url(f"sqlite:///{path}") as store:
        await store.create_schema()


async def _ended_down_to(threads: int) -> None:
    """The workers of connections end a moment after them."""
    await until(lambda: threading.active_count() <= threads)


async def _granted(url: str, step: int) -> int:
    async with SqliteStore.from_url(url) as store:
        return await store.segment_distributor(name="order").next_max_id(step)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may write to; tmp_path's parents are closed to others."""
    with tempfile.TemporaryDirectory(prefix="aiocosid-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@contextmanager
def _plain_user() -> Generator[None]:
    """Be somebody whom file modes apply to."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
