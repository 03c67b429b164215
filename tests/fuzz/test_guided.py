"""Atheris on a target or two for a moment, as ``make fuzz`` does it on all for longer."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="not for this platform")
@pytest.mark.parametrize("targets", [("zones",), ("zones", "opaque")], ids=len)
def test_nothing_is_found_in_a_second(tmp_path: Path, targets: tuple[str, ...]) -> None:
    """The command works, and so do the targets under it."""
    command = (sys.executable, "-m", "tests.fuzz", "--seconds", "1", "--artifacts", str(tmp_path))
    done = subprocess.run(
        [*command, *targets],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Done ") == len(done.stdout.splitlines()) - 1
