"""The metrics: their names, and how they are computed from events and statistics.

One list for Prometheus and for OpenTelemetry; docs/reference/metrics.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ..abc.events import (
    CacheLost,
    ClockBackwards,
    Event,
    FetchFailed,
    IdsDiscarded,
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
"""Bounds in seconds.  A store answers within a millisecond, or within the 2 s of a generator's
call.
"""

_NAMED: Final = ("aiocosid.namespace", "aiocosid.name")
_REASONED: Final = (*_NAMED, "aiocosid.reason")
# There is no instance id, because it differs in each process, and a metrics server knows which
# process it scraped.
_MACHINE: Final = ("aiocosid.namespace",)

Where: TypeAlias = tuple[str, ...]
"""The values of a metric's attributes."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, named as OpenTelemetry does.

    Attributes:
        kind: the kind of metric.
        name: the name, with dots.
        unit: the unit in UCUM's notation: seconds, or a noun in braces.
        description: its meaning.
        attributes: the attributes that distinguish its series.
        merge: combines the values of two generators with the same attributes.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    unit: str
    description: str
    attributes: tuple[str, ...] = _NAMED
    merge: Callable[[float, float], float] = max

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, by OpenTelemetry's translation rules."""
        name = self.name.replace(".", "_")
        name += "_seconds" if self.unit == "s" else ""
        return name + ("_total" if self.kind == "counter" else "")

    @property
    def labels(self) -> tuple[str, ...]:
        """The attributes' names in Prometheus."""
        return tuple(name.replace(".", "_") for name in self.attributes)


_counter = partial(Metric, "counter")
_gauge = partial(Metric, "gauge")
_histogram = partial(Metric, "histogram")


FETCH_DURATION: Final = _histogram(
    "aiocosid.fetch.duration", "s", "How long the store took for a segment."
)
FETCH_FAILURES: Final = _counter(
    "aiocosid.fetch.failures", "{failure}", "Fetches that failed.", (*_NAMED, "error.type")
)
IDS_FETCHED: Final = _counter("aiocosid.ids.fetched", "{id}", "Ids reserved in the store.")
IDS_DISCARDED: Final = _counter(
    "aiocosid.ids.discarded", "{id}", "Ids reserved and never handed out: the waste.", _REASONED
)
STARVATIONS: Final = _counter(
    "aiocosid.starvations",
    "{starvation}",
    "How often callers found the chain empty and had to wait.",
)
WAIT_TIMEOUTS: Final = _counter(
    "aiocosid.wait.timeouts", "{call}", "Calls that ended without an id."
)
SPANS_LEASED: Final = _counter(
    "aiocosid.spans.leased",
    "{span}",
    "Spans that a tiered store's root has leased to its cache.",
    _REASONED,
)
CACHE_LOSSES: Final = _counter(
    "aiocosid.cache.losses", "{outage}", "How often a tiered store's cache stopped answering."
)
CLOCK_BACKWARDS: Final = _histogram(
    "aiocosid.clock.backwards", "s", "How far the clock was behind when a call had to wait for it."
)
GUARD_DURATION: Final = _histogram(
    "aiocosid.machine.renewal.duration", "s", "How long the store took for a renewal.", _MACHINE
)
GUARD_FAILURES: Final = _counter(
    "aiocosid.machine.renewal.failures",
    "{failure}",
    "Renewals that the store did not confirm, and machine ids that it did not grant.",
    (*_MACHINE, "error.type"),
)
DISTRIBUTIONS: Final = _counter(
    "aiocosid.machine.distributions", "{machine_id}", "Machine ids taken.", _MACHINE
)
LOSSES: Final = _counter(
    "aiocosid.machine.losses", "{machine_id}", "Machine ids that this process has lost.", _MACHINE
)
QUARANTINES: Final = _counter(
    "aiocosid.machine.quarantines",
    "{quarantine}",
    "How often no machine id was given because the store may have forgotten who holds which.",
    _MACHINE,
)

MEASURED: Final = (
    FETCH_DURATION,
    FETCH_FAILURES,
    IDS_FETCHED,
    IDS_DISCARDED,
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
"""The metrics that are made from events."""

IDS_HANDED_OUT: Final = _counter(
    "aiocosid.ids.handed_out", "{id}", "Ids given to callers.", merge=add
)
IDS_REMAINING: Final = _gauge("aiocosid.ids.remaining", "{id}", "Buffered ids.", merge=add)
IDS_TIME_LEFT: Final = _gauge(
    "aiocosid.ids.time_left", "s", "How long the buffered ids last at the present rate.", merge=min
)
PREFETCH_DISTANCE: Final = _gauge("aiocosid.prefetch.distance", "{segment}", "Segments kept ahead.")
CALLERS_WAITING: Final = _gauge(
    "aiocosid.callers.waiting", "{call}", "Calls that wait now.", merge=add
)
WAITS: Final = _counter(
    "aiocosid.waits", "{call}", "Calls that had to wait.", (*_NAMED, "aiocosid.cause"), merge=add
)
MACHINE_ID: Final = _gauge("aiocosid.machine.id", "", "The machine id in use.")
LEASE_LEFT: Final = _gauge(
    "aiocosid.machine.lease.left",
    "s",
    "How long this process keeps the machine id without a further renewal.",
    merge=min,
)
MARK: Final = _gauge(
    "aiocosid.machine.fence.timestamp",
    "s",
    "The time above which no id is issued, as Unix time.",
    merge=min,
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
"""The metrics that are read from statistics."""


class Value(NamedTuple):
    """A value of one series.

    Attributes:
        metric: the metric that it belongs to.
        value: what is added to a counter or observed by a histogram; what a statistic reads.
        where: values of the metric's attributes.
    """

    metric: Metric
    value: float
    where: Where


def measurements(event: Event) -> Iterator[Value]:
    """Return what an event adds to the metrics.

    A counter for alerts is first written as 0, at the first segment, the opening or the first
    machine id, because a metrics server sees no increase in a series that begins at 1.
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
