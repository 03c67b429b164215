"""``python -m tests.evidence``: break things, write histories, and have them checked."""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import aiocosid
from tests.chaos import Options, Result, run

from ._scenarios import SCENARIOS

CHECKER = Path(__file__).with_name("check.py")


def record(name: str, store: str, options: Options, folder: Path) -> Result:
    """Play one scenario on one store; its histories go into a folder of its own, made anew."""
    histories = folder / f"{name}-{store}"
    shutil.rmtree(histories, ignore_errors=True)
    histories.mkdir(parents=True)
    chosen = Options(
        seconds=options.seconds,
        processes=options.processes,
        store=store,
        ids=options.ids,
        seed=options.seed,
        histories=histories,
    )
    return run(name, SCENARIOS[name], chosen)


def judge(folder: Path) -> int:
    """Run the checker alone, as anybody else would."""
    return subprocess.run([sys.executable, "-I", str(CHECKER), str(folder)], check=False).returncode


def main() -> int:
    """Run what the command line says; 1 if a rule is broken or a worker did not get on."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description=__doc__)
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    parser.add_argument("--into", type=Path, default=Path("evidence"), help="folder of histories")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each scenario and store")
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--ids", type=int, default=0, help="of the scenario volume")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    options = Options(
        seconds=given.seconds,
        processes=given.processes,
        store="",
        ids=given.ids,
        seed=given.seed,
    )
    versions = f"aiocosid {aiocosid.__version__}", f"Python {platform.python_version()}"
    print(*versions, platform.platform(), sep="; ", flush=True)  # noqa: T201 - what was run
    failed = False
    for name in SCENARIOS if "all" in given.scenario else given.scenario:
        for store in SCENARIOS[name].stores:
            result = record(name, store, options, given.into)
            print(result.line(), flush=True)  # noqa: T201 - the result
            for failure in result.failures:
                print("    failed:", failure, *result.details, sep="\n    ")  # noqa: T201
            failed |= bool(result.failures)
    return judge(given.into) or int(failed)


if __name__ == "__main__":
    sys.exit(main())
