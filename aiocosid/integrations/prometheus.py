"""Metrics for Prometheus.  Requires the ``prometheus`` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgumentError, MissingExtraError
from ._metrics import BUCKETS, MEASURED, READ, Metric, measurements
from ._watched import Watched

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        REGISTRY,
        CollectorRegistry,
        Counter,
        Histogram,
        generate_latest,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError as _exc:
    raise MissingExtraError("prometheus_client", extra="prometheus") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from prometheus_client.registry import Collector

    from ..events import Event
    from ._watched import Generators

    _Family = CounterMetricFamily | GaugeMetricFamily

__all__ = ("PrometheusInstrument", "scraped")


class PrometheusInstrument:
    """An `aiocosid.Instrument` that counts events, and reads statistics at each scrape.

    One serves any number of providers, event loops and threads; docs/reference/metrics.md lists its
    metrics.  prometheus_client's locks are not re-entrant, so with this instrument a signal handler
    or finalizer must not take ids itself. prometheus_client's multiprocess mode has only the
    metrics that are made from events.
    """

    __slots__ = ("_collectors", "_families", "_registry", "_watched")

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Register the metrics.

        Args:
            registry: the registry; prometheus_client's own by default.

        Raises:
            InvalidArgumentError: the registry already has metrics of these names.
        """
        self._registry: Final = registry
        self._watched: Final = Watched()
        self._families: Final = {metric: _family(metric) for metric in MEASURED}
        self._collectors: Final[list[Collector]] = []
        for collector in (*self._families.values(), _Reader(self._watched)):
            try:
                registry.register(collector)
            except ValueError as error:
                self.close()
                expected = "one without metrics of aiocosid; share its PrometheusInstrument"
                raise InvalidArgumentError("registry", registry, expected=expected) from error
            self._collectors.append(collector)

    def on_event(self, event: Event, /) -> None:
        """Count an event."""
        for metric, value, where in measurements(event):
            family = self._families[metric].labels(*where)
            if isinstance(family, Counter):
                family.inc(value)
            else:
                family.observe(value)

    def watch(self, generators: Generators) -> AbstractContextManager[None]:
        """Read the statistics of generators at each scrape, for the length of a ``with`` block.

        Args:
            generators: a provider, whose generators may come and go; or a mapping of generators.
                A forked child forgets them.
        """
        return self._watched.watch(generators)

    def close(self) -> None:
        """Unregister the metrics; idempotent."""
        while self._collectors:
            self._registry.unregister(self._collectors.pop())


def scraped(generators: Generators) -> tuple[str, bytes]:
    """Return the metrics that are read from generators' statistics, as Prometheus scrapes them.

    For generators without a `PrometheusInstrument`: those that are made from events are missing,
    and a count falls when a generator is opened anew.

    Args:
        generators: a provider; or a mapping of generators.

    Returns:
        The content type, and the text.
    """
    registry, watched = CollectorRegistry(), Watched()
    registry.register(_Reader(watched))
    with watched.watch(generators):
        return CONTENT_TYPE_LATEST, generate_latest(registry)


class _Reader:
    """Reads the generators when Prometheus scrapes."""

    __slots__ = ("_watched",)

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def describe(self) -> Iterator[_Family]:
        """Return the metrics that will exist, so that the registry can refuse names that it has."""
        return map(_read_family, READ)

    def collect(self) -> Iterator[_Family]:
        """Read the statistics."""
        for metric, series in self._watched.read().items():
            family = _read_family(metric)
            for where, value in series.items():
                family.add_metric(where, value)
            yield family


def _family(metric: Metric) -> Counter | Histogram:
    name, about, labels = metric.prometheus_name, metric.description, metric.labels
    if metric.kind == "counter":
        return Counter(name, about, labels, registry=None)
    return Histogram(name, about, labels, buckets=BUCKETS, registry=None)


def _read_family(metric: Metric) -> _Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.prometheus_name, metric.description, labels=metric.labels)
