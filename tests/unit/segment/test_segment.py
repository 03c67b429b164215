"""The range of ids that one fetch reserves."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.abc import MAX_ID
from aiocosid.segment import FOREVER, IdSegment

segments = st.builds(
    IdSegment,
    max_id=st.integers(-(10**20), MAX_ID),
    step=st.integers(1, 10**6),
    fetched_at=st.just(5.0),
    ttl=st.just(7.0),
    stride=st.integers(1, 50),
)


def test_a_segment_is_half_open_below() -> None:
    """``(max_id - step, max_id]``: the first id is the one after the offset."""
    segment = IdSegment(max_id=100, step=10)
    assert segment.offset == 90
    assert list(segment.ids) == [91, 92, 93, 94, 95, 96, 97, 98, 99, 100]
    assert (segment.fetched_at, segment.ttl) == (0.0, FOREVER)


def test_it_is_a_value() -> None:
    """Frozen, hashable, and equal to another with the same facts."""
    segment = IdSegment(100, 10)
    assert {segment, IdSegment(100, 10)} == {segment}
    with pytest.raises(dataclasses.FrozenInstanceError):
        segment.max_id = 5  # type: ignore[misc]  # that is the test


@given(segments, st.integers(-100, MAX_ID), st.integers(1, MAX_ID))
def test_clipping_keeps_the_ids_between_two_limits(
    segment: IdSegment, lowest: int, highest: int
) -> None:
    """What is left are exactly the ids from lowest to highest, or None if there are none."""
    clipped = segment.clipped(lowest=lowest, highest=highest)
    ids = segment.ids
    left = ids[bisect_left(ids, lowest) : bisect_right(ids, highest)]
    if not left:
        assert clipped is None
    else:
        assert clipped is not None
        assert clipped.ids == left
        assert (clipped.fetched_at, clipped.ttl) == (segment.fetched_at, segment.ttl)


@given(segments)
def test_clipping_nothing_is_the_segment_itself(segment: IdSegment) -> None:
    """No copy is made on the usual path."""
    assert segment.clipped(lowest=segment.ids[0], highest=segment.max_id) is segment
