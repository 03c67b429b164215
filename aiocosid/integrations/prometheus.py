"""Metrics for Prometheus.  Requires the ``prometheus`` extra."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from math import inf, nan
from operator import add
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from ..errors import InvalidArgumentError, MissingExtraError
from .metrics import BUCKETS, MACHINE_ID, MEASURED, READ, Metric, Where, measurements
from .watched import Watched

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        REGISTRY,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError as _exc:
    raise MissingExtraError("prometheus_client", extra="prometheus") from _exc

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from prometheus_client.registry import Collector

    from ..abc.events import Event
    from .watched import Generators

    _Family = CounterMetricFamily | GaugeMetricFamily
    _Mode = Literal["liveall", "livesum", "livemin", "livemax"]

__all__ = ("PrometheusInstrument", "scraped")


class PrometheusInstrument:
    """An `aiocosid.Instrument` that counts events, and reads statistics at each scrape.

    One instrument serves any number of providers, event loops and threads;
    docs/reference/metrics.md lists its metrics.  prometheus_client's locks are not re-entrant, so
    with this instrument a signal handler or finalizer must not take ids.

    In prometheus_client's multiprocess mode another process answers the scrape.  So the statistics
    are written to prometheus_client's files, at most once a second: in the second after an event,
    and as long as ids are taken.  An idle process writes nothing.
    """

    __slots__ = ("_collectors", "_families", "_registry", "_watched", "_writer")

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Register the metrics.

        Args:
            registry: the registry; prometheus_client's own by default.

        Raises:
            InvalidArgumentError: the registry already has metrics with these names.
        """
        self._registry: Final = registry
        self._watched: Final = Watched()
        self._families: Final = {metric: _family(metric) for metric in MEASURED}
        self._collectors: Final[list[Collector]] = []
        self._writer = _Writer(self._watched) if _is_multiprocess() else None
        read = [_Reader(self._watched)] if self._writer is None else self._writer.families.values()
        for collector in (*self._families.values(), *read):
            try:
                registry.register(collector)
            except ValueError as error:
                self.close()
                rule = "has metrics of aiocosid already; share its PrometheusInstrument"
                raise InvalidArgumentError("registry", registry, rule) from error
            self._collectors.append(collector)

    def on_event(self, event: Event, /) -> None:
        """Count an event."""
        for metric, value, where in measurements(event):
            family = self._families[metric].labels(*where)
            if isinstance(family, Counter):
                family.inc(value)
            else:
                family.observe(value)
        if self._writer is not None:
            self._writer.write_soon()

    @contextmanager
    def watch(self, generators: Generators) -> Generator[None]:
        """Read the statistics of generators at each scrape, during a ``with`` block.

        Args:
            generators: a provider, whose generators may change; or a mapping of generators.  A
                forked child forgets them.
        """
        write = _nothing if self._writer is None else self._writer.write
        try:
            with self._watched.watch(generators):
                write()
                try:
                    yield
                finally:
                    write()  # the final counts
        finally:
            write()  # so that no gauge is left

    def close(self) -> None:
        """Unregister the metrics; idempotent."""
        while self._collectors:
            self._registry.unregister(self._collectors.pop())


def scraped(generators: Generators) -> tuple[str, bytes]:
    """Return the metrics from generators' statistics, in the format that Prometheus scrapes.

    It is for generators without a `PrometheusInstrument`: metrics that are made from events are
    missing, and a count falls when a generator is reopened.

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
        """Return the metrics that will exist, so that the registry can refuse duplicate names."""
        return map(_read_family, READ)

    def collect(self) -> Iterator[_Family]:
        """Read the statistics."""
        for metric, series in self._watched.read().items():
            family = _read_family(metric)
            for where, value in series.items():
                family.add_metric(where, value)
            yield family


def _nothing() -> None:
    """Do nothing, because this process itself is scraped."""


def _is_multiprocess() -> bool:
    return bool({"PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"} & os.environ.keys())


_MODES: Final[dict[object, _Mode]] = {add: "livesum", min: "livemin", max: "livemax"}
"""How prometheus_client merges processes' gauges, by how those of generators are merged."""

_UNKNOWN: Final[dict[object, float]] = {add: 0.0, min: inf, max: 0.0}
"""The value of a gauge that no longer has one: a gauge cannot be removed, and this value does not
change a merged one.
"""

_WRITE_DELAY: Final = 1.0  # seconds


class _Writer:
    """Writes this process's statistics to files that a scrape in another process reads."""

    __slots__ = ("__weakref__", "_due_on", "_lock", "_pid", "_watched", "_written", "families")

    def __init__(self, watched: Watched) -> None:
        self.families: Final = {metric: _written_family(metric) for metric in READ}
        self._watched = watched
        self._written: dict[Metric, dict[Where, float]] = {}
        self._forget()

    def _forget(self) -> None:
        """Reset all state, also in a forked child, whose counts begin at 0."""
        self._pid = os.getpid()
        self._lock = RLock()
        self._due_on: asyncio.AbstractEventLoop | None = None
        for metric, series in self._written.items():
            if metric.kind == "counter":  # gauges stay, and are 0 in the child's file
                series.clear()

    def write_soon(self) -> None:
        """Write within a second; at once if no asyncio loop is running."""
        if self._pid != os.getpid():
            self._forget()
        if self._due_on is not None and not self._due_on.is_closed():
            return
        try:
            self._due_on = asyncio.get_running_loop()
        except RuntimeError:
            self.write()
        else:
            self._due_on.call_later(_WRITE_DELAY, self._write_due)

    def _write_due(self) -> None:
        self._due_on = None
        if self.write():
            self.write_soon()

    def write(self) -> bool:
        """Write what has changed; return whether ids were taken since the last time."""
        if self._pid != os.getpid():
            self._forget()
        is_active = False
        with self._lock:
            found = self._watched.read()
            for metric, family in self.families.items():
                before = self._written.setdefault(metric, {})
                now = found.get(metric, {})
                if isinstance(family, Counter):
                    for where, value in now.items():
                        is_active |= value > before.get(where, 0)
                        family.labels(*where).inc(max(0, value - before.get(where, 0)))
                    before |= now
                else:
                    gone = nan if metric is MACHINE_ID else _UNKNOWN[metric.merge]
                    before |= dict.fromkeys(before, gone) | now
                    for where, value in before.items():
                        family.labels(*where).set(value)
        return is_active


def _written_family(metric: Metric) -> Counter | Gauge:
    name, about, labels = metric.prometheus_name, metric.description, metric.labels
    if metric.kind == "counter":
        return Counter(name, about, labels, registry=None)
    # The highest of several machine ids means nothing, so each process shows its own.
    mode: _Mode = "liveall" if metric is MACHINE_ID else _MODES[metric.merge]
    return Gauge(name, about, labels, registry=None, multiprocess_mode=mode)


def _family(metric: Metric) -> Counter | Histogram:
    name, about, labels = metric.prometheus_name, metric.description, metric.labels
    if metric.kind == "counter":
        return Counter(name, about, labels, registry=None)
    return Histogram(name, about, labels, buckets=BUCKETS, registry=None)


def _read_family(metric: Metric) -> _Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.prometheus_name, metric.description, labels=metric.labels)
