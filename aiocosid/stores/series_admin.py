"""Opens, lists, closes and audits gapless series; see `series`."""

# ruff: noqa: S608 - the statements are assembled from constants of this file only

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .._life.clock import SYSTEM_CLOCK
from ..abc import MAX_ID
from ..abc.checks import check_integer, check_text
from ..errors import InvalidArgumentError, SeriesNotOpenError
from ._dialect import SERIES_TABLE
from .columns import sql_backend_of, values_of_column
from .series import NAME_WIDTH, ApprovedRange, group_of, noted, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import tzinfo

    from ..abc import Store
    from ..segment import GroupBy
    from ._dialect import Value
    from ._executor import Row
    from ._sql import SqlBackend
    from .series import Period

__all__ = ("Audit", "Series", "audit_series", "close_series", "list_series", "open_series")


@dataclass(frozen=True, slots=True)
class Series:
    """A gapless series.

    Attributes:
        name: the series' name.
        tenant: the tenant; empty without one.
        grouped_by: the grouping by dates; empty if the series is not grouped.
        period: the latest period that has numbers; empty if the series is not grouped.
        last_number: the last number that was taken in that period.
        ranges: the ranges from which numbers are taken, for example ``1-1000,5001-6000``.
        is_open: whether numbers can be taken.
    """

    name: str
    tenant: str
    grouped_by: str
    period: str
    last_number: int
    ranges: str
    is_open: bool


_COLUMNS: Final = "name, tenant, period, grouped_by, last_number, range_end, ranges, is_open"
_ALL: Final = f"SELECT {_COLUMNS} FROM {SERIES_TABLE} ORDER BY name, tenant, period"
_OPEN: Final = f"""
INSERT INTO {SERIES_TABLE} ({_COLUMNS})
SELECT {{name}}, {{tenant}}, '', {{grouped_by}}, {{last_number}}, {{range_end}}, {{ranges}}, 1
{{source}} WHERE NOT EXISTS (
    SELECT 1 FROM {SERIES_TABLE} WHERE name = {{name}} AND tenant = {{tenant}} AND period = '')"""
_RESTORE: Final = f"""
INSERT INTO {SERIES_TABLE} ({_COLUMNS})
SELECT {{name}}, {{tenant}}, {{period}}, {{grouped_by}}, {{last_number}}, {MAX_ID}, '', 1
{{source}} WHERE NOT EXISTS (
    SELECT 1 FROM {SERIES_TABLE}
    WHERE name = {{name}} AND tenant = {{tenant}} AND period = {{period}})"""
_RAISE: Final = f"""
UPDATE {SERIES_TABLE} SET last_number = {{last_number}}
WHERE name = {{name}} AND tenant = {{tenant}} AND period = {{period}}
AND last_number < {{last_number}}"""
_EXTEND: Final = f"""
UPDATE {SERIES_TABLE} SET ranges = {{ranges}}
WHERE name = {{name}} AND tenant = {{tenant}} AND period = '' AND ranges = {{old}}"""
_REGROUP: Final = f"""
UPDATE {SERIES_TABLE} SET grouped_by = {{grouped_by}}
WHERE name = {{name}} AND tenant = {{tenant}} AND period = '' AND grouped_by = ''
AND last_number = 0 AND ranges = '1-{MAX_ID}'"""
_CLOSE: Final = (
    f"UPDATE {SERIES_TABLE} SET is_open = 0 WHERE name = {{name}} AND tenant = {{tenant}}"
)


async def open_series(
    store: Store,
    name: str,
    *,
    tenant: str = "",
    group_by: Period | GroupBy | None = None,
    zone: tzinfo | str | None = None,
    after: int = 0,
    after_column: str | None = None,
    tenant_column: str | None = None,
    ranges: str = "",
) -> Series:
    """Create a series, or add approved ranges to a series; nothing else creates a series.

    A series of which no number was taken can be given a grouping later.

    Args:
        store: a store on PostgreSQL, MySQL, MariaDB or SQLite, in the application's database.
        name: the series' name, 1 to 100 characters.
        tenant: the tenant; empty without tenants.
        group_by: as for each call; see `GaplessOptions`.
        zone: the time zone of ``group_by``.
        after: the last number that another system issued; the series begins with the next one.
        after_column: with ``group_by``, after the table of series was lost or restored from a
            backup: ``table.column`` or ``schema.table.column`` of the texts of `GaplessNumber`,
            whatever their prefix.  Each period continues after its highest number there, also if
            the series is open already.
        tenant_column: the column of the same table that holds the tenant, without the table's name.
        ranges: the approved ranges, for example ``1-1000,5001-6000``, in the order of their use;
            for a series that already has ranges, these are added.

    Raises:
        InvalidArgumentError: an argument is outside its range, or the series is open with other
            options.
        SeriesNotOpenError: the series was closed.
        UnsupportedByStoreError: the store has no tables.
        StoreError: the table or column does not exist, or the store refuses or cannot be reached.
    """
    check_text("name", name, at_most=NAME_WIDTH)
    if tenant:
        check_text("tenant", tenant, at_most=NAME_WIDTH)
    check_integer("after", after, at_least=0, at_most=MAX_ID - 1)
    approved = ranges_of(ranges)
    group = group_of(group_by, zone)
    grouped_by = noted(group)
    if approved and (after or grouped_by):
        rule = "cannot be combined with after or group_by: ranges say where numbers begin and end"
        raise InvalidArgumentError("ranges", ranges, rule)
    first = approved[0] if approved else ApprovedRange(after + 1, MAX_ID)
    values: dict[str, Value] = {
        "name": name,
        "tenant": tenant,
        "grouped_by": grouped_by,
        "last_number": first.first - 1,
        "range_end": first.last,
        "ranges": ranges or f"{first.first}-{first.last}",
    }
    if grouped_by and after:
        rule = "must be 0: each period begins at 1, or after its highest number in after_column"
        raise InvalidArgumentError("after", after, rule)
    last_numbers: dict[str, int] = {}
    if after_column is not None:
        where = {} if tenant_column is None else {tenant_column: tenant}
        last_numbers = await _highest(store, group, after_column, where)
    backend = sql_backend_of(store)
    before = {(row[0], row[1]) for row in await _rows(store) if not row[2]}
    if (name, tenant) not in before:
        await _restore(store, values, last_numbers)
        await _run(backend, _OPEN, values)
    elif grouped_by:
        await _run(backend, _REGROUP, {"grouped_by": grouped_by, "name": name, "tenant": tenant})
    found = await _series(store, name, tenant)
    if (name, tenant) in before and approved:
        await _extend(backend, found, ranges)
        return await _series(store, name, tenant)
    if found.grouped_by != grouped_by or ((name, tenant) in before and after):
        how = f"GroupBy.{found.grouped_by}" if found.grouped_by else "None"
        last = found.last_number
        rule = f"is open at {last} with group_by={how}; take another name, or these options"
        raise InvalidArgumentError("name", name, rule)
    if (name, tenant) in before and last_numbers:
        await _restore(store, values, last_numbers)
        return await _series(store, name, tenant)
    return found


async def _restore(store: Store, values: dict[str, Value], last_numbers: dict[str, int]) -> None:
    """Raise each period of a series to at least its number; create those that are missing."""
    backend = sql_backend_of(store)
    for period, last in last_numbers.items():
        more: dict[str, Value] = {"period": period, "last_number": last}
        await _run(backend, _RESTORE, {**values, **more})
        await _run(backend, _RAISE, {"name": values["name"], "tenant": values["tenant"], **more})


async def _highest(
    store: Store, group: GroupBy | None, column: str, where: Mapping[str, str]
) -> dict[str, int]:
    """Return the highest number of each period in an application's column of texts."""
    if group is None:
        raise InvalidArgumentError("after_column", column, "requires group_by")
    text = re.escape(group.period_at(SYSTEM_CLOCK.now_ms()))
    period = re.sub("[0-9]+", lambda digits: f"[0-9]{{{len(digits[0])}}}", text)
    # Any prefix, also one that ends in a digit: a number that is left out would repeat.
    form = re.compile(rf".*({period})-0*([0-9]{{1,18}})", re.DOTALL)
    found: dict[str, int] = {}
    has_values = False
    async for page in values_of_column(store, column, where):
        for match in map(form.fullmatch, map(str, page)):
            has_values = True
            if match is not None:
                found[match[1]] = max(found.get(match[1], 0), int(match[2]))
    if has_values and not found:
        rule = f"has no text that ends in a period and a number, such as {text}-000042"
        raise InvalidArgumentError("after_column", column, rule)
    return found


async def _extend(backend: SqlBackend, found: Series, ranges: str) -> None:
    if found.ranges.endswith(f"-{MAX_ID}"):
        rule = f"cannot be added to {found.name!r}, which was opened without ranges"
        raise InvalidArgumentError("ranges", ranges, rule)
    both = f"{found.ranges},{ranges}"
    ranges_of(both)
    await _run(
        backend,
        _EXTEND,
        {"name": found.name, "tenant": found.tenant, "ranges": both, "old": found.ranges},
    )


async def list_series(store: Store) -> list[Series]:
    """Return all series of a database, by name and tenant.

    Raises:
        UnsupportedByStoreError: the store has no tables.
        StoreError: the store refuses or cannot be reached.
    """
    found: dict[tuple[str, str], Series] = {}
    for name, tenant, period, grouped_by, last, _, ranges, is_open in await _rows(store):
        first = found.get((name, tenant))
        found[name, tenant] = Series(
            name,
            tenant,
            grouped_by,
            period,
            int(last),
            first.ranges if first else str(ranges),
            bool(is_open),
        )
    return list(found.values())


async def _rows(store: Store) -> Sequence[Row]:
    return await _run(sql_backend_of(store), _ALL, {})


async def _series(store: Store, name: str, tenant: str) -> Series:
    for each in await list_series(store):
        if (each.name, each.tenant) == (name, tenant):
            if not each.is_open:
                raise SeriesNotOpenError(name, tenant, is_closed=True)
            return each
    raise SeriesNotOpenError(name, tenant)


async def close_series(store: Store, name: str, *, tenant: str = "") -> Series:
    """Close a series: no further number can be taken from it.

    Raises:
        SeriesNotOpenError: the series was never opened in this database, or it is closed.
        UnsupportedByStoreError: the store has no tables.
        StoreError: the store refuses or cannot be reached.
    """
    found = await _series(store, name, tenant)
    for _ in range(2):  # PostgreSQL misses a period that began during the wait for the lock
        await _run(sql_backend_of(store), _CLOSE, {"name": name, "tenant": tenant})
    return found


async def _run(backend: SqlBackend, statement: str, values: dict[str, Value]) -> Sequence[Row]:
    shown = {name: backend.dialect.parameter(name, value) for name, value in values.items()}
    source = backend.dialect.source
    return await backend.link.fetch_rows(statement.format(**shown, source=source), **values)


@dataclass(slots=True)
class Audit:
    """The result of comparing a series with the numbers in an application's table.

    Attributes:
        series: the series.
        count: how many of its numbers are in the table.
        last: the highest number in the latest period.
        missing: numbers that were taken but are not in the table, as period and range.
        untaken: numbers that are in the table but were never taken from the series, as period and
            range: another program wrote them, or the series was restored from a backup and would
            hand them out again.
        repeated: numbers that are in the table more than once, as period and number.
        foreign: how many values are not numbers of the series.
    """

    series: Series
    count: int = 0
    last: int = 0
    missing: list[tuple[str, ApprovedRange]] = field(default_factory=list)
    untaken: list[tuple[str, ApprovedRange]] = field(default_factory=list)
    repeated: list[tuple[str, int]] = field(default_factory=list)
    foreign: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether there are neither gaps nor repeats nor untaken numbers."""
        return not (self.missing or self.untaken or self.repeated)


async def audit_series(
    store: Store,
    name: str,
    *,
    tenant: str = "",
    column: str,
    prefix: str = "",
    tenant_column: str | None = None,
) -> Audit:
    """Compare a series with the numbers in the application's own table.

    It reads the column in pages, and keeps only the numbers that it has seen, as ranges.  Run it
    while no transaction is open, because an uncommitted number looks like a gap.

    Args:
        store: the store in the database of both.
        name: the series.
        tenant: the tenant; empty without one.
        column: ``table.column`` or ``schema.table.column``: numbers, or texts of `GaplessNumber`.
        prefix: the prefix of the texts.
        tenant_column: the column of the same table that holds the tenant, without the table's name.

    Raises:
        InvalidArgumentError: ``column`` is not the name of a column.
        SeriesNotOpenError: the series was never opened in this database.
        UnsupportedByStoreError: the store has no tables.
        StoreError: the table or column does not exist, or the store refuses or cannot be reached.
    """
    of_all = await _rows(store)
    rows = [each for each in of_all if (each[0], each[1]) == (name, tenant)]
    if not rows:
        others = dict.fromkeys(str(each[1]) for each in of_all if each[0] == name and each[1])
        raise SeriesNotOpenError(name, tenant, tenants=others)
    (series,) = (
        each for each in await list_series(store) if (each.name, each.tenant) == (name, tenant)
    )
    audit = Audit(series)
    where = {} if tenant_column is None else {tenant_column: tenant}
    form = re.compile(rf"{re.escape(prefix)}(?:(.+)-)?0*([0-9]+)")
    seen: dict[str, list[ApprovedRange]] = {}
    periods = tuple(str(each[2]) for each in rows if each[2])
    async for page in values_of_column(store, column, where):
        for value in page:
            match = form.fullmatch(str(value))
            period = (match[1] or "") if match else ""
            has_other_prefix = period not in periods and period.endswith(periods)
            if match is None or bool(period) != bool(series.grouped_by) or has_other_prefix:
                audit.foreign += 1
                continue
            audit.count += 1
            if not _added(seen.setdefault(period, []), int(match[2])):
                audit.repeated.append((period, int(match[2])))
    for period, taken in _taken(rows).items():
        got = seen.get(period, [])
        audit.missing += ((period, each) for each in without(taken, got))
        audit.last = got[-1].last if got else 0
    # Read again, because numbers may have been taken while the column was read.  Numbers below the
    # first one of a series are another system's, as `after` says.
    later = _taken(each for each in await _rows(store) if (each[0], each[1]) == (name, tenant))
    first = 1 if series.grouped_by else ranges_of(series.ranges)[0].first
    for period, got in sorted(seen.items()):
        known = [ApprovedRange(0, first - 1), *later.get(period, ())]
        audit.untaken += ((period, each) for each in without(got, known))
    return audit


def _taken(rows: Iterable[Row]) -> dict[str, list[ApprovedRange]]:
    """Return the numbers that were taken from a series, by period."""
    return {
        str(period): expected(ranges_of(str(ranges) or f"1-{MAX_ID}"), int(last))
        for _, _, period, grouped_by, last, _, ranges, _ in rows
        if bool(grouped_by) == bool(period)
    }


def _added(seen: list[ApprovedRange], number: int) -> bool:
    """Add a number to rising ranges, and return whether it was not yet in them."""
    at = bisect_right(seen, (number, MAX_ID + 1))
    if at and seen[at - 1].last >= number:
        return False
    joins_left = bool(at) and seen[at - 1].last == number - 1
    joins_right = at < len(seen) and seen[at].first == number + 1
    first = seen[at - 1].first if joins_left else number
    last = seen[at].last if joins_right else number
    seen[at - joins_left : at + joins_right] = [ApprovedRange(first, last)]
    return True


def expected(ranges: Iterable[ApprovedRange], last: int) -> list[ApprovedRange]:
    """Return the numbers that were taken when ``last`` was the last one."""
    return [
        ApprovedRange(each.first, min(each.last, last)) for each in ranges if each.first <= last
    ]


def without(
    taken: Iterable[ApprovedRange], seen: Sequence[ApprovedRange]
) -> Iterable[ApprovedRange]:
    """Yield the parts of rising ranges that are in none of the other ranges."""
    for each in taken:
        at = each.first
        for other in seen:
            if other.last < at or other.first > each.last:
                continue
            if other.first > at:
                yield ApprovedRange(at, other.first - 1)
            at = other.last + 1
        if at <= each.last:
            yield ApprovedRange(at, each.last)
