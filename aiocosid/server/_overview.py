"""Collects the values that the dashboard shows.

Unless the page is requested, only a sample is taken every five seconds.  Generators are read at
each call.  Stores are read less often, so that reading them takes at most a tenth of the time,
however many browsers ask.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, Any, Final

from .._life.clock import SYSTEM_CLOCK
from ..integrations.state import calls_of
from ..machine import MachineIdStatistics
from ..stores.inspection import Rates, read_store, seconds_text
from ._attention import ATTENTION, attention_rows
from ._curves import PAUSE, curves_of
from ._view import (
    COUNTERS,
    GENERATORS,
    LEASES,
    MACHINES,
    QUARANTINES,
    STORES,
    Shown,
    Traffic,
    counter_rows,
    generator_row,
    is_unused,
    lease_row,
    machine_rows,
    name_text,
    quarantine_rows,
    server_fact,
    store_row,
    table_of,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..abc import Clock, Store
    from ..stores.inspection import StoreReading
    from ._curves import Curve
    from ._service import Service
    from ._view import Row, ViewTable

__all__ = ("Overview", "Watch", "remember")

SHORTEST_PAUSE: Final = 2.0  # seconds between two readings of the stores
PAUSE_FACTOR: Final = 9  # the pause is this many times the duration of the reading
PATIENCE: Final = 0.5  # seconds that a page waits before it shows older values


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything on the page.

    Attributes:
        is_draining: whether the server is draining.
        facts: facts about the server, with their names.
        tables: the tables.
        curves: the last ten minutes.
    """

    is_draining: bool
    facts: Mapping[str, Shown]
    tables: Sequence[ViewTable]
    curves: Sequence[Curve] = ()

    def as_tree(self) -> dict[str, object]:
        """Return the overview ready for JSON."""
        return {
            "draining": self.is_draining,
            "curves": {each.key: each.as_tree() for each in self.curves},
            "facts": {name: each.as_tree() for name, each in self.facts.items()},
            "tables": {
                each.key: {
                    "columns": [column.lstrip("#") for column in each.columns],
                    "rows": [[cell.as_tree() for cell in row] for row in each.rows],
                    "note": each.note,
                }
                for each in self.tables
            },
        }


async def remember(service: Service, clock: Clock = SYSTEM_CLOCK) -> None:
    """Take a sample for the curves every few seconds, until the task is cancelled."""
    while True:
        pulse, reports = service.pulse, service.states.values()
        found = [each for report in reports for each in report.pictures]
        calls = [each for picture in found if (each := calls_of(picture)) is not None]
        left = [each.chain.seconds_left for each in reports if each.chain is not None]
        service.history.note(
            clock.monotonic(),
            ids=sum(getattr(each, "ids_handed_out", 0) for each in found),
            failures=service.calls.failures + sum(failures for _, failures in calls),
            silent=len(pulse.failing),
            seconds_left=min((each for each in left if each is not None), default=None),
            latency=max(pulse.took.values(), default=None),
        )
        await clock.sleep(PAUSE)


class Watch:
    """Collects the values of the page on request."""

    __slots__ = (
        *("_clock", "_due", "_latency", "_rates", "_reading", "_readings", "_service"),
        *("_started_ms", "_timed"),
    )

    def __init__(self, service: Service, clock: Clock = SYSTEM_CLOCK) -> None:
        """Start to count the uptime.

        Args:
            service: the service to show.
            clock: the time source.
        """
        self._service = service
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._rates = Rates()
        self._reading: asyncio.Task[None] | None = None
        self._readings: list[StoreReading] = []
        self._due = -inf
        self._timed = (0, 0.0)  # calls of the service and their seconds at the last reading
        self._latency: float | None = None

    async def overview(self, find: str = "") -> Overview:
        """Return everything; for a store that does not answer at once, its earlier answers.

        Args:
            find: shows only the rows that contain this text.

        Raises:
            NotOpenError: the server's provider is not open.
        """
        stores, reading = self._service.stores, self._reading
        if (reading is None or reading.done()) and self._clock.monotonic() >= self._due:
            reading = self._reading = self._service.tasks.start(partial(self._read, stores))
        if reading is not None and not self._service.pulse.failing:
            with self._clock.move_on_after(PATIENCE):
                await asyncio.wait([reading])
        return self._overview(find.casefold())

    def refresh(self) -> None:
        """Read the stores again at the next call, because something was changed."""
        self._reading, self._due = None, -inf

    async def _read(self, stores: Sequence[Store]) -> None:
        began = self._clock.monotonic()
        found = [await read_store(each, self._clock) for each in stores]
        if self._reading is not asyncio.current_task():  # something has changed meanwhile
            return
        now = self._clock.monotonic()
        self._readings = found
        self._due = now + max(SHORTEST_PAUSE, PAUSE_FACTOR * (now - began))
        self._rates.drop_old(now)
        calls = self._service.calls
        count, seconds = calls.count - self._timed[0], calls.seconds - self._timed[1]
        self._latency = seconds / count if count and seconds else None
        self._timed = calls.count, calls.seconds

    def _overview(self, find: str) -> Overview:
        reports, rates, now = self._service.states, self._rates, self._clock.monotonic()
        pulse, silent = self._service.pulse, self._service.pulse.failing
        rows = [
            generator_row(name, each, rates, now, is_cut_off=pulse.is_cut_off)
            for name, each in reports.items()
        ]
        rows.sort(key=is_unused)
        pictures = [picture for each in reports.values() for picture in each.pictures]
        leases = [*_leases_of(pictures).values()]
        readings, now_ms = self._readings, self._clock.now_ms()
        traffic = self._traffic(pictures, leases)
        table = partial(table_of, find=find)
        return Overview(
            is_draining=self._service.is_draining,
            curves=curves_of(self._service.history.samples),
            facts=self._facts(rows),
            tables=(
                table(
                    *("attention", "Needs attention", ATTENTION),
                    attention_rows(
                        reports,
                        readings,
                        self._service.tokens,
                        self._service.certificate_ms,
                        now_ms,
                    ),
                    "Nothing does.",
                ),
                table(
                    *("generators", "Generators", GENERATORS, rows, "There are no generators."),
                    remark="Of this process. Segments that the service hands out: see Counters.",
                ),
                table(
                    *("stores", "Stores and clocks", STORES),
                    [store_row(each, traffic, silent.get(each.label, "")) for each in readings],
                    "The server has no store.",
                    remark="Clock error: how far this host's clock is ahead of the store's.",
                ),
                table(
                    *("counters", "Counters", COUNTERS),
                    sorted(
                        (row for each in readings for row in counter_rows(each, rates, now)),
                        key=is_unused,
                    ),
                    self._why("counters", "There are no counters."),
                    remark="The last max id is the floor: every further segment is above it.",
                ),
                table(
                    *("leases", "Machine ids of this process", LEASES),
                    [lease_row(each, now_ms) for each in leases],
                    "This process holds none.",
                ),
                table(
                    *("machines", "Machine ids in the store", MACHINES),
                    [row for each in readings for row in machine_rows(each, leases)],
                    self._why("machines", "None was ever handed out."),
                ),
                table(
                    *("quarantines", "Quarantines of machine ids", QUARANTINES),
                    [row for each in readings for row in quarantine_rows(each)],
                    self._why("markers", "No namespace has machine ids."),
                ),
            ),
        )

    def _traffic(
        self, pictures: Iterable[Any], leases: Iterable[MachineIdStatistics]
    ) -> Traffic | None:
        """Return this process's calls to its store; None if it has several stores."""
        if len(self._readings) != 1:
            return None
        others = [each for each in pictures if not isinstance(each, MachineIdStatistics)]
        made = [found for each in (*others, *leases) if (found := calls_of(each)) is not None]
        calls = self._service.calls
        return Traffic(
            count=calls.count + sum(count for count, _ in made),
            failures=calls.failures + sum(failures for _, failures in made),
            latency=self._latency,
        )

    def _why(self, part: str, otherwise: str) -> str:
        """Return why a table has no rows."""
        if self._service.stores and not self._readings:
            return "The store has not been read yet."
        failed = [each for each in self._readings if part in each.errors]
        return "; ".join(f"{name_text(r.label)}: {r.errors[part]}" for r in failed) or otherwise

    def _facts(self, rows: Sequence[Row]) -> dict[str, Shown]:
        bad = sum(row[2].level == "bad" for row in rows)
        warn = sum(row[2].level == "warn" for row in rows)
        level = "bad" if bad else "warn" if warn else "good"
        buffered = f"{warn} with buffered ids only" if warn else ""
        now_ms = self._clock.now_ms()
        return {
            "Server": server_fact(self._service.condition),
            "Generators": Shown(f"{len(rows) - bad} of {len(rows)} up", buffered, level),
            "Stores": self._stores_fact(),
            "Up for": Shown(seconds_text((now_ms - self._started_ms) / 1000)),
            "Version": Shown(version("aiocosid")),
            "Process": Shown(str(os.getpid())),
            "Time (UTC)": Shown(time_text(now_ms)),
        }

    def _stores_fact(self) -> Shown:
        pulse, now = self._service.pulse, self._clock.monotonic()
        if not pulse.asked:
            return Shown("-", "there is none" if not self._service.stores else "not asked")
        if not pulse.failing:
            return Shown("answer" if pulse.asked > 1 else "answers", level="good")
        longest = max(now - pulse.since[each] for each in pulse.failing)
        text = f"{len(pulse.failing)} of {pulse.asked} do not answer"
        return Shown(text, f"for {seconds_text(longest)}", "bad")


def _leases_of(pictures: Iterable[Any]) -> dict[tuple[object, ...], MachineIdStatistics]:
    """Return the leases of this process, each once, although generators share them."""
    return {
        (each.namespace, each.instance_id, each.machine_id): each
        for each in pictures
        if isinstance(each, MachineIdStatistics)
    }
