"""The ready-made layouts against ids that their systems printed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aiocosid.errors import InvalidArgumentError, LayoutExpiredError
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    JAVASCRIPT_SAFE_MS,
    JAVASCRIPT_SAFE_S,
    LAYOUTS,
    LEAF,
    SONYFLAKE_V1,
    SONYFLAKE_V2,
    TWITTER,
    UID_GENERATOR,
    UID_GENERATOR_2016_09,
    UID_GENERATOR_SPRING,
    SnowflakeLayout,
    sharded,
)

CHINA = timezone(timedelta(hours=8))

# widths from the highest bit down, unit, epoch, end
FACTS: dict[str, tuple[tuple[int, int, int], int, str, str]] = {
    "cosid-ms": ((41, 10, 12), 1, "2019-12-24T16:00:00Z", "2089-08-30T07:47:35.551Z"),
    "cosid-s": ((31, 10, 22), 1000, "2019-12-24T16:00:00Z", "2088-01-11T19:14:07Z"),
    "javascript-safe-ms": ((41, 3, 9), 1, "2019-12-24T16:00:00Z", "2089-08-30T07:47:35.551Z"),
    "javascript-safe-s": ((31, 3, 19), 1000, "2019-12-24T16:00:00Z", "2088-01-11T19:14:07Z"),
    "twitter": ((41, 10, 12), 1, "2010-11-04T01:42:54.657Z", "2080-07-10T17:30:30.208Z"),
    "leaf": ((41, 10, 12), 1, "2010-11-04T01:42:54.657Z", "2080-07-10T17:30:30.208Z"),
    "uid-generator": ((28, 22, 13), 1000, "2016-05-19T16:00:00Z", "2024-11-20T13:24:15Z"),
    "uid-generator-2016-09": ((29, 21, 13), 1000, "2016-09-19T16:00:00Z", "2033-09-24T10:48:31Z"),
    "uid-generator-spring": ((30, 16, 7), 1000, "2019-02-19T16:00:00Z", "2053-02-28T05:37:03Z"),
    "uid-generator-ha": ((40, 10, 13), 1000, "2016-05-19T16:00:00Z", "+36858-07-08T16:36:15Z"),
    "sonyflake-v1": ((39, 8, 16), 10, "2014-09-01T00:00:00Z", "2188-11-16T03:28:58.870Z"),
    "sonyflake-v2": ((39, 8, 16), 10, "2025-01-01T00:00:00Z", "2199-03-19T03:28:58.870Z"),
    "discord": ((41, 10, 12), 1, "2015-01-01T00:00:00Z", "2084-09-06T15:47:35.551Z"),
    "instagram": ((40, 13, 10), 1, "2011-08-24T21:07:01.721Z", "2046-06-27T17:00:49.496Z"),
    "mastodon": ((47, 1, 15), 1, "1970-01-01T00:00:00Z", "6429-10-17T02:45:55.327Z"),
}


def test_every_layout_has_its_facts() -> None:
    assert set(LAYOUTS) == set(FACTS)
    assert all(of.name == name for name, of in LAYOUTS.items())


@pytest.mark.parametrize("name", FACTS)
def test_widths_unit_epoch_and_end(name: str) -> None:
    """As the sources of each system say."""
    of = LAYOUTS[name]
    low = (of.machine_bits, of.sequence_bits)
    widths = (of.timestamp_bits, *(low[::-1] if of.sequence_first else low))
    epoch = of.epoch.isoformat(timespec="auto").replace("000+00:00", "Z").replace("+00:00", "Z")
    assert (widths, of.unit_ms, epoch, of.last_instant_text) == FACTS[name]


def test_which_are_safe_in_javascript() -> None:
    safe = {name for name, of in LAYOUTS.items() if of.is_javascript_safe}
    assert safe == {"javascript-safe-ms", "javascript-safe-s", "uid-generator-spring"}


# Ids that were printed.


def parts(of: SnowflakeLayout, number: int, zone: Any = UTC) -> tuple[str, int, int]:
    read = of.parse(number, zone)
    return read.timestamp.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], read.machine_id, read.sequence


@pytest.mark.parametrize(
    ("of", "number", "due"),
    [
        # A sample of Leaf's issue tracker, and the one in LeafMonitorController.
        (LEAF, 1256557484213448722, ("2020-05-02 20:13:44.602", 619, 18)),
        (LEAF, 278898726177 * 2**22 + 39 * 4096 + 3448, ("2019-09-06 09:35:00.834", 39, 3448)),
        # The sample in uid-generator's README has the widths of the README's example.
        (UID_GENERATOR_2016_09, 180363646902239241, ("2017-01-19 12:15:46.000", 4, 9)),
        (UID_GENERATOR_SPRING, 450795408770, ("2019-02-20 14:55:39.000", 27, 2)),
    ],
)
def test_printed(of: SnowflakeLayout, number: int, due: tuple[str, int, int]) -> None:
    assert parts(of, number, CHINA) == due


def test_twitter() -> None:
    """Leaf's sample by Twitter's widths: data centre and worker."""
    read = TWITTER.parse(1256557484213448722)
    assert (read.region, read.worker) == (19, 11)
    assert TWITTER.machine_of(19, 11) == 619
    assert LEAF.compose(LEAF.tick_at(read.timestamp_ms), 619, 18) == 1256557484213448722


@pytest.mark.parametrize("of", [SONYFLAKE_V1, SONYFLAKE_V2])
def test_sonyflake(of: SnowflakeLayout) -> None:
    """Its pull request 25: the sequence lies above the machine id."""
    assert of.compose(100, 127, 0) == 1677721727
    assert of.compose(100, 127, 1) == 1677787263
    assert list(of.ids(100, 127, 0, 2)) == [1677721727, 1677787263]
    read = of.parse(1677787263)
    assert (read.timestamp - of.epoch, read.machine_id, read.sequence) == (
        timedelta(seconds=1),
        127,
        1,
    )


def test_others_can_be_described() -> None:
    """Icicle 2 and redis-id-generator, by samples of theirs."""
    icicle = SnowflakeLayout(41, 10, 12, "ms", 1455788600316)
    assert icicle.compose(icicle.tick_at(1489959427000), 789, 456) == 143322835047240136
    redis = SnowflakeLayout(41, 12, 10, "ms", 0)
    assert redis.compose(1426212000000, 53, 4) == 5981966696448054276


# uid-generator's end.


def test_uid_generators_default_has_ended() -> None:
    """N2: a second after its last; the error says where to go."""
    last_ms = int(datetime(2024, 11, 20, 13, 24, 15, tzinfo=UTC).timestamp()) * 1000
    with pytest.raises(LayoutExpiredError) as caught:
        UID_GENERATOR.check_usable(last_ms + 1000)
    assert caught.value.last_instant == "2024-11-20T13:24:15Z"
    for name in ("uid-generator-2016-09", "uid-generator-spring"):
        assert repr(name) in str(caught.value)
        assert LAYOUTS[name].epoch < datetime(2024, 1, 1, tzinfo=UTC)
    UID_GENERATOR_SPRING.check_usable(last_ms)
    UID_GENERATOR_2016_09.check_usable(last_ms)


def test_the_advised_successor_repeats_no_old_id() -> None:
    """Its highest id is below those of uid-generator's fourth day; the other's is not."""
    fourth_day = UID_GENERATOR.compose(4 * 86_400, 0, 0)
    assert UID_GENERATOR_SPRING.max_id < fourth_day
    assert UID_GENERATOR_2016_09.max_id > fourth_day


# The sharded layout.

SHARDED_EPOCH = datetime(2019, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("second", "shard", "sequence", "number"),
    [
        (1546300800, 0, 1, 1),
        (1700000000, 7, 42, 330066518714351658),
        (1700000000, 0, 524287, 330066518711205887),
        (1700000000, 4095, 1, 330066520857640961),
        (5841268095, 4095, 524287, 9223372036854775807),
    ],
)
def test_sharded(second: int, shard: int, sequence: int, number: int) -> None:
    of = sharded(SHARDED_EPOCH)
    assert of.compose(of.tick_at(second * 1000), shard, sequence) == number
    read = of.parse(number)
    assert (read.timestamp_ms, read.machine_id, read.sequence) == (second * 1000, shard, sequence)


def test_the_sharded_layout_carries_nothing_into_the_shard() -> None:
    """The printed design allows a sequence of 524,288."""
    of = sharded(1546300800000)
    assert of == sharded(SHARDED_EPOCH)
    assert of.name == "sharded"
    with pytest.raises(InvalidArgumentError, match="sequence"):
        of.compose(1, 0, 524288)
    with pytest.raises(InvalidArgumentError, match="in seconds"):
        sharded(1546300800)


def test_the_javascript_safe_ones_are_cosids_with_fewer_machines() -> None:
    assert JAVASCRIPT_SAFE_MS.machine_count == JAVASCRIPT_SAFE_S.machine_count == 8
    assert JAVASCRIPT_SAFE_MS.epoch_ms == COSID_MS.epoch_ms
    assert JAVASCRIPT_SAFE_S.epoch_ms == COSID_S.epoch_ms
