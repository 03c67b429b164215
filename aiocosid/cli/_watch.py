"""The command that shows counters and machine ids while they change."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from math import inf
from timeit import default_timer
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..provider import OptionSpec
from ..stores.inspection import (
    NOT_KEPT,
    Rates,
    held_until_ms,
    number_text,
    parts_of,
    read_store,
    seconds_text,
)
from ._exit import printable
from ._options import DEFAULT_TIMEOUT, AnyNamespace, Config, StoreUrl, Timeout, declared
from ._output import drawn_table, time_text, write
from ._session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from ..abc import Machine, MachineMarker
    from ..stores.inspection import StoreReading

    Rows: TypeAlias = Sequence[Sequence[str]]

__all__ = ("counter_lines", "machine_lines", "watch")

COUNTERS: Final = ("counter", "last max id", "ids/s")
MACHINES: Final = ("namespace", "machine id", "holder", "lease left")


def watch(
    *,
    store: StoreUrl = None,
    config: Config = None,
    namespace: AnyNamespace = None,
    interval: Annotated[
        float,
        declared(
            OptionSpec("seconds between readings", 0.5, 25),
            *("--interval", "-i"),
            metavar="SECONDS",
        ),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one reading and exit.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show counters, their rates and the machine ids in use, until Ctrl-C.

    It only reads.  Without a terminal it prints plain lines.
    """
    rates, is_live = Rates(), sys.stdout.isatty() and not once
    answers: dict[str, int] = {}
    live = Live(console=Console(), auto_refresh=False) if is_live else None
    with StoreSession.on(store, config, timeout=timeout) as session, suppress(KeyboardInterrupt):
        parts = list(parts_of(session.store))
        with nullcontext() if live is None else live:
            while True:
                readings = [session.run(read_store, each, within=timeout) for each in parts]
                now = default_timer()
                counters = [e for r in readings for e in counter_lines(r, namespace, rates, now)]
                machines = [e for r in readings for e in machine_lines(r, namespace)]
                answers |= {r.label: r.at_ms for r in readings if not r.silence}
                notes = [_answer(r.label, answers.get(r.label, 0)) for r in readings]
                notes += [f"problem {problem}" for r in readings for problem in _problems(r)]
                if live is None:
                    _write_lines(counters, machines, notes)
                else:
                    live.update(_drawn(counters, machines, notes, live.console.width), refresh=True)
                if once:
                    return
                session.pause(interval)


def counter_lines(
    reading: StoreReading, namespace: str | None, rates: Rates, now: float
) -> Iterator[tuple[str, str, str]]:
    """Yield name, last max id and ids a second of each counter.

    Args:
        reading: the answers of a store.
        namespace: only its counters; None for all.
        rates: the earlier readings.
        now: monotonic seconds.
    """
    for each in reading.counters:
        if namespace is None or each.namespaced_name.startswith(f"{namespace}."):
            key = reading.label, each.namespaced_name
            rate = rates.rate(key, each.last_max_id, now)
            shown = "-" if rate is None else number_text(rate)
            yield printable(each.namespaced_name), str(each.last_max_id), shown


def machine_lines(
    reading: StoreReading, namespace: str | None
) -> Iterator[tuple[str, str, str, str]]:
    """Yield namespace, machine id, holder and time left of each machine id that is held."""
    markers = {each.namespace: each for each in reading.markers}
    ahead, _ = reading.clock_error or (0.0, 0.0)
    now_ms = reading.at_ms - round(ahead * 1000)
    for each in reading.machines:
        if each.instance_id and namespace in {None, each.namespace}:
            left = _left(each, markers.get(each.namespace), now_ms)
            holder = printable(each.instance_id)
            yield printable(each.namespace), str(each.machine_id), holder, left


def _left(machine: Machine, marker: MachineMarker | None, now_ms: int) -> str:
    until_ms = held_until_ms(machine, marker)
    if until_ms is None:
        return "-"
    if until_ms == inf:
        return "no end"
    return "expired" if until_ms < now_ms else seconds_text((until_ms - now_ms) / 1000)


def _answer(label: str, at_ms: int) -> str:
    """Say when a store answered last: it may be silent now."""
    last = f"last answer {time_text(at_ms)} UTC" if at_ms else "no answer yet"
    return f"{last} from {printable(label)}"


def _problems(reading: StoreReading) -> Iterator[str]:
    for part, why in reading.errors.items():
        if why != NOT_KEPT:
            yield f"{printable(reading.label)}: {part}: {why}"


def _write_lines(counters: Rows, machines: Rows, notes: Sequence[str]) -> None:
    lines = [f"counter {name} {max_id} {rate} ids/s" for name, max_id, rate in counters]
    lines += [f"machine {' '.join(each)}" for each in machines]
    lines = lines or ["no counters, and no machine ids in use"]
    write("".join(f"{each}\n" for each in (*lines, *notes)))


def _drawn(counters: Rows, machines: Rows, notes: Sequence[str], width: int) -> RenderableType:
    return Group(
        drawn_table(COUNTERS, counters, width=width),
        drawn_table(MACHINES, machines, left=(0, 2), width=width),
        *map(Text, notes),
    )
