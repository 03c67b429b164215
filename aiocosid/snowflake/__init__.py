"""Snowflake ids, made of clock, machine id and sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.lazy import later

if TYPE_CHECKING:
    from ._cached_snowflake_id import CachedSnowflakeId as CachedSnowflakeId
    from ._clearance import Clearance as Clearance
    from ._clearance import clearance as clearance
    from ._cosid_generator import CosIdGenerator as CosIdGenerator
    from ._cosid_state import RADIX36 as RADIX36
    from ._cosid_state import RADIX62 as RADIX62
    from ._cosid_state import CosIdFriendlyText as CosIdFriendlyText
    from ._cosid_state import CosIdRadixText as CosIdRadixText
    from ._cosid_state import CosIdState as CosIdState
    from ._cosid_state import CosIdText as CosIdText
    from ._friendly import FriendlyText as FriendlyText
    from ._layout import COSID_MS as COSID_MS
    from ._layout import COSID_S as COSID_S
    from ._layout import DISCORD as DISCORD
    from ._layout import INSTAGRAM as INSTAGRAM
    from ._layout import JAVASCRIPT_MAX_SAFE_ID as JAVASCRIPT_MAX_SAFE_ID
    from ._layout import JAVASCRIPT_SAFE_MS as JAVASCRIPT_SAFE_MS
    from ._layout import JAVASCRIPT_SAFE_S as JAVASCRIPT_SAFE_S
    from ._layout import LAYOUTS as LAYOUTS
    from ._layout import LEAF as LEAF
    from ._layout import MASTODON as MASTODON
    from ._layout import SONYFLAKE_V1 as SONYFLAKE_V1
    from ._layout import SONYFLAKE_V2 as SONYFLAKE_V2
    from ._layout import TWITTER as TWITTER
    from ._layout import UID_GENERATOR as UID_GENERATOR
    from ._layout import UID_GENERATOR_2016_09 as UID_GENERATOR_2016_09
    from ._layout import UID_GENERATOR_HA as UID_GENERATOR_HA
    from ._layout import UID_GENERATOR_SPRING as UID_GENERATOR_SPRING
    from ._layout import LayoutExpiryWarning as LayoutExpiryWarning
    from ._layout import SnowflakeLayout as SnowflakeLayout
    from ._layout import SnowflakeParts as SnowflakeParts
    from ._layout import sharded as sharded
    from ._sharded_layout import ShardedLayout as ShardedLayout
    from ._sharded_layout import ShardedParts as ShardedParts
    from ._snowflake_id import SnowflakeId as SnowflakeId
    from ._statistics import CachedSnowflakeStatistics as CachedSnowflakeStatistics
    from ._statistics import ShardedStatistics as ShardedStatistics
    from ._statistics import SnowflakeStatistics as SnowflakeStatistics
    from .options import OnEmpty as OnEmpty
    from .options import OnUnavailable as OnUnavailable
    from .sharded_id import ShardedId as ShardedId

__all__ = (
    "COSID_MS",
    "COSID_S",
    "DISCORD",
    "INSTAGRAM",
    "JAVASCRIPT_MAX_SAFE_ID",
    "JAVASCRIPT_SAFE_MS",
    "JAVASCRIPT_SAFE_S",
    "LAYOUTS",
    "LEAF",
    "MASTODON",
    "RADIX36",
    "RADIX62",
    "SONYFLAKE_V1",
    "SONYFLAKE_V2",
    "TWITTER",
    "UID_GENERATOR",
    "UID_GENERATOR_2016_09",
    "UID_GENERATOR_HA",
    "UID_GENERATOR_SPRING",
    "CachedSnowflakeId",
    "CachedSnowflakeStatistics",
    "Clearance",
    "CosIdFriendlyText",
    "CosIdGenerator",
    "CosIdRadixText",
    "CosIdState",
    "CosIdText",
    "FriendlyText",
    "LayoutExpiryWarning",
    "OnEmpty",
    "OnUnavailable",
    "ShardedId",
    "ShardedLayout",
    "ShardedParts",
    "ShardedStatistics",
    "SnowflakeId",
    "SnowflakeLayout",
    "SnowflakeParts",
    "SnowflakeStatistics",
    "clearance",
    "sharded",
)

if not TYPE_CHECKING:  # for a type checker, a module `__getattr__` would make every name valid
    __getattr__, __dir__ = later(
        __name__,
        {
            "._cached_snowflake_id": "CachedSnowflakeId",
            "._clearance": "Clearance clearance",
            "._cosid_generator": "CosIdGenerator",
            "._cosid_state": (
                "RADIX36 RADIX62 CosIdFriendlyText CosIdRadixText CosIdState CosIdText"
            ),
            "._friendly": "FriendlyText",
            "._layout": (
                "COSID_MS COSID_S DISCORD INSTAGRAM JAVASCRIPT_SAFE_MS JAVASCRIPT_SAFE_S "
                "LAYOUTS LEAF MASTODON "
                "SONYFLAKE_V1 SONYFLAKE_V2 TWITTER UID_GENERATOR UID_GENERATOR_2016_09 "
                "UID_GENERATOR_HA UID_GENERATOR_SPRING sharded "
                "JAVASCRIPT_MAX_SAFE_ID LayoutExpiryWarning SnowflakeLayout SnowflakeParts"
            ),
            ".sharded_id": "ShardedId",
            "._sharded_layout": "ShardedLayout ShardedParts",
            ".options": "OnEmpty OnUnavailable",
            "._snowflake_id": "SnowflakeId",
            "._statistics": "CachedSnowflakeStatistics ShardedStatistics SnowflakeStatistics",
        },
    )
