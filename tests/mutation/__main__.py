"""`python -m tests.mutation [MODULE...]`: which mutants survive."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from ._equivalent import reasons, stale
from ._mutants import Mutant, mutants
from ._runner import BaselineError, Group, Outcome, run

ROOT: Final = Path(__file__).parents[2]
HEAD: Final = (
    "| module | mutants | killed | by time | explained | unexplained |",
    "|---|---|---|---|---|---|",
)


def main() -> int:
    """Return 0 if every mutant was killed or is explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a part of its path")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--line", type=int, help="only the mutants of this line")
    parser.add_argument("--sample", type=int, help="so many mutants of each group, the same ones")
    parser.add_argument("--all", action="store_true", help="try the explained ones, too")
    parser.add_argument("--verbose", action="store_true", help="say by which test each is killed")
    given = parser.parse_args()
    os.chdir(ROOT)
    known = reasons()
    is_whole = given.line is None and given.sample is None
    rows: list[str] = []
    unexplained = 0
    for entry in tomllib.loads(Path(__file__).with_name("modules.toml").read_text())["group"]:
        group = _group(entry, given.modules, given.line)
        if not group.mutants:
            continue
        explained = [] if given.all else [each for each in group.mutants if each.key in known]
        tried = [each for each in group.mutants if given.all or each.key not in known]
        if given.sample is not None and given.sample < len(tried):
            tried = random.Random(0).sample(tried, given.sample)  # noqa: S311 - no secret
        progress = _Progress(entry["name"], len(tried), known)
        try:
            outcomes = run(Group(group.files, group.tests, tried), given.jobs, progress)
        except BaselineError as error:
            _say(f"{entry['name']}: the tests fail without any mutant: {error}")
            unexplained += 1
            continue
        outcomes += [Outcome(each, None) for each in explained]
        rows += _rows(group, outcomes, known)
        if given.verbose:
            _say(*(f"{_diff(each.mutant)}\n  {each.by or 'survived'}\n" for each in outcomes))
        survived = [each.mutant for each in outcomes if each.by is None]
        unexplained += sum(each.key not in known for each in survived)
        for key in stale(known, group.mutants, survived) if is_whole else ():
            _say("\n  ".join(("equivalent.toml: no such mutant survives:", *key)))
            unexplained += 1
    _say(*HEAD, *rows, f"{unexplained} unexplained")
    return 1 if unexplained else 0


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _group(entry: dict[str, Any], wanted: list[str], line: int | None) -> Group:
    names: list[str] = entry["modules"]
    paths = {name: ROOT / "aiocosid" / f"{name}.py" for name in names}
    if wanted:
        paths = {
            name: path
            for name, path in paths.items()
            if any(each in str(path.relative_to(ROOT)) for each in wanted)
        }
    found: list[Mutant] = []
    for name, path in paths.items():
        found += [
            each
            for each in mutants(name, path.read_text(), str(path))
            if line is None or each.first <= line <= each.last
        ]
    tests = [str(ROOT / "tests" / each) for each in entry["tests"]]
    return Group({name: str(path) for name, path in paths.items()}, tests, found)


def _rows(
    group: Group, outcomes: list[Outcome], known: dict[tuple[str, str, str, str], str]
) -> Iterator[str]:
    for module in group.files:
        of_module = [each for each in outcomes if each.mutant.module == module]
        killed = [each for each in of_module if each.by is not None]
        by_time = sum(each.by == "time" for each in killed)
        explained = sum(each.by is None and each.mutant.key in known for each in of_module)
        rest = len(of_module) - len(killed) - explained
        cells = (f"`{module}`", len(of_module), len(killed), by_time, explained, rest)
        yield f"| {' | '.join(map(str, cells))} |"


def _diff(mutant: Mutant) -> str:
    path = f"aiocosid/{mutant.module}.py"
    lines = (ROOT / path).read_text().splitlines()[mutant.first - 1 : mutant.last]
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    new = [indent + each for each in mutant.becomes.splitlines()]
    where = f"{path}:{mutant.first} {mutant.function}"
    return "\n".join([where, *(f"-{each}" for each in lines), *(f"+{each}" for each in new)])


class _Progress:
    """Prints who survived without a reason, and on a terminal a line that counts."""

    def __init__(self, name: str, total: int, known: Collection[tuple[str, ...]]) -> None:
        self.name, self.total, self.known = name, total, known
        self.done = self.alive = 0

    def __call__(self, outcome: Outcome) -> None:
        self.done += 1
        self.alive += outcome.by is None
        if outcome.by is None and outcome.mutant.key not in self.known:
            _say(_diff(outcome.mutant), "")
        if sys.stderr.isatty():
            end = "\n" if self.done == self.total else "\r"
            text = f"{self.name}: {self.done} of {self.total}, {self.alive} survived"
            sys.stderr.write(text + end)
            sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
