"""The metrics: their names, and what events and statistics say of them.

One list for Prometheus and for OpenTelemetry; docs/reference/metrics.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ..events import (
    CacheLost,
    ClockBackwards,
    Event,
    FetchFailed,
    IdsDiscarded,
    IdsGivenBack,
    MachineIdDistributed,
    MachineIdGuarded,
    MachineIdGuardFailed,
    MachineIdLost,
    MachineIdsQuarantined,
    SegmentFetched,
    SnowflakeOpened,
    SpanLeased,
    Starved,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = (
    "BUCKETS",
    "CALLERS_WAITING",
    "IDS_HANDED_OUT",
    "IDS_REMAINING",
    "IDS_TIME_LEFT",
    "LEASE_LEFT",
    "MACHINE_ID",
    "MARK",
    "MEASURED",
    "PREFETCH_DISTANCE",
    "READ",
    "WAITS",
    "Metric",
    "Value",
    "Where",
    "measurements",
)

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds.  A store answers in a millisecond, or within the 2 s of a generator's call."""

_NAMED: Final = ("aiocosid.namespace", "aiocosid.name")
# No instance id: it is another one in each process, and a metrics server knows which it asked.
_MACHINE: Final = ("aiocosid.namespace",)

Where: TypeAlias = tuple[str, ...]
"""The values of a metric's attributes."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, named as OpenTelemetry does.

    Attributes:
        name: with dots.
        kind: what it is.
        unit: as UCUM writes it: seconds, or a thing in braces.
        attributes: whose values tell its series apart.
        description: its meaning.
        merge: makes one value of those of two generators with the same attributes.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    attributes: tuple[str, ...]
    description: str
    merge: Callable[[float, float], float] = max

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, by OpenTelemetry's rules for the translation."""
        name = self.name.replace(".", "_")
        name += "_seconds" if self.unit == "s" else ""
        return name + ("_total" if self.kind == "counter" else "")

    @property
    def labels(self) -> tuple[str, ...]:
        """The attributes' names in Prometheus."""
        return tuple(name.replace(".", "_") for name in self.attributes)


def _sum(one: float, other: float) -> float:
    return one + other


FETCH_DURATION: Final = Metric(
    "aiocosid.fetch.duration", "histogram", "s", _NAMED, "How long the store took for a segment."
)
FETCH_FAILURES: Final = Metric(
    "aiocosid.fetch.failures",
    "counter",
    "{failure}",
    (*_NAMED, "error.type"),
    "Fetches that failed.",
)
IDS_FETCHED: Final = Metric(
    "aiocosid.ids.fetched", "counter", "{id}", _NAMED, "Ids reserved in the store."
)
IDS_DISCARDED: Final = Metric(
    "aiocosid.ids.discarded",
    "counter",
    "{id}",
    (*_NAMED, "aiocosid.reason"),
    "Ids reserved and never handed out: the waste.",
)
IDS_GIVEN_BACK: Final = Metric(
    "aiocosid.ids.given_back", "counter", "{id}", _NAMED, "Ids that went back to the store unused."
)
STARVATIONS: Final = Metric(
    "aiocosid.starvations",
    "counter",
    "{starvation}",
    _NAMED,
    "How often the chain was dry and somebody had to wait.",
)
WAIT_TIMEOUTS: Final = Metric(
    "aiocosid.wait.timeouts", "counter", "{call}", _NAMED, "Calls that ended without an id."
)
SPANS_LEASED: Final = Metric(
    "aiocosid.spans.leased",
    "counter",
    "{span}",
    (*_NAMED, "aiocosid.reason"),
    "Spans that a tiered store's root has leased to its cache.",
)
CACHE_LOSSES: Final = Metric(
    "aiocosid.cache.losses",
    "counter",
    "{outage}",
    _NAMED,
    "How often a tiered store's cache ceased to answer.",
)
CLOCK_BACKWARDS: Final = Metric(
    "aiocosid.clock.backwards",
    "histogram",
    "s",
    _NAMED,
    "How far the clock was behind when a call had to wait for it.",
)
GUARD_DURATION: Final = Metric(
    "aiocosid.machine.guard.duration",
    "histogram",
    "s",
    _MACHINE,
    "How long the store took for a sign of life.",
)
GUARD_FAILURES: Final = Metric(
    "aiocosid.machine.guard.failures",
    "counter",
    "{failure}",
    (*_MACHINE, "error.type"),
    "Signs of life that the store did not take, and machine ids that it did not give.",
)
DISTRIBUTIONS: Final = Metric(
    "aiocosid.machine.distributions", "counter", "{machine_id}", _MACHINE, "Machine ids taken."
)
LOSSES: Final = Metric(
    "aiocosid.machine.losses",
    "counter",
    "{machine_id}",
    _MACHINE,
    "Machine ids lost to somebody else.",
)
QUARANTINES: Final = Metric(
    "aiocosid.machine.quarantines",
    "counter",
    "{quarantine}",
    _MACHINE,
    "How often no machine id was given because the store may have forgotten who holds which.",
)

MEASURED: Final = (
    FETCH_DURATION,
    FETCH_FAILURES,
    IDS_FETCHED,
    IDS_DISCARDED,
    IDS_GIVEN_BACK,
    STARVATIONS,
    WAIT_TIMEOUTS,
    SPANS_LEASED,
    CACHE_LOSSES,
    CLOCK_BACKWARDS,
    GUARD_DURATION,
    GUARD_FAILURES,
    DISTRIBUTIONS,
    LOSSES,
    QUARANTINES,
)
"""Made of events."""

IDS_HANDED_OUT: Final = Metric(
    "aiocosid.ids.handed_out", "counter", "{id}", _NAMED, "Ids given to callers.", _sum
)
IDS_REMAINING: Final = Metric(
    "aiocosid.ids.remaining", "gauge", "{id}", _NAMED, "Ids in hand.", _sum
)
IDS_TIME_LEFT: Final = Metric(
    "aiocosid.ids.time_left",
    "gauge",
    "s",
    _NAMED,
    "How long the ids in hand last at the present rate.",
    min,
)
PREFETCH_DISTANCE: Final = Metric(
    "aiocosid.prefetch.distance", "gauge", "{segment}", _NAMED, "Segments kept ahead."
)
CALLERS_WAITING: Final = Metric(
    "aiocosid.callers.waiting", "gauge", "{call}", _NAMED, "Calls that wait now.", _sum
)
WAITS: Final = Metric(
    "aiocosid.waits",
    "counter",
    "{call}",
    (*_NAMED, "aiocosid.cause"),
    "Calls that had to wait.",
    _sum,
)
MACHINE_ID: Final = Metric("aiocosid.machine.id", "gauge", "", _NAMED, "The machine id in use.")
LEASE_LEFT: Final = Metric(
    "aiocosid.machine.lease.left",
    "gauge",
    "s",
    _NAMED,
    "How long the machine id is ours without a further sign of life.",
    min,
)
MARK: Final = Metric(
    "aiocosid.machine.mark.timestamp",
    "gauge",
    "s",
    _NAMED,
    "No id is issued with a later time, unix time.",
    min,
)

READ: Final = (
    IDS_HANDED_OUT,
    IDS_REMAINING,
    IDS_TIME_LEFT,
    PREFETCH_DISTANCE,
    CALLERS_WAITING,
    WAITS,
    MACHINE_ID,
    LEASE_LEFT,
    MARK,
)
"""Read from statistics."""


class Value(NamedTuple):
    """A value of one series.

    Attributes:
        metric: whose it is.
        value: what is added to a counter or observed by a histogram; what a statistic reads.
        where: values of the metric's attributes.
    """

    metric: Metric
    value: float
    where: Where


def measurements(event: Event) -> Iterator[Value]:
    """Say what an event adds to the metrics.

    A counter that is to be alerted on begins at 0, with the first segment, at the opening or with
    the first machine id: a server sees no increase in a series that begins at 1.
    """
    where = (event.namespace, event.name)
    match event:
        case SegmentFetched():
            yield Value(FETCH_DURATION, event.took, where)
            yield Value(IDS_FETCHED, event.count, where)
            yield Value(STARVATIONS, 0, where)
            yield Value(WAIT_TIMEOUTS, 0, where)
        case FetchFailed():
            yield Value(FETCH_FAILURES, 1, (*where, type(event.error).__name__))
        case IdsDiscarded():
            yield Value(IDS_DISCARDED, event.count, (*where, event.reason))
        case IdsGivenBack():
            yield Value(IDS_GIVEN_BACK, event.count, where)
        case Starved():
            yield Value(STARVATIONS, 1, where)
        case SnowflakeOpened():
            yield Value(WAIT_TIMEOUTS, 0, where)
        case WaitTimedOut():
            yield Value(WAIT_TIMEOUTS, 1, where)
        case ClockBackwards():
            yield Value(CLOCK_BACKWARDS, event.backwards, where)
        case _:
            yield from _of_tiers(event)
            yield from _of_machines(event)


def _of_tiers(event: Event) -> Iterator[Value]:
    where = (event.namespace, event.name)
    match event:
        case SpanLeased():
            yield Value(SPANS_LEASED, 1, (*where, event.reason))
            yield Value(CACHE_LOSSES, 0, where)
        case CacheLost():
            yield Value(CACHE_LOSSES, 1, where)
        case _:
            pass


def _of_machines(event: Event) -> Iterator[Value]:
    where = (event.namespace,)
    match event:
        case MachineIdGuarded():
            yield Value(GUARD_DURATION, event.took, where)
        case MachineIdGuardFailed():
            yield Value(GUARD_FAILURES, 1, (*where, type(event.error).__name__))
        case MachineIdDistributed():
            yield Value(DISTRIBUTIONS, 1, where)
            yield Value(LOSSES, 0, where)
            yield Value(QUARANTINES, 0, where)
        case MachineIdLost():
            yield Value(LOSSES, 1, where)
        case MachineIdsQuarantined():
            yield Value(QUARANTINES, 1, where)
        case _:
            pass
