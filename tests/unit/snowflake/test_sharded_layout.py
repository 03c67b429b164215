"""Ids that carry their shard: bits and text.  The goldens are of the published layout."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.errors import InvalidArgumentError, InvalidIdError, LayoutExpiredError
from aiocosid.snowflake import LayoutExpiryWarning, ShardedLayout, ShardedParts, sharded

EPOCH = 1_546_300_800  # 2019-01-01T00:00Z
LAYOUT = ShardedLayout(epoch=EPOCH, zone="+08:00")
LAST = 5_841_268_095

# second, sharding id, sequence, id, text
GOLDENS = [
    (1546300800, 0, 1, 1, "201901010800000000010000"),
    (1700000000, 7, 42, 330066518714351658, "202311150613200000420007"),
    (1700000000, 0, 524287, 330066518711205887, "202311150613205242870000"),
    (1700000000, 4095, 1, 330066520857640961, "202311150613200000014095"),
    (LAST, 4095, 524287, 9223372036854775807, "215502071428155242874095"),
]


def test_the_golden_table_both_ways() -> None:
    """R1: int64 and text, from the fields and back to them."""
    for second, sharding_id, sequence, number, text in GOLDENS:
        parts = ShardedParts(second, sharding_id, sequence)
        assert LAYOUT.compose(*parts) == number
        assert LAYOUT.compose_text(*parts) == text
        assert LAYOUT.compose_text(*parts, prefix="A-2") == f"A-2{text}"
        assert LAYOUT.parse(number) == parts
        assert LAYOUT.parse_text(text) == LAYOUT.parse_text(f"9{text}", prefix="9") == parts
        assert LAYOUT.parse(number).timestamp.timestamp() == second
        assert sharded(datetime(2019, 1, 1, tzinfo=UTC)).parse(number).sequence == sequence


def test_a_field_outside_of_its_range() -> None:
    """R2, R3: time, sharding id and sequence, composed as a number and as a text."""
    bad: dict[str, list[tuple[Any, ...]]] = {
        "second": [(EPOCH - 1, 0, 1), (LAST + 1, 0, 1), (1.5e9, 0, 1), (True, 0, 1)],
        "sharding_id": [(EPOCH, -1, 1), (EPOCH, 4096, 1), (EPOCH, 2**44, 1), (EPOCH, "7", 1)],
        "sequence": [(EPOCH, 0, 0), (EPOCH, 0, 524_288), (EPOCH, 0, -1)],
    }
    for argument, combinations in bad.items():
        for fields in combinations:
            for compose in (LAYOUT.compose, LAYOUT.compose_text):
                with pytest.raises(InvalidArgumentError) as caught:
                    compose(*fields)
                assert caught.value.argument == argument


def test_what_is_no_id_is_not_read() -> None:
    """R2: neither a number whose sequence is 0, which was never handed out, nor another text."""
    numbers: list[Any] = [0, -1, 2**63, 524_288, "1", 1.0, True, None]
    for number in numbers:
        with pytest.raises(InvalidIdError):
            LAYOUT.parse(number)
    with pytest.raises(InvalidIdError, match="must have a sequence above 0"):
        LAYOUT.parse(0)
    good = GOLDENS[1][-1]
    texts: list[Any] = [
        *("", good[:-1], good + "0", "x" + good, " " + good[1:], good[:14] + "\u0660" + good[15:]),
        *("201813010000000000010000", "202302300000000000010000", "201901010759590000010000"),
        *(good[:14] + "0000000007", good[:14] + "5242880007", good[:20] + "4096", None, 7),
        "202311150613600000420007",  # a minute of 61 seconds
    ]
    for text in texts:
        with pytest.raises(
            InvalidIdError, match=r"text (must be 24 digits, not|.* is the text of no id: )"
        ):
            LAYOUT.parse_text(text)
    with pytest.raises(InvalidIdError, match="'A' and 24 digits"):
        LAYOUT.parse_text(good, prefix="A")


def test_other_widths() -> None:
    """Texts have as many digits as the highest sequence and sharding id need."""
    wide = ShardedLayout(EPOCH, timestamp_bits=31, sharding_bits=10, sequence_bits=22)
    assert wide.digits == 14 + 7 + 4
    parts = ShardedParts(EPOCH + 1, 1023, 4_194_303)
    assert wide.parse(wide.compose(*parts)) == parts
    assert wide.parse_text(wide.compose_text(*parts)) == parts
    sharded_wide = ShardedLayout(EPOCH, sharding_bits=14, sequence_bits=17)
    assert sharded_wide.digits == 14 + 6 + 5
    for sharding_bits in (1, 31):
        one = ShardedLayout(EPOCH, timestamp_bits=31, sharding_bits=sharding_bits, sequence_bits=1)
        assert one.max_sharding_id == 2**sharding_bits - 1
    for sharding_bits in (0, 32):
        with pytest.raises(InvalidArgumentError, match="sharding_bits must be"):
            ShardedLayout(EPOCH, timestamp_bits=30, sharding_bits=sharding_bits, sequence_bits=1)
    for widths in ((0, 12, 19), (33, 12, 19), (32, 12, 0), (31, 32, 1)):
        names = ("timestamp_bits", "sharding_bits", "sequence_bits")
        options: dict[str, Any] = dict(zip(names, widths, strict=True))
        with pytest.raises(InvalidArgumentError):
            ShardedLayout(EPOCH, **options)
    endless = ShardedLayout(EPOCH, timestamp_bits=40, sharding_bits=4)
    late = ShardedParts(EPOCH + 2**39, 0, 1)
    assert endless.parse(endless.compose(*late)) == late
    with pytest.raises(InvalidArgumentError, match="year 10000"):
        endless.compose_text(*late)


def test_the_epoch_is_a_whole_second() -> None:
    """As a datetime, in seconds or in milliseconds, which nobody can mistake for each other."""
    moment = datetime(2019, 1, 1, tzinfo=UTC)
    assert ShardedLayout(moment) == ShardedLayout(EPOCH) == ShardedLayout(EPOCH * 1000)
    assert ShardedLayout(moment) != LAYOUT
    assert ShardedLayout(10**11).epoch_second == 10**8
    bad: list[Any] = [moment.replace(tzinfo=None), EPOCH * 1000 + 1, -1, 1.5, "2019", True]
    for epoch in bad:
        with pytest.raises(InvalidArgumentError, match="epoch"):
            ShardedLayout(epoch)


def test_a_zone_is_a_fixed_offset() -> None:
    """R22: a zone with summer time would write one text for two seconds."""
    for zone in (timezone(timedelta(hours=-3, minutes=-30)), "-03:30"):
        layout = ShardedLayout(EPOCH, zone=zone)
        assert layout.compose_text(EPOCH, 0, 1).startswith("20181231203000")
        assert layout.parse_text("201812312030000000010000").second == EPOCH
    assert ShardedLayout(EPOCH, zone="+05:45").compose_text(EPOCH, 0, 1)[:12] == "201901010545"
    bad: list[Any] = [
        *(ZoneInfo("Europe/Berlin"), "Asia/Shanghai", "nowhere", None),
        timezone(timedelta(seconds=30)),
    ]
    for zone in bad:
        with pytest.raises(InvalidArgumentError, match="zone"):
            ShardedLayout(EPOCH, zone=zone)


fields = st.builds(
    ShardedParts, st.integers(EPOCH, LAST), st.integers(0, 4095), st.integers(1, 524_287)
)


@given(fields, fields)
def test_numbers_and_texts_tell_ids_apart(one: ShardedParts, other: ShardedParts) -> None:
    """R3, R22: both forms give the fields back, and texts of one width sort by second."""
    numbers = LAYOUT.compose(*one), LAYOUT.compose(*other)
    texts = LAYOUT.compose_text(*one), LAYOUT.compose_text(*other)
    assert [LAYOUT.parse(each) for each in numbers] == [one, other]
    assert [LAYOUT.parse_text(each) for each in texts] == [one, other]
    assert {len(each) for each in texts} == {24}
    if one.second != other.second:
        assert (one.second < other.second) == (texts[0] < texts[1]) == (numbers[0] < numbers[1])


def test_a_day_on_which_clocks_go_back() -> None:
    """R22: no text comes twice in the hours around it."""
    began = int(datetime(2024, 10, 27, 0, 0, tzinfo=UTC).timestamp())
    texts = [LAYOUT.compose_text(began + each, 0, 1) for each in range(0, 4 * 3600, 60)]
    assert texts == sorted(set(texts))


def test_it_ends() -> None:
    """And says so a year before."""
    assert LAYOUT.last_second == LAST
    assert LAYOUT.bits.last_instant_text == "2155-02-07T06:28:15Z"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LAYOUT.check_usable((LAST - 366 * 86_400) * 1000)
    with pytest.warns(LayoutExpiryWarning, match="2155"):
        LAYOUT.check_usable(LAST * 1000)
    with pytest.raises(LayoutExpiredError, match=r"<SnowflakeLayout sharded 32/12/19 .* 2155"):
        LAYOUT.check_usable((LAST + 1) * 1000)
    with pytest.raises(InvalidArgumentError, match="epoch"):
        LAYOUT.check_usable(EPOCH * 1000 - 1)
    assert repr(LAYOUT) == "<ShardedLayout 32/12/19 from 2019-01-01T00:00:00Z UTC+08:00>"
