"""What a server says of itself while its store hangs: at once, and the truth."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from aiocosid.abc import DEFAULT_NAMESPACE
from aiocosid.machine.cells import NamespaceRecord
from aiocosid.server import digest_of
from tests.servers import ValkeyServer, wait_until

from ._id_server import IdServer
from .test_server_run import serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SPACE = f"cosid:{{{DEFAULT_NAMESPACE}}}:space"
DEADLINE = 3.0  # seconds after which nobody may say any more that all is well
START = 15.0  # seconds; a lease waits for five
AT_ONCE = 1.0  # seconds for an answer that waits for no store; the machine may be busy

GENERATORS = """
[generators.order]
kind = "chain"

[generators.event]
kind = "snowflake"
"""


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def asked(client: httpx.Client, path: str) -> tuple[int, Any]:
    """Return status and JSON; none of these may wait for the store."""
    began = time.monotonic()
    answer = client.get(path)
    assert time.monotonic() - began < AT_ONCE, path
    return answer.status_code, answer.json()


def head(client: httpx.Client) -> dict[str, str]:
    """Return the head of the dashboard, as text."""
    _, tree = asked(client, "/dashboard/overview.json")
    return {name: f"{each['text']} {each.get('why', '')}" for name, each in tree["facts"].items()}


def is_ready(client: httpx.Client) -> bool:
    status, found = asked(client, "/health/ready")
    return (status, found["status"]) == (200, "up")


def is_up(client: httpx.Client) -> bool:
    return asked(client, "/actuator/health") == (200, {"status": "UP"})


def is_well(client: httpx.Client) -> bool:
    found = head(client)
    return found["Server"] == "serving " and found["Stores"] == "answers "


def on_valkey(valkey: ValkeyServer) -> IdServer:
    return IdServer(
        server="[server.cosid]\n[server.resp]\n",
        store=valkey.url,
        settings='create = "disposable"',
        create=False,
        generators=GENERATORS,
    )


SAYINGS: list[Callable[[httpx.Client], bool]] = [is_ready, is_up, is_well]


def test_a_hung_store(valkey_factory: Callable[[], ValkeyServer]) -> None:
    """Within three seconds all say so; and again that all is well, by themselves."""
    valkey = valkey_factory()
    with on_valkey(valkey) as server:
        client = server.client
        server.ids(10)
        for each in SAYINGS:
            wait_until(lambda each=each: each(client), each.__name__)  # type: ignore[misc]
        valkey.pause()
        began = time.monotonic()
        waiting = [*SAYINGS]
        while waiting:
            waiting = [each for each in waiting if each(client)]
            assert time.monotonic() - began < DEADLINE or not waiting, waiting
            time.sleep(0.05)
        status, found = asked(client, "/health/ready")
        assert (status, found["status"]) == (200, "degraded")
        assert found["reasons"][0].startswith("the store does not answer")
        assert asked(client, "/actuator/health") == (503, {"status": "DOWN"})
        facts = head(client)
        assert facts["Stores"].startswith("1 of 1 do not answer for ")
        assert facts["Server"].startswith("serving in part ")
        assert facts["Generators"] == "2 of 2 up 2 with buffered ids only"
        assert server.ids(1)  # what is in hand is served
        refused = client.post("/v1/segments/order?step=5")
        assert (refused.status_code, refused.json()["kind"]) == (503, "no-id-now")
        assert str(valkey.port) not in f"{found}{facts}"
        valkey.resume()
        for each in SAYINGS:
            wait_until(lambda each=each: each(client), each.__name__)  # type: ignore[misc]
        assert server.end() == 0


def altered(valkey: ValkeyServer, **about: object) -> None:
    """Change the cell of the machine ids' namespace behind everybody's back."""
    space = NamespaceRecord.read(str(valkey.call("GET", SPACE)))
    found: Any = about
    valkey.call("SET", SPACE, replace(space, **found).text())


def test_a_quarantine_at_the_start(valkey: ValkeyServer) -> None:
    """Counters and RESP are served; the Snowflake follows when the quarantine ends."""
    with on_valkey(valkey) as server:
        server.ids(1, "event")
        server.kill()
        altered(valkey, identity="another")
        began = time.monotonic()
        server.start()
        assert time.monotonic() - began < START
        assert server.ids(2)
        with server.connect() as client:
            client.sendall(b"*2\r\n$4\r\nINCR\r\n$5\r\norder\r\n")
            assert client.recv(100).startswith(b":")
        assert server.client.post("/v1/ids/event").status_code == 503
        status, found = asked(server.client, "/health/ready")
        assert (status, found["status"]) == (200, "degraded")
        assert found["reasons"][0].startswith("1 of 2 generators wait in a quarantine for 3")
        space = NamespaceRecord.read(str(valkey.call("GET", SPACE)))
        altered(valkey, since_ms=space.since_ms - 400_000)
        wait_until(lambda: is_ready(server.client), "the Snowflake follows", deadline=20)
        assert server.ids(1, "event")
        assert server.end() == 0
        assert "Traceback" not in server.log()


SECRET = "aiocosid_the-shops"  # noqa: S105 - a test's
READER = "aiocosid_the-operators"
TOKENS = f"""
[[server.tokens]]
name = "shop"
digest = "{digest_of(SECRET)}"
scopes = ["ids", "segments"]

[[server.tokens]]
name = "ops"
digest = "{digest_of(READER)}"
scopes = ["read"]
"""
IDS = 'aiocosid_dialect="native",aiocosid_route="/v1/ids/{name:path}"'


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def scrape(server: IdServer) -> dict[str, float]:
    """Return the series of /metrics, with all their labels, by a connection of its own."""
    with httpx.Client(base_url=server.client.base_url, timeout=20) as client:
        answer = client.get("/metrics", headers=bearer(READER))
    assert answer.status_code == 200, answer.text
    lines = [each.rpartition(" ") for each in answer.text.splitlines() if each[0] != "#"]
    return {name: float(value) for name, _, value in lines}


def post(server: IdServer, secret: str) -> int:
    with httpx.Client(base_url=server.client.base_url, timeout=20) as client:
        return client.post("/v1/ids/order", headers=bearer(secret)).status_code


def requests_of(token: str, status: int) -> str:
    where = f'{IDS},aiocosid_status="{status}",aiocosid_token="{token}"'
    return f"aiocosid_server_requests_total{{{where}}}"


def commands_of(name: str, token: str, status: str) -> str:
    where = f'aiocosid_command="{name}",aiocosid_status="{status}",aiocosid_token="{token}"'
    return f"aiocosid_server_commands_total{{{where}}}"


def test_metrics_of_all_processes() -> None:
    """Added up, by whoever answers; and what one has counted that was killed since."""
    expected = {
        requests_of("shop", 200): 20.0,
        requests_of("", 401): 6.0,
        requests_of("ops", 403): 4.0,
        f"aiocosid_server_duration_seconds_count{{{IDS}}}": 30.0,
        "aiocosid_server_processes": 2.0,
        "aiocosid_server_store_up": 1.0,
        commands_of("AUTH", "", "OK"): 1.0,
        commands_of("INCR", "shop", "OK"): 2.0,
        commands_of("other", "shop", "ERR"): 1.0,
        'aiocosid_server_commands_duration_seconds_count{aiocosid_command="INCR"}': 2.0,
    }

    def is_all() -> bool:
        found = scrape(server)
        return {name: found.get(name) for name in expected} == expected

    def is_written() -> bool:
        """Whoever answers knows the other process by what that one has written."""
        return all(is_all() for _ in range(20))

    with IdServer("--workers", "2", server=f"[server.resp]\n{TOKENS}") as server:
        for secret, count, status in ((SECRET, 20, 200), ("aiocosid_x", 6, 401), (READER, 4, 403)):
            assert [post(server, secret) for _ in range(count)] == [status] * count
        with server.connect() as client:
            words = f"*2\r\n$4\r\nAUTH\r\n${len(SECRET)}\r\n{SECRET}\r\n".encode()
            client.sendall(words)
            assert client.recv(100) == b"+OK\r\n"
            client.sendall(b"*2\r\n$4\r\nINCR\r\n$5\r\norder\r\n" * 2 + b"*1\r\n$5\r\nHELP!\r\n")
            assert client.recv(100).startswith(b":")
            wait_until(is_written, "all is counted, and written by both")
            connections = "aiocosid_server_connections"
            wait_until(lambda: scrape(server)[connections] >= 2, "this one, and the scrape's")
            assert SECRET not in f"{scrape(server)}"
        os.kill(serving(server)[0], signal.SIGKILL)
        wait_until(lambda: "takes its place" in server.log(), "it is replaced")
        wait_until(is_all, "nothing is forgotten, and two serve", deadline=20)
        assert server.end() == 0
        assert "Traceback" not in server.log()
