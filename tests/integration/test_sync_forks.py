"""Threads and forks: each process has ids of its own, whenever it was forked, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

from tests.machine_marks import initialize_namespace
from tests.script import FORK
from tests.servers import ValkeyServer

from ._sync_forks import SCENARIOS

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NAMESPACES = ("forks", "own", "closed")

# Python 3.12 and later warn of a fork in a process that has threads, which is the point here.
PYTHON = (sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning")


def quiet(server: ValkeyServer) -> str:
    """Its URL, and no word about what it may forget."""
    return f"{server.url}?durability=ignore"


def run(scenario: str, url: str, folder: Path) -> None:
    """Run one to its end; its docstring is in _sync_forks."""
    program = ["-m", "tests.integration._sync_forks", scenario, url, str(folder)]
    done = subprocess.run(
        [*PYTHON, *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("scenario", ["in hand", "step", "stuck"])
def test_sqlite(scenario: str, tmp_path: Path) -> None:
    (tmp_path / "ids.db").touch()
    run(scenario, f"sqlite:///{tmp_path}/ids.db", tmp_path)


def test_in_a_signal_handler(tmp_path: Path) -> None:
    run("handler", "memory://", tmp_path)


def test_an_asynchronous_program_whose_child_just_ends(valkey: ValkeyServer) -> None:
    """Nothing of the parent's connections is destroyed at the child's end."""
    initialize_namespace(valkey, "async-fork")
    code = f"""
import aiocosid, asyncio, os, sys
async def main():
    async with aiocosid.connect({quiet(valkey)!r}, namespace="async-fork") as ids:
        orders, flakes = await ids.segment_chain("order"), await ids.snowflake()
        await orders.next_id(), await flakes.next_id()
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        await orders.next_ids(20_000)
asyncio.run(main())
"""
    done = subprocess.run(
        [*PYTHON, "-c", FORK + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_while_threads_take_ids(valkey: ValkeyServer, tmp_path: Path) -> None:
    """Not on SQLite: it keeps its locks in the memory that a child inherits."""
    initialize_namespace(valkey, *NAMESPACES)
    run("threads", quiet(valkey), tmp_path)


@pytest.mark.parametrize(
    "ids",
    [
        "aiocosid.sync.connect(url, create=True)",
        "aiocosid.sync.SyncProvider(lambda made=aiocosid.configure(settings): made)",
    ],
)
def test_a_child_creates_what_is_missing(ids: str, tmp_path: Path) -> None:
    """In a provider that the parent has described and not opened, as gunicorn --preload does."""
    url = f"sqlite:///{tmp_path}/ids.db"
    (tmp_path / "ids.toml").write_text(
        f'store = "{url}"\ncreate = true\n[generators.order]\nkind = "segment"\n'
    )
    code = f"""
import aiocosid, aiocosid.sync, os
url, settings = {url!r}, {str(tmp_path / "ids.toml")!r}
ids = {ids}
if isinstance(ids, aiocosid.sync.SyncIdProvider):
    ids.segment("order")
pid = os.fork()
if pid == 0:
    with ids:
        os._exit(0 if ids["order"].next_id() == 1 else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
    done = subprocess.run(
        [*PYTHON, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.stress
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_a_server(scenario: str, valkey: ValkeyServer, tmp_path: Path) -> None:
    initialize_namespace(valkey, *NAMESPACES)
    run(scenario, quiet(valkey), tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("scenario", ["pool", "grandchildren"])
def test_more_processes(scenario: str, tmp_path: Path) -> None:
    (tmp_path / "ids.db").touch()
    run(scenario, f"sqlite:///{tmp_path}/ids.db", tmp_path)
