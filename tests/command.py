"""The command line: as a user meets it, a process of its own; and, faster, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiocosid.cli import main

ROOT = Path(__file__).parents[1]

# A warning in the child would be a line on its standard error: an unclosed socket, for one.
PYTHON = (sys.executable, "-W", "error", "-m")


def command(*words: str | Path | int, module: str = "aiocosid") -> list[str]:
    """Return the command line that runs ``aiocosid`` with these words."""
    return [*PYTHON, module, *map(str, words)]


def environment(**changes: str) -> Mapping[str, str]:
    """Return this process's environment without what is somebody's own; with the package."""
    # PYTHONUNBUFFERED, for one, would hide what is left in a buffer at the end.
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIOCOSID_", "PYTHON"))
    }
    return {**mine, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **changes}


def run(
    *words: str | Path | int, module: str = "aiocosid", cwd: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; keywords change the environment."""
    return subprocess.run(
        command(*words, module=module),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=cwd,
        env=environment(**changes),
    )


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code.
        out: its standard output.
        err: its standard error.
    """

    code: object
    out: str
    err: str


Command = Callable[..., Ended]


def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return what runs ``aiocosid`` with the given words, from the entry point to the exit."""
    for name in [each for each in os.environ if each.startswith("AIOCOSID_")]:
        monkeypatch.delenv(name)

    def run_here(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["aiocosid", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ended(ended.value.code, captured.out, captured.err)

    return run_here
