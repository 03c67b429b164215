"""Another system's table of counters, as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self, Unpack, cast

from .._life.fork import NotCopyable
from ..abc import DEFAULT_NAMESPACE, Counter, Store
from ..abc.checks import check_above, check_text
from ..stores.backend import as_integer
from ..stores.sql import OutOfRangeError, executor_of, executor_on
from ._table_distributor import TableDistributor
from ._table_rows import TableRows
from ._url import split_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..stores.counters import CounterOptions
    from ._table import CounterTable, Examined, TableRow
    from ._url import Options

__all__ = ("TableStore", "of_row", "rows_of")


class TableStore(NotCopyable, Store):
    """Counters in another system's table, on any SQLAlchemy engine.

    A counter's name is the row's key, without the namespace, so counters with one name share a row,
    whatever their namespace.  There are no machine ids.

    Attributes:
        scheme: the prefix of the database's own scheme in a URL: ``leaf`` in ``leaf+mysql://``.
        options: the options of a URL, and the functions that read their texts.
        table: the table, if it needs no options.
    """

    scheme: ClassVar[str]
    options: ClassVar[Options] = {}
    table: ClassVar[CounterTable]

    def __init__(self, engine: AsyncEngine) -> None:
        """Use your own engine, which the store never closes; nothing is sent yet.

        Raises:
            InvalidArgumentError: ``engine`` is not an ``AsyncEngine``, or its database is not
                supported.
        """
        self._on(engine, self.table)

    def _on(self, engine: AsyncEngine, table: CounterTable) -> None:
        self._rows = TableRows(executor_on(engine), table)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store with its own connections, opened on first use; nothing is opened yet.

        Args:
            url: the database's URL, for example ``mysql://user:password@host/leaf``, with or
                without the system's name as a prefix, as in ``leaf+mysql://``.  Its query may
                contain the arguments of ``__init__``, for example ``?inner_step=1000``.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
            MissingExtraError: the driver is not installed.
        """
        server, options = split_options(url, cls.scheme, cls.options)
        return cast("Callable[..., Self]", cls)(executor_of(server), **options)

    def __repr__(self) -> str:
        """Name the database, without credentials."""
        return f"<{type(self).__name__} {self._rows.executor.label}>"

    def segment_distributor(self, *, name: str, **more: Unpack[CounterOptions]) -> TableDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            name: the counter's name in that system.
            **more: ``step``, ids per segment; if grants have a limit, for example TDDL's
                ``inner_step``, a higher step is reduced to it.  ``namespace`` is used only in
                messages and statistics.  ``offset`` is not used, because a missing row is an error.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the name is too long.
        """
        return TableDistributor(self._rows.executor, self._rows.table, name=name, **more)

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:  # noqa: ARG002 - it keeps no witness
        """Create the table as that system ships it, without rows, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        await self._rows.executor.create_file()
        await self._rows.executor.run(self._rows.table.create[self._rows.executor.dialect_name])

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the counters, ordered by name, without invalid rows.

        Args:
            namespace: the namespace of the result; the table has none.

        Raises:
            InvalidArgumentError: ``namespace`` is not a text that a store can hold.
            StoreError: the store refuses or cannot be reached.
        """
        space = DEFAULT_NAMESPACE if namespace is None else namespace
        check_text("namespace", space)
        read = [self._read(space, row) for row in await self._rows.read()]
        return [found for found in read if found is not None]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, **_: bool
    ) -> Counter:
        """Raise a counter so that all further ids, here and on other nodes, are above ``above``.

        A missing row is never created, even with ``create``, because it is another system's table.
        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            IdOverflowError: the number cannot be stored.
            CounterMissingError: there is no such row.
            CorruptCounterError: the row does not hold a counter; nothing was written.
            StoreError: the store refuses or cannot be reached.
        """
        check_above(above)
        described = self.segment_distributor(namespace=namespace, name=name)
        rows, table = self._rows, self._rows.table
        least = table.least(above)
        if least > table.limit:
            raise rows.used_up(described.namespaced_name)
        statement, values = table.set_floor(self._rows.executor.dialect_name), {"least": least}
        try:
            await self._rows.executor.run(statement, name=described.name, **values, **table.scope)
        except OutOfRangeError as error:  # the column is narrower than 64 bits
            raise rows.used_up(described.namespaced_name) from error.__cause__
        row = await described.row()
        counter = self._read(described.namespace, row)
        if counter is None:
            raise rows.corrupt(described.name, "; ".join(table.problems(row)))
        # Truncated to fit its column, in a user's session.
        if (as_integer(row.stored) or 0) < least:
            raise rows.used_up(described.namespaced_name)
        return counter

    async def examine(self) -> Sequence[Examined]:
        """Read and explain all counters, ordered by name; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached, or the table is missing.
        """
        return [self._rows.examined(row) for row in await self._rows.read()]

    def _read(self, namespace: str, row: TableRow) -> Counter | None:
        last = self._rows.table.last_id(row)
        if last is None:
            return None
        fetched = as_integer(row.fetched)
        name = f"{namespace}.{row.name}"
        return Counter(namespaced_name=name, last_max_id=last, last_fetch_time=fetched)

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        Raises:
            ForkedError: the engine was passed in and belongs to the parent process.
        """
        await self._rows.executor.aopen()

    async def aclose(self) -> None:
        """Close connections created from a URL; a user's engine stays open.

        Raises:
            WrongLoopError: the connections are in use on another event loop.
        """
        await self._rows.executor.aclose()


def rows_of(store: TableStore) -> TableRows:
    """Return the rows of a store's table."""
    return store._rows


def of_row(store: TableStore, row: TableRow, namespace: str) -> TableDistributor:
    """Return a distributor with the row's step."""
    asking = store.segment_distributor(namespace=namespace, name=row.name)
    step = asking.step_of(row)
    return store.segment_distributor(namespace=namespace, name=row.name, step=step)
