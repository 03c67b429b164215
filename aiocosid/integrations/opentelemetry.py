"""Metrics for OpenTelemetry.  Requires the ``opentelemetry`` extra."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import MissingExtraError
from .metrics import BUCKETS, MEASURED, READ, Metric, Where, measurements
from .watched import Watched

try:
    from opentelemetry.metrics import Counter, Histogram, Meter, Observation, get_meter
except ModuleNotFoundError as _exc:
    raise MissingExtraError("opentelemetry", extra="opentelemetry") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from ..abc.events import Event
    from .watched import Generators

__all__ = ("OpenTelemetryInstrument",)


class OpenTelemetryInstrument:
    """An `aiocosid.Instrument` that measures events, and reads statistics at each collection.

    One instrument serves any number of providers, event loops and threads;
    docs/reference/metrics.md lists its metrics.  A meter keeps the metrics that were created on it,
    so create one instrument and keep it.  The SDK's locks are not re-entrant, so with this
    instrument a signal handler or finalizer must not take ids.
    """

    __slots__ = ("_instruments", "_watched")

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Create the metrics on a meter named ``aiocosid``.

        Args:
            meter_provider: the provider of the meter; the global one by default.
        """
        meter = get_meter("aiocosid", meter_provider=meter_provider)
        self._watched: Final = Watched()
        self._instruments: Final = {metric: _instrument(meter, metric) for metric in MEASURED}
        reading = _Reading(self._watched)
        for metric in READ:
            _observe(meter, metric, reading)

    def on_event(self, event: Event, /) -> None:
        """Measure an event."""
        for metric, value, where in measurements(event):
            instrument, attributes = self._instruments[metric], _attributes(metric, where)
            if isinstance(instrument, Counter):
                instrument.add(value, attributes)
            else:
                instrument.record(value, attributes)

    def watch(self, generators: Generators) -> AbstractContextManager[None]:
        """Read the statistics of generators at each collection, during a ``with`` block.

        Args:
            generators: a provider, whose generators may change; or a mapping of generators.  A
                forked child forgets them.
        """
        return self._watched.watch(generators)


def _attributes(metric: Metric, where: Where) -> dict[str, str]:
    return dict(zip(metric.attributes, where, strict=True))


def _instrument(meter: Meter, metric: Metric) -> Counter | Histogram:
    named = {"name": metric.name, "unit": metric.unit, "description": metric.description}
    if metric.kind == "counter":
        return meter.create_counter(**named)
    return meter.create_histogram(**named, explicit_bucket_boundaries_advisory=BUCKETS)


def _observe(meter: Meter, metric: Metric, reading: _Reading) -> None:
    callbacks = [partial(_observations, metric, reading)]
    create = (
        meter.create_observable_counter
        if metric.kind == "counter"
        else meter.create_observable_gauge
    )
    create(metric.name, callbacks, metric.unit, metric.description)


def _observations(metric: Metric, reading: _Reading, _: CallbackOptions) -> Iterator[Observation]:
    for where, value in reading.of(metric).items():
        yield Observation(value, _attributes(metric, where))


class _Reading:
    """The values that the metrics of a collection share; each metric is read once in it."""

    __slots__ = ("_found", "_observed", "_watched")

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._observed: set[Metric] = set(READ)
        self._found: dict[Metric, dict[Where, float]] = {}

    def of(self, metric: Metric) -> dict[Where, float]:
        """Return the series of a metric; reading a metric twice starts a new collection."""
        if metric in self._observed:
            self._observed, self._found = set[Metric](), self._watched.read()
        self._observed.add(metric)
        return self._found.get(metric, {})
