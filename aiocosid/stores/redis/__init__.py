"""Counters on Redis or Valkey: one server, Cluster, Sentinel.  Requires the ``redis`` extra.

The keys are CosId's: ``cosid:{<namespace>.<name>}.adder`` holds the last max id handed out, and
never expires.
"""

from __future__ import annotations

from ._segment import RedisIdSegmentDistributor as RedisIdSegmentDistributor
from ._store import RedisStore as RedisStore

__all__ = ("RedisIdSegmentDistributor", "RedisStore")
