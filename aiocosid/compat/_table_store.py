"""Another system's table of counters, as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from .._uncopied import Uncopied
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Counter, Store
from ..abc._ids import check_text
from ..stores._arguments import check_above
from ..stores._engine import EngineExecutor, OwnEngineExecutor
from ..stores._executor import OutOfRangeError
from ._examine import Examined
from ._table import TableRow, as_integer
from ._table_distributor import TableIdSegmentDistributor, url_of_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..stores._engine import SqlExecutor
    from ._table import CounterTable

__all__ = ("TableStore",)


class TableStore(Uncopied, Store):
    """Counters in another system's table, on any SQLAlchemy engine.

    The table's rows are named as they are; a namespace is no part of them, so that counters of all
    namespaces with one name are one row.  There are no machine ids.
    """

    __slots__ = ("_executor",)

    distributor: ClassVar[type[TableIdSegmentDistributor]]

    def __init__(self, engine: AsyncEngine) -> None:
        """Work on your own engine, which stays yours to close; nothing is sent yet.

        Raises:
            InvalidArgumentError: it is no ``AsyncEngine``, or of a database that is not supported.
        """
        self._executor: SqlExecutor = EngineExecutor(engine)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one that opens its own connections when it is used; nothing is opened yet.

        Args:
            url: the database's, such as ``mysql://user:password@host/leaf``, with or without the
                system's name before it, as ``leaf+mysql://``.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: the driver is not installed.
        """
        made = cls.__new__(cls)
        made._executor = OwnEngineExecutor(url_of_engine(url, cls.distributor.scheme))
        return made

    def __repr__(self) -> str:
        """Name the database, without credentials."""
        return f"<{type(self).__name__} {self._executor.label}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> TableIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the counter's name in that system.
            offset: not used: the row is there, or it is an error.
            step: ids per segment.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        return self.distributor._on(
            self._executor, namespace=namespace, name=name, offset=offset, step=step
        )

    async def create_schema(self) -> None:
        """Create the table as that system ships it, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._executor.run(self._table.create[self._executor.dialect_name])

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name; rows that hold no counter are left out.

        Args:
            namespace: what to call their namespace, of which the table has none.

        Raises:
            InvalidArgumentError: ``namespace`` is no text that a store can hold.
            StoreError: the store refuses or cannot be reached.
        """
        space = DEFAULT_NAMESPACE if namespace is None else namespace
        check_text("namespace", space)
        read = [self._counter(space, row) for row in await self._rows()]
        return [found for found in read if found is not None]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Raise a counter so that every further id, ours or another node's, is above ``above``.

        A missing one is not created: it is another system's table.  A cancelled call may have taken
        effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            IdOverflowError: the number cannot be stored.
            CounterMissingError: there is no such row.
            CorruptCounterError: the row holds no counter; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """
        check_above(above)
        described = self.segment_distributor(namespace=namespace, name=name)
        least = self._table.least(above)
        if least > self._table.limit:
            raise described._used_up()
        statement = self._table.set_floor(self._executor.dialect_name)
        try:
            await self._executor.run(statement, name=name, least=least, **described._scope())
        except OutOfRangeError as error:  # a column that is narrower than 64 bits
            raise described._used_up() from error.__cause__
        row = await described.row()
        counter = self._counter(namespace, row)
        if counter is None:
            raise described._corrupt("; ".join(self._table.problems(row)))
        if (as_integer(row.stored) or 0) < least:  # cut to its column: a session of the user's
            raise described._used_up()
        return counter

    async def examine(self) -> Sequence[Examined]:
        """Read all counters and say what they mean, ordered by name; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        return [self._examined(row) for row in await self._rows()]

    async def _rows(self) -> Sequence[TableRow]:
        done = await self._executor.run(
            self._table.rows(self._executor.dialect_name), **self._scope()
        )
        # Here, because every database has an order of its own.
        return sorted((TableRow(*row) for row in done.rows), key=lambda row: row.name)

    def _scope(self) -> dict[str, object]:
        """Return what the table's `CounterTable.scope` asks for."""
        return {}

    @property
    def _table(self) -> CounterTable:
        return self.distributor.table

    def _counter(self, namespace: str, row: TableRow) -> Counter | None:
        last = self._table.last_id(row)
        if last is None:
            return None
        return Counter(
            namespaced_name=f"{namespace}.{row.name}",
            last_max_id=last,
            last_fetch_time=as_integer(row.fetched),
        )

    def _examined(self, row: TableRow) -> Examined:
        problems = self._table.problems(row)
        step = as_integer(row.step) or 1
        if not problems and self._table.is_used_up(row, step):
            problems = (f"it is used up: {step} ids more would pass 2^63-1",)
        return Examined(
            name=row.name,
            stored=as_integer(row.stored),
            meaning=self._table.meaning(row),
            next_id=None if problems else self._table.next_id(row),
            problems=problems,
        )

    async def aopen(self) -> None:
        """Get ready in this process; connects when it is used.

        Raises:
            ForkedError: the engine was passed in, and is the parent's.
        """
        await self._executor.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; an engine that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        await self._executor.aclose()
