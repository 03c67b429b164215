"""A counter in another system's table, as a distributor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from ..abc.checks import check_text
from ..errors import (
    StoreUnavailableError,
)
from ..stores.backend import as_integer
from ..stores.counters import CounterOptions, WatchedDistributor
from ..stores.sql import OutOfRangeError
from ._table_rows import TableRows

if TYPE_CHECKING:
    from ..stores.sql import SqlExecutor
    from ._table import CounterTable, TableRow

__all__ = ("TableDistributor",)

# The number of attempts if a row is valid again, or has changed, when it is read.
_ATTEMPTS: Final = 3

_TYPE: Final = """
SELECT data_type FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = :table AND column_name = :column"""


class TableDistributor(WatchedDistributor):
    """A row of another system's table, advanced by one statement for each segment.

    Get it from a store, for example from ``LeafStore(engine).segment_distributor(name="order")``.
    The row must exist; it is not created.  The namespace exists only in aiocosid: the other
    system's key is the name.

    Other nodes read the row, and then compare and write it.  This class uses one statement, so
    neither can interrupt the other's update.

    Attributes:
        remainder: the ids' remainder modulo `stride`; 0 while it is not known.
    """

    __slots__ = (
        *("_may_be_cut", "_rows"),
        *("remainder", "step_limit", "store", "stride"),
    )

    def __init__(
        self, executor: SqlExecutor, at: CounterTable, *, name: str, **more: Unpack[CounterOptions]
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            executor: runs the statements; this object does not close it.
            at: the counter's table, and the meaning of its number.
            name: the counter's name in that system.
            **more: as for a store's ``segment_distributor``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        super().__init__(name=name, **more)
        check_text("name", name, at_most=at.width)
        self.store: str = executor.label
        self.step_limit: int | None = at.step_limit
        self.step: int = at.step_limit or self.step  # a grant is always a whole range
        self.stride: int
        self.remainder: int
        self.stride, self.remainder = (0, 0) if at.classes else (1, 0)
        self._rows = TableRows(executor, at)
        self._may_be_cut: bool | None = None  # not known

    async def _grant(self, step: int) -> int:
        return await self._advanced(step, 0)

    async def _next_above(self, step: int, above: int) -> int:
        """Advance the counter so that all ids are new and above ``above``."""
        return await self._watched(step, partial(self._advanced, above=above))

    def _rise(self, step: int) -> int:
        return (step - 1) * self.stride + 1

    async def _advanced(self, step: int, above: int) -> int:
        """Let the row grant ``step`` ids, and return the last one."""
        for _ in range(_ATTEMPTS):
            if not self.stride:
                await self._read_row()
            known = self.stride, self.remainder
            stored = await self._added(self._rows.table.amount(step, self.stride), above)
            # Another call of this object may have found another class meanwhile; then this range is
            # a gap.
            if stored is not None and known == (self.stride, self.remainder):
                return self._rows.table.granted(stored, known)
            row, is_of_another_class = await self._read_row()
            amount = self._rows.table.amount(step, self.stride)
            if not is_of_another_class and self._rows.table.is_used_up(row, amount):
                raise self._rows.used_up(self.namespaced_name)
        raise StoreUnavailableError(
            self.store, f"{self.name!r} is being changed by another client", remedy="try again"
        )

    async def _added(self, amount: int, above: int) -> int | None:
        """Add to the number; return the new one, or None if the row was not changed."""
        table, executor = self._rows.table, self._rows.executor
        given = {"step": amount, "least": table.least(above), "most": table.limit - amount}
        if given["least"] > given["most"]:
            raise self._rows.used_up(self.namespaced_name)
        if table.classes:
            given |= {"delta": self.stride, "remainder": self.remainder}
        may_be_cut = await self._is_cut_by_others()
        statement = table.grant(executor.dialect_name)
        try:
            done = await executor.run(statement, name=self.name, **given, **table.scope)
        except OutOfRangeError as error:  # the column is narrower than 64 bits
            raise self._rows.used_up(self.namespaced_name) from error.__cause__
        inserted = [done.inserted_id] * done.matched
        answers = inserted if executor.dialect_name == "mysql" else [row[0] for row in done.rows]
        if not answers:
            return None
        stored = as_integer(answers[0])
        if len(answers) > 1 or stored is None:
            # The table lacks its primary key, so the owner of the range is unknown.
            raise self._rows.corrupt(self.name, f"{len(answers)} rows of that name")
        if may_be_cut and (as_integer((await self.row()).stored) or 0) < stored:
            raise self._rows.used_up(
                self.namespaced_name
            )  # the stored number differs from the returned one
        return stored

    async def _is_cut_by_others(self) -> bool:
        """Return whether a session in non-strict mode may truncate a number to its column.

        The statement would still return the full number.  Only MySQL does this, on a user's engine.
        """
        executor = self._rows.executor
        if executor.dialect_name != "mysql" or executor.is_own:
            return False
        if self._may_be_cut is None:
            column = {"table": self._rows.table.table, "column": self._rows.table.value}
            types = [row[0] for row in (await executor.run(_TYPE, **column)).rows]
            self._may_be_cut = types != ["bigint"]
        return self._may_be_cut

    async def row(self) -> TableRow:
        """Read the row as it is now.

        Raises:
            CounterMissingError: there is no such row.
            StoreError: the store refuses or cannot be reached.
        """
        return await self._rows.named(self.name)

    async def row_step(self) -> int:
        """Return the row's current step; this object's own step if the table has none.

        Raises:
            CounterMissingError: there is no such row.
            CorruptCounterError: the row's step is not an integer of at least 1.
            StoreError: the store refuses or cannot be reached.
        """
        return self.step if self._rows.table.step is None else self.step_of(await self.row())

    def step_of(self, row: TableRow) -> int:
        """Return the step of a row that was read, at least 1.

        Raises:
            CorruptCounterError: the row holds no counter, or a step below 1.
        """
        if problems := self._rows.table.problems(row):
            raise self._rows.corrupt(self.name, "; ".join(problems))
        return max(1, (as_integer(row.step) or self.step) // (as_integer(row.delta) or 1))

    async def _read_row(self) -> tuple[TableRow, bool]:
        """Read the row; return it, and whether its ids belong to a different class than before.

        Raises:
            CosIdError: the row is invalid, or cannot be read.
        """
        row, known = await self.row(), (self.stride, self.remainder)
        self.step_of(row)
        self.stride, self.remainder = self._rows.table.class_of(row) or known
        return row, known != (self.stride, self.remainder)

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        Raises:
            ForkedError: the user's engine belongs to the parent process.
        """
        await self._rows.executor.aopen()
        await super().aopen()
