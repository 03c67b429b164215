"""Another system's table, one counter a row: its statements, what its number means.  Pure."""

# ruff: noqa: S608 - put together from names that are written in this room alone

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from ..abc import MAX_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("CounterTable", "DialectName", "TableRow", "as_integer", "number", "shown")

DialectName = Literal["mysql", "postgresql", "sqlite"]
"""What SQLAlchemy calls the databases; MariaDB is MySQL here."""

_SHOWN: Final = 40  # characters of a damaged value that an error repeats

_UNIX_TIME: Final = {
    "mysql": "UNIX_TIMESTAMP({})",
    "postgresql": "CAST(extract(epoch FROM {}) AS bigint)",
    "sqlite": "CAST(strftime('%s', {}) AS integer)",
}


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row as a driver gives it.

    Attributes:
        name: which counter it is.
        stored: its number, or whatever lies there.
        step: its own step, likewise; None where the table has no such column.
        fetched: unix time of the last grant in seconds, or None.
        delta: from one id to the next, or whatever lies there; tinyid's alone.
        remainder: of each id divided by that, likewise.
    """

    name: str
    stored: object
    step: object
    fetched: object
    delta: object = None
    remainder: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterTable:
    """Where a system keeps its counters, if a grant adds the step to a number.

    A grant of ``step`` ids adds ``step`` to the number, and owns
    ``(new - ahead - step, new - ahead]``.  Two systems differ in ``ahead``, and whoever takes one
    for the other hands out ids twice.

    Attributes:
        table: the table's name.
        key: the column that names a counter.
        value: the column that counts.
        ahead: how far the number is above the last id handed out: 0 if it is that id, 1 if it is
            the next one.
        width: characters that ``key`` holds.
        create: by dialect: creates the table if it is missing, whoever else does so.
        step: the column with the row's own step, or None.
        touched: the column with the time of the last grant, or None.
        touches_itself: the dialects on which that column is set by the database.
        also: what a grant sets besides, such as ``version = version + 1``.
        scope: what belongs to every WHERE, such as ``schema_name = :schema``.
        limit: the highest number that may be stored.
    """

    table: str
    key: str
    value: str
    ahead: int
    width: int
    create: Mapping[DialectName, str]
    step: str | None = None
    touched: str | None = None
    touches_itself: tuple[DialectName, ...] = ()
    also: str = ""
    scope: str = ""
    limit: int = MAX_ID

    # Statements; each is atomic by itself.

    def grant(self, dialect: DialectName) -> str:
        """(name, step, least, most) adds a step to a sound row of at most ``most``.

        One that is below ``least`` begins there.  Answers the new number: in a row, or on MySQL as
        the inserted id.  A row that is not sound is left alone.
        """
        least = number("least", dialect)
        start = f"CASE WHEN {self.value} < {least} THEN {least} ELSE {self.value} END"
        raised = f"{start} + {number('step', dialect)}"
        guards = [
            *self._found(),
            f"{self.value} BETWEEN 0 AND {number('most', dialect)}",
            _is_integer(self.value, dialect),
            *self._guards(dialect),
        ]
        if self.step is not None:
            guards.append(f"{self.step} > 0")
        if dialect == "mysql":
            raised = f"LAST_INSERT_ID({raised})"
        returning = "" if dialect == "mysql" else f" RETURNING {self.value}"
        return self._update(dialect, raised, guards, also=self.also) + returning

    def set_floor(self, dialect: DialectName, *, guarded: bool = True) -> str:
        """(name, least) raises a sound row to ``least`` if it is lower."""
        least = number("least", dialect)
        guards = [
            *self._found(),
            f"{self.value} >= 0",
            f"{self.value} < {least}",
            _is_integer(self.value, dialect),
            *(self._floor_guards(dialect) if guarded else ()),
        ]
        return self._update(dialect, least, guards, also=self.also)

    def _guards(self, dialect: DialectName) -> list[str]:  # noqa: ARG002 - of other tables
        """What else has to be so of a row that grants ids."""
        return []

    def _floor_guards(self, dialect: DialectName) -> list[str]:  # noqa: ARG002 - of other tables
        """What else has to be so of a row that is raised."""
        return []

    def _found(self) -> list[str]:
        return [f"{self.key} = :name", *([self.scope] if self.scope else [])]

    def _update(self, dialect: DialectName, value: str, guards: list[str], *, also: str) -> str:
        sets = [f"{self.value} = {value}"]
        if also:
            sets.append(also)
        if self.touched is not None and dialect not in self.touches_itself:
            sets.append(f"{self.touched} = CURRENT_TIMESTAMP")
        return f"UPDATE {self.table} SET {', '.join(sets)} WHERE {' AND '.join(guards)}"

    def rows(self, dialect: DialectName) -> str:
        """() answers all rows: name, number, step, time; see `TableRow`."""
        step = self.step or "NULL"
        fetched = "NULL" if self.touched is None else _UNIX_TIME[dialect].format(self.touched)
        read = ", ".join((self.key, self.value, step, fetched, *self._read_besides()))
        where = f" WHERE {self.scope}" if self.scope else ""
        return f"SELECT {read} FROM {self.table}{where}"

    def row(self, dialect: DialectName) -> str:
        """(name) answers one row, as `rows` does."""
        return f"{self.rows(dialect)} {'AND' if self.scope else 'WHERE'} {self.key} = :name"

    def _read_besides(self) -> tuple[str, ...]:
        """The columns of a row after the time, in the order of `TableRow`."""
        return ()

    # What a row says.

    def least(self, above: int) -> int:
        """Return the lowest number from which on all ids of a grant are above ``above``."""
        return above + self.ahead

    def next_id(self, row: TableRow) -> int | None:
        """Return the first id of the next grant; None if there is no such number."""
        last = self.last_id(row)
        return None if last is None else last + 1

    def last_id(self, row: TableRow) -> int | None:
        """Return the last id handed out, 0 if none was; None if there is no such number."""
        stored = as_integer(row.stored)
        if stored is None or not 0 <= stored <= MAX_ID:
            return None
        return max(stored - self.ahead, 0)

    def meaning(self, row: TableRow) -> str:
        """Say what the number of a row means in this system."""
        if self.last_id(row) is None:
            return "no counter"
        if self.ahead > 1:
            return f"{self.ahead} above the last id handed out"
        return "the next id to be handed out" if self.ahead else "the last id handed out"

    def problems(self, row: TableRow) -> tuple[str, ...]:
        """Say what is wrong with a row, each as a sentence without its stop."""
        found: list[str] = []
        if self.last_id(row) is None:
            what = "" if as_integer(row.stored) is None else ", no number from 0 to 2^63-1"
            found.append(f"{self.value} is {shown(row.stored)}{what}")
        own = as_integer(row.step)
        if self.step is not None and (own is None or own < 1):
            found.append(f"{self.step} is {shown(row.step)}; it has to be at least 1")
        return tuple(found)

    def is_used_up(self, row: TableRow, step: int) -> bool:
        """Tell whether so many ids more do not fit below 2^63."""
        stored = as_integer(row.stored)
        return stored is not None and max(stored, self.least(0)) + step > self.limit


def as_integer(value: object) -> int | None:
    """Return what a column holds, or None if that is no integer."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)  # of a numeric column
    return value if type(value) is int else None


def shown(value: object) -> str:
    """Return a column's value for a sentence."""
    return "NULL" if value is None else f"{value!s:.{_SHOWN}}"


def number(name: str, dialect: DialectName) -> str:
    """Return a parameter that is a number."""
    # PostgreSQL has to know what a parameter is before it has one.
    return f"CAST(:{name} AS bigint)" if dialect == "postgresql" else f":{name}"


def _is_integer(column: str, dialect: DialectName) -> str:
    # A column may be numeric, and SQLite's hold anything.
    return f"typeof({column}) = 'integer'" if dialect == "sqlite" else f"MOD({column}, 1) = 0"
