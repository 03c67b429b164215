"""What a tiered distributor can say about itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("Tally", "TieredStatistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStatistics:
    """A picture of a `TieredIdSegmentDistributor` at one moment; it counts what went through it.

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


@dataclass(slots=True)
class Tally:
    """The same, being counted."""

    cache_failures: int = 0
    segments_from_cache: int = 0
    segments_from_root: int = 0
    root_trips: int = 0
    missing: int = 0
    server: int = 0
    damaged: int = 0
    behind: int = 0
    left: int = 0
    ids_abandoned: int = 0

    def leased(self, why: str) -> None:
        """Count a span, by what was wrong with the one before."""
        setattr(self, why, getattr(self, why) + 1)

    def picture(self, *, is_cache_up: bool) -> TieredStatistics:
        """Return what was counted so far."""
        return TieredStatistics(
            is_cache_up=is_cache_up,
            cache_failures=self.cache_failures,
            segments_from_cache=self.segments_from_cache,
            segments_from_root=self.segments_from_root,
            root_trips=self.root_trips,
            spans=self.missing + self.server + self.damaged + self.behind + self.left,
            spans_missing=self.missing,
            spans_of_another_server=self.server,
            spans_damaged=self.damaged,
            spans_behind=self.behind,
            spans_used_up=self.left,
            ids_abandoned=self.ids_abandoned,
        )
