"""Nodes of keys and of ranges, where CosId's vectors do not reach."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from aiocosid.abc import GroupedId
from aiocosid.errors import InvalidArgumentError
from aiocosid.sharding import IntervalTimeline, ModCycle, ShardRange, StandardTimeKey

at = datetime.fromisoformat

YEAR = ShardRange.closed_open(at("2026-01-01"), at("2027-01-01"))


def months(**changes: Any) -> IntervalTimeline[Any]:
    settings: dict[str, Any] = {
        "effective": YEAR,
        "unit": "months",
        "logic_name_prefix": "order_",
        "suffix_pattern": "yyyyMM",
        **changes,
    }
    return IntervalTimeline(**settings)


# Ranges.


def test_the_constructors_have_guavas_meaning() -> None:
    makers: list[tuple[ShardRange[int], str, set[int]]] = [
        (ShardRange.closed(1, 3), "[1..3]", {1, 2, 3}),
        (ShardRange.closed_open(1, 3), "[1..3)", {1, 2}),
        (ShardRange.open_closed(1, 3), "(1..3]", {2, 3}),
        (ShardRange.open(1, 3), "(1..3)", {2}),
        (ShardRange.at_least(2), "[2..)", {2, 3, 4}),
        (ShardRange.greater_than(2), "(2..)", {3, 4}),
        (ShardRange.at_most(2), "(..2]", {0, 1, 2}),
        (ShardRange.less_than(2), "(..2)", {0, 1}),
        (ShardRange.all(), "(..)", {0, 1, 2, 3, 4}),
        (ShardRange.closed(3, 1), "[3..1]", set()),
    ]
    for values, text, keys in makers:
        assert str(values) == text
        assert {key for key in range(5) if key in values} == keys
    assert str(YEAR) == "[2026-01-01T00:00:00..2027-01-01T00:00:00)"
    assert ShardRange(None, None, lower_open=True) == ShardRange[int].all()
    assert len({ShardRange.closed(1, 3), ShardRange(1, 3)}) == 1


def test_an_intersection_holds_what_both_hold() -> None:
    ends = (None, 1, 2, 3)
    some = [
        ShardRange(lower, upper, lower_open, upper_open)
        for lower in ends
        for upper in ends
        for lower_open in (False, True)
        for upper_open in (False, True)
    ]
    for one in some:
        for other in some:
            both = one.intersection(other)
            assert [k in both for k in range(5)] == [k in one and k in other for k in range(5)]


def test_ends_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="comparable with the lower end, 1"):
        ShardRange[Any].closed(1, "2")


# Remainders.


def test_a_range_of_ids_has_each_node_once_in_the_order_of_the_ids() -> None:
    for divisor in (1, 3, 7):
        nodes = ModCycle(divisor, "n")
        for first in range(-8, 9):
            for last in range(first - 2, 9):
                keys = range(first, last + 1)
                seen = list(dict.fromkeys(nodes.exact(key) for key in keys))
                found = nodes.range(ShardRange.closed(first, last))
                if len(keys) >= divisor:
                    assert found == nodes.effective_nodes
                else:
                    assert list(found) == seen
                assert nodes.range(ShardRange.open(first - 1, last + 1)) == found
    assert ModCycle(4, "n").range(ShardRange.greater_than(9)) == ModCycle(4, "n").effective_nodes
    assert ModCycle(4, "n").range(ShardRange.closed(0, 2**63 - 1)) == ("n0", "n1", "n2", "n3")


def test_a_remainder_wants_integers() -> None:
    nodes: Any = ModCycle(4, "n")
    for value in ("1", 1.0, True, None):
        with pytest.raises(InvalidArgumentError, match="an integer"):
            nodes.exact(value)
    for wrong in (ShardRange.at_least("1"), ShardRange.at_most(1.5)):
        with pytest.raises(InvalidArgumentError, match="a range of integers"):
            nodes.range(wrong)
    both: tuple[Any, ...] = (nodes, months())
    for nothing in ((1, 2), None, 5):
        for sharding in both:
            with pytest.raises(InvalidArgumentError, match="a ShardRange"):
                sharding.range(nothing)


def test_an_id_that_knows_its_group_is_an_integer() -> None:
    nodes = ModCycle(4, "n")
    assert nodes.exact(GroupedId(42, "20260116")) == "n2"
    assert nodes.range(ShardRange.at_most(GroupedId(1, "20260116"))) == ("n0", "n1")


# Time.


def test_every_key_of_an_interval_has_one_node() -> None:
    """In any unit and amount, piece by piece; `range` and `exact` agree at each border."""
    for unit, amount, begin, end, pattern in (
        ("years", 1, "2019-05-05", "2031-01-01", "yyyy"),
        ("years", 3, "2019-05-05", "2031-06-01", "yyyy"),
        ("months", 5, "2025-11-30T23:59:59", "2028-03-01", "yyyy_M"),
        ("days", 1, "2024-02-27T12:00:00", "2024-03-03T12:00:00", "yyyyDDD"),
        ("days", 10, "2024-02-27T12:00:00", "2024-05-03T12:00:00", "MMdd"),
        ("hours", 7, "2024-02-28T12:30:00", "2024-03-02T12:30:00", "ddHH"),
        ("minutes", 45, "2024-02-28T23:12:13", "2024-02-29T04:00:00", "HHmm"),
        ("seconds", 20, "2024-02-28T23:59:01.5", "2024-02-29T00:01:00", "HHmmss"),
    ):
        effective = ShardRange.closed_open(at(begin), at(end))
        found = months(effective=effective, unit=unit, amount=amount, suffix_pattern=pattern)
        assert found.exact(at(begin)) == found.effective_nodes[0]
        for offset in range(1, len(found.effective_nodes)):
            border = found._steps.begin(offset)
            before = border - datetime.resolution
            assert found.exact(before) == found.effective_nodes[offset - 1]
            assert found.exact(border) == found.effective_nodes[offset]
            middle = before + (min(found._steps.begin(offset + 1), at(end)) - before) / 2
            assert found.exact(middle) == found.effective_nodes[offset]
            assert found.range(ShardRange.less_than(border)) == found.effective_nodes[:offset]
            assert found.range(ShardRange.at_least(border)) == found.effective_nodes[offset:]
        assert found.exact(at(end) - datetime.resolution) == found.effective_nodes[-1]
        assert found.range(ShardRange.all()) == found.effective_nodes
        for outside in (at(begin) - datetime.resolution, at(end)):
            with pytest.raises(InvalidArgumentError, match="must have a time in"):
                found.exact(outside)


def test_a_moment_is_sharded_by_the_time_of_its_zone() -> None:
    """Not by the figures that it is written in."""
    late = datetime(2026, 5, 31, 20, tzinfo=UTC)  # the next day, in Shanghai
    by_month = months(key=StandardTimeKey("Asia/Shanghai"))
    assert by_month.exact(late) == "order_202606"
    by_day = months(key=StandardTimeKey("Asia/Shanghai"), unit="days", suffix_pattern="yyyyMMdd")
    assert by_day.exact(late) == "order_20260601"


def test_short_pieces_hold_their_seconds() -> None:
    day = ShardRange.closed_open(at("2026-05-05"), at("2026-05-06"))
    minutes = months(effective=day, unit="minutes", suffix_pattern="HHmm")
    for time, node in (("00:00:01", "0000"), ("00:01:30", "0001"), ("12:34:59", "1234")):
        assert minutes.exact(at(f"2026-05-05T{time}")) == f"order_{node}"


def test_an_end_that_is_not_there_is_not_left_out() -> None:
    """Two ways to say the same are equal."""
    assert ShardRange(1, None, upper_open=True) == ShardRange.at_least(1)
    assert ShardRange(None, 1, lower_open=True) == ShardRange.at_most(1)
    assert ShardRange(1, 2, True, True) == ShardRange.open(1, 2) != ShardRange.closed(1, 2)


def test_a_wrong_setting_is_refused_by_its_name() -> None:
    for argument, wrong in (("unit", "weeks"), ("amount", 0), ("key", str), ("effective", "2026")):
        with pytest.raises(InvalidArgumentError) as caught:
            months(**{argument: wrong})
        assert caught.value.argument == argument
    assert months(amount=1_000_000).effective_nodes == ("order_202601",)
    with pytest.raises(InvalidArgumentError):
        months(amount=1_000_001)
    with pytest.raises(InvalidArgumentError) as caught:
        months().range("2026")  # type: ignore[arg-type]
    assert caught.value.argument == "values"


def test_a_range_outside_of_the_interval_or_crossed_has_no_node() -> None:
    found = months()
    for values in (
        ShardRange.less_than(at("2026-01-01")),
        ShardRange.at_least(at("2027-01-01")),
        ShardRange.closed(at("2026-05-01"), at("2026-04-01")),
        ShardRange.closed_open(at("2026-05-01"), at("2026-05-01")),
        ShardRange.greater_than(at("9999-12-31T23:59:59.999999")),
        ShardRange.less_than(at("0001-01-01")),
    ):
        assert found.range(values) == ()


def test_an_error_says_which_time_and_which_interval() -> None:
    with pytest.raises(InvalidArgumentError, match="2027, 1, 1") as caught:
        months().exact(at("2027-01-01"))
    assert str(caught.value).endswith(f"must have a time in {YEAR}")
    with pytest.raises(InvalidArgumentError, match="its time is 2027-06-01T00:00:00"):
        months(key=StandardTimeKey("UTC")).exact("2027-06-01 00:00:00")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"effective": ShardRange.at_least(at("2026-01-01"))}, "two datetimes"),
        ({"effective": ShardRange.closed(1, 2)}, "datetimes without a zone"),
        ({"effective": "2026"}, "a ShardRange"),
        (
            {"effective": ShardRange.closed(at("2026-01-01T00:00Z"), at("2027-01-01T00:00Z"))},
            "without a zone",
        ),
        ({"effective": ShardRange.open(at("2026-01-01"), at("2026-01-01"))}, "not empty"),
        ({"unit": "seconds", "suffix_pattern": "yyyyMMddHHmmss"}, "1 seconds make 31536000"),
        ({"unit": "weeks"}, "one of 'years', 'months'"),
        ({"unit": ["days"]}, "one of 'years', 'months'"),
        ({"amount": 0}, "an integer from 1"),
        ({"unit": "days"}, "2026-01-01T00:00:00 and 2026-01-02T00:00:00 are both 'order_202601'"),
        ({"suffix_pattern": "%Y%m"}, "Java's 'yyyyMM'"),
        ({"logic_name_prefix": 5}, "string"),
        ({"key": str}, "a TimeKey"),
    ],
)
def test_a_wrong_timeline_is_refused_at_once(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        months(**changes)


def test_a_wrong_remainder_is_refused_at_once() -> None:
    makers: list[Callable[[], object]] = [
        lambda: ModCycle(0, "n"),
        lambda: ModCycle(1_000_001, "n"),
        lambda: ModCycle(4, None),  # type: ignore[arg-type]
    ]
    for make in makers:
        with pytest.raises(InvalidArgumentError):
            make()


def test_what_is_generic_can_be_made_with_its_type() -> None:
    """A frozen dataclass with slots cannot: typing sets an attribute of what it made."""
    assert ShardRange[int](1, 3) == ShardRange.closed(1, 3)
    made = IntervalTimeline[datetime](
        YEAR, "months", logic_name_prefix="order_", suffix_pattern="yyyyMM"
    )
    assert made == months()


def test_shardings_are_values() -> None:
    assert months() == months() != months(amount=2)
    assert len({months(), months()}) == 1
    assert ModCycle(4, "n") == ModCycle(4, "n") != ModCycle(4, "m")
    for one in (months(), ModCycle(4, "n"), YEAR):
        assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - our own
    with pytest.raises(AttributeError):
        months().amount = 2  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(months())).exact(at("2026-05-05")) == "order_202605"  # noqa: S301
    assert "_reader" not in repr(StandardTimeKey("UTC"))
    assert repr(ModCycle(4, "n")) == "ModCycle(divisor=4, logic_name_prefix='n')"
    assert repr(months()).startswith(f"<IntervalTimeline order_yyyyMM 12 x 1 months in {YEAR} by ")
