"""Counters and machine ids on Redis or Valkey: one server, Cluster, Sentinel.

Requires the ``redis`` extra.  The keys are CosId's, and never expire:
``cosid:{<namespace>.<name>}.adder`` holds the last max id handed out,
``cosid:{<namespace>}:itc_idx``, ``:adder`` and ``:revert`` hold the machine ids.  Beside them lie
``:mark``, ``:stable``, ``:token`` and ``:seen``, of which CosId knows nothing.  Sequences of
a second lie where you say, for some minutes; their fence never expires.
"""

from __future__ import annotations

from ._machine import RedisMachineIdDistributor as RedisMachineIdDistributor
from ._segment import RedisIdSegmentDistributor as RedisIdSegmentDistributor
from ._sequence import RedisSequenceDistributor as RedisSequenceDistributor
from ._store import RedisStore as RedisStore

__all__ = (
    "RedisIdSegmentDistributor",
    "RedisMachineIdDistributor",
    "RedisSequenceDistributor",
    "RedisStore",
)
