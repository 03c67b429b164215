"""The layouts of known systems, with their epochs and sources.  Pure.

Sources: CosId 3.2.1, Twitter's snowflake of 2010, Leaf 1.0.1, uid-generator and its forks,
sonyflake 1 and 2; all were checked against ids that those systems printed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ._layout import SnowflakeLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = (
    "COSID_MS",
    "COSID_S",
    "JAVASCRIPT_SAFE_MS",
    "JAVASCRIPT_SAFE_S",
    "LAYOUTS",
    "LEAF",
    "SONYFLAKE_V1",
    "SONYFLAKE_V2",
    "TWITTER",
    "UID_GENERATOR",
    "UID_GENERATOR_2016_09",
    "UID_GENERATOR_HA",
    "UID_GENERATOR_SPRING",
    "sharded",
)

COSID_EPOCH_MS: Final = 1_577_203_200_000  # 2019-12-24T16:00Z; CosId.COSID_EPOCH
TWITTER_EPOCH_MS: Final = 1_288_834_974_657  # 2010-11-04T01:42:54.657Z; IdWorker.twepoch

# uid-generator reads `epochStr` in the zone of its JVM; these are midnights in its authors' zone.
CHINA: Final = timezone(timedelta(hours=8))

COSID_MS: Final = SnowflakeLayout(41, 10, 12, "ms", COSID_EPOCH_MS, name="cosid-ms")
"""CosId's MillisecondSnowflakeId: 1024 machines, 4096 ids a millisecond, until 2089-08-30."""

COSID_S: Final = SnowflakeLayout(31, 10, 22, "s", COSID_EPOCH_MS, name="cosid-s")
"""CosId's SecondSnowflakeId: 1024 machines, 4,194,304 ids a second, until 2088-01-11."""

JAVASCRIPT_SAFE_MS: Final = SnowflakeLayout(
    41, 3, 9, "ms", COSID_EPOCH_MS, name="javascript-safe-ms"
)
"""CosId's SafeJavaScriptSnowflakeId.ofMillisecond: 8 machines, 512 ids a millisecond."""

JAVASCRIPT_SAFE_S: Final = SnowflakeLayout(31, 3, 19, "s", COSID_EPOCH_MS, name="javascript-safe-s")
"""CosId's SafeJavaScriptSnowflakeId.ofSecond: 8 machines, 524,288 ids a second."""

TWITTER: Final = SnowflakeLayout(41, 10, 12, "ms", TWITTER_EPOCH_MS, region_bits=5, name="twitter")
"""Twitter's snowflake of 2010: 32 data centres of 32 workers, until 2080-07-10."""

LEAF: Final = SnowflakeLayout(41, 10, 12, "ms", TWITTER_EPOCH_MS, name="leaf")
"""Leaf's SnowflakeIDGenImpl with its default ``twepoch``, which is Twitter's; 1024 workers."""

UID_GENERATOR: Final = SnowflakeLayout(
    28,
    22,
    13,
    "s",
    datetime(2016, 5, 20, tzinfo=CHINA),
    name="uid-generator",
    remedy="use UID_GENERATOR_HA ('uid-generator-ha') or UID_GENERATOR_SPRING "
    "('uid-generator-spring'), whose ids are below all ids of uid-generator after its first "
    "three days (check yours with aiocosid.snowflake.clearance()), or in a new table "
    "UID_GENERATOR_2016_09 ('uid-generator-2016-09'), whose ids can equal old ones",
)
"""Baidu's uid-generator with its default bits: ended at 2024-11-20T13:24:15Z; for reading ids."""

UID_GENERATOR_2016_09: Final = SnowflakeLayout(
    29, 21, 13, "s", datetime(2016, 9, 20, tzinfo=CHINA), name="uid-generator-2016-09"
)
"""The example configuration in uid-generator's README: 2,097,152 workers, until 2033-09-24."""

UID_GENERATOR_SPRING: Final = SnowflakeLayout(
    30, 16, 7, "s", datetime(2019, 2, 20, tzinfo=CHINA), name="uid-generator-spring"
)
"""uid-generator-spring-boot-starter, the fork on Maven Central: 65,536 workers, 128 ids a second,
until 2053-02-28; JavaScript-safe."""

UID_GENERATOR_HA: Final = SnowflakeLayout(
    40, 10, 13, "s", datetime(2016, 5, 20, tzinfo=CHINA), name="uid-generator-ha"
)
"""uid-generator's fork that recycles worker ids: 1024 workers, 8192 ids a second, until 36858; its
ids fit JavaScript until 2050.  What `CachedSnowflakeId` uses by default."""

SONYFLAKE_V1: Final = SnowflakeLayout(
    39,
    16,
    8,
    "10ms",
    datetime(2014, 9, 1, tzinfo=UTC),
    sequence_first=True,
    name="sonyflake-v1",
)
"""sonyflake: time, sequence, machine; 65,536 machines, 256 ids in 10 ms, until 2188-11-16."""

SONYFLAKE_V2: Final = SnowflakeLayout(
    39,
    16,
    8,
    "10ms",
    datetime(2025, 1, 1, tzinfo=UTC),
    sequence_first=True,
    name="sonyflake-v2",
)
"""sonyflake/v2 with its default bits: as version 1, but with another epoch: its ids start again."""

LAYOUTS: Final[Mapping[str, SnowflakeLayout]] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            COSID_MS,
            COSID_S,
            JAVASCRIPT_SAFE_MS,
            JAVASCRIPT_SAFE_S,
            TWITTER,
            LEAF,
            UID_GENERATOR,
            UID_GENERATOR_2016_09,
            UID_GENERATOR_SPRING,
            UID_GENERATOR_HA,
            SONYFLAKE_V1,
            SONYFLAKE_V2,
        )
    }
)
"""The predefined layouts by name, ``LAYOUTS["cosid-ms"]``; `sharded` needs your own epoch."""


def sharded(epoch: datetime | int) -> SnowflakeLayout:
    """Return the layout of the Redis generator whose ids carry their shard: 32/12/19, in seconds.

    The machine id is the shard, 0 to 4095.  The sequence, 1 to 524,287, is shared by all shards of
    a second, and 0 is never used.  It lasts 136 years.

    Args:
        epoch: whole seconds, as in `SnowflakeLayout`; there is no default that other nodes share.

    Raises:
        InvalidArgumentError: the epoch does not fit.
    """
    return SnowflakeLayout(32, 12, 19, "s", epoch, name="sharded")
