"""How far ahead to buy.  Pure.

CosId doubles its distance on every run of its worker for five seconds after one blip, and buys that
much each time.  Here a starvation doubles the distance once, a segment is bought only when one is
missing, and a quiet period halves the distance again.

A consumer takes at most ``c`` ids while a fetch is under way.  The distance settles between
``5/3 c`` and ``10/3 c``, mostly below ``25/12 c``: starvations double it, and from there it grows
by quarters until a fetch leaves two fifths of it.  A caller that takes more ids at once than the
distance has makes it twice as long as that.

The distance is for a store that is slow.  The *reserve* is for a store that is down: as many ids as
callers take in ``endurance`` seconds at the measured rate.  When fewer are in hand, the chain buys
up to one and a half times the reserve.
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
"""Seconds; a rate is taken over one to two of them."""

CHAIN_STEP: Final = 100
"""Ids; a counter that is seldom used stays dense, and the reserve sizes the trips of a busy one."""

MAX_DISTANCE: Final = 4_096_000
"""Ids.  At full speed, a consumer of a store that takes 50 ms needs 1 to 2 million of them."""

MAX_IDS_AHEAD: Final = 2**24
"""Ids (16.8 million): 100,000 a second for 90 s are 9 million, and a step may be far above 1000."""

ENDURANCE: Final = 60.0
"""Seconds: a fail-over of Redis Sentinel or of a managed PostgreSQL takes less."""

REFILL: Final = 1.5
"""The chain buys so many times the reserve: the next trip is due when a third of that is used."""

SPARE: Final = 2.0
"""Seconds on top of the endurance: the next call begins up to a second after an outage has ended,
and a piece may end half a second after the reserve was reached."""

SPACE_SHARE: Final = 1000
"""A refill is at most this part of the ids that are left below the limit: a thousandth."""

FRESH: Final = 0.75
"""A refill lasts at most this part of the ttl, so that its last id is not too old."""

SMALLEST_PIECE: Final = 16
"""Ids; the first piece of a reserve, and the least later."""

BRISK: Final = 0.1
"""Seconds; a piece that lasts less is followed by one of twice as many ids."""

SLOW: Final = 0.5
"""Seconds; a piece that lasts more is followed by one of half as many ids."""

QUIET_PERIOD: Final = 5.0
"""Seconds between two looks at whether the distance may be halved; CosId's hunger lasts as long."""

CALM: Final = 2 / 3
"""The part of the distance that must never have been used up in a quiet period.

A load that left two thirds uses up a third in a fetch, and two thirds of the halved distance.
If that is too tight, growing by a quarter fixes it; so a steady load cannot halve and grow for
ever.
"""

TIGHT: Final = 3 / 5
"""The part of a grown distance that one fetch may use up.

The next fetch may take two thirds more, since the store is slower or the load is higher, without
anybody starving.
"""

FINER: Final = 4
"""A tight fetch makes the distance longer by one such part, where a starvation doubles it."""


class Pace:
    """The prefetch distance, in segments: doubled by starvation, halved by quiet.

    Attributes:
        step: ids per segment.
        safe_distance: segments kept ahead at rest; 0 for a generator that never prefetches.
        distance: segments kept ahead now.
        limit: the longest distance: the safe distance, or what the maximum of ids allows.
        endurance: seconds that the reserve lasts; 0 for none.
        reserve: ids that are to be in hand at least, for a store that is down; 0 while the rate is
            not known.
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
        self._under_way = 0  # segments used up while a fetch is under way, by the last ones
        self._excused = False  # a starvation has been put down to a distance not stocked up yet
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
        """Whether an id is only for who asked before it was fetched, and none is kept in hand."""
        return self.safe_distance == 0 and self.step == 1

    @property
    def is_grown(self) -> bool:
        """Whether the distance is longer than at rest."""
        return self.distance > self.safe_distance

    # For a pace whose step changes.

    def plan(self, now: float, rate: float, space: int) -> None:  # noqa: ARG002 - for a subclass
        """Fit to the load before the next look at what is missing.

        Args:
            now: seconds; for a pace whose step changes.
            rate: ids a second that callers took lately; 0 while that is not known.
            space: ids that are left below the limit.
        """
        if self.endurance:
            fresh = rate * self._ttl * FRESH
            most = min(self._max_ids_ahead, space // SPACE_SHARE, fresh) / REFILL
            self.reserve = int(min(rate * (self.endurance + SPARE), most))

    def keep_to(self, least: int) -> None:
        """Keep every step from here on at ``least`` ids or above."""

    def loaded(self, count: int, now: float) -> None:
        """Take note of a segment of ``count`` ids that has landed at ``now``."""

    # The distance.

    def missing(self, remaining: int, wanted: int) -> int:
        """Return how many segments to buy when ``remaining`` are ahead and ``wanted`` waited for.

        What is going to be used up while the fetch is under way comes on top, so that the distance
        is full when it lands; but a grown distance is never filled above the limit.
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
        """Return how many of ``remaining`` ids to hand out until the next look at what is missing.

        A boundary has to come where the first segment is missing, and while there are ids left, or
        the order would come too late.  To keep a reserve, the load has to be looked at a few times
        a second: a piece is as long as that.

        Args:
            remaining: ids ahead.
            short: ids of a piece when there is no surplus.
        """
        size = min(max(short, remaining - self.target), (remaining + 1) // 2)
        if not self.endurance:
            return size
        above = remaining - self.reserve
        return min(size, self._piece, max(above, SMALLEST_PIECE) if above > 0 else size)

    def landed(self, *, taken: int, demand: float, starved: bool) -> bool:
        """Adapt to what happened while a fetch was under way; return whether the distance grew.

        A starvation doubles the distance, and a tight fetch makes it longer by a quarter before
        anybody starves.  A starvation is excused a single time if the ids in hand at take-off, at
        the speed at which they went, show that the distance would have been long enough: it was
        doubled before, and has not been stocked up to it yet.

        Args:
            taken: ids taken between take-off and landing.
            demand: ids that would have been taken, had there been enough.
            starved: whether somebody found the chain dry.
        """
        # One blip at rest costs one doubling and nothing besides.
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
        self._low_water = 0  # the quiet period under way ends nothing
        self._excused = False
        return self.distance > before

    def asked_for(self, n: int) -> bool:
        """Adapt to a caller that takes ``n`` ids at once; return whether the distance grew.

        Above the distance it becomes as long as two such calls at once: while one is served, the
        next one's ids are on their way.  What a fetch uses up would say too little, since a caller
        that waits takes nothing meanwhile.
        """
        if not self.safe_distance or n <= self.target:
            return False
        before = self.distance
        self.distance = max(before, min(-(-2 * n // self.step), self.limit))
        self._low_water = 0  # the quiet period under way ends nothing
        return self.distance > before

    def note(self, remaining: int, now: float) -> None:
        """Take note of how many ids are ahead at the end of a piece, and how long it lasted."""
        self._low_water = min(self._low_water, remaining)
        lasted, self._cut_at = now - self._cut_at, now
        if lasted < BRISK:
            self._piece = min(self._piece * 2, self._max_ids_ahead)
        elif lasted > SLOW:
            self._piece = max(self._piece // 2, SMALLEST_PIECE)

    def end_period(self, remaining: int, *, idle: bool) -> bool:
        """End a quiet period and begin the next; return whether the distance was halved.

        Args:
            remaining: ids ahead now, the first mark of the next period.
            idle: whether nobody took an id, or waited for one, in the whole period.
        """
        calm = idle or self._low_water > self.target * CALM
        self._low_water = remaining
        if calm and self.is_grown:
            self.distance = max(self.distance // 2, self.safe_distance)
            return True
        return False


class RateMeter:
    """Ids a second, from samples taken whenever a piece ends or a segment arrives."""

    __slots__ = ("_count", "_newer_at", "_newer_count", "_since")

    def __init__(self, now: float) -> None:
        self._since = self._newer_at = now
        self._count = self._newer_count = 0

    def note(self, now: float, handed_out: int) -> None:
        """Take a sample, at most one a window."""
        if now - self._newer_at >= WINDOW:
            self._since, self._count = self._newer_at, self._newer_count
            self._newer_at, self._newer_count = now, handed_out

    def sustained(self, now: float, handed_out: int) -> float:
        """Return ids a second over one window at least; 0 while it is younger than that."""
        return self.rate(now, handed_out) if now - self._since >= WINDOW else 0.0

    def rate(self, now: float, handed_out: int) -> float:
        """Return ids a second since the older sample."""
        elapsed = now - self._since
        return (handed_out - self._count) / elapsed if elapsed > 0 else 0.0
