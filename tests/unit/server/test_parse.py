"""What an id tells, by the generator that makes such ids."""

from __future__ import annotations

import pytest

from aiocosid import StringIdGenerator
from aiocosid.abc import AnyGenerator
from aiocosid.converter import (
    GroupedPrefixIdConverter,
    PrefixIdConverter,
    Radix62IdConverter,
    ToStringIdConverter,
)
from aiocosid.errors import InvalidIdError
from aiocosid.generators import (
    CounterId,
    IntegerIdGenerator,
    UncertaintyIdGenerator,
    Uuid4Id,
    Uuid7Id,
)
from aiocosid.machine import ManualMachineIdDistributor
from aiocosid.server._parse import parse
from aiocosid.snowflake import (
    COSID_MS,
    RADIX62,
    CosIdGenerator,
    CosIdState,
    SnowflakeId,
    SnowflakeLayout,
)

MS = 1_774_000_000_123
TIME = {"timestamp_ms": MS, "time": "2026-03-20T09:46:40.123Z"}
MACHINE = ManualMachineIdDistributor(3)
REGIONS = SnowflakeLayout(41, 10, 12, "ms", 1_500_000_000_000, region_bits=4)


def snowflake(layout: SnowflakeLayout = COSID_MS) -> SnowflakeId:
    return SnowflakeId(MACHINE, layout=layout)


def made(layout: SnowflakeLayout, machine_id: int) -> int:
    return layout.compose(MS - layout.epoch_ms, machine_id, 7)


@pytest.mark.parametrize(
    ("generator", "text", "tells"),
    [
        pytest.param(CounterId(), "42", {"id": "42"}, id="number"),
        pytest.param(
            snowflake(),
            str(made(COSID_MS, 3)),
            {"id": str(made(COSID_MS, 3)), **TIME, "machine_id": 3, "sequence": 7},
            id="snowflake",
        ),
        pytest.param(
            snowflake(REGIONS),
            str(made(REGIONS, 130)),
            {
                "id": str(made(REGIONS, 130)),
                **TIME,
                "machine_id": 130,
                "region": 2,
                "worker": 2,
                "sequence": 7,
            },
            id="regions",
        ),
        pytest.param(
            CosIdGenerator(MACHINE),
            (state := RADIX62.as_text(CosIdState(MS, 3, 7))),
            {"id": state, **TIME, "machine_id": 3, "sequence": 7},
            id="cosid",
        ),
        pytest.param(
            StringIdGenerator(CounterId(), PrefixIdConverter("O-", ToStringIdConverter())),
            "O-42",
            {"id": "42", "text": "O-42"},
            id="text",
        ),
        pytest.param(
            StringIdGenerator(CounterId(), GroupedPrefixIdConverter(ToStringIdConverter())),
            "20260116-42",
            {"id": "42", "text": "20260116-42", "group": "20260116"},
            id="group",
        ),
        pytest.param(
            StringIdGenerator(snowflake(), converter := Radix62IdConverter(pad_start=True)),
            (text := converter.as_str(made(COSID_MS, 3))),
            {"id": str(made(COSID_MS, 3)), "text": text, **TIME, "machine_id": 3, "sequence": 7},
            id="snowflake-text",
        ),
        pytest.param(
            UncertaintyIdGenerator(CounterId(), 4),
            str(42 << 4 | 9),
            {"id": str(42 << 4 | 9), "counted": "42"},
            id="uncertain",
        ),
        pytest.param(IntegerIdGenerator(CounterId()), "42", {"id": "42"}, id="int32"),
        pytest.param(
            Uuid7Id(),
            "0190a6f2-9c1b-7000-8000-000000000000".upper(),
            {
                "id": "0190a6f2-9c1b-7000-8000-000000000000",
                "version": 7,
                "timestamp_ms": 1720787835931,
                "time": "2024-07-12T12:37:15.931Z",
            },
            id="uuid7",
        ),
        pytest.param(
            Uuid4Id(),
            "e7a6e4a4-8f63-4e0c-9d43-b6e8b1f0e0a1",
            {"id": "e7a6e4a4-8f63-4e0c-9d43-b6e8b1f0e0a1", "version": 4},
            id="uuid4",
        ),
    ],
)
def test_what_an_id_tells(generator: AnyGenerator, text: str, tells: dict[str, str | int]) -> None:
    assert parse(generator, text) == tells


@pytest.mark.parametrize(
    ("generator", "text"),
    [
        (CounterId(), ""),
        (CounterId(), "-1"),
        (CounterId(), "4٢"),
        (CounterId(), "9223372036854775808"),
        (CounterId(), "9" * 5000),
        (snowflake(SnowflakeLayout(20, 5, 5, "s", 0)), "9223372036854775807"),
        (StringIdGenerator(CounterId(), PrefixIdConverter("O-", ToStringIdConverter())), "42"),
        (CosIdGenerator(MACHINE), "42"),
        (Uuid7Id(), "42"),
        (Uuid7Id(), "9" * 5000),
    ],
)
def test_no_id_of_this_generator(generator: AnyGenerator, text: str) -> None:
    with pytest.raises(InvalidIdError):
        parse(generator, text)


def test_a_uuid_whose_time_is_after_the_year_9999() -> None:
    found = parse(Uuid7Id(), "ffffffff-ffff-7000-8000-000000000000")
    assert "time" not in found
    assert found["timestamp_ms"] == 2**48 - 1
