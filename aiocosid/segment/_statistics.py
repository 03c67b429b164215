"""A snapshot of a segment generator.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..abc import Statistics

if TYPE_CHECKING:
    from ..errors import CosIdError
    from ._opening import SegmentOpening

__all__ = ("SegmentStatistics", "picture_of")

NO_SEGMENT: Final = -1  # IdSegment.SEQUENCE_OVERFLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStatistics(Statistics):
    """A frozen snapshot of a `SegmentChainId`, `SegmentId` or `LeafSegmentId`.

    Attributes:
        step: ids per segment; for a `LeafSegmentId` the ids of the next segment.
        head_sequence: the id before the next one that is handed out; None before the first fetch.
        head_offset: the id before the first one of the segment in use; None before the first fetch.
        head_max_id: the last id of the segment in use; None before the first fetch.
        fetch_time: when that segment was fetched, unix time in whole seconds as in CosId; None
            before the first fetch.
        is_expired: whether that segment is older than the ttl.
        max_id: the last id reserved so far; None before the first fetch.
        remaining: buffered ids: reserved and not yet handed out.
        safe_distance: segments kept ahead at rest.
        prefetch_distance: segments kept ahead now.
        starvations: how often a caller found the chain empty.
        waits: callers that had to wait; one starvation can make several wait.
        waiting: callers that wait now.
        fetches: calls to the store that brought ids.
        failures: calls to the store that failed.
        ids_fetched: ids reserved in the store.
        ids_handed_out: ids given to callers.
        ids_discarded: ids that no caller gets, because they expired, their caller was cancelled,
            the generator was closed, or they are above the limit.
        rate: ids per second that callers took lately.
        seconds_left: how long the buffered ids last at that rate; None while none are taken.
        last_error: the store's latest error; None after a fetch that succeeded.
        ended: why it hands out no more ids: it is not open, the store lost writes, or the ids are
            used up; None while it serves.
        endurance: seconds that the buffered ids should last while the store is down; 0 without
            such a reserve.
        distributor: the distributor's own statistics; None if it has none.
    """

    step: int
    head_sequence: int | None
    head_offset: int | None
    head_max_id: int | None
    fetch_time: int | None
    is_expired: bool
    max_id: int | None
    remaining: int
    safe_distance: int
    prefetch_distance: int
    starvations: int
    waits: int
    waiting: int
    fetches: int
    failures: int
    ids_fetched: int
    ids_handed_out: int
    ids_discarded: int
    rate: float
    seconds_left: float | None
    last_error: Exception | None
    ended: CosIdError | None
    endurance: float = 0.0
    distributor: object | None = None

    def as_tree(self) -> dict[str, object]:
        """Return the snapshot as CosId's actuator shows a segment, followed by further keys.

        While there is no segment, the values are CosId's for that case: ids of -1, a step of 0,
        overflow.
        """
        ours = Statistics.as_tree(self)  # super() does not work in a dataclass with slots
        taken = ("kind", "headSequence", "headOffset", "headMaxId", "fetchTime", "isExpired")
        for key in taken:
            del ours[key]
        if self.distributor is None:
            del ours["distributor"]
        ours["lastMaxId"], ours["distributorStep"] = ours.pop("maxId"), ours.pop("step")
        return {"kind": self.kind, **self._segment(), "actual": None, "converter": None, **ours}

    def _segment(self) -> dict[str, Any]:
        offset, max_id, sequence = self.head_offset, self.head_max_id, self.head_sequence
        if offset is None or max_id is None or sequence is None:
            offset = max_id = sequence = NO_SEGMENT
        sequence = min(sequence, max_id)  # after closing, later segments were discarded
        is_overflow = sequence >= max_id
        return {
            "fetchTime": self.fetch_time or 0,
            "maxId": max_id,
            "offset": offset,
            "sequence": sequence,
            "step": max_id - offset,
            "expired": self.is_expired,
            "overflow": is_overflow,
            "available": not (is_overflow or self.is_expired),
        }


def picture_of(opening: SegmentOpening, kind: str) -> SegmentStatistics:
    """Return a snapshot of an opening; cheap, and never waits."""
    life, stock, hand, supply = opening.life, opening.stock, opening.hand, opening.supply
    demand, pace, distributor = opening.demand, opening.pace, supply.distributor
    handed_out, now = stock.handed_out, life.clock.monotonic()
    wall = life.clock.now_ms() / 1000
    rate, head = demand.rate(now), hand.head
    return SegmentStatistics(
        kind=kind,
        namespace=distributor.namespace,
        name=distributor.name,
        step=pace.step,
        head_sequence=supply.head_sequence,
        head_offset=None if head is None else head.offset,
        head_max_id=None if head is None else head.max_id,
        fetch_time=None if head is None else int(wall - (now - head.fetched_at)),
        is_expired=head is not None and head.is_expired(now),
        max_id=supply.last_max_id,
        remaining=hand.ahead,
        safe_distance=pace.safe_distance,
        prefetch_distance=pace.distance,
        starvations=demand.starvations,
        waits=opening.line.waits,
        waiting=len(opening.line),
        fetches=supply.fetches,
        failures=supply.failures,
        ids_fetched=stock.fetched,
        ids_handed_out=handed_out,
        ids_discarded=stock.discarded,
        rate=rate,
        seconds_left=hand.ahead / rate if rate > 0 else None,
        last_error=supply.last_error,
        ended=supply.ended,
        endurance=pace.endurance,
        distributor=distributor.statistics(),
    )
