"""The same generators for threads and synchronous code: scripts, Celery tasks, Django's views.

The generators themselves live on one event loop in a thread of its own, which is started at the
first use and ends when the last one is closed, at the latest with the process.
"""

from __future__ import annotations

from ._generator import SyncIdGenerator as SyncIdGenerator
from ._options import BatchedCached as BatchedCached
from ._options import BatchedChain as BatchedChain
from ._options import BatchedCosId as BatchedCosId
from ._options import BatchedGroups as BatchedGroups
from ._options import BatchedInner as BatchedInner
from ._options import BatchedLeaf as BatchedLeaf
from ._options import BatchedSegment as BatchedSegment
from ._options import BatchedSnowflake as BatchedSnowflake
from ._options import BatchOptions as BatchOptions
from ._provider import SyncIdProvider as SyncIdProvider
from ._provider import SyncProvider as SyncProvider
from ._provider import connect as connect

__all__ = (
    "BatchOptions",
    "BatchedCached",
    "BatchedChain",
    "BatchedCosId",
    "BatchedGroups",
    "BatchedInner",
    "BatchedLeaf",
    "BatchedSegment",
    "BatchedSnowflake",
    "SyncIdGenerator",
    "SyncIdProvider",
    "SyncProvider",
    "connect",
)
