"""Two servers on one store, restarted and killed under load."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Self

import httpx
import pytest

from tests.integration._id_server import IdServer
from tests.servers import PostgresServer, ValkeyServer, wait_until

pytestmark = [pytest.mark.stress, pytest.mark.integration, pytest.mark.timeout(600)]

CLIENTS = 6
PATIENCE = 20.0  # seconds that a client tries again


@pytest.fixture(params=["valkey", pytest.param("postgres", marks=pytest.mark.nightly)])
def store(request: pytest.FixtureRequest) -> Generator[str]:
    kind = {"valkey": ValkeyServer, "postgres": PostgresServer}[request.param]
    with kind() as server:
        yield server.url


class Load:
    """Clients of two servers, which take ids and segments and go to the other one if one fails.

    Attributes:
        ids: of a generator.
        segments: first and last of each.
        errors: what no further attempt has put right.
        retries: requests that were tried again.
    """

    def __init__(self, servers: list[IdServer]) -> None:
        self.urls = [f"http://{each.host}:{each.port}" for each in servers]
        self.ids: list[int] = []
        self.segments: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self.retries = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(CLIENTS)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join()

    @property
    def size(self) -> int:
        return len(self.ids) + len(self.segments)

    def _run(self, number: int) -> None:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(httpx.Client(base_url=url, timeout=10)) for url in self.urls
            ]
            while not self._is_over.is_set():
                try:
                    if number % 2:
                        found = self._asked(clients, "/v1/segments/order?step=7")
                        self.segments.append((int(found["first"]), int(found["last"])))
                    else:
                        found = self._asked(clients, "/v1/ids/order?count=5")
                        self.ids += map(int, found["ids"])
                except Exception as error:  # noqa: BLE001 - the test tells it
                    self.errors.append(repr(error))
                    return

    def _asked(self, clients: list[httpx.Client], path: str) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        random.shuffle(clients)
        while True:
            for client in clients:
                try:
                    answer = client.post(path)
                except httpx.TransportError:
                    self.retries += 1
                    continue
                if answer.status_code != 503:
                    answer.raise_for_status()
                    found: dict[str, Any] = answer.json()
                    return found
                self.retries += 1
            if time.monotonic() > end:
                raise TimeoutError(path)
            time.sleep(0.02)

    def check(self) -> None:
        """Nothing was handed out twice, and nobody has seen an error."""
        assert self.errors == []
        ranges = [range(first, last + 1) for first, last in self.segments]
        taken = self.ids + [each for found in ranges for each in found]
        assert {len(each) for each in ranges} == {7}
        assert len(taken) == len({*taken})


@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_two_servers_under_load(
    store: str, how: str, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other ends in order, or by kill -9, and starts again."""
    creates = store.startswith("postgres")  # Valkey was initialised
    with ExitStack() as stack:
        servers = [stack.enter_context(IdServer(store=store, create=creates)) for _ in range(2)]
        begun = time.monotonic()
        with Load(servers) as load:
            for index in range(times):
                server = servers[index % 2]
                size = load.size
                wait_until(lambda: load.size > size + 50 or load.errors != [], "load")  # noqa: B023 - at once
                if how == "kill":
                    server.kill()
                else:
                    assert server.end() == 0
                server.start()
        seconds = time.monotonic() - begun
        load.check()
        assert all("Traceback" not in each.log() for each in servers)
    with capsys.disabled():
        rate = load.size / seconds
        print(f" {load.size} requests, {rate:.0f}/s, {load.retries} tried again", end="")  # noqa: T201
