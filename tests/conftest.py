"""Real servers, event loops and names for every test.

A server is started when the first selected test asks for it and lives until the session ends.
Without its program the test is skipped, or fails where AIOCOSID_REQUIRE_SERVICES=1 is set (CI).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.servers import (
    PASSWORD,
    PgBouncerServer,
    PostgresPair,
    PostgresServer,
    RedisServer,
    ServerMissingError,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
)

# Before anything imports it: else a failure in the public contracts shows no values.
pytest.register_assert_rewrite("aiocosid.testing")

P = ParamSpec("P")
T = TypeVar("T")

REQUIRED = os.environ.get("AIOCOSID_REQUIRE_SERVICES") == "1"
SEED = os.environ.get("AIOCOSID_TEST_SEED", "0")
HAS_UVLOOP = importlib.util.find_spec("uvloop") is not None

# What nearly repeats another test, or takes long for what it tells: left to ``make stress``.
# tests/contracts/conftest.py has another such rule.
LONG = re.compile(
    r"""
      /test_redis_topologies\.py::\w+::test_failover\[(redis|valkey)-py\]
    | /test_redis_machine_lives\.py::test_replica_has_the_same\[redis_factory\]
    | /test_redis_machine\.py::(TestManyAtOnce::\w+|test_processes)\[redis_server\]
    | /test_servers\.py::TestFailover::
    | /test_tiered\.py::test_two_processes$
    | /test_machines\.py::TestOnTheirOwn::test_two_hundred_lives_on_four_ids\[asyncio-postgres\]
    | /test_cli\.py::TestCommands::test_many_at_once_share_nothing\[(sqlite|valkey)\]
    | /simulation/test_scenarios\.py::test_nothing_is_found_where_nothing_is\[
    | /test_code_blocks\.py::test_every_block_of_a_page_runs\[docs/
      (reference/cli|howto/operate|howto/own-distributor|howto/simulate)\.md\]
    """,
    re.VERBOSE,
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of this file."""
    config.addinivalue_line(
        "markers", "both_loops: run an asyncio test on asyncio's own loop and on uvloop"
    )


def pytest_report_header() -> str:
    """Tell what jitter is drawn from."""
    return f"AIOCOSID_TEST_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to ``make stress`` what is long."""
    for item in items:
        if LONG.search(item.nodeid):
            item.add_marker(pytest.mark.stress)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the same jitter in a test each time; another AIOCOSID_TEST_SEED draws another one."""
    random.seed(f"{SEED} {item.nodeid}")


# Event loops


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """On asyncio's own loop; in tests/contracts and with ``both_loops`` on uvloop as well."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]]
    factories = {"asyncio": asyncio.new_event_loop}
    contracts = config.rootpath / "tests" / "contracts"
    marker = item.get_closest_marker("asyncio")
    named = marker is not None and "loop_factories" in marker.kwargs
    asked = named or item.get_closest_marker("both_loops") or contracts in item.path.parents
    if asked and HAS_UVLOOP:
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    elif asked and REQUIRED:
        raise pytest.UsageError("uvloop is not installed: pip install uvloop")
    return factories


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(
            ("asyncio", {"use_uvloop": True}),
            id="uvloop",
            marks=pytest.mark.skipif(
                not (HAS_UVLOOP or REQUIRED), reason="uvloop is not installed"
            ),
        ),
        pytest.param(("trio", {}), id="trio"),
    ],
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """What ``pytest.mark.anyio`` tests run on: for code that needs no driver."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


# Names


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses, on whatever server."""
    return f"t{uuid.uuid4().hex[:12]}"


# Servers that all tests share: use them under ``namespace``, and never stop or empty them.


@contextmanager
def _skipped_when_missing() -> Generator[None]:
    try:
        yield
    except ServerMissingError as exc:
        if REQUIRED:
            pytest.fail(str(exc), pytrace=False)
        pytest.skip(str(exc))


def _shared(make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    with _skipped_when_missing(), make() as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """Valkey from the wheel."""
    yield from _shared(ValkeyServer)


@pytest.fixture(scope="session")
def valkey_unix() -> Iterator[ValkeyServer]:
    """Valkey that listens on a unix socket as well: ``unix_url``."""
    yield from _shared(partial(ValkeyServer, unix_socket=True))


@pytest.fixture(scope="session")
def valkey_password() -> Iterator[ValkeyServer]:
    """Valkey that asks for a password, with a second user READER who may change nothing."""
    yield from _shared(partial(ValkeyServer, password=PASSWORD))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The system's Redis."""
    yield from _shared(RedisServer)


@pytest.fixture(scope="session")
def redis_tls() -> Iterator[RedisServer]:
    """The system's Redis speaking TLS only; trust ``ca_path``."""
    yield from _shared(partial(RedisServer, tls=True))


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[ValkeyCluster]:
    """A cluster of three masters."""
    yield from _shared(ValkeyCluster)


@pytest.fixture(scope="session")
def valkey_sentinel() -> Iterator[ValkeySentinel]:
    """A master and a replica under three sentinels."""
    yield from _shared(ValkeySentinel)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL from the wheel."""
    yield from _shared(PostgresServer)


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncerServer]:
    """PgBouncer in transaction mode in front of ``postgres``."""
    yield from _shared(partial(PgBouncerServer, postgres))


@pytest.fixture
def postgres_database(postgres: PostgresServer, namespace: str) -> Iterator[str]:
    """The URL of an empty database of this test's own: for what is about tables."""
    yield postgres.create_database(namespace)
    postgres.drop_database(namespace)


# Servers of one test's own, to be killed, emptied and paused; all end with the test.


def _factory(make: Callable[P, AbstractContextManager[T]]) -> Iterator[Callable[P, T]]:
    with ExitStack() as stack:

        def start(*args: P.args, **kwargs: P.kwargs) -> T:
            with _skipped_when_missing():
                return stack.enter_context(make(*args, **kwargs))

        yield start


@pytest.fixture
def valkey_factory() -> Iterator[Callable[..., ValkeyServer]]:
    """Start a ValkeyServer(*options, persistent=, password=, unix_socket=)."""
    yield from _factory(ValkeyServer)


@pytest.fixture
def redis_factory() -> Iterator[Callable[..., RedisServer]]:
    """Start a RedisServer(*options, persistent=, password=, unix_socket=, tls=)."""
    yield from _factory(RedisServer)


@pytest.fixture
def cluster_factory() -> Iterator[Callable[..., ValkeyCluster]]:
    """Start a ValkeyCluster(replicas=, server=)."""
    yield from _factory(ValkeyCluster)


@pytest.fixture
def sentinel_factory() -> Iterator[Callable[..., ValkeySentinel]]:
    """Start a ValkeySentinel()."""
    yield from _factory(ValkeySentinel)


@pytest.fixture
def postgres_factory() -> Iterator[Callable[..., PostgresServer]]:
    """Start a PostgresServer(*options)."""
    yield from _factory(PostgresServer)


@pytest.fixture
def pair_factory() -> Iterator[Callable[..., PostgresPair]]:
    """Start a PostgresPair(*options, synchronous=)."""
    yield from _factory(PostgresPair)


@pytest.fixture
def pgbouncer_factory() -> Iterator[Callable[..., PgBouncerServer]]:
    """Start a PgBouncerServer(postgres, pool_size=)."""
    yield from _factory(PgBouncerServer)
