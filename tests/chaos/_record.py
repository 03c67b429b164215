"""What a worker leaves behind: every id that it used, as runs, and what went wrong.

A run is two int64, little-endian: the first and the last of consecutive ids.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeAlias

RUN_BYTES: Final = 16
IDS: Final = ".ids"  # a task's record
MIXED: Final = ".mixed.ids"  # ids of calls during which the machine id may have changed
NOTES: Final = ".notes"

Run: TypeAlias = tuple[int, int]


def runs_of(ids: Sequence[int]) -> list[Run]:
    """Return the same ids in the same order, as runs."""
    runs: list[Run] = []
    _gather(ids, 0, len(ids), runs)
    return runs


def _gather(ids: Sequence[int], start: int, end: int, runs: list[Run]) -> None:
    """Append the runs of a slice: at once if it is one, else half by half."""
    if end - start == 1:
        one, last = True, ids[start]
    else:
        last = ids[start] + end - start - 1
        # The ends alone would not see what is wrong between them.
        one = ids[end - 1] == last and list(range(ids[start], last + 1)) == ids[start:end]
    if not one:
        middle = (start + end) // 2
        _gather(ids, start, middle, runs)
        _gather(ids, middle, end, runs)
    elif runs and runs[-1][1] + 1 == ids[start]:
        runs[-1] = (runs[-1][0], last)
    else:
        runs.append((ids[start], last))


def packed(runs: Sequence[Run]) -> bytes:
    """Return the bytes of runs."""
    return _little(array("q", [end for run in runs for end in run])).tobytes()


def read_runs(path: Path, start: int, count: int) -> array[int]:
    """Return up to ``count`` runs from run number ``start`` on: first, last, first, last, ..."""
    with path.open("rb") as file:
        file.seek(start * RUN_BYTES)
        data = file.read(count * RUN_BYTES)
    return _little(array("q", data[: len(data) // RUN_BYTES * RUN_BYTES]))


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class Record:
    """A file that one task appends its ids to, before it takes further ones.

    What was written survives a kill -9.  An id that was taken and not written was not used.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def add(self, ids: Sequence[int]) -> None:
        """Write ids down."""
        self.add_runs(runs_of(ids))

    def add_runs(self, runs: Sequence[Run]) -> None:
        """Write runs down; an OSError leaves none of them half written."""
        data = packed(runs)
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
        except OSError:
            written = -1
        if written != len(data):
            os.ftruncate(self._file, before)
            raise OSError(f"{len(runs)} runs were not written")


class Notes:
    """A worker's other file: lines of a word and a value, written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._longest = 0.0
        self._texts: Counter[str] = Counter()

    def error(self, error: BaseException) -> None:
        """Count an error that a caller got; the first of a kind with its text."""
        kind = type(error).__name__
        self._texts[kind] += 1
        text = f" {error}" if self._texts[kind] == 1 else ""
        self._line("error", kind + text)

    def waited(self, seconds: float) -> None:
        """Note how long a call took, if none took longer."""
        if seconds > self._longest + 0.05:
            self._longest = seconds
            self._line("wait", f"{seconds:.3f}")

    def say(self, word: str, value: object = "") -> None:
        """Note anything else."""
        self._line(word, str(value))

    def _line(self, word: str, value: str) -> None:
        os.write(self._file, f"{word} {' '.join(value.split())}\n".encode())


@dataclass
class Told:
    """What all workers noted, together.

    Attributes:
        errors: errors to callers, by their kind.
        texts: what the first one of each kind said.
        longest: seconds that the longest call took.
        counts: how often each other word was said.
    """

    errors: Counter[str] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)
    longest: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


def read_notes(folder: Path) -> Told:
    """Read the notes of all workers in a folder."""
    told = Told()
    for word, value in _lines(folder):
        if word == "error":
            kind, _, text = value.partition(" ")
            told.errors[kind] += 1
            told.texts.setdefault(kind, text)
        elif word == "wait":
            told.longest = max(told.longest, float(value))
        else:
            told.counts[word] += 1
    return told


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob(f"*{NOTES}")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # a killed process may leave half a line
                word, _, value = line[:-1].partition(" ")
                yield word, value
