"""Runs scenarios: ``python -m tests.simulation segment_chain_faults --seed 7``."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from operator import attrgetter
from typing import TYPE_CHECKING

from . import SCENARIOS, SimulationError, World
from ._fleet import run_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from . import Scenario

__all__ = ("main",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scenario; returns 1 if something was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Run a scenario in simulated worlds, and tell what went wrong.",
    )
    known = ", ".join(SCENARIOS)
    parser.add_argument("scenario", help=f"module:function, all, or one of: {known}")
    parser.add_argument("--seed", type=int, help="one world only")
    parser.add_argument("--seeds", type=int, default=20, help="how many worlds (20)")
    parser.add_argument("--first", type=int, default=0, help="the first world's seed (0)")
    parser.add_argument("--jobs", type=int, help="processes, for all (one a core)")
    parser.add_argument("--verbose", action="store_true", help="show the library's own log")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    first, worlds = (
        (options.seed, 1) if options.seed is not None else (options.first, options.seeds)
    )
    seeds = range(first, first + worlds)
    if options.scenario == "all":
        return run_all(seeds, jobs=options.jobs)
    return _run(_find(parser, options.scenario), seeds)


def _find(parser: argparse.ArgumentParser, name: str) -> Scenario:
    if name in SCENARIOS:
        return SCENARIOS[name]
    module, _, function = name.partition(":")
    if not function:
        parser.error(
            f"{name!r} is neither module:function, nor all, nor one of: {', '.join(SCENARIOS)}"
        )
    try:
        found: Scenario = attrgetter(function)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        parser.error(str(error))
    return found


def _run(scenario: Scenario, seeds: range) -> int:
    ids = 0
    for seed in seeds:
        try:
            ids += World(seed).run(scenario).ids
        except SimulationError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    worlds = "world" if len(seeds) == 1 else "worlds"
    sys.stdout.write(f"{len(seeds)} {worlds}, {ids} ids: nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
