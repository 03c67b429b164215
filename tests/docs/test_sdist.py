"""The source distribution: whoever packages it from there can run its tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ._blocks import ROOT

BUILD = "from hatchling.build import build_{kind}; print(build_{kind}({folder!r}))"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This directory, as it would be published and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = (sys.executable, "-c", BUILD.format(kind="sdist", folder=str(folder)))
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
    for name in (
        "Makefile",
        "_aiocosid_pytest.py",
        "mkdocs.yml",
        "requirements/dev.txt",
        "docs/changelog.md",
    ):
        assert (unpacked / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_wheel_is_the_same_wherever_it_is_built(unpacked: Path, tmp_path: Path) -> None:
    """From the sdist in another folder, at another time: the same bytes."""
    wheels: list[bytes] = []
    for number, root in enumerate((ROOT, unpacked)):
        folder = tmp_path / str(number)
        command = (sys.executable, "-c", BUILD.format(kind="wheel", folder=str(folder)))
        subprocess.run(command, cwd=root, capture_output=True, check=True)
        (wheel,) = folder.iterdir()
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]


@pytest.mark.nightly
@pytest.mark.timeout(300)
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
