"""After a fork nothing of the parent's is used in the child, and the parent does not notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

from ._forks import SCENARIOS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_fork(scenario: str, tmp_path: Path) -> None:
    """Each scenario ends well in parent and child; its docstring is in _forks."""
    command = [sys.executable, "-W", "error", "-m", f"{__package__}._forks"]
    done = subprocess.run(
        [*command, scenario, str(tmp_path / "counter")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
