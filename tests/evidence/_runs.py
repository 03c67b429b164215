"""One scenario with histories, and the checker on its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.chaos import Options, Result, Scenario, run

CHECKER: Final = Path(__file__).with_name("check.py")


def record(name: str, scenario: Scenario, options: Options, folder: Path) -> Result:
    """Play a scenario; its histories go into a folder of its own, made anew."""
    histories = folder / f"{name}-{options.store}"
    shutil.rmtree(histories, ignore_errors=True)
    histories.mkdir(parents=True)
    return run(name, scenario, replace(options, histories=histories))


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the checker as anybody else would: isolated, so that it can import nothing of ours."""
    argv = [sys.executable, "-I", str(CHECKER), str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
