"""The fixtures that pytest finds by itself, in suites as users write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress

STRICT = ("-W", "error", "-o", "asyncio_default_fixture_loop_scope=function")
QUIET = (*("-p", "no:valkey"), *("-p", "no:schemathesis"), *("-p", "no:cacheprovider"))  # slow ones

APPLICATION = """
from dataclasses import dataclass
from typing import Annotated
import aiocosid
from aiocosid import GeneratedId

@dataclass
class Order:
    id: Annotated[int, GeneratedId("order")] = 0

async def place():
    order = Order()
    await aiocosid.ensure_ids(order)
    return order.id

SETTINGS = {
    "store": "redis://nowhere.invalid/0",
    "stores": {"big": {"root": "postgresql://nowhere.invalid/x", "cache": "redis://nowhere.invalid"}},
    "generators": {
        "order": {"kind": "chain"},
        "bill": {"kind": "segment", "store": "big"},
        "event": {"kind": "snowflake"},
    },
}

async def serve():
    async with aiocosid.configure(SETTINGS) as ids:
        await ids.store.initialize()
        return [await ids[name].next_id() for name in ("order", "order", "bill", "event")]
"""

ASYNC_TESTS = """
import application, aiocosid, pytest
from aiocosid.testing import ManualClock

async def test_it_counts_from_one(aiocosid_ids):
    assert [await application.place() for _ in range(3)] == [1, 2, 3]
    assert await aiocosid_ids["order"].next_ids(2) == [4, 5]
    assert await aiocosid_ids["bill"].next_id() == 1

async def test_it_is_reset(aiocosid_ids):
    assert [*aiocosid_ids] == []
    assert await application.place() == 1

@pytest.mark.parametrize("again", [1, 2])
async def test_settings_of_the_application(aiocosid_store, aiocosid_clock, again):
    found = await application.serve()
    assert found[:3] == [1, 2, 1]
    assert found[3] == 515047109427200001

async def test_a_failing_store(aiocosid_store, aiocosid_clock):
    aiocosid_store.fail(times=1)
    async with aiocosid.connect("redis://nowhere.invalid") as ids:
        with pytest.raises(aiocosid.errors.StoreError, match="unplugged"):
            await ids.store.counters()
        orders = await ids.segment_chain("order", step=10)
        assert await orders.next_id() == 1
"""

SYNC_TESTS = """
import asyncio, application, aiocosid

def test_without_a_loop(aiocosid_ids):
    assert aiocosid_ids["order"].next_id_nowait() == 1
    assert aiocosid_ids.sync["order"].next_ids(2) == [2, 3]
    assert asyncio.run(application.place()) == 4

def test_again(aiocosid_ids, aiocosid_clock):
    assert aiocosid_ids.clock is aiocosid_clock
    assert aiocosid.default_provider() is aiocosid_ids
    assert asyncio.run(application.place()) == 1
    assert aiocosid_ids.sync["order"].next_id() == 2

def test_threads(aiocosid_store):
    with aiocosid.sync.connect("mysql://nowhere.invalid/x") as ids:
        assert ids.segment_chain("order").next_ids(3) == [1, 2, 3]
"""


class Suite:
    """A directory with tests of a user's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("application.py", APPLICATION)
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def run(self, *options: str) -> str:
        """Run its tests, with warnings as errors; return what pytest prints.

        They have an environment of a user's, where nobody has said what stores are for.
        """
        ours = ("PYTEST_", "AIOCOSID_DISPOSABLE", "AIOCOSID_DEBUG")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *QUIET, *options],
            cwd=self.root,
            env={key: text for key, text in os.environ.items() if not key.startswith(ours)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        ("asyncio", ("-o", "asyncio_mode=strict")),
        ("", ("-o", "asyncio_mode=auto")),
        ("asyncio", ("-o", "asyncio_mode=strict", "-n", "1")),
        ("anyio", ("-p", "no:asyncio")),
    ],
    ids=["asyncio-strict", "asyncio-auto", "xdist", "anyio"],
)
def test_every_way_to_run_async_tests(suite: Suite, mark: str, options: tuple[str, ...]) -> None:
    """pytest-asyncio in both modes, anyio's own plugin, and several processes."""
    text = f"\npytestmark = pytest.mark.{mark}\n" if mark else ""
    if mark == "anyio":
        text += '\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n'
    suite.write("test_async.py", ASYNC_TESTS + text)
    loop_scope = () if "no:asyncio" in options else STRICT[2:]
    assert "5 passed" in suite.run("-q", *STRICT[:2], *loop_scope, *options)


def test_on_trio(suite: Suite) -> None:
    """What needs no server's driver runs there, too."""
    suite.write(
        "test_trio.py",
        ASYNC_TESTS
        + "\npytestmark = pytest.mark.anyio\n"
        + '\n@pytest.fixture\ndef anyio_backend():\n    return "trio"\n',
    )
    assert "5 passed" in suite.run("-q", "-p", "no:asyncio", *STRICT[:2])


def test_synchronous_tests(suite: Suite) -> None:
    suite.write(
        "test_sync.py", SYNC_TESTS.replace("import asyncio", "import aiocosid.sync, asyncio")
    )
    assert "3 passed" in suite.run("-q", *STRICT)


def test_nothing_is_imported_unless_a_fixture_is_used(suite: Suite) -> None:
    """Pytest imports the plugin in suites that have nothing to do with it."""
    suite.write(
        "test_other.py",
        "import sys\n"
        "def test_modules():\n"
        "    assert [each for each in sys.modules if 'aiocosid' in each] == ['_aiocosid_pytest']\n",
    )
    assert "1 passed" in suite.run("-q", *STRICT)


def test_it_can_be_switched_off(suite: Suite) -> None:
    suite.write(
        "test_other.py",
        "import sys\ndef test_modules():\n    assert '_aiocosid_pytest' not in sys.modules\n",
    )
    assert "1 passed" in suite.run("-q", *STRICT, "-p", "no:aiocosid")


def test_the_fixtures_are_listed(suite: Suite) -> None:
    """``pytest --fixtures`` shows what each is for."""
    listed = suite.run("--fixtures", *STRICT[2:])
    for name in ("aiocosid_ids", "aiocosid_store", "aiocosid_clock"):
        assert f"\n{name} -- " in listed


MIGRATING_TESTS = """
import sqlite3, subprocess, sys
import aiocosid, pytest
from contextlib import closing

pytestmark = pytest.mark.asyncio
URL = "sqlite:///app.db"

@pytest.fixture(scope="session", autouse=True)
def by_command():
    subprocess.run([sys.executable, "-m", "aiocosid", "init", "--store", URL], check=True)

@pytest.fixture(autouse=True)
def migrated():
    with closing(sqlite3.connect("app.db")) as database:
        kinds = database.execute("SELECT type, name FROM sqlite_master WHERE type = 'table'")
        for kind, name in kinds.fetchall():
            database.execute(f"DROP {kind} {name}")
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")

@pytest.mark.parametrize("number", range(50))
async def test_it_begins_at_one(number):
    if number % 25 == 24:
        subprocess.run([sys.executable, "-m", "aiocosid", "init", "--store", URL], check=True)
    async with aiocosid.connect(URL, create=number % 25 != 24) as ids:
        orders = await ids.segment_chain("order")
        assert await orders.next_id() == 1
        events = await ids.snowflake("event")
        assert await events.next_id() > 0
"""


def test_a_suite_that_drops_and_migrates_all_day(suite: Suite) -> None:
    """No test says that its store is for tests: the plugin does, also to commands."""
    suite.write("test_shop.py", MIGRATING_TESTS)
    options = ("-q", "-o", "asyncio_mode=strict", *STRICT)
    assert "50 passed" in suite.run(*options)


def test_a_store_of_production_stays_one(suite: Suite) -> None:
    """Its witness says so, whatever the tests' environment says."""
    command = [sys.executable, "-m", "aiocosid", "init", "--store", "sqlite:///app.db"]
    subprocess.run(command, cwd=suite.root, check=True, capture_output=True, timeout=60)
    text = MIGRATING_TESTS.replace("range(50)", "range(1)")
    suite.write(
        "test_shop.py",
        text[: text.index("    if number %")]
        + "    with pytest.raises(aiocosid.errors.SchemaDroppedError):\n"
        + "        async with aiocosid.connect(URL, create=True):\n            pass\n",
    )
    options = ("-q", "-o", "asyncio_mode=strict", *STRICT)
    assert "1 passed" in suite.run(*options)


THREAD_TESTS = """
import asyncio, threading
import aiocosid, aiocosid.errors, pytest

@pytest.mark.asyncio
async def test_a_thread(aiocosid_store):
    async with aiocosid.connect("memory://", create=True) as ids:
        orders = await ids.segment("order")
        await orders.next_id()
        with pytest.raises(aiocosid.errors.WrongLoopError):
            await asyncio.to_thread(orders.next_id_nowait)
        assert await orders.next_id() == 2
"""


def test_each_call_is_checked_for_its_thread(suite: Suite) -> None:
    """Without the plugin a test would pass until the ids in hand are used up."""
    suite.write("test_thread.py", THREAD_TESTS)
    assert "1 passed" in suite.run("-q", "-o", "asyncio_mode=strict", *STRICT)
