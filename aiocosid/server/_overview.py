"""What the dashboard shows: statistics, counters and machine ids as tables of text.

Nothing runs while nobody asks.  Generators are read at each call; the stores at most so often that
reading them takes a tenth of the time, however many browsers ask.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from .. import __version__
from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, UnsupportedByStoreError
from ..machine import MachineIdStatistics
from ..provider import ConfiguredProvider
from ..segment import SegmentStatistics
from ..snowflake import CachedSnowflakeStatistics, ShardedStatistics, SnowflakeStatistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from ..abc import AnyGenerator, Clock, Counter, Machine, MachineMarker, Store
    from ._service import Service

__all__ = ("MOST_ROWS", "Overview", "Shown", "ViewTable", "Watch")

MOST_ROWS: Final = 200
"""Rows of one table; the command line shows all."""

READ_TIMEOUT: Final = 2.0  # seconds, for one question to a store
SHORTEST_PAUSE: Final = 2.0  # seconds between two readings of the stores
PAUSE_FACTOR: Final = 9  # times as long as the reading took
OLDEST_SAMPLE: Final = 30.0  # seconds: a rate over a longer time says nothing of now
CLOSEST_SAMPLES: Final = 0.5  # seconds

UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER: Final = "does not end by itself"
NOT_KEPT: Final = "not kept by this store"


@dataclass(frozen=True, slots=True)
class Shown:
    """One value as it is shown.

    Attributes:
        text: the value; a dash if it is not known.
        why: why it is not known, or a remark.
        level: ``good``, ``warn`` or ``bad``; empty for neither.
    """

    text: str
    why: str = ""
    level: str = ""

    def as_tree(self) -> dict[str, str]:
        """Return the parts that are not empty."""
        parts = {"text": self.text, "why": self.why, "level": self.level}
        return {key: part for key, part in parts.items() if part}


Row: TypeAlias = tuple[Shown, ...]


def _unknown(why: str) -> Shown:
    return Shown("-", why)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewTable:
    """One table.

    Attributes:
        key: its name in JSON, and its anchor.
        title: its heading.
        remark: what has to be known to read it.
        columns: the headings; those of numbers begin with ``#``.
        rows: at most `MOST_ROWS`.
        note: instead of rows, or after them: why some are missing.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    remark: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything on the page.

    Attributes:
        is_draining: whether the server is draining.
        facts: facts about the server, with their names.
        tables: the tables.
    """

    is_draining: bool
    facts: Mapping[str, Shown]
    tables: Sequence[ViewTable]

    def as_tree(self) -> dict[str, object]:
        """Return it ready for JSON."""
        return {
            "draining": self.is_draining,
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


class Rates:
    """How fast numbers rise, from the times at which somebody has asked."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        """Begin without a sample."""
        # By key: the sample that the next one is compared with, the latest one, and their rate.
        self._samples: dict[object, tuple[float, int, Shown]] = {}

    def rate(self, key: object, value: int, now: float) -> Shown:
        """Return how much a number rises in a second, and keep the sample.

        Args:
            key: names the number.
            value: its value.
            now: monotonic seconds.
        """
        before = self._samples.get(key)
        if before is None or now - before[0] > OLDEST_SAMPLE or value < before[1]:
            self._samples[key] = now, value, _unknown("measuring")
        elif now - before[0] >= CLOSEST_SAMPLES:
            rise = (value - before[1]) / (now - before[0])
            self._samples[key] = now, value, Shown(number_text(rise))
        return self._samples[key][2]

    def keep_only(self, keys: Iterable[object]) -> None:
        """Drop the samples of all other numbers."""
        kept = set(keys)
        self._samples = {key: each for key, each in self._samples.items() if key in kept}


# Texts.


def number_text(value: float) -> str:
    """Return a number with thousands apart, and one decimal place below 100."""
    if value >= 100 or value == round(value):  # noqa: PLR2004 - as said
        return f"{round(value):,}"
    return f"{value:,.1f}"


def seconds_text(seconds: float) -> str:
    """Return a duration in the units that fit it."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:  # noqa: PLR2004 - seconds
        return f"{seconds:.3g} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 120:  # noqa: PLR2004 - as above
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{days:,.0f} days"  # noqa: PLR2004 - as above


def time_text(ms: int) -> str:
    """Return a unix time in milliseconds in UTC; as a number if it is after the year 9999."""
    try:
        moment = UNIX_EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms:,} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def name_text(name: str) -> str:
    """Return a name with its invisible characters escaped: others have chosen it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _error(error: BaseException | None) -> Shown:
    """Return an error's class alone: its message may contain hosts and users."""
    return Shown("none") if error is None else Shown(type(error).__name__, level="warn")


# Generators.

GENERATORS: Final = (
    *("Name", "Kind", "State", "#Ids/s", "#Ids in hand", "#They last", "#Distance"),
    *("#Starvations", "#Waits", "#Store calls", "#Failed", "Last error"),
)
ON_DEMAND: Final = _unknown("made on demand")
NOT_COUNTED: Final = _unknown("not counted")
NO_CHAIN: Final = _unknown("no chain")


def pictures_of(statistics: Any) -> Iterator[Any]:  # noqa: ANN401 - a dataclass of any kind
    """Yield the statistics and those inside: of a wrapped generator, a lease, a distributor."""
    yield statistics
    for each in fields(statistics):
        if is_dataclass(inner := getattr(statistics, each.name)):
            yield from pictures_of(inner)


def generator_row(name: str, generator: AnyGenerator, rates: Rates, now: float) -> Row:
    """Return the row of one generator."""
    pictures = list(pictures_of(generator.statistics()))
    core = next((each for each in pictures if hasattr(each, "ids_handed_out")), pictures[0])
    lease = next((each for each in pictures if isinstance(each, MachineIdStatistics)), None)
    rate, handed_out = NOT_COUNTED, getattr(core, "ids_handed_out", None)
    if handed_out is not None:
        rate = rates.rate(("generator", name, core.name), handed_out, now)
    error = next((e for each in pictures if (e := getattr(each, "last_error", None))), None)
    calls, failures = _calls(pictures)
    return (
        Shown(name_text(name)),
        Shown(pictures[0].kind),
        _state(pictures, lease, error),
        rate,
        *_in_hand(core),
        _distance(core),
        _count(core, "starvations", NO_CHAIN),
        _waits(core),
        calls,
        failures,
        _error(error),
    )


def _state(
    pictures: Sequence[Any], lease: MachineIdStatistics | None, error: Exception | None
) -> Shown:
    ended = next((e for each in pictures if (e := getattr(each, "ended", None))), None)
    if ended is not None:
        return Shown("ended", type(ended).__name__, "bad")
    if lease is not None and (lease.machine_id is None or lease.seconds_left <= 0):
        return Shown("down", "no machine id", "bad")
    if error is None:
        return Shown("up", level="good")
    is_dry = any(getattr(each, "remaining", None) == 0 for each in pictures)
    return Shown("down", "no ids left", "bad") if is_dry else Shown("up", "store fails", "warn")


def _in_hand(core: Any) -> tuple[Shown, Shown]:  # noqa: ANN401 - statistics of any kind
    match core:
        case SegmentStatistics():
            in_hand = Shown(number_text(core.remaining))
            if core.seconds_left is None:
                return in_hand, _unknown("no demand")
            return in_hand, Shown(seconds_text(core.seconds_left))
        case ShardedStatistics():
            return Shown(number_text(core.remaining + core.prefetched)), ON_DEMAND
        case CachedSnowflakeStatistics():
            return Shown(number_text(core.filled)), ON_DEMAND
        case SnowflakeStatistics():
            return ON_DEMAND, ON_DEMAND
        case _:
            return NOT_COUNTED, NOT_COUNTED


def _distance(core: Any) -> Shown:  # noqa: ANN401 - as above
    if not isinstance(core, SegmentStatistics):
        return NO_CHAIN
    remark = "" if core.prefetch_distance == core.safe_distance else f"{core.safe_distance} at rest"
    return Shown(str(core.prefetch_distance), remark)


def _count(core: Any, name: str, otherwise: Shown) -> Shown:  # noqa: ANN401 - as above
    value = getattr(core, name, None)
    return otherwise if value is None else Shown(number_text(value))


def _waits(core: Any) -> Shown:  # noqa: ANN401 - as above
    names = ("waits", "waits_for_tick", "waits_for_clock", "waits_for_lease")
    found = [getattr(core, name) for name in names if hasattr(core, name)]
    if not found:
        return NOT_COUNTED
    waiting = getattr(core, "waiting", 0)
    text = number_text(sum(found))
    return Shown(text, f"{waiting} waiting now", "warn") if waiting else Shown(text)


def _calls(pictures: Sequence[Any]) -> tuple[Shown, Shown]:
    """Return the calls to the store that were answered, and those that failed."""
    for each in pictures:
        answered = next(
            (getattr(each, n) for n in ("fetches", "grants", "renewals") if hasattr(each, n)), None
        )
        if answered is not None:
            failed: int = each.failures
            level = "warn" if failed else ""
            return Shown(number_text(answered)), Shown(number_text(failed), level=level)
    return _unknown("no store"), _unknown("no store")


# Stores.


@dataclass(slots=True, kw_only=True)
class StoreReading:
    """What one store has answered.

    Attributes:
        label: names the store, without credentials.
        at_ms: when it was asked, by this process's clock.
        errors: why a part is not known, by its name.
    """

    label: str
    at_ms: int
    took: float | None = None
    clock_error: tuple[float, float] | None = None
    is_initialized: bool | None = None
    counters: Sequence[Counter] = ()
    machines: Sequence[Machine] = ()
    markers: Sequence[MachineMarker] = ()
    errors: dict[str, str] = field(default_factory=dict[str, str])


def store_label(store: Store) -> str:
    """Return the name of a store, without credentials."""
    ours = type(store).__module__.startswith("aiocosid.")
    # The repr of a class of somebody else may show a password.
    return repr(store).strip("<>") if ours else type(store).__name__


async def read_store(store: Store, clock: Clock) -> StoreReading:
    """Ask a store for everything that is shown of it; each part may fail alone."""
    reading = StoreReading(label=store_label(store), at_ms=clock.now_ms())

    async def read(part: str, call: Callable[[], Awaitable[Any]]) -> None:
        began = clock.monotonic()
        reading.errors[part] = f"no answer in {READ_TIMEOUT:g} s"
        try:
            with clock.move_on_after(READ_TIMEOUT):
                setattr(reading, part, await call())
                del reading.errors[part]
        except UnsupportedByStoreError:
            reading.errors[part] = NOT_KEPT
        except CosIdError as error:
            reading.errors[part] = type(error).__name__
        if reading.took is None and part not in reading.errors:
            reading.took = clock.monotonic() - began

    await read("is_initialized", store.is_initialized)
    await read("counters", store.counters)
    await read("machines", store.machines)
    await read("markers", store.machine_markers)
    return reading


STORES: Final = (
    *("Store", "State", "#Latency", "#Clock error", "Durability", "Initialised", "Read at (UTC)"),
)


def store_row(reading: StoreReading) -> Row:
    """Return the row of one store."""
    errors = reading.errors
    failed = next((why for why in errors.values() if why != NOT_KEPT), "")
    state = Shown("fails", failed, "bad") if failed else Shown("answers", level="good")
    latency = _unknown("no answer") if reading.took is None else Shown(seconds_text(reading.took))
    initialized = _unknown(errors.get("is_initialized", "not asked"))
    if reading.is_initialized is not None:
        initialized = Shown("yes") if reading.is_initialized else Shown("no", level="warn")
    return (
        Shown(name_text(reading.label)),
        state,
        latency,
        _clock_error(reading),
        _unknown("not checked"),
        initialized,
        Shown(time_text(reading.at_ms)[11:]),
    )


def _clock_error(reading: StoreReading) -> Shown:
    if reading.clock_error is None:
        return _unknown(reading.errors.get("clock_error", "not told by this store"))
    error, doubt = reading.clock_error
    level = "warn" if abs(error) - doubt > 1 else ""
    return Shown(f"{error * 1000:+,.0f} ms", f"± {seconds_text(doubt)}", level)


COUNTERS: Final = ("Counter", "Store", "#Last max id", "#Ids/s reserved", "Last fetch (UTC)")
MACHINES: Final = (
    *("Namespace", "#Machine id", "Holder", "Held since", "Last renewal (UTC)"),
    *("Held until (UTC)", "No id is later than (UTC)"),
)
QUARANTINES: Final = ("Namespace", "Store", "State", "Ends")


def counter_rows(reading: StoreReading, rates: Rates, now: float) -> Iterator[Row]:
    """Yield the rows of one store's counters."""
    for each in reading.counters:
        fetched = each.last_fetch_time
        key = ("counter", reading.label, each.namespaced_name)
        yield (
            Shown(name_text(each.namespaced_name)),
            Shown(name_text(reading.label)),
            Shown(str(each.last_max_id)),
            rates.rate(key, each.last_max_id, now),
            _unknown("not kept") if fetched is None else Shown(time_text(fetched * 1000)),
        )


def machine_rows(reading: StoreReading) -> Iterator[Row]:
    """Yield the rows of one store's machine ids, those that are held first."""
    for each in sorted(reading.machines, key=lambda each: not each.instance_id):
        mark = _unknown("no mark") if each.mark_ms < 0 else Shown(time_text(each.mark_ms))
        holder, until = Shown("free"), _unknown("free")
        if each.instance_id:
            holder = Shown(name_text(each.instance_id), "stable" if each.stable else "")
            until = Shown(FOREVER) if each.stable else _unknown("the holder's safe guard decides")
        yield (
            Shown(name_text(each.namespace)),
            Shown(str(each.machine_id)),
            holder,
            _unknown("not stored" if each.instance_id else "free"),
            Shown(time_text(each.last_timestamp_ms)),
            until,
            mark,
        )


def quarantine_rows(reading: StoreReading) -> Iterator[Row]:
    """Yield the rows of one store's namespaces."""
    for each in reading.markers:
        end = _unknown("none runs")
        state = Shown("hands out ids", level="good")
        if each.is_quarantined:
            state = Shown("quarantine", level="bad")
            end = Shown(FOREVER)
            if each.seconds_left != inf:
                end_ms = reading.at_ms + round(each.seconds_left * 1000)
                end = Shown(time_text(end_ms), f"in {seconds_text(each.seconds_left)}")
        yield Shown(name_text(each.namespace)), Shown(name_text(reading.label)), state, end


LEASES: Final = (
    *("Namespace", "#Machine id", "Instance", "#Lasts unrenewed", "Mark (UTC)", "#Renewals"),
    *("#Failed", "#Lost", "Quarantine ends", "Last error"),
)


def lease_rows(statistics: Iterable[Any], now_ms: int) -> Iterator[Row]:
    """Yield the rows of the machine ids that this process holds, each once."""
    seen: set[tuple[str, str, int | None]] = set()
    for each in (found for tree in statistics for found in pictures_of(tree)):
        if not isinstance(each, MachineIdStatistics):
            continue
        key = each.namespace, each.instance_id, each.machine_id
        if key not in seen:
            seen.add(key)
            yield _lease_row(each, now_ms)


def _lease_row(each: MachineIdStatistics, now_ms: int) -> Row:
    left = each.seconds_left
    quarantine = _unknown("none runs")
    if each.quarantine_left == inf:
        quarantine = Shown(FOREVER, level="bad")
    elif each.quarantine_left > 0:
        end_ms = now_ms + round(each.quarantine_left * 1000)
        quarantine = Shown(time_text(end_ms), f"in {seconds_text(each.quarantine_left)}", "bad")
    return (
        Shown(name_text(each.namespace)),
        _unknown("none now") if each.machine_id is None else Shown(str(each.machine_id)),
        Shown(name_text(each.instance_id)),
        Shown(seconds_text(left)) if isfinite(left) else Shown(FOREVER),
        _unknown("no mark") if each.mark_ms < 0 else Shown(time_text(each.mark_ms)),
        Shown(number_text(each.renewals)),
        Shown(number_text(each.failures), level="warn" if each.failures else ""),
        Shown(number_text(each.losses), level="bad" if each.losses else ""),
        quarantine,
        _error(each.last_error),
    )


def _cut(rows: Iterable[Row]) -> tuple[list[Row], str]:
    found = list(rows)
    more = len(found) - MOST_ROWS
    note = f"{more:,} more are not shown; the command line shows all." if more > 0 else ""
    return found[:MOST_ROWS], note


class Watch:
    """Collects what the page shows, when somebody asks."""

    __slots__ = ("_clock", "_due", "_lock", "_rates", "_readings", "_service", "_started_ms")

    def __init__(self, service: Service, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin to count the uptime.

        Args:
            service: what is shown.
            clock: time.
        """
        self._service = service
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._rates = Rates()
        self._readings: list[StoreReading] = []
        self._due = -inf
        self._lock = anyio.Lock()

    async def overview(self) -> Overview:
        """Return everything; a store that does not answer delays it by some seconds at most.

        Raises:
            NotOpenError: the server's provider is not open.
        """
        async with self._lock:
            if self._clock.monotonic() >= self._due:
                began = self._clock.monotonic()
                self._readings = [await read_store(each, self._clock) for each in self._stores()]
                now = self._clock.monotonic()
                self._due = now + max(SHORTEST_PAUSE, PAUSE_FACTOR * (now - began))
        return self._overview()

    def refresh(self) -> None:
        """Read the stores again at the next call: something was changed."""
        self._due = -inf

    def _stores(self) -> list[Store]:
        provider = self._service.provider
        found: list[Store] = []
        if isinstance(provider, ConfiguredProvider):
            found += [*provider._stores, *provider._borrowed]
        main = self._service._store
        if main is not None and main not in found:
            found.insert(0, main)
        return found

    def _overview(self) -> Overview:
        provider, rates, now = self._service.provider, self._rates, self._clock.monotonic()
        rows = [generator_row(name, provider[name], rates, now) for name in provider]
        generators, more_generators = _cut(rows)
        statistics = [provider[name].statistics() for name in provider]
        readings = self._readings
        counters, more = _cut(row for each in readings for row in counter_rows(each, rates, now))
        machines, more_ids = _cut(row for each in readings for row in machine_rows(each))
        states, more_states = _cut(row for each in readings for row in quarantine_rows(each))
        tables = (
            ViewTable(
                key="generators",
                title="Generators",
                columns=GENERATORS,
                rows=generators,
                note=more_generators or ("" if rows else "There are no generators."),
                remark="Of this process. Segments that the service hands out show at Counters.",
            ),
            ViewTable(
                key="stores",
                title="Stores and clocks",
                columns=STORES,
                rows=[store_row(each) for each in readings],
                note="" if readings else "The server has no store.",
                remark="Clock error: how far this host's clock is ahead of the store's.",
            ),
            ViewTable(
                key="counters",
                title="Counters",
                columns=COUNTERS,
                rows=counters,
                note=more or self._note("counters", counters, "There are no counters."),
                remark="The last max id is the floor: every further segment is above it.",
            ),
            ViewTable(
                key="leases",
                title="Machine ids of this process",
                columns=LEASES,
                rows=(leases := list(lease_rows(statistics, self._clock.now_ms()))),
                note="" if leases else "This process holds none.",
            ),
            ViewTable(
                key="machines",
                title="Machine ids in the store",
                columns=MACHINES,
                rows=machines,
                note=more_ids or self._note("machines", machines, "None was ever handed out."),
            ),
            ViewTable(
                key="quarantines",
                title="Quarantines of machine ids",
                columns=QUARANTINES,
                rows=states,
                note=more_states or self._note("markers", states, "No namespace has machine ids."),
            ),
        )
        return Overview(
            is_draining=self._service.is_draining,
            facts=self._facts(rows),
            tables=tables,
        )

    def _note(self, part: str, rows: Sequence[Row], otherwise: str) -> str:
        failed = [each for each in self._readings if part in each.errors]
        if failed:
            return "; ".join(f"{name_text(r.label)}: {r.errors[part]}" for r in failed)
        return "" if rows else otherwise

    def _facts(self, rows: Sequence[Row]) -> dict[str, Shown]:
        service = self._service
        bad = sum(row[2].level == "bad" for row in rows)
        warn = sum(row[2].level == "warn" for row in rows)
        level = "bad" if bad else "warn" if warn else "good"
        state = Shown("draining", "ready is off", "warn")
        return {
            "Server": state if service.is_draining else Shown("serving", level="good"),
            "Generators": Shown(f"{len(rows) - bad} of {len(rows)} up", level=level),
            "Up for": Shown(seconds_text((self._clock.now_ms() - self._started_ms) / 1000)),
            "Version": Shown(__version__),
            "Process": Shown(str(os.getpid())),
            "Time (UTC)": Shown(time_text(self._clock.now_ms())),
        }
