from __future__ import annotations

import time
from typing import Any

import pytest

from tests.command import Command

FRIENDLY = "20211228202301948-0-0"
NUMBER = 266300479548424192  # CosId's own example in its documentation, with machine 0
IN_SHANGHAI = ("--zone", "Asia/Shanghai")


def told(aiocosid: Command, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = aiocosid.json("parse", *words)
    return found


def test_digits_are_a_number_however_many(aiocosid: Command) -> None:
    assert told(aiocosid, "000000000000000")["id"] == 0


def test_all_parts_of_a_number(aiocosid: Command) -> None:
    """Time in UTC and local time, machine id, sequence, friendly text."""
    assert told(aiocosid, NUMBER, *IN_SHANGHAI) == {
        "layout": "cosid-ms",
        "id": NUMBER,
        "text": None,
        "timestamp_ms": 1_640_694_181_948,
        "utc": "2021-12-28 12:23:01.948+00:00",
        "local": "2021-12-28 20:23:01.948+08:00",
        "machine_id": 0,
        "region": None,
        "worker": None,
        "sequence": 0,
        "friendly": FRIENDLY,
        "zone": "Asia/Shanghai",
    }


def test_friendly_text_is_read_back(aiocosid: Command) -> None:
    """What `parse` prints it takes, with the same zone; without one it is UTC on every host."""
    assert told(aiocosid, FRIENDLY, *IN_SHANGHAI)["id"] == NUMBER
    in_utc = told(aiocosid, NUMBER)
    assert in_utc["friendly"] == "20211228122301948-0-0"
    assert told(aiocosid, in_utc["friendly"]) == in_utc


def test_local_time_is_the_systems(aiocosid: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `date` would tell it at that moment: winter time in winter."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        assert told(aiocosid, NUMBER)["local"] == "2021-12-28 13:23:01.948+01:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_table_leaves_out_what_is_not_there(aiocosid: Command) -> None:
    """Regions only where the layout has them."""
    out = aiocosid("parse", NUMBER).out
    assert "region" not in out
    assert str(NUMBER) in out
    assert "friendly text (UTC)" in out


def test_regions(aiocosid: Command) -> None:
    """Twitter's data centre and worker are told apart."""
    found = told(aiocosid, 5 << 17 | 7 << 12 | 9, "--layout", "twitter")
    assert (found["machine_id"], found["region"], found["worker"], found["sequence"]) == (
        *(5 << 5 | 7, 5, 7),
        9,
    )


def test_a_local_time_that_occurs_twice(aiocosid: Command) -> None:
    """The id is told all the same; only its friendly text would be ambiguous."""
    clock_goes_back = "20211031003000000-0-0"
    found = told(aiocosid, clock_goes_back)
    found = told(aiocosid, found["id"], "--zone", "Europe/Berlin")
    assert (found["friendly"], found["local"]) == (None, "2021-10-31 02:30:00.000+02:00")
    assert "occurs twice" in aiocosid("parse", found["id"], "--zone", "Europe/Berlin").out


@pytest.mark.parametrize("layout", ["cosid-radix62", "cosid-radix36"])
def test_texts_of_cosid_generator(aiocosid: Command, layout: str) -> None:
    """They need their layout; both are also read from friendly text."""
    found = told(aiocosid, "20211228122301948-0000001-00002", "--layout", layout)
    assert (found["id"], found["machine_id"], found["sequence"]) == (None, 1, 2)
    assert len(found["text"]) == (15 if layout.endswith("62") else 17)
    assert told(aiocosid, found["text"], "--layout", layout) == found


def test_own_bits(aiocosid: Command) -> None:
    """Widths, unit and epoch make a layout; of four widths the second names a region."""
    twitter = told(aiocosid, 5 << 17 | 7 << 12 | 9, "--layout", "twitter")
    own = ("--unit", "ms", "--epoch", "1288834974657")
    found = told(aiocosid, twitter["id"], "--bits", "41/5/5/12", *own)
    assert found == {**twitter, "layout": "41/10/12 ms from 2010-11-04T01:42:54.657Z"}
    found = told(aiocosid, twitter["id"], "--bits", "41/10/12", *own)
    assert (found["machine_id"], found["region"]) == (twitter["machine_id"], None)
    minutes = ("--bits", "20/8/8", "--unit", "60s", "--epoch", "2026-01-01T00:00:00+00:00")
    found = told(aiocosid, 3 << 16 | 7 << 8 | 9, *minutes)
    assert (found["utc"], found["machine_id"], found["sequence"], found["friendly"]) == (
        "2026-01-01 00:03:00.000+00:00",
        7,
        9,
        "20260101000300-7-9",
    )


def test_a_named_layout_from_another_time_on(aiocosid: Command) -> None:
    """The widths, the order of the fields and the unit are the layout's."""
    from_2020 = ("--epoch", "2020-01-01T00:00:00+08:00")
    found = told(aiocosid, 100 << 24 | 9 << 16 | 7, "--layout", "sonyflake-v2", *from_2020)
    assert (found["layout"], found["utc"], found["machine_id"], found["sequence"]) == (
        "sonyflake-v2 39/8/16 10ms from 2019-12-31T16:00:00Z",
        "2019-12-31 16:00:01.000+00:00",
        7,
        9,
    )
    assert told(aiocosid, 0, *from_2020)["utc"] == "2019-12-31 16:00:00.000+00:00"
    assert told(aiocosid, NUMBER, "--epoch", "1577203200000") == told(aiocosid, NUMBER)
