"""Whether a layout can follow on ids that exist: the way out of uid-generator's, among others."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.errors import InvalidArgumentError, LayoutExpiredError
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    UID_GENERATOR,
    UID_GENERATOR_2016_09,
    UID_GENERATOR_HA,
    UID_GENERATOR_SPRING,
    Clearance,
    SnowflakeLayout,
    clearance,
)

NOW = 1_790_000_000_000  # 2026-09-21
DAY = 86_400


def test_the_way_out_of_the_default_layout() -> None:
    """Below the old ids, for how long depends on when they began; never above, for it is full."""
    for days, ha in ((4, "2061-03-28T16:00:00Z"), (365, "6109-08-30T16:00:00Z")):
        lowest = UID_GENERATOR.compose(days * DAY, 1, 0)
        assert clearance(UID_GENERATOR_HA, lowest=lowest, highest=2**63 - 1, now_ms=NOW) == (
            Clearance("below", UID_GENERATOR_HA.ms_of(days * DAY << 12), ha)
        )
        for_ever = clearance(UID_GENERATOR_SPRING, lowest=lowest, highest=2**63 - 1, now_ms=NOW)
        assert for_ever == Clearance("below", None, "the end of the layout")
    lowest = UID_GENERATOR.compose(4 * DAY, 1, 0)
    for other in (UID_GENERATOR_2016_09, COSID_MS, COSID_S):
        with pytest.raises(InvalidArgumentError, match="below the lowest"):
            clearance(other, lowest=lowest, highest=2**63 - 1, now_ms=NOW)
    for layout in (UID_GENERATOR_HA, UID_GENERATOR_SPRING):
        with pytest.raises(InvalidArgumentError):  # in its first days the default's ids were short
            clearance(layout, lowest=UID_GENERATOR.compose(1, 1, 0), highest=2**63 - 1, now_ms=NOW)


def test_one_that_lies_above() -> None:
    """As 63 bits over 53 do, at any time."""
    highest = UID_GENERATOR_SPRING.max_id
    above = Clearance("above", None, "the end of the layout")
    assert clearance(COSID_MS, lowest=1, highest=highest, now_ms=NOW) == above
    lowest_new = COSID_MS.compose(COSID_MS.tick_at(NOW), 0, 0)
    assert clearance(COSID_MS, lowest=1, highest=lowest_new - 1, now_ms=NOW) == above
    with pytest.raises(InvalidArgumentError):
        clearance(COSID_MS, lowest=1, highest=lowest_new, now_ms=NOW)


def test_one_that_lies_below_until_now() -> None:
    """It is not clear any more: the next id could be the one that exists."""
    layout = SnowflakeLayout(31, 4, 4, "s", 0)
    lowest = layout.compose(NOW // 1000 + 1, 0, 0)
    found = clearance(layout, lowest=lowest, highest=2**60, now_ms=NOW)
    assert found.until_ms == NOW + 1000
    for id_ in (lowest - 1, lowest - 256):
        with pytest.raises(InvalidArgumentError):
            clearance(layout, lowest=id_, highest=2**60, now_ms=NOW)


def test_one_that_lies_below_until_its_last_second() -> None:
    layout = SnowflakeLayout(31, 4, 4, "s", 0)
    lowest = layout.compose(layout.last_tick, 0, 0)
    found = clearance(layout, lowest=lowest, highest=2**60, now_ms=NOW)
    assert found.until_ms == layout.ms_of(layout.last_tick)


def test_bad_questions() -> None:
    """No ids, ids in the wrong order, and a layout of which there are none."""
    bad = {"lowest": ((0, 1), (-5, 1), (True, 2)), "highest": ((3, 2), (1, 2**63))}
    for argument, pairs in bad.items():
        for lowest, highest in pairs:
            with pytest.raises(InvalidArgumentError) as caught:
                clearance(COSID_MS, lowest=lowest, highest=highest, now_ms=NOW)
            assert caught.value.argument == argument
    with pytest.raises(LayoutExpiredError):
        clearance(UID_GENERATOR, lowest=1, highest=2, now_ms=NOW)


@given(
    st.integers(1, 2**12),
    st.integers(0, 2**12),
    st.integers(0, 40),
    st.tuples(*[st.integers(1, 4)] * 3),
)
def test_it_is_right(lowest: int, more: int, tick: int, bits: tuple[int, int, int]) -> None:
    """No id of the time that it clears is between the lowest and the highest one."""
    layout, highest = SnowflakeLayout(*bits, "s", 0), lowest + more
    tick = min(tick, layout.last_tick)
    ids = {
        at: [
            *layout.ids(at, 0, 0, 1),
            *layout.ids(at, layout.machine_count - 1, layout.max_sequence, layout.ids_per_tick),
        ]
        for at in range(tick, layout.last_tick + 1)
    }
    unsafe = [at for at, (first, last) in ids.items() if first <= highest and last >= lowest]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = clearance(layout, lowest=lowest, highest=highest, now_ms=tick * 1000)
        except InvalidArgumentError:
            assert unsafe or ids[tick][0] <= highest
            return
    if found.until_ms is None:
        assert unsafe == []
    else:
        assert not unsafe or unsafe[0] * 1000 >= found.until_ms
