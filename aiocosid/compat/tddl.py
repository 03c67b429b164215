"""TDDL's sequences, in its table ``sequence``.  Requires the ``sqlalchemy`` extra.

TDDL (Taobao) keeps one row for each name, in one database or in several.  The row holds the *base
of the last granted range*, and the range's ids lie above it: a grant adds ``inner_step`` once for
each of the databases, and owns ``(new, new + inner_step]``.  Old TDDL nodes can run at the same
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from .._life.clock import SYSTEM_CLOCK
from ..abc import MAX_ID
from ..abc.checks import check_integer, check_text
from ..errors import CounterMissingError
from ..stores.backend import as_integer
from ._group import STORE_TIMEOUT, GroupStore
from ._table import CounterTable, create_table, unless_there
from ._table_store import TableStore, rows_of
from ._url import check_identifier, check_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..abc import Clock
    from ..stores.sql import DialectName
    from ._table import TableRow
    from ._url import Options

__all__ = ("TddlGroupStore", "TddlStore")

_HIGHEST: Final = MAX_ID - 10**8  # TDDL's own limit of the number

_COLUMNS: Final = """
  name varchar(64) NOT NULL,
  value bigint NOT NULL,
  gmt_modified timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (name)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SequenceTable(CounterTable):
    """A table ``sequence`` in one of the databases, whose rows hold the base of the last range.

    Attributes:
        inner_step: ids in a range.
        outer_step: what a grant adds: ``inner_step`` times the number of databases.
        base: the remainder of every number of this database, divided by ``outer_step``.
    """

    inner_step: int
    outer_step: int
    base: int

    def amount(self, step: int, stride: int) -> int:  # noqa: ARG002 - always a whole range
        return self.outer_step

    def _guards(self, dialect: DialectName) -> list[str]:
        # Not every build of SQLite has MOD().
        left = f"{self.value} % {self.outer_step}"
        if dialect != "sqlite":
            left = f"MOD({self.value}, {self.outer_step})"
        return [f"{left} = {self.base}"]

    def least(self, above: int) -> int:
        # A grant advances the row by one step, and its ids are above the new number.
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
            return (f"value is {stored}, {where}; for index {index} it must be {self.base}",)
        return ()

    def insert(self, dialect: DialectName) -> str:
        """(name, least[, schema_name]) adds a row; an existing row stays unchanged."""
        keys = ("name", *self.scope)
        columns, given = ", ".join(keys), ", ".join(f":{key}" for key in keys)
        insert = f"INSERT INTO {self.table} ({columns}, value, gmt_modified)"
        unless = unless_there(self.key, dialect)
        return f"{insert} VALUES ({given}, :least, CURRENT_TIMESTAMP) {unless}"

    def repair(self, dialect: DialectName) -> str:
        """(name, least) raises a row that is lower and has a number of another database."""
        return self._raise(dialect, [f"NOT {guard}" for guard in self._guards(dialect)])


def _sequence_table(
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
        keyed = columns.replace("(name)", "(schema_name, name)")
        columns = f"schema_name varchar(64) NOT NULL,{keyed}"
    options: dict[str, Any] = {"table": table, "key": "name", "value": "value", "width": 64}
    options |= {"touched": "gmt_modified", "scope": scope, "create": create_table(table, columns)}
    if holds == "last":
        return CounterTable(**options, limit=_HIGHEST)
    options |= {"ahead": -inner_step, "limit": min(_HIGHEST, MAX_ID - inner_step)}
    options |= {"step_limit": inner_step, "inner_step": inner_step}
    return _SequenceTable(**options, outer_step=inner_step * count, base=inner_step * index)


_SHARED: Final = {"inner_step": int, "schema_name": str, "table": str}


class TddlStore(TableStore):
    """The sequences in one of TDDL's databases, on any SQLAlchemy engine.

    A grant is one range of ``inner_step`` ids; a call for fewer ids gets the upper ones.
    """

    scheme = "tddl"
    options: ClassVar[Options] = {**_SHARED, "holds": str, "index": int, "count": int}

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        inner_step: int = 1000,
        holds: Literal["base", "last"] = "base",
        schema_name: str | None = None,
        table: str = "sequence",
        index: int = 0,
        count: int = 1,
    ) -> None:
        """Use your own engine, which the store never closes; nothing is sent yet.

        Args:
            engine: your own engine on the table's database.
            inner_step: ids in a range, 1 to 2^31-1; the same for every node of both systems.
            holds: the meaning of ``value`` for the nodes: ``base`` if the last range is above it
                (group sequences, TDDL 5, PolarDB-X), or ``last`` if it is the last id (the old
                ``DefaultSequenceDao`` and its copies).  The wrong meaning repeats ids.
            schema_name: the schema's name, for PolarDB-X, whose rows have it in their key.
            table: the table's name.
            index: the database's position among all databases, from 0.
            count: the number of databases (``dscount``), including those that are off.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        position = {"index": index, "count": count}
        self._on(engine, _sequence_table(inner_step, holds, schema_name, table, **position))


class TddlGroupStore(GroupStore):
    """TDDL's sequences in several databases, of which any one is enough.

    TDDL chooses a random database for each range; this store uses the same one as long as it
    answers, and its ids rise.  Each number must belong to its database (``value % outStep``): all
    numbers that can be read are checked before the first grant, and the granting statement checks
    each again.
    """

    one: ClassVar[type[TableStore]] = TddlStore
    options: ClassVar[Options] = _SHARED
    off: ClassVar[tuple[str, ...]] = ("-OFF",)

    def __init__(
        self,
        engines: Sequence[AsyncEngine | None],
        *,
        inner_step: int = 1000,
        schema_name: str | None = None,
        table: str = "sequence",
        store_timeout: float = STORE_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Use your own engines, which the store never closes; nothing is sent yet.

        Args:
            engines: one engine for each of TDDL's groups, in their order; None for a group that is
                off (``-OFF``) and keeps its place.
            inner_step: as for `TddlStore`.
            schema_name: as for `TddlStore`.
            table: as for `TddlStore`.
            store_timeout: seconds for which to wait for a database before calling the next one.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        one = partial(TddlStore, inner_step=inner_step, schema_name=schema_name, table=table)
        places = [(index, engine) for index, engine in enumerate(engines) if engine is not None]
        stores = {index: one(engine, index=index, count=len(engines)) for index, engine in places}
        self._gather(stores, store_timeout, clock)

    async def adjust(self, name: str) -> None:
        """Add missing rows, and raise rows that have a number of another database.

        This is TDDL's ``adjust``, which here runs only on request: first stop all nodes.  Every
        written number is above all ids of the sequence, and no number is lowered.  It is safe to
        repeat.

        Raises:
            CorruptCounterError: a row does not hold a number; nothing was written.
            IdOverflowError: no number is left above all ids; nothing was written.
            StoreError: a database refuses or cannot be reached.
        """
        stores = [*self._stores.values()]
        counter = stores[0].segment_distributor(name=name)  # checks the name
        databases = [*map(rows_of, stores)]
        tables: list[Any] = [rows.table for rows in databases]
        highest = 0
        for rows, table in zip(databases, tables, strict=True):
            try:
                row = await rows.named(name)
            except CounterMissingError:
                continue
            stored = as_integer(row.stored)
            if stored is None or not 0 <= stored <= table.limit:
                raise rows.corrupt(name, "; ".join(table.problems(row)))
            highest = max(highest, stored + table.inner_step)
        above = highest + tables[0].outer_step  # nor below any number
        if any(table.least(above) > table.limit for table in tables):
            raise databases[0].used_up(counter.namespaced_name)
        for rows, table in zip(databases, tables, strict=True):
            values = {"name": name, "least": table.least(above), **table.scope}
            for statement in (table.insert, table.repair):
                await rows.executor.run(statement(rows.executor.dialect_name), **values)
