"""Which local time a key stands for, and which a range of keys."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from aiocosid.abc import GroupedId
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.sharding import (
    IntervalTimeline,
    ShardRange,
    SnowflakeTimeKey,
    StandardTimeKey,
    TimeKey,
)
from aiocosid.snowflake import COSID_MS, COSID_S, JAVASCRIPT_SAFE_MS

at = datetime.fromisoformat

BERLIN = "Europe/Berlin"  # 2026-10-25: at 03:00 summer time it is 02:00 again


def hours(key: TimeKey[Any]) -> IntervalTimeline[Any]:
    day = ShardRange.closed_open(at("2026-10-25"), at("2026-10-26"))
    return IntervalTimeline(day, "hours", logic_name_prefix="h", suffix_pattern="HH", key=key)


def test_a_key_without_a_zone_takes_local_times_only() -> None:
    key = StandardTimeKey()
    assert key.local_time(at("2026-05-06T07:08")) == at("2026-05-06T07:08")
    assert key.local_time(date.fromisoformat("2026-05-06")) == at("2026-05-06")
    assert key.local_time("2026-05-06 07:08:09") == at("2026-05-06T07:08:09")
    for moment in (at("2026-05-06T07:08Z"), 1_780_000_000_000):
        with pytest.raises(InvalidArgumentError, match="give StandardTimeKey a zone"):
            key.local_time(moment)


def test_one_moment_is_one_local_time_whatever_zone_it_is_written_in() -> None:
    key = StandardTimeKey("Asia/Shanghai")
    for moment in (
        at("2026-05-06T20:00Z"),
        at("2026-05-06T22:00+02:00"),
        at("2026-05-07T04:00+08"),
    ):
        assert key.local_time(moment) == at("2026-05-07T04:00")
    assert key.local_time(1_778_097_600_000) == at("2026-05-07T04:00")
    assert StandardTimeKey("+08:00", "s").local_time(1_778_097_600) == at("2026-05-07T04:00")


def test_what_is_no_key_is_refused() -> None:
    key: Any = StandardTimeKey("UTC")
    for value in (None, 1.5, True, b"2026", timedelta(1)):
        with pytest.raises(InvalidArgumentError, match="a datetime, a date, an integer"):
            key.local_time(value)
    for value in (10**18, -(10**18)):
        with pytest.raises(InvalidArgumentError, match="a timestamp in ms"):
            key.local_time(value)
    with pytest.raises(InvalidArgumentError, match="a year from 1 to 9999"):
        StandardTimeKey("+08:00").local_time(datetime.max.replace(tzinfo=UTC))
    with pytest.raises(InvalidArgumentError, match="'ms' or 's'"):
        StandardTimeKey("UTC", "us")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="zone"):
        StandardTimeKey("Moon/Crater")


def test_text_is_read_as_its_pattern_writes_it_and_not_otherwise() -> None:
    for pattern, text, time in (
        ("yyyyMMdd", "20260506", "2026-05-06"),
        ("yyyyMM", "202605", "2026-05-01"),
        ("yyyy", "2026", "2026-01-01"),
        ("yyMMdd", "990506", "2099-05-06"),
        ("yyyyDDD", "2026126", "2026-05-06"),
        ("yyyy-M-d", "2026-5-6", "2026-05-06"),
        ("uuuu-MM-dd'T'HH:mm:ss.SSS", "2026-05-06T07:08:09.012", "2026-05-06T07:08:09.012"),
        ("yyyy'''y'MM", "2026'y05", "2026-05-01"),
        ("yyyy''MM", "2026'01", "2026-01-01"),
        ("yyMMdd", "000101", "2000-01-01"),
        ("yyyyM'~1'", "20261~1", "2026-01-01"),
    ):
        assert StandardTimeKey(pattern=pattern).local_time(text) == at(time)
    for pattern, text in (
        ("yyyyMMdd", "2026-05-06"),
        ("yyyy-MM-dd", "2026-5-6"),
        ("yyyy-M-d", "2026-05-06"),
        ("yyyy-MM-dd HH:mm:ss", "2026-05-06  07:08:09"),
        ("yyyyMMdd", "20260230"),
        ("yyyyMMdd", "２０２６0506"),  # noqa: RUF001 - full width
        ("yyyyMMddSSS", "20260506"),
        ("yyyy", ""),
    ):
        if pattern == "yyyyMMddSSS":
            with pytest.raises(InvalidArgumentError, match="has no hour; add it"):
                StandardTimeKey(pattern=pattern)
        else:
            with pytest.raises(InvalidArgumentError, match="written as"):
                StandardTimeKey(pattern=pattern).local_time(text)
    for pattern in ("yyyyMd", "yyyyMdd", "yyyyM'1'", "yyyy-D0", "yyyy-MM-dd HHmsSSS"):
        with pytest.raises(InvalidArgumentError, match=r"needs a sign after '[MDm]', which varies"):
            StandardTimeKey(pattern=pattern)
    assert StandardTimeKey(pattern="yyyyM'x1'd").local_time("202611x12") == at("2026-11-02")
    for pattern, part in (("yyyydd", "month"), ("MMdd", "year"), ("DDD", "year"), ("--", "year")):
        with pytest.raises(InvalidArgumentError, match=f"has no {part}; add it"):
            StandardTimeKey(pattern=pattern)


def test_an_hour_that_comes_twice_loses_no_node() -> None:
    """Every moment of a range lies on one of its nodes, although local times run back."""
    for key in (StandardTimeKey(BERLIN), SnowflakeTimeKey(COSID_S, BERLIN)):
        found = hours(key)
        first = at("2026-10-24T22:00Z")  # midnight
        moments = [first + timedelta(minutes=15) * step for step in range(25 * 4)]
        keys: list[Any] = list(moments)
        if isinstance(key, SnowflakeTimeKey):
            keys = [COSID_S.compose(COSID_S.tick_at(int(m.timestamp() * 1000)), 3, 5) for m in keys]
        nodes = [found.exact(one) for one in keys]
        assert len(set(nodes)) == 24
        for begin in range(6, 20):  # around the two hours
            for end in range(begin, 20):
                held = set(nodes[begin : end + 1])
                assert held <= set(found.range(ShardRange.closed(keys[begin], keys[end])))
                assert set(nodes[begin + 1 : end]) <= set(
                    found.range(ShardRange.open(keys[begin], keys[end]))
                )
        assert found.range(ShardRange.closed(keys[40], keys[43])) == (nodes[40],)  # no more


def test_an_open_end_at_the_turn_of_the_clocks_is_a_microsecond_of_time_off() -> None:
    """Not of the clock's hands: before the second 02:00 comes the first 02:59."""
    found = hours(StandardTimeKey(BERLIN))
    berlin = ZoneInfo(BERLIN)
    half_past_one = at("2026-10-25T01:30").replace(tzinfo=berlin)
    second_two = at("2026-10-25T02:00").replace(tzinfo=berlin, fold=1)
    assert found.range(ShardRange.closed_open(half_past_one, second_two)) == ("h01", "h02")


def test_ends_that_the_zone_has_no_time_for_are_no_ends() -> None:
    """`datetime.max` is written for "no end", whatever the zone."""
    found = hours(StandardTimeKey("Asia/Shanghai"))
    late, early = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    west, east = timezone(-timedelta(hours=5)), timezone(timedelta(hours=9))
    ten = at("2026-10-25T10:00+08:00")
    for end in (late, late.replace(tzinfo=west)):
        for values in (ShardRange.closed(ten, end), ShardRange.closed_open(ten, end)):
            assert found.range(values) == found.effective_nodes[10:]
        assert found.range(ShardRange.at_least(end)) == ()
    for begin in (early, early.replace(tzinfo=east)):
        for values in (ShardRange.closed(begin, ten), ShardRange.open_closed(begin, ten)):
            assert found.range(values) == found.effective_nodes[:11]
        assert found.range(ShardRange.at_most(begin)) == ()
    assert hours(StandardTimeKey(west)).range(ShardRange.at_most(early)) == ()
    # Before the first time there is, and after the last, is nothing.
    for key, zone in ((StandardTimeKey(), None), (StandardTimeKey("UTC"), UTC)):
        for nothing in (
            ShardRange.less_than(datetime.min.replace(tzinfo=zone)),
            ShardRange.greater_than(datetime.max.replace(tzinfo=zone)),
        ):
            assert hours(key).range(nothing) == ()


def test_an_id_that_knows_its_group_is_an_integer() -> None:
    new_id = GroupedId(266300479548424192, "20260116")
    assert SnowflakeTimeKey(COSID_MS, "UTC").local_time(new_id).year == 2021
    assert COSID_MS.parse(new_id) == COSID_MS.parse(int(new_id))
    assert StandardTimeKey("UTC").local_time(GroupedId(0, "")) == at("1970-01-01")


def test_a_key_is_made_of_a_layout_and_a_converter() -> None:
    make: Any = SnowflakeTimeKey
    for layout in ("cosid-ms", None, type(COSID_MS)):
        with pytest.raises(InvalidArgumentError, match=r"layout .* a SnowflakeLayout"):
            make(layout, "UTC")
    with pytest.raises(InvalidArgumentError, match=r"converter .* an IdConverter"):
        make(COSID_MS, "UTC", "62")


def test_ids_above_the_layouts_last_end_a_range_and_raise_nothing() -> None:
    found = hours(SnowflakeTimeKey(JAVASCRIPT_SAFE_MS, "UTC"))
    for last in (JAVASCRIPT_SAFE_MS.max_id, 2**63 - 1):
        assert found.range(ShardRange.at_most(last)) == found.effective_nodes


def test_an_open_end_of_ids_leaves_out_the_id_and_not_its_tick() -> None:
    """The ids of one tick are many: below an id of the tick lie others of the same one."""
    months = IntervalTimeline(
        ShardRange.closed_open(at("2026-01-01"), at("2027-01-01")),
        "months",
        logic_name_prefix="",
        suffix_pattern="MM",
        key=SnowflakeTimeKey(COSID_MS, "UTC"),
    )
    tick = COSID_MS.tick_at(int(at("2026-02-01T00:00Z").timestamp() * 1000))
    first, second = COSID_MS.compose(tick, 0, 0), COSID_MS.compose(tick, 0, 1)
    january = COSID_MS.compose(tick - 5, 1, 0)
    assert months.exact(first) == months.exact(second) == "02"
    assert months.range(ShardRange.closed_open(january, second)) == ("01", "02")
    assert months.range(ShardRange.closed_open(january, first)) == ("01",)
    assert months.range(ShardRange.open(first - 1, second)) == ("02",)
    assert months.range(ShardRange.closed(january, 2**63 - 1)) == months.effective_nodes
    assert months.range(ShardRange.at_least(-5)) == months.effective_nodes
    for nothing in (
        ShardRange.less_than(0),
        ShardRange.greater_than(COSID_MS.max_id),
        ShardRange.open(first, second),
        ShardRange.closed(second, first),
    ):
        assert months.range(nothing) == ()
    with pytest.raises(InvalidIdError):
        months.exact(-1)
    with pytest.raises(InvalidArgumentError, match="an integer"):
        months.exact("00000000000")
    with pytest.raises(InvalidArgumentError, match=r"its time is 2019-12-24T16:00:00"):
        months.exact(0)


def test_an_open_end_of_moments_is_a_microsecond_off() -> None:
    found = hours(StandardTimeKey("UTC"))
    ten = at("2026-10-25T10:00Z")
    assert found.range(ShardRange.closed_open(ten, ten + timedelta(hours=1))) == ("h10",)
    assert found.range(ShardRange.open(ten, ten)) == ()
    ms = int(ten.timestamp() * 1000)
    assert found.range(ShardRange.closed_open(ms, ms + 3_600_000)) == ("h10",)
    assert found.range(ShardRange.less_than("2026-10-25 01:00:00")) == ("h00",)


def test_a_key_of_ones_own_needs_one_method() -> None:
    class Uuid7Key(TimeKey[UUID]):
        def local_time(self, value: UUID, /) -> datetime:
            return StandardTimeKey("UTC").local_time(value.int >> 80)

    found = hours(Uuid7Key())
    ten, eleven = (
        UUID(int=int(at(f"2026-10-25T{hour}:00Z").timestamp() * 1000) << 80) for hour in (10, 11)
    )
    assert found.exact(ten) == "h10"
    assert found.range(ShardRange.closed_open(ten, eleven)) == ("h10", "h11")
    assert found.range(ShardRange.at_most(ten)) == tuple(f"h{hour:02}" for hour in range(11))


def test_a_key_of_ones_own_may_move_local_times() -> None:
    class NightShift(TimeKey[datetime]):
        """The hours after midnight belong to the evening before."""

        def local_time(self, value: datetime, /) -> datetime:
            return value - timedelta(hours=4)

    assert hours(NightShift()).exact(at("2026-10-25T05:00")) == "h01"


def test_keys_are_values() -> None:
    assert StandardTimeKey(BERLIN) == StandardTimeKey(BERLIN) != StandardTimeKey("UTC")
    assert SnowflakeTimeKey(COSID_MS, "UTC") == SnowflakeTimeKey(COSID_MS, UTC)
    assert len({SnowflakeTimeKey(COSID_MS, "UTC"), SnowflakeTimeKey(COSID_S, "UTC")}) == 2


def test_what_is_no_key_is_refused_as_the_value() -> None:
    keys: list[tuple[Any, Any]] = [
        (StandardTimeKey("UTC"), "no time"),
        (SnowflakeTimeKey(COSID_MS, "UTC"), "no id"),
        (SnowflakeTimeKey(COSID_MS, "UTC"), 1.5),
    ]
    for key, wrong in keys:
        with pytest.raises(InvalidArgumentError) as of_one:
            key.local_time(wrong)
        with pytest.raises(InvalidArgumentError) as of_range:
            key.local_span(ShardRange.at_least(wrong))
        assert of_one.value.argument == of_range.value.argument == "value"


def test_the_first_id_of_all_has_a_time() -> None:
    key = SnowflakeTimeKey(COSID_MS, "UTC")
    first = key.local_time(0)
    assert key.local_span(ShardRange.at_most(0)) == (None, first)
    assert key.local_span(ShardRange.closed(0, 0)) == (first, first)
    assert key.local_span(ShardRange.less_than(0)) is None


def test_an_hour_that_comes_twice_is_part_of_what_ends_in_it() -> None:
    """Whole: the first pass of what ends in the second, and the other way round."""
    key = StandardTimeKey("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))
    local = datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001 - a local time
    hour = timedelta(hours=1)
    assert key.local_span(ShardRange.closed(first, second)) == (local - hour, local + hour)
    assert key.local_span(ShardRange.closed(second, second)) == (local, local + hour)
    assert key.local_span(ShardRange.closed(first, first)) == (local - hour, local)
