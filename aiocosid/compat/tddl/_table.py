"""The rows of a TDDL sequence: which ids are theirs, what is wrong with them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..._checks import check_integer, check_text
from ...abc import MAX_ID
from .._table import CounterTable, as_integer, create_table
from .._url import check_identifier, check_one_of

if TYPE_CHECKING:
    from ...stores.sql import DialectName
    from .._table import TableRow

__all__ = ("SequenceTable", "sequence_table")

_HIGHEST: Final = MAX_ID - 10**8  # TDDL's own limit of value

_COLUMNS: Final = """
  name varchar(64) NOT NULL,
  value bigint NOT NULL,
  gmt_modified timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (name)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTable(CounterTable):
    """A table ``sequence`` of one of the databases, whose rows hold the base of the last range.

    Attributes:
        inner_step: ids of a range.
        outer_step: what a grant adds: ``inner_step`` for each of the databases.
        base: what every number of this database leaves, divided by that.
    """

    inner_step: int
    outer_step: int
    base: int

    def amount(self, step: int, stride: int) -> int:  # noqa: ARG002 - a whole range
        return self.outer_step

    def _guards(self, dialect: DialectName) -> list[str]:
        # SQLite's MOD() is not in every build of it.
        left = f"{self.value} % {self.outer_step}"
        if dialect != "sqlite":
            left = f"MOD({self.value}, {self.outer_step})"
        return [f"{left} = {self.base}"]

    def least(self, above: int) -> int:
        # What a grant leaves is one step further, and its ids are above that.
        missing = above - self.outer_step - self.base
        return self.base + max(0, -(-missing // self.outer_step)) * self.outer_step

    def last_id(self, row: TableRow) -> int | None:
        is_own = (as_integer(row.stored) or 0) % self.outer_step == self.base
        return CounterTable.last_id(self, row) if is_own else None

    def next_id(self, row: TableRow) -> int | None:
        last = self.last_id(row)
        return None if last is None else last + self.outer_step - self.inner_step + 1

    def meaning(self, row: TableRow) -> str:
        if self.last_id(row) is None:
            return "no counter"
        return "the base of the last range handed out, whose ids lie above it"

    def problems(self, row: TableRow) -> tuple[str, ...]:
        stored = as_integer(row.stored)
        if CounterTable.last_id(self, row) is None or stored is None:
            return CounterTable.problems(self, row)
        if stored > _HIGHEST:
            return (f"value is {stored}, above TDDL's limit of 2^63-1-10^8",)
        if stored > self.limit:
            return (f"value is {stored}; the ids above it pass 2^63-1",)
        if self.last_id(row) is None:
            found, index = stored % self.outer_step, self.base // self.inner_step
            where = f"{found} modulo {self.outer_step}"
            return (f"value is {stored}, {where}; of index {index} it has to be {self.base}",)
        return ()

    def insert(self, dialect: DialectName) -> str:
        """(name, least[, schema_name]) adds a row; one that is there stays as it is."""
        keys = ("name", *self.scope)
        columns, given = ", ".join(keys), ", ".join(f":{key}" for key in keys)
        insert = f"INSERT INTO {self.table} ({columns}, value, gmt_modified)"
        return f"{insert} VALUES ({given}, :least, CURRENT_TIMESTAMP) {self._unless_there(dialect)}"

    def repair(self, dialect: DialectName) -> str:
        """(name, least) raises a row that is lower and has another database's numbers."""
        return self._raise(dialect, [f"NOT {guard}" for guard in self._guards(dialect)])


def sequence_table(
    inner_step: int, holds: str, schema_name: str | None, table: str, *, index: int, count: int
) -> CounterTable:
    """Describe a table; see `TddlStore`.

    Raises:
        InvalidArgumentError: an argument is outside its range.
    """
    check_integer("inner_step", inner_step, at_least=1, at_most=2**31 - 1)
    check_integer("count", count, at_least=1, at_most=1024)
    check_integer("index", index, at_least=0, at_most=count - 1)
    check_one_of("holds", holds, ("base", "last") if count == 1 else ("base",))
    check_identifier("table", table)
    columns, scope = _COLUMNS, {} if schema_name is None else {"schema_name": schema_name}
    if schema_name is not None:
        check_text("schema_name", schema_name, at_most=64)
        columns = f"schema_name varchar(64) NOT NULL,{columns}".replace(
            "(name)", "(schema_name, name)"
        )
    options: dict[str, Any] = {"table": table, "key": "name", "value": "value", "width": 64}
    options |= {"touched": "gmt_modified", "scope": scope, "create": create_table(table, columns)}
    if holds == "last":
        return CounterTable(**options, limit=_HIGHEST)
    options |= {"ahead": -inner_step, "limit": min(_HIGHEST, MAX_ID - inner_step)}
    options |= {"step_limit": inner_step, "inner_step": inner_step}
    return SequenceTable(**options, outer_step=inner_step * count, base=inner_step * index)
