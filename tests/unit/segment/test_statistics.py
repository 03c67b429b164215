"""The rate at which callers take ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.segment.pace import WINDOW, RateMeter


def test_at_the_beginning_there_is_no_rate() -> None:
    """No time has passed: nothing can be said."""
    assert RateMeter(100.0).rate(100.0, 50) == 0.0


def test_before_the_first_sample_it_is_the_average_since_the_beginning() -> None:
    """However short that is."""
    assert RateMeter(100.0).rate(100.5, 50) == 100.0


def test_it_is_taken_over_one_to_two_windows() -> None:
    """What was long ago does not count: a load that ended, or a pause before one began."""
    meter = RateMeter(0.0)
    for second in range(1, 11):
        meter.note(float(second), 0)  # ten quiet seconds
    for tenth in range(1, 31):
        meter.note(10 + tenth / 10, tenth * 10)  # a hundred a second
    assert meter.rate(13.0, 300) == pytest.approx(100.0)


def test_samples_closer_than_a_window_are_left_out() -> None:
    """A thousand landings a second would make the rate that of a millisecond."""
    meter = RateMeter(0.0)
    meter.note(WINDOW, 1000)
    for part in range(1, 10):
        meter.note(WINDOW + part / 10, 1000 + part * 500)
    assert meter.rate(WINDOW + 0.9, 5500) == pytest.approx(5500 / (WINDOW + 0.9))


@given(st.integers(1000, 10**6), st.lists(st.floats(0.01, 3), min_size=30, max_size=60))
def test_a_steady_load_has_its_rate_whenever_it_is_asked(rate: int, pauses: list[float]) -> None:
    """Whatever the moments at which segments land."""
    meter, now = RateMeter(0.0), 0.0
    for pause in pauses:
        now += pause
        meter.note(now, round(now * rate))
        # A whole id more or less in the time since the beginning, which may be short.
        assert meter.rate(now, round(now * rate)) == pytest.approx(rate, abs=2 / 0.01)
