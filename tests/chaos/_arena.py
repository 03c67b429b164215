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

from ._fleet import Fleet, Member
from ._history import HISTORY, History
from ._job import NAMESPACE, Job, Place
from ._notes import read_notes
from ._verdict import UNIQUE, judge

SHOWN: Final = 5
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
    """How long and how large, and where the histories stay, if anywhere."""

    seconds: float
    processes: int
    store: str
    ids: int = 0
    seed: int = 0
    histories: Path | None = None


class Faults(Counter[str]):
    """How often what was broken; in a history, each with its time."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._history = History(folder / f"faults{HISTORY}")

    def __setitem__(self, kind: str, count: int) -> None:
        """Count; ``faults["kill"] += 1`` comes here once the fault was done."""
        self._history.happened("fault", kind, count - self[kind])
        super().__setitem__(kind, count)


@dataclass(kw_only=True)
class Result:
    """What came of one run; `line` is all of it in one line.

    Attributes:
        violations: of the checker's rules that are broken, how many.
        said: what the checker said.
    """

    scenario: str
    store: str
    seconds: float
    ids: int
    violations: Counter[str]
    said: str
    errors: Counter[str]
    faults: Counter[str]
    longest: float
    growth: float
    notes: Counter[str]
    failures: list[str]
    details: list[str]

    @property
    def duplicates(self) -> int:
        """How many ids came twice."""
        return self.violations[UNIQUE]

    def line(self) -> str:
        """Return the run in one line."""
        parts = [
            f"{self.scenario:12} {self.store:9} {self.seconds:6.1f} s",
            f"ids {self.ids:,}",
            f"duplicates {self.duplicates:,}",
            f"other violations {(self.violations - Counter({UNIQUE: self.duplicates})).total()}",
            f"errors {_counted(self.errors)}",
            f"faults {_counted(self.faults)}",
            f"longest wait {self.longest:.1f} s",
            f"memory x{self.growth:.2f}",
        ]
        parts += [f"{word} {count}" for word, count in sorted(self.notes.items())]
        return "; ".join(parts) + f"; {'FAILED' if self.failures else 'ok'}"


def _counted(counter: Counter[str]) -> str:
    each = ", ".join(f"{kind} {count}" for kind, count in counter.most_common())
    return f"{counter.total()}" + (f" ({each})" if each else "")


class Arena:
    """One run.

    Attributes:
        options: how long and how large.
        folder: for the scenario's files.
        records: for the workers' notes.
        histories: for their histories.
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
        self.histories = options.histories or self.folder / "histories"
        for each in (self.records, self.histories):
            each.mkdir(parents=True, exist_ok=True)
        self.draw = random.Random(f"{scenario} {options.seed}")  # noqa: S311 - faults
        self.faults = Faults(self.histories)
        self.complaints: list[str] = []
        self.broken_off = ""
        self._stack = stack
        self._fleet: Fleet | None = None
        self._members: list[Member] = []
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
                if machines and (mark := getattr(store, "initialize_namespace", None)):
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
            histories=self.histories,
            counter=f"{self.scenario}.{self.options.store}",
            **settings,
        )

    @contextmanager
    def workers(
        self, job: Job, *, count: int | None = None, prefix: Sequence[str] = ()
    ) -> Generator[Fleet]:
        """Have workers run while the block breaks things; all of them have to get on after it."""
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
        """Have the histories checked, and judge."""
        found, told = judge(self.histories), read_notes(self.records)
        result = Result(
            scenario=self.scenario,
            store=self.options.store,
            seconds=time.monotonic() - self._began,
            ids=found.ids,
            violations=found.violations,
            said=found.said,
            errors=told.errors,
            faults=self.faults,
            longest=told.longest,
            growth=self._growth(),
            notes=told.counts,
            failures=list(self.complaints),
            details=[f"{kind}: {text}" for kind, text in told.texts.items()],
        )
        if self.broken_off:
            result.notes["broken off"] += 1
            result.details.append(self.broken_off)
        result.details += self._said()
        self._judge(result, found.code)
        return result

    def _judge(self, result: Result, code: int) -> None:
        bar, failures = self.bar, result.failures
        is_sound = bar.repeats and result.violations  # as it has to be
        if code and not is_sound:
            failures.append(f"the checker: {result.said}")
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
