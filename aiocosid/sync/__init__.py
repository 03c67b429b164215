"""The same generators for threads and synchronous code: scripts, Celery tasks, Django's views.

The generators themselves run on one event loop in a background thread, which starts at the first
use and ends when the last generator is closed, at the latest with the process.
"""

from __future__ import annotations

from ._generator import SyncIdGenerator as SyncIdGenerator
from ._provider import SyncIdProvider as SyncIdProvider
from ._provider import SyncProvider as SyncProvider
from ._provider import connect as connect
from ._session import allow_waiting as allow_waiting
from ._sharded import SyncShardedId as SyncShardedId

__all__ = (
    "SyncIdGenerator",
    "SyncIdProvider",
    "SyncProvider",
    "SyncShardedId",
    "allow_waiting",
    "connect",
)
