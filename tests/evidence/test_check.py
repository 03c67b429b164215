"""The checker finds each kind of fault that is planted in a sound history, and only that kind."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.chaos._verdict import CHECKER, UNIQUE, Verdict, judge

Line: TypeAlias = dict[str, Any] | list[Any]

# Seven bits of sequence, three of the machine id, time from bit 10 on, in milliseconds since 5000.
LAYOUT = [7, 3, 10, 5000]


def begins(generator: str, *, strict: bool = False, layout: list[int] | None = None) -> Line:
    return {
        "counter": "stamped" if layout else "strict" if strict else "order",
        "generator": generator,
        "process": 1,
        "strict": strict,
        "leased": not strict,
        "layout": layout,
    }


def stamp(ms: int, machine: int, sequence: int = 0) -> int:
    return (ms - LAYOUT[3]) << 10 | machine << 7 | sequence


def sound() -> dict[str, list[Line]]:
    """Two generators of segments, two strict ones, and two Snowflakes under one machine id."""
    return {
        "a": [
            begins("a"),
            ["lease", 0, 0, 0, 1, 10],
            ["call", 10, 20, 0, 1, 3],
            ["call", 15, 25, 0, 5, 5],  # two tasks at a time: no order between them
            ["call", 16, 24, 0, 4, 4],
            ["lease", 26, 0, 0, 21, 30],
            ["lease", 27, 0, 0, 31, 40],
            ["call", 30, 40, 0, 9, 10, 21, 35],
            ["return", 41, 0, 0, 36],
            ["fault", 42, 0, "kill", 2],
        ],
        "b": [begins("b"), ["lease", 0, 0, 0, 11, 20], ["call", 5, 6, 0, 11, 20]],
        "c": [begins("c"), ["lease", 50, 0, 0, 36, 45], ["call", 51, 52, 0, 36, 36]],
        "d": [begins("d", strict=True), ["call", 10, 20, 0, 1, 1], ["call", 30, 40, 0, 4, 4]],
        "e": [begins("e", strict=True), ["call", 15, 31, 0, 3, 3], ["call", 20, 32, 0, 2, 2]],
        "f": [
            begins("f", layout=LAYOUT),
            ["lease", 0, 0, 5, 6000, 6090],
            ["lease", 30, 0, 5, 6091, 6120],
            ["call", 1, 2, 0, stamp(6000, 5), stamp(6000, 5, 9), stamp(6120, 5), stamp(6120, 5)],
            ["return", 99, 0, 5, 6121],
        ],
        "g": [
            begins("g", layout=LAYOUT),
            ["lease", 130, 0, 5, 6121, 6190],
            ["call", 131, 132, 0, stamp(6121, 5), stamp(6121, 5)],
            ["lease", 133, 0, 6, 6100, 6290],
            ["call", 134, 135, 0, stamp(6200, 6), stamp(6200, 6)],
        ],
    }


def check(folder: Path, history: dict[str, list[Line]], *, tail: str = "") -> Verdict:
    for name, lines in history.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text + tail)
    return judge(folder)


def test_a_sound_history(tmp_path: Path) -> None:
    done = check(tmp_path, sound())
    said = "13 calls; 2 faults; 7 generators; 50 ids; 9 leases; 2 returns"
    assert done.said.splitlines()[0] == said
    assert (done.code, done.ids, done.violations) == (0, 50, {})


PLANTED: dict[str, tuple[str, int, Line, list[str]]] = {
    "an id of another generator's": (
        *("b", 3, ["call", 7, 8, 0, 4, 4]),
        ["unique", "order: a generator", "leases: an id"],
    ),
    "an id twice in one generator": ("b", 3, ["call", 5, 7, 0, 15, 15], ["unique"]),
    "a run that holds another one": (
        *("c", 3, ["call", 51, 53, 0, 36, 44]),
        ["unique"],
    ),
    "an id below one whose call had ended": (
        *("a", 8, ["call", 41, 42, 0, 7, 7]),
        ["order: a generator"],
    ),
    "a call whose ids do not rise": (
        *("c", 3, ["call", 51, 53, 0, 38, 38, 37, 37]),
        ["order: the ids"],
    ),
    "strict: below another process's": (
        *("d", 3, ["call", 50, 60, 0, 5, 5]),
        ["strict"],
    ),
    "two owners of a segment": ("b", 3, ["lease", 9, 0, 0, 10, 10], ["leases: two"]),
    "a segment is used after its return": (
        *("a", 9, ["call", 45, 46, 0, 37, 37]),
        ["leases: an id"],
    ),
    "an id above all leases": ("b", 3, ["call", 8, 9, 0, 50, 50], ["leases: an id"]),
    "an id below all leases": ("c", 3, ["call", 51, 53, 0, 0, 0], ["leases: an id"]),
    "a run that begins in a lease and ends outside": (
        *("c", 3, ["call", 53, 54, 0, 44, 46]),
        ["leases: an id"],
    ),
    "two owners of a machine id": ("g", 2, ["lease", 131, 0, 5, 6120, 6120], ["leases: two"]),
    "a stamp past the mark": (
        *("g", 5, ["call", 140, 141, 0, stamp(6291, 6), stamp(6291, 6)]),
        ["leases: an id"],
    ),
    "a stamp under another's machine id": (
        *("g", 5, ["call", 140, 141, 0, stamp(6250, 7), stamp(6250, 7)]),
        ["leases: an id"],
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault(tmp_path: Path, fault: str) -> None:
    name, at, line, rules = PLANTED[fault]
    history = sound()
    history[name].insert(at, line)
    if fault.startswith("strict"):
        history["e"].append(["call", 45, 49, 0, 6, 6])
    done = check(tmp_path, history)
    assert done.code == 1
    assert len(done.violations) == len(rules)
    for each, rule in zip(done.violations, rules, strict=True):
        assert each.startswith(rule)


def test_ids_that_came_twice_are_counted(tmp_path: Path) -> None:
    history = sound()
    history["c"].insert(3, ["call", 51, 53, 0, 36, 44])
    history["b"].insert(3, ["call", 5, 7, 0, 15, 17])
    assert check(tmp_path, history).violations == {UNIQUE: 4}


def test_times_that_are_equal_are_concurrent(tmp_path: Path) -> None:
    """A call that begins in the very nanosecond in which another ends may have a lower id."""
    history: dict[str, list[Line]] = {}
    history["d"] = [begins("d", strict=True), ["call", 1, 5, 0, 9, 9], ["call", 5, 7, 0, 3, 3]]
    assert check(tmp_path, history).code == 0
    history["d"][-1] = ["call", 6, 7, 0, 3, 3]
    assert check(tmp_path, history).code == 1


def test_nothing_is_no_evidence(tmp_path: Path) -> None:
    assert check(tmp_path, {}).code == 1


def test_the_line_that_a_killed_process_was_writing(tmp_path: Path) -> None:
    assert check(tmp_path, sound(), tail='["call", 1, 2, 0, 1').code == 0


@pytest.mark.parametrize(
    "line",
    [
        ["call", 9, 8, 0, 12, 12],
        ["call", 1, 2, 0, 12],
        ["call", 1, 2, 0],
    ],
)
def test_a_line_that_makes_no_sense_is_no_evidence_either(tmp_path: Path, line: Line) -> None:
    history = sound()
    history["b"].append(line)
    assert check(tmp_path, history).code == 1


def test_one_file_of_a_hundred_lines_that_imports_nothing_of_ours() -> None:
    text = CHECKER.read_text()
    assert len(text.splitlines()) <= 100
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            node.names if isinstance(node, ast.Import) else [ast.alias(node.module or ".")]
        )
    }
    assert imported <= sys.stdlib_module_names
