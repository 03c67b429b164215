"""Counts that never go back, of generators that come and go."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, TypeAlias

from ..segment import SegmentStatistics
from ..snowflake import SnowflakeStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..abc import AnyGenerator, Statistics
    from ._metrics import Metric, Value, Where

__all__ = ("GeneratorTally", "Series", "Tallies")

Series: TypeAlias = "tuple[Metric, Where]"


class GeneratorTally:
    """The counts of one generator over all its openings.

    Attributes:
        generator: the generator; None when it is not watched any more.
        again: gives it also then, if it is still there: it may be watched again.
    """

    __slots__ = ("_before", "_life", "_now", "again", "generator")

    def __init__(self, generator: AnyGenerator) -> None:
        self.generator: AnyGenerator | None = generator
        self.again = _weakly(generator)
        self._before: dict[Series, float] = {}
        self._now: dict[Series, float] = {}
        self._life: tuple[int, ...] = ()

    def note(self, statistics: Statistics, counts: Iterable[Value]) -> None:
        """Take note of where its counts are.

        Another thread than the generator's may read it in the middle of a step, and see a dip.
        """
        life = _life(statistics) or self._life
        if any(now < before for now, before in zip(life, self._life, strict=False)):
            _add(self._before, self._now)
            self._now = {}
        self._life = life
        for metric, value, where in counts:
            self._now[metric, where] = max(value, self._now.get((metric, where), 0))

    def totals(self) -> dict[Series, float]:
        """Return what it has counted."""
        found = dict(self._before)
        _add(found, self._now)
        return found


class Tallies:
    """Those of all generators, the ones that are gone among them."""

    __slots__ = ("_gone", "_tallies")

    def __init__(self) -> None:
        self._tallies: dict[int, GeneratorTally] = {}
        self._gone: dict[Series, float] = {}

    def of(self, generator: AnyGenerator) -> GeneratorTally:
        """Return the one of a generator."""
        found = self._tallies.get(id(generator))
        if found is None or generator is not (found.generator or found.again()):
            self._fold(id(generator))
            found = self._tallies[id(generator)] = GeneratorTally(generator)
        found.generator = generator
        return found

    def pop_unwatched(self, watched: Iterable[int]) -> list[GeneratorTally]:
        """Return those whose generators are not watched any more, and were until now.

        Args:
            watched: the identities of those that are.
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
        if machine.machine_id is not None:  # taken once at the opening, and after each loss
            return (machine.losses - machine.term,)
    return ()


def _weakly(generator: AnyGenerator) -> Callable[[], AnyGenerator | None]:
    try:
        return weakref.ref(generator)
    except TypeError:  # a user's, with slots and none for this
        return lambda: None
