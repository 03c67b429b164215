"""RESP by the clients that exist: redis-py and redis-cli, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis
import redis.asyncio
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from aiocosid.provider import IdProvider
from aiocosid.server import App, Token, TokenScope, digest_of
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects.resp import commands
from aiocosid.stores.memory import MemoryStore
from tests.servers import HOST, find_program

from ._web import serve

pytestmark = pytest.mark.integration

KEY = "cosid:{shop.order}.adder"
SECRET = "aiocosid_of-nobody-else"  # noqa: S105 - to be shown


@contextmanager
def serving(*tokens: Token, **options: Any) -> Generator[tuple[App, httpx.Client]]:
    """The server on a thread."""
    app = App(IdProvider(MemoryStore()), tokens=tokens, resp=commands())
    with serve(app, http=EitherProtocol, proxy_headers=False, **options) as client:
        yield app, client


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    """Where a server listens."""
    with serving() as (_, client):
        port = client.base_url.port
        assert port is not None
        yield port


def client_of(port: int | None, **options: Any) -> Any:
    """redis-py's own client; its types are partly unknown."""
    return cast("Any", redis.Redis)(host=HOST, port=port, **options)


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(port: int, protocol: int) -> None:
    """Its handshake, its names for commands, its pipelines."""
    with client_of(port, protocol=protocol, client_name="me") as client:
        key = f"cosid:{{shop.order{protocol}}}.adder"
        assert client.ping() is True
        assert client.setnx(key, 100) is True
        assert client.set(key, 5, nx=True) is None
        assert client.incrby(key, 1000) == 1100
        assert client.incr(key) == 1101
        assert client.get(key) == b"1101"
        assert client.mget(key, "nobody") == [b"1101", None]
        assert client.exists(key, "nobody") == 1
        assert client.type(key) == b"string"
        assert client.client_id() > 0
        assert client.info()["server_name"] == "aiocosid"
        pipeline = client.pipeline(transaction=False)
        for _ in range(1000):
            pipeline.incrby(key, 10)
        assert pipeline.execute() == [1101 + 10 * turn for turn in range(1, 1001)]
        with pytest.raises(ResponseError, match="send a pipeline without a transaction"):
            client.pipeline().incr(key).execute()
        with pytest.raises(ResponseError, match="value is not an integer or out of range"):
            client.incrby(key, "x")
        with pytest.raises(ResponseError, match="only CosId's scripts run here"):
            client.eval("return 1", 0)


async def test_redis_py_on_asyncio(port: int) -> None:
    """Many connections at once take segments that are nobody else's."""
    async with cast("Any", redis.asyncio.Redis)(host=HOST, port=port) as client:

        async def take() -> list[int]:
            pipeline = client.pipeline(transaction=False)
            for _ in range(20):
                pipeline.incrby("crowd", 7)
            return [*await pipeline.execute(), await client.incrby("crowd", 7)]

        found = [
            last for each in await asyncio.gather(*[take() for _ in range(50)]) for last in each
        ]
    assert sorted(found) == [7 * turn for turn in range(1, 50 * 21 + 1)]


def test_one_socket_speaks_both_protocols(port: int) -> None:
    with client_of(port) as client:
        assert client.ping()
        assert httpx.get(f"http://{HOST}:{port}/v1/ids/nobody", timeout=20).status_code in {
            404,
            405,
        }


def test_tokens() -> None:
    """The password is the token, by either of redis-py's ways."""
    shop = Token(
        name="shop", digest=digest_of(SECRET), scopes=(TokenScope.SEGMENTS,), names=("shop.*",)
    )
    with serving(shop) as (_, http):
        port = http.base_url.port
        known: list[dict[str, str]]
        known = [{"password": SECRET}, {"username": "x", "password": SECRET}]
        for options in known:
            for protocol in (2, 3):
                with client_of(port, **options, protocol=protocol) as client:
                    assert client.incrby(KEY, 10) > 0
                    with pytest.raises(NoPermissionError, match="this token"):
                        client.incrby("other", 10)
        for unknown in ("", "x"):
            with (
                client_of(port, password=unknown or None) as client,
                pytest.raises((AuthenticationError, ResponseError)) as caught,
            ):
                client.incrby(KEY, 10)
            assert SECRET not in str(caught.value)


def test_java_cosids_requests_over_a_unix_socket() -> None:
    """What its Redis distributor sends, by Lettuce: a handshake, set-if-absent, additions."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "s.sock"))
        with serving(uds=path) as (app, _), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(path)
            for sent, answer in (
                (b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", b"%7\r\n"),
                (
                    b"*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nlib-name\r\n$7\r\nLettuce\r\n",
                    b"+OK\r\n",
                ),
                (
                    b"*3\r\n$5\r\nSETNX\r\n$24\r\ncosid:{shop.order}.adder\r\n$1\r\n0\r\n",
                    b":1\r\n",
                ),
                (
                    b"*3\r\n$6\r\nINCRBY\r\n$24\r\ncosid:{shop.order}.adder\r\n$3\r\n100\r\n",
                    b":100\r\n",
                ),
                (
                    b"*3\r\n$5\r\nSETNX\r\n$24\r\ncosid:{shop.order}.adder\r\n$1\r\n0\r\n",
                    b":0\r\n",
                ),
                (
                    b"*3\r\n$6\r\nINCRBY\r\n$24\r\ncosid:{shop.order}.adder\r\n$3\r\n100\r\n",
                    b":200\r\n",
                ),
            ):
                client.sendall(sent)
                received = client.recv(65536)
                assert received.startswith(answer)
            counters = asyncio.run(app.service.store.counters())
    assert [(each.namespaced_name, each.last_max_id) for each in counters] == [("shop.order", 200)]


def cli(*words: str, port: int) -> str:
    """What redis-cli prints."""
    program = find_program("redis-cli", remedy="apt-get install redis-tools")
    done = subprocess.run(
        [program, "-h", HOST, "-p", str(port), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.stdout.strip()


def test_redis_cli(port: int) -> None:
    """Also with RESP3, and with a file of commands, which it sends in one pipeline."""
    assert cli("INCRBY", "cli", "10", port=port) == "10"
    assert cli("-3", "INCRBY", "cli", "10", port=port) == "20"
    assert cli("GET", "cli", port=port) == "20"
    assert cli("DECR", "cli", port=port).startswith("ERR DECR is not served")
    assert cli("PING", port=port) == "PONG"
    assert "server_name:aiocosid" in cli("INFO", port=port)


def test_valkey_benchmark(port: int) -> None:
    """Pipelines of its own making, from many connections."""
    program = find_program("redis-benchmark", remedy="apt-get install redis-tools")
    words = ("-n", "2000", "-c", "20", "-P", "16", "-q", "INCRBY", "bench", "10")
    subprocess.run([program, "-h", HOST, "-p", str(port), *words], check=True, timeout=60)
    with client_of(port) as client:
        # It may send a whole pipeline too many.
        assert int(client.get("bench")) >= 20_000


def send_much(client: socket.socket) -> None:
    """More than any buffers hold."""
    data = b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + b"x" * 60000 + b"\r\n"
    for _ in range(3000):
        client.sendall(data)


def test_a_client_that_never_reads_is_no_load() -> None:
    """Replies wait in the server only as far as its socket's buffers go."""
    with serving() as (_, http), socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((HOST, http.base_url.port or 0))
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):  # the server does not take more
            send_much(client)
        with client_of(http.base_url.port) as other:
            assert other.incr("a") == 1


def test_garbage_is_answered_and_forgotten(port: int, caplog: pytest.LogCaptureFixture) -> None:
    for data in (b"*1\r\n$-1\r\n", b"*2147483647\r\n", b"*1\r\n*1\r\n", b"*x\r\n"):
        with socket.create_connection((HOST, port), 20) as client:
            client.sendall(data)
            with client.makefile("rb") as replies:
                assert replies.read().startswith(b"-ERR Protocol error: ")
    with socket.create_connection((HOST, port), 20) as client:
        client.sendall(b"*3\r\n$6\r\nINC")  # and gone
    with client_of(port) as other:
        assert other.ping()
    assert caplog.text == ""


def test_our_own_redis_store_is_refused_clearly(port: int) -> None:
    """It runs scripts, for promises that this server's own store keeps."""
    with client_of(port) as client, pytest.raises(RedisError, match="scripts"):
        client.eval("return redis.call('GET', KEYS[1])", 1, KEY)
