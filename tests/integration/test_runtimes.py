"""Processes by every start method, pools, and sub-interpreters: no id comes twice in all."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.servers import ValkeyServer

from . import _runtimes

pytestmark = [pytest.mark.integration, pytest.mark.stress]

ROOT = Path(__file__).parents[2]
METHODS = multiprocessing.get_all_start_methods()

FREE_THREADED = os.environ.get("AIOCOSID_FREE_THREADED", "")
"""An interpreter without the GIL: ``bash .ci/python 3.13t`` builds one."""

needs_interpreters = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="InterpreterPoolExecutor came with Python 3.14"
)


def run(
    scenario: str,
    method: str = "",
    place: str = "",
    *,
    python: str = sys.executable,
    **environment: str,
) -> None:
    """Run one to its end; its docstring is in _runtimes."""
    assert scenario in _runtimes.SCENARIOS
    # Python 3.12 and later warn of a fork in a process that has threads, as pools have.
    options = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")
    done = subprocess.run(
        [python, *options, "-m", "tests.integration._runtimes", scenario, method, place],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def place(server: ValkeyServer, namespace: str) -> str:
    """Where to count, without a word about what the server may forget."""
    return f"{server.url}?durability=ignore {namespace}"


@pytest.mark.parametrize("method", METHODS)
def test_each_process_opens_its_own(method: str, valkey: ValkeyServer, namespace: str) -> None:
    run("processes", method, place(valkey, namespace))


@pytest.mark.parametrize("method", METHODS)
def test_a_generator_is_not_passed_on(method: str, valkey: ValkeyServer, namespace: str) -> None:
    run("passed on", method, place(valkey, namespace))


@needs_interpreters
def test_interpreters_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ids.db"
    subprocess.run(
        [sys.executable, "-m", "aiocosid", "init", "--store", url], check=True, capture_output=True
    )
    run("interpreters", place=f"{url} shop")


@needs_interpreters
def test_interpreters_on_valkey(valkey: ValkeyServer, namespace: str) -> None:
    """redis-py goes on without hiredis, which refuses them."""
    run("interpreters", place=place(valkey, namespace))


@needs_interpreters
def test_drivers_that_refuse_interpreters() -> None:
    """What the page says; a driver that has learnt it since makes this fail."""
    modules = "hiredis,asyncmy.connection,grpc,greenlet,pydantic_core,uvloop"
    run("refused drivers", place=modules)


@needs_interpreters
def test_interpreters_have_no_background_loop() -> None:
    run("no threads")


@pytest.mark.nightly
@pytest.mark.skipif(not FREE_THREADED, reason="AIOCOSID_FREE_THREADED names no interpreter")
@pytest.mark.parametrize(("scenario", "gil"), [("without gil", "0"), ("with gil", "1")])
def test_a_free_threaded_python(scenario: str, gil: str, tmp_path: Path) -> None:
    """It refuses to open anything, on whatever thread; with its lock it is like any other."""
    places = f"memory:// sqlite:///{tmp_path}/ids.db"
    # What is installed for this one is enough: no package that it needs there has a part in C.
    packages = sysconfig.get_path("purelib")
    run(scenario, place=places, python=FREE_THREADED, PYTHON_GIL=gil, PYTHONPATH=packages)
