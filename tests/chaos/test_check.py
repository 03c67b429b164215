"""The checker finds what a naive one finds, whatever the records look like."""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from aiocosid.snowflake import SnowflakeLayout

from ._check import OwnedRun, check
from ._record import IDS, MIXED, Notes, Record, packed, read_notes, read_runs, runs_of
from ._tenures import Tenures

LAYOUT = SnowflakeLayout(41, 3, 4, "ms", 0)


class Seen:
    def __init__(self) -> None:
        self.firsts: list[int] = []

    def see(self, run: OwnedRun) -> None:
        self.firsts.append(run.first)


def naive(records: list[list[list[int]]]) -> tuple[int, int, int]:
    """Ids, duplicates, and how often a run did not rise."""
    flat = [each for batches in records for batch in batches for each in batch]
    disorder = 0
    for batches in records:
        runs = [run for batch in batches for run in runs_of(batch)]
        disorder += sum(after[0] <= before[1] for before, after in pairwise(runs))
    return len(flat), len(flat) - len(set(flat)), disorder


def some_records(draw: random.Random) -> list[list[list[int]]]:
    """A few records whose ids rise, mostly, and are disjoint, mostly."""
    records: list[list[list[int]]] = []
    at = 0
    for _ in range(draw.randint(1, 6)):
        records.append([])
        for _ in range(draw.randint(0, 40)):
            at = max(0, at + draw.choice((0, 1, 1, 3, 3, draw.randint(-60, 5))))
            n = draw.randint(1, 7)
            gap = draw.choice((1, 1, 1, 2))
            records[-1].append(list(range(at, at + n * gap, gap)))
            at += n * gap
    return records


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_against_a_naive_one(tmp_path: Path, chunk: int) -> None:
    draw = random.Random(chunk)  # noqa: S311 - a shape of records
    for round_ in range(40):
        records = some_records(draw)
        folder = tmp_path / str(round_)
        folder.mkdir()
        for i, batches in enumerate(records):
            with Record(folder / f"{i}{IDS}") as record:
                for batch in batches:
                    record.add(batch)
        seen = Seen()
        found = check(sorted(folder.glob(f"*{IDS}")), seen, chunk=chunk)
        assert (found.ids, found.duplicates, found.disorder) == naive(records)
        assert seen.firsts == sorted(seen.firsts)
        owned = [Counter(each for batch in record for each in batch) for record in records]
        for collision in found.collisions:
            holders = [owned[int(name)] for name in collision.owners]
            for each in range(collision.first, collision.last + 1):
                assert all(each in held for held in holders)
        assert bool(found.collisions) == bool(found.duplicates)


def test_runs_are_the_ids() -> None:
    draw = random.Random(1)  # noqa: S311 - a shape of records
    for _ in range(300):
        ids = [draw.randint(0, 60) for _ in range(draw.randint(1, 8))]
        ids += range(100, 100 + draw.randint(0, 9))
        runs = runs_of(ids)
        assert [each for first, last in runs for each in range(first, last + 1)] == ids
    assert runs_of(list(range(5, 5000))) == [(5, 4999)]
    assert runs_of([1, 3, 2, 4]) == [(1, 1), (3, 3), (2, 2), (4, 4)]  # the ends alone look right


def test_a_killed_worker_leaves_part_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / f"a{IDS}"
    path.write_bytes(packed([(1, 2), (2**63 - 2, 2**63 - 1)]) + b"\1\2\3")
    assert check([path]).ids == 4
    assert read_runs(path, 1, 5).tolist() == [2**63 - 2, 2**63 - 1]


def test_a_record_that_cannot_be_written_whole_is_not_written(tmp_path: Path) -> None:
    with Record(tmp_path / "a") as record:
        record.add([1])
        read_only = os.open(tmp_path / "a", os.O_RDONLY)
        os.dup2(read_only, record._file)
        os.close(read_only)
        with pytest.raises(OSError, match=r"."):
            record.add_runs([(5, 6)])
    assert check([tmp_path / "a"]).ids == 1


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


def made(tick: int, machine: int, sequence: int = 0) -> int:
    return ((tick << 3 | machine) << 4) | sequence


def judged(tmp_path: Path, **owners: list[int]) -> Tenures:
    paths = []
    for name, ids in owners.items():
        paths.append(tmp_path / name)
        with Record(paths[-1]) as record:
            record.add(ids)
    tenures = Tenures.of(LAYOUT, paths)
    assert check(paths, tenures).duplicates == 0
    return tenures


def test_owners_one_after_the_other(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        a=[made(1, 1), made(3, 1), made(3, 1, 1)],
        b=[made(3, 1, 2), made(4, 1), made(5, 2)],
        c=[made(1, 2), made(2, 2), made(9, 1)],
    )
    assert (found.violations, found.machine_ids, found.owners) == (0, 2, 5)


def test_two_owners_at_a_time(tmp_path: Path) -> None:
    a, b, c = [made(1, 1), made(9, 1)], [made(2, 1)], [made(3, 1)]
    found = judged(tmp_path, a=a, b=b, c=c)
    assert found.interleaved == [(1, made(9, 1), "c", "a")]
    other = tmp_path / "other"
    other.mkdir()
    mixed = {f"a{MIXED}": [made(1, 1), made(9, 1)]}
    assert judged(other, b=b, **mixed).violations == 0


def test_a_run_of_two_machine_ids(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="spans two"):
        judged(tmp_path, a=[made(1, 1, 15), made(1, 2)])
