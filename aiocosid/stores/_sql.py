"""The backend of the SQL databases: counters and cells in tables, over an `Executor`.

CosId's tables are ``cosid`` and ``cosid_machine``.  Aiocosid's own table, ``aiocosid_cell``, holds
all other cells: each has a name, a text, and the time of its last write on the database's clock.
The view ``aiocosid_witness`` records that the tables existed (see `_dialect`).

A counter is created only if the store has its marker.  Once a process has used or created a
counter, the cell ``counters`` repeats the marker's text.  From then on, no counter is created in an
empty table.

Aiocosid's cells are called ``marker``, ``count/{namespace}``, ``space/{namespace}``, ``note/{name
of CosId's row}``, ``own/{length}/{namespace}/{instance}`` and, on SQLite, ``sequence/{full name}``.
"""

# ruff: noqa: S608 - the statements are assembled from constants of this package only

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..abc import MAX_ID, Counter, ServerInfo
from ..abc.stores import is_disposable
from ..errors import (
    CorruptCounterError,
    CorruptMachineStateError,
    CounterMissingError,
    CounterNotCreatedError,
    IdOverflowError,
    SchemaDroppedError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from ..machine.cells import (
    Count,
    Damage,
    MachineSlot,
    Marker,
    NamespaceCount,
    NamespaceRecord,
    Owner,
    Snapshot,
    read_note,
)
from ._dialect import (
    CELL_TABLE,
    DELETE_MARKER,
    IS_MARKED,
    MACHINE_TABLE,
    NAME_WIDTH,
    WITNESS,
    Schema,
    SqlCommit,
    creation_of,
)
from ._durability import DurabilityCheck, findings
from ._executor import OutOfRangeError, code_of
from .backend import Backend, as_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..machine.cells import Changes, ReadRequest
    from ._dialect import Dialect, Value
    from ._durability import Findings
    from ._executor import Executor, Row

__all__ = ("SHOWN", "SqlBackend")

MARKER: Final = "marker"
NAMESPACES: Final = "namespaces"
MAX_MACHINE_ID: Final = 2**31 - 1
SHOWN: Final = 40  # how many characters of a damaged value an error shows

_NUMBER: Final = re.compile("[0-9]{8}|[1-9][0-9]{8,9}")

C = TypeVar("C")


def _read_own(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError(text)
    return int(text)


class CellNames:
    """The names of the cells of a namespace."""

    __slots__ = ("_namespace", "_owns", "_prefix", "count", "space")

    def __init__(self, namespace: str) -> None:
        self._namespace, self._prefix = namespace, f"{namespace}."
        self.count, self.space = f"count/{namespace}", f"space/{namespace}"
        # Instance and namespace may both contain a slash.
        self._owns = f"own/{len(namespace)}/{namespace}"

    def row(self, machine_id: int) -> str:
        """Return the name of CosId's row for a machine id."""
        return f"{self._namespace}.{machine_id:08d}"

    def number(self, row: str) -> int | None:
        """Return the machine id in a row's name, or None if it has none."""
        is_ours = row.startswith(self._prefix)
        found = _NUMBER.fullmatch(row, len(self._prefix)) if is_ours else None
        return int(found[0]) if found and int(found[0]) <= MAX_MACHINE_ID else None

    def record(self, machine_id: int) -> str:
        """Return the name of the cell with a machine id's record."""
        return f"note/{self.row(machine_id)}"

    def noted(self, name: str) -> int | None:
        """Return the machine id of the record that a cell with this name holds, or None."""
        return self.number(name.removeprefix("note/")) if name.startswith("note/") else None

    def own(self, instance: str) -> str:
        """Return the name of an instance's own cell."""
        return f"{self._owns}/{instance}"

    def parameters(self, need: ReadRequest) -> dict[str, Value]:
        """Return the parameters of `Dialect.read`."""
        number = -1 if need.machine_id is None else need.machine_id
        return {
            "namespace": self._namespace,
            "is_complete": int(need.is_complete),
            "instance": need.instance,
            "machine_id": number,
            "marker": MARKER,
            "namespaces": NAMESPACES,
            "counts": 0 if not need.namespaces else 1 if need.sample else 2,
            "count": self.count,
            "space": self.space,
            "mine": self.own(need.instance),
            "record": self.record(number),
            "records": f"note/{self._namespace}.0",
            "records_end": f"note/{self._namespace}.:",  # the character after 9
            "owns": f"{self._owns}/",
            "owns_end": f"{self._owns}0",  # the character after /
            "own": str(number),
        }


@dataclass(slots=True)
class SqlRaw:
    """The values as they were read, for the comparison in the commit.

    Attributes:
        cells: aiocosid's cells by name.
        rows: CosId's rows by machine id, with names and columns; usually one row each.
    """

    cells: dict[str, str] = field(default_factory=dict[str, str])
    rows: dict[int, dict[str, Owner]] = field(default_factory=dict[int, dict[str, Owner]])


class Reading:
    """Builds a snapshot from the rows of `Dialect.read`."""

    __slots__ = ("_found", "_names", "_need", "_raw", "_written_ms")

    def __init__(self, label: str, namespace: str, need: ReadRequest) -> None:
        self._raw = SqlRaw()
        self._found = Snapshot(
            namespace, "", is_complete=need.is_complete, raw=self._raw, store=label, counted=-1
        )
        self._names, self._need = CellNames(namespace), need
        self._written_ms: dict[str, int] = {}

    def add(self, kind: str, name: str, text: Any, number: Any, stamp_ms: Any) -> bool:  # noqa: ANN401 - as a driver has them
        """Add a row; return whether it can be interpreted without reading all other rows."""
        if kind == "store":
            self._found.identity, self._found.now_ms = name, int(number)
            self._found.counted = int(stamp_ms)
        elif kind == "cell":
            self._raw.cells[name], self._written_ms[name] = text, int(number)
            if type(text) is not str:  # SQLite stores any type
                raise self._corrupt(name)
        else:
            self._add_row(name, text, number, stamp_ms)
            # The record of this row is stored under another name.
            return self._need.is_complete or self._names.number(name) == as_integer(number)
        return True

    def _add_row(self, name: str, *columns: Any) -> None:  # noqa: ANN401 - as a driver has them
        instance, machine_id, stamp_ms = columns[0], as_integer(columns[1]), as_integer(columns[2])
        named = self._names.number(name)
        if machine_id is None or not 0 <= machine_id <= MAX_MACHINE_ID:
            place, wrong = named, columns[1]
        elif type(instance) is not str or stamp_ms is None:
            place, wrong = machine_id, columns[2] if type(instance) is str else instance
        else:
            self._raw.rows.setdefault(machine_id, {})[name] = owner = Owner(instance, stamp_ms)
            self._slot(machine_id, owner)
            if named is not None and named != machine_id:
                self._slot(named, None)  # the machine id's own row could not be created
            return
        if place is not None:
            self._slot(place, None)
        of = self._need.instance if instance == self._need.instance else ""
        if place is None or of:
            where = f"row {name!r} of table {MACHINE_TABLE!r}"
            self._found.damages += (Damage(where, f"{wrong!r:.{SHOWN}}", of),)

    def _slot(self, machine_id: int, owner: Owner | None) -> None:
        """Add an owner to a slot; None marks the slot as damaged."""
        slots = self._found.slots
        before = slots.get(machine_id, MachineSlot())
        owners = before.owners if owner is None else (*before.owners, owner)
        slots[machine_id] = MachineSlot(owners, is_damaged=before.is_damaged or owner is None)

    def snapshot(self) -> Snapshot:
        """Return the snapshot.

        Raises:
            CorruptMachineStateError: one of aiocosid's cells is damaged.
        """
        found, names, cells = self._found, self._names, self._raw.cells
        slots = found.slots
        found.marker = self._cell(Marker.read, MARKER)
        found.space = self._cell(NamespaceRecord.read, names.space)
        found.count = self._cell(Count.read, names.count)
        found.namespaces = self._cell(NamespaceCount.read, NAMESPACES)
        for name in cells:
            if (number := names.noted(name)) is not None:
                slot, record = slots.get(number, MachineSlot()), self._cell(read_note, name)
                slots[number] = MachineSlot(
                    slot.owners, record, self._written_ms[name], slot.is_damaged
                )
        found.own = self._cell(_read_own, names.own(self._need.instance))
        found.slots = dict(sorted(slots.items(), key=lambda item: (item[1].floor_ms, item[0])))
        return found

    def _cell(self, read: Callable[[str], C], name: str) -> C | None:
        if name not in self._raw.cells:
            return None
        try:
            return read(self._raw.cells[name])
        except ValueError:
            raise self._corrupt(name) from None

    def _corrupt(self, name: str) -> CorruptMachineStateError:
        return CorruptMachineStateError(
            self._found.store,
            place=f"row {name!r} of table {CELL_TABLE!r}",
            found=f"{self._raw.cells[name]!r:.{SHOWN}}",
        )


class CommitBuilder:
    """Builds a commit from the cells that were read and the changes to write.

    Attributes:
        commit: the parts of the statement.
    """

    __slots__ = ("_changes", "_dialect", "_raw", "_rows", "_snapshot", "_texts", "commit")

    def __init__(self, dialect: Dialect, snapshot: Snapshot, changes: Changes) -> None:
        """Add the comparisons with what was read, and the writes.

        Args:
            dialect: the database's dialect.
            snapshot: what was read.
            changes: what to change.
        """
        self._dialect, self._snapshot, self._changes = dialect, snapshot, changes
        self._raw: SqlRaw = snapshot.raw
        self.commit: SqlCommit = SqlCommit({"identity": snapshot.identity})
        names, cells = CellNames(snapshot.namespace), self._raw.cells
        self._texts = texts = self._new_texts(names)
        self._rows = sorted(self._new_rows(names), key=lambda row: row[0])
        # Both can be incremented, whatever their current value is.
        one_more = {
            names.count: snapshot.counts_one_more(changes),
            NAMESPACES: snapshot.counts_one_namespace_more(changes),
        }
        for name in sorted(texts, key=lambda name: (texts[name] != cells.get(name), name)):
            if dialect.number and one_more.get(name):
                self._add_one(name)
            else:
                self._add_cell(name)
        for name, number, old, new in self._rows:
            read: dict[str, Value] = {}
            if old is not None:
                read = {"instance_id": old.instance, "last_timestamp": old.stamp_ms}
            self._add(MACHINE_TABLE, self._given(name), read, self._columns(number, old, new))

    def _new_texts(self, names: CellNames) -> dict[str, str | None]:
        """Return the new text of each of aiocosid's cells; None removes it."""
        changes, raw = self._changes, self._raw.cells
        cells = {
            MARKER: changes.marker,
            NAMESPACES: changes.namespaces,
            names.space: changes.space,
            names.count: changes.count,
        }
        records = {names.record(number): slot.record for number, slot in changes.slots.items()}
        texts = {name: raw.get(name) for name in (MARKER, names.space)}
        texts |= {name: cell.text() for name, cell in (cells | records).items() if cell is not None}
        for instance, held in changes.own.items():
            name = names.own(instance)
            if held is not None or name in raw:  # otherwise there is nothing to compare
                texts[name] = None if held is None else str(held)
        return texts

    def _new_rows(self, names: CellNames) -> Iterator[tuple[str, int, Owner | None, Owner]]:
        """Yield the names of CosId's rows, their machine ids, and their old and new owners."""
        for number, slot in self._changes.slots.items():
            rows = self._raw.rows.get(number, {})
            owners = {each.instance: each for each in slot.owners}
            if not rows and slot.owners:
                yield names.row(number), number, None, slot.owners[0]
            # Rows that stay come first.
            for name, old in sorted(rows.items(), key=lambda item: item[1].instance not in owners):
                stays = old.instance if old.instance in owners else next(iter(owners), "")
                yield name, number, old, owners.pop(stays, Owner("", old.stamp_ms))

    def _columns(self, number: int, old: Owner | None, new: Owner) -> dict[str, Value | None]:
        """Return the columns to write to one of CosId's rows; None stands for the store's clock."""
        changes, namespace = self._changes, self._snapshot.namespace
        columns: dict[str, Value | None] = {"instance_id": new.instance}
        columns["last_timestamp"] = new.stamp_ms
        if old is None:
            columns |= {"namespace": namespace, "machine_id": number}
            return columns | {"distribute_time": new.stamp_ms, "revert_time": 0}
        before = old.instance
        if new.instance not in {"", before}:  # another instance takes the row
            columns["distribute_time"] = None
        is_left = changes.instance == before == new.instance != "" and number != changes.signed
        if (before != "" and not new.instance) or is_left:
            columns["revert_time"] = None
        return columns

    def _given(self, value: Value | None) -> str:
        if value is None:
            return self._dialect.now
        name = f"v{len(self.commit.values)}"
        self.commit.values[name] = value
        return self._dialect.parameter(name, value)

    def _add_cell(self, name: str) -> None:
        old, new = self._raw.cells.get(name), self._texts[name]
        read = {} if old is None else {"value": old}
        written = None if new is None else {"value": new, "written_ms": None}
        key = self._dialect.key(self._given(name))
        self._add(CELL_TABLE, key, read, {} if new == old else written)

    def _add(
        self,
        table: str,
        key: str,
        read: Mapping[str, Value],
        new: Mapping[str, Value | None] | None,
    ) -> None:
        """Compare a row with what was read, and write the new values.

        If ``read`` is empty, no such row may exist.  If ``new`` is empty, the row stays unchanged;
        if it is None, the row is removed.
        """
        dialect, this = self._dialect, f"{table} WHERE name = {key}"
        written = {column: self._given(value) for column, value in (new or {}).items()}
        if not read:
            self.commit.missing.append(this)
            if written:
                columns, marks = ", ".join(("name", *written)), ", ".join((key, *written.values()))
                where = f"{dialect.source} WHERE {dialect.is_open}"
                self.commit.writes.append(f"INSERT INTO {table} ({columns}) SELECT {marks}{where}")
            return
        same = [dialect.same(column, self._given(value)) for column, value in read.items()]
        how = dialect.shared if new == {} else dialect.exclusive
        self.commit.found.append((" AND ".join((this, *same)), how))
        if new is None:
            self.commit.writes.append(f"DELETE FROM {this} AND {dialect.is_open}")
        elif new:
            self._update(table, key, written)

    def _add_one(self, name: str) -> None:
        """Compare everything but a count's number, and increment the number's current value."""
        key = self._dialect.key(self._given(name))
        text = self._raw.cells[name].rpartition(":")[0] + ":"
        length, epoch = len(text), self._given(text)
        found = f"{CELL_TABLE} WHERE name = {key} AND SUBSTR(value, 1, {length}) = {epoch}"
        self.commit.found.append((found, self._dialect.exclusive))
        ids = f"REPLACE(SUBSTR(value, {length + 1}), '}}', '')"
        ids = f"CAST({ids} AS {self._dialect.number})"
        value = f"CONCAT({epoch}, {ids} + 1, '}}')"
        self._update(CELL_TABLE, key, {"value": value, "written_ms": self._dialect.now})

    def _update(self, table: str, key: str, new: Mapping[str, str]) -> None:
        columns = ", ".join(f"{column} = {value}" for column, value in new.items())
        where = f"WHERE name = {key} AND {self._dialect.is_open}"
        self.commit.writes.append(f"UPDATE {table} SET {columns} {where}")

    def apply(self) -> None:
        """Bring the snapshot up to date."""
        self._snapshot.apply(self._changes)
        for name, text in self._texts.items():
            if text is None:
                self._raw.cells.pop(name, None)
            else:
                self._raw.cells[name] = text
        for name, number, _, new in self._rows:
            self._raw.rows.setdefault(number, {})[name] = new


ATTEMPTS: Final = 20  # to run a statement that the server rolls back because of a conflict
CREATIONS: Final = 10  # attempts to create tables while other processes create or drop them


class SqlBackend(Backend):
    """A database with CosId's tables and aiocosid's own tables."""

    __slots__ = ("dialect", "durability")

    link: Executor

    name_width: int | None = NAME_WIDTH
    has_witness = True
    order_risk = ""

    def __init__(
        self, executor: Executor, dialect: Dialect, durability: DurabilityCheck | None = None
    ) -> None:
        """Work on an executor.

        Args:
            executor: runs the statements.
            dialect: the statements.
            durability: what to do about settings that may lose grants; None for sessions that
                aiocosid sets up.
        """
        super().__init__(executor.label, executor)
        self.dialect: Dialect = dialect
        self.durability: DurabilityCheck = durability or DurabilityCheck("ignore")

    async def ask_server(self) -> ServerInfo:
        ((version,),) = await self.link.fetch_rows(self.dialect.version)
        migrators = [str(name) for (name,) in await self.link.fetch_rows(self.dialect.migrators)]
        schema = Schema.read(await self.link.fetch_rows(self.dialect.schema))
        facts = (await _findings(self.link, self.dialect)).facts(str(version))
        return replace(facts, migrators=migrators, is_disposable=schema.is_disposable)

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        """Create what is missing, and on the first call the store's marker; see `_dialect`.

        After a loss the marker is removed first, so a call that stops half-way leaves no marker.

        Raises:
            StoreAuthenticationError: the login may not create tables, or may not see the existing
                ones.
        """
        await self.link.create_file()
        if after_loss and CELL_TABLE in (await self._schema()).found:
            await self._run(DELETE_MARKER)
        has_witness = True
        for _ in range(CREATIONS):
            schema = await self._schema()
            for table in schema.dropped:  # or hidden: MySQL shows a table only with a right on it
                with suppress(SchemaDroppedError, SchemaMissingError):
                    await self._run(f"SELECT 1 FROM {table} LIMIT 0")
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
        """Whether tables existed before: a store that creates its tables has its marker anyway."""
        schema = await self._schema()
        is_known = WITNESS in schema.found and not schema.is_disposable
        return is_known or await super().is_in_use()

    async def _run(self, statement: str, **values: Value) -> Sequence[Row]:
        """Check the settings, then run a statement; repeat it if the server rolled it back."""
        if self.durability.is_due:
            self.durability.judge(self.label, await _findings(self.link, self.dialect))
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
        """Run a statement; where tables are created on first use, create a missing one."""
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
        return _sound(self.label, name, rows[0][0])

    async def _added(self, values: dict[str, Value], *, create: bool) -> Sequence[Row]:
        add = self.dialect.add
        try:
            return await self._fetch_rows(add.statement(create=create), **values)
        except (SchemaMissingError, StoreAuthenticationError):
            if not create:
                raise
            # CosId's table is there without aiocosid's, or they may not be read: an existing
            # counter still works.
            values.pop("first", None)
            rows = await self._fetch_rows(add.known, **values)
            if not rows:
                raise
            return rows

    async def begin(self, name: str, at: int) -> int:
        # MySQL returns 0 for a statement that changed nothing.
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
        if create and await self._row_beside_cosid(self.dialect.is_emptied) is not None:
            raise CounterNotCreatedError(self.label, counter=name, is_emptied=True)
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
        max_id, fetch_time = _sound(self.label, name, rows[0][0]), as_integer(rows[0][1])
        return Counter(namespaced_name=name, last_max_id=max_id, last_fetch_time=fetch_time)

    async def _row_beside_cosid(self, statement: str) -> Row | None:
        """Run a statement on aiocosid's cells; do nothing where CosId's table stands alone."""
        with suppress(SchemaMissingError):
            return await self._row(statement)
        return None

    async def counters(self, prefix: str) -> Sequence[Counter]:
        rows = await self._fetch_rows(self.dialect.counters, prefix=prefix)
        return [
            Counter(
                namespaced_name=name, last_max_id=max_id, last_fetch_time=as_integer(fetch_time)
            )
            for name, value, fetch_time in rows
            if (max_id := as_integer(value)) is not None
        ]

    async def peek(self, name: str) -> int | None:
        rows = await self._fetch_rows(self.dialect.counter, name=name)
        row = next(iter(rows), None)
        return None if row is None else _sound(self.label, name, row[0])

    async def _ensure_missing(self, name: str, by: int, *, create: bool = False) -> None:
        """Raise the reason why a counter could not be advanced, unless it is just missing."""
        row = await self._row(self.dialect.counter, name=name)
        if row is None and not create:
            return
        if row is not None and _sound(self.label, name, row[0]) > MAX_ID - by:
            raise IdOverflowError(name, limit=MAX_ID)
        raise StoreUnavailableError(
            self.label, f"{name!r} is being repaired by another client", remedy="try again"
        )

    # Cells.

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
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
            # The table was dropped after it was read.
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


def _sound(store: str, name: str, value: object) -> int:
    """Return a counter's value.

    Raises:
        CorruptCounterError: the value is not an integer.
    """
    if (found := as_integer(value)) is None:
        raise CorruptCounterError(store, counter=name, found=f"{value!r:.{SHOWN}}")
    return found


async def _findings(link: Executor, dialect: Dialect) -> Findings:
    asked = [await link.fetch_rows(statement) for statement in dialect.settings]
    return findings(dialect.rules, chain.from_iterable(asked))
