"""Generators whose statistics are read when somebody asks for metrics."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

from ..segment import SegmentStatistics
from ..snowflake import SnowflakeStatistics
from ._metrics import (
    CALLERS_WAITING,
    IDS_HANDED_OUT,
    IDS_REMAINING,
    IDS_TIME_LEFT,
    LEASE_LEFT,
    MACHINE_ID,
    MARK,
    PREFETCH_DISTANCE,
    WAITS,
    Metric,
    Value,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from ..abc import AnyGenerator, Provider, Statistics

__all__ = ("Generators", "Watched", "readings")

Generators: TypeAlias = "Provider | Mapping[str, AnyGenerator]"
"""A provider, or generators by any name, of whom each says its own."""

_logger = logging.getLogger("aiocosid")


class Watched:
    """The providers of one exporter.  Read from any thread."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: list[_Watch] = []

    @contextmanager
    def watch(self, generators: Generators) -> Generator[None]:
        """Read their statistics for the length of a ``with`` block."""
        watch = _Watch(generators)
        self._watches.append(watch)
        try:
            yield
        finally:
            self._watches.remove(watch)

    def read(self) -> dict[Metric, dict[Where, float]]:
        """Return the values of all generators; those with the same attributes are merged."""
        found: dict[Metric, dict[Where, float]] = {}
        for watch in tuple(self._watches):
            for metric, value, where in watch.values():
                series = found.setdefault(metric, {})
                series[where] = metric.merge(series[where], value) if where in series else value
        return found


class _Watch:
    """One provider, and how far its generators had come."""

    __slots__ = ("_generators", "_seen")

    def __init__(self, generators: Generators) -> None:
        self._generators = generators
        self._seen: dict[str, tuple[float, float]] = {}

    def values(self) -> Iterator[Value]:
        """Read each generator; one that fails is logged, and left out."""
        for name in tuple(self._generators):
            try:
                outer = self._generators[name].statistics()
            except KeyError:
                continue  # it is gone since
            except Exception:
                _logger.exception("%r: no statistics", name)
                continue
            # What a group says is of the latest call's alone, and no count from call to call.
            inner, is_grouped = _innermost(outer), hasattr(outer, "group")
            for value in readings(inner, (outer.namespace, outer.name)):
                if value.metric is IDS_HANDED_OUT and not is_grouped:
                    yield value._replace(value=self._steady(name, inner, value.value))
                elif value.metric.kind != "counter" or not is_grouped:
                    yield value

    def _steady(self, name: str, statistics: Statistics, count: float) -> float:
        """Keep a count from stepping back, which a server takes for a start at 0 and a leap.

        Another thread than the generator's may read it in the middle of a step.  It does start at 0
        when the generator is opened anew: then there are fewer fetches, or another term.
        """
        life: float = 0
        if isinstance(statistics, SegmentStatistics):
            life = statistics.fetches
        elif isinstance(statistics, SnowflakeStatistics):
            life = -statistics.machine.term
        before, last = self._seen.get(name, (life, count))
        if life >= before:
            count = max(count, last)
        self._seen[name] = (life, count)
        return count


def _innermost(statistics: Statistics) -> Statistics:
    """Return the statistics of the generator that counts, beneath those that only convert."""
    while (actual := getattr(statistics, "actual", None)) is not None:
        statistics = actual
    return statistics


def readings(statistics: Statistics, where: Where) -> Iterator[Value]:
    """Say what the statistics of one generator read; what is unknown or endless is left out."""
    if isinstance(statistics, SegmentStatistics):
        yield from _of_segments(statistics, where)
    elif isinstance(statistics, SnowflakeStatistics):
        yield from _of_snowflakes(statistics, where)


def _of_segments(seen: SegmentStatistics, where: Where) -> Iterator[Value]:
    yield Value(IDS_HANDED_OUT, seen.ids_handed_out, where)
    yield Value(IDS_REMAINING, seen.remaining, where)
    if seen.seconds_left is not None:
        yield Value(IDS_TIME_LEFT, seen.seconds_left, where)
    yield Value(PREFETCH_DISTANCE, seen.prefetch_distance, where)
    yield Value(CALLERS_WAITING, seen.waiting, where)
    yield Value(WAITS, seen.waits, (*where, "segment"))


def _of_snowflakes(seen: SnowflakeStatistics, where: Where) -> Iterator[Value]:
    yield Value(IDS_HANDED_OUT, seen.ids_handed_out, where)
    yield Value(CALLERS_WAITING, seen.waiting, where)
    yield Value(WAITS, seen.waits_for_tick, (*where, "tick"))
    yield Value(WAITS, seen.waits_for_clock, (*where, "clock"))
    yield Value(WAITS, seen.waits_for_lease, (*where, "lease"))
    if seen.machine_id is not None:
        yield Value(MACHINE_ID, seen.machine_id, where)
    if isfinite(seen.machine.seconds_left):
        yield Value(LEASE_LEFT, seen.machine.seconds_left, where)
    if seen.machine.mark_ms >= 0:
        yield Value(MARK, seen.machine.mark_ms / 1000, where)
