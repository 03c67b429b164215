"""The bits of a Snowflake id: ranges, round trips, epochs, the end."""

from __future__ import annotations

import copy
import pickle
import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aiocosid.errors import InvalidArgumentError, InvalidIdError, LayoutExpiredError
from aiocosid.snowflake import COSID_MS, LayoutExpiryWarning, SnowflakeLayout, SnowflakeParts

EPOCH_MS = 1_577_203_200_000
BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000


def layout(*args: Any, **changes: Any) -> SnowflakeLayout:
    fields: Any = args or (41, 10, 12, "ms", EPOCH_MS)
    return SnowflakeLayout(*fields, **changes)


@st.composite
def layouts(draw: st.DrawFn) -> SnowflakeLayout:
    """Any layout whose ids can be read, in any order of fields."""
    machine_bits = draw(st.integers(1, 31))
    sequence_bits = draw(st.integers(1, min(31, 62 - machine_bits)))
    timestamp_bits = draw(st.integers(1, min(41, 63 - machine_bits - sequence_bits)))
    unit_ms = draw(st.sampled_from([1, 10]))
    epoch_ms = draw(st.integers(10**11, 2 * 10**12)) // unit_ms * unit_ms
    return SnowflakeLayout(
        timestamp_bits,
        machine_bits,
        sequence_bits,
        timedelta(milliseconds=unit_ms),
        epoch_ms,
        region_bits=draw(st.integers(0, machine_bits - 1)),
        sequence_first=draw(st.booleans()),
    )


@st.composite
def fields(draw: st.DrawFn, of: SnowflakeLayout) -> tuple[int, int, int]:
    return (
        draw(st.integers(0, of.last_tick)),
        draw(st.integers(0, of.machine_count - 1)),
        draw(st.integers(0, of.max_sequence)),
    )


# Composing and reading.


@given(st.data())
def test_what_is_composed_is_read_again(data: st.DataObject) -> None:
    """Every field comes back, whatever the widths, the order and the regions."""
    of = data.draw(layouts())
    tick, machine_id, sequence = data.draw(fields(of))
    number = of.compose(tick, machine_id, sequence)
    parts = of.parse(number)
    assert 0 <= number <= of.max_id < 2**63
    assert (parts.machine_id, parts.sequence) == (machine_id, sequence)
    assert of.tick_at(parts.timestamp_ms) == tick
    assert parts.timestamp == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        milliseconds=parts.timestamp_ms
    )
    if of.region_bits:
        assert parts.region is not None
        assert parts.worker is not None
        assert of.machine_of(parts.region, parts.worker) == machine_id
    else:
        assert (parts.region, parts.worker) == (None, None)


@given(st.data())
def test_every_number_within_the_bits_is_an_id(data: st.DataObject) -> None:
    """Reading and composing again gives the same number: no bit is left out or read twice."""
    of = data.draw(layouts())
    number = data.draw(st.integers(0, of.max_id))
    parts = of.parse(number)
    assert of.compose(of.tick_at(parts.timestamp_ms), parts.machine_id, parts.sequence) == number


@given(st.data())
def test_ids_sort_by_time_and_then_by_the_order_of_the_fields(data: st.DataObject) -> None:
    of = data.draw(layouts())
    a, b = data.draw(fields(of)), data.draw(fields(of))
    x, y = [(f[0], f[2], f[1]) if of.sequence_first else f for f in (a, b)]
    assert (of.compose(*a) < of.compose(*b)) == (x < y)


@pytest.mark.parametrize("field", [0, 1, 2])
@pytest.mark.parametrize("kind", ["negative", "above", "bool", "float", "text", "none"])
def test_a_field_outside_its_bits_is_refused(field: int, kind: str) -> None:
    """N10: never a carry into the next field."""
    limits = (COSID_MS.last_tick, COSID_MS.machine_count - 1, COSID_MS.max_sequence)
    values: dict[str, Any] = {
        "negative": -1,
        "above": limits[field] + 1,
        "bool": True,
        "float": 1.0,
        "text": "1",
        "none": None,
    }
    args: list[Any] = [1, 1, 1]
    args[field] = values[kind]
    with pytest.raises(InvalidArgumentError, match=("tick", "machine_id", "sequence")[field]):
        COSID_MS.compose(*args)
    args[field] = limits[field]
    assert COSID_MS.compose(*args) > 0


@pytest.mark.parametrize("number", [-1, 2**63, True, 1.0, "1", None])
def test_a_number_outside_the_bits_is_no_id(number: Any) -> None:
    with pytest.raises(InvalidIdError, match="an integer from 0 to 9223372036854775807"):
        COSID_MS.parse(number)


def test_the_timestamp_is_told_in_the_zone_that_is_asked_for() -> None:
    """The same moment, and exact in an hour that occurs twice."""
    first = int(datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()) * 1000
    ids = [COSID_MS.compose(COSID_MS.tick_at(ms), 0, 0) for ms in (first, first + 3_600_000)]
    seen = [COSID_MS.parse(number, BERLIN).timestamp for number in ids]
    assert [each.hour for each in seen] == [2, 2]
    assert [each.fold for each in seen] == [0, 1]
    utc = [COSID_MS.parse(number).timestamp for number in ids]
    assert [each.astimezone(UTC) for each in seen] == utc


def test_an_id_of_a_time_past_the_year_9999_is_refused() -> None:
    """No datetime holds it; the error says what was read."""
    of = layout(40, 10, 13, "s", EPOCH_MS)
    with pytest.raises(InvalidIdError, match=r"\+36862-"):
        of.parse(of.max_id)
    last = of.tick_at(253_402_300_799_000)
    assert of.parse(of.compose(last, 0, 0)).timestamp.year == 9999
    with pytest.raises(InvalidIdError):
        of.parse(of.compose(last, 0, 0), timezone(timedelta(hours=8)))


# Many ids at once.


@given(st.data())
def test_the_ids_of_a_tick_are_the_composed_ones(data: st.DataObject) -> None:
    """In the order of their sequences, also where the machine id lies below."""
    of = data.draw(layouts())
    tick, machine_id, first = data.draw(fields(of))
    stop = data.draw(st.integers(first, min(of.ids_per_tick, first + 40)))
    due = [of.compose(tick, machine_id, each) for each in range(first, stop)]
    assert list(of.ids(tick, machine_id, first, stop)) == due


@pytest.mark.parametrize("bits", range(1, 13))
def test_the_highest_sequence_is_used_and_no_higher_one(bits: int) -> None:
    """N9: a tick has 2^n ids, and one more is refused."""
    of = layout(41, 10, bits, "ms", EPOCH_MS)
    assert (of.ids_per_tick, of.max_sequence) == (2**bits, 2**bits - 1)
    ids = of.ids(5, 3, 0, of.ids_per_tick)
    assert len(ids) == 2**bits
    assert of.parse(ids[-1]).sequence == of.max_sequence
    assert {of.parse(each).machine_id for each in ids} == {3}
    for bad in ((0, 2**bits + 1), (-1, 1), (2, 1)):
        with pytest.raises(InvalidArgumentError, match="stop"):
            of.ids(5, 3, *bad)


def test_ids_are_refused_outside_of_time_and_machines() -> None:
    """N1: nothing negative and nothing wrapped, at the very border."""
    of = layout(20, 10, 12, "ms", EPOCH_MS)
    assert of.ids(0, 0, 0, 1)[0] == 0
    assert of.ids(2**20 - 1, 1023, 4095, 4096)[0] == of.max_id
    with pytest.raises(InvalidArgumentError, match="tick"):
        of.ids(-1, 0, 0, 1)
    with pytest.raises(LayoutExpiredError, match=r"2019-12-24T16:17:28\.575Z"):
        of.ids(2**20, 0, 0, 1)
    for machine_id in (-1, 1024):
        with pytest.raises(InvalidArgumentError, match="machine_id"):
            of.ids(1, machine_id, 0, 1)


# Widths, regions.


@pytest.mark.parametrize("name", ["timestamp_bits", "machine_bits", "sequence_bits"])
@pytest.mark.parametrize("value", [0, -1, 64, True, 8.0, "8", None])
def test_a_width_outside_its_range_is_refused(name: str, value: Any) -> None:
    widths: Any = {"timestamp_bits": 20, "machine_bits": 10, "sequence_bits": 10} | {name: value}
    with pytest.raises(InvalidArgumentError, match=name):
        SnowflakeLayout(**widths, unit="ms", epoch=EPOCH_MS)


def test_a_layout_has_at_most_63_bits() -> None:
    """The sign stays free; CosId's int holds at most 31 bits of machine ids."""
    assert layout(41, 10, 12, "ms", EPOCH_MS).max_id == 2**63 - 1
    with pytest.raises(InvalidArgumentError, match="at most 63"):
        layout(42, 10, 12, "ms", EPOCH_MS)
    with pytest.raises(InvalidArgumentError, match="from 1 to 31"):
        layout(20, 32, 10, "ms", EPOCH_MS)


def test_a_region_is_the_upper_part_of_the_machine_id() -> None:
    """Several data centres, each with workers of its own."""
    of = layout(region_bits=3)
    assert of.machine_of(5, 100) == 5 << 7 | 100
    assert of.machine_of(7, 127) == 1023
    parts = of.parse(of.compose(1, of.machine_of(5, 100), 9))
    assert (parts.region, parts.worker, parts.machine_id) == (5, 100, 740)
    for region, worker in ((8, 0), (-1, 0), (0, 128), (0, -1), (True, 0)):
        with pytest.raises(InvalidArgumentError) as error:
            of.machine_of(region, worker)
        assert error.value.argument == (
            "worker" if region is not True and region == 0 else "region"
        )
    with pytest.raises(InvalidArgumentError, match="region"):
        layout().machine_of(1, 0)
    for bits in (10, -1, True):
        with pytest.raises(InvalidArgumentError) as error:
            layout(region_bits=bits)
        assert error.value.argument == "region_bits"


@pytest.mark.parametrize(("bits", "safe"), [((41, 3, 9), True), ((41, 3, 10), False)])
def test_53_bits_are_safe_in_javascript(bits: tuple[int, int, int], safe: bool) -> None:
    of = layout(*bits, "ms", EPOCH_MS)
    assert of.is_javascript_safe is safe
    assert (float(of.max_id) == of.max_id) is safe


# Units and epochs.


@pytest.mark.parametrize(
    ("unit", "unit_ms"),
    [
        ("ms", 1),
        ("10ms", 10),
        ("s", 1000),
        (timedelta(milliseconds=4), 4),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_units(unit: Any, unit_ms: int) -> None:
    of = layout(31, 10, 12, unit, EPOCH_MS)
    assert of.unit_ms == unit_ms
    assert [of.tick_at(EPOCH_MS + 7 * unit_ms + rest) for rest in (-1, 0, unit_ms - 1)] == [6, 7, 7]
    assert of.ms_of(7) == EPOCH_MS + 7 * unit_ms
    assert of.tick_at(EPOCH_MS - 1) == -1


def test_another_epoch() -> None:
    """Everything else stays, but for the advice once it has ended; the first one is unchanged."""
    of = SnowflakeLayout(41, 10, 12, "ms", EPOCH_MS, region_bits=5, name="mine", remedy="ask us")
    moved = of.with_epoch(EPOCH_MS + 7)
    assert moved == SnowflakeLayout(41, 10, 12, "ms", EPOCH_MS + 7, region_bits=5)
    assert (moved.name, of.epoch_ms) == ("mine", EPOCH_MS)
    assert "ask us" not in str(moved._expired())
    with pytest.raises(InvalidArgumentError, match="epoch"):
        of.with_epoch("2026-01-01")  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    "unit",
    [*("us", "S", "", "1s", 1, 1000, 0.01, True, None), timedelta(0), timedelta(microseconds=1500)],
)
def test_what_is_no_unit(unit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="unit"):
        layout(31, 10, 12, unit, EPOCH_MS)


@pytest.mark.parametrize(
    "epoch",
    [
        EPOCH_MS,
        datetime(2019, 12, 24, 16, tzinfo=UTC),
        datetime(2019, 12, 25, tzinfo=timezone(timedelta(hours=8))),
        datetime(2019, 12, 25, tzinfo=ZoneInfo("Asia/Shanghai")),
    ],
)
def test_an_epoch_is_a_moment_however_it_is_told(epoch: Any) -> None:
    """N25: no zone of a host comes into it."""
    of = layout(41, 10, 12, "ms", epoch)
    assert of == COSID_MS
    assert of.epoch_ms == EPOCH_MS
    assert (of.epoch, of.epoch.tzinfo) == (datetime(2019, 12, 24, 16, tzinfo=UTC), UTC)


@pytest.mark.parametrize(
    "epoch",
    [
        datetime(2019, 12, 24, 16),  # noqa: DTZ001 - that is the point
        "2019-12-24T16:00:00Z",
        "1577203200000",
        date(2019, 12, 24),
        1577203200000.0,
        True,
        None,
        -1,
        datetime(1969, 12, 31, tzinfo=UTC),
        EPOCH_MS * 1000,  # in microseconds
    ],
)
def test_what_is_no_epoch(epoch: Any) -> None:
    """Naive, a text, a day, or before 1970."""
    with pytest.raises(InvalidArgumentError, match="epoch"):
        layout(41, 10, 12, "ms", epoch)


@pytest.mark.parametrize("unit", ["ms", "10ms", "s"])
def test_an_epoch_that_plainly_is_in_seconds_is_refused(unit: Any) -> None:
    """Icicle 1 took seconds for milliseconds; CosId's layouts in seconds want seconds."""
    with pytest.raises(InvalidArgumentError, match="give 1577203200000 if this is in seconds"):
        layout(31, 10, 12, unit, 1_577_203_200)
    assert layout(31, 10, 12, unit, 0).epoch_ms == 0


@pytest.mark.parametrize(
    ("unit", "epoch"),
    [
        ("s", 1_288_834_974_657),
        ("s", datetime(2020, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("10ms", 1_577_203_200_001),
        ("ms", datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_an_epoch_has_to_be_a_whole_number_of_units(unit: Any, epoch: Any) -> None:
    """Otherwise a peer that counts whole units since 1970 reads other ticks."""
    with pytest.raises(InvalidArgumentError, match="whole number of the layout's ticks"):
        layout(31, 10, 12, unit, epoch)


# The end.


def test_the_last_instant_is_the_start_of_the_last_tick() -> None:
    of = layout(31, 10, 12, "s", EPOCH_MS)
    assert of.last_instant == datetime(2088, 1, 11, 19, 14, 7, tzinfo=UTC)
    assert of.last_instant_text == "2088-01-11T19:14:07Z"
    assert COSID_MS.last_instant_text == "2089-08-30T07:47:35.551Z"


def test_a_last_instant_past_the_year_9999_is_told_as_text() -> None:
    """Against the calendar's own period of 400 years; uid-generator's 40 bits end in 36862."""
    of = layout(40, 10, 13, "s", datetime(2016, 5, 19, 16, tzinfo=UTC))
    assert of.last_instant is None
    seconds = 2**40 - 1 - 87 * 146_097 * 86_400
    due = of.epoch + timedelta(seconds=seconds)
    assert of.last_instant_text == f"+{due.year + 87 * 400}{due:-%m-%dT%H:%M:%S}Z"
    # 2^61 s, in mean Gregorian years of 365.2425 days
    assert layout(61, 1, 1, "s", 0).last_instant_text.startswith("+73069258126-")


@pytest.mark.parametrize(("unit", "unit_ms"), [("ms", 1), ("10ms", 10), ("s", 1000)])
def test_a_layout_is_usable_from_its_epoch_to_the_end_of_its_last_tick(
    unit: Any, unit_ms: int
) -> None:
    """N1, N2: to the millisecond."""
    of = layout(35, 10, 12, unit, EPOCH_MS)
    end_ms = EPOCH_MS + 2**35 * unit_ms
    of.check_usable(EPOCH_MS)
    with pytest.raises(InvalidArgumentError, match=r"2019-12-24T15:59:59\.999Z"):
        of.check_usable(EPOCH_MS - 1)
    with pytest.warns(LayoutExpiryWarning):
        of.check_usable(end_ms - 1)
    with pytest.raises(LayoutExpiredError) as caught:
        of.check_usable(end_ms)
    assert caught.value.last_instant == of.last_instant_text
    assert "use a new layout, with a later epoch or more timestamp bits" in str(caught.value)
    assert repr(of) in str(caught.value)


def test_a_layout_that_ends_within_a_year_warns() -> None:
    """At the caller's line, and not a millisecond sooner."""
    of = layout(name="ours", remedy="read the wiki")
    end_ms = of.ms_of(of.last_tick + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of.check_usable(end_ms - 365 * DAY_MS)
        layout(61, 1, 1, "s", 0).check_usable(end_ms)
    with pytest.warns(LayoutExpiryWarning, match=r"ours .* ends at 2089-08-30.*wiki") as caught:
        of.check_usable(end_ms - 365 * DAY_MS + 1)
    assert caught[0].filename == __file__


# As a value.


def test_equal_are_those_that_make_the_same_ids() -> None:
    """The name does not count; a layout can be a key."""
    assert layout(name="a") == layout(name="b") == COSID_MS
    assert hash(layout(name="a")) == hash(COSID_MS)
    others = [
        layout(40, 10, 12, "ms", EPOCH_MS),
        layout(40, 11, 12, "ms", EPOCH_MS),
        layout(41, 10, 12, "ms", EPOCH_MS + 1),
        layout(41, 10, 12, "s", EPOCH_MS),
        layout(sequence_first=True),
        layout(region_bits=5),
    ]
    assert len({*others, COSID_MS}) == 7


def test_it_can_be_pickled_and_copied_and_not_changed() -> None:
    """For a worker process; with all that it knows."""
    for twin in (pickle.loads(pickle.dumps(COSID_MS)), copy.deepcopy(COSID_MS)):  # noqa: S301
        assert twin == COSID_MS
        assert twin.compose(1, 2, 3) == COSID_MS.compose(1, 2, 3)
        assert repr(twin) == repr(COSID_MS)
    with pytest.raises(AttributeError):
        COSID_MS.machine_bits = 5  # type: ignore[misc]
    assert isinstance(COSID_MS.parse(5), SnowflakeParts)


def test_its_repr_says_all() -> None:
    """In the order of the bits."""
    assert repr(COSID_MS) == "<SnowflakeLayout cosid-ms 41/10/12 ms from 2019-12-24T16:00:00Z>"
    own = layout(39, 16, 8, timedelta(milliseconds=20), 0, sequence_first=True)
    assert repr(own) == "<SnowflakeLayout 39/8/16 20ms from 1970-01-01T00:00:00Z>"


@given(st.data())
def test_machine_ids_never_meet(data: st.DataObject) -> None:
    """Two machines share no id of any tick."""
    of = data.draw(layouts())
    a, b = data.draw(fields(of)), data.draw(fields(of))
    assume(a[1] != b[1])
    stop = min(of.ids_per_tick, 64)
    assert not {*of.ids(a[0], a[1], 0, stop)} & {*of.ids(b[0], b[1], 0, stop)}


def test_an_epoch_is_in_milliseconds() -> None:
    """One that must be seconds is refused; the last that datetime has is not."""
    for epoch_ms in (0, 253_402_300_799_999):
        assert SnowflakeLayout(41, 10, 12, "ms", epoch_ms).epoch_ms == epoch_ms
    for wrong in (1, -1, 253_402_300_800_000):
        with pytest.raises(InvalidArgumentError, match="epoch"):
            SnowflakeLayout(41, 10, 12, "ms", wrong)


def test_the_last_instant_that_datetime_has() -> None:
    """A layout may end there; one that ends a tick later has none."""
    epoch_ms = 253_402_300_799_999 - (2**41 - 1)
    last = SnowflakeLayout(41, 10, 12, "ms", epoch_ms).last_instant
    assert last == datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    assert SnowflakeLayout(41, 10, 12, "ms", epoch_ms + 1).last_instant is None
