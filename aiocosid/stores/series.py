"""Gapless series: one statement in the caller's own transaction takes a number.

The row of a series stays locked until the caller commits, and a rollback undoes the number.  So the
numbers have neither gaps nor repeats, and one series commits one transaction at a time.

A series has a row with an empty period, which only `open_series` creates.  A series that is grouped
by date has another row for each period, which the first number of the period creates.  Such a row
is never created without the first row, so neither a wrong name nor an emptied table makes numbers
begin at 1.
"""

# ruff: noqa: S608 - the statements are assembled from constants of this file only

from __future__ import annotations

import logging
import re
import sqlite3
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypedDict

from .._life.clock import SYSTEM_CLOCK
from ..abc import MAX_ID
from ..abc.checks import check_integer, check_text
from ..abc.dates import resolve_zone
from ..errors import (
    CosIdError,
    InvalidArgumentError,
    SeriesEndedError,
    SeriesNotOpenError,
    StoreError,
    TransactionConflictError,
)
from ..errors.base import did_you_mean, one_of
from ..segment import GroupBy
from ._dialect import SERIES_TABLE, Value
from ._executor import PARAMETER, as_store_error, code_of
from ._mysql import same_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, tzinfo
    from typing import Any


__all__ = (
    "PARAMETER",
    "STATEMENTS",
    "GaplessNumber",
    "GaplessOptions",
    "Period",
    "SeriesKey",
    "SeriesStatements",
    "Taking",
    "Value",
    "key_of",
    "take",
    "transaction_error",
)

logger = logging.getLogger("aiocosid")

NAME_WIDTH: Final = 100  # maximum characters of a name and of a tenant
MOST: Final = 10_000  # maximum numbers per call
DIGITS: Final = 6  # minimum digits of a number in a text

Period: TypeAlias = Literal["year", "month", "day"]

_GROUPS: Final = {"year": GroupBy.year, "month": GroupBy.month, "day": GroupBy.day}


class GaplessNumber(NamedTuple):
    """A number of a gapless series.

    Attributes:
        number: the number, from 1 in each period.
        period: the period in which it was counted, for example ``202611``; empty without periods.
        text: prefix, period and number, for example ``INV-202611-000042``.
    """

    number: int
    period: str
    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class GaplessOptions(TypedDict, total=False):
    """The options of a call for a number, all of them optional.

    Attributes:
        tenant: the tenant, at most 100 characters; each tenant has its own numbers.
        group_by: ``"year"``, ``"month"``, ``"day"`` or a `GroupBy` of dates: numbers begin at 1 in
            each period.  It must be the value with which the series was opened.
        zone: the time zone of ``group_by``: a tzinfo, ``"UTC"``, an offset, for example
            ``"+08:00"``, or a name, for example ``"Europe/Berlin"``.
        at: the moment that decides the period, for example the invoice's date; now by default.
        prefix: the beginning of the text.
        digits: the minimum number of digits in the text, 1 to 19; 6 by default.
    """

    tenant: str | None
    group_by: Period | GroupBy | None
    zone: tzinfo | str | None
    at: datetime | None
    prefix: str
    digits: int


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """The row from which a number is taken, and the format of its text.

    Attributes:
        name: the series.
        tenant: the tenant; empty without one.
        grouped_by: the grouping as recorded in the rows; empty if the series is not grouped.
        period: the present period; empty if the series is not grouped.
        prefix: the beginning of the text.
        digits: the minimum number of digits in the text.
    """

    name: str
    tenant: str
    grouped_by: str
    period: str
    prefix: str = ""
    digits: int = DIGITS

    @property
    def options(self) -> str:
        """The options of ``aiocosid series open`` for the grouping."""
        found = re.match(r"(\w+)\(zone='([^']+)'", self.grouped_by)
        return f"--group-by {found[1]} --zone {found[2]}" if found else ""

    def numbers(self, last: int, count: int) -> list[GaplessNumber]:
        """Return the numbers that a statement took, in order."""
        front = self.prefix + (f"{self.period}-" if self.period else "")
        return [
            GaplessNumber(each, self.period, f"{front}{each:0{self.digits}}")
            for each in range(last - count + 1, last + 1)
        ]


def key_of(name: str, options: GaplessOptions, now: datetime | None = None) -> SeriesKey:
    """Return the row of a call.

    Args:
        name: the series, 1 to 100 characters.
        options: the options of the call.
        now: the present moment; by default the clock's.

    Raises:
        InvalidArgumentError: the name or an option is wrong.
        TypeError: there is no such option.
    """
    for unknown in options.keys() - GaplessOptions.__annotations__:
        near = did_you_mean(unknown, GaplessOptions.__annotations__)
        raise TypeError(f"GaplessOptions: unexpected keyword argument {unknown!r}{near}")
    check_text("name", name, at_most=NAME_WIDTH)
    tenant = options.get("tenant")
    if tenant is not None:
        check_text("tenant", tenant, at_most=NAME_WIDTH)
    digits = options.get("digits", DIGITS)
    check_integer("digits", digits, at_least=1, at_most=19)
    group_by = group_of(options.get("group_by"), options.get("zone"))
    at = options.get("at") or now
    if at is not None and at.tzinfo is None:
        raise InvalidArgumentError("at", at, "must be a datetime with a time zone")
    period = ""
    if group_by is not None:
        now_ms = SYSTEM_CLOCK.now_ms() if at is None else int(at.timestamp() * 1000)
        period = group_by.period_at(now_ms)
    return SeriesKey(name, tenant or "", noted(group_by), period, options.get("prefix", ""), digits)


def group_of(group_by: Period | GroupBy | None, zone: tzinfo | str | None) -> GroupBy | None:
    """Return the grouping of a series; None if it has none.

    Raises:
        InvalidArgumentError: ``group_by`` is not a period, the zone is missing or unknown, or the
            groups do not consist of dates only.
    """
    if isinstance(group_by, GroupBy):
        if not group_by.is_by_date_alone:
            rule = "must group by date alone; use tenant for other keys"
            raise InvalidArgumentError("group_by", group_by, rule)
        return group_by
    if group_by is None:
        if zone is not None:
            raise InvalidArgumentError("zone", zone, "requires group_by")
        return None
    if group_by not in _GROUPS:
        raise InvalidArgumentError("group_by", group_by, one_of(_GROUPS, group_by))
    if zone is None:
        rule = "is required with group_by: midnight differs between zones"
        raise InvalidArgumentError("zone", zone, rule)
    return _GROUPS[group_by](zone=resolve_zone(zone))


def noted(group_by: GroupBy | None) -> str:
    """Return the text with which the rows of a series record its grouping."""
    return repr(group_by).removeprefix("GroupBy.") if group_by else ""


class Taking(NamedTuple):
    """The result of a statement.

    Attributes:
        matched: how many rows the statement matched.
        rows: the rows that the statement returned.
    """

    matched: int
    rows: Sequence[Sequence[Any]]


Run: TypeAlias = "Callable[[str, dict[str, Value]], Taking]"
"""Runs one statement in the caller's transaction, with parameters as ``:name``."""


@dataclass(frozen=True, slots=True)
class SeriesStatements:
    """The statements of one database.

    Attributes:
        take: adds ``:count`` to the last number of an open row whose range allows it; if the
            database can, returns the new number and the transaction's isolation level.
        read_back: returns both values for a database whose ``take`` cannot; empty otherwise.
        look: returns the rows of a series, its first row and that of the period, and locks them.
        begin: creates the row of a period if the first row is open.
        advance: moves the first row to its next range.
        wants: the isolation level in which no transaction fails and must be run again.
    """

    take: str
    read_back: str
    look: str
    begin: str
    advance: str
    wants: str = "read committed"


_ROW: Final = "name = :name AND tenant = :tenant AND period = :period"
_TAKE: Final = f"""
UPDATE {SERIES_TABLE} SET last_number = last_number + :count
WHERE {_ROW} AND grouped_by = :grouped_by AND is_open = 1 AND last_number <= range_end - :count"""
_LOOK: Final = f"""
SELECT period, last_number, range_end, ranges, grouped_by, is_open FROM {SERIES_TABLE}
WHERE name = :name AND tenant = :tenant AND period IN ('', :period) ORDER BY period"""
_BEGIN: Final = f"""
INSERT INTO {SERIES_TABLE}
    (name, tenant, period, grouped_by, last_number, range_end, ranges, is_open)
SELECT s.name, s.tenant, :period, s.grouped_by, 0, s.range_end, '', 1 FROM {SERIES_TABLE} AS s
WHERE s.name = :name AND s.tenant = :tenant AND s.period = '' AND s.is_open = 1"""
_ADVANCE: Final = f"""
UPDATE {SERIES_TABLE} SET last_number = :before, range_end = :end
WHERE name = :name AND tenant = :tenant AND period = '' AND range_end = :old_end"""

# MySQL has no variable with the older name, and MariaDB before 11.1 has none with the newer name.
_ISOLATION: Final = "/*!50700 @@transaction_isolation */ /*M! @@tx_isolation */"


def _exactly(statement: str) -> str:
    """Make MySQL compare names exactly; its collations ignore at least trailing spaces."""
    exactly = " AND ".join(same_text(each, f":{each}") for each in ("name", "tenant"))
    return statement.replace("name = :name AND tenant = :tenant", exactly)


_POSTGRES: Final = SeriesStatements(
    f"{_TAKE}\nRETURNING last_number, current_setting('transaction_isolation')",
    "",
    f"{_LOOK} FOR UPDATE",
    f"{_BEGIN}\nON CONFLICT DO NOTHING".replace(" :period,", " CAST(:period AS varchar),"),
    _ADVANCE,
)
_MYSQL: Final = SeriesStatements(
    _exactly(_TAKE),
    f"SELECT last_number, {_ISOLATION} FROM {SERIES_TABLE} WHERE {_ROW}",
    f"{_exactly(_LOOK)} FOR UPDATE",
    f"{_BEGIN}\nON DUPLICATE KEY UPDATE {SERIES_TABLE}.is_open = {SERIES_TABLE}.is_open",
    _ADVANCE,
    "READ-COMMITTED",
)
_SQLITE: Final = SeriesStatements(
    f"{_TAKE}\nRETURNING last_number, ''",
    "",
    _LOOK,
    f"{_BEGIN}\nON CONFLICT DO NOTHING",
    _ADVANCE,
    "",
)

STATEMENTS: Final = {
    "postgresql": _POSTGRES,
    "mysql": _MYSQL,
    "sqlite": _SQLITE,
}


def take(
    run: Run, statements: SeriesStatements, key: SeriesKey, count: int, label: Callable[[], str]
) -> int:
    """Take numbers in the caller's transaction, and return the last one.

    An isolation level that only costs retries is logged as a warning, once for each label.

    Args:
        run: runs a statement.
        statements: the statements of the database.
        key: the row.
        count: how many numbers, 1 to 10,000.
        label: the database's name in the warning.

    Raises:
        InvalidArgumentError: the count is outside its range, or the series has another grouping.
        SeriesNotOpenError: the series was never opened in this database, or it is closed.
        SeriesEndedError: the series' approved range has fewer numbers left.
        StoreError: the series' rows contradict each other.
    """
    check_integer("count", count, at_least=1, at_most=MOST)
    row: dict[str, Value] = {"name": key.name, "tenant": key.tenant, "period": key.period}
    wanted: dict[str, Value] = {"grouped_by": key.grouped_by, "count": count}
    seen: list[SeriesRow] = []
    while True:  # at most twice per range, and once for a new period
        taken = run(statements.take, row | wanted)
        if taken.matched:
            ((last, isolation),) = taken.rows or run(statements.read_back, row).rows
            if isolation and isolation != statements.wants:
                _warn_once(label(), str(isolation))
            return int(last)
        rows = [SeriesRow(*each) for each in run(statements.look, row).rows]
        step = next_step(key, count, rows)
        if rows == seen:  # the rows are locked, so no other transaction can change them
            reason = f"the rows of the series {key.name!r} in {SERIES_TABLE} contradict each other"
            remedy = "restore what was changed by hand, for example grouped_by or is_open"
            raise StoreError(label(), reason, remedy=remedy)
        seen = rows
        if step is None:
            run(statements.begin, row)
        elif isinstance(step, dict):
            run(statements.advance, {"name": key.name, "tenant": key.tenant, **step})


@cache
def _warn_once(label: str, isolation: str) -> None:
    logger.warning(
        "%s: transactions that take gapless numbers in %s will fail and have to be run again; set "
        "the isolation level to READ COMMITTED",
        label,
        isolation.upper(),
    )


# The databases' codes for a deadlock, a conflict, and a busy lock.
_CONFLICTS: Final = frozenset(
    {"40001", "40P01", "55P03", 1020, 1205, 1213, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
)


def transaction_error(label: str, error: BaseException) -> CosIdError:
    """Return the aiocosid error for a driver's error in the caller's transaction."""
    found = as_store_error(label, error)
    return TransactionConflictError(found.reason) if code_of(error) in _CONFLICTS else found


class SeriesRow(NamedTuple):
    """A row of the table, as ``look`` returns it."""

    period: str
    last_number: int
    range_end: int
    ranges: str
    grouped_by: str
    is_open: int


def next_step(
    key: SeriesKey, count: int, rows: list[SeriesRow]
) -> dict[str, Value] | Literal["again"] | None:
    """Return the next step after no number was taken, or raise the reason.

    Returns:
        None if the period's row is missing and must be created; the values for ``advance``; or
        ``"again"`` if another transaction has just done either.

    Raises:
        InvalidArgumentError: the series has another grouping.
        SeriesNotOpenError: the series was never opened in this database, or it is closed.
        SeriesEndedError: the series' approved range has fewer numbers left.
    """
    first = next((each for each in rows if not each.period), None)
    if first is None:
        raise SeriesNotOpenError(key.name, key.tenant, options=key.options)
    row = next((each for each in rows if each.period == key.period), None)
    if not (first.is_open and (row is None or row.is_open)):
        raise SeriesNotOpenError(key.name, key.tenant, is_closed=True)
    if first.grouped_by != key.grouped_by:
        opened = f"GroupBy.{first.grouped_by}" if first.grouped_by else "None"
        rule = f"must be {opened}, with which the series was opened"
        given = f"GroupBy.{key.grouped_by}" if key.grouped_by else None
        raise InvalidArgumentError("group_by", given, rule)
    if row is None:
        return None
    left = row.range_end - row.last_number
    if left >= count:
        return "again"
    following = next((each for each in ranges_of(row.ranges) if each.first > row.range_end), None)
    if left or following is None or following.size < count:
        left = left or (following.size if following else 0)
        raise SeriesEndedError(key.name, key.tenant, left=left, wanted=count)
    return {"before": following.first - 1, "end": following.last, "old_end": row.range_end}


class ApprovedRange(NamedTuple):
    """A range of numbers that was approved, for example by a tax office.

    Attributes:
        first: the first number.
        last: the last number.
    """

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many numbers the range has."""
        return self.last - self.first + 1


def ranges_of(text: str) -> list[ApprovedRange]:
    """Parse ranges in the form that a row records: ``1-1000,5001-6000``.

    Raises:
        InvalidArgumentError: the text has another form, or the ranges do not rise or overlap.
    """
    found: list[ApprovedRange] = []
    for each in filter(None, text.split(",")):
        first, _, last = each.partition("-")
        lowest = found[-1].last + 1 if found else 1
        if not (
            first.isdecimal() and last.isdecimal() and lowest <= int(first) <= int(last) <= MAX_ID
        ):
            rule = f"must be FIRST-LAST, rising numbers from {lowest} on"
            raise InvalidArgumentError("range", each, rule)
        found.append(ApprovedRange(int(first), int(last)))
    return found
