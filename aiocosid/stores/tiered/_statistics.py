"""What a tiered distributor can say about itself."""

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
"""What was wrong with the span before, as Redis says it, and what is counted then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStatistics:
    """A picture of a `TieredStore`'s distributor at one moment; it counts what went through it.

    Attributes:
        is_cache_up: whether the cache answered when it was asked last.
        cache_failures: calls to the cache that failed.
        segments_from_cache: segments within a span.
        segments_from_root: segments that the root gave directly.
        root_trips: calls to the root, for spans and for segments.
        spans: spans leased.
        spans_missing: of these, because the cache held none.
        spans_of_another_server: because the one in the cache was opened by another server, or in
            another life of it.
        spans_damaged: because what the cache held was no span.
        spans_behind: because the one in the cache was behind an id seen here.
        spans_used_up: because too few ids were left.
        ids_abandoned: ids of spans that were given up, as far as is known.
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
    """The same, being counted by its name."""

    def picture(self, *, is_cache_up: bool) -> TieredStatistics:
        """Return what was counted so far."""
        names = [field.name for field in fields(TieredStatistics) if field.name != "is_cache_up"]
        return TieredStatistics(is_cache_up=is_cache_up, **{name: self[name] for name in names})
