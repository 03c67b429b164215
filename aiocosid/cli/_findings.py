"""The findings of `doctor`, judged from a store's answers without I/O."""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from shlex import quote
from typing import TYPE_CHECKING, Final

from ..abc import MAX_ID
from ..errors import StoreAuthenticationError, StoreError, StoreUnavailableError
from ..stores.inspection import (
    NOT_KEPT,
    held_until_ms,
    is_clock_wrong,
    number_text,
    seconds_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..abc import Counter, Machine, MachineMarker, ServerInfo
    from ..errors import CosIdError
    from ..stores.inspection import StoreReading

__all__ = (
    "Finding",
    "Status",
    "failed",
    "judge_clock",
    "judge_counters",
    "judge_initialized",
    "judge_machines",
    "judge_markers",
    "judge_migrator",
    "judge_reading",
    "judge_server",
)

CLOCK_BROKEN: Final = 60.0  # seconds
NEARLY_FULL: Final = 0.8  # of the ids or machine ids there are

PROTECTION: Final = (
    "exclude the tables cosid, cosid_machine and aiocosid_* from it, or keep them in a separate "
    "schema or database"
)
PROTECTIONS: Final = {
    "alembic_version": "pass aiocosid.integrations.alembic.options to context.configure() in "
    "env.py, or keep the ids in a separate schema or database",
}
"""What to do about a tool for migrations, by the table in which it keeps its state."""

PARTS: Final = {
    "counters": "counters",
    "machines": "machine ids",
    "markers": "quarantines",
    "is_initialized": "the marker",
    "clock_error": "the clock",
    "server": "the server's settings",
}
"""The parts of a `StoreReading`, in words."""


class Status(StrEnum):
    """The result of a check; the later one is the worse."""

    SKIPPED = "skipped"
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        store: the store, without credentials; empty if it is about none.
        check: what was checked.
        status: the result.
        text: what was found.
        remedy: what to do about it; empty for nothing.
    """

    store: str = ""
    check: str
    status: Status
    text: str
    remedy: str = ""


def failed(check: str, error: CosIdError) -> Finding:
    """Return the finding of a check that has raised an error."""
    remedy = f"see {error.url}"
    if type(error) in {StoreError, StoreAuthenticationError, StoreUnavailableError}:
        remedy = ""  # the text has it
    return Finding(check=check, status=Status.FAILED, text=str(error), remedy=remedy)


def judge_server(facts: ServerInfo, took: float | None, driver: str) -> Iterator[Finding]:
    """Yield whether the server answers, and keeps what it grants.

    Args:
        facts: its answer.
        took: seconds of one round trip; None if they are not known.
        driver: the driver and its version; empty for none.
    """
    version = facts.version or "a server of unknown version"
    via = f" with {driver}" if driver else ""
    text = f"{version}{via}; it answers" + ("" if took is None else f" in {seconds_text(took)}")
    yield Finding(check="server", status=Status.OK, text=text)
    if facts.durability_warnings is None:
        text = "the server does not report whether it keeps every write"
        yield Finding(check="durable", status=Status.SKIPPED, text=text)
    elif not facts.durability_warnings and not facts.unproved:
        text = "its settings keep every write; a fail-over may still lose some"
        yield Finding(check="durable", status=Status.OK, text=text)
    for each in facts.durability_warnings or ():
        yield Finding(check="durable", status=Status.WARNING, text=each)
    for each in facts.unproved:
        yield Finding(check="durable", status=Status.SKIPPED, text=each)
    for table in facts.migrators:
        yield judge_migrator(table)
    if facts.is_disposable:
        text = "the store is for tests: dropped tables are recreated, and ids then repeat"
        remedy = "in production, create one without --disposable, and unset AIOCOSID_DISPOSABLE"
        yield Finding(check="disposable", status=Status.WARNING, text=text, remedy=remedy)


def judge_migrator(table: str) -> Finding:
    """Return whether a tool for migrations may drop the tables of ids.

    Args:
        table: the tool's own table, in the same schema as the id tables.
    """
    where = f"table {table} is in the same schema"
    if table.lower() == "django_migrations":
        text = f"{where}; Django drops only tables that its migrations have created"
        return Finding(check="migrations", status=Status.OK, text=text)
    return Finding(
        check="migrations",
        status=Status.WARNING,
        text=f"{where}; its migration tool may drop the id tables, which it did not create",
        remedy=PROTECTIONS.get(table.lower(), PROTECTION),
    )


def judge_reading(
    reading: StoreReading, limits: Mapping[str, int], bits: Mapping[str, int | None]
) -> Iterator[Finding]:
    """Yield what follows from all that a store has answered.

    Args:
        reading: its answers.
        limits: the highest id of counters, by their ``{namespace}.{name}``.
        bits: the width of the machine ids, by namespace.
    """
    yield from _judge_reads(reading)
    if reading.is_initialized is not None:
        yield judge_initialized(is_initialized=reading.is_initialized)
    ahead = 0.0
    if reading.clock_error is not None:
        ahead, doubt = reading.clock_error
        yield judge_clock(ahead, doubt)
    if "markers" not in reading.errors:
        yield from judge_markers(reading.markers)
    if "machines" not in reading.errors:
        markers = {each.namespace: each for each in reading.markers}
        now_ms = reading.at_ms - round(ahead * 1000)
        yield judge_machines(reading.machines, markers, bits, now_ms)
    if "counters" not in reading.errors:
        yield from judge_counters(reading.counters, limits)


def _judge_reads(reading: StoreReading) -> Iterator[Finding]:
    """Yield one finding for each reason why something could not be read."""
    reasons: dict[str, list[str]] = {}
    for part, why in reading.errors.items():
        text = str(reading.causes.get(part, why))
        reasons.setdefault(text, []).append(PARTS[part])
    for text, parts in reasons.items():
        what = f"{', '.join(parts)}: {text}"
        status = Status.SKIPPED if text == NOT_KEPT else Status.FAILED
        yield Finding(check="read", status=status, text=what)
    if not reading.errors:
        text = "counters and machine ids can be read"
        yield Finding(check="read", status=Status.OK, text=text)


def judge_initialized(*, is_initialized: bool) -> Finding:
    """Return whether machine ids can be handed out."""
    if is_initialized:
        return Finding(check="initialised", status=Status.OK, text="machine ids can be handed out")
    return Finding(
        check="initialised",
        status=Status.WARNING,
        text="existing counters work, but no counter can be created and no machine id is granted, "
        "so a generator that leases one here cannot open",
        remedy="run 'aiocosid init --store URL' once; after --after-loss, wait until all earlier "
        "leases have expired",
    )


def judge_clock(ahead: float, doubt: float) -> Finding:
    """Return whether this machine's clock and the store's agree.

    Args:
        ahead: seconds that this machine's clock is ahead of the store's.
        doubt: seconds by which that may be wrong, because the answer took a while.
    """
    status = Status.WARNING if is_clock_wrong(ahead, doubt) else Status.OK
    if abs(ahead) - doubt > CLOCK_BROKEN:
        status = Status.FAILED
    where = "ahead of" if ahead > 0 else "behind"
    text = f"{seconds_text(abs(ahead))} {where} the store's clock (± {seconds_text(doubt)})"
    if abs(ahead) <= doubt:
        text = f"agrees with the store's clock (± {seconds_text(doubt)})"
    remedy = "" if status is Status.OK else "synchronise both clocks, for example with chrony"
    return Finding(check="clock", status=status, text=text, remedy=remedy)


def judge_markers(markers: Sequence[MachineMarker]) -> Iterator[Finding]:
    """Yield the quarantines that run, or that there is none."""
    running = [each for each in markers if each.is_quarantined]
    if not running:
        text = "no namespace is in quarantine"
        yield Finding(check="quarantine", status=Status.OK, text=text)
    for each in running:
        is_endless = each.seconds_left == inf
        left = (
            "until an operator ends the quarantine"
            if is_endless
            else f"for {ceil(each.seconds_left)} s"
        )
        yield Finding(
            check="quarantine",
            status=Status.FAILED if is_endless else Status.WARNING,
            text=f"namespace {each.namespace} hands out no machine ids {left}",
            remedy="to end it now, stop all processes that were started earlier, and run 'aiocosid "
            f"init --store URL --namespace {quote(each.namespace)} --confirm-no-holders'",
        )


def judge_machines(
    machines: Sequence[Machine],
    markers: Mapping[str, MachineMarker],
    bits: Mapping[str, int | None],
    now_ms: int,
) -> Finding:
    """Return how many machine ids are held, in the namespace that has the fewest left.

    Args:
        machines: all of them.
        markers: the marker of each namespace, with its longest safe guard.
        bits: the width of each namespace's machine ids, where it is known.
        now_ms: the time by the store's clock.
    """
    held = Tally(
        each.namespace for each in machines if _is_held(each, markers.get(each.namespace), now_ms)
    )
    if not held:
        return Finding(check="machine ids", status=Status.OK, text="none is in use")
    shares = {each: count / 2 ** (bits.get(each) or 31) for each, count in held.items()}
    fullest = max(shares, key=lambda each: shares[each])
    share, count = shares[fullest], number_text(held[fullest])
    width = bits.get(fullest)
    of = "" if width is None else f" of {number_text(2**width)}"
    others = f"; {len(held) - 1} other namespaces have more left" if len(held) > 1 else ""
    status = Status.OK if share < NEARLY_FULL else Status.WARNING
    return Finding(
        check="machine ids",
        status=Status.FAILED if share >= 1 else status,
        text=f"{count}{of} in use in namespace {fullest}{others}",
        remedy="" if status is Status.OK else "use a layout with more machine bits",
    )


def _is_held(machine: Machine, marker: MachineMarker | None, now_ms: int) -> bool:
    until_ms = held_until_ms(machine, marker)
    return bool(machine.instance_id) and (until_ms is None or until_ms > now_ms)


def judge_counters(counters: Sequence[Counter], limits: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the counters that are nearly full; if none is, the fullest one.

    Args:
        counters: all of them.
        limits: the highest id of each counter that the settings limit.
    """

    def limit_of(counter: Counter) -> int:
        # A grouped generator has a counter of the same name for each group.
        name = counter.namespaced_name
        return limits.get(name) or limits.get(name.partition("@")[0]) or MAX_ID

    if not counters:
        yield Finding(check="counters", status=Status.OK, text="none yet")
        return
    shares = [(each.last_max_id / limit_of(each), each) for each in counters]
    full = [found for found in shares if found[0] >= NEARLY_FULL]
    number = f"{len(counters):,} counters, the fullest: " if len(counters) > 1 and not full else ""
    for share, each in full or [max(shares, key=lambda found: found[0])]:
        name, limit = each.namespaced_name, limit_of(each)
        of = f"of {limit:,} ids ({share:.1%})" if limit < MAX_ID else f"ids ({share:.1%} of 2^63-1)"
        status = Status.WARNING if full else Status.OK
        yield Finding(
            check="counters",
            status=Status.FAILED if each.last_max_id >= limit else status,
            text=f"{number}{name} has used {each.last_max_id:,} {of}",
            remedy="raise its max_id, or plan a wider column" if full else "",
        )
