"""Ids as ranges."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.server._ranges import runs_of


@given(st.sets(st.integers(1, 10**4), min_size=1, max_size=60))
def test_they_are_the_same_ids(ids: set[int]) -> None:
    rising = sorted(ids)
    assert list(chain.from_iterable(runs_of(rising))) == rising


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_ids_that_do_not_rise(ids: list[int]) -> None:
    """[1, 5, 0, 4] ends three above its start and is no range of four."""
    assert list(chain.from_iterable(runs_of(ids))) == ids


@pytest.mark.parametrize(
    ("ids", "runs"),
    [
        ([5], [range(5, 6)]),
        ([5, 6, 7], [range(5, 8)]),
        ([1, 9, 17, 18], [range(1, 18, 8), range(18, 19)]),
        ([1, 2, 10, 11], [range(1, 3), range(10, 12)]),
    ],
)
def test_they_are_short(ids: list[int], runs: list[range]) -> None:
    assert runs_of(ids) == runs
