"""Generators whose statistics are read for metrics; their counts never fall."""

from __future__ import annotations

import logging
import os
import weakref
from contextlib import contextmanager, suppress
from math import isfinite
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from weakref import WeakSet

from ..segment import SegmentStatistics
from ..snowflake import SnowflakeStatistics
from .metrics import (
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
from .state import inmost

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from ..abc import AnyGenerator, Provider, Statistics
    from .metrics import Metric, Where

__all__ = ("GeneratorTally", "Generators", "Series", "Tallies", "Watched", "readings")

Series: TypeAlias = "tuple[Metric, Where]"


class GeneratorTally:
    """The counts of one generator over all its openings.

    Attributes:
        generator: the generator; None once it is no longer watched.
        again: returns the generator even then, if it still exists, because it may be watched again.
    """

    __slots__ = ("_before", "_life", "_now", "again", "generator")

    def __init__(self, generator: AnyGenerator) -> None:
        self.generator: AnyGenerator | None = generator
        self.again = _weakly(generator)
        self._before: dict[Series, float] = {}
        self._now: dict[Series, float] = {}
        self._life: tuple[int, ...] = ()

    def note(self, statistics: Statistics, counts: Iterable[Value]) -> None:
        """Record the generator's current counts.

        A thread other than the generator's may read during a step, and see a lower count.
        """
        life = _life(statistics) or self._life
        if any(now < before for now, before in zip(life, self._life, strict=False)):
            _add(self._before, self._now)
            self._now = {}
        self._life = life
        for metric, value, where in counts:
            self._now[metric, where] = max(value, self._now.get((metric, where), 0))

    def totals(self) -> dict[Series, float]:
        """Return the generator's counts."""
        found = dict(self._before)
        _add(found, self._now)
        return found


class Tallies:
    """The counts of all generators, including those that no longer exist."""

    __slots__ = ("_gone", "_tallies")

    def __init__(self) -> None:
        self._tallies: dict[int, GeneratorTally] = {}
        self._gone: dict[Series, float] = {}

    def of(self, generator: AnyGenerator) -> GeneratorTally:
        """Return the tally of a generator."""
        found = self._tallies.get(id(generator))
        if found is None or generator is not (found.generator or found.again()):
            self._fold(id(generator))
            found = self._tallies[id(generator)] = GeneratorTally(generator)
        found.generator = generator
        return found

    def pop_unwatched(self, watched: Iterable[int]) -> list[GeneratorTally]:
        """Return the tallies whose generators were watched until now, and no longer are.

        Args:
            watched: the identities of the watched generators.
        """
        here = set(watched)
        for key, tally in tuple(self._tallies.items()):
            if tally.generator is None and tally.again() is None:
                self._fold(key)
        return [
            tally
            for key, tally in self._tallies.items()
            if key not in here and tally.generator is not None
        ]

    def totals(self) -> dict[Series, float]:
        """Return the sums of the watched generators."""
        found = dict(self._gone)
        shown: dict[Series, None] = {}  # in order
        for tally in self._tallies.values():
            totals = tally.totals()
            _add(found, totals)
            if tally.generator is not None:
                shown |= dict.fromkeys(totals)
        return {series: found[series] for series in shown}

    def _fold(self, key: int) -> None:
        tally = self._tallies.pop(key, None)
        if tally is not None:
            _add(self._gone, tally.totals())


def _add(to: dict[Series, float], more: dict[Series, float]) -> None:
    for series, value in more.items():
        to[series] = to.get(series, 0) + value


def _life(statistics: Statistics) -> tuple[int, ...]:
    """Return the counts that fall only when the generator restarts; empty if unknown now."""
    if isinstance(statistics, SegmentStatistics):
        seen = statistics
        return seen.fetches, seen.failures, seen.ids_fetched, seen.ids_discarded, seen.waits
    if isinstance(statistics, SnowflakeStatistics):
        machine = statistics.machine
        if machine.machine_id is not None:  # taken once when opened, and after each loss
            return (machine.losses - machine.term,)
    return ()


def _weakly(generator: AnyGenerator) -> Callable[[], AnyGenerator | None]:
    try:
        return weakref.ref(generator)
    except TypeError:  # a user's class with slots
        return lambda: None


Generators: TypeAlias = "Provider | Mapping[str, AnyGenerator]"
"""A provider, or generators under any names, each of which has its own."""

_logger = logging.getLogger("aiocosid")


class Watched:
    """The providers of one exporter, which any thread may read."""

    __slots__ = ("__weakref__", "_lock", "_tallies", "_watches")

    def __init__(self) -> None:
        self._forget()
        _all.add(self)

    def _forget(self) -> None:
        self._lock = RLock()
        self._watches: list[_Watch] = []
        self._tallies = Tallies()

    @contextmanager
    def watch(self, generators: Generators) -> Generator[None]:
        """Read their statistics during a ``with`` block."""
        watch = _Watch(generators)
        self._watches.append(watch)
        try:
            yield
        finally:
            if watch in self._watches:  # otherwise the process has forked since
                self._watches.remove(watch)
                self.read()  # read the final counts of its generators

    def read(self) -> dict[Metric, dict[Where, float]]:
        """Return the values of all generators; those with the same attributes are merged.

        Counts continue from those of ended generators with the same attributes.  Each generator is
        read once, however often it is watched.
        """
        found: dict[Metric, dict[Where, float]] = {}
        with self._lock:
            here: set[int] = set()
            for watch in tuple(self._watches):
                for generator, statistics in watch.read(here):
                    tally = self._tallies.of(generator)
                    for metric, value, where in _noted(tally, statistics):
                        series = found.setdefault(metric, {})
                        both = metric.merge(series[where], value) if where in series else value
                        series[where] = both
            for tally in self._tallies.pop_unwatched(here):
                with suppress(Exception):  # the error was logged while it was watched
                    _noted(tally, cast("AnyGenerator", tally.generator).statistics())
                tally.generator = None
            for (metric, where), value in self._tallies.totals().items():
                found.setdefault(metric, {})[where] = value
        return found


_all: Final[WeakSet[Watched]] = WeakSet()


def _forget_parent() -> None:
    """Forget, in a forked child, what the parent watches and exports."""
    for watched in tuple(_all):
        watched._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


class _Watch:
    """One provider, and which of its generators failed at the last reading."""

    __slots__ = ("_failing", "_generators")

    def __init__(self, generators: Generators) -> None:
        self._generators = generators
        self._failing: set[str] = set()

    def read(self, here: set[int]) -> Iterator[tuple[AnyGenerator, Statistics]]:
        """Read each generator that counts ids; one that fails is logged once and left out.

        Args:
            here: the generators that were already read; the others are added.
        """
        for name in tuple(self._generators):
            try:
                generator = inmost(self._generators[name])
                if id(generator) in here:
                    continue
                here.add(id(generator))
                statistics = generator.statistics()
            except KeyError:
                continue  # it has been removed since
            except Exception:
                if name not in self._failing:
                    self._failing.add(name)
                    _logger.exception("%r: no statistics", name)
                continue
            self._failing.discard(name)
            yield generator, statistics


def _noted(tally: GeneratorTally, outer: Statistics) -> list[Value]:
    """Record the counts, and return the other readings."""
    # A group's statistics are only those of the latest call, and are not cumulative.
    inner, is_grouped = _innermost(outer), hasattr(outer, "group")
    values = list(readings(inner, (outer.namespace, outer.name)))
    if not is_grouped:
        tally.note(inner, [each for each in values if each.metric.kind == "counter"])
    return [each for each in values if each.metric.kind != "counter"]


def _innermost(statistics: Statistics) -> Statistics:
    """Return the statistics of the innermost generator, which counts ids."""
    while (actual := getattr(statistics, "actual", None)) is not None:
        statistics = actual
    return statistics


def readings(statistics: Statistics, where: Where) -> Iterator[Value]:
    """Return the values of one generator's statistics, without unknown or infinite ones."""
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
        if seen.machine.fence_ms >= 0:
            yield Value(MARK, seen.machine.fence_ms / 1000, where)
    # A closed generator has issued nothing; one whose lease has expired or was lost still counts as
    # open.
    is_open = seen.machine_id is not None or seen.ids_handed_out > 0
    if is_open and isfinite(seen.machine.seconds_left):
        yield Value(LEASE_LEFT, seen.machine.seconds_left, where)
