"""The rows of a TDDL sequence: which ids are theirs, what is wrong with them.  Pure."""

# ruff: noqa: S608 - put together from names that were checked

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ...abc import MAX_ID
from ...abc._ids import check_integer, check_text
from .._table import CounterTable, as_integer
from .._url import check_identifier, check_one_of

if TYPE_CHECKING:
    from .._table import DialectName, TableRow

__all__ = ("Holds", "SequenceTable", "sequence_table")

Holds = Literal["base", "last"]

_HIGHEST: Final = MAX_ID - 10**8
"""TDDL's own limit of ``value``."""

_COLUMNS: Final = """
  name varchar(64) NOT NULL,
  value bigint NOT NULL,
  gmt_modified timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (name)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTable(CounterTable):
    """A table ``sequence`` of one of the databases.

    Attributes:
        inner_step: ids of a range.
        count: how many databases there are; a grant adds ``inner_step`` for each.
        index: this one's place among them, from 0.
        holds: what the number is: ``base`` or ``last``.
    """

    inner_step: int
    count: int
    index: int
    holds: Holds

    @property
    def outer_step(self) -> int:
        """What a grant adds; TDDL's ``outStep``."""
        return self.inner_step * self.count

    @property
    def base(self) -> int:
        """What every number of this database leaves, divided by `outer_step`."""
        return self.inner_step * self.index

    def _guards(self, dialect: DialectName) -> list[str]:
        if self.holds == "last":
            return []
        # SQLite's MOD() is not in every build of it.
        left = f"{self.value} % {self.outer_step}"
        if dialect != "sqlite":
            left = f"MOD({self.value}, {self.outer_step})"
        return [f"{left} = {self.base}"]

    def _floor_guards(self, dialect: DialectName) -> list[str]:
        return self._guards(dialect)

    def least(self, above: int) -> int:
        if self.holds == "last":
            return above
        # What a grant leaves is one step further, and its ids are above that.
        missing = above - self.outer_step - self.base
        return self.base + max(0, -(-missing // self.outer_step)) * self.outer_step

    def last_id(self, row: TableRow) -> int | None:
        last = CounterTable.last_id(self, row)
        if last is not None and self.holds == "base":
            stored = as_integer(row.stored) or 0
            return None if stored % self.outer_step != self.base else last
        return last

    def next_id(self, row: TableRow) -> int | None:
        last = self.last_id(row)
        if last is None:
            return None
        return last + 1 if self.holds == "last" else last + self.outer_step - self.inner_step + 1

    def meaning(self, row: TableRow) -> str:
        if self.last_id(row) is None or self.holds == "last":
            return CounterTable.meaning(self, row)
        return "the base of the last range handed out, whose ids lie above it"

    def problems(self, row: TableRow) -> tuple[str, ...]:
        stored = as_integer(row.stored)
        if CounterTable.last_id(self, row) is None or stored is None:
            return CounterTable.problems(self, row)
        if stored > self.limit:
            if stored > _HIGHEST:
                return (f"value is {stored}, above TDDL's limit of 2^63-1-10^8",)
            return (f"value is {stored}; the ids above it pass 2^63-1",)
        if self.last_id(row) is None:
            found = f"{stored % self.outer_step} modulo {self.outer_step}"
            return (f"value is {stored}, {found}; of index {self.index} it has to be {self.base}",)
        return ()

    def is_used_up(self, row: TableRow, step: int) -> bool:
        added = step if self.holds == "last" else self.outer_step
        return CounterTable.is_used_up(self, row, added)

    def insert(self, dialect: DialectName) -> str:
        """(name, least[, schema_name]) adds a row; one that is there stays as it is."""
        keys = "schema_name, name" if self.scope else "name"
        given = ":schema_name, :name" if self.scope else ":name"
        unless = "ON DUPLICATE KEY UPDATE name = name"
        if dialect != "mysql":
            unless = "ON CONFLICT DO NOTHING"
        return (
            f"INSERT INTO {self.table} ({keys}, value, gmt_modified) "
            f"VALUES ({given}, :least, CURRENT_TIMESTAMP) {unless}"
        )

    def repair(self, dialect: DialectName) -> str:
        """(name, least) raises a row that is lower and has another database's numbers."""
        (guard,) = self._guards(dialect)
        return f"{CounterTable.set_floor(self, dialect, guarded=False)} AND NOT {guard}"


def sequence_table(
    *,
    inner_step: int,
    holds: Holds,
    schema_name: str | None,
    table: str,
    index: int,
    count: int,
) -> SequenceTable:
    """Describe a table.

    Raises:
        InvalidArgumentError: an argument is outside its range.
    """
    check_integer("inner_step", inner_step, at_least=1, at_most=2**31 - 1)
    check_integer("count", count, at_least=1, at_most=1024)
    check_integer("index", index, at_least=0, at_most=count - 1)
    check_one_of("holds", holds, ("base", "last") if count == 1 else ("base",))
    check_identifier("table", table)
    columns = _COLUMNS
    if schema_name is not None:
        check_text("schema_name", schema_name, at_most=64)
        columns = columns.replace("(name)", "(schema_name, name)")
        columns = f"\n  schema_name varchar(64) NOT NULL,{columns}"
    create = f"CREATE TABLE IF NOT EXISTS {table} ({columns})"
    return SequenceTable(
        table=table,
        key="name",
        value="value",
        ahead=-inner_step if holds == "base" else 0,
        width=64,
        touched="gmt_modified",
        scope="" if schema_name is None else "schema_name = :schema_name",
        limit=_HIGHEST if holds == "last" else min(_HIGHEST, MAX_ID - inner_step),
        create={"mysql": create, "postgresql": create, "sqlite": create},
        inner_step=inner_step,
        count=count,
        index=index,
        holds=holds,
    )
