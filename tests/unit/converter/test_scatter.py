"""Ids spread over the whole range of numbers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.abc import MAX_ID
from aiocosid.converter import ScatterIdConverter
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import COSID_MS

A_MILLION = 1_000_000
IDS = st.integers(0, MAX_ID)
WIDTHS = st.integers(0, 16)


@given(WIDTHS, IDS)
def test_every_number_has_its_way_back(bits: int, new_id: int) -> None:
    spread = ScatterIdConverter(bits)
    assert 0 <= spread.scatter(new_id) <= MAX_ID
    assert spread.gather(spread.scatter(new_id)) == new_id
    assert spread.scatter(spread.gather(new_id)) == new_id  # so it is a bijection
    assert spread.as_int(spread.as_str(new_id)) == new_id


@pytest.mark.parametrize("bits", [0, 8, 16])
def test_a_million_of_a_counter_go_to_all_ranges(bits: int) -> None:
    spread = ScatterIdConverter(bits)
    fullest(spread.scatter(each) for each in range(1, A_MILLION + 1))


@pytest.mark.parametrize("bits", [8, 16])
def test_so_do_snowflakes_at_a_low_load(bits: int) -> None:
    """One a millisecond: the sequence, which is their end, is always 0."""
    spread = ScatterIdConverter(bits)
    first = COSID_MS.tick_at(1_790_000_000_000)
    fullest(spread.scatter(COSID_MS.compose(first + each, 7, 0)) for each in range(A_MILLION))


def fullest(numbers: object) -> None:
    found = Counter(each >> 55 for each in numbers)  # type: ignore[attr-defined]
    assert sum(found.values()) == A_MILLION
    assert max(found.values()) <= 0.006 * A_MILLION
    of_16 = Counter[int]()
    for shard, count in found.items():
        of_16[shard >> 4] += count
    assert max(of_16.values()) <= 0.08 * A_MILLION


def test_within_a_range_ids_rise() -> None:
    spread = ScatterIdConverter(4)
    last = dict[int, int]()
    for each in range(10_000):
        number = spread.scatter(each)
        assert last.get(number >> 59, -1) < number
        last[number >> 59] = number


@pytest.mark.parametrize("text", ["1", "9" * 19, "-" + "0" * 18, "x" * 19, "\u0660" * 19])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidIdError):
        ScatterIdConverter().as_int(text)


def test_wrong_ids_and_widths_are_refused() -> None:
    for wrong in (-1, MAX_ID + 1, True):
        with pytest.raises(InvalidIdError):
            ScatterIdConverter().scatter(wrong)
        with pytest.raises(InvalidIdError):
            ScatterIdConverter().gather(wrong)
    with pytest.raises(InvalidArgumentError, match="shard_bits"):
        ScatterIdConverter(17)
