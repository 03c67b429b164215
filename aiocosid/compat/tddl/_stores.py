"""The sequences of TDDL's in one database, and in several, as stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ..._life.clock import SYSTEM_CLOCK
from ...errors import CounterMissingError
from .._group_store import STORE_TIMEOUT, GroupStore
from .._table import as_integer
from .._table_store import TableStore
from ._table import sequence_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ...abc import Clock
    from .._url import Options
    from ._table import SequenceTable

__all__ = ("TddlGroupStore", "TddlStore")

_SHARED: Final = {"inner_step": int, "schema_name": str, "table": str}


class TddlStore(TableStore):
    """The sequences in one of TDDL's databases, on any SQLAlchemy engine.

    A grant is one range of ``inner_step`` ids; a call for fewer gets the upper ones.
    """

    scheme = "tddl"
    options: ClassVar[Options] = {**_SHARED, "holds": str, "index": int, "count": int}
    _table: SequenceTable

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
        """Use your own engine, which is never closed here; nothing is sent yet.

        Args:
            engine: the table's database.
            inner_step: the same for every node of both systems; 1 to 2^31-1.
            holds: the meaning of ``value`` for the nodes: ``base``: the last range is above it
                (group sequences, TDDL 5, PolarDB-X), or ``last``: it is the last id (the old
                ``DefaultSequenceDao`` and its copies).  The wrong meaning repeats ids.
            schema_name: for PolarDB-X, whose rows have it in their key.
            table: its name.
            index: the database's position among all, from 0.
            count: the number of databases (``dscount``), including those that are off.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        position = {"index": index, "count": count}
        self._on(engine, sequence_table(inner_step, holds, schema_name, table, **position))


class TddlGroupStore(GroupStore):
    """TDDL's sequences in several databases, of which any one is enough.

    TDDL chooses a random database for each range; here it is the same one as long as it answers,
    and ids rise.  Each number is checked to belong to its database (``value % outStep``): all that
    can be read before the first grant, and each again by the statement that grants.
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
        """Use your own engines, which are never closed here; nothing is sent yet.

        Args:
            engines: one for each of TDDL's groups, in their order; None for one that is off
                (``-OFF``), which keeps its place.
            inner_step: as for `TddlStore`.
            schema_name: as for `TddlStore`.
            table: as for `TddlStore`.
            store_timeout: seconds that one database has to answer, before the next is asked.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        one = partial(TddlStore, inner_step=inner_step, schema_name=schema_name, table=table)
        places = [(index, engine) for index, engine in enumerate(engines) if engine is not None]
        stores = {index: one(engine, index=index, count=len(engines)) for index, engine in places}
        self._gather(stores, store_timeout, clock)

    async def adjust(self, name: str) -> None:
        """Add missing rows, and raise rows that have another database's numbers.

        TDDL's ``adjust``, which here runs only on request: stop all nodes first.  Every written
        number is above all ids of the sequence, and none is lowered.  Safe to repeat.

        Raises:
            CorruptCounterError: a row holds no number; nothing was written.
            IdOverflowError: there is no number left above all ids; nothing was written.
            StoreError: a database refuses or cannot be reached.
        """
        stores: list[Any] = [*self._stores.values()]
        rows = [(store._table, store.segment_distributor(name=name)) for store in stores]
        highest = 0
        for table, asking in rows:
            try:
                row = await asking.row()
            except CounterMissingError:
                continue
            stored = as_integer(row.stored)
            if stored is None or not 0 <= stored <= table.limit:
                raise asking._corrupt("; ".join(table.problems(row)))
            highest = max(highest, stored + table.inner_step)
        above = highest + rows[0][0].outer_step  # not below any number either
        if any(table.least(above) > table.limit for table, _ in rows):
            raise rows[0][1]._used_up()
        for store, (table, _) in zip(stores, rows, strict=True):
            values = {"name": name, "least": table.least(above), **table.scope}
            for statement in (table.insert, table.repair):
                await store._executor.run(statement(store._executor.dialect_name), **values)
