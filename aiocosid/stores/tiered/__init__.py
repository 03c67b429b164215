"""A durable store beneath a fast one: no id repeats, whatever the fast one forgets.

Requires the ``redis`` extra.  The root leases spans of ids; Redis or Valkey hands out segments
within a span, by one script.  A span is good only on the server that opened it, in the life in
which it did; after a restart, a fail-over or a loss of data a new one is leased.
"""

from __future__ import annotations

from ._statistics import TieredStatistics as TieredStatistics
from ._store import TieredStore as TieredStore

__all__ = ("TieredStatistics", "TieredStore")
