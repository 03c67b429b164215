"""Hibernate's table ``hibernate_sequences``, and the database sequences that it uses.

Needs the ``sqlalchemy`` extra.  What a number means depends on the optimizer of the nodes: with
*pooled-lo* a range begins with it, with *pooled*, Hibernate's default, it ends with it.  The wrong
optimizer repeats ids, so it has to be given.
"""

# ruff: noqa: S608 - put together from names that were checked

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from .._checks import check_integer
from ..abc import MAX_ID
from ..errors import InvalidArgumentError, StoreError
from ..stores.sql import driver_code
from ._table import CounterTable, TableRow, as_integer, create_table
from ._table_distributor import TableDistributor
from ._table_store import TableStore
from ._url import check_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..stores.sql import DialectName
    from ._url import Options

__all__ = ("INCREMENT", "HibernateStore", "Optimizer", "Source")

Optimizer = Literal["pooled-lo", "pooled"]
"""The value of ``hibernate.id.optimizer.pooled.preferred``; ``pooled`` without it."""

Source = Literal["table", "sequence"]
"""Where the numbers are: ``GenerationType.TABLE`` or ``GenerationType.SEQUENCE``."""

INCREMENT: Final = 50
"""Hibernate's own ``allocationSize``."""

_COLUMNS: Final = "sequence_name varchar(255) NOT NULL PRIMARY KEY, next_val bigint"
_CREATE: Final = create_table("hibernate_sequences", _COLUMNS)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")
_USED_UP: Final = ("2200H", 4084)  # PostgreSQL's SQLSTATE, MariaDB's number
_MISSING: Final = ("42P01", 4091, 1146)

_LIST: Final[dict[DialectName, str]] = {
    "postgresql": "SELECT sequencename, last_value, start_value, increment_by, cycle, cache_size "
    "FROM pg_sequences WHERE schemaname = ANY (current_schemas(false))",
    "mysql": "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_type = 'SEQUENCE'",
}
_READ: Final = "SELECT next_not_cached_value, start_value, increment, cycle_option, 1 FROM `{}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequences(CounterTable):
    """Rows of ``hibernate_sequences``, and how the nodes of one application use them.

    Attributes:
        optimizer: the nodes' optimizer; None if it was not given, and the next id is unknown.
        increment: the nodes' increment.
    """

    optimizer: Optimizer | None
    increment: int

    def _check(self, name: str) -> None:
        if self.optimizer is None:
            expected = "'pooled-lo' or 'pooled' (Hibernate's default), as the nodes have it"
            raise InvalidArgumentError("optimizer", None, expected=expected)
        CounterTable._check(self, name)

    def next_id(self, row: TableRow) -> int | None:
        return CounterTable.next_id(self, row) if self.optimizer else None

    def meaning(self, row: TableRow) -> str:
        if self.optimizer or self.problems(row):
            return CounterTable.meaning(self, row)
        return "the last id with pooled-lo, or the end of the last range but one with pooled"


class _DatabaseSequences(_Sequences):
    """Sequences of the database, whose number is the next one."""

    def _check(self, name: str) -> None:
        _Sequences._check(self, name)
        if not _NAME.fullmatch(name):
            expected = "the name of a sequence, or schema.name"
            raise InvalidArgumentError("name", name, expected=expected)

    def last_id(self, row: TableRow) -> int | None:
        number = as_integer(row.stored)
        if number is None or row.problems or self.optimizer is None:
            return None
        return number - 1 if self.optimizer == "pooled-lo" else max(0, number - self.increment)

    def meaning(self, row: TableRow) -> str:  # noqa: ARG002 - all alike
        return "the next number" + ("" if self.optimizer else "; the optimizer was not given")

    def problems(self, row: TableRow) -> tuple[str, ...]:
        return row.problems


class _DatabaseSequence(TableDistributor):
    """A database sequence that Hibernate uses, on PostgreSQL or MariaDB.

    A grant is one number, and the ``increment`` ids that belong to it; a call for fewer gets the
    upper ones.  The same statement reads the sequence's own increment: it has to be equal, or
    nothing is granted.  On PostgreSQL it must have a ``CACHE`` of 1, as Hibernate creates them:
    with a larger one each connection gets numbers out of order.
    """

    _table: _DatabaseSequences

    async def _advanced(self, step: int, above: int) -> int:  # noqa: ARG002 - of groups
        size = self._table.increment
        number = await self._drawn(size)
        if self._table.optimizer == "pooled":
            # The first number is not the end of a range: Hibernate takes another one, too.
            return number if number >= size else await self._drawn(size)
        if number + size - 1 > MAX_ID:
            raise self._used_up()
        return number + size - 1

    async def _drawn(self, size: int) -> int:
        statement = (
            "SELECT nextval(CAST(seqrelid AS regclass)), seqincrement FROM pg_sequence "
            "WHERE seqrelid = CAST(CAST(:name AS text) AS regclass)"
        )
        values = {"name": self.name}
        if self._executor.dialect_name == "mysql":
            name, values = self.name.replace(".", "`.`"), {}
            statement = f"SELECT NEXTVAL(`{name}`), (SELECT increment FROM `{name}`)"
        try:
            done = await self._executor.run(statement, **values)
        except StoreError as error:
            code = driver_code(error)
            known = self._missing() if code in _MISSING else error
            raise (self._used_up() if code in _USED_UP else known) from error.__cause__
        number, increment = (as_integer(each) for each in done.rows[0])
        if number is None or number < 1 or increment != size:
            raise self._corrupt(f"{number} with an increment of {increment}, not {size}")
        return number


_TEXTS: Final = dict.fromkeys(("optimizer", "source"), str)


def _truth(text: str) -> bool:
    check_one_of("store_last_used", text, ("true", "false"))
    return text == "true"


class HibernateStore(TableStore):
    """The sequences of one application: rows of ``hibernate_sequences``, or the database's own."""

    scheme = "hibernate"
    options: ClassVar[Options] = {"increment": int, "store_last_used": _truth, **_TEXTS}
    _table: _Sequences

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        optimizer: Optimizer | None = None,
        increment: int = INCREMENT,
        store_last_used: bool = True,
        source: Source = "table",
    ) -> None:
        """Use your own engine, which is never closed here; nothing is sent yet.

        Args:
            engine: the database.
            optimizer: the nodes' optimizer; required for ids, and None for reading only.
            increment: the nodes' ``allocationSize``; 1 to 2^31-1.
            store_last_used: the nodes' ``hibernate.id.generator.stored_last_used``; for tables
                only. With it the row holds the last number that a node has used: with pooled-lo a
                grant owns ``(old, new]``, whatever the step.  With pooled it owns as many ids,
                which are ``increment - 1`` lower.
            source: a table, or sequences of the database.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if optimizer is not None:
            check_one_of("optimizer", optimizer, ("pooled-lo", "pooled"))
        check_one_of("source", source, ("table", "sequence"))
        check_integer("increment", increment, at_least=1, at_most=2**31 - 1)
        # With "pooled" a node reads the end of its range.
        behind = increment - 1 if optimizer == "pooled" else 0
        options: dict[str, Any] = {"value": "next_val", "width": 255, "increment": increment}
        if source == "table":
            options |= {"table": "hibernate_sequences", "key": "sequence_name", "create": _CREATE}
            ahead = behind + (not store_last_used)
            self._on(engine, _Sequences(**options, optimizer=optimizer, ahead=ahead))
            return
        options |= {"table": "sequences", "key": "name", "step_limit": increment}
        options |= {"create": dict.fromkeys(("mysql", "postgresql"), "")}
        options["databases"] = "PostgreSQL or MariaDB: with sequences"
        options["remedy"] = "let Hibernate create the sequence, or correct the name"
        options["no_floor"] = "stop all nodes, and then use ALTER SEQUENCE ... RESTART WITH"
        self._on(engine, _DatabaseSequences(**options, optimizer=optimizer))
        self.kind: type[TableDistributor] = _DatabaseSequence

    async def _rows(self) -> Sequence[TableRow]:
        if not isinstance(self._table, _DatabaseSequences):
            return await super()._rows()
        rows = (await self._executor.run(_LIST[self._executor.dialect_name])).rows
        if self._executor.dialect_name == "mysql":
            names = [row[0] for row in rows if _NAME.fullmatch(row[0])]
            read = self._executor.run
            rows = [(name, *(await read(_READ.format(name))).rows[0]) for name in names]
        return sorted(map(self._row, rows), key=lambda row: row.name)

    def _row(self, row: Sequence[Any]) -> TableRow:
        """Read the database's data about a sequence."""
        name, stored, start, increment, cycles, cache = row
        drawn = increment if self._executor.dialect_name == "postgresql" else 0
        number = start if stored is None else stored + drawn
        known = f"the nodes' is assumed to be {self._table.increment}"
        found = {
            f"its increment is {increment}, and {known}": increment != self._table.increment,
            "it cycles: ids would repeat": bool(cycles),
            f"its cache is {cache}: numbers would come out of order": cache != 1,
        }
        return TableRow(name, number, problems=tuple(each for each in found if found[each]))
