"""CosIdGenerator's texts: radix 62 and 36, friendly, states both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import (
    RADIX36,
    RADIX62,
    CosIdFriendlyText,
    CosIdRadixText,
    CosIdState,
    CosIdText,
)

states = st.builds(
    CosIdState, st.integers(0, 2**44 - 1), st.integers(0, 2**20 - 1), st.integers(0, 2**16 - 1)
)
TEXTS: list[CosIdText] = [
    RADIX62,
    RADIX36,
    CosIdFriendlyText(zone="UTC"),
    CosIdFriendlyText(zone="+08:00", pad=False),
]
every_text = pytest.mark.parametrize("text", TEXTS, ids=["62", "36", "friendly", "not padded"])


@every_text
@given(state=states)
def test_every_state_comes_back(text: CosIdText, state: CosIdState) -> None:
    assert text.as_state(text.as_text(state)) == state


@pytest.mark.parametrize(("text", "width"), [(RADIX62, 15), (RADIX36, 17), (TEXTS[2], 31)])
@given(a=states, b=states)
def test_texts_have_one_width_and_sort_like_states(
    text: CosIdText, width: int, a: CosIdState, b: CosIdState
) -> None:
    """X8."""
    assert len(text.as_text(a)) == width
    assert (text.as_text(a) < text.as_text(b)) == (a < b)


def test_cosids_own_sample() -> None:
    """Widths of 8, 4 and 4 bits."""
    bits: Any = {"timestamp_bits": 8, "machine_bits": 4, "sequence_bits": 4}
    assert CosIdRadixText(62, **bits).as_text(CosIdState(61, 7, 15)) == "0z7F"
    assert CosIdRadixText(36, **bits).as_text(CosIdState(35, 7, 15)) == "0Z7F"


@every_text
@pytest.mark.parametrize("field", ["timestamp_ms", "machine_id", "sequence"])
@pytest.mark.parametrize("value", [-1, 2**44, True, 1.5, "1", None])
def test_a_field_outside_its_bits_is_not_written(text: CosIdText, field: str, value: Any) -> None:
    """N10; Java writes those that fit the digits."""
    fields: Any = {"timestamp_ms": 1, "machine_id": 1, "sequence": 1} | {field: value}
    with pytest.raises(InvalidIdError, match="44 bits of time"):
        text.as_text(CosIdState(**fields))


def test_each_width_is_its_own() -> None:
    """One above the highest, field by field."""
    for state in (CosIdState(2**44, 0, 0), CosIdState(0, 2**20, 0), CosIdState(0, 0, 2**16)):
        for text in TEXTS:
            with pytest.raises(InvalidIdError):
                text.as_text(state)
    highest = CosIdState(2**44 - 1, 2**20 - 1, 2**16 - 1)
    assert RADIX62.as_text(highest) == "4ziepp2F4OmVH31"
    assert [text.as_state(text.as_text(highest)) for text in TEXTS] == [highest] * 4


@pytest.mark.parametrize(
    "written",
    [
        *("", "0", "0" * 14, "0" * 16, "0Tv-okgi0005009", "0Tv okgi0005009", "-Tvcokgi0005009"),
        *("\uff10Tvcokgi0005009", "00000007zzzz000", "4ziepp2G0000000", "000000000000H32"),
        *(None, 15, b"0" * 15),
    ],
)
def test_what_is_no_text_in_radix_62(written: Any) -> None:
    """Length, digits, and fields above their bits, which Java reads."""
    with pytest.raises(InvalidIdError):
        RADIX62.as_state(written)


@pytest.mark.parametrize(
    "written", ["0LOYW3V280005000a", "aLOYW3V2800050009", "0LO-W3V2800050009", "Z" * 17]
)
def test_what_is_no_text_in_radix_36(written: str) -> None:
    """Lower case is none of its digits."""
    assert RADIX36.as_state("0LOYW3V2800050009") == CosIdState(1700000000000, 5, 9)
    with pytest.raises(InvalidIdError):
        RADIX36.as_state(written)


@pytest.mark.parametrize(
    "written",
    [
        *("20240101000000000-1048576-0", "20240101000000000-0-65536", "20240101000000-1-1"),
        *("19691231235959999-0-0", "25270623062044416-0-0", " 20240101000000000-1-2", "", None),
    ],
)
def test_what_is_no_friendly_text(written: Any) -> None:
    """Above the bits (Java does not look), before 1970, past the end, another form."""
    with pytest.raises(InvalidIdError):
        CosIdFriendlyText(zone="UTC").as_state(written)


def test_a_local_time_that_occurs_twice() -> None:
    """Refused both ways, read with a fold."""
    text = CosIdFriendlyText(zone="Europe/Berlin", pad=False)
    moments = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC).timestamp() for hour in (0, 1)]
    found = [CosIdState(int(moment) * 1000, 1, 2) for moment in moments]
    for state in found:
        with pytest.raises(InvalidIdError, match="occurs twice"):
            text.as_text(state)
    with pytest.raises(InvalidIdError, match="occurs twice"):
        text.as_state("20261025023000000-1-2")
    assert [text.as_state("20261025023000000-1-2", fold=fold) for fold in (0, 1)] == found


def test_bad_settings() -> None:
    for radix in (10, 61, True, 62.0, "62"):
        with pytest.raises(InvalidArgumentError, match="radix"):
            CosIdRadixText(radix)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="machine_bits"):
        CosIdRadixText(machine_bits=0)
    with pytest.raises(InvalidArgumentError, match="zone"):
        CosIdFriendlyText(zone="Mars/Olympus")


def test_a_time_past_the_year_9999_has_no_friendly_text() -> None:
    text = CosIdFriendlyText(zone="UTC", timestamp_bits=50)
    with pytest.raises(InvalidIdError, match="10000"):
        text.as_text(CosIdState(2**50 - 1, 0, 0))


def test_the_layout_of_the_fields_counts_milliseconds_since_1970() -> None:
    """More than 64 bits in one number: what a sequencer hands on, never an id."""
    layout = RADIX62.layout
    assert layout.name == "CosIdGenerator"
    assert layout.last_instant_text == "2527-06-23T06:20:44.415Z"
    assert layout.max_id == 2**80 - 1
    parts = layout.parse(layout.compose(1700000000000, 5, 9))
    assert (parts.timestamp_ms, parts.machine_id, parts.sequence) == (1700000000000, 5, 9)


def test_a_text_tells_its_settings() -> None:
    """By CosId's names, where it has them."""
    assert RADIX62.as_tree() == {"kind": "CosIdRadixText", "radix": 62, "charSize": 15}
    friendly = CosIdFriendlyText(zone="UTC", pad=False).as_tree()
    assert friendly == {"kind": "CosIdFriendlyText", "zone": "UTC", "padStart": False}
