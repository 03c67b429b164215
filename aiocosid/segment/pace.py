"""How far ahead to fetch.  Pure.

After one blip, CosId doubles its distance on every run of its worker for five seconds, and fetches
that much each time.  Here a starvation doubles the distance once, a segment is fetched only when
one is missing, and a quiet period halves the distance again.

A consumer takes at most ``c`` ids while a fetch is under way.  The distance settles between
``5/3 c`` and ``10/3 c``, mostly below ``25/12 c``: starvations double it, and from there it grows
by quarters until a fetch leaves two fifths of it.  If a caller takes more ids at once than the
distance has, the distance becomes twice as long as that batch.

The distance is for a store that is slow.  The *reserve* is for a store that is down: as many ids as
callers take in ``endurance`` seconds at the measured rate.  When fewer are buffered, the chain
fetches up to one and a half times the reserve.
"""

from __future__ import annotations

from math import inf
from typing import Final

__all__ = (
    "CHAIN_STEP",
    "ENDURANCE",
    "MAX_DISTANCE",
    "MAX_IDS_AHEAD",
    "QUIET_PERIOD",
    "Pace",
    "RateMeter",
)

WINDOW: Final = 2.0
"""Seconds; a rate is measured over one to two of them."""

CHAIN_STEP: Final = 100
"""Ids.  A small step keeps a seldom used counter dense; the reserve sizes a busy one's fetches."""

MAX_DISTANCE: Final = 4_096_000
"""Ids.  At full speed, a consumer of a store that takes 50 ms needs 1 to 2 million of them."""

MAX_IDS_AHEAD: Final = 2**24
"""Ids (16.8 million): 100,000 a second for 90 s are 9 million, and a step may be far above 1000."""

ENDURANCE: Final = 60.0
"""Seconds.  A fail-over of Redis Sentinel or of a managed PostgreSQL takes less."""

REFILL: Final = 1.5
"""The chain fills up to this multiple of the reserve: a third of it is used between two fetches."""

SPARE: Final = 2.0
"""Seconds added to the endurance: the next call begins up to a second after an outage has ended,
and a piece may end half a second after the ids fell below the reserve."""

SPACE_SHARE: Final = 1000
"""A refill is at most one part in this many of the ids that are left below the limit."""

FRESH: Final = 0.75
"""A refill lasts at most this share of the ttl, so that its last id is not too old."""

SMALLEST_PIECE: Final = 16
"""Ids; the size of the first piece of a reserve, and the minimum later."""

BRISK: Final = 0.1
"""Seconds; a piece that lasts less is followed by one of twice as many ids."""

SLOW: Final = 0.5
"""Seconds; a piece that lasts more is followed by one of half as many ids."""

QUIET_PERIOD: Final = 5.0
"""Seconds between two checks whether to halve the distance; CosId's hunger time is the same."""

CALM: Final = 2 / 3
"""A distance is halved if this share of it was never used up in a quiet period.

A load that left two thirds uses up one third in a fetch, which is two thirds of the halved
distance.  If that is too tight, the distance grows by a quarter, which is enough; so a steady load
cannot halve and grow it for ever.
"""

TIGHT: Final = 3 / 5
"""The share of a grown distance that one fetch may use up.

The next fetch may then use two thirds more, because the store is slower or the load is higher,
before a caller starves.
"""

FINER: Final = 4
"""A tight fetch lengthens the distance by one part in this many; a starvation doubles it."""


class Pace:
    """The prefetch distance in segments; starvation doubles it, quiet halves it.

    Attributes:
        step: ids per segment.
        safe_distance: segments kept ahead at rest; 0 for a generator that never prefetches.
        distance: segments kept ahead now.
        limit: the longest distance: the safe distance, or what the maximum of ids allows.
        endurance: seconds that the reserve lasts; 0 for none.
        reserve: minimum of buffered ids, in case the store goes down; 0 while the rate is not
            known.
    """

    __slots__ = (
        "_cut_at",
        "_excused",
        "_low_water",
        "_max_distance",
        "_max_ids_ahead",
        "_piece",
        "_ttl",
        "_under_way",
        "distance",
        "endurance",
        "limit",
        "reserve",
        "safe_distance",
        "step",
    )

    def __init__(
        self,
        *,
        step: int,
        safe_distance: int,
        max_distance: int = MAX_DISTANCE,
        max_ids_ahead: int = MAX_IDS_AHEAD,
        endurance: float = 0.0,
        ttl: float = inf,
    ) -> None:
        self.step: int = step
        self.safe_distance: int = safe_distance
        self.distance: int = safe_distance
        self.limit: int = max(safe_distance, min(max_distance, max_ids_ahead) // step)
        self._low_water = 0
        self._under_way = 0  # segments that the latest fetches saw used up while under way
        self._excused = False  # whether a starvation was excused, as the distance was not full yet
        self.reserve: int = 0
        self._max_distance, self._max_ids_ahead = max_distance, max_ids_ahead
        self.endurance: float = endurance
        self._ttl = ttl
        self._piece = SMALLEST_PIECE
        self._cut_at = 0.0

    @property
    def target(self) -> int:
        """Ids to keep ahead of the consumer."""
        return self.distance * self.step

    @property
    def keeps_none(self) -> bool:
        """Whether ids are fetched only for callers that already wait, and none is buffered."""
        return self.safe_distance == 0 and self.step == 1

    @property
    def is_grown(self) -> bool:
        """Whether the distance is longer than at rest."""
        return self.distance > self.safe_distance

    # For a pace that adapts to the load.

    def plan(self, now: float, rate: float, space: int) -> None:  # noqa: ARG002 - for a subclass
        """Adapt to the load before the next count of what is missing.

        Args:
            now: seconds; used by a pace whose step changes.
            rate: ids per second that callers took lately; 0 while that is not known.
            space: ids that are left below the limit.
        """
        if self.endurance:
            fresh = rate * self._ttl * FRESH
            most = min(self._max_ids_ahead, space // SPACE_SHARE, fresh) / REFILL
            self.reserve = int(min(rate * (self.endurance + SPARE), most))

    def keep_to(self, least: int) -> None:
        """Keep every step from now on at ``least`` ids or above."""

    def loaded(self, count: int, now: float) -> None:
        """Record that a segment of ``count`` ids arrived at ``now``."""

    # The distance.

    def missing(self, remaining: int, wanted: int) -> int:
        """Return how many segments to fetch if ``remaining`` ids are ahead and ``wanted`` are due.

        What will be used up during the fetch is added, so that the distance is full when the fetch
        ends; but a grown distance is never filled above the limit.
        """
        ahead = remaining - wanted
        refill = 0
        if ahead < self.reserve:
            refill = -(-(int(self.reserve * REFILL) - ahead) // self.step)
        short = self.distance * self.step - ahead
        if short <= 0:
            return refill
        least = -(-short // self.step)
        room = (self.limit * self.step - ahead) // self.step
        segments = min(least + self._under_way, room if self.is_grown else max(room, least))
        return max(segments, refill)

    def piece(self, remaining: int, short: int) -> int:
        """Return how many of ``remaining`` ids to hand out before the next check.

        The check must come when the first segment is missing, and while ids are left, or the fetch
        would come too late.  To keep a reserve, the load must be measured a few times a second; a
        piece lasts about that long.

        Args:
            remaining: ids ahead.
            short: ids of a piece when there are none above the distance.
        """
        size = min(max(short, remaining - self.target), (remaining + 1) // 2)
        if not self.endurance:
            return size
        above = remaining - self.reserve
        return min(size, self._piece, max(above, SMALLEST_PIECE) if above > 0 else size)

    def landed(self, *, taken: int, demand: float, starved: bool) -> bool:
        """Adapt to what happened during a fetch; return whether the distance grew.

        A starvation doubles the distance.  A tight fetch makes it a quarter longer before a caller
        starves.  One starvation is excused if the ids that were buffered when the fetch began, at
        the speed at which they went, show that the distance would have been long enough: it was
        doubled before, but has not been filled yet.

        Args:
            taken: ids taken during the fetch.
            demand: ids that would have been taken, had there been enough.
            starved: whether a caller found the chain empty.
        """
        # One blip at rest costs one doubling and nothing else.
        blip = starved and not self.is_grown
        lately = max(taken // self.step, self._under_way // 2)
        self._under_way = 0 if blip else min(lately, self.distance)
        enough = demand <= self.target * TIGHT
        if not starved and (enough or not self.is_grown):
            return False
        if enough and not self._excused:
            self._excused = True
            return False
        before = self.distance
        self.distance = min(before + (before if starved else -(-before // FINER)), self.limit)
        self._low_water = 0  # the current quiet period can no longer halve the distance
        self._excused = False
        return self.distance > before

    def asked_for(self, n: int) -> bool:
        """Adapt to a caller that takes ``n`` ids at once; return whether the distance grew.

        If that is more than the distance, the distance becomes as long as two such batches: while
        one is served, the next one's ids are fetched.  What a fetch uses up would say too little,
        since a waiting caller takes nothing meanwhile.
        """
        if not self.safe_distance or n <= self.target:
            return False
        before = self.distance
        self.distance = max(before, min(-(-2 * n // self.step), self.limit))
        self._low_water = 0  # the current quiet period can no longer halve the distance
        return self.distance > before

    def note(self, remaining: int, now: float) -> None:
        """Record how many ids are ahead at the end of a piece, and how long the piece lasted."""
        self._low_water = min(self._low_water, remaining)
        lasted, self._cut_at = now - self._cut_at, now
        if lasted < BRISK:
            self._piece = min(self._piece * 2, self._max_ids_ahead)
        elif lasted > SLOW:
            self._piece = max(self._piece // 2, SMALLEST_PIECE)

    def end_period(self, remaining: int, *, idle: bool) -> bool:
        """End a quiet period and start the next; return whether the distance was halved.

        Args:
            remaining: ids ahead now, the first sample of the next period.
            idle: whether no caller took an id, or waited for one, in the whole period.
        """
        calm = idle or self._low_water > self.target * CALM
        self._low_water = remaining
        if calm and self.is_grown:
            self.distance = max(self.distance // 2, self.safe_distance)
            return True
        return False


class RateMeter:
    """Measures ids per second, from samples taken when a piece ends or a segment arrives."""

    __slots__ = ("_count", "_newer_at", "_newer_count", "_since")

    def __init__(self, now: float) -> None:
        self._since = self._newer_at = now
        self._count = self._newer_count = 0

    def note(self, now: float, handed_out: int) -> None:
        """Take a sample, at most one per window."""
        if now - self._newer_at >= WINDOW:
            self._since, self._count = self._newer_at, self._newer_count
            self._newer_at, self._newer_count = now, handed_out

    def sustained(self, now: float, handed_out: int) -> float:
        """Return ids per second over at least one window; 0 before the first one has passed."""
        return self.rate(now, handed_out) if now - self._since >= WINDOW else 0.0

    def rate(self, now: float, handed_out: int) -> float:
        """Return ids per second since the older sample."""
        elapsed = now - self._since
        return (handed_out - self._count) / elapsed if elapsed > 0 else 0.0
