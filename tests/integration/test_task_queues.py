"""The tasks of docs/howto/task-queues.md in real workers of several processes, on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from tests.docs._blocks import ROOT, blocks
from tests.servers import ValkeyServer, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.stress]

PAGE = ROOT / "docs" / "howto" / "task-queues.md"
API = ROOT / "docs" / "reference" / "api" / "integrations.md"  # has the asynchronous actors
FILES = {
    b.title: b.source
    for page in (PAGE, API)
    for b in blocks(page)
    if b.title and "/" not in b.title
}
URL = "redis://localhost:6379/0"
TASKS = 200

# As on the page; it holds a task group, and says when it is open and when it is closed.
OPEN = """
import os
from contextlib import asynccontextmanager

import aiocosid
import anyio

@asynccontextmanager
async def open_ids():
    async with anyio.create_task_group(), aiocosid.connect(URL, namespace="shop") as ids:
        await ids.segment_chain("order")
        os.write(2, f"opened in {os.getpid()}\\n".encode())
        yield ids
    os.write(2, f"closed in {os.getpid()}\\n".encode())
"""

# What the test needs besides the page's file: tasks that report which process gave which ids.
# The first one waits for the other process, which otherwise might come too late to get any.
REPORT = """
import json
import os
import time

from redis import Redis

def report(*ids):
    with Redis.from_url(URL) as client:
        client.sadd("processes", os.getpid())
        while client.scard("processes") < 2:
            time.sleep(0.01)
        client.rpush("reports", json.dumps([os.getpid(), *ids]))
"""
TASKIQ = """
from orders_taskiq import *
from report import report

@broker.task
async def place_orders(orders: Annotated[IdGenerator, TaskiqDepends(generator("order"))]) -> None:
    report(await orders.next_id(), *await orders.next_ids(4))
"""
SEND_TASKIQ = """
import asyncio
from worker import broker, place_orders

async def main():
    await broker.startup()
    for _ in range(200):
        await place_orders.kiq()
    await broker.shutdown()

asyncio.run(main())
"""
DRAMATIQ = """
from orders_dramatiq import *
from report import report

@dramatiq.actor
def place_orders() -> None:
    report(orders.next_id(), *orders.next_ids(4))
"""
DRAMATIQ_ASYNC = """
from orders_dramatiq_async import *
from report import report

@dramatiq.actor
async def place_orders() -> None:
    orders = ids["order"]
    report(await orders.next_id(), *await orders.next_ids(4))
"""
SEND_DRAMATIQ = """
from worker import place_orders

for _ in range(200):
    place_orders.send()
"""
FASTSTREAM = """
from orders_faststream import *
from report import report

@broker.subscriber(list="many")
async def place_orders(n: int) -> None:
    orders = aiocosid.generator_named("order")
    report(await orders.next_id(), *await orders.next_ids(4))
"""
SEND_FASTSTREAM = """
import asyncio
from worker import broker

async def main():
    async with broker:
        for n in range(200):
            await broker.publish(n, list="many")

asyncio.run(main())
"""

QUEUES = [
    pytest.param(TASKIQ, SEND_TASKIQ, "taskiq worker worker:broker --workers 2", id="taskiq"),
    pytest.param(
        DRAMATIQ, SEND_DRAMATIQ, "dramatiq worker --processes 2 --threads 4", id="dramatiq"
    ),
    pytest.param(
        DRAMATIQ_ASYNC,
        SEND_DRAMATIQ,
        "dramatiq worker --processes 2 --threads 4",
        id="dramatiq-async",
    ),
    pytest.param(
        FASTSTREAM, SEND_FASTSTREAM, "faststream run worker:app --workers 2", id="faststream"
    ),
]


@pytest.fixture
def url(valkey_factory: Callable[..., ValkeyServer]) -> str:
    """A server of the test's own: the queues have fixed names."""
    return valkey_factory().url


def write(folder: Path, url: str, **files: str) -> None:
    """Write the page's files, and those of the test, which replace them."""
    sources = {**FILES, "report.py": REPORT} | {f"{name}.py": text for name, text in files.items()}
    for name, text in sources.items():
        source = text.replace(URL, url).replace("(URL", f'("{url}"')
        (folder / str(name)).write_text(source)


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": "", "HOME": str(folder), "PYTHONPATH": f"{ROOT}:{folder}"}


@contextmanager
def running(command: str, folder: Path) -> Generator[tuple[subprocess.Popen[str], Path]]:
    """The worker, and the file that it writes to."""
    program, *options = command.split()
    log = folder / "log"
    with log.open("w") as out:
        worker = subprocess.Popen(
            [sys.executable, str(Path(sys.executable).parent / program), *options],
            cwd=folder,
            env=environment(folder),
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield worker, log
    finally:
        if worker.poll() is None:
            worker.terminate()
        try:
            worker.wait(20)
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.stress
@pytest.mark.parametrize(("source", "send", "command"), QUEUES)
def test_workers_of_several_processes(
    source: str, send: str, command: str, url: str, tmp_path: Path
) -> None:
    """No id twice, an end in order on SIGTERM, and every provider closed in its process."""
    write(tmp_path, url, shop_ids=OPEN, worker=source, send=send)
    with Redis.from_url(url) as client, running(command, tmp_path) as (worker, log):
        sent = subprocess.run(
            [sys.executable, "send.py"],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        assert sent.returncode == 0, sent.stderr
        assert "opened" not in sent.stderr, "who only sends opens nothing"
        wait_until(
            lambda: client.llen("reports") == TASKS or worker.poll() is not None,
            "all tasks are done",
            deadline=40,
        )
        assert worker.poll() is None, log.read_text()
        worker.send_signal(signal.SIGTERM)
        worker.wait(20)
        reports = [json.loads(each) for each in client.lrange("reports", 0, -1)]
    ids = [new_id for _, *found in reports for new_id in found]
    assert len({pid for pid, *_ in reports}) == 2
    assert len(ids) == len(set(ids)) == 5 * TASKS
    said = log.read_text()
    assert "Traceback" not in said, said
    opened = {line.split()[-1] for line in said.splitlines() if line.startswith("opened in")}
    closed = {line.split()[-1] for line in said.splitlines() if line.startswith("closed in")}
    assert opened == closed, said
    if "shop_ids" in FILES[source.split()[1] + ".py"]:
        assert len(opened) == 2, said


@pytest.mark.parametrize(
    ("source", "command"),
    [
        pytest.param("from orders_taskiq import *", "taskiq worker worker:broker", id="taskiq"),
        pytest.param(
            "from orders_dramatiq import *", "dramatiq worker --processes 2", id="dramatiq"
        ),
        pytest.param(
            "from orders_dramatiq_async import *",
            "dramatiq worker --processes 2",
            id="dramatiq-async",
        ),
        pytest.param(
            "from orders_faststream import *", "faststream run worker:app", id="faststream"
        ),
    ],
)
def test_a_worker_without_ids_does_not_start(
    source: str, command: str, url: str, tmp_path: Path
) -> None:
    """The store cannot be reached, the broker can."""
    write(tmp_path, url, worker=source)
    for name in ("shop_ids", "orders_dramatiq", "orders_dramatiq_async"):
        text = (tmp_path / f"{name}.py").read_text()
        text = text.replace(f'connect("{url}"', 'connect("redis://127.0.0.1:1/0"')
        (tmp_path / f"{name}.py").write_text(text)
    with running(command, tmp_path) as (worker, log):
        wait_until(
            lambda: worker.poll() is not None or log.read_text().count("StoreUnavailable") > 0,
            "the worker gives up",
            deadline=40,
        )
        if not command.startswith("taskiq"):  # it starts its processes again and again
            assert worker.wait(20) != 0, log.read_text()
