"""Real servers, event loops and names for every test.

A server is started when the first selected test asks for it, and ends with the run, or the worker.
A test whose program is missing is skipped, or fails where AIOCOSID_REQUIRE_SERVICES=1 is set (CI).
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import inspect
import os
import random
import re
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.stores import memory
from tests.servers import (
    PASSWORD,
    Broker,
    CosIdProxy,
    CosIdService,
    EtcdEnsemble,
    EtcdServer,
    MariadbServer,
    NatsCluster,
    NatsServer,
    PgBouncerServer,
    PostgresPair,
    PostgresServer,
    RedisServer,
    ServerMissingError,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
    ZookeeperEnsemble,
    ZookeeperServer,
    alone_on,
    join_run,
    leave_run,
    run_folder,
    shared,
)
from tests.servers.valkey import MARK

os.environ["AIOCOSID_DISPOSABLE"] = "0"  # the stores here are as a user's
os.environ["AIOCOSID_DEBUG"] = "0"  # and so is what the hot path checks
REQUIRED = os.environ.get("AIOCOSID_REQUIRE_SERVICES") == "1"
SEED = os.environ.get("AIOCOSID_TEST_SEED", "0")
HAS_UVLOOP = importlib.util.find_spec("uvloop") is not None

# What takes seconds: left to ``make stress``.  tests/contracts/conftest.py has another such rule.
LONG = re.compile(
    r"""
      /test_generators\.py::TestMemorySnowflakesOnTrio::test_opening_anew\[cosid-s\]
    | /test_cli\.py::TestCommands::test_many_at_once_share_nothing\[(sqlite|valkey)\]
    | /simulation/test_scenarios\.py::test_nothing_is_found_where_nothing_is\[
    | /segment/test_outage\.py::test_ten_thousand_callers_are_served_soon_after_an_outage\[
    | /machine/test_rules_explored\.py::
    """,
    re.VERBOSE,
)

# What nearly repeats another test, or has a short form that runs before every change: left to
# ``make nightly``.  The mark `nightly` and tests/contracts/conftest.py name more of them.
REPEATS = re.compile(
    r"""
      OnTrio::|\[([^[]+-)?trio(-[^[]+)?\]$
    | /contracts/test_eager\.py::
    | /unit/(segment|snowflake)/test_handlers\.py::
    | /unit/segment/test_fork\.py::test_fork\[any\ line\]
    | /test_redis_topologies\.py::\w+::test_failover\[(redis|valkey)-py\]
    | /test_redis_cancellation\.py::test_two_counters_\w+\[uvloop-(?!url)
    | /test_sql_machine_lives\.py::test_killed_at_any_step\[(sqlite-.*-|postgres-.*-stable)\]
    | /test_redis_(machine|machine_vectors|vectors)\.py::(?!TestScripts).*\[(.*-)?redis_server
    | /test_sql_faults\.py::\w+::\w+\[uvloop-(\w*sqlite|asyncpg|psycopg|asyncmy|aiomysql)
    | /test_cli\.py::TestCommands::test_many_at_once_share_nothing\[postgres\]
    | /test_uid_generator\.py::test_an_epoch_has_a_zone$
    | /test_machines\.py::TestOnTheirOwn::test_two_hundred_lives_on_four_ids\[asyncio-postgres\]
    | /test_guided\.py::\w+\[20?\]
    | /test_lives\.py::TestFork::\w+\[(psycopg|asyncmy|aiomysql|.*valkey_)
    | /test_lives\.py::TestFork::\w+\[(?!sqlite)(\w+-)?(asyncio-(os|runner)|uvloop-sys)
    """,
    re.VERBOSE,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let one run leave out what another one has shown."""
    parser.addoption("--passed-into", type=Path, help="add to this file each test that passes")
    parser.addoption("--without", type=Path, help="leave out the tests that this file names")


class _Passed:
    """Writes down which tests pass."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of this file, and let Ctrl-C through to what tests start.

    A shell has what it runs in the background ignore SIGINT, and children inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path: Path | None = config.getoption("passed_into")
    if path is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Passed(path))
    given: dict[str, Any] | None = getattr(config, "workerinput", None)  # of a worker alone
    if given is not None:
        join_run(Path(given["run_folder"]))
    config.addinivalue_line(
        "markers", "both_loops: run an asyncio test on asyncio's own loop and on uvloop"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where it finds the servers that the others have started."""
    node.workerinput["run_folder"] = str(run_folder())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector look at what tests make, and not at the tests.

    To look at thousands of them again and again takes as long as to collect them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """Have it look at all again: hypothesis asks it who refers to what."""
    gc.unfreeze()
    leave_run()


def pytest_report_header() -> str:
    """Tell what jitter is drawn from."""
    return f"AIOCOSID_TEST_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to ``make stress`` what is long, and to ``make nightly`` what repeats."""
    path: Path | None = config.getoption("without")
    if path is not None:
        shown = set(path.read_text("utf-8").splitlines())
        config.hook.pytest_deselected(items=[each for each in items if each.nodeid in shown])
        items[:] = [each for each in items if each.nodeid not in shown]
    for item in items:
        if REPEATS.search(item.nodeid):
            item.add_marker(pytest.mark.nightly)
        if LONG.search(item.nodeid) or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.stress)


@contextmanager
def _skipped_when_missing() -> Generator[None]:
    try:
        yield
    except ServerMissingError as exc:
        if REQUIRED:
            pytest.fail(str(exc), pytrace=False)
        pytest.skip(str(exc))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Draw the same jitter in a test each time; another AIOCOSID_TEST_SEED draws another one."""
    random.seed(f"{SEED} {item.nodeid}")
    with _skipped_when_missing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test that finds out by itself, too."""
    with _skipped_when_missing():
        return (yield)


# Event loops


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """Run a coroutine on asyncio, unless a mark says on what."""
    if name.startswith("test") and inspect.iscoroutinefunction(obj):
        marks = {each.name for each in collector.iter_markers()}
        marks |= {each.name for each in getattr(obj, "pytestmark", ())}
        if not marks & {"asyncio", "anyio"}:
            pytest.mark.asyncio(obj)


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


# Servers that the tests of all workers share, which a worker has a database or a tree of, or which
# take seconds to start.  A shared one refuses to be stopped, emptied or set up anew: who does that
# takes one of the factories below, or a turn.


def _of_run(kind: str, make: Callable[[], AbstractContextManager[Any]], what: str) -> Any:
    def server() -> Any:
        return shared(kind, make)

    server.__doc__ = what
    return pytest.fixture(scope="session", name=kind)(server)


valkey_cluster = _of_run("valkey_cluster", ValkeyCluster, "A cluster of three masters.")
valkey_sentinel = _of_run(
    "valkey_sentinel", ValkeySentinel, "A master and a replica under three sentinels."
)
postgres = _of_run("postgres", PostgresServer, "PostgreSQL from the wheel.")
zookeeper = _of_run("zookeeper", ZookeeperServer, "The system's ZooKeeper, one server.")
mariadb = _of_run("mariadb", MariadbServer, "The system's MariaDB.")


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> PgBouncerServer:
    """PgBouncer in transaction mode in front of ``postgres``."""
    server: PgBouncerServer = shared("pgbouncer", partial(PgBouncerServer, postgres))
    server.postgres = postgres  # with this worker's database
    return server


# Servers that the tests of one worker share, quick to start: use them under ``namespace``, and
# never stop or empty them.  The marker of such a store is one for all namespaces; tests write it.


def _of_session(make: Callable[[], AbstractContextManager[Any]], what: str) -> Any:
    def server() -> Iterator[Any]:
        with make() as started:
            yield started

    server.__doc__ = what
    return pytest.fixture(scope="session")(server)


valkey = _of_session(ValkeyServer, "Valkey from the wheel.")
valkey_unix = _of_session(
    partial(ValkeyServer, unix_socket=True),
    "Valkey that listens on a unix socket as well: ``unix_url``.",
)
valkey_password = _of_session(
    partial(ValkeyServer, password=PASSWORD),
    "Valkey that asks for a password, with a second user READER who may change nothing.",
)
redis_server = _of_session(RedisServer, "The system's Redis.")
redis_tls = _of_session(
    partial(RedisServer, tls=True), "The system's Redis speaking TLS only; trust ``ca_path``."
)
etcd = _of_session(EtcdServer, "One etcd server.")
nats = _of_session(NatsServer, "One NATS server with JetStream.")
nats_three = _of_session(NatsCluster, "Three NATS servers that stay up.")
cosid_proxy = _of_session(CosIdProxy, "A CosId proxy, played from its protocol.")
cosid_service = _of_session(CosIdService, "The id service as CosId's proxy.")


# Servers that one test at a time has for itself: it may set them up anew, and puts that back.


@pytest.fixture
def mariadb_alone() -> Iterator[MariadbServer]:
    """Another MariaDB, whose global settings may be changed."""
    with alone_on("mariadb_alone", MariadbServer) as server:
        yield server


@pytest.fixture
def cluster_alone() -> Iterator[ValkeyCluster]:
    """Another cluster of three masters, empty but for its marker."""
    with alone_on("cluster_alone", ValkeyCluster) as cluster:
        for each in cluster.masters:
            each.call("FLUSHALL")
        cluster.owner(MARK[1]).call(*MARK)
        yield cluster


@pytest.fixture
def cosid_proxy_url(cosid_proxy: CosIdProxy) -> str:
    """Where a CosId proxy is that has no counter yet."""
    cosid_proxy.reset()
    return cosid_proxy.url


@pytest.fixture
def empty_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """``memory://`` as it is in a new process."""
    monkeypatch.setattr(memory._SHARED, "_backend", memory.MemoryBackend(SYSTEM_CLOCK))


@pytest.fixture
def broker_url() -> Iterator[str]:
    """The store of the workers of a broker, which has a Snowflake ``event``."""
    with Broker("shop") as broker:
        yield broker.url


@pytest.fixture
def zookeeper_tree(zookeeper: ZookeeperServer, namespace: str) -> str:
    """The URL of an empty tree of this test's own, by a chroot."""
    zookeeper.behind.ensure_path(f"/{namespace}")
    return f"{zookeeper.url}/{namespace}"


@pytest.fixture
def postgres_database(postgres: PostgresServer, namespace: str) -> Iterator[str]:
    """The URL of an empty database of this test's own: for what is about tables."""
    yield postgres.create_database(namespace)
    postgres.drop_database(namespace)


@pytest.fixture
def mariadb_alone_database(mariadb_alone: MariadbServer, namespace: str) -> Iterator[str]:
    """The URL of an empty database on ``mariadb_alone``."""
    yield mariadb_alone.create_database(namespace)
    mariadb_alone.drop_database(namespace)


@pytest.fixture
def mariadb_database(mariadb: MariadbServer, namespace: str) -> Iterator[str]:
    """The URL of an empty database of this test's own: for what is about tables."""
    yield mariadb.create_database(namespace)
    mariadb.drop_database(namespace)


# Servers of one test's own, to be killed, emptied and paused; all end with the test.


def _factory(make: Callable[..., AbstractContextManager[Any]], what: str) -> Any:
    def factory() -> Iterator[Callable[..., Any]]:
        with ExitStack() as stack:

            def start(*args: Any, **kwargs: Any) -> Any:
                return stack.enter_context(make(*args, **kwargs))

            yield start

    factory.__doc__ = what
    return pytest.fixture(factory)


valkey_factory = _factory(
    ValkeyServer, "Start a ValkeyServer(*options, persistent=, password=, unix_socket=)."
)
redis_factory = _factory(
    RedisServer, "Start a RedisServer(*options, persistent=, password=, unix_socket=, tls=)."
)
cluster_factory = _factory(ValkeyCluster, "Start a ValkeyCluster(replicas=, server=).")
sentinel_factory = _factory(ValkeySentinel, "Start a ValkeySentinel().")
postgres_factory = _factory(PostgresServer, "Start a PostgresServer(*options).")
mariadb_factory = _factory(MariadbServer, "Start a MariadbServer(*options, tls=).")
pair_factory = _factory(PostgresPair, "Start a PostgresPair(*options, synchronous=).")
etcd_factory = _factory(EtcdServer, "Start an EtcdServer(*options).")
nats_factory = _factory(NatsServer, "Start a NatsServer(*options, password=, tls=).")
zookeeper_factory = _factory(ZookeeperServer, "Start a ZookeeperServer(*settings, tick_ms=).")


@pytest.fixture
def etcd_ensemble() -> Iterator[EtcdEnsemble]:
    """Three etcd servers that elect a leader."""
    with EtcdEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def nats_cluster() -> Iterator[NatsCluster]:
    """Three NATS servers that elect a leader for each stream."""
    with NatsCluster() as cluster:
        yield cluster


@pytest.fixture
def zookeeper_ensemble() -> Iterator[ZookeeperEnsemble]:
    """Three servers of one test's own, of which the leader may be killed."""
    with ZookeeperEnsemble() as ensemble:
        yield ensemble
