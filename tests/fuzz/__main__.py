"""Runs Atheris on the targets: ``python -m tests.fuzz --seconds 60 [target ...]``.

Each in a process of its own, which libFuzzer ends.  What breaks a target is written to the folder
of ``--artifacts``; ``python -m tests.fuzz --again FILE target`` shows it.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEXT = ("utf-8", "surrogateescape")


def main() -> int:
    """Run all targets, or those that are named; 1 if one of them broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="which; all without")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--artifacts", type=Path, default=Path(".hypothesis", "fuzz"))
    parser.add_argument("--again", type=Path, help="run one target on this file alone")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner:
        _fuzz(given.targets[0], given.artifacts, given.seconds)
    if given.again is not None:
        _run(given.targets[0], given.again.read_bytes())
        return 0
    return _each(given.targets or _names(), given.artifacts, given.seconds)


def _names() -> Sequence[str]:
    from .targets import TARGETS

    return [*TARGETS]


def _run(name: str, data: bytes) -> None:
    from .targets import TARGETS

    TARGETS[name].run(data.decode(*TEXT))


def _each(names: Sequence[str], artifacts: Path, seconds: int) -> int:
    artifacts.mkdir(parents=True, exist_ok=True)
    broken = list[str]()
    for name in names:
        argv = [sys.executable, "-m", "tests.fuzz", "--inner", name, f"--seconds={seconds}"]
        done = subprocess.run(
            [*argv, f"--artifacts={artifacts}"], text=True, capture_output=True, check=False
        )
        told = ("Done ", "artifact_prefix=")
        said = [line for line in done.stderr.splitlines() if line.startswith(told)]
        _tell(f"{name}: {said[-1] if said else done.stderr}")
        if done.returncode:
            _tell(done.stdout)
            broken.append(name)
    _tell(f"broken: {', '.join(broken)}; {artifacts} has what did it" if broken else "none broke")
    return int(bool(broken))


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command line


def _fuzz(name: str, artifacts: Path, seconds: int) -> None:
    atheris: Any = importlib.import_module("atheris")  # it has no types

    # Before anything of it is imported: what is imported now counts its branches.
    with atheris.instrument_imports(include=["aiocosid"]):
        from .targets import TARGETS
    target = TARGETS[name]

    def run(data: bytes) -> None:
        target.run(data.decode(*TEXT))

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds):
            (Path(corpus) / f"{number}").write_bytes(seed.encode(*TEXT))
        flags = (f"-max_total_time={seconds}", "-timeout=20", "-max_len=600", "-len_control=20")
        atheris.Setup([sys.argv[0], *flags, f"-artifact_prefix={artifacts}/{name}-", corpus], run)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
