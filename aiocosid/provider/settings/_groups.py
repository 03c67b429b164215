"""Checks the future periods of grouped generators: their keys, texts and counters."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..._life.clock import SYSTEM_CLOCK
from ...errors import CosIdError
from ._load import built
from ._planned import example_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...abc import Clock, Counter
    from ._load import Source
    from ._planned import Planned

__all__ = ("GroupReport", "check_groups")

LONGEST_MS: Final = 366 * 24 * 3600 * 1000  # milliseconds of the longest period


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The period of one grouped generator at a moment.

    Attributes:
        name: the generator's name in the provider.
        present: the text of its present period; empty if it groups only by key.
        period: the text of its period at the given moment.
        counter: ``namespace.name@period``, or with a function ``namespace.name@...-period``.
        example: the first id of the period in the form that users see; empty if it has no text.
        problems: its problems.
    """

    name: str
    present: str
    period: str
    counter: str
    example: str
    problems: tuple[str, ...] = ()


async def check_groups(
    source: Source = None, *, at_ms: int, clock: Clock | None = None
) -> tuple[GroupReport, ...]:
    """Return the period of each grouped generator at a given moment, and its problems.

    It reads the counters of their stores, and writes nothing.

    Args:
        source: as for `configure`.
        at_ms: the moment, unix time in milliseconds.
        clock: the time source; the system's clock by default.

    Raises:
        InvalidSettingsError: nothing can be built; the error lists every problem.
        StoreError: a store refuses or cannot be reached.
    """
    now_ms = (clock or SYSTEM_CLOCK).now_ms()
    _, _, parts = built(source, clock=clock, rehearsal=True)
    async with AsyncExitStack() as stack:
        for store in parts.stores:
            stack.push_async_callback(store.aclose)
        reports: list[GroupReport] = []
        for planned in parts.generators.values():
            grouped = planned.inner or planned
            if grouped.group_by is not None:
                counters = await grouped.made_store.counters(namespace=grouped.namespace)
                reports.append(_reported(planned, grouped, counters, now_ms, at_ms))
    return tuple(reports)


def _reported(
    planned: Planned, grouped: Planned, counters: Sequence[Counter], now_ms: int, at_ms: int
) -> GroupReport:
    group_by: Any = grouped.group_by
    present, period = group_by.period_at(now_ms), group_by.period_at(at_ms)
    key = period if group_by.is_by_date_alone else "-".join(filter(None, ("...", period)))
    try:
        example, unreadable = example_of(planned, at_ms), ""
        if planned.converter is not None:
            unreadable = _unreadable(planned, example)
    except CosIdError as error:
        example, unreadable = "", f"its ids have no text: {error}"
    problems = [unreadable] if unreadable else []
    if len(example) > len(planned.example):
        longer = f"{len(planned.example)} to {len(example)} characters"
        problems.append(f"its texts get longer, from {longer}")
    if period and period != present:
        problems += _of_new_period(grouped, present, period, counters, is_later=at_ms > now_ms)
    elif period and abs(at_ms - now_ms) >= LONGEST_MS:
        problems.append(f"its text is {period!r} again: the present counter continues")
    return GroupReport(
        name=planned.name,
        present=present,
        period=period,
        counter=f"{grouped.namespace}.{grouped.counter}@{key}",
        example=example,
        problems=tuple(problems),
    )


def _unreadable(planned: Planned, example: str) -> str:
    converter: Any = planned.converter
    number = converter.as_int(example)
    first = getattr(planned.section, "offset", 0) + 1
    return "" if number == first else f"its text {example!r} is read as {number}, not as {first}"


def _of_new_period(
    grouped: Planned, present: str, period: str, counters: Sequence[Counter], *, is_later: bool
) -> Iterator[str]:
    """Yield the problems of a period that has not begun."""
    if is_later and period < present:
        yield f"it sorts before the present one, {present!r}"
    group_by: Any = grouped.group_by
    prefix = f"{grouped.namespace}.{grouped.counter}@"
    for each in counters:
        key = each.namespaced_name.removeprefix(prefix)
        is_its = key == period or (not group_by.is_by_date_alone and key.endswith(f"-{period}"))
        if key != each.namespaced_name and is_its:
            yield f"counter {each.namespaced_name} exists already, at {each.last_max_id}"
    try:
        grouped.made_store.segment_distributor(
            namespace=grouped.namespace, name=f"{grouped.counter}@{period}"
        )
    except CosIdError as error:
        yield f"its counter cannot be made: {error}"
