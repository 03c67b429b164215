"""Conditions that an operator must see at a glance: problems, and what will soon end.  No I/O."""

from __future__ import annotations

from itertools import chain
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

from ..abc import MAX_ID
from ..stores.inspection import number_text, seconds_text
from ._view import FOREVER, Shown, name_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..integrations.state import GeneratorState
    from ..stores.inspection import StoreReading
    from ._tokens import Token
    from ._view import Row

__all__ = ("ATTENTION", "attention_rows")

ATTENTION: Final = ("What", "Name", "How it stands")

DAYS: Final = 14
DAY: Final = 86_400  # seconds
MS: Final = 1000
MOST_AHEAD: Final = 300.0  # seconds that a fence may be ahead of the clock; leases need 90
FULL: Final = 0.9  # the share of all ids that is used


def attention_rows(
    reports: Mapping[str, GeneratorState],
    readings: Sequence[StoreReading],
    tokens: Iterable[Token],
    certificate_ms: int | None,
    now_ms: int,
) -> list[Row]:
    """Return the rows, urgent ones first.

    Args:
        reports: the state of each generator, by its name.
        readings: the answers of the stores.
        tokens: the server's tokens.
        certificate_ms: when the server's certificate expires, unix time in milliseconds; None
            without one.
        now_ms: the present time, unix time in milliseconds.
    """
    rows = chain(
        _counters_in_need(reports),
        *(_of_store(each, now_ms) for each in readings),
        _ending("token", ((each.name, each.expires_ms) for each in tokens), now_ms),
        _ending("certificate", [("of the server", certificate_ms)], now_ms),
    )
    return sorted(rows, key=lambda row: row[0].level != "bad")


def _counters_in_need(reports: Mapping[str, GeneratorState]) -> Iterator[Row]:
    for name, report in reports.items():
        left = None if report.chain is None else report.chain.seconds_left
        if report.chain is not None and left is not None and left < report.chain.endurance / 2:
            stands = Shown(f"its ids last {seconds_text(left)} without the store")
            yield Shown("few buffered ids", level="warn"), Shown(name_text(name)), stands


def _of_store(reading: StoreReading, now_ms: int) -> Iterator[Row]:
    for counter in reading.counters:
        if counter.last_max_id >= FULL * MAX_ID:
            left = Shown(f"{number_text(MAX_ID - counter.last_max_id)} ids are left")
            name = Shown(name_text(counter.namespaced_name))
            yield Shown("floor near the end", level="bad"), name, left
    for each in reading.machines:
        ahead = (each.fence_ms - now_ms) / MS
        if ahead > MOST_AHEAD:
            name = Shown(f"{name_text(each.namespace)}: machine id {each.machine_id}")
            stands = Shown(f"until {time_text(each.fence_ms)}", f"{seconds_text(ahead)} ahead")
            yield Shown("fence in the future", level="bad"), name, stands
    for marker in reading.markers:
        if marker.is_quarantined:
            left_s = marker.seconds_left
            end = FOREVER
            if left_s != inf and isfinite(left_s):
                end = f"ends at {time_text(reading.at_ms + round(left_s * MS))}"
            yield Shown("quarantine", level="bad"), Shown(name_text(marker.namespace)), Shown(end)


def _ending(what: str, ends: Iterable[tuple[str, int | None]], now_ms: int) -> Iterator[Row]:
    for name, end_ms in ends:
        if end_ms is None or end_ms - now_ms > DAYS * DAY * MS:
            continue
        left = (end_ms - now_ms) / MS
        has_ended = left <= 0
        stands = "expired at" if has_ended else f"expires in {seconds_text(left)}, at"
        level = "bad" if has_ended else "warn"
        yield (
            Shown(what, level=level),
            Shown(name_text(name)),
            Shown(f"{stands} {time_text(end_ms)}"),
        )
