"""What is special of a SQLite file on loops that end, and in many processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from aiocosid.errors import StoreError
from aiocosid.stores import _sqlite
from aiocosid.stores.sqlite import SqliteStore
from tests.script import run_python
from tests.servers import wait_until

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


def execute(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement behind everybody's back."""
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, values).fetchall()


def rows(path: Path) -> list[tuple[Any, ...]]:
    """What lies in the table, without the times."""
    return execute(path, "SELECT name, last_max_id FROM cosid ORDER BY name")


class TestLoops:
    """Loops that end before the thread of a connection."""

    def test_a_loop_that_ends_without_a_word(self, url: str) -> None:
        """A loop closed by hand leaves its connection to the next one; the last closes it."""
        own = SqliteStore.from_url(url)
        counter = own.segment_distributor(name="order")
        before = set(threading.enumerate())  # some of which may be about to end
        for due in (10, 20, 30):
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(asyncio.wait_for(counter.next_max_id(10), 5)) == due
            loop.close()
        assert len(set(threading.enumerate()) - before) == 1
        asyncio.run(own.aclose())
        wait_until(lambda: set(threading.enumerate()) <= before, "the connection is closed")

    def test_a_loop_ends_with_a_file_that_cannot_be_opened(
        self, path: Path, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing goes on in its thread, which would speak to a loop that is closed."""
        ends = threading.Event()
        stop = aiosqlite.Connection.stop

        def stop_late(connection: Any) -> Any:
            connection._tx.put_nowait((None, lambda: ends.wait(0.2)))
            return stop(connection)

        monkeypatch.setattr(aiosqlite.Connection, "stop", stop_late)
        path.unlink()
        path.mkdir()
        before = set(threading.enumerate())
        with pytest.raises(StoreError):
            asyncio.run(SqliteStore.from_url(url).segment_distributor(name="order").next_max_id(10))
        left = set(threading.enumerate()) - before
        ends.set()
        assert not [each for each in left if "worker_thread" in each.name]  # aiosqlite's


class TestProcesses:
    """Many processes, one file."""

    def test_four_processes_start_on_a_new_file(self, url: str, path: Path) -> None:
        """Whoever comes first makes the table and sets the mode; all ranges are disjoint."""
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager:
            barrier = manager.Barrier(4)
            with ProcessPoolExecutor(4, mp_context=context) as pool:
                futures = [pool.submit(fetch_many, url, 50, barrier) for _ in range(4)]
                granted = [max_id for future in futures for max_id in future.result(timeout=50)]
        assert sorted(granted) == list(range(10, 2001, 10))
        assert rows(path) == [("cosid.order", 2000)]

    def test_the_parent_ends_before_its_child(self, url: str) -> None:
        """Closing the file, it must not delete the log in which the child counts."""
        assert run_python(PARENT_FIRST, url) == {"child": [20, 30, 40], "parent": [50, 60]}

    @pytest.mark.parametrize("seconds", [0.2, 30])
    def test_a_fork_in_the_middle_of_a_statement(self, url: str, seconds: float) -> None:
        """It waits a second for its end; else the file is refused in the child."""
        told = run_python(FORK_IN_STATEMENT, url, str(seconds))
        child, last = (30, 40) if seconds < 1 else ("StoreError", 30)
        assert told == {"child": child, "parent": [20, last]}

    def test_a_fork_by_a_handler_under_a_statement(self) -> None:
        """What was under way is the parent's: the child counts from nothing."""
        assert run_python(FORK_UNDER_A_STATEMENT) is True

    def test_a_connection_that_cannot_be_prepared_is_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Opened anew after a fork, it would count without being synced."""
        (tmp_path / "ids.db").touch()
        door = _sqlite.Door(str(tmp_path / "ids.db"))

        def refuse(*_: object) -> None:
            raise sqlite3.OperationalError

        with monkeypatch.context() as patch:
            patch.setattr(_sqlite, "prepare", refuse)
            with pytest.raises(sqlite3.OperationalError):
                door.run(lambda _: None)
        assert door.run(lambda database: database.execute("PRAGMA synchronous").fetchone()) == (3,)
        door.close()

    def test_an_unclosed_store_does_not_hold_the_interpreter(self, url: str) -> None:
        """Not even on a loop that was never told to end."""
        code = (
            "import asyncio, sys\n"
            "from aiocosid.stores.sqlite import SqliteStore\n"
            "counter = SqliteStore.from_url(sys.argv[1]).segment_distributor(name='order')\n"
            "loop = asyncio.new_event_loop()\n"
            "print(loop.run_until_complete(counter.next_max_id(10)))\n"
        )
        assert run_python(code, url) == 10


def fetch_many(url: str, count: int, barrier: Any) -> list[int]:
    """Run in a process of its own: some grants, begun together with the others."""

    async def fetch() -> list[int]:
        async with SqliteStore.from_url(url) as store:
            counter = store.segment_distributor(name="order", step=10)
            await asyncio.to_thread(barrier.wait)
            return [await counter.next_max_id(10) for _ in range(count)]

    return asyncio.run(fetch())


PARENT_FIRST = """
import asyncio, json, os, sys, warnings
from aiocosid.stores.sqlite import SqliteStore

warnings.simplefilter("ignore", DeprecationWarning)
own = SqliteStore.from_url(sys.argv[1])
counter = own.segment_distributor(name="order")
(taken, take), (closed, close), (told, tell) = os.pipe(), os.pipe(), os.pipe()

async def child():
    await counter.aopen()
    granted = [await counter.next_max_id(10)]
    os.write(take, b"1")
    os.read(closed, 1)
    return granted + [await counter.next_max_id(10), await counter.next_max_id(10)]

async def grants():
    await counter.aopen()
    granted = [await counter.next_max_id(10), await counter.next_max_id(10)]
    await own.aclose()
    return granted

with asyncio.Runner() as runner:
    assert runner.run(counter.next_max_id(10)) == 10
    if (pid := os.fork()) == 0:
        try:
            os.write(tell, json.dumps(asyncio.run(child())).encode())
        finally:
            os._exit(0)
    os.read(taken, 1)
    runner.run(own.aclose())
    os.write(close, b"1")
    os.waitpid(pid, 0)
    print(json.dumps({"child": json.loads(os.read(told, 99)), "parent": runner.run(grants())}))
"""

FORK_UNDER_A_STATEMENT = """
import json, os, warnings
from aiocosid.stores import _sqlite as door

warnings.simplefilter("ignore", DeprecationWarning)
with door.in_use():  # a signal handler may fork here
    pid = os.fork()
counts = (door._gate.running, door._gate.forks)
if pid == 0:
    with door.in_use():
        counts += (door._gate.running,)
    os._exit(0 if counts == (0, 0, 1) else 1)
_, status = os.waitpid(pid, 0)
print(json.dumps(status == 0 and counts == (0, 0)))
"""

FORK_IN_STATEMENT = """
import asyncio, json, os, subprocess, sys, threading, time, warnings
from aiocosid.stores import _sqlite
from aiocosid.stores.sqlite import SqliteStore

warnings.simplefilter("ignore", DeprecationWarning)
_sqlite.BUSY_TIMEOUT = 15.0  # the parent's call lasts longer than the fork, however busy
url, seconds = sys.argv[1], float(sys.argv[2])
HOLD = (
    "import sqlite3, sys; held = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "held.execute('BEGIN IMMEDIATE'); print(flush=True); sys.stdin.read()"
)
own = SqliteStore.from_url(url)
counter = own.segment_distributor(name="order")
told, tell = os.pipe()

async def child():
    await counter.aopen()
    try:
        return await counter.next_max_id(10)
    except Exception as exc:
        return type(exc).__name__

async def main():
    assert await counter.next_max_id(10) == 10
    holder = subprocess.Popen([sys.executable, "-c", HOLD, url.removeprefix("sqlite:///")],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()
    call = asyncio.ensure_future(counter.next_max_id(10))
    deadline = time.monotonic() + 10
    while not _sqlite._gate.running:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
    timer = threading.Timer(seconds, holder.kill)
    timer.start()
    pid = os.fork()
    if pid == 0:
        return None
    timer.cancel()
    holder.kill()
    granted = [await call]
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    os.write(go, b"1")
    await asyncio.to_thread(os.waitpid, pid, 0)
    granted.append(await counter.next_max_id(10))
    await own.aclose()
    return granted

wait, go = os.pipe()
granted = asyncio.Runner().run(main())
if granted is None:
    os.read(wait, 1)
    os.write(tell, json.dumps(asyncio.run(child())).encode())
    os._exit(0)
print(json.dumps({"child": json.loads(os.read(told, 99)), "parent": granted}))
"""
