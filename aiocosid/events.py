"""What a generator tells an `Instrument`: frozen facts to make logs, metrics and traces of.

The core knows no metrics library.  An event is made only when an instrument is there, and never for
a single id.
"""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

from ._later import dataclass

__all__ = (
    "CacheFound",
    "CacheLost",
    "ClockBackwards",
    "DistanceChanged",
    "Event",
    "FetchFailed",
    "IdsDiscarded",
    "IdsGivenBack",
    "Instrument",
    "Instruments",
    "MachineIdDistributed",
    "MachineIdGuardFailed",
    "MachineIdGuarded",
    "MachineIdLost",
    "MachineIdsQuarantined",
    "RingEmptied",
    "RingFilled",
    "SegmentFetched",
    "SnowflakeOpened",
    "SpanLeased",
    "Starved",
    "WaitTimedOut",
)

_logger = logging.getLogger("aiocosid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one generator.

    Attributes:
        namespace: the generator's namespace.
        name: the generator's name.
    """

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFetched(Event):
    """A segment arrived from the store and was linked to the chain.

    Attributes:
        max_id: the store's counter after the fetch, which is the segment's last id.
        count: ids in the segment.
        took: seconds that the store needed.
        starved: whether somebody was waiting for it.
    """

    max_id: int
    count: int
    took: float
    starved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed(Event):
    """The store did not answer with a segment.

    Attributes:
        error: what it answered.
        attempt: how many fetches have failed in a row, this one included.
        took: seconds until the failure.
    """

    error: Exception
    attempt: int
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Starved(Event):
    """The chain went dry and a caller has to wait.  Sent once for each dry spell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceChanged(Event):
    """The prefetch distance was adapted.

    Attributes:
        before: segments kept ahead until now.
        after: segments kept ahead from now on.
    """

    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimedOut(Event):
    """A caller's wait ended without an id.

    Attributes:
        waited: seconds that it was allowed to wait.
    """

    waited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsDiscarded(Event):
    """Ids that were reserved are given up; they leave a gap and never come back.

    Attributes:
        count: how many.
        reason: ``"expired"``, ``"cancelled"``, ``"closed"``, ``"limit"`` or ``"order"``.
    """

    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsGivenBack(Event):
    """Ids that were not used went back to the store when the generator was closed.

    Attributes:
        count: how many.
    """

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockBackwards(Event):
    """The wall clock is behind the last id's time, and callers wait for it.

    Attributes:
        backwards: seconds that it is behind.
    """

    backwards: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeOpened(Event):
    """A Snowflake generator can stamp ids.

    Attributes:
        machine_id: the machine id under which it does.
    """

    machine_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingFilled(Event):
    """A `CachedSnowflakeId` prepared ids.

    Attributes:
        filled: prepared ids that it has now.
        borrowed: seconds that the last id handed out is ahead of the clock.
    """

    filled: int
    borrowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingEmptied(Event):
    """Callers of a `CachedSnowflakeId` wait: no more ids can be prepared now.

    Attributes:
        borrowed: seconds that the last id handed out is ahead of the clock; if it is about as much
            as ``max_borrow`` allows, more ids are asked for than the layout has.
    """

    borrowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdDistributed(Event):
    """A machine id was taken; ``name`` is the instance id.

    Attributes:
        machine_id: the id.
        wait: seconds until the former owner's time mark has passed.
    """

    machine_id: int
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdGuarded(Event):
    """The store has taken a sign of life; ``name`` is the instance id.

    Attributes:
        machine_id: the id.
        mark_ms: the new time mark, unix time in milliseconds.
        took: seconds that the store needed.
    """

    machine_id: int
    mark_ms: int
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdGuardFailed(Event):
    """The store did not take a sign of life, or gave no machine id; ``name`` is the instance id.

    Attributes:
        error: what it answered.
        attempt: how many calls have failed in a row, this one included.
    """

    error: Exception
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdLost(Event):
    """The machine id belongs to somebody else; ``name`` is the instance id.

    Attributes:
        machine_id: the id that was lost.
        error: how that came out.
    """

    machine_id: int
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLeased(Event):
    """A tiered store's root has leased a span, for the cache to hand out.

    Attributes:
        max_id: the span's last id.
        count: ids in the span.
        reason: what was wrong with the one before: ``"missing"``, ``"server"`` (another one, or in
            another life), ``"damaged"``, ``"behind"`` (a segment seen here) or ``"left"`` (too few
            ids).
        took: seconds that the root needed.
    """

    max_id: int
    count: int
    reason: str
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLost(Event):
    """A tiered store's cache does not answer, or refuses; segments come from the root.

    Attributes:
        error: what it answered.
    """

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFound(Event):
    """A tiered store's cache answers again.

    Attributes:
        lasted: seconds that it did not.
    """

    lasted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdsQuarantined(Event):
    """The store hands out no machine ids for a while; ``name`` is the instance id.

    Sent once for each quarantine that a lease is refused by.

    Attributes:
        seconds_left: how long it takes from now; ``inf`` if it does not end by itself.
    """

    seconds_left: float


@runtime_checkable
class Instrument(Protocol):
    """Receives events, synchronously, on the generator's event loop.

    It has to be quick and must not wait.  What it raises is logged and goes no further.
    """

    def on_event(self, event: Event, /) -> None:
        """Take note of one event."""


class Instruments:
    """Several instruments as one; what one of them raises is logged, and the others are told."""

    __slots__ = ("_instruments",)

    def __init__(self, *instruments: Instrument) -> None:
        """Join instruments.

        Args:
            *instruments: they are told of an event in this order.
        """
        self._instruments = instruments

    def on_event(self, event: Event, /) -> None:
        """Tell each of them."""
        for instrument in self._instruments:
            try:
                instrument.on_event(event)
            except Exception:
                _logger.exception("%r failed", instrument)
