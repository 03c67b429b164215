"""Where a scenario is played: a folder, a store, workers, time that runs out, and the verdict."""

from __future__ import annotations

import asyncio
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.servers import PostgresServer, ValkeyServer

from ._check import SHOWN, check
from ._fleet import Fleet, Member
from ._history import HISTORY, History
from ._job import NAMESPACE, Job, Place
from ._record import IDS, read_notes
from ._tenures import Tenures

SAMPLE_EVERY: Final = 0.5  # seconds
DESCRIPTORS: Final = 16_384
SEQUENCES: Final = {"sharded", "published"}  # sequences of a second on a Redis that forgets


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a run on one store has to reach.

    Attributes:
        repeats: whether ids may come twice, because the store forgets and nothing guards it.
        errors: whether callers may get errors.
        growth: by what factor a worker's memory may grow from the first quarter to the last.
    """

    repeats: bool = False
    errors: bool = True
    growth: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long and how large, and where histories go, if anywhere."""

    seconds: float
    processes: int
    store: str
    ids: int = 0
    seed: int = 0
    histories: Path | None = None


class Faults(Counter[str]):
    """How often what was broken; in a history, if there is one, each with its time."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._history = History(folder / f"faults{HISTORY}") if folder else None

    def __setitem__(self, kind: str, count: int) -> None:
        """Count; ``faults["kill"] += 1`` comes here once the fault was done."""
        if self._history is not None:
            self._history.happened("fault", kind, count - self[kind])
        super().__setitem__(kind, count)


@dataclass(kw_only=True)
class Result:
    """What came of one run; `line` is all of it in one line."""

    scenario: str
    store: str
    seconds: float
    ids: int
    duplicates: int
    disorder: int
    tenures: Tenures | None
    errors: Counter[str]
    faults: Counter[str]
    longest: float
    growth: float
    notes: Counter[str]
    failures: list[str]
    details: list[str]

    def line(self) -> str:
        """Return the run in one line."""
        parts = [
            f"{self.scenario:12} {self.store:9} {self.seconds:6.1f} s",
            f"ids {self.ids:,}",
            f"duplicates {self.duplicates:,}",
            f"out of order {self.disorder}",
            f"errors {_counted(self.errors)}",
            f"faults {_counted(self.faults)}",
            f"longest wait {self.longest:.1f} s",
            f"memory x{self.growth:.2f}",
        ]
        if self.tenures is not None:
            owners = f"{self.tenures.machine_ids} machine ids of {self.tenures.owners} owners"
            parts.insert(3, f"{owners}, two at a time {self.tenures.violations}")
        parts += [f"{word} {count}" for word, count in sorted(self.notes.items())]
        return "; ".join(parts) + f"; {'FAILED' if self.failures else 'ok'}"


def _counted(counter: Counter[str]) -> str:
    each = ", ".join(f"{kind} {count}" for kind, count in counter.most_common())
    return f"{counter.total()}" + (f" ({each})" if each else "")


class Arena:
    """One run.

    Attributes:
        options: how long and how large.
        folder: for the scenario's files; the records are in a folder of their own.
        draw: what is random.
        faults: what was done, counted.
        complaints: what was not as it has to be.
        broken_off: why it ended too early, if the servers were the reason.
    """

    def __init__(self, scenario: str, options: Options, bar: Bar, stack: ExitStack) -> None:
        self.scenario = scenario
        self.options = options
        self.bar = bar
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        self.records = self.folder / "records"
        self.records.mkdir()
        self.draw = random.Random(f"{scenario} {options.seed}")  # noqa: S311 - faults
        self.faults = Faults(options.histories)
        self.complaints: list[str] = []
        self.broken_off = ""
        self._stack = stack
        self._fleet: Fleet | None = None
        self._members: list[Member] = []
        self._job: Job | None = None
        self._until = 0.0
        self._began = self._sampled = time.monotonic()

    # Stores.

    def sound(self, *, machines: bool = False) -> Place:
        """Return a store that keeps its word: the one that was asked for."""
        match self.options.store:
            case "sqlite":
                url = f"sqlite:///{self.folder}/ids.db"
            case "valkey":
                url = self.enter(ValkeyServer(persistent=True)).url
            case "postgres":
                url = self.enter(PostgresServer()).url
            case other:
                raise ValueError(other)
        return self.prepared(Place(url=url), machines=machines)

    def fast(self, url: str) -> Place:
        """Return a Redis that forgets: alone, or with a durable root beneath it."""
        if self.options.store in SEQUENCES:
            return Place(url=url)
        if self.options.store == "plain":
            return self.prepared(Place(url=url))
        root = f"sqlite:///{self.folder}/root.db"
        if self.options.store == "tiered-pg":
            root = self.enter(PostgresServer()).url
        self.prepared(Place(url=root))
        return Place(url=root, cache=url)

    def prepared(self, place: Place, *, machines: bool = False) -> Place:
        """Create what has to be there before the first process comes."""

        async def prepare() -> None:
            async with place.opened() as store:
                await store.create_schema(disposable=True)
                if machines and (mark := getattr(store, "mark_machines", None)):
                    await mark(namespace=NAMESPACE)

        asyncio.run(prepare())
        return place

    def raise_floor(self, job: Job, above: int) -> None:
        """Have a counter go on above a number."""

        async def go() -> None:
            async with job.place.opened() as store:
                await store.set_floor(namespace=job.namespace, name=job.name, above=above)

        asyncio.run(go())

    def enter(self, server: Any) -> Any:
        """Start a server that lasts until the end of the run."""
        return self._stack.enter_context(server)

    # Workers.

    def job(self, place: Place, **settings: Any) -> Job:
        """Return what the workers do."""
        if self.options.store in SEQUENCES:
            settings["kind"] = self.options.store
        return Job(
            folder=self.records,
            place=place,
            histories=self.options.histories,
            counter=f"{self.scenario}.{self.options.store}",
            **settings,
        )

    @contextmanager
    def workers(
        self, job: Job, *, count: int | None = None, prefix: Sequence[str] = ()
    ) -> Generator[Fleet]:
        """Have workers run while the block breaks things; all of them have to get on after it."""
        self._job = job
        fleet = self._fleet = Fleet(job, self.draw)
        try:
            with fleet:
                fleet.prefix = prefix
                fleet.add(self.options.processes if count is None else count)
                fleet.wait_for_more("at the start", deadline=60)
                if not self._until:
                    self.begin()
                yield fleet
                fleet.wait_for_more("after the last fault", deadline=60)
        finally:
            self._fleet = None
            self.complaints += fleet.complaints
            self._members += fleet.members + fleet.gone

    # Time.

    def begin(self) -> None:
        """Count the seconds from now on: everybody is there."""
        self._began = time.monotonic()
        self._until = self._began + self.options.seconds

    def goes_on(self) -> bool:
        """Is there time left for another fault?"""
        return time.monotonic() < self._until

    def pause(self, seconds: float) -> None:
        """Let the workers work."""
        end = time.monotonic() + seconds
        while True:
            if self._fleet is not None and time.monotonic() > self._sampled + SAMPLE_EVERY:
                self._sampled = time.monotonic()
                self._fleet.sample()
                self._fleet.check()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def between(self, least: float, most: float) -> float:
        """Return a number that nobody chose."""
        return self.draw.uniform(least, most)

    # Verdict.

    def result(self) -> Result:
        """Read all records and judge."""
        paths = sorted(self.records.glob(f"*{IDS}"))
        snowflakes = self._job is not None and self._job.kind == "snowflake"
        tenures = Tenures.of(self._job.made_layout, paths) if snowflakes and self._job else None
        found = check(paths, *([tenures] if tenures else []), scratch=self.folder)
        told = read_notes(self.records)
        result = Result(
            scenario=self.scenario,
            store=self.options.store,
            seconds=time.monotonic() - self._began,
            ids=found.ids,
            duplicates=found.duplicates,
            disorder=found.disorder,
            tenures=tenures,
            errors=told.errors,
            faults=self.faults,
            longest=told.longest,
            growth=self._growth(),
            notes=told.counts,
            failures=list(self.complaints),
            details=[f"{kind}: {text}" for kind, text in told.texts.items()],
        )
        result.details += [f"{each}" for each in found.collisions]
        if self.broken_off:
            result.notes["broken off"] += 1
            result.details.append(self.broken_off)
        result.details += self._said()
        self._judge(result, found.disordered)
        return result

    def _judge(self, result: Result, disordered: list[str]) -> None:
        bar, failures = self.bar, result.failures
        if result.duplicates and not bar.repeats:
            failures.append(f"{result.duplicates} duplicates")
        if result.disorder and not bar.repeats:
            failures.append(f"ids did not rise in {', '.join(disordered)}")
        if result.tenures is not None and result.tenures.violations:
            failures.append(f"two owners of a machine id: {result.tenures.interleaved}")
        if result.errors and not bar.errors:
            failures.append(f"errors to callers: {_counted(result.errors)}")
        if bar.growth and result.growth > bar.growth:
            failures.append(f"memory grew to {result.growth:.2f} of what it was")
        if not result.faults.total():
            failures.append("nothing was broken")
        if not result.ids:
            failures.append("no ids")

    def _growth(self) -> float:
        """Return by what factor memory grew between the first quarter and the last."""
        factors = [
            median(rss[-(len(rss) // 4) :]) / median(rss[: len(rss) // 4])
            for rss in (each.rss[1:] for each in self._members)
            if len(rss) >= 8
        ]
        return max(factors, default=1.0)

    def _said(self) -> list[str]:
        texts = [path.read_text(errors="replace") for path in sorted(self.records.glob("*.err"))]
        return [text[-2000:] for text in texts if "Traceback" in text][:SHOWN]


@dataclass(frozen=True)
class Scenario:
    """Something that is tried.

    Attributes:
        what: in a few words.
        play: does it.
        stores: those it may be done with, and what has to come of it; the first is the usual one.
        processes: how many workers, if nothing else is said.
    """

    what: str
    play: Callable[[Arena], None]
    stores: Mapping[str, Bar] = field(default_factory=dict)
    processes: int = 8


def run(name: str, scenario: Scenario, options: Options) -> Result:
    """Play a scenario once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    with ExitStack() as stack:
        chosen = replace(options, processes=options.processes or scenario.processes)
        arena = Arena(name, chosen, scenario.stores[options.store], stack)
        try:
            scenario.play(arena)
        except TimeoutError as error:  # the servers did not come to rest: judge what there is
            arena.broken_off = str(error)
        return arena.result()
