"""The test infrastructure itself: a test that fails by its own tools proves nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)

from tests.servers import (
    EXECUTED,
    FaultProxy,
    MariadbServer,
    PostgresPair,
    PostgresServer,
    ServerStartError,
    ValkeyCluster,
    ValkeyServer,
    wait_until,
)
from tests.servers._process import is_gone

pytestmark = [pytest.mark.integration]


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncGenerator[Redis]:
    """A client that never resends, so that a test sees each fault as it is."""
    client: Redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
    try:
        yield client
    finally:
        await client.aclose()


async def connect(url: str, **options: Any) -> Any:
    """A connection of asyncpg, whose methods have no types."""
    return await asyncpg.connect(url, **options)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def connection_to(url: str) -> AsyncGenerator[Any]:
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close()


class TestLifeAndDeath:
    """A server comes and goes on one port and one directory."""

    def test_persistent_valkey_keeps_its_data_over_kill(
        self, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        server = valkey_factory(persistent=True)
        server.call("SET", "k", "v")
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            server.call("PING")
        server.start()
        assert server.call("GET", "k") == "v"

    def test_paused_server_is_silent_and_then_goes_on(
        self, valkey_factory: Callable[..., ValkeyServer]
    ) -> None:
        server = valkey_factory()
        server.pause()
        with pytest.raises(TimeoutError):
            server.call("PING", timeout=0.05)
        server.resume()
        assert server.call("PING") == "PONG"

    async def test_postgres_keeps_its_data_over_kill_and_its_sessions_die(
        self, postgres_factory: Callable[..., PostgresServer]
    ) -> None:
        server = postgres_factory()
        server.execute("CREATE TABLE t AS SELECT 7 AS n")
        session = await connect(server.url)
        server.kill()
        with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
            await session.fetchval("SELECT n FROM t")
        session.terminate()
        server.start()
        assert server.execute("SELECT n FROM t") == "7"

    async def test_paused_postgres_stops_its_sessions_as_well(
        self, postgres_factory: Callable[..., PostgresServer]
    ) -> None:
        server = postgres_factory()
        async with connection_to(server.url) as session:
            server.pause()
            answer = asyncio.create_task(session.fetchval("SELECT 7"))
            done, _ = await asyncio.wait([answer], timeout=0.1)
            assert not done
            server.resume()
            assert await answer == 7

    def test_failed_start_shows_the_log(self) -> None:
        with pytest.raises(ServerStartError, match="unheard-of"), ValkeyServer("--unheard-of"):
            pass

    def test_nothing_is_left_of_a_process_that_was_killed(
        self, valkey: ValkeyServer, pytestconfig: pytest.Config
    ) -> None:
        """Even when the tests themselves are killed with -9."""
        code = (
            "from tests.servers import ValkeyServer\n"
            "server = ValkeyServer().__enter__()\n"
            "print(server.pid, server.directory, flush=True)\n"
            "import signal; signal.pause()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=pytestconfig.rootpath,
            stdout=subprocess.PIPE,
            text=True,
        ) as owner:
            assert owner.stdout is not None
            pid, directory = owner.stdout.readline().split()
            assert Path(directory).is_dir()
            owner.kill()
        wait_until(lambda: is_gone(int(pid)), "the orphan is killed")
        wait_until(lambda: not Path(directory).exists(), "the orphan's directory is removed")


FIRST_PROCESS = """
import signal
from tests.servers import run_folder
print(run_folder(), flush=True)
signal.pause()
"""
WORKER = """
import os, pathlib, sys
from tests.servers import ValkeyServer, join_run, shared
join_run(pathlib.Path(sys.argv[1]))
server = shared("valkey", ValkeyServer)
server.call("INCR", "workers")
print(server.pid, server.directory, server.call("GET", "workers"), flush=True)
os._exit(1)  # as one that crashes
"""


class TestShared:
    """One of a kind for all workers of a run, and no longer than it."""

    def test_it_outlives_its_workers_and_not_the_run(self, pytestconfig: pytest.Config) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", FIRST_PROCESS],
            cwd=pytestconfig.rootpath,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as first:
            assert first.stdout is not None
            folder = first.stdout.readline().strip()
            found = [
                subprocess.run(
                    [sys.executable, "-c", WORKER, folder],
                    cwd=pytestconfig.rootpath,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=False,
                ).stdout.split()
                for _ in range(2)
            ]
            pid, directory, _ = found[0]
            assert found == [[pid, directory, "1"], [pid, directory, "2"]]
            assert not is_gone(int(pid))
            first.kill()
        wait_until(lambda: is_gone(int(pid)), "the server is killed")
        for path in (directory, folder):
            wait_until(lambda path=path: not Path(path).exists(), path)  # type: ignore[misc]

    def test_whoever_comes_after_the_run_leaves_nothing(
        self, pytestconfig: pytest.Config, tmp_path: Path
    ) -> None:
        """The folder is there, and its book was read already."""
        done = subprocess.run(
            [sys.executable, "-c", WORKER, tmp_path],
            cwd=pytestconfig.rootpath,
            capture_output=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "FileNotFoundError" in done.stderr
        wait_until(lambda: not list(tmp_path.glob("aiocosid-*")), "its directory is removed")

    def test_nobody_ends_it_or_sets_it_up_anew(
        self, valkey_cluster: ValkeyCluster, postgres: PostgresServer, mariadb: MariadbServer
    ) -> None:
        """Whoever does would break the tests of others."""
        valkey = valkey_cluster.masters[0]
        for call in (valkey.kill, valkey.stop, valkey.pause, valkey.restart, postgres.close):
            with pytest.raises(AssertionError, match="start one of your own"):
                call()
        with pytest.raises(AssertionError, match="a turn alone"):
            valkey.call("FLUSHALL")
        with pytest.raises(AssertionError, match="a turn alone"):
            postgres.execute("ALTER SYSTEM RESET ALL")
        with pytest.raises(AssertionError, match="a turn alone"):
            mariadb.execute("SET GLOBAL read_only = 1")

    def test_one_test_at_a_time_sets_it_up_anew(self, mariadb_alone: MariadbServer) -> None:
        """It is not the one that others use, and goes on as well."""
        mariadb_alone.execute("SET GLOBAL max_connections = 399")
        mariadb_alone.execute("SET GLOBAL max_connections = 400")
        with pytest.raises(AssertionError, match="start one of your own"):
            mariadb_alone.kill()


@pytest_asyncio.fixture
async def proxy(valkey: ValkeyServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(valkey.host, valkey.port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Redis]:
    async with client_of(f"redis://{proxy.host}:{proxy.port}", socket_timeout=None) as client:
        await client.ping()  # the handshake is over, the next request is the test's
        yield client


@pytest.mark.both_loops
class TestFaultProxy:
    """The proxy does to a connection what networks do."""

    async def test_forwards_and_counts(
        self, proxy: FaultProxy, client: Redis, namespace: str
    ) -> None:
        seen = proxy.requests
        assert await client.incrby(namespace, 7) == 7
        assert (proxy.requests, proxy.connections, proxy.open_connections) == (seen + 1, 1, 1)

    async def test_carries_more_than_one_read(
        self, proxy: FaultProxy, client: Redis, namespace: str
    ) -> None:
        value = os.urandom(1_000_000)
        await client.set(namespace, value)
        assert await client.get(namespace) == value

    async def test_delays_each_way(self, proxy: FaultProxy, client: Redis) -> None:
        proxy.latency = 0.05
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await client.ping()
        assert loop.time() - begin > 0.09

    @pytest.mark.parametrize("reset", [True, False])
    async def test_swallowed_reply_was_applied(
        self, valkey: ValkeyServer, proxy: FaultProxy, client: Redis, namespace: str, reset: bool
    ) -> None:
        """The server has counted although the client saw an error."""
        proxy.swallow_replies(1, to=b"INCRBY", reset=reset)
        await client.ping()  # not one of those meant
        with pytest.raises(RedisConnectionError if reset else TimeoutError):
            async with asyncio.timeout(None if reset else 0.1):
                await client.incrby(namespace, 7)
        assert valkey.call("GET", namespace) == "7"
        assert proxy.swallowed == 1
        assert await client.incrby(namespace, 7) == 14

    async def test_cancelled_in_flight_before_the_server_knows(
        self, valkey: ValkeyServer, proxy: FaultProxy, client: Redis, namespace: str
    ) -> None:
        proxy.blackhole(requests=True)
        seen = proxy.next_request(b"INCRBY")
        call = asyncio.ensure_future(client.incrby(namespace, 7))
        assert namespace.encode() in await seen
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert valkey.call("GET", namespace) is None
        # What was held arrives late, but arrives.
        proxy.heal()
        await asyncio.to_thread(
            wait_until, lambda: valkey.call("GET", namespace) == "7", "the request arrives"
        )

    async def test_cancelled_in_flight_after_the_server_acted(
        self, valkey: ValkeyServer, proxy: FaultProxy, client: Redis, namespace: str
    ) -> None:
        proxy.blackhole(replies=True)
        answered = proxy.next_reply(b":7\r\n")
        call = asyncio.ensure_future(client.incrby(namespace, 7))
        await answered
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert valkey.call("GET", namespace) == "7"

    async def test_cuts_connections(self, proxy: FaultProxy) -> None:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.write(b"PING\r\n")
        assert await reader.readline() == b"+PONG\r\n"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()

    async def test_refuses_new_connections_and_keeps_the_present_one(
        self, proxy: FaultProxy, client: Redis
    ) -> None:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(proxy.host, proxy.port)
        assert await client.ping()
        await proxy.accept()
        _, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.close()
        await writer.wait_closed()

    async def test_server_that_is_down_resets(self) -> None:
        with ValkeyServer() as server:
            pass
        async with FaultProxy(server.host, server.port) as proxy:
            reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()

    async def test_postgres_reply_after_the_effect(
        self, postgres: PostgresServer, postgres_database: str, namespace: str
    ) -> None:
        """EXECUTED tells the reply of the statement from those of preparing it."""
        postgres.execute("CREATE TABLE t (n int)", database=namespace)
        async with FaultProxy(postgres.host, postgres.port) as proxy:
            url = f"postgresql://postgres@{proxy.host}:{proxy.port}/{namespace}"
            connection = await connect(url)
            proxy.swallow_replies(1, matching=EXECUTED)
            with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
                await connection.fetchval("INSERT INTO t VALUES (7) RETURNING n")
            connection.terminate()
        assert postgres.execute("SELECT n FROM t", database=namespace) == "7"


@pytest.mark.stress
class TestFailover:
    """A replica takes over, as far as the topology has one."""

    async def test_a_cut_standby_is_promoted_without_the_last_write(
        self, pair_factory: Callable[..., PostgresPair]
    ) -> None:
        pair = pair_factory()
        pair.primary.execute("CREATE TABLE t AS SELECT 1 AS n")
        pair.catch_up()
        pair.standby.cut()
        pair.primary.execute("INSERT INTO t VALUES (2)")
        pair.fail_over()
        async with connection_to(pair.url) as connection:
            assert await connection.fetch("INSERT INTO t VALUES (3) RETURNING n")
        assert pair.standby.execute("SELECT n FROM t ORDER BY n") == "1\n3"

    @pytest.mark.stress
    def test_a_synchronous_standby_has_every_write(
        self, pair_factory: Callable[..., PostgresPair]
    ) -> None:
        pair = pair_factory(synchronous=True)
        pair.primary.execute("CREATE TABLE t AS SELECT 1 AS n; INSERT INTO t VALUES (2)")
        pair.fail_over()
        assert pair.standby.execute("SELECT n FROM t ORDER BY n") == "1\n2"
