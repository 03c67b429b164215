"""``python -m tests.chaos SCENARIO --seconds N --processes N``: break things, and judge."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import aiocosid

from . import CHAOS, EVIDENCE, SCENARIOS, Options, run
from ._verdict import judge


def main() -> int:
    """Run what the command line says; 1 if anything is not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    parser.add_argument("--store", help="one of the scenario's stores; all of them by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long things are broken")
    parser.add_argument("--processes", type=int, default=0, help="8, as a rule, by default")
    parser.add_argument("--ids", type=int, default=0, help="of the soak: how many by next_ids")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--into", type=Path, help="keep the histories there, and have all checked")
    parser.add_argument("-v", "--verbose", action="store_true", help="what was said as well")
    given = parser.parse_args()
    versions = f"aiocosid {aiocosid.__version__}", f"Python {platform.python_version()}"
    print(*versions, platform.platform(), sep="; ", flush=True)  # noqa: T201 - what was run
    failed = False
    for name, store in chosen(given):
        histories: Path | None = given.into and given.into / f"{name}-{store}"
        if histories is not None:
            shutil.rmtree(histories, ignore_errors=True)
        options = Options(
            seconds=given.seconds,
            processes=given.processes,
            store=store,
            ids=given.ids,
            seed=given.seed,
            histories=histories,
        )
        result = run(name, SCENARIOS[name], options)
        print(result.line(), flush=True)  # noqa: T201 - the result
        for failure in result.failures:
            print("    failed:", failure)  # noqa: T201
        if given.verbose or result.failures:
            print(*(f"    {each}" for each in result.details), sep="\n")  # noqa: T201
        failed |= bool(result.failures)
    if given.into is not None:
        judged = judge(given.into)
        print(judged.said)  # noqa: T201 - what it says
        failed |= bool(judged.code)
    return int(failed)


def chosen(given: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """Yield the scenarios and their stores; with histories those whose ids never come twice."""
    stores = EVIDENCE if given.into else {name: (*each.stores,) for name, each in CHAOS.items()}
    for name in stores if "all" in given.scenario else given.scenario:
        for store in stores.get(name, tuple(SCENARIOS[name].stores)):
            if given.store in (None, store):
                yield name, store


if __name__ == "__main__":
    sys.exit(main())
