"""Leaf's thresholds: when the next segment is loaded, and how long it is."""

from __future__ import annotations

from copy import copy

from aiocosid.abc import MAX_ID
from aiocosid.segment import MAX_STEP, PREFETCH_AT, SEGMENT_DURATION
from aiocosid.segment._double_buffer import DoubleBuffer

MINUTE = 60.0


def steps(buffer: DoubleBuffer, *loads_at: float) -> list[int]:
    """The steps of loads at these moments, in minutes."""
    taken: list[int] = []
    for at in loads_at:
        buffer.plan(at * MINUTE, 0.0, MAX_ID)
        taken.append(buffer.step)
        buffer.loaded(buffer.step, at * MINUTE)
    return taken


def test_the_constants_are_leafs() -> None:
    """``idle < 0.9 * step``, SEGMENT_DURATION of 15 minutes, MAX_STEP of a million."""
    assert (PREFETCH_AT, SEGMENT_DURATION, MAX_STEP) == (0.1, 15 * 60, 1_000_000)


def test_the_step_follows_the_time_that_segments_last() -> None:
    """The first two have the row's; then it doubles, is kept, or is halved."""
    assert steps(DoubleBuffer(step=10), 0, 0, 1, 2, 3) == [10, 10, 20, 40, 80]
    grown = (0, 1, 2, 3, 4)  # to 80
    table = {
        14.999: 160,  # under 15 minutes
        15: 80,
        29.999: 80,  # up to 30
        30: 40,
        1000: 40,
    }
    for lasted, due in table.items():
        assert steps(DoubleBuffer(step=10), *grown, 4 + lasted)[-1] == due, lasted
    # Three loads in a minute, then forty minutes of quiet, again and again.
    assert steps(DoubleBuffer(step=10), 0, 0.3, 0.6, 40, 80, 120) == [10, 10, 20, 10, 10, 10]


def test_time_counts_from_the_second_load() -> None:
    """However long the first segment lasted, as in Leaf, which notes no time at the first load."""
    assert steps(DoubleBuffer(step=10), 0, 500, 501) == [10, 10, 20]


def test_a_step_is_not_doubled_beyond_the_most() -> None:
    assert steps(DoubleBuffer(step=500_000), 0, 0, 0, 0) == [500_000, 500_000, MAX_STEP, MAX_STEP]
    assert steps(DoubleBuffer(step=500_001), 0, 0, 0) == [500_001] * 3
    for row in (2**30, 2**31, 2**40):  # where Leaf's int would turn negative
        assert steps(DoubleBuffer(step=row), 0, 0, 0, 100) == [row] * 4
    assert steps(DoubleBuffer(step=10, max_step=35), 0, 0, 0, 0) == [10, 10, 20, 20]


def test_a_step_is_never_below_the_rows() -> None:
    """A half that would be is not taken; a row that is changed is heeded at the next load."""
    buffer = DoubleBuffer(step=15)
    assert steps(buffer, 0, 0, 1, 100, 200) == [15, 15, 30, 15, 15]
    buffer = DoubleBuffer(step=10)
    assert steps(buffer, 0, 0, 1) == [10, 10, 20]
    buffer.keep_to(5000)
    assert buffer.step == 5000
    assert steps(buffer, 100, 101) == [5000, 10_000]
    buffer.keep_to(10)
    assert steps(buffer, 200, 300) == [5000, 2500]


def test_other_thresholds() -> None:
    assert steps(DoubleBuffer(step=10, segment_duration=60), 0, 0, 1, 1.9, 3.9) == [
        *(10, 10, 10),
        *(20, 10),
    ]


def test_the_next_segment_is_due_when_a_tenth_is_used() -> None:
    """Leaf's ``idle < 0.9 * step``: of 10 ids with the second one gone, of 2000 with the 201st."""
    for step, due in ((10, 8), (2000, 1799), (1, 0), (7, 6), (1_000_000, 899_999)):
        buffer = DoubleBuffer(step=step)
        buffer.loaded(step, 0)
        assert (buffer.missing(due + 1, 0), buffer.missing(due, 0)) == (0, 1), step
        assert buffer.piece(step, 1000) == step - due, "the next look comes with the id that is due"
    half = DoubleBuffer(step=10, prefetch_at=0.5)
    half.loaded(10, 0)
    assert [half.missing(remaining, 0) for remaining in (5, 4)] == [0, 1]
    at_once = DoubleBuffer(step=10, prefetch_at=0)
    at_once.loaded(10, 0)
    assert [at_once.missing(remaining, 0) for remaining in (10, 9)] == [0, 1]


def test_what_did_not_come_is_looked_for_again() -> None:
    """After the threshold each piece is half of what is left."""
    buffer = DoubleBuffer(step=100)
    buffer.loaded(100, 0)
    assert [buffer.piece(remaining, 1000) for remaining in (89, 44, 2, 1)] == [45, 22, 1, 1]


def test_callers_that_wait_get_what_they_wait_for() -> None:
    """In one load of whole segments."""
    buffer = DoubleBuffer(step=10)
    assert [buffer.missing(0, wanted) for wanted in (0, 1, 10, 11, 200)] == [1, 1, 1, 2, 20]


def test_it_begins_anew() -> None:
    """With the row's step, and nothing known."""
    buffer = DoubleBuffer(step=10)
    steps(copy(buffer), 0, 0, 0, 0)
    assert steps(copy(buffer), 0, 0, 0) == [10, 10, 20]
