"""Events that generators send to an `Instrument`, for logs, metrics and traces.

The core does not depend on a metrics library.  An event is created only if there is an instrument,
and never for a single id.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = (
    "CacheFound",
    "CacheLost",
    "ClockBackwards",
    "DistanceChanged",
    "Event",
    "FetchFailed",
    "IdsDiscarded",
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
    """A segment arrived from the store and was added to the chain.

    Attributes:
        max_id: the store's counter after the fetch, which is the segment's last id.
        count: ids in the segment.
        took: seconds that the store needed.
        starved: whether a caller was waiting for it.
    """

    max_id: int
    count: int
    took: float
    starved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed(Event):
    """A fetch of a segment failed.

    Attributes:
        error: the error.
        attempt: how many fetches have failed in a row, including this one.
        took: seconds until the failure.
    """

    error: Exception
    attempt: int
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Starved(Event):
    """The chain is empty and a caller must wait.  Sent once until the next segment arrives."""


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
        waited: seconds that the caller was allowed to wait.
    """

    waited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsDiscarded(Event):
    """Reserved ids are discarded; they leave a gap and are never handed out.

    Attributes:
        count: how many.
        reason: ``"expired"``, ``"cancelled"``, ``"closed"``, ``"limit"``, ``"out_of_order"``, or
            ``"short"`` for ids of a broker in front of a hole.
    """

    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockBackwards(Event):
    """The wall clock is behind the last id's time, and callers wait for it.

    Attributes:
        backwards: seconds that it is behind.
    """

    backwards: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeOpened(Event):
    """A Snowflake generator is open.

    Attributes:
        machine_id: the machine id in its ids.
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
    """Callers of a `CachedSnowflakeId` wait, because no more ids can be prepared now.

    Attributes:
        borrowed: seconds that the last id handed out is ahead of the clock; a value close to
            ``max_borrow`` means that callers ask for more ids than the layout has.
    """

    borrowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdDistributed(Event):
    """A machine id was taken; ``name`` is the instance id.

    Attributes:
        machine_id: the id.
        wait: seconds until the former owner's fence has passed.
    """

    machine_id: int
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdGuarded(Event):
    """The store accepted a renewal; ``name`` is the instance id.

    Attributes:
        machine_id: the id.
        fence_ms: the new fence, unix time in milliseconds.
        took: seconds that the store needed.
    """

    machine_id: int
    fence_ms: int
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdGuardFailed(Event):
    """A renewal failed, or no machine id was granted; ``name`` is the instance id.

    Attributes:
        error: the error.
        attempt: how many calls have failed in a row, including this one.
    """

    error: Exception
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdLost(Event):
    """Another instance holds the machine id; ``name`` is this one's instance id.

    Attributes:
        machine_id: the id that was lost.
        error: the error that showed it.
    """

    machine_id: int
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLeased(Event):
    """The root of a tiered store has leased a span of ids to its cache.

    Attributes:
        max_id: the span's last id.
        count: ids in the span.
        reason: why the previous span was replaced: ``"missing"``, ``"server"`` (another server, or
            a restarted one), ``"damaged"``, ``"behind"`` (below a segment that this process has
            seen) or ``"left"`` (too few ids left).
        took: seconds that the root needed.
    """

    max_id: int
    count: int
    reason: str
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLost(Event):
    """The cache of a tiered store failed; from now on segments come from the root.

    Attributes:
        error: the error.
    """

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFound(Event):
    """The cache of a tiered store answers again.

    Attributes:
        lasted: seconds for which it did not answer.
    """

    lasted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdsQuarantined(Event):
    """The store is in quarantine and grants no machine ids; ``name`` is the instance id.

    Sent once for each quarantine that refuses a lease.

    Attributes:
        seconds_left: seconds until it ends; ``inf`` if it does not end by itself.
    """

    seconds_left: float


@runtime_checkable
class Instrument(Protocol):
    """Receives events, synchronously, on the generator's event loop.

    It must be quick and must not wait.  An exception that it raises is logged and dropped.
    """

    def on_event(self, event: Event, /) -> None:
        """Receive one event."""


class Instruments:
    """Several instruments as one; if one raises, that is logged, and the others get the event."""

    __slots__ = ("_instruments",)

    def __init__(self, *instruments: Instrument) -> None:
        """Combine instruments.

        Args:
            *instruments: each event goes to them in this order.
        """
        self._instruments = instruments

    def on_event(self, event: Event, /) -> None:
        """Pass an event on to each of them."""
        for instrument in self._instruments:
            try:
                instrument.on_event(event)
            except Exception:
                _logger.exception("%r failed", instrument)
