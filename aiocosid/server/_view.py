"""The dashboard's rows of text, made from statistics and readings of stores without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..segment import SegmentStatistics
from ..snowflake import CachedSnowflakeStatistics, ShardedStatistics, SnowflakeStatistics
from ..stores.inspection import NOT_KEPT, held_until_ms, is_clock_wrong, number_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..abc import Machine, MachineMarker
    from ..integrations.state import GeneratorState
    from ..machine import MachineIdStatistics
    from ..stores.inspection import Rates, StoreReading
    from ._condition import Condition

__all__ = (
    "COUNTERS",
    "FOREVER",
    "GENERATORS",
    "LEASES",
    "MACHINES",
    "MOST_ROWS",
    "QUARANTINES",
    "STORES",
    "Row",
    "Shown",
    "Traffic",
    "ViewTable",
    "counter_rows",
    "generator_row",
    "is_unused",
    "lease_row",
    "machine_rows",
    "name_text",
    "quarantine_rows",
    "server_fact",
    "store_row",
    "table_of",
    "time_text",
)

MOST_ROWS: Final = 200
"""How many rows a table shows at most; the command line shows all."""

UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER: Final = "does not end by itself"


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as the page shows it.

    Attributes:
        text: the value; a dash if it is not known.
        why: why the value is not known, or a remark.
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
        remark: an explanation of the table.
        columns: the headings; a column of numbers begins with ``#``.
        rows: at most `MOST_ROWS`.
        note: why rows are missing; below the rows, or instead of them.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    remark: str = ""
    note: str = ""


def table_of(
    key: str,
    title: str,
    columns: tuple[str, ...],
    rows: list[Row],
    why: str,
    *,
    remark: str = "",
    find: str = "",
) -> ViewTable:
    """Return a table of the rows that contain a text, at most `MOST_ROWS`.

    Args:
        key: its name.
        title: its heading.
        columns: the headings of its columns.
        rows: all of them.
        why: the note if there are no rows.
        remark: an explanation of the table.
        find: the text, in lower case; empty for all rows.
    """
    if find and rows:
        rows = [row for row in rows if any(find in each.text.casefold() for each in row)]
        why = "No row matches."
    more = len(rows) - MOST_ROWS
    note = f"{more:,} more rows are not shown; the command line shows all." if more > 0 else ""
    return ViewTable(
        key=key,
        title=title,
        columns=columns,
        rows=rows[:MOST_ROWS],
        note=note if rows else why,
        remark=remark,
    )


# Texts.


def is_unused(row: Row) -> bool:
    """Return whether a generator or counter is idle; idle ones are listed last."""
    return row[3].text in {"0", "-"}


def time_text(ms: int) -> str:
    """Return a unix time in milliseconds as UTC text, or as a number after the year 9999."""
    try:
        moment = UNIX_EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms:,} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def name_text(name: str) -> str:
    """Return a name with invisible characters escaped, since users and peers choose names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _error(error: BaseException | None) -> Shown:
    """Return only an error's class, because its message may contain hosts and users."""
    return Shown("none") if error is None else Shown(type(error).__name__, level="warn")


# Generators.

WORDS: Final = {"up": "serving", "degraded": "serving in part"}

GENERATORS: Final = (
    *("Name", "Kind", "State", "#Ids/s", "#Ids buffered", "#They last", "#Distance"),
    *("#Starvations", "#Waits", "#Store calls", "#Failed", "Last error"),
)
ON_DEMAND: Final = _unknown("made on demand")
NOT_COUNTED: Final = _unknown("not counted")
NO_CHAIN: Final = _unknown("no chain")


def server_fact(condition: Condition) -> Shown:
    """Return the server's state, and why it does not serve in full."""
    level = {"up": "good", "degraded": "warn"}.get(condition.status, "bad")
    is_draining = "draining" in condition.reasons
    text = "draining" if is_draining else WORDS.get(condition.status, condition.status)
    others = [each for each in condition.reasons if each != "draining"]
    why = ["not ready"] * (not condition.is_ready) + others
    return Shown(text, "; ".join(why), "warn" if is_draining and not others else level)


def generator_row(
    name: str, report: GeneratorState, rates: Rates, now: float, *, is_cut_off: bool = False
) -> Row:
    """Return the row of one generator.

    Args:
        name: its name.
        report: its state.
        rates: the rates of the ids that it issues.
        now: monotonic seconds.
        is_cut_off: whether all stores are silent.
    """
    core = report.core
    rate, handed_out = None, getattr(core, "ids_handed_out", None)
    if handed_out is not None:
        rate = rates.rate(("generator", name, core.name), handed_out, now)
    calls = failures = _unknown("no store")
    if report.calls is not None:
        calls, failures = Shown(number_text(report.calls[0])), _failures(report.calls[1])
    return (
        Shown(name_text(name)),
        Shown(report.pictures[0].kind),
        _state(report, is_cut_off=is_cut_off),
        NOT_COUNTED if handed_out is None else _rate(rate),
        *_in_hand(core, rate),
        _distance(core),
        _count(core, "starvations", NO_CHAIN),
        _waits(core),
        calls,
        failures,
        _error(report.error),
    )


def _state(report: GeneratorState, *, is_cut_off: bool) -> Shown:
    if report.ended is not None:
        return Shown("ended", type(report.ended).__name__, "bad")
    if not report.has_machine_id:
        return Shown("down", "no machine id", "bad")
    if report.error is None and not (is_cut_off and report.calls is not None):
        return Shown("up", level="good")
    is_dry = report.remaining == 0
    return Shown("down", "no ids left", "bad") if is_dry else Shown("up", "store fails", "warn")


def _rate(rate: float | None) -> Shown:
    return _unknown("measuring") if rate is None else Shown(number_text(rate))


def _in_hand(core: Any, rate: float | None) -> tuple[Shown, Shown]:  # noqa: ANN401 - any kind
    match core:
        case SegmentStatistics():
            in_hand = Shown(number_text(core.remaining))
            if not rate:
                return in_hand, _unknown("measuring" if rate is None else "no demand")
            return in_hand, Shown(seconds_text(core.remaining / rate))
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


def _failures(count: int) -> Shown:
    return Shown(number_text(count), level="warn" if count else "")


# Stores.


STORES: Final = (
    *("Store", "State", "#Latency", "#Calls", "#Failed", "#Clock error", "Durability"),
    *("Initialised", "Read at (UTC)"),
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The calls of this process to one store.

    Attributes:
        count: the number of calls.
        failures: the number of failed calls.
        latency: the mean seconds of recent calls; None if there were none.
    """

    count: int
    failures: int
    latency: float | None = None


def store_row(reading: StoreReading, traffic: Traffic | None, failing: str = "") -> Row:
    """Return the row of one store.

    Args:
        reading: its answers.
        traffic: this process's calls to the store; None if several stores share them.
        failing: why the store does not answer now; empty if it does.
    """
    errors = reading.errors
    failed = failing or next((why for why in errors.values() if why != NOT_KEPT), "")
    initialized = _unknown(errors.get("is_initialized", "not asked"))
    if reading.is_initialized is not None:
        initialized = Shown("yes") if reading.is_initialized else Shown("no", level="warn")
    apart = _unknown("several stores")
    return (
        Shown(name_text(reading.label)),
        Shown("fails", failed, "bad") if failed else Shown("answers", level="good"),
        _latency(reading, traffic),
        apart if traffic is None else Shown(number_text(traffic.count)),
        apart if traffic is None else _failures(traffic.failures),
        _clock_error(reading),
        _durability(reading),
        initialized,
        Shown(time_text(reading.at_ms)[11:]),
    )


def _latency(reading: StoreReading, traffic: Traffic | None) -> Shown:
    if traffic is not None and traffic.latency is not None:
        return Shown(seconds_text(traffic.latency), "mean of segment fetches")
    if reading.took is None:
        return _unknown("no answer")
    return Shown(seconds_text(reading.took), "one request")


def _durability(reading: StoreReading) -> Shown:
    facts = reading.server
    if facts is None or facts.durability_warnings is None:
        return _unknown(reading.errors.get("server", "not reported by this store"))
    if facts.durability_warnings:
        texts = *facts.durability_warnings, *facts.unproved
        return Shown("may lose writes", "; ".join(map(name_text, texts)), "bad")
    if facts.unproved:
        return Shown("not proved", "; ".join(map(name_text, facts.unproved)), "warn")
    return Shown("settings keep writes", level="good")


def _clock_error(reading: StoreReading) -> Shown:
    if reading.clock_error is None:
        return _unknown(reading.errors.get("clock_error", "not reported by this store"))
    error, doubt = reading.clock_error
    level = "warn" if is_clock_wrong(error, doubt) else ""
    return Shown(f"{round(error * 1000):+,d} ms", f"± {seconds_text(doubt)}", level)


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
            _rate(rates.rate(key, each.last_max_id, now)),
            Shown(time_text(fetched * 1000)) if fetched else _unknown("not kept"),
        )


def machine_rows(reading: StoreReading, leases: Iterable[MachineIdStatistics]) -> Iterator[Row]:
    """Yield the rows of one store's machine ids, held ones first.

    Args:
        reading: the store's answers.
        leases: the leases of this process, which know since when they are held.
    """
    since_ms = {(e.namespace, e.machine_id, e.instance_id): e.taken_ms for e in leases}
    markers = {each.namespace: each for each in reading.markers}
    for each in sorted(reading.machines, key=lambda each: not each.instance_id):
        fence = _unknown("no fence") if each.fence_ms <= 0 else Shown(time_text(each.fence_ms))
        holder = since = until = _unknown("free")
        last = _unknown("never renewed")
        if each.last_timestamp_ms > 0:
            last = Shown(time_text(each.last_timestamp_ms))
        if each.instance_id:
            holder = Shown(name_text(each.instance_id), "stable" if each.stable else "")
            taken_ms = since_ms.get((each.namespace, each.machine_id, each.instance_id), -1)
            since = _unknown("only its holder knows")
            if taken_ms >= 0:
                since = Shown(time_text(taken_ms))
            until = _held_until(each, markers.get(each.namespace), reading.at_ms)
        yield (
            Shown(name_text(each.namespace)),
            Shown(str(each.machine_id)),
            holder,
            since,
            last,
            until,
            fence,
        )


def _held_until(machine: Machine, marker: MachineMarker | None, now_ms: int) -> Shown:
    """Return until when, at the latest, a holder that stops renewing keeps its machine id."""
    end_ms = held_until_ms(machine, marker)
    if end_ms is None or marker is None or marker.safe_guard is None:
        return _unknown("no safe guard stored")
    if isinstance(end_ms, float):  # inf
        return Shown(FOREVER)
    if machine.last_timestamp_ms <= 0:
        return Shown("-", "never renewed: another instance may get it", level="warn")
    if end_ms < now_ms:
        return Shown(time_text(end_ms), "expired: another instance may get it", level="warn")
    return Shown(time_text(end_ms), f"unless renewed; safe guard {seconds_text(marker.safe_guard)}")


def quarantine_rows(reading: StoreReading) -> Iterator[Row]:
    """Yield a row with the quarantine of each namespace of a store."""
    for each in reading.markers:
        end = _unknown("no quarantine")
        state = Shown("hands out machine ids", level="good")
        if each.is_quarantined:
            state = Shown("quarantine", level="bad")
            end = Shown(FOREVER)
            if each.seconds_left != inf:
                end_ms = reading.at_ms + round(each.seconds_left * 1000)
                end = Shown(time_text(end_ms), f"in {seconds_text(each.seconds_left)}")
        yield Shown(name_text(each.namespace)), Shown(name_text(reading.label)), state, end


LEASES: Final = (
    *("Namespace", "#Machine id", "Instance", "#Lasts unrenewed", "Fence (UTC)", "#Renewals"),
    *("#Failed", "#Lost", "Quarantine ends", "Last error"),
)


def lease_row(each: MachineIdStatistics, now_ms: int) -> Row:
    """Return the row of one lease."""
    left = each.seconds_left
    quarantine = _unknown("no quarantine")
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
        _unknown("no fence") if each.fence_ms < 0 else Shown(time_text(each.fence_ms)),
        Shown(number_text(each.renewals)),
        _failures(each.failures),
        Shown(number_text(each.losses), level="bad" if each.losses else ""),
        quarantine,
        _error(each.last_error),
    )
