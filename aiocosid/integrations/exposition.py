"""Formats series that the caller has computed for Prometheus.

Requires the ``prometheus`` extra.
"""

from __future__ import annotations

from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import MissingExtraError
from .metrics import BUCKETS

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
except ModuleNotFoundError as _exc:
    raise MissingExtraError("prometheus_client", extra="prometheus") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .metrics import Metric, Where

    Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

__all__ = ("exposed",)


def exposed(
    found: Mapping[Metric, Mapping[Where, Any]],
    labels: Mapping[Metric, tuple[str, ...]] = MappingProxyType({}),
) -> tuple[str, bytes]:
    """Return series in the format that Prometheus scrapes.

    Args:
        found: the series of each metric; for a histogram, the counts of its buckets and the sum.
        labels: the labels of metrics whose labels differ from the usual ones.

    Returns:
        The content type, and the text.
    """
    registry = CollectorRegistry()
    registry.register(_Shown(found, labels))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class _Shown:
    """Shows series that the caller has computed."""

    __slots__ = ("_found", "_labels")

    def __init__(
        self,
        found: Mapping[Metric, Mapping[Where, Any]],
        labels: Mapping[Metric, tuple[str, ...]],
    ) -> None:
        self._found, self._labels = found, labels

    def collect(self) -> Iterator[Family]:
        """Return the series."""
        ends = [*map(str, BUCKETS), "+Inf"]
        for metric, series in self._found.items():
            name, about = metric.prometheus_name, metric.description
            labels = self._labels.get(metric, metric.labels)
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(name, about, labels=labels)
                for where, (*counts, total) in series.items():
                    buckets = [*zip(ends, accumulate(counts), strict=True)]
                    histogram.add_metric(where, buckets, total)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, about, labels=labels)
            for where, value in series.items():
                family.add_metric(where, value)
            yield family
