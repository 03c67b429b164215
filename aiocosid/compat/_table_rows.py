"""Another system's table in one database, and the errors of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CorruptCounterError, CounterMissingError, IdOverflowError
from ..stores.backend import as_integer
from ._table import Examined, TableRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..stores.sql import SqlExecutor
    from ._table import CounterTable

__all__ = ("TableRows",)


class TableRows:
    """The rows of a table in one database.

    Attributes:
        executor: runs the statements; this object does not close it.
        table: the table, and the meaning of its numbers.
    """

    __slots__ = ("executor", "table")

    def __init__(self, executor: SqlExecutor, table: CounterTable) -> None:
        self.executor: SqlExecutor = executor
        self.table: CounterTable = table

    async def read(self) -> Sequence[TableRow]:
        """Read all rows, ordered by name.

        Raises:
            StoreError: the database refuses or cannot be reached.
        """
        done = await self.executor.run(
            self.table.rows(self.executor.dialect_name), **self.table.scope
        )
        # The rows are sorted here, because databases sort differently.
        return sorted((TableRow(*row) for row in done.rows), key=lambda row: row.name)

    async def named(self, name: str) -> TableRow:
        """Read the row of a counter.

        Raises:
            CounterMissingError: there is no such row.
            StoreError: the database refuses or cannot be reached.
        """
        table = self.table
        statement = table.rows(self.executor.dialect_name, "name")
        done = await self.executor.run(statement, name=name, **table.scope)
        if not done.rows:
            raise CounterMissingError(
                self.executor.label,
                counter=name,
                remedy=table.remedy,
                table=table.table,
                key=table.key,
            )
        return TableRow(*done.rows[0])

    def examined(self, row: TableRow) -> Examined:
        """Return the explanation of a row."""
        table, problems, step = self.table, self.table.problems(row), as_integer(row.step) or 1
        if not problems and table.is_used_up(row, table.amount(step, 1)):
            problems = (f"it is used up: {step} more ids would pass 2^63-1",)
        return Examined(
            name=row.name,
            stored=as_integer(row.stored),
            meaning=table.meaning(row),
            next_id=None if problems else table.next_id(row),
            problems=problems,
        )

    def used_up(self, counter: str) -> IdOverflowError:
        """Return the error for a counter whose number would pass the limit."""
        return IdOverflowError(counter, limit=self.table.limit - self.table.ahead)

    def corrupt(self, name: str, found: str) -> CorruptCounterError:
        """Return the error for a row that does not hold a counter."""
        counter = f"{self.table.table}.{name}"
        return CorruptCounterError(self.executor.label, counter=counter, found=found)
