"""The applications of docs/examples/, as a user starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree
from typing import Final

import httpx
import pytest
from ruamel.yaml import YAML

from tests.servers import HOST, ValkeyServer, free_port, wait_until

from ._blocks import ROOT, blocks, pages

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
        return done.stdout

    @contextmanager
    def running(self, *command: str) -> Generator[None]:
        """Run a command until the end of the block."""
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(timeout=30)


def test_fastapi(
    tmp_path: Path, valkey_factory: Callable[..., ValkeyServer], postgres_database: str
) -> None:
    """Its migrations, its own tests, and that nothing of the models is left to migrate."""
    database = postgres_database.replace("postgresql:", "postgresql+asyncpg:")
    shop = Example("fastapi", tmp_path, DATABASE=database, AIOCOSID_STORE=valkey_factory().url)
    shop.run("aiocosid", "init", "--yes", "--config", "ids.toml")
    shop.run("alembic", "upgrade", "head")
    shop.run("aiocosid", "init", "--store", postgres_database)  # which Alembic leaves alone
    shop.run("alembic", "check")
    assert "1 passed" in shop.run("python", "-m", "pytest", "-q")
    shop.run("alembic", "downgrade", "base")


def test_django(tmp_path: Path) -> None:
    """Its migrations, its own tests, and its API under gunicorn with two workers."""
    shop = Example("django", tmp_path)
    shop.run("aiocosid", "init", "--store", "sqlite:///ids.db")
    shop.run("python", "manage.py", "migrate", "--verbosity", "0")
    shop.run("python", "manage.py", "makemigrations", "--check")
    assert "no issues" in shop.run("python", "manage.py", "check")
    shop.run("python", "manage.py", "test")
    url = f"http://{HOST}:{(port := free_port())}/orders/"
    gunicorn = ("gunicorn", "--preload", "--workers", "2", "--bind", f"{HOST}:{port}", "shop.wsgi")
    with shop.running(*gunicorn), httpx.Client(headers={"Connection": "close"}) as client:

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
    socket = tmp_path / "broker.sock"
    tasks = Example(
        "celery", tmp_path, CELERY=valkey_factory().url, IDS=f"aiocosid+unix://{socket}"
    )
    broker = ("aiocosid", "broker", "--config", "broker.toml", "--socket", str(socket))
    worker = ("celery", "--app", "tasks", "worker", "--concurrency", "4")
    tasks.run("aiocosid", "init", "--config", "broker.toml")
    with tasks.running(*broker):
        wait_until(socket.exists, "the broker listens", deadline=30)
        with tasks.running(*worker):
            assert tasks.run("python", "send.py") == "100 invoices, 100 events\n"


def test_script(tmp_path: Path) -> None:
    """A second import goes on above the first."""
    script = Example("script", tmp_path)
    script.run("aiocosid", "init", "--store", "sqlite:///ids.db")
    command = ("python", "import_orders.py", "orders.csv", "imported.csv", "sqlite:///ids.db")
    assert script.run(*command) == "3 orders, 1 to 3\n"
    assert script.run(*command) == "3 orders, 4 to 6\n"
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
