"""Somebody new: the first pages work with what they say to install, and with nothing else."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ._blocks import (
    COMMAND_TIMEOUT,
    ROOT,
    SERVERS,
    Block,
    Reader,
    blocks,
    commands,
    compare,
    is_named,
)
from .test_code_blocks import RUNNABLE, url_of

PIP = ("-m", "pip", "-qq", "--disable-pip-version-check", "--no-input")

FIRST = [
    pytest.param("README.md", marks=pytest.mark.stress),
    pytest.param("docs/tutorial.md", marks=pytest.mark.nightly),
    pytest.param("docs/fastapi-sqlalchemy-postgresql.md", marks=pytest.mark.stress),
    pytest.param("docs/order-service.md", marks=pytest.mark.nightly),
]
GUIDES = [
    pytest.param(name, marks=pytest.mark.nightly)
    for name in RUNNABLE
    if name.startswith(("docs/howto/", "docs/migrate/"))
]

# A console block that installs something, and the words that do.
INSTALL = "pip install "


@dataclass
class Newcomer(Reader):
    """A reader who has Python, and installs what the page says when it says it.

    Attributes:
        wheel: of aiocosid, which is installed wherever the page names it.
        constraints: a file of the versions of everything else.
    """

    wheel: Path = Path()
    constraints: Path = Path()

    def _run_console(self, block: Block, source: str) -> None:
        for command, _ in commands(source):
            if command.startswith(INSTALL):
                ours = rf"\g<0> @ {self.wheel.as_uri()}"
                words = shlex.split(command.removeprefix(INSTALL))
                words = [re.sub(r"^aiocosid(\[.*\])?$", ours, word) for word in words]
                options = ("--no-compile", "--constraint", str(self.constraints))
                target = ("--python", str(self.programs / "python"))
                call(sys.executable, *PIP, *target, "install", *options, *words)
        super()._run_console(block, source)

    def _run_python(self, block: Block, source: str) -> None:
        (self.directory / "block.py").write_text(source)
        expected = "\n".join(re.findall(r"^ *print\(.*\)  # (.+)$", source, re.MULTILINE))
        done = subprocess.run(
            [self.programs / "python", "block.py"],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT,
        )
        assert done.returncode == 0, f"{block.place}\n{done.stderr}"
        # Not the warnings: the servers of the tests are no durable ones.
        compare(expected, done.stdout, block.place)


def call(*command: str | Path) -> None:
    """Run a command without the modules of this directory."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This directory, as it would be published."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir")
    call(sys.executable, *PIP, "wheel", *options, folder, ROOT)
    (built,) = folder.iterdir()
    return built


@pytest.fixture
def constraints(tmp_path: Path) -> Path:
    """The versions of other libraries that everything is tested with, without their hashes."""
    pinned = (ROOT / "requirements" / "dev.txt").read_text()
    path = tmp_path / "constraints.txt"
    path.write_text("\n".join(re.findall(r"^\S+==\S+(?: ;[^\\\n]*)?", pinned, re.MULTILINE)))
    return path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*FIRST, *GUIDES])
def test_the_page_installs_what_it_uses(
    name: str, wheel: Path, constraints: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each block runs in an environment that has only what the blocks above it installed."""
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    page = ROOT / name
    text = page.read_text()
    urls = {url: url_of(server, request) for url, server in SERVERS.items() if is_named(url, text)}
    folder = tmp_path / "reader"
    folder.mkdir()
    programs = tmp_path / "venv" / "bin"
    reader = Newcomer(folder, urls, programs, wheel=wheel, constraints=constraints)
    with reader:
        for block in blocks(page):
            reader.follow(block)
