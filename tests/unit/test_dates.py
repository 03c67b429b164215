"""Java's date patterns, written as Java writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aiocosid.abc.dates import LAST_MS, DatePattern, moment_of, resolve_zone
from aiocosid.errors import InvalidArgumentError

AT = datetime(2026, 1, 6, 9, 5, 7, 42_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "text", "width"),
    [
        ("yyyyMMdd", "20260106", 8),
        ("uuuu-MM", "2026-01", 7),
        ("yyMMddHHmmssSSS", "260106090507042", 15),
        ("yyyyDDD", "2026006", 7),
        ("yy'w'MM", "26w01", 5),
        ("yyyy'''y'", "2026'y", 6),
        ("yyyy_M_d", "2026_1_6", None),
        ("yyyy''MM", "2026'01", 7),
        ("yyyy~MM", "2026~01", 7),
    ],
)
def test_a_pattern_is_written_as_java_writes_it(pattern: str, text: str, width: int | None) -> None:
    found = DatePattern(pattern)
    assert (found.format(AT), found.width) == (text, width)


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("YYYYMM", "write 'yyyy'"),
        ("yyyyMMM", "write 'MM'"),
        ("yyyyhh", "write 'HH'"),
        ("%Y%m%d", "Java's 'yyyyMMdd'"),
        ("%y-%j %H:%M:%S.%f", "Java's 'yy-DDD HH:mm:ss.SSS'"),
        ("%Y-%W", "Java's letters"),
        ("yyyy'MM", "a quote that is never closed"),
        ("yyyy[MM]", "needs quotes around"),
        (
            "yyyyQ",
            "D, DDD, H, HH, M, MM, SSS, d, dd, m, mm, s, ss, uuuu, yy, yyyy; put other text",
        ),
        ("", "such as 'yyyyMMdd'"),
    ],
)
def test_an_unknown_pattern_is_refused_with_what_to_write(pattern: str, advice: str) -> None:
    with pytest.raises(InvalidArgumentError, match=advice):
        DatePattern(pattern)


def test_it_knows_its_fields() -> None:
    assert DatePattern("HH'h' yyyy").fields == ("year", "hour")
    units = ("year", "month", "day", "hour", "minute", "second", "millisecond")
    assert DatePattern("yyyyMMddHHmmssSSS").fields == DatePattern("yyMdHmsSSS").fields == units
    assert DatePattern("yyyyDDD").fields == DatePattern("uuuuD").fields == ("year", "day")
    assert DatePattern("yyyyMM").finest == "month"
    assert DatePattern("yyyyMMdd").finest == "day"
    assert DatePattern("yyyy").finest == "year"
    assert DatePattern("--").finest is None


def test_a_pattern_is_equal_to_itself_alone() -> None:
    one, same, other = DatePattern("yyyy"), DatePattern("yyyy"), DatePattern("uuuu")
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "yyyy"


def test_an_error_calls_the_pattern_what_the_caller_does() -> None:
    for pattern in ("", "yyyyMMM", "%Y", "yyyy'", "[yyyy]"):
        with pytest.raises(InvalidArgumentError) as error:
            DatePattern(pattern)
        assert error.value.argument == "pattern"
        with pytest.raises(InvalidArgumentError) as error:
            DatePattern(pattern, argument="suffix")
        assert error.value.argument == "suffix"


def test_an_offset_is_a_zone() -> None:
    for text, hours in (
        ("+08:00", 8),
        ("-05:30", -5.5),
        ("-00:30", -0.5),
        ("+23:59", 23 + 59 / 60),
        ("+05:45", 5.75),
        ("+0545", 5.75),
        ("+08", 8),
        ("-8", -8),
        ("Z", 0),
    ):
        assert resolve_zone(text).utcoffset(AT) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["GMT+8", "UTC+08:00", "+8:00", "+845", "+24", "+", "08:00", "z"])
def test_an_offset_with_two_meanings_is_none(text: str) -> None:
    """POSIX counts the one after a name to the west, Java to the east."""
    with pytest.raises(InvalidArgumentError, match="zone must be"):
        resolve_zone(text)


def test_the_last_moment_is_the_last() -> None:
    assert moment_of(LAST_MS).isoformat() == "9999-12-31T23:59:59.999000+00:00"
    with pytest.raises(OverflowError):
        moment_of(LAST_MS + 1)
