"""``python -m tests.chaos SCENARIO --seconds N --processes N``: break things and count."""

from __future__ import annotations

import argparse
import sys

from . import SCENARIOS, Options, run


def main() -> int:
    """Run what the command line says; 1 if anything is not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    parser.add_argument("--store", help="one of the scenario's stores; all of them by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long things are broken")
    parser.add_argument("--processes", type=int, default=0, help="8, as a rule, by default")
    parser.add_argument("--ids", type=int, default=0, help="of the soak: how many by next_ids")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-v", "--verbose", action="store_true", help="what was said as well")
    given = parser.parse_args()
    names = list(SCENARIOS) if "all" in given.scenario else given.scenario
    failed = False
    for name in names:
        scenario = SCENARIOS[name]
        for store in scenario.stores:
            if given.store not in (None, store):
                continue
            options = Options(
                seconds=given.seconds,
                processes=given.processes,
                store=store,
                ids=given.ids,
                seed=given.seed,
            )
            result = run(name, scenario, options)
            print(result.line(), flush=True)  # noqa: T201 - the result
            for failure in result.failures:
                print("    failed:", failure)  # noqa: T201
            if given.verbose or result.failures:
                print(*(f"    {each}" for each in result.details), sep="\n")  # noqa: T201
            failed |= bool(result.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
