"""One SQLite file by several names, in several containers, and without its journal."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import anyio
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import create_async_engine

from aiocosid.errors import StoreError, StoreUnavailableError
from aiocosid.stores.sql import executor_on
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from aiocosid.stores.sqlite import SqliteStore
from tests.servers._process import outlived_by_nobody

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

ROOT = Path(__file__).parents[2]

COUNT = """
import asyncio, json, os, signal, sys
from aiocosid.errors import StoreError
from aiocosid.stores.sqlite import SqliteStore
from aiocosid.stores.sqlalchemy import SqlAlchemyStore

async def main(url, count, end):
    store = (SqlAlchemyStore if url.startswith("sqlite+") else SqliteStore).from_url(url)
    counter = store.segment_distributor(name="order", step=10)
    granted = []
    try:
        for _ in range(int(count)):
            granted.append(await counter.next_max_id(10))
    except StoreError as error:
        granted = error.reason
    print(json.dumps(granted), flush=True)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""

SCHEMES = ("sqlite", "sqlite+aiosqlite")


def counting(
    url: str, count: int, *, end: str = "close", mount: tuple[Path, Path] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that takes grants; in a container of its own, with something mounted."""
    argv = [sys.executable, "-c", COUNT, url, str(count), end]
    if mount is not None:
        script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        argv = ["unshare", "-rm", "sh", "-c", script, "sh", *map(str, mount), *argv]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT)
    outlived_by_nobody(process.pid)
    return process


def told(process: subprocess.Popen[bytes]) -> Any:
    """Return what it was granted, or why nothing was."""
    with process:
        text, _ = process.communicate(timeout=60)
    return json.loads(text)


def can_mount() -> bool:
    """Whether the system lets us make containers."""
    if shutil.which("unshare") is None:
        return False
    argv = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@pytest_asyncio.fixture
async def path(tmp_path: Path) -> Path:
    """A file with one counter."""
    path = tmp_path / "ids.db"
    async with SqliteStore.from_url(f"sqlite:///{path}") as store:
        await store.create_schema()
    assert await granted(path) == 10
    return path


async def granted(path: Path) -> int:
    """Take a grant in this process, and close the file."""
    async with SqliteStore.from_url(f"sqlite:///{path}") as store:
        return await store.segment_distributor(name="order").next_max_id(10)


async def reason(store: Any) -> str:
    """Return why a store grants nothing."""
    with pytest.raises(StoreError) as caught:
        await store.segment_distributor(name="order").next_max_id(10)
    assert not caught.value.retryable
    return caught.value.reason


class TestNames:
    """The journal is beside the name by which the file was opened."""

    async def test_a_hard_link_is_refused(self, path: Path) -> None:
        """By each name, on each kind of connection, before anything is written."""
        other = path.with_name("other.db")
        os.link(path, other)
        before = other.read_bytes()
        for each in (path, other):
            assert "2 names" in await reason(SqliteStore.from_url(f"sqlite:///{each}"))
            assert "2 names" in await reason(SqlAlchemyStore.from_url(f"sqlite:///{each}"))
            async with aiosqlite.connect(each) as connection:
                assert "2 names" in await reason(SqliteStore(connection))
            engine = create_async_engine(f"sqlite+aiosqlite:///{each}")
            assert "2 names" in await reason(SqlAlchemyStore(engine))
            with pytest.raises(StoreError, match="2 names"):
                await executor_on(engine).run("SELECT 1")
            await engine.dispose()
        assert other.read_bytes() == before
        other.unlink()
        assert await granted(path) == 20

    async def test_a_symbolic_link_is_followed(self, path: Path, tmp_path: Path) -> None:
        """SQLite keeps the journal beside the target, for all names."""
        (tmp_path / "app").mkdir()
        link = tmp_path / "app" / "ids.db"
        link.symlink_to(path)
        both = [counting(f"sqlite:///{each}", 30) for each in (path, link)]
        taken = [max_id for each in both for max_id in told(each)]
        assert sorted(taken) == list(range(20, 620, 10))


@pytest.mark.skipif(not can_mount(), reason="needs unshare and the right to mount")
class TestContainers:
    """Two mount namespaces, as two containers have them."""

    @pytest.mark.parametrize("scheme", SCHEMES)
    async def test_a_mounted_file_is_refused(self, path: Path, tmp_path: Path, scheme: str) -> None:
        """As by ``-v ./ids.db:/app/ids.db``: each container has a folder of its own beside it."""
        both = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            inside = tmp_path / name / "ids.db"
            inside.touch()
            both.append(counting(f"{scheme}:///{inside}", 30, mount=(path, inside)))
        for each in both:
            assert "mounted" in told(each)
        assert await granted(path) == 20

    @pytest.mark.parametrize("scheme", SCHEMES)
    async def test_a_mounted_folder_is_shared(
        self, path: Path, tmp_path: Path, scheme: str
    ) -> None:
        """As by ``-v ./data:/app``, and by a symbolic link into it."""
        both = []
        for name in ("one", "two"):
            inside = tmp_path / name
            inside.mkdir()
            link = tmp_path / f"{name}.db"
            link.symlink_to(inside / "ids.db")
            both.append(counting(f"{scheme}:///{link}", 30, mount=(path.parent, inside)))
        taken = [max_id for each in both for max_id in told(each)]
        assert sorted(taken) == list(range(20, 620, 10))


class TestJournal:
    """What was granted is in the file itself."""

    @pytest.mark.parametrize("scheme", SCHEMES)
    async def test_a_file_that_is_moved_alone(
        self, path: Path, tmp_path: Path, scheme: str
    ) -> None:
        """After a crash its process left nothing beside it that the file would need."""
        killed = counting(f"{scheme}:///{path}", 50, end="kill")
        assert told(killed)[-1] == 510
        assert killed.returncode == -signal.SIGKILL
        (tmp_path / "data").mkdir()
        moved = await anyio.Path(path).rename(tmp_path / "data" / "ids.db")
        assert await granted(Path(moved)) == 520

    async def test_a_file_in_wal_mode_leaves_it(self, path: Path) -> None:
        """Once no other connection is open; until then the log is used by all."""
        log = anyio.Path(f"{path}-wal")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("SELECT * FROM cosid").fetchall()  # opens the log
            assert await granted(path) == 20
            assert other.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
            left = await log.read_bytes()
        await log.write_bytes(left)  # as if it had been killed
        async with SqliteStore.from_url(f"sqlite:///{path}") as store:
            await store.initialize()  # the log that went is not missed
        assert told(counting(f"sqlite:///{path}", 1, end="kill")) == [30]
        assert not await log.exists()

    async def test_a_log_that_vanished(self, path: Path) -> None:
        """A user's connection would go on in a log that no other process finds."""
        log = anyio.Path(f"{path}-wal")
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with aiosqlite.connect(path) as connection:
            await connection.execute_fetchall("PRAGMA journal_mode = WAL")
            stores = (
                SqliteStore(connection),
                SqlAlchemyStore(engine),
                SqliteStore.from_url(f"sqlite:///{path}"),
            )
            counters = [each.segment_distributor(name="order") for each in stores]
            for due, counter in enumerate(counters, 2):
                assert await counter.next_max_id(10) == due * 10
            await log.unlink()
            for counter in counters:
                with pytest.raises(
                    StoreUnavailableError, match="the file or its log was replaced or deleted"
                ):
                    await counter.next_max_id(10)
            await asyncio.gather(*(each.aclose() for each in stores))
        await engine.dispose()


@pytest.mark.parametrize("is_open", [True, False])
async def test_no_more_files_can_be_opened(path: Path, *, is_open: bool) -> None:
    """SQLite needs one for its journal, and says nothing of the limit; it passes by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with SqliteStore.from_url(f"sqlite:///{path}") as store:
        counter = store.segment_distributor(name="order")
        due = 20
        if is_open:
            assert await counter.next_max_id(10) == due
            due += 10
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(StoreUnavailableError, match="too many open files"):
                await counter.next_max_id(10)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await counter.next_max_id(10) == due
