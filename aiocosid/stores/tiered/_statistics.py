"""Statistics of a tiered distributor."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Final

__all__ = ("SPANS", "TierTally", "TieredStatistics")

SPANS: Final = {
    "missing": "spans_missing",
    "server": "spans_of_another_server",
    "damaged": "spans_damaged",
    "behind": "spans_behind",
    "left": "spans_used_up",
}
"""Redis's reason for a new span, and the field that counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStatistics:
    """The state of a `TieredStore`'s distributor at one moment; it counts its own calls.

    Attributes:
        is_cache_up: whether the last call to the cache succeeded.
        cache_failures: calls to the cache that failed.
        segments_from_cache: segments within a span.
        segments_from_root: segments directly from the root.
        root_trips: calls to the root, for spans and for segments.
        spans: spans leased.
        spans_missing: of these, because the cache held none.
        spans_of_another_server: because the span in the cache was opened by another server, or
            before its restart.
        spans_damaged: because the cache's value was no span.
        spans_behind: because the one in the cache was behind an id seen here.
        spans_used_up: because too few ids were left.
        ids_abandoned: ids of abandoned spans, as far as is known.
    """

    is_cache_up: bool
    cache_failures: int
    segments_from_cache: int
    segments_from_root: int
    root_trips: int
    spans: int
    spans_missing: int
    spans_of_another_server: int
    spans_damaged: int
    spans_behind: int
    spans_used_up: int
    ids_abandoned: int


class TierTally(Counter[str]):
    """The counters of the statistics, by name."""

    def picture(self, *, is_cache_up: bool) -> TieredStatistics:
        """Return what was counted so far."""
        names = [field.name for field in fields(TieredStatistics) if field.name != "is_cache_up"]
        return TieredStatistics(is_cache_up=is_cache_up, **{name: self[name] for name in names})
