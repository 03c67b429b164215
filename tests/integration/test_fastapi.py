"""The applications of docs/howto/fastapi.md, served by uvicorn and asked over real HTTP."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.docs._blocks import ROOT, blocks
from tests.servers import HOST, ValkeyServer, free_port, wait_until

pytestmark = [pytest.mark.integration]

PAGE = ROOT / "docs" / "howto" / "fastapi.md"
FILES = {block.title: block.source for block in blocks(PAGE) if block.title}

MOUNT = """
from shop import *
import invoices, threads
app.include_router(invoices.router)
app.include_router(threads.router)

@asynccontextmanager
async def both(app):
    async with aiocosid.connect("memory://") as ids:
        yield {"ids": ids, "orders": await ids.segment_chain("order")}

app.router.lifespan_context = both
"""

Serve = Callable[..., "Served"]


class Served:
    """One uvicorn with its workers.

    Attributes:
        client: talks to it.
        process: uvicorn itself.
    """

    def __init__(self, folder: Path, *options: str, url: str, app: str = "shop:app") -> None:
        port = free_port()
        self._log = folder / "uvicorn.log"
        command = [sys.executable, "-m", "uvicorn", app, "--host", HOST, "--port", str(port)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                cwd=folder,
                env={"IDS_URL": url, "PATH": "", "HOME": str(folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.client = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=20)

    def wait(self) -> None:
        wait_until(self._answers, "uvicorn answers", deadline=30)
        assert self.process.poll() is None, self.log

    def stop(self) -> str:
        """End it as an orchestrator does; what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)
        return self.log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _answers(self) -> bool:
        try:
            self.client.get("/health")
        except httpx.TransportError:
            return self.process.poll() is not None
        return True

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start uvicorn in a folder that holds the page's files."""
    running: list[Served] = []
    for name, source in FILES.items():
        (tmp_path / name).write_text(source)

    def start(*options: str, url: str = "memory://", app: str = "shop:app") -> Served:
        served = Served(tmp_path, *options, url=url, app=app)
        running.append(served)
        served.wait()
        return served

    yield start
    for served in running:
        served.close()


def ordered(served: Served, requests: int, *, at_once: int = 8) -> list[int]:
    """The ids of so many orders, several of which are under way at any time."""
    with ThreadPoolExecutor(at_once) as pool:
        replies = list(pool.map(served.client.post, ["/orders"] * requests))
    assert {reply.status_code for reply in replies} == {200}
    return [reply.json()["id"] for reply in replies]


def test_every_order_has_an_id_of_its_own(serve: Serve) -> None:
    """Concurrent requests to one worker get the ids from 1 on, each once."""
    assert sorted(ordered(serve(), 200)) == list(range(1, 201))


def test_workers_share_the_counter_and_no_id(serve: Serve, tmp_path: Path) -> None:
    """Two workers reserve segments of their own from one file."""
    ids = ordered(serve("--workers", "2", url=f"sqlite:///{tmp_path}/ids.db"), 200)
    assert len(set(ids)) == 200


def test_a_bulk_order_gets_exactly_as_many(serve: Serve) -> None:
    """A batch is whole; a count that makes no sense is the client's mistake."""
    client = serve().client
    assert client.post("/orders/bulk", params={"count": 2500}).json()["ids"] == list(range(1, 2501))
    assert client.post("/orders/bulk", params={"count": 0}).status_code == 422


def test_sigterm_closes_the_generator(serve: Serve) -> None:
    """The lifespan is left in order, and nothing is warned about."""
    served = serve("--log-level", "info")
    ordered(served, 3)
    log = served.stop()
    assert "Application shutdown complete" in log
    assert "Error" not in log
    assert "Warning" not in log


def test_an_outage_is_a_503_when_the_ids_end(
    serve: Serve, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """With ids in hand nobody notices; then clients are told to come again; then it recovers."""
    server = valkey_factory(persistent=True)
    served = serve(url=server.url)
    server.kill()
    assert sorted(ordered(served, 10)) == list(range(1, 11))
    served.client.post("/orders/bulk", params={"count": 1990}).raise_for_status()
    refused = served.client.post("/orders")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert served.client.get("/health").json()["last_error"]
    server.start()
    wait_until(lambda: served.client.post("/orders").status_code == 200, "ids come again")


def test_a_store_that_forgot_its_counter_ends_the_ids(
    serve: Serve, valkey_factory: Callable[..., ValkeyServer]
) -> None:
    """An emptied store is no outage: asking again does not help, and the reply says so."""
    server = valkey_factory()
    served = serve(url=server.url)
    server.call("FLUSHALL")
    served.client.post("/orders/bulk", params={"count": 2000}).raise_for_status()
    wait_until(lambda: served.client.post("/orders").status_code == 500, "no further id")


def test_it_does_not_start_without_its_store(serve: Serve) -> None:
    """A wrong URL stops the application before it takes requests."""
    served = None
    with pytest.raises(AssertionError):
        served = serve(url=f"redis://{HOST}:{free_port()}/0")
    assert served is None


def test_the_pages_other_endpoints_work(serve: Serve, tmp_path: Path) -> None:
    """A provider in the state, and an endpoint that runs in a thread."""
    (tmp_path / "both.py").write_text(MOUNT)
    client = serve(app="both:app").client
    assert client.post("/invoices").json() == {"id": 1}
    assert [client.post("/orders/sync").json()["id"] for _ in range(3)] == [1, 2, 3]
