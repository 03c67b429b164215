"""A durable store beneath a fast one: no id repeats, even if the fast one loses its data.

Requires the ``redis`` extra.  The root leases spans of ids; Redis or Valkey hands out segments
within a span, by one script.  A span is valid only on the server that opened it, until that
restarts; after a restart, a fail-over or a loss of data a new one is leased.
"""

from __future__ import annotations

from ._store import TieredStatistics as TieredStatistics
from ._store import TieredStore as TieredStore

__all__ = ("TieredStatistics", "TieredStore")
