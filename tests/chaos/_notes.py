"""What a worker leaves behind beside its history: what went wrong, and how long it took."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

NOTES: Final = ".notes"


class Notes:
    """A file of lines of a word and a value, written at once."""

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
