"""``aiocosid serve``: its sockets, processes, limits and end."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from aiocosid.server import digest_of
from tests.command import ROOT, environment, run
from tests.servers import PostgresServer, free_port, wait_until
from tests.servers._certificates import Certificates
from tests.servers._process import ServerStartError, _children

from ._id_server import IdServer, connected, reply_of

pytestmark = [pytest.mark.integration, pytest.mark.stress, pytest.mark.timeout(120)]

SECRET = "aiocosid_of_a_test"  # noqa: S105 - of a test
TOKEN = f'[[server.tokens]]\nname = "shop"\ndigest = "{digest_of(SECRET)}"\n'
BEARER = {"Authorization": f"Bearer {SECRET}"}
ORDER = '{"order": {"kind": "chain"}}'
RESP = "[server.resp]\n"
PING = b"*1\r\n$4\r\nPING\r\n"
HASTY = "[server.limits]\nheader_timeout = 0.4\nbody = 1000\nconnections = 3000\n"


@pytest.fixture(scope="module")
def plain() -> Generator[IdServer]:
    """A server with what is usual."""
    with IdServer(server=RESP) as server:
        yield server


@pytest.fixture(scope="module")
def hasty() -> Generator[IdServer]:
    """A server whose clients have to hurry."""
    with IdServer(server=RESP + HASTY) as server:
        yield server


# Sockets.


def test_each_socket_speaks_http_and_resp(plain: IdServer) -> None:
    with plain.unix_client() as client:
        ids = [*plain.ids(3), int(client.post("/v1/ids/order").json()["ids"][0])]
    assert len({*ids}) == 4
    for address in ((plain.host, plain.port), plain.socket_path):
        with connected(address) as connection:
            connection.sendall(PING)
            assert connection.recv(100) == b"+PONG\r\n"


def test_a_unix_socket_is_for_its_owner_and_group(plain: IdServer) -> None:
    assert plain.socket_path.stat().st_mode & 0o777 == 0o660


def test_answers_do_not_name_the_server(plain: IdServer) -> None:
    answer = plain.client.get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "up"})
    assert "server" not in answer.headers


def test_the_end_is_in_order() -> None:
    """The socket's file has gone, nothing was warned of, and no second one is needed to start."""
    with IdServer() as server:
        assert server.ids() == [1]
        assert server.end() == 0
        assert not server.socket_path.exists()
        assert "WARNING" not in server.log()
        server.start()
        assert server.ids() > [1]
        assert server.end(signal.SIGINT) == 130


def test_a_machine_id_is_given_back() -> None:
    generators = '[generators.event]\nkind = "snowflake"\n'
    with IdServer(generators=generators) as server:
        server.ids(name="event")
        assert server.end() == 0
        listed = run("machines", "list", "--store", server.url, "--format", "json").stdout
    assert '"instance_id": ""' in listed or listed == "[]\n", listed


def test_a_socket_that_is_stale_is_replaced_and_one_in_use_is_not() -> None:
    with IdServer() as server:
        server.kill()
        assert server.socket_path.exists()
        server.start()
        second = run("serve", "--config", server.config, "--listen", f"unix:{server.socket_path}")
        assert second.returncode == 2
        assert "another process listens" in second.stderr
        assert server.ids()
        with server.unix_client() as client:
            assert client.get("/health/live").status_code == 200


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("data")
    ended = run("serve", "--listen", f"unix:{precious}", AIOCOSID_STORE="memory://")
    assert ended.returncode == 2
    assert precious.read_text() == "data"


def test_a_port_in_use_is_told(plain: IdServer) -> None:
    ended = run("serve", "--config", plain.config, "--listen", f"127.0.0.1:{plain.port}")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "another process listens" in ended.stderr


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]"])  # noqa: S104 - it is refused
def test_other_machines_need_a_token(address: str) -> None:
    ended = run("serve", "--listen", f"{address}:{free_port()}", AIOCOSID_STORE="memory://")
    assert ended.returncode == 2
    assert "tokens" in ended.stderr


def test_unless_it_is_said() -> None:
    port = free_port()
    with IdServer("--insecure", listen=[f"0.0.0.0:{port}"]) as server:
        assert "need no token" in server.log()
    with IdServer(listen=[f"0.0.0.0:{port}"], server=TOKEN) as server:
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/ids/order")
        assert answer.status_code == 401


def test_tokens_are_for_tcp() -> None:
    """On a Unix socket of one's own, if that is said, its permissions say who may do what."""
    own = "unix_tokens = false\n"
    with IdServer(server=own + RESP + TOKEN) as server, server.unix_client() as client:
        assert client.post("/v1/ids/order").status_code == 200
        assert server.client.post("/v1/ids/order").status_code == 401
        assert server.client.post("/v1/ids/order", headers=BEARER).status_code == 200
        for address, reply in (
            ((server.host, server.port), b"-NOAUTH"),
            (server.socket_path, b":7"),
        ):
            with connected(address) as connection:
                connection.sendall(b"*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$1\r\n7\r\n")
                assert connection.recv(100).startswith(reply)
    with IdServer(server=TOKEN) as server, server.unix_client() as client:
        assert client.post("/v1/ids/order").status_code == 401
        assert client.post("/v1/ids/order", headers=BEARER).status_code == 200
        assert SECRET not in server.log()


def test_tls(tmp_path: Path) -> None:
    """Of TCP alone."""
    certificates = Certificates(tmp_path)
    certificates.make()
    files = f'tls_certificate = "{certificates.certificate}"\ntls_key = "{certificates.key}"\n'
    with IdServer(server=files, tls=certificates.ca) as server, server.unix_client() as client:
        assert server.ids() == [1]
        assert client.post("/v1/ids/order").json()["ids"] == ["2"]
        assert reply_of_plain(server) == b""


def reply_of_plain(server: IdServer) -> bytes:
    with server.connect() as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return reply_of(connection).partition(b"HTTP")[1]


def test_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    config = tmp_path / "ids.toml"
    config.write_text('store = "memory:"\n[server]\ntls_certificate = "missing.pem"\n')
    ended = run("serve", "--config", config)
    assert ended.returncode == 2
    assert "missing.pem" in ended.stderr


def test_a_store_is_prepared_if_asked_to() -> None:
    """Its tables, and the marker without which it hands out no machine id."""
    generators = '[generators.event]\nkind = "snowflake"\n'
    with PostgresServer() as postgres:
        options: Any = {"store": postgres.url, "generators": generators, "create": False}
        with pytest.raises(ServerStartError, match="aiocosid init") as refused, IdServer(**options):
            pass
        with IdServer("--create", **options) as server:
            assert server.ids(name="event")
    assert "ended with code 4" in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_a_store_for_tests_is_told() -> None:
    """Its ids repeat once it was dropped, so it may not serve what is real."""
    with IdServer(create=False, settings='create = "disposable"') as server:
        assert "is a store for tests; in production ids may repeat" in server.log()


ACTIVATED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.environ |= {"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid())}
os.execv(sys.executable, [sys.executable, "-W", "error", "-m", "aiocosid", *sys.argv[3:]])
"""


def test_sockets_of_systemd(tmp_path: Path) -> None:
    """They are taken as they are, and their files stay."""
    path = tmp_path / "ids.sock"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        unix.listen()
        numbers = [each.fileno() for each in (tcp, unix)]
        words = ("serve", "--listen", "fd://")
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATED, *map(str, numbers), *words],
            pass_fds=numbers,
            env=environment(AIOCOSID_STORE="memory://", AIOCOSID_GENERATORS=ORDER),
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        try:
            url = f"http://127.0.0.1:{tcp.getsockname()[1]}"
            assert httpx.post(f"{url}/v1/ids/order", timeout=20).json()["ids"] == ["1"]
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
                assert client.post("http://x/v1/ids/order").json()["ids"] == ["2"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
        assert process.returncode == 0
        assert path.exists()


def test_there_is_no_socket_of_systemd() -> None:
    ended = run("serve", "--listen", "fd://", AIOCOSID_STORE="memory://", LISTEN_PID="1")
    assert ended.returncode == 2
    assert "systemd" in ended.stderr


# Several processes.


def test_processes_share_a_port_and_no_id() -> None:
    """One that dies is replaced."""
    with IdServer("--workers", "3") as server:
        workers = _children(server.pid)
        assert len(workers) >= 3  # and multiprocessing's own
        found = taken_by_many(server, threads=6, times=30)
        assert max(Counter(found).values()) == 1
        os.kill(serving(server)[0], signal.SIGKILL)
        wait_until(lambda: "takes its place" in server.log(), "it is replaced")
        wait_until(lambda: len(serving(server)) == 3, "there are three again", deadline=20)
        more = taken_by_many(server, threads=6, times=30)
        assert max(Counter(found + more).values()) == 1
        assert server.end() == 0
        assert "Traceback" not in server.log()


def test_without_a_process_connections_are_refused() -> None:
    """They hung before, in the queue of a socket that nobody listened at."""
    with IdServer("--workers", "2") as server:
        for pid in serving(server):
            os.kill(pid, signal.SIGKILL)

        def is_refused() -> bool:
            with socket.socket() as client:
                return client.connect_ex((server.host, server.port)) == errno.ECONNREFUSED

        wait_until(is_refused, "connections are refused")
        wait_until(lambda: not is_refused(), "another one listens", deadline=20)
        assert server.ids(2)
        assert server.end() == 0


def serving(server: IdServer) -> list[int]:
    """Return the processes that serve; multiprocessing has one of its own."""
    found = []
    for pid in _children(server.pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"spawn_main" in words:
            found.append(pid)
    return found


def taken_by_many(server: IdServer, *, threads: int, times: int) -> list[int]:
    """Take ids by threads that try again."""
    found: list[int] = []

    def take() -> None:
        with retrying(server) as client:
            for _ in range(times):
                found.extend(taken(client, count=10))

    running = [threading.Thread(target=take) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert len(found) == threads * times * 10
    return found


def retrying(server: IdServer) -> httpx.Client:
    return httpx.Client(base_url=f"http://{server.host}:{server.port}", timeout=20)


def taken(client: httpx.Client, count: int = 1, deadline: float = 20.0) -> list[int]:
    """Take ids, and try again while there is no server."""
    end = time.monotonic() + deadline
    while True:
        try:
            answer = client.post(f"/v1/ids/order?count={count}")
        except httpx.TransportError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
            continue
        if answer.status_code == 503 and time.monotonic() < end:
            time.sleep(0.01)
            continue
        assert answer.status_code == 200, answer.text
        return [int(each) for each in answer.json()["ids"]]


def test_what_one_process_knows_is_not_for_several() -> None:
    ended = run("serve", "--workers", "2", AIOCOSID_STORE="memory://")
    assert ended.returncode == 2
    assert "one process only" in ended.stderr


def test_processes_that_cannot_start_end_with_the_error() -> None:
    store = f"redis://127.0.0.1:{free_port()}/0"
    ended = run("serve", "--workers", "2", AIOCOSID_STORE=store, AIOCOSID_GENERATORS=ORDER)
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr


def test_processes_end_with_their_parent() -> None:
    with IdServer("--workers", "2") as server:
        workers = serving(server)
        os.kill(server.pid, signal.SIGKILL)
        gone = [Path(f"/proc/{pid}/cmdline") for pid in workers]
        wait_until(lambda: not any(map(is_running, gone)), "they have ended", deadline=20)


def is_running(file: Path) -> bool:
    try:
        return b"spawn_main" in file.read_bytes()
    except OSError:
        return False


# The end.


def test_nobody_notices_a_restart() -> None:
    """Clients that keep their connection and try again see no error, and no id twice."""
    found: list[int] = []
    over = threading.Event()

    def load(server: IdServer) -> None:
        with retrying(server) as client:
            while not over.is_set():
                found.extend(taken(client, count=3))

    with IdServer() as server:
        running = [threading.Thread(target=load, args=(server,)) for _ in range(4)]
        for each in running:
            each.start()
        for _ in range(3):
            so_far = len(found)
            wait_until(lambda: len(found) > so_far + 100, "requests are served")  # noqa: B023 - at once
            assert server.end() == 0
            server.start()
        over.set()
        for each in running:
            each.join()
        assert max(Counter(found).values()) == 1
        assert "Traceback" not in server.log()


def test_a_server_that_drains_is_not_ready_and_serves() -> None:
    with IdServer("--drain", "30", server=RESP) as server, retrying(server) as client:
        assert client.get("/health/ready").json()["status"] == "up"
        os.kill(server.pid, signal.SIGTERM)
        wait_until(lambda: client.get("/health/ready").status_code == 503, "it is not ready")
        answer = client.get("/health/ready")
        assert answer.json()["reasons"] == ["draining"]
        assert answer.headers["connection"] == "close"
        assert client.get("/health/live").status_code == 200
        assert server.ids()
        assert server.end() == -signal.SIGTERM, "the second signal ends it at once"


def test_requests_are_answered_before_the_end() -> None:
    """One whose body is on its way; and a client of Redis that has sent a command."""
    with IdServer("--drain", "0.5", server=RESP) as server, ExitStack() as stack:
        http, resp, silent = (stack.enter_context(server.connect()) for _ in range(3))
        path = b"POST /v1/machines/shop HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{"
        http.sendall(path)
        resp.sendall(PING)
        assert resp.recv(100) == b"+PONG\r\n"
        os.kill(server.pid, signal.SIGTERM)
        wait_until(lambda: draining(server), "it drains")
        http.sendall(b"}")
        resp.sendall(PING)
        answer = reply_of(http)
        assert answer.startswith(b"HTTP/1.1 400"), answer
        assert reply_of(resp) == b"+PONG\r\n"
        assert reply_of(silent) == b""
        assert server.wait() == 0


def draining(server: IdServer) -> bool:
    try:
        return httpx.get(f"http://{server.host}:{server.port}/health/ready").status_code == 503
    except httpx.TransportError:
        return True


# Limits.


def test_a_head_that_comes_too_slowly(hasty: IdServer) -> None:
    """Byte by byte it ends as well: slowloris."""
    head = b"POST /v1/ids/order HTTP/1.1\r\nhost: localhost\r\nx-slow: " + b"y" * 1000
    with hasty.connect() as connection:
        sent = drip(connection, head)
        assert 0 < sent < len(head)
        assert reply_of(connection) == b""
    assert hasty.ids()


def drip(connection: socket.socket, data: bytes) -> int:
    """Send byte by byte until the other side has closed; return how many."""
    connection.settimeout(0.01)
    for index, each in enumerate(data):
        try:
            connection.sendall(bytes([each]))
            if connection.recv(1) == b"":
                return index
        except TimeoutError:
            continue
        except OSError:
            return index
    return len(data)


def test_a_body_that_comes_too_slowly(hasty: IdServer) -> None:
    with hasty.connect() as connection:
        connection.sendall(
            b"POST /v1/machines/shop HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n"
        )
        assert drip(connection, b" " * 400) < 400


def test_silence_and_idleness_end(hasty: IdServer) -> None:
    """But a client of Redis may keep its connection."""
    with ExitStack() as stack:
        silent, idle, resp = (stack.enter_context(hasty.connect()) for _ in range(3))
        idle.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        resp.sendall(PING)
        assert reply_of(silent) == b""
        assert reply_of(idle).startswith(b"HTTP/1.1 200")
        assert resp.recv(100) == b"+PONG\r\n"
        resp.sendall(PING)
        assert resp.recv(100) == b"+PONG\r\n"


def test_a_client_that_does_not_read(hasty: IdServer) -> None:
    """Its requests are not read on, and it is closed: a server does not hold answers for it."""
    asked = b"POST /v1/ids/order?count=100000 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with hasty.connect() as connection:
        connection.sendall(asked * 5)
        before = memory_kb(hasty.pid)
        wait_until(lambda: is_reset(connection), "the connection is closed")
        assert memory_kb(hasty.pid) < before + 40_000


def is_reset(connection: socket.socket) -> bool:
    """Whether the other side has gone, without reading what it has sent."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


def memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - of numbers


@pytest.mark.parametrize("size", [1001, 50_000, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long(hasty: IdServer, size: int, chunked: bool) -> None:
    body: Any = iter([b" " * size]) if chunked else b" " * size
    with retrying(hasty) as client:
        try:
            answer = client.post("/v1/machines/shop", content=body)
        except httpx.TransportError:
            assert size > 50_000  # it was told, and closed while it sent on
        else:
            assert answer.status_code == 413
            assert answer.json()["kind"] == "body-too-long"
            assert answer.headers["connection"] == "close"
    assert hasty.ids()


def send_for_ever(connection: socket.socket, line: bytes) -> None:
    for index in range(200_000):
        connection.sendall(line % index)


@pytest.mark.parametrize("line", [b"x-%d: y\r\n", b"x-%d: " + b"y" * 5000 + b"\r\n"])
def test_a_head_that_is_too_long(plain: IdServer, line: bytes) -> None:
    with plain.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_for_ever(connection, line)
    assert plain.ids()


GARBAGE = {
    "no protocol": b"\x16\x03\x01\x02\x00\x01",
    "no HTTP": b"HELLO\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    "no number": b"*x\r\n",
    "a bad length": b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=[*GARBAGE])
def test_garbage_is_refused(plain: IdServer, data: bytes) -> None:
    with plain.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = reply_of(connection)
    assert answer[:12] in {b"", b"HTTP/1.1 400"} or answer.startswith(b"-ERR")
    assert "Traceback" not in plain.log()
    assert plain.ids()


def test_half_closed_connections(plain: IdServer) -> None:
    """One that asks nothing, and one in the middle of its head."""
    for data in (b"", b"POST /v1/ids/ord", b"*2\r\n$4\r\nPI"):
        with plain.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert reply_of(connection) in {b"", b"-ERR"}


def test_clients_that_go_away_in_the_middle(plain: IdServer) -> None:
    """What they asked for is a gap: nobody else gets it."""
    before = plain.ids()
    open_now = descriptors(plain.pid)
    for _ in range(50):
        with plain.connect() as connection:
            connection.sendall(
                b"POST /v1/ids/order?count=10000 HTTP/1.1\r\nhost: localhost\r\n\r\n"
            )
    after = plain.ids(100)
    assert after[0] > before[0]
    assert len({*after}) == 100
    wait_until(lambda: descriptors(plain.pid) <= open_now, "all are closed")
    assert "Traceback" not in plain.log()


def test_connections_have_a_limit() -> None:
    with IdServer(server="[server.limits]\nconnections = 10\n") as server, ExitStack() as stack:
        opened = [stack.enter_context(server.connect()) for _ in range(10)]
        opened[0].sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert opened[0].recv(20).startswith(b"HTTP/1.1 200")
        with server.connect() as one_more:
            assert reply_of(one_more) == b""
        opened[1].close()
        wait_until(lambda: works(server), "there is room again")


def test_files_are_as_many_as_the_system_allows(plain: IdServer) -> None:
    """The usual limit would be reached by a thousand connections."""
    lines = Path(f"/proc/{plain.pid}/limits").read_text().splitlines()
    [soft, hard] = next(line.split()[3:5] for line in lines if line.startswith("Max open files"))
    assert soft == hard


def works(server: IdServer) -> bool:
    with server.connect() as connection:
        connection.sendall(
            b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        return reply_of(connection).startswith(b"HTTP/1.1 200")


def idle(server: IdServer, count: int) -> tuple[int, int]:
    """Open connections that say nothing or a little, and close them.

    Returns:
        KB of memory that they took, and how many of them stayed.
    """
    openings: tuple[Callable[[socket.socket], object], ...] = (
        lambda _: None,
        lambda each: each.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        lambda each: each.sendall(PING),
        lambda each: each.sendall(b"GET /heal"),
    )
    before, open_before = memory_kb(server.pid), descriptors(server.pid)
    with ExitStack() as stack:
        for _, opening in zip(range(count), itertools.cycle(openings), strict=False):
            opening(stack.enter_context(server.connect()))
        wait_until(
            lambda: descriptors(server.pid) >= open_before + count, "all are open", deadline=60
        )
        assert server.ids()
        most = memory_kb(server.pid)
    wait_until(lambda: descriptors(server.pid) <= open_before + 2, "all are closed", deadline=60)
    return most - before, memory_kb(server.pid) - before


def test_two_thousand_idle_connections(plain: IdServer) -> None:
    """They take little, and leave nothing: the second time no memory is needed."""
    first, _ = idle(plain, 2000)
    _, grown = idle(plain, 2000)
    assert first < 40_000
    assert grown < first / 2 + 4000


@pytest.mark.stress
def test_ten_thousand_idle_connections(capsys: pytest.CaptureFixture[str]) -> None:
    with IdServer(server=RESP) as server:
        first, _ = idle(server, 10_000)
        left = [idle(server, 10_000)[1] for _ in range(3)]
        assert first < 200_000
        assert left[-1] < left[0] + 4000, left
    with capsys.disabled():
        print(f" 10,000 idle connections: {first / 1000:.1f} MB, then {left} KB left", end="")  # noqa: T201
