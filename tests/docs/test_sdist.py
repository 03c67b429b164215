"""The source distribution: whoever packages it from there can run its tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ._blocks import ROOT

BUILD = "from hatchling.build import build_sdist; print(build_sdist({folder!r}))"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This directory, as it would be published and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = (sys.executable, "-c", BUILD.format(folder=str(folder)))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    with tarfile.open(folder / done.stdout.strip().splitlines()[-1]) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (each for each in folder.iterdir() if each.is_dir())
    return found


def names(root: Path) -> set[str]:
    """All Python modules below the folders of code."""
    folders = ("aiocosid", "bench", "tests")
    return {str(path.relative_to(root)) for each in folders for path in (root / each).rglob("*.py")}


def test_it_has_all_code_and_what_tests_read(unpacked: Path) -> None:
    assert names(unpacked) == names(ROOT)
    for name in ("Makefile", "mkdocs.yml", "requirements/dev.txt", "docs/changelog.md"):
        assert (unpacked / name).read_bytes() == (ROOT / name).read_bytes()


@pytest.mark.nightly
def test_its_tests_pass(unpacked: Path) -> None:
    """All are collected; those that read the pages, the code and the bench pass."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    few = (
        "tests/unit/test_architecture.py",
        "tests/unit/test_public_api.py",
        "tests/docs/test_facts.py",
    )
    for rest in (("--collect-only",), (*few, "-m", "not stress and not integration")):
        done = subprocess.run(
            (*command, *rest),
            cwd=unpacked,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:]
