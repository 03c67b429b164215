"""Proves of any number of recorded ids that none came twice, in little memory.

Each file is cut into sections that rise; what does not rise is sorted, a chunk at a time, into a
scratch file.  All sections are then merged, and one look at each run tells.
"""

from __future__ import annotations

import heapq
import operator
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ._record import IDS, RUN_BYTES, packed, read_runs

CHUNK: Final = 1 << 18  # runs sorted at once: about 40 MB
BUFFER: Final = 1 << 10  # runs of each section in hand during the merge
SHOWN: Final = 5  # of the worst, how many are told in full


class OwnedRun(NamedTuple):
    """Consecutive ids and the file that they were found in."""

    first: int
    last: int
    owner: int


@dataclass(frozen=True)
class Collision:
    """Ids that two records hold, or one record twice."""

    first: int
    last: int
    owners: tuple[str, str]


@dataclass
class Verdict:
    """What the records say.

    Attributes:
        ids: how many ids were recorded.
        duplicates: how many of them had been recorded before; three times the same one counts two.
        collisions: the first few of those.
        disorder: how often an id was not above the one recorded before it in the same file.
        disordered: the first few files in which that was so.
        runs: how many runs the ids came in.
    """

    ids: int = 0
    duplicates: int = 0
    collisions: list[Collision] = field(default_factory=list)
    disorder: int = 0
    disordered: list[str] = field(default_factory=list)
    runs: int = 0


class Watcher(Protocol):
    """Looks at every run, from the lowest id to the highest."""

    def see(self, run: OwnedRun) -> None:
        """Look at the next one."""


@dataclass(frozen=True)
class _Section:
    path: Path
    start: int
    count: int
    owner: int

    def __iter__(self) -> Iterator[OwnedRun]:
        for at in range(self.start, self.start + self.count, BUFFER):
            count = min(BUFFER, self.start + self.count - at)
            numbers = read_runs(self.path, at, count)
            for first, last in zip(numbers[::2], numbers[1::2], strict=True):
                yield OwnedRun(first, last, self.owner)


def check(
    paths: Iterable[Path], *watchers: Watcher, scratch: Path | None = None, chunk: int = CHUNK
) -> Verdict:
    """Judge records; their number does not matter, and each is read twice.

    Args:
        paths: the files.
        *watchers: who else wants to see all runs, in order.
        scratch: a folder for what has to be sorted; the system's by default.
        chunk: how many runs are sorted at once.
    """
    files = list(paths)
    verdict = Verdict()
    with tempfile.TemporaryDirectory(dir=scratch) as room:
        sections: list[_Section] = []
        for owner, path in enumerate(files):
            sections += _sections(path, owner, Path(room) / str(owner), verdict, chunk)
        _sweep(heapq.merge(*sections), [_name(path) for path in files], verdict, watchers)
    return verdict


def _name(path: Path) -> str:
    return path.name.removesuffix(IDS)


def _sections(
    path: Path, owner: int, spill: Path, verdict: Verdict, chunk: int
) -> Iterator[_Section]:
    """Cut a file into sections that rise, and count where it does not."""
    total = path.stat().st_size // RUN_BYTES  # a killed process may leave part of a run
    start = spilled = disorder = 0
    previous = -1
    for at in range(0, total, chunk):
        numbers = read_runs(path, at, chunk)
        firsts, lasts = numbers[::2], numbers[1::2]
        rises = all(map(operator.lt, lasts, islice(firsts, 1, None)))
        if not all(map(operator.le, firsts, lasts)):
            raise ValueError(f"{path}: a run that ends before it begins")
        whole = rises and previous < firsts[0]
        disorder += (previous >= firsts[0]) + _falls(firsts, lasts, rises)
        previous = lasts[-1]
        if whole:
            continue
        # What rose up to here is one section; from here on begins another.
        if at > start:
            yield _Section(path, start, at - start, owner)
        start = at
        if not rises:
            with spill.open("ab") as file:
                file.write(packed(sorted(zip(firsts, lasts, strict=True))))
            yield _Section(spill, spilled, len(firsts), owner)
            spilled += len(firsts)
            start = at + len(firsts)
    if total > start:
        yield _Section(path, start, total - start, owner)
    verdict.disorder += disorder
    if disorder and len(verdict.disordered) < SHOWN:
        verdict.disordered.append(_name(path))


def _falls(firsts: array[int], lasts: array[int], rises: bool) -> int:
    return 0 if rises else sum(map(operator.ge, lasts, islice(firsts, 1, None)))


def _sweep(
    runs: Iterable[OwnedRun], names: Sequence[str], verdict: Verdict, watchers: Sequence[Watcher]
) -> None:
    end, holder = -1, -1  # the highest id so far, and whose run it ends
    ids = count = 0
    for run in runs:
        first, last, owner = run
        ids += last - first + 1
        count += 1
        if first <= end:
            # The run that reaches the highest began below this one, so it holds all of these.
            twice = Collision(first, min(end, last), (names[holder], names[owner]))
            verdict.duplicates += twice.last - twice.first + 1
            if len(verdict.collisions) < SHOWN:
                verdict.collisions.append(twice)
        if last > end:
            end, holder = last, owner
        for watcher in watchers:
            watcher.see(run)
    verdict.ids += ids
    verdict.runs += count
