"""The backend of the SQL databases: counters and cells in tables, over an `Executor`.

CosId's tables are ``cosid`` and ``cosid_machine``.  Ours is ``aiocosid_cell``, with all other
cells: a name, a text, and the time of its last write by the database's clock.  A view,
``aiocosid_witness``, remembers that there were tables (see `_schema`).

A counter is created only under the store's marker.  The cell ``counters`` repeats the marker's text
once a process has used a counter, or created one: while it does, none is created in an empty table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from ..abc import MAX_ID, Counter, ServerFacts
from ..abc.stores import is_disposable
from ..errors import (
    CorruptCounterError,
    CounterMissingError,
    CounterNotCreatedError,
    IdOverflowError,
    SchemaDroppedError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from ._dialect import DELETE_MARKER, IS_MARKED, NAME_WIDTH
from ._durability import DurabilityCheck, findings
from ._schema import CELL_TABLE, WITNESS, Schema, creation_of
from ._sql_cells import (
    SHOWN,
    CellNames,
    CommitBuilder,
    Reading,
    integer,
)
from ._sql_errors import OutOfRangeError, code_of
from .backend import Backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..machine.cells import Changes, Need, Snapshot
    from ._dialect import Dialect
    from ._durability import Findings
    from ._executor import Executor, Row, Value

__all__ = ("SqlBackend",)
ATTEMPTS: Final = 20  # at a statement that the server rolls back because of a conflict
CREATIONS: Final = 10  # attempts to create tables while others create or drop some


class SqlBackend(Backend):
    """A database with CosId's tables, and aiocosid's own beside them."""

    __slots__ = ("dialect", "durability")

    link: Executor

    name_width = NAME_WIDTH
    has_witness = True
    order_risk = ""

    def __init__(
        self, executor: Executor, dialect: Dialect, durability: DurabilityCheck | None = None
    ) -> None:
        """Work on an executor.

        Args:
            executor: runs the statements.
            dialect: the statements.
            durability: what to do about settings that may lose grants; None for our own sessions.
        """
        super().__init__(executor.label, executor)
        self.dialect: Dialect = dialect
        self.durability: DurabilityCheck = durability or DurabilityCheck("ignore")

    async def ask_server(self) -> ServerFacts:
        ((version,),) = await self.link.fetch_rows(self.dialect.version)
        migrators = [str(name) for (name,) in await self.link.fetch_rows(self.dialect.migrators)]
        schema = Schema.read(await self.link.fetch_rows(self.dialect.schema))
        facts = (await self._findings()).facts(str(version))
        return replace(facts, migrators=migrators, is_disposable=schema.is_disposable)

    async def _findings(self) -> Findings:
        dialect = self.dialect
        asked = [await self.link.fetch_rows(statement) for statement in dialect.settings]
        return findings(dialect.rules, chain.from_iterable(asked))

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        """Create what is missing; the first time with the store's marker; see `_schema`.

        After a loss the marker goes first: a call that ends half-way leaves a store without one.

        Raises:
            StoreAuthenticationError: the login may not create tables, or see those that are there.
        """
        await self.link.create_file()
        if after_loss and CELL_TABLE in (await self._schema()).found:
            await self._run(DELETE_MARKER)
        has_witness = True
        for _ in range(CREATIONS):
            schema = await self._schema()
            for table in schema.dropped:  # or hidden: MySQL shows no table without a right on it
                with suppress(SchemaDroppedError, SchemaMissingError):
                    await self._run(f"SELECT 1 FROM {table} LIMIT 0")  # noqa: S608 - ours
            creation = creation_of(
                schema,
                store=self.label,
                disposable=disposable,
                after_loss=after_loss,
                has_witness=has_witness,
            )
            if creation is None:
                return schema.is_disposable
            try:
                await self._run(self.dialect.create(creation))
            except StoreAuthenticationError:
                if not creation.witness:
                    raise
                has_witness = False  # without the right to create views
        reason = "other processes create or drop its tables at the same time"
        raise StoreUnavailableError(self.label, reason, remedy="try again when they have ended")

    async def _schema(self) -> Schema:
        return Schema.read(await self._run(self.dialect.schema))

    async def is_in_use(self) -> bool:
        """Whether there were tables before: with those that a store makes it has its marker."""
        schema = await self._schema()
        is_known = WITNESS in schema.found and not schema.is_disposable
        return is_known or await super().is_in_use()

    async def _run(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run a statement after a check of the settings; repeat it if the server rolled it back."""
        if self.durability.is_due:
            self.durability.judge(self.label, await self._findings())
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._once(statement, **values)
            except StoreUnavailableError as error:
                if code_of(error.__cause__) not in self.dialect.undone:
                    raise
        return await self._once(statement, **values)

    async def _once(self, statement: str, **values: Value) -> Sequence[Row]:
        try:
            return await self.link.fetch_rows(statement, **values)
        except SchemaMissingError as error:
            dropped = Schema.read(await self.link.fetch_rows(self.dialect.schema)).dropped
            if error.table not in dropped:
                raise
            raise SchemaDroppedError(self.label, tables=dropped) from error

    async def _row(self, statement: str, **values: Value) -> Row | None:
        return next(iter(await self._run(statement, **values)), None)

    async def _fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run a statement; where tables are created on use, create the one that is missing."""
        try:
            return await self._run(statement, **values)
        except SchemaMissingError:
            if not self.dialect.is_created_on_use:
                raise
        await self.create_schema(disposable=is_disposable())
        return await self._run(statement, **values)

    # Counters.

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        values = dict[str, "Value"](name=name, step=by)
        if first is not None:
            values["first"] = first
        try:
            rows = await self._added(values, create=first is not None)
        except OutOfRangeError as error:
            raise IdOverflowError(name, limit=MAX_ID) from error.__cause__
        if not rows:
            await self._ensure_missing(name, by)
            if first is None:
                raise CounterMissingError(self.label, counter=name)
            is_emptied = await self._row(IS_MARKED) is not None
            raise CounterNotCreatedError(self.label, counter=name, is_emptied=is_emptied)
        return self._sound(name, rows[0][0])

    async def _added(self, values: dict[str, Value], *, create: bool) -> Sequence[Row]:
        add = self.dialect.add
        try:
            return await self._fetch_rows(add.statement(create=create), **values)
        except (SchemaMissingError, StoreAuthenticationError):
            if not create:
                raise
            # CosId's table alone, or no right to look at ours: a counter that exists goes on.
            values.pop("first", None)
            rows = await self._fetch_rows(add.known, **values)
            if not rows:
                raise
            return rows

    async def begin(self, name: str, at: int) -> int:
        # On MySQL 0 is the answer of a statement that did nothing.
        found = await self.peek(name)
        if found is not None:
            return found
        if at:
            return await super().begin(name, at)
        if await self._row_beside_cosid(IS_MARKED) is None:
            raise CounterNotCreatedError(self.label, counter=name)
        counter = await self.raise_to(name, at, create=True)
        return at if counter is None else counter.last_max_id

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        if create:
            await self._ensure_not_emptied(name)
        try:
            statement = self.dialect.raise_to.statement(create=create)
            rows = await self._fetch_rows(statement, name=name, above=above)
        except OutOfRangeError as error:
            raise IdOverflowError(name, limit=MAX_ID) from error.__cause__
        if create:
            await self._row_beside_cosid(self.dialect.note_counters)
        if not rows:
            await self._ensure_missing(name, 0, create=create)
            return None
        max_id, fetch_time = self._sound(name, rows[0][0]), integer(rows[0][1])
        return Counter(namespaced_name=name, last_max_id=max_id, last_fetch_time=fetch_time)

    async def _ensure_not_emptied(self, name: str) -> None:
        """Raise `CounterNotCreatedError` if the store had counters, and all of them are gone."""
        if await self._row_beside_cosid(self.dialect.is_emptied) is not None:
            raise CounterNotCreatedError(self.label, counter=name, is_emptied=True)

    async def _row_beside_cosid(self, statement: str) -> Row | None:
        """Run a statement on our cells; where CosId's table stands alone there is nothing to do."""
        with suppress(SchemaMissingError):
            return await self._row(statement)
        return None

    async def counters(self, prefix: str) -> Sequence[Counter]:
        rows = await self._fetch_rows(self.dialect.counters, prefix=prefix)
        return [
            Counter(namespaced_name=name, last_max_id=max_id, last_fetch_time=integer(fetch_time))
            for name, value, fetch_time in rows
            if (max_id := integer(value)) is not None
        ]

    async def peek(self, name: str) -> int | None:
        rows = await self._fetch_rows(self.dialect.counter, name=name)
        row = next(iter(rows), None)
        return None if row is None else self._sound(name, row[0])

    async def _ensure_missing(self, name: str, by: int, *, create: bool = False) -> None:
        """Raise the reason why a counter could not be advanced, unless it is missing."""
        row = await self._row(self.dialect.counter, name=name)
        if row is None and not create:
            return
        if row is not None and self._sound(name, row[0]) > MAX_ID - by:
            raise IdOverflowError(name, limit=MAX_ID)
        raise StoreUnavailableError(
            self.label, f"{name!r} is being repaired by another client", remedy="try again"
        )

    def _sound(self, name: str, value: object) -> int:
        if (found := integer(value)) is None:
            raise CorruptCounterError(self.label, counter=name, found=f"{value!r:.{SHOWN}}")
        return found

    # Cells.

    async def read(self, namespace: str, need: Need) -> Snapshot:
        names, reading = CellNames(namespace), Reading(self.label, namespace, need)
        rows = await self._fetch_rows(self.dialect.read, **names.parameters(need))
        if not all(reading.add(*row) for row in rows):
            return await self.read(namespace, replace(need, is_complete=True))
        return reading.snapshot()

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        built = CommitBuilder(self.dialect, snapshot, changes)
        commit = built.commit
        try:
            row = await self._row(self.dialect.commit(commit), **commit.values)
        except StoreError as error:
            # The table was dropped since it was read.
            is_gone = isinstance(error, SchemaMissingError) and self.dialect.is_created_on_use
            if not is_gone and code_of(error.__cause__) not in self.dialect.conflicts:
                raise
            return False
        if row is not None:
            built.apply()
        if row is not None and changes.marker is not None:
            await self._run(self.dialect.note_counters)
        return row is not None

    async def namespaces(self) -> Sequence[str]:
        return [str(row[0]) for row in await self._fetch_rows(self.dialect.namespaces)]
