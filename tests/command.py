"""The command line: as a user meets it, a process of its own; and, faster, in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiocosid.cli import _app, main

ROOT = Path(__file__).parents[1]

# A warning in the child would be a line on its standard error: an unclosed socket, for one.
PYTHON = (sys.executable, "-W", "error", "-m")

TREE = cache(_app.command_tree)  # made once: it takes ten times as long as most commands


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


class Command:
    """Runs ``aiocosid`` with the given words in this process, from the entry point to the exit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["aiocosid", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capsys.readouterr()
        return Ended(ended.value.code, captured.out, captured.err)

    def refuses(self, *words: object, code: int = 2) -> str:
        """Run what fails with nothing but a line on standard error, and return that line."""
        ended = self(*words)
        assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), ended
        assert ended.err.startswith("aiocosid: error: ")
        return ended.err

    def json(self, *words: object) -> Any:
        """Run what prints a document in a line, and return it."""
        ended = self(*words, "--format", "json")
        assert (ended.code, ended.out.count("\n")) == (0, 1), ended
        return json.loads(ended.out)


def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return what runs ``aiocosid``, in an environment that says nothing about it."""
    for name in [each for each in os.environ if each.startswith("AIOCOSID_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(_app, "command_tree", TREE)
    return Command(monkeypatch, capsys)
