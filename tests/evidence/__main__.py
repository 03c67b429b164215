"""``python -m tests.evidence``: break things, write histories, and have them checked."""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

import aiocosid
from tests.chaos import Options

from ._runs import judge, record
from ._scenarios import SCENARIOS


def main() -> int:
    """Run what the command line says; 1 if a rule is broken or a worker did not get on."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description=__doc__)
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    parser.add_argument("--into", type=Path, default=Path("histories"), help="folder of histories")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each scenario and store")
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--ids", type=int, default=0, help="of the scenario volume")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    versions = f"aiocosid {aiocosid.__version__}", f"Python {platform.python_version()}"
    print(*versions, platform.platform(), sep="; ", flush=True)  # noqa: T201 - what was run
    failed = False
    for name in SCENARIOS if "all" in given.scenario else given.scenario:
        for store in SCENARIOS[name].stores:
            options = Options(
                seconds=given.seconds,
                processes=given.processes,
                store=store,
                ids=given.ids,
                seed=given.seed,
            )
            result = record(name, SCENARIOS[name], options, given.into)
            print(result.line(), flush=True)  # noqa: T201 - the result
            for failure in result.failures:
                print("    failed:", failure, *result.details, sep="\n    ")  # noqa: T201
            failed |= bool(result.failures)
    judged = judge(given.into)
    print(judged.stdout, judged.stderr)  # noqa: T201 - what it says
    return judged.returncode or int(failed)


if __name__ == "__main__":
    sys.exit(main())
