"""The applications of docs/examples/, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from signal import SIGTERM
from threading import Event, Lock
from typing import Any, Final

import httpx
import pytest
from ruamel.yaml import YAML

from tests.servers import HOST, ValkeyServer, free_port, wait_until

from ._blocks import ROOT, SETTING_UP, blocks, commands, pages

pytestmark = [pytest.mark.integration, pytest.mark.stress, pytest.mark.timeout(120)]

EXAMPLES: Final = ROOT / "docs" / "examples"
MOST_LINES: Final = 150
PROGRAMS: Final = Path(sys.executable).parent


class Example:
    """A copy of an example's folder, and the environment of its programs."""

    def __init__(self, name: str, tmp_path: Path, **environment: str) -> None:
        self.folder = copytree(EXAMPLES / name, tmp_path / name)
        self._environment = {
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "PYTEST_ADDOPTS": "-p no:valkey -p no:cacheprovider",
            "PYTHONWARNINGS": "default",
            **environment,
        }

    def run(self, *command: str) -> str:
        """Run a command to its end, and return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Warning: " not in done.stderr
        return done.stdout

    def follow(self, step: str) -> str:
        """Run a command of the page, and return what it printed."""
        return self.run(*shlex.split(step))

    @contextmanager
    def running(self, *command: str) -> Generator[subprocess.Popen[bytes]]:
        """Run a command until the end of the block."""
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
            try:
                yield process
            finally:
                process.terminate()
                process.wait(timeout=30)


def printed(heading: str) -> list[str]:
    """The commands that the page prints below a heading, without those that set a machine up."""
    text = (EXAMPLES / "index.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = (
        command
        for block in blocks(EXAMPLES / "index.md", section)
        for command, _ in commands(block.source)
    )
    return [each for each in found if not each.startswith((*SETTING_UP, "cd ", "createdb "))]


def test_fastapi(
    tmp_path: Path, valkey_factory: Callable[..., ValkeyServer], postgres_database: str
) -> None:
    """Its migrations, its own tests, and that nothing of the models is left to migrate."""
    database = postgres_database.replace("postgresql:", "postgresql+asyncpg:")
    shop = Example("fastapi", tmp_path, DATABASE=database, AIOCOSID_STORE=valkey_factory().url)
    _, init, upgrade, test, _ = printed("FastAPI")
    shop.follow(init)
    shop.follow(upgrade)
    shop.run("aiocosid", "init", "--store", postgres_database)  # which Alembic leaves alone
    shop.run("alembic", "check")
    assert "1 passed" in shop.follow(test)
    shop.run("alembic", "downgrade", "base")


PAGE: Final = ROOT / "docs" / "order-service.md"


def test_the_page_of_the_order_service_shows_its_files() -> None:
    shown = {each.title: each.source for each in blocks(PAGE) if each.title}
    assert shown.keys() == {"tables.py", "logs.py", "logging.json", "app.py"}
    assert {name: (EXAMPLES / "orders" / name).read_text() for name in shown} == shown


def test_orders(tmp_path: Path, postgres_database: str) -> None:
    """A rolling restart under load: no request fails, no id repeats, no invoice is missing."""
    database = postgres_database.replace("postgresql:", "postgresql+asyncpg:")
    shop = Example("orders", tmp_path, DATABASE=database, AIOCOSID_STORE=database)
    shop.run("aiocosid", "init")
    shop.run("python", "-W", "error", "tables.py")
    shop.run("aiocosid", "series", "open", "invoice", "--tenant", "acme")
    balancer = Balancer()
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        old = start(stack, shop, balancer)
        done = Event()
        clients = [pool.submit(bill, balancer, done) for _ in range(4)]
        stack.callback(done.set)
        for _ in range(2):
            new = start(stack, shop, balancer)  # 1. the new one answers
            balancer.take_out(old.address)  # 2. the old one gets nothing new
            old.process.terminate()  # 3. it finishes what is under way
            assert old.process.wait(timeout=30) in {0, -SIGTERM}
            old = new
        done.set()
        orders, invoices = zip(*(pair for each in clients for pair in each.result()), strict=True)
    assert len({*orders}) == len(orders) > 20
    assert sorted(invoices) == [*range(1, len(invoices) + 1)]
    audit = ("--tenant", "acme", "--column", "invoices.number", "--tenant-column", "tenant")
    said = shop.run("aiocosid", "series", "audit", "invoice", *audit)
    assert said == f"invoice of tenant acme: {len(invoices)} numbers, the last is {len(invoices)}\n"
    lines = [json.loads(line) for line in (shop.folder / "log").read_text().splitlines()]
    troubles = [line["message"] for line in lines if line["level"] in {"WARNING", "ERROR"}]
    # The tests' PostgreSQL syncs nothing, and each instance says so.
    assert [each for each in troubles if ": fsync is off" not in each] == []
    assert {"uvicorn.access", "uvicorn.error"} <= {line["logger"] for line in lines}


def test_what_the_order_service_refuses(tmp_path: Path, postgres_database: str) -> None:
    """A tenant without a series; and a second invoice for one order, also at the same time."""
    database = postgres_database.replace("postgresql:", "postgresql+asyncpg:")
    shop = Example("orders", tmp_path, DATABASE=database, AIOCOSID_STORE=database)
    shop.run("aiocosid", "init")
    shop.run("python", "tables.py")
    shop.run("aiocosid", "series", "open", "invoice", "--tenant", "acme")
    balancer = Balancer()
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        address = start(stack, shop, balancer).address
        order = balancer.post("/acme/orders", json={"title": "tea"})["id"]
        invoices = [*pool.map(balancer.post, [f"/acme/orders/{order}/invoice"] * 8)]
        assert invoices == [{"number": 1, "order_id": order}] * 8
        assert httpx.post(f"{address}/globex/orders/{order}/invoice").status_code == 404
        strange = balancer.post("/globex/orders", json={"title": "cups"})["id"]
        refused = httpx.post(f"{address}/globex/orders/{strange}/invoice")
    assert refused.status_code == 500
    assert refused.json()["type"].endswith("#seriesnotopenerror")
    lines = [json.loads(line) for line in (shop.folder / "log").read_text().splitlines()]
    (line,) = (line for line in lines if line["logger"] == "aiocosid.requests")
    assert line["aiocosid"]["error"] == "SeriesNotOpenError"


@dataclass
class Instance:
    """A process of the order service, and where it listens."""

    process: subprocess.Popen[bytes]
    address: str


class Balancer:
    """Sends each request to one of the instances, as a load balancer does."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[str, int] = {}  # by address
        self._leaving, self._left = "", 0

    def put_in(self, address: str) -> None:
        with self._lock:
            self._under_way[address] = 0

    def take_out(self, address: str) -> None:
        """Send nothing more there, and let it answer what it has got."""
        with self._lock:
            self._left = self._under_way.pop(address)
            self._leaving = address
        wait_until(lambda: self._left == 0, "the old instance has nothing to do", deadline=30)

    @contextmanager
    def instance(self) -> Generator[str]:
        """Give the address of the one that has least to do."""
        with self._lock:
            address = min(self._under_way, key=self._under_way.__getitem__)
            self._under_way[address] += 1
        yield address
        with self._lock:
            if address == self._leaving:
                self._left -= 1
            else:
                self._under_way[address] -= 1

    def post(self, path: str, **options: Any) -> dict[str, Any]:
        with self.instance() as address:
            headers = {"Connection": "close"}
            answer = httpx.post(f"{address}{path}", headers=headers, timeout=30, **options)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def start(stack: ExitStack, shop: Example, balancer: Balancer) -> Instance:
    """Start an instance of the order service, and give it requests once it is healthy."""
    port = str(free_port())
    log = ("--log-config", "logging.json", "--host", HOST, "--port", port)
    process = stack.enter_context(shop.running("uvicorn", *log, "app:app"))
    address = f"http://{HOST}:{port}"

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{address}/health").is_success
        return False

    wait_until(answers, "the service is healthy", deadline=30)
    balancer.put_in(address)
    return Instance(process, address)


def bill(balancer: Balancer, done: Event) -> list[tuple[str, int]]:
    """Place orders and bill them until it is done; the ids of the orders and the invoices."""
    found: list[tuple[str, int]] = []
    while not done.is_set():
        order = balancer.post("/acme/orders", json={"title": "tea"})["id"]
        found.append((order, balancer.post(f"/acme/orders/{order}/invoice")["number"]))
    return found


def test_django(tmp_path: Path) -> None:
    """Its migrations, its own tests, and its API under gunicorn with two workers."""
    shop = Example("django", tmp_path)
    init, migrate, test, gunicorn, _ = printed("Django")
    shop.follow(init)
    shop.follow(migrate)
    shop.run("python", "manage.py", "makemigrations", "--check")
    assert "no issues" in shop.run("python", "manage.py", "check")
    shop.follow(test)
    url = f"http://{HOST}:{(port := free_port())}/orders/"
    bound = (*shlex.split(gunicorn), "--bind", f"{HOST}:{port}")
    with shop.running(*bound), httpx.Client(headers={"Connection": "close"}) as client:

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return client.get(url).is_success
            return False

        wait_until(answers, "gunicorn answers", deadline=30)
        made = [client.post(url, json={"title": "tea"}).json() for _ in range(20)]
        assert client.get(url).json() == sorted(made, key=lambda order: int(order["id"]))
    assert len({order["id"] for order in made}) == 20


def test_celery(tmp_path: Path, valkey_factory: Callable[..., ValkeyServer]) -> None:
    """Four processes of a worker get their ids from one broker."""
    tasks = Example("celery", tmp_path, CELERY=valkey_factory().url)
    init, broker, worker, send = printed("Celery")
    tasks.follow(init)
    with tasks.running(*shlex.split(broker)):
        socket = tasks.folder / "broker.sock"
        wait_until(socket.exists, "the broker listens", deadline=30)
        with tasks.running(*shlex.split(worker)):
            assert tasks.follow(send) == "100 invoices, 100 events\n"


def test_script(tmp_path: Path) -> None:
    """A second import goes on above the first."""
    script = Example("script", tmp_path)
    init, take_in = printed("A script")
    script.follow(init)
    assert script.follow(take_in) == "3 orders, 1 to 3\n"
    assert script.follow(take_in) == "3 orders, 4 to 6\n"
    imported = (script.folder / "imported.csv").read_text().split()
    assert imported == ["id,title", "4,tea", "5,cups", "6,a", "pot"]


@pytest.mark.parametrize(
    "path", [EXAMPLES / "fastapi/compose.yaml", ROOT / "docs/deploy/compose.yaml"]
)
def test_no_start_initialises_a_store(path: Path) -> None:
    """A store that was emptied would be vouched for: that is a command of its own."""
    services = YAML(typ="safe").load(path.read_text())["services"]
    said = {name: f"{each.get('command', '')}" for name, each in services.items()}
    assert [name for name, each in said.items() if "init" in each] == ["init"]
    assert "--yes" not in said["init"]
    assert services["init"]["profiles"] == ["init"]
    assert not any("init" in each.get("depends_on", ()) for each in services.values())


def test_no_page_creates_a_server_at_each_start() -> None:
    """``create=True`` is for a SQLite file: a server is initialised once, by a command."""
    calls = [
        call
        for page in pages()
        for block in blocks(page)
        if block.language == "python"
        for call in re.findall(r"connect\([^()]*(?:\([^()]*\)[^()]*)*\)", block.source)
        if "create=True" in call
    ]
    assert calls
    assert [call for call in calls if not re.match(r'connect\(\s*"sqlite:///', call)] == []


@pytest.mark.parametrize("name", sorted(each.name for each in EXAMPLES.iterdir() if each.is_dir()))
def test_it_is_small(name: str) -> None:
    programs = [path for path in (EXAMPLES / name).rglob("*.py") if "__pycache__" not in path.parts]
    lines = "".join(path.read_text() for path in programs if not path.name.startswith("test_"))
    assert lines.count("\n") <= MOST_LINES
