"""What an answer that is written at once looks like on its way, on connections of every kind."""

from __future__ import annotations

import re
import signal

import pytest

from tests.servers import wait_until

from ._id_server import IdServer, reply_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ASK = "POST /v1/ids/order HTTP/{}\r\nHost: localhost\r\n{}\r\n"
ONE = ASK.format("1.1", "")
ANSWER = re.compile(
    rb"HTTP/1\.1 200 OK\r\n(date: [^\r]+\r\n)(?P<before>connection: close\r\n)?"
    rb"content-type: application/json\r\ncontent-length: 27\r\ncache-control: no-store\r\n"
    rb"(?P<after>connection: close\r\n)?\r\n"
    rb'\{"ids":\["([0-9])"\],"numbers":\[\4\]\}'
)


@pytest.mark.parametrize(
    "last",
    [ASK.format("1.1", "Connection: close\r\n"), ASK.format("1.0", ""), "GET /dashboard/none"],
    ids=["close", "HTTP 1.0", "cut off"],
)
def test_requests_in_a_row_and_the_last_one(last: str) -> None:
    with IdServer() as server, server.connect() as connection:
        connection.sendall((ONE * 3 + last).encode())
        if last.startswith("GET"):
            connection.shutdown(1)
        found = reply_of(connection)
    answers = [*ANSWER.finditer(found)]
    assert b"".join(each[0] for each in answers) == found
    numbers = [int(each[4]) for each in answers]
    assert numbers == [1, 2, 3] if last.startswith("GET") else [1, 2, 3, 4]
    *before, end = [bool(each["after"]) for each in answers]
    assert not any(before)
    # Whether the end of what a client sends comes before the last answer, is a matter of time.
    assert end or last.startswith("GET")


def test_a_body_is_no_next_request() -> None:
    with IdServer() as server, server.connect() as connection:
        connection.sendall(ASK.format("1.1", "Content-Length: 5\r\n").encode())
        first = connection.recv(1000)
        connection.sendall(b"GET /" + ASK.format("1.1", "Connection: close\r\n").encode())
        assert ANSWER.fullmatch(first)
        assert ANSWER.fullmatch(reply_of(connection))


def test_a_server_that_is_about_to_end_closes_connections() -> None:
    with IdServer(server="drain = 20") as server, server.connect() as connection:
        connection.sendall(ONE.encode())
        assert ANSWER.fullmatch(connection.recv(1000))
        assert server._popen is not None
        server._popen.send_signal(signal.SIGTERM)
        wait_until(lambda: "shuts down in" in server.log(), "it has begun to end", deadline=20)
        connection.sendall(ONE.encode())
        answer = ANSWER.fullmatch(reply_of(connection))
        assert answer is not None
        assert answer["before"] or answer["after"]
        server._popen.kill()
