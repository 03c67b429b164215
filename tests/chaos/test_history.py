"""A history has whole lines, of the ids as they came; notes have what went wrong."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ._history import TAIL, History, last_call, runs_of
from ._notes import Notes, read_notes


def test_runs_are_the_ids() -> None:
    draw = random.Random(1)  # noqa: S311 - a shape of records
    for _ in range(300):
        ids = [draw.randint(0, 60) for _ in range(draw.randint(1, 8))]
        ids += range(100, 100 + draw.randint(0, 9))
        runs = runs_of(ids)
        assert [each for first, last in runs for each in range(first, last + 1)] == ids
    assert runs_of(list(range(5, 5000))) == [(5, 4999)]
    assert runs_of([1, 3, 2, 4]) == [(1, 1), (3, 3), (2, 2), (4, 4)]  # the ends alone look right


def test_the_last_call(tmp_path: Path) -> None:
    """Behind it a killed process may leave half a line, and a lease is none."""
    path = tmp_path / "a"
    assert last_call(path)[2] == 0
    history = History(path)
    history.put({"counter": "x" * TAIL})
    assert last_call(path)[2] == 0
    for first in (1, 7):
        history.called(first, [(first, first + 3)])
    history.happened("lease", 0, 1, 10)
    with path.open("a") as file:
        file.write('["call",9,')
    assert last_call(path)[1] == 7
    assert last_call(path)[4:] == [7, 10]


def test_a_line_that_cannot_be_written_whole_is_not_written(tmp_path: Path) -> None:
    history = History(tmp_path / "a")
    history.called(1, [(1, 1)])
    whole = (tmp_path / "a").read_bytes()
    read_only = os.open(tmp_path / "a", os.O_RDONLY)
    os.dup2(read_only, history._file)
    os.close(read_only)
    with pytest.raises(OSError, match=r"."):
        history.called(5, [(5, 6)])
    assert (tmp_path / "a").read_bytes() == whole


def test_notes(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "a.notes")
    for error in (ValueError("two\nlines"), ValueError("again"), KeyError(1)):
        notes.error(error)
    for seconds in (0.2, 0.1, 1.5):
        notes.waited(seconds)
    notes.say("fork", 7)
    with (tmp_path / "a.notes").open("a") as file:
        file.write("error Tor")
    told = read_notes(tmp_path)
    assert told.errors == {"ValueError": 2, "KeyError": 1}
    assert told.texts["ValueError"] == "two lines"
    assert (told.longest, told.counts["fork"]) == (1.5, 1)
