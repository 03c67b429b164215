"""Friendly texts: both ways, in zones, and in hours that occur twice or not at all."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.abc.dates import LAST_MS
from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    LAYOUTS,
    SONYFLAKE_V2,
    TWITTER,
    FriendlyText,
    SnowflakeLayout,
)

SHANGHAI = FriendlyText(COSID_MS, zone="Asia/Shanghai")


def at(friendly: FriendlyText, *when: int) -> int:
    """The id of a moment in UTC."""
    layout = friendly.layout
    ms = int(datetime(*when, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type, misc]
    return layout.compose(layout.tick_at(ms), 1, 2)


@pytest.mark.parametrize(
    ("number", "text"),
    [(266300479548424192, "20211228202301948-0-0"), (295913926632165376, "20220320133617924-5-0")],
)
def test_cosids_own_samples(number: int, text: str) -> None:
    assert SHANGHAI.as_text(number) == text
    assert SHANGHAI.as_id(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "20191224235959999-5-0",
        "99991231235959999-5-0",
        "20220320133617924-1024-0",
        "20220320133617924-5-4096",
    ],
)
def test_what_cosid_refuses(text: str) -> None:
    """Before the epoch, after the end, above the bits."""
    with pytest.raises(InvalidIdError):
        SHANGHAI.as_id(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "1-2", "20220320133617924", "20220320133617924-5", "20220320133617924-5-0-1"),
        *("20220320133617924-5-0\n", " 20220320133617924-5-0", "20220320133617924 -5-0"),
        *("20220320133617924--5-0", "20220320133617924-+5-0", "20220320133617924-5-"),
        *("20220320133617924-\uff15-0", "2022032013361792\u0664-5-0", "20220320133617924-5_0-0"),
        *("20220320133617-5-0", "2022032013361792-5-0", "202203201336179240-5-0"),
        *("20221320133617924-5-0", "20220230133617924-5-0", "20220320243617924-5-0"),
        *("20220320136017924-5-0", "20220320133660924-5-0", "00000320133617924-5-0"),
        *(
            "20220320133617924-00005-0",
            "20220320133617924-5-00000",
            f"20220320133617924-5-{'9' * 99}",
        ),
        *(20220320133617924, None, b"20220320133617924-5-0"),
    ],
)
def test_what_is_no_friendly_text(text: Any) -> None:
    """Java takes some of them, and moves 30 February to the 28th."""
    with pytest.raises(InvalidIdError):
        SHANGHAI.as_id(text)


def test_padding_sorts_and_both_forms_are_read() -> None:
    """X8: as wide as the highest machine id and sequence."""
    padded = FriendlyText(COSID_MS, zone="Asia/Shanghai", pad=True)
    assert padded.as_text(295913926632165376) == "20220320133617924-0005-0000"
    for friendly in (padded, SHANGHAI):
        for text in ("20220320133617924-0005-0000", "20220320133617924-5-0"):
            assert friendly.as_id(text) == 295913926632165376


@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(["UTC", "+05:30", "-08:00", "Asia/Shanghai", "Asia/Kolkata"]),
    st.booleans(),
    st.data(),
)
def test_every_id_comes_back(name: str, zone: str, pad: bool, data: st.DataObject) -> None:
    """All ready-made layouts, in zones whose clocks are not put back."""
    friendly = FriendlyText(LAYOUTS[name], zone=zone, pad=pad)
    layout = friendly.layout
    highest = layout.max_id
    if layout.last_instant is None:  # no text has a year of five digits
        highest = layout.compose(layout.tick_at(LAST_MS - 86_400_000), 0, 0)
    number = data.draw(st.integers(0, highest))
    text = friendly.as_text(number)
    assert friendly.as_id(text) == number
    if pad and zone[0] in "+-":
        other = data.draw(st.integers(0, highest))
        if not friendly.layout.sequence_first:
            assert (friendly.as_text(other) < text) == (other < number)


@given(st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]), st.data())
def test_no_two_ids_have_one_text(zone: str, data: st.DataObject) -> None:
    """X10: where the clocks are put back an id has no text at all, and a text no id."""
    friendly = FriendlyText(COSID_MS, zone=zone)
    number = data.draw(st.integers(0, COSID_MS.max_id))
    try:
        text = friendly.as_text(number)
    except InvalidIdError:
        local = COSID_MS.parse(number, ZoneInfo(zone)).timestamp
        assert local.replace(fold=1 - local.fold).utcoffset() != local.utcoffset()
    else:
        assert friendly.as_id(text) == number


BERLIN = FriendlyText(COSID_MS, zone="Europe/Berlin")


def test_an_hour_that_occurs_twice_is_refused_both_ways() -> None:
    """X10: 2026-10-25, 2 to 3 o'clock in Berlin; CosId writes one text for both."""
    earlier, later = at(BERLIN, 2026, 10, 25, 0, 30), at(BERLIN, 2026, 10, 25, 1, 30)
    for number in (earlier, later):
        with pytest.raises(InvalidIdError, match=r"Europe/Berlin, 2026-10-25 02:30:00, occurs twi"):
            BERLIN.as_text(number)
        in_utc = FriendlyText(COSID_MS, zone="UTC")
        assert in_utc.as_id(in_utc.as_text(number)) == number
    text = "20261025023000000-1-2"
    with pytest.raises(InvalidIdError, match="fold=0 or fold=1"):
        BERLIN.as_id(text)
    assert BERLIN.as_id(text, fold=0) == earlier
    assert BERLIN.as_id(text, fold=1) == later


def test_the_borders_of_the_hour_that_occurs_twice() -> None:
    """To the millisecond."""
    first = at(BERLIN, 2026, 10, 25, 0, 0)
    end = at(BERLIN, 2026, 10, 25, 2, 0)
    tick = 1 << 22
    assert BERLIN.as_text(first - tick) == "20261025015959999-1-2"
    assert BERLIN.as_text(end) == "20261025030000000-1-2"
    for number in (first, end - tick):
        with pytest.raises(InvalidIdError):
            BERLIN.as_text(number)


def test_a_fold_is_of_no_effect_where_a_time_occurs_once() -> None:
    text = "20260725023000000-1-2"
    assert {BERLIN.as_id(text, fold=fold) for fold in (None, 0, 1)} == {
        at(BERLIN, 2026, 7, 25, 0, 30)
    }
    for fold in (2, -1):
        with pytest.raises(InvalidArgumentError, match="fold"):
            BERLIN.as_id(text, fold=fold)


@pytest.mark.parametrize("fold", [None, 0, 1])
def test_a_time_that_the_clocks_skip_is_no_time(fold: int | None) -> None:
    """2026-03-29, 2 to 3 o'clock in Berlin; Java takes the hour after."""
    with pytest.raises(InvalidIdError, match="skip"):
        BERLIN.as_id("20260329023000000-1-2", fold=fold)
    assert BERLIN.as_id("20260329030000000-1-2") == at(BERLIN, 2026, 3, 29, 1, 0)


def test_the_width_follows_the_unit() -> None:
    """Whole seconds have no milliseconds; a tick of 10 ms has, and only its own."""
    seconds = FriendlyText(COSID_S, zone="UTC")
    assert seconds.as_text(COSID_S.compose(0, 3, 4)) == "20191224160000-3-4"
    with pytest.raises(InvalidIdError, match="yyyyMMddHHmmss-machine"):
        seconds.as_id("20191224160000000-3-4")
    hundredths = FriendlyText(SONYFLAKE_V2, zone="UTC")
    assert hundredths.as_text(SONYFLAKE_V2.compose(7, 3, 4)) == "20250101000000070-3-4"
    with pytest.raises(InvalidIdError, match="a tick of"):
        hundredths.as_id("20250101000000071-3-4")


def test_years_are_four_digits() -> None:
    """Also where the C library would write fewer."""
    early = SnowflakeLayout(41, 10, 12, "ms", 0)
    assert FriendlyText(early, zone="UTC").as_text(0) == "19700101000000000-0-0"
    wide = SnowflakeLayout(48, 8, 7, "ms", 0)
    friendly = FriendlyText(wide, zone="UTC")
    last = wide.compose(253_402_300_799_999, 1, 2)
    assert friendly.as_text(last) == "99991231235959999-1-2"
    assert friendly.as_id("99991231235959999-1-2") == last
    for zone in ("UTC", "+08:00"):
        with pytest.raises(InvalidIdError, match="10000"):
            FriendlyText(wide, zone=zone).as_text(last + (zone == "UTC") * 2**15)
    with pytest.raises(InvalidIdError, match="a date and a time that exist"):
        FriendlyText(wide, zone="-08:00").as_id("99991231235959999-1-2")


@pytest.mark.parametrize(
    ("zone", "hour"),
    [
        ("UTC", "16"),
        (UTC, "16"),
        ("+08:00", "00"),
        ("-03:30", "12"),
        ("Asia/Shanghai", "00"),
        (ZoneInfo("Asia/Shanghai"), "00"),
        (timezone(timedelta(hours=-5)), "11"),
    ],
)
def test_zones(zone: Any, hour: str) -> None:
    text = FriendlyText(COSID_MS, zone=zone).as_text(0)
    assert re.fullmatch(rf"2019122[45]{hour}[03]0\d+-0-0", text)


@pytest.mark.parametrize(
    "zone",
    [
        *(
            "",
            "Mars/Olympus",
            "utc ",
            "America",
            "../etc/passwd",
            "/etc/localtime",
            "UTC+8",
            "+24:00",
        ),
        *("+08:60", "\0", "Europe/Berlin\0", 8, None, timedelta(hours=8)),
    ],
)
def test_an_unknown_zone_is_refused(zone: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="zone"):
        FriendlyText(COSID_MS, zone=zone)


def test_it_reads_the_ids_of_its_own_layout() -> None:
    """X9: the widths and the epoch are the generator's."""
    number = TWITTER.compose(5, 619, 18)
    assert FriendlyText(TWITTER, zone="UTC").as_text(number) == "20101104014254662-619-18"
    for bad in (-1, 2**63, True, "5"):
        with pytest.raises(InvalidIdError):
            SHANGHAI.as_text(bad)  # type: ignore[arg-type]


def test_it_is_a_value() -> None:
    again = FriendlyText(COSID_MS, zone="Asia/Shanghai")
    assert again == SHANGHAI
    assert isinstance(again.zone, tzinfo)
    assert again != FriendlyText(COSID_MS, zone="Asia/Shanghai", pad=True)
