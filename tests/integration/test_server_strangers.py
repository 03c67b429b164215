"""What clients without a token can do to a server: nothing that others notice."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from aiocosid import connect
from aiocosid.provider.settings import ServerSettings, expiry_warnings_of
from aiocosid.server import App, digest_of
from aiocosid.server._listen import EitherProtocol
from aiocosid.server.dialects import resp
from aiocosid.testing import WrappedDistributor
from tests.command import run
from tests.servers import wait_until
from tests.servers._certificates import Certificates
from tests.unit.server._wire import Around

from ._id_server import IdServer, connected, reply_of
from ._web import serve
from .test_server_run import BEARER, PING, RESP, SECRET, memory_kb, send_for_ever

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

VERBS = 'scopes = ["ids", "segments", "machines", "read"]\n'
TOKEN = f'[[server.tokens]]\nname = "shop"\ndigest = "{digest_of(SECRET)}"\n{VERBS}'
ASK = b"POST /v1/ids/order HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
LAST = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def guarded() -> Generator[IdServer]:
    """A server that wants tokens."""
    with IdServer(server=RESP + TOKEN) as server:
        yield server


@contextmanager
def longest_wait(server: IdServer) -> Generator[list[float]]:
    """Ask now and then; give a list whose last is the longest wait for an answer."""
    waits, is_over = [0.0], threading.Event()

    def ask() -> None:
        while not is_over.wait(0.02):
            began = time.monotonic()
            server.client.get("/health/live")
            waits.append(max(waits[-1], time.monotonic() - began))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        is_over.set()
        asking.join()


# Requests in a row.


def test_requests_in_a_row_do_not_pile_up(guarded: IdServer) -> None:
    """Sixteen connections that read nothing fill up no memory and keep nobody waiting."""
    flood = ASK * 4000
    with ExitStack() as stack:
        opened = [stack.enter_context(guarded.connect()) for _ in range(16)]
        before = memory_kb(guarded.pid)
        with longest_wait(guarded) as waits:
            for each in opened:
                each.setblocking(False)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                for each in opened:
                    send_some(each, flood)
                time.sleep(0.01)
        assert memory_kb(guarded.pid) < before + 32_000
        assert len(waits) > 1
        assert waits[-1] < 1.5


def send_some(connection: socket.socket, data: bytes) -> None:
    try:
        connection.send(data)
    except BlockingIOError:
        return


def test_all_requests_in_a_row_are_answered_in_order(guarded: IdServer) -> None:
    head = f"host: 127.0.0.1\r\nauthorization: Bearer {SECRET}\r\n".encode()
    asked = b"POST /v1/ids/order HTTP/1.1\r\n%b\r\n" % head
    body = b'{"instance_id": "", "bits": 10}'  # is refused, once it was read
    refused = b"POST /v1/machines/shop HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b"
    refused %= head, len(body), body
    with guarded.connect() as connection:
        connection.sendall((asked * 9 + refused) * 50 + LAST)
        answers = reply_of(connection)
    ids = [int(each) for each in re.findall(rb'"ids":\["(\d+)"', answers)]
    assert len(ids) == 450
    assert ids == sorted(ids)
    kinds = [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", answers)]
    assert kinds == ([200] * 9 + [400]) * 50 + [200]


# Connections that say nothing useful.


HURRY = "[server.limits]\nheader_timeout = 0.6\nconnections = 12\n"
WHO = f"*2\r\n$4\r\nAUTH\r\n${len(SECRET)}\r\n{SECRET}\r\n".encode()


def test_connections_that_show_no_token_end() -> None:
    """Those of Redis' clients too, even if they go on to ask; one that has shown it stays."""
    with IdServer(server=HURRY + RESP + TOKEN) as server, ExitStack() as stack:
        known = stack.enter_context(server.connect())
        known.sendall(WHO)
        assert known.recv(100) == b"+OK\r\n"
        strangers = [stack.enter_context(server.connect()) for _ in range(11)]
        for each in strangers:
            each.sendall(PING)
            assert each.recv(100).startswith(b"-NOAUTH")
        wait_until(lambda: has_ended(strangers[0], PING), "one that goes on to ask has ended")
        assert [reply_of(each) for each in strangers[1:]] == [b""] * 10
        known.sendall(PING)
        assert known.recv(100) == b"+PONG\r\n"
        assert server.client.get("/health/live").status_code == 200


def has_ended(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
        return connection.recv(65_536) == b""
    except OSError:
        return True


def is_served(server: IdServer) -> bool:
    try:
        return server.ids() == [1]
    except httpx.TransportError:
        return False


def test_handshakes_are_connections_with_a_deadline(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.make()
    files = f'tls_certificate = "{certificates.certificate}"\ntls_key = "{certificates.key}"\n'
    hurry = HURRY.replace("0.6", "4")  # a real handshake may take a second on a busy machine
    with IdServer(server=files + hurry, tls=certificates.ca) as server, ExitStack() as stack:
        stalled = [stack.enter_context(server.connect()) for _ in range(12)]
        refused = stack.enter_context(server.connect())
        assert reply_of(refused) == b"", "it is one too many"
        for each in stalled:
            assert reply_of(each) == b"", "the event loop's own deadline is 60 s"
        wait_until(lambda: is_served(server), "their places are free")
        stack.enter_context(server.connect())
        assert server.end() == 0
        assert "Traceback" not in server.log()


def test_handshakes_that_stall_leave_places_for_others(tmp_path: Path) -> None:
    """Each costs as much as a large request, so 400 at a time have a place."""
    certificates = Certificates(tmp_path)
    certificates.make()
    files = f'tls_certificate = "{certificates.certificate}"\ntls_key = "{certificates.key}"\n'
    with IdServer(server=files, tls=certificates.ca) as server, ExitStack() as stack:
        stalled = [stack.enter_context(server.connect()) for _ in range(440)]
        began = time.monotonic()
        assert server.ids() == [1]
        assert time.monotonic() - began < 10, "their own deadline is 60 s"
        ended = [each for each in stalled[:41] if reply_of(each) == b""]
        assert len(ended) == 41
        stalled[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            stalled[-1].recv(1)


# What is not whole.


HEAD = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "
BODY = f"POST /v1/store/add HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\n".encode()


@pytest.mark.parametrize(
    "part", [HEAD + b"x" * 65_000, BODY + b"content-length: 65000\r\n\r\n" + b"x" * 60_000]
)
def test_all_that_is_not_whole_has_one_limit(guarded: IdServer, part: bytes) -> None:
    """Those that began first end."""
    before = memory_kb(guarded.pid)
    with ExitStack() as stack:
        opened = [stack.enter_context(guarded.connect()) for _ in range(400)]
        for each in opened:
            each.sendall(part)
        assert reply_of(opened[0]) == b""
        assert guarded.client.get("/health/live").status_code == 200
        assert memory_kb(guarded.pid) < before + 50_000
        opened[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            opened[-1].recv(1)


def test_who_goes_on_to_send_what_was_refused_is_cut(guarded: IdServer) -> None:
    with guarded.connect() as connection:
        head = b"POST /v1/store/add HTTP/1.1\r\nhost: x\r\ncontent-length: 40000000000\r\n\r\n"
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_for_ever(connection, b"x" * 10_000 + b"%d")


def test_a_long_body_whose_sender_sends_no_more(guarded: IdServer) -> None:
    """The parser gets it in several turns; the end of the sending comes between them."""
    body = b'{"name": "cosid.order", "by": 1, "padding": "' + b"x" * 60_000 + b'"}'
    with guarded.connect() as connection:
        connection.sendall(BODY + b"content-length: %d\r\n\r\n" % len(body) + body)
        connection.shutdown(socket.SHUT_WR)
        assert reply_of(connection).startswith(b"HTTP/1.1 200")


MANY_IDS = {
    "version 1": "/v1/ids/order?count=100000",
    "tinyid": f"/tinyid/id/nextId?bizType=order&token={SECRET}&batchSize=100000",
}


@pytest.mark.parametrize("path", MANY_IDS.values(), ids=[*MANY_IDS])
def test_many_ids_need_room(path: str) -> None:
    """Who does not read keeps others from many ids for a while, and nobody from a few."""
    head = f"host: 127.0.0.1\r\nauthorization: Bearer {SECRET}\r\n\r\n"
    asked = f"POST {path} HTTP/1.1\r\n{head}".encode()
    with IdServer(server="[server.tinyid]\n" + TOKEN) as server, ExitStack() as stack:
        unread = [stack.enter_context(server.connect()) for _ in range(6)]
        for each in unread:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(asked * 9)  # the system keeps some megabytes itself

        def asks() -> str:
            return server.client.post(path, headers=BEARER).text

        wait_until(lambda: "no room just now" in asks(), "all places are taken")
        assert len(server.ids(1000, headers=BEARER)) == 1000
        unread.pop().close()
        wait_until(lambda: asks().count(",") >= 99_999, "its place is free")


# Other sites.


DIALECTS = "[server.cosid]\n[server.leaf]\n[server.tinyid]\n"


@pytest.fixture(scope="module")
def open_to_all() -> Generator[IdServer]:
    """A server without tokens, which has a name."""
    options = "--host-name", "ids.internal"
    with IdServer(*options, server=DIALECTS) as server:
        yield server


ROUTES = [
    ("POST", "/v1/ids/order"),
    ("POST", "/v1/segments/order?step=9"),
    ("GET", "/v1/generators"),
    ("GET", "/metrics"),
    ("POST", "/v1/store/raise_to"),
    ("GET", "/dashboard"),
    ("GET", "/dashboard/overview.json"),
    ("POST", "/dashboard"),
    ("GET", "/ids/order"),
    ("GET", "/api/segment/get/order"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_rebound_name_is_none_of_ours(open_to_all: IdServer, method: str, path: str) -> None:
    """To a browser it is the site that its page is of, so nothing else tells."""
    asked: dict[str, Any] = {}
    if path.endswith("raise_to"):
        asked["json"] = {"name": "cosid.order", "above": 10}
    for host, is_ours in (("evil.example:80", False), ("ids.internal", True), ("LOCALHOST", True)):
        origin = {"host": host, "origin": f"http://{host}"}
        answer = open_to_all.client.request(method, path, headers=origin, **asked)
        assert (answer.status_code == 421) is not is_ours, (host, answer.text)


def test_tinyid_does_not_answer_to_one_either(open_to_all: IdServer) -> None:
    path = "/tinyid/id/nextIdSimple?bizType=order&token=x"
    headers = {"host": "evil.example"}
    assert open_to_all.client.get(path, headers=headers).text == ""
    assert open_to_all.client.get(path).text.isdecimal()


def test_a_token_is_enough_for_any_name(guarded: IdServer) -> None:
    headers = BEARER | {"host": "ids.example"}
    assert guarded.client.post("/v1/ids/order", headers=headers).status_code == 200
    assert guarded.client.get("/health/ready", headers={"host": "x"}).status_code == 200


MANY = [
    "/api/segment/get/order/1000",
    "/tinyid/id/nextIdSimple?bizType=order&token=x&batchSize=1000",
    "/tinyid/id/nextId?bizType=order&token=x&batchSize=1000",
    "/tinyid/id/nextSegmentIdSimple?bizType=order&token=x",
    "/tinyid/id/nextSegmentId?bizType=order&token=x",
]


@pytest.mark.parametrize("path", MANY)
def test_an_image_takes_one_id_at_most(open_to_all: IdServer, path: str) -> None:
    """A browser fetches it with GET, and over plain HTTP does not say which site wants it."""
    answer = open_to_all.client.get(path)
    assert answer.status_code == 405 or '"code":6' in answer.text or not answer.text
    answer = open_to_all.client.post(path)
    assert answer.status_code == 200
    assert '"code":6' not in answer.text
    assert answer.text


# Wrong tokens.


def refused_by(server: IdServer) -> dict[str, int]:
    text = server.client.get("/metrics", headers=BEARER).text
    name = "aiocosid_server_tokens_refused_total"
    found = re.findall(rf'^{name}{{reason="(\w+)"}} (\d+)\.0$', text, re.MULTILINE)
    return {reason: int(count) for reason, count in found}


def test_wrong_tokens_are_counted_and_told(guarded: IdServer) -> None:
    """With a line a second, which has no token."""
    before = refused_by(guarded)
    wrong = {"authorization": "Bearer aiocosid_of_nobody"}
    began, lines = time.monotonic(), guarded.log().count("the token is wrong")
    for _ in range(300):
        assert guarded.client.post("/v1/ids/order", headers=wrong).status_code == 401
    with guarded.connect() as connection:
        connection.sendall(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n")
        assert connection.recv(100).startswith(b"-")
    assert guarded.client.post("/v1/ids/order").status_code == 401
    assert guarded.client.get("/health/ready").status_code == 200  # needs none
    after = refused_by(guarded)
    assert after["wrong"] == before["wrong"] + 301
    assert after["missing"] == before["missing"] + 1
    wait_until(lambda: "more like it were left out" in guarded.log(), "the others are told")
    told = guarded.log().count("the token is wrong") - lines
    assert 1 < told <= 3 + time.monotonic() - began
    assert "of_nobody" not in guarded.log()


def test_a_certificate_that_ends_is_told(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)  # they live for two days
    certificates.make()
    files = f'tls_certificate = "{certificates.certificate}"\ntls_key = "{certificates.key}"\n'
    with IdServer(server=files, tls=certificates.ca) as server:
        assert "server.tls_certificate expires within a week" in server.log()
        checked = run("check-config", server.config)
    assert "expires within a week" in checked.stdout + checked.stderr
    settings = ServerSettings(tls_certificate=str(certificates.certificate))
    in_ms = time.time() * 1000
    for days, said in ((2.1, "has expired"), (1.9, "within a week"), (-5.1, "")):
        told = [*expiry_warnings_of(settings, int(in_ms + days * 86_400_000))]
        assert [said in what for _, what in told] == ([True] if said else [])
    path = tmp_path / "no.pem"
    for text in ("", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"):
        path.write_text(text)
        [(_, what)] = expiry_warnings_of(ServerSettings(tls_certificate=str(path)), int(in_ms))
        assert "no certificate" in what


# Half-closed connections.


class LateDistributor(WrappedDistributor):
    """Answers after a while."""

    async def next_max_id(self, step: int) -> int:
        await asyncio.sleep(0.3)
        return await super().next_max_id(step)


SEGMENT = b"POST /v1/segments/order?step=5 HTTP/1.1\r\nhost: localhost\r\n\r\n"
INCREMENT = b"*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$1\r\n5\r\n"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (SEGMENT, [b'"last": "5"']),
        (SEGMENT * 3, [b'"last": "5"', b'"last": "10"', b'"last": "15"']),
        (INCREMENT, [b":5\r\n"]),
        (INCREMENT + PING + INCREMENT, [b":5\r\n+PONG\r\n:10\r\n"]),
    ],
)
def test_who_sends_no_more_gets_its_answers(loop: str, asked: bytes, answered: list[bytes]) -> None:
    """Those that wait for the store too, as ``nc -N`` and some load balancers expect."""
    store = Around(LateDistributor)
    app = App(connect("memory://"), store=store, create=True, resp=resp.commands())
    with serve(app, http=EitherProtocol, loop=loop) as client:
        with connected((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(asked)
            connection.shutdown(socket.SHUT_WR)
            answer = reply_of(connection)
        assert [each for each in answered if each in answer] == answered
        assert client.get("/health/live").status_code == 200


# What is too long.


@pytest.mark.parametrize("size", [280_000, 500_000, 800_000])
def test_a_long_body_has_one_answer(guarded: IdServer, size: int) -> None:
    """It was served, and the answer was 431 in addition."""
    asked = {"name": "cosid.order", "by": 1, "padding": "x" * size}
    answers = [guarded.client.post("/v1/store/add", json=asked, headers=BEARER) for _ in range(3)]
    assert [each.status_code for each in answers] == [413] * 3
    del asked["padding"]
    assert guarded.client.post("/v1/store/add", json=asked, headers=BEARER).status_code == 200


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@pytest.mark.parametrize("number", ["9" * 5000, "x"])
def test_a_machine_id_that_is_no_number(guarded: IdServer, method: str, number: str) -> None:
    """Python reads no integer of more than 4,300 digits; it was a bug's 500, before any token."""
    path = f"/v1/machines/shop/{number}"
    assert guarded.client.request(method, path).status_code == 401
    body = {"instance_id": "a", "token": "b"}
    answer = guarded.client.request(method, path, json=body, headers=BEARER)
    assert (answer.status_code, answer.json()["kind"]) == (400, "invalid-argument")
    assert "Traceback" not in guarded.log()


ENDLESS = {
    "a head behind a body that nobody took": (
        b"POST /v1/ids/order HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n",
        b"yGET / HTTP/1.1\r\nhost: x\r\n",
    ),
    "the trailers of a body": (
        b"POST /v1/store/add HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
        b"1\r\ny\r\n0\r\n",
    ),
}


@pytest.mark.parametrize("parts", ENDLESS.values(), ids=[*ENDLESS])
def test_what_has_no_end_is_cut(guarded: IdServer, parts: tuple[bytes, bytes]) -> None:
    first, second = parts
    with guarded.connect() as connection:
        connection.sendall(first)
        if b"chunked" not in first:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 401")
        connection.sendall(second)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_for_ever(connection, b"x-%d: " + b"y" * 100 + b"\r\n")


def test_answers_come_before_the_refusal_of_what_follows(guarded: IdServer) -> None:
    head = f"host: 127.0.0.1\r\nauthorization: Bearer {SECRET}\r\n".encode()
    asked = b"POST /v1/ids/order?count=10 HTTP/1.1\r\n%b\r\n" % head
    with guarded.connect() as connection:
        connection.sendall(asked * 3 + b"\x01\x02 no HTTP\r\n\r\n")
        answers = reply_of(connection)
    assert answers.count(b"HTTP/1.1 200") == 3
    assert b"HTTP/1.1 400" not in answers[: answers.rindex(b"HTTP/1.1 200")]
