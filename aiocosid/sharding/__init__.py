"""Sharding: determines which table or database holds a key, by remainder or by time."""

from __future__ import annotations

from ._algorithm import SHARDING_PROPERTIES as SHARDING_PROPERTIES
from ._algorithm import sharding_algorithm as sharding_algorithm
from ._interval_timeline import IntervalTimeline as IntervalTimeline
from ._keys import SnowflakeTimeKey as SnowflakeTimeKey
from ._keys import StandardTimeKey as StandardTimeKey
from ._keys import TimeKey as TimeKey
from ._range import ShardRange as ShardRange
from ._sharding import ModCycle as ModCycle
from ._sharding import Sharding as Sharding

__all__ = (
    "SHARDING_PROPERTIES",
    "IntervalTimeline",
    "ModCycle",
    "ShardRange",
    "Sharding",
    "SnowflakeTimeKey",
    "StandardTimeKey",
    "TimeKey",
    "sharding_algorithm",
)
