"""Statistics of a generator of sharded ids."""

from __future__ import annotations

from dataclasses import dataclass

from ..abc import Statistics

__all__ = ("ShardedStatistics",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedStatistics(Statistics):
    """The state of a `ShardedId` at one moment.

    Attributes:
        layout: the layout's bits, epoch and zone.
        sharding_id: the default sharding id.
        max_sequence: the highest sequence that the store grants.
        second: the second of the last id, since 1970; -1 before the first.
        remaining: ids in hand of this second.
        prefetched: ids in hand of the next second.
        rate: the mean number of ids that callers take per second.
        batch: sequences in the last request to the store.
        ids_handed_out: ids given to callers.
        ids_discarded: dropped ids: their second was over, or the caller had gone.
        ids_not_granted: those of `ids_handed_out` that came from a lane, or were guessed.
        grants: answers of the store that could be used.
        ids_granted: sequences in them.
        failures: calls to the store that failed.
        spent: answers that a second is used up.
        fenced: answers that a second's counter may have been lost.
        skewed: answers that the clocks disagree.
        waits: callers that had to wait.
        waiting: callers that wait now.
        on_unavailable: what is done while the store cannot be reached.
        is_away: whether the last call to the store failed.
        last_error: the store's latest error; None after a call that succeeded.
        last_instant: the end of the layout, ISO 8601 in UTC.
    """

    layout: str
    sharding_id: int
    max_sequence: int
    second: int
    remaining: int
    prefetched: int
    rate: float
    batch: int
    ids_handed_out: int
    ids_discarded: int
    ids_not_granted: int
    grants: int
    ids_granted: int
    failures: int
    spent: int
    fenced: int
    skewed: int
    waits: int
    waiting: int
    on_unavailable: str
    is_away: bool
    last_error: Exception | None
    last_instant: str
