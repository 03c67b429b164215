"""The tables of machine ids in a SQL database, and what its dialect has to say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..abc import Machine
from ..abc._ids import check_integer, check_text
from ..abc._machine import (
    MAX_MACHINE_BITS,
    NAME_WIDTH,
    WIDTH_EXPECTED,
    bits_in_use,
    check_machine_bits,
)
from ..errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    SchemaMissingError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._executor import Executor, Row, Value

__all__ = (
    "BITS_TABLE",
    "MACHINE_TABLE",
    "MARKER_TABLE",
    "MAX_MACHINE_ID",
    "NOTE_TABLE",
    "MachineDialect",
    "MachineTables",
)

MACHINE_TABLE: Final = "cosid_machine"
NOTE_TABLE: Final = "aiocosid_machine"
BITS_TABLE: Final = "aiocosid_machine_bits"
MARKER_TABLE: Final = "aiocosid_machine_marker"
MAX_MACHINE_ID: Final = 2**31 - 1
SHOWN: Final = 40  # characters of a damaged value that an error repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDialect:
    """The statements of one database on CosId's table ``cosid_machine``, and on our own beside it.

    Our own, ``aiocosid_machine``, holds a note on a machine id: the time mark, and of the instance
    that wrote it whether it is stable, and when the *store's* clock saw it last.  What it says of
    the instance counts only while that instance holds the id: CosId writes no notes.  Its token is
    of the call that handed the id out last: whoever has another one is late, whatever its name.
    ``aiocosid_machine_bits``, ours too, holds the width of a namespace's machine ids.
    ``aiocosid_machine_marker`` tells of which store the rows of a namespace are, since when it is
    under quarantine, by its own clock, or 0, and how long that, or else the next one, lasts: the
    longest safe guard that was ever named and the margin, or 0 if none was.

    Each is atomic by itself.  Parameters are by name, in the order given here.

    Attributes:
        create_tables: create tables and indexes, whoever else does so at the same time.
        is_created_on_use: whether a missing table is created by whoever finds it missing.
        look: (namespace, instance_id, stable, limit, latest, guard) answers what may be taken, the
            best first: ``name, machine_id, instance_id, last_timestamp, rank, own``.  A number that
            was never handed out has no name and no instance.  ``own`` counts the instance's ids.
        take: (name, holder, stamp, instance_id, now, stable, token, namespace, bits, lasts) moves a
            row from its holder to the instance if neither holder nor stamp has changed, if no other
            width than ``bits`` is noted, which it then is, and if the marker is of this store,
            without a quarantine, and lets the next one last for ``lasts`` at least; answers its
            ``name, machine_id`` and the ``mark``.
        insert: (namespace, instance_id, now, stable, token, limit, own, bits, lasts) creates the
            row of the lowest number that is missing, unless the instance holds more than ``own`` by
            now, another width is noted, or the marker is not so; answers the same.
        release: (namespace, instance_id, name, stable, limit, latest, guard) frees what else the
            instance holds and does not want, except that name; its stamp rises to a
            second above the mark, for it may be in use until then, and the next owner be CosId's.
            That one knows no mark, and issues ids of the very stamp, be they of seconds.
        guard: (namespace, instance_id, machine_id, now, mark, stable, token, lasts) raises stamp
            and mark of the instance's own row, unless it was handed out with another token since,
            or the marker is not of this store without a quarantine; and ``lasts`` of the marker.
            Answers a row.  An empty token is not compared.
        reassert: (namespace, instance_id, machine_id, now, mark, stable, token, bits, born) under a
            quarantine creates the instance's row, or takes it, and notes the width; unless somebody
            has done so under it who was given the id before ``born``, or it is a living CosId's.
            Answers the ``name``, and how many others the instance holds.
        revert: (namespace, instance_id, machine_id, last, stable, token) gives it back, unless it
            was handed out with another token since.
        holder: (namespace, machine_id) answers ``instance_id``.
        holders: (namespace, limit) answers up to five that are not empty.
        machines: (everything, namespace) answers ``name, namespace, machine_id, instance_id,
            last_timestamp, mark, stable`` of all rows, or of one namespace's.
        free: (namespace, machine_id) takes an id from whoever holds it; answers a row.
        bits: (namespace) answers the noted width, and a ``version`` that each `take`, `insert` and
            `set_bits` changes.
        set_bits: (namespace, bits, version) notes a width, if nobody has taken an id since the
            version was read, an empty one for no note; answers a row.
        markers: (everything, namespace) answers ``namespace, is_ours, since, lasts, now`` of all
            markers, or of one namespace's; ``is_ours`` says whether it is of this store.
        quarantine: (namespace, lasts) begins one if the marker is not of this store, unless it is a
            new namespace of a file that was marked as a whole; prolongs one that runs to ``lasts``,
            or ends it if that is over; while none runs, notes ``lasts`` for the next one, if it is
            longer.  Answers a row if it has changed anything.
        mark: (namespace, is_new, lasts) marks the namespace as this store's, and notes ``lasts``,
            if it is not marked at all or ``is_new``; answers a row then.
    """

    create_tables: tuple[str, ...]
    is_created_on_use: bool
    look: str
    take: str
    insert: str
    release: str
    guard: str
    reassert: str
    revert: str
    holder: str
    holders: str
    machines: str
    free: str
    bits: str
    set_bits: str
    markers: str
    quarantine: str
    mark: str


class MachineTables:
    """The four tables of one database."""

    __slots__ = ("dialect", "executor")

    def __init__(self, executor: Executor, dialect: MachineDialect) -> None:
        self.executor = executor
        self.dialect = dialect

    async def create(self) -> None:
        """Create what is missing; many processes may do so at once."""
        for statement in self.dialect.create_tables:
            await self.executor.fetch_rows(statement)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run one statement and return all its rows."""
        try:
            return await self.executor.fetch_rows(statement, **values)
        except SchemaMissingError:
            if not self.dialect.is_created_on_use:
                raise
        await self.create()
        return await self.executor.fetch_rows(statement, **values)

    async def fetch_row(self, statement: str, **values: Value) -> Row | None:
        """Run one statement and return its first row, or None."""
        rows = await self.fetch_rows(statement, **values)
        return rows[0] if rows else None

    async def machines(self, namespace: str | None) -> Sequence[Machine]:
        """Return all machine ids; see `aiocosid.abc.Store.machines`."""
        if namespace:  # nobody has the empty one
            check_text("namespace", namespace)
        rows = await self.fetch_rows(
            self.dialect.machines, everything=int(namespace is None), namespace=namespace or ""
        )
        machines = [self._machine(*row) for row in rows]
        # Here, because every database has an order of its own.
        return sorted(machines, key=lambda each: (each.namespace, each.machine_id))

    async def free(self, namespace: str, machine_id: int) -> None:
        """Take an id from its owner; see `aiocosid.abc.Store.revert_machine`."""
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        row = await self.fetch_row(self.dialect.free, namespace=namespace, machine_id=machine_id)
        if row is None:
            expected = f"one that is held in namespace {namespace!r}"
            raise InvalidArgumentError("machine_id", machine_id, expected=expected)

    async def bits(self, namespace: str) -> int | None:
        """Return the width of a namespace's machine ids, or None if none is noted."""
        return (await self._noted_bits(namespace))[0]

    async def set_bits(self, namespace: str, bits: int) -> None:
        """Change the width; see `aiocosid.abc.Store.set_machine_bits`."""
        check_machine_bits(bits)
        found, version = await self._noted_bits(namespace)
        if found == bits:
            return
        # After the version: whoever takes an id from now on changes it.
        rows = await self.fetch_rows(
            self.dialect.holders, namespace=namespace, limit=MAX_MACHINE_ID
        )
        if rows:
            raise bits_in_use(namespace, found, [str(row[0]) for row in rows])
        row = await self.fetch_row(
            self.dialect.set_bits, namespace=namespace, bits=bits, version=version
        )
        if row is None:
            reason = f"somebody took a machine id of {namespace!r} in the meantime; try again"
            raise StoreUnavailableError(self.executor.label, reason)

    async def _noted_bits(self, namespace: str) -> tuple[int | None, str]:
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        row = await self.fetch_row(self.dialect.bits, namespace=namespace)
        if row is None:
            return None, ""
        bits, version = row
        if type(bits) is not int or not 1 <= bits <= MAX_MACHINE_BITS:
            raise CorruptMachineStateError(
                self.executor.label,
                place=f"row {namespace!r} of table {BITS_TABLE!r}",
                found=f"{bits!r:.{SHOWN}}",
                expected=WIDTH_EXPECTED,
            )
        return bits, str(version)

    def _machine(self, name: str, *row: Any) -> Machine:  # noqa: ANN401 - a driver's
        namespace, machine_id, instance_id, stamp, mark, stable = row
        for value, kind in zip(row, (str, int, str, int, int, int), strict=True):
            if type(value) is not kind:
                raise self.damaged(name, value)
        return Machine(
            namespace=namespace,
            machine_id=machine_id,
            instance_id=instance_id,
            last_timestamp_ms=stamp,
            mark_ms=mark,
            stable=bool(stable),
        )

    def damaged(self, name: str, value: object) -> CorruptMachineStateError:
        """Return the error for a row that holds a value of another type."""
        return CorruptMachineStateError(
            self.executor.label,
            place=f"row {name!r} of table {MACHINE_TABLE!r}",
            found=f"{value!r:.{SHOWN}}",
        )
