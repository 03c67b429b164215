"""Flickr's ticket servers: tables of one row, on MySQL or MariaDB.  Needs the ``sqlalchemy`` extra.

A ticket is the AUTO_INCREMENT id of ``REPLACE INTO Tickets64 (stub) VALUES ('a')``: one id for each
call.  Two servers have an ``auto_increment_increment`` of 2, and offsets of 1 and 2; each is a
store of its own here, and its ids are unique beside the other's.
"""

# ruff: noqa: S608 - put together from names that were checked

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

from ..abc import MAX_ID, Counter
from ..errors import StoreError, StoreUnavailableError
from ..stores.sql import OutOfRangeError, driver_code
from ._table import CounterTable, TableRow, as_integer
from ._table_distributor import TableDistributor
from ._table_store import TableStore
from ._url import check_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("FlickrStore",)

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS Tickets64 (
  id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  stub char(1) NOT NULL DEFAULT '',
  UNIQUE KEY stub (stub)
) ENGINE=InnoDB"""

_TABLES: Final = """
SELECT table_name, @@auto_increment_increment, @@auto_increment_offset
FROM information_schema.columns
WHERE table_schema = DATABASE() AND column_name IN ('id', 'stub')
AND table_name REGEXP '^[A-Za-z_][A-Za-z0-9_$]*$'
GROUP BY table_name HAVING COUNT(*) = 2"""

_COLUMN: Final = """
SELECT data_type, column_type LIKE '%unsigned%', @@auto_increment_increment
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = :table AND column_name = 'id'"""

_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

_NEVER_LOWER: Final = "ON DUPLICATE KEY UPDATE id = GREATEST(id, :least)"

_REPEATED: Final = 1062  # MySQL's number: REPLACE replaces no row for its AUTO_INCREMENT's last id

_ATTEMPTS: Final = 3  # when a ticket is below a floor that was just set, by whoever set another


class _TicketTable(CounterTable):
    """A table of tickets, whose highest id is the last one."""

    def _check(self, name: str) -> None:
        check_identifier("name", name)

    def last_id(self, row: TableRow) -> int | None:
        return 0 if row.stored is None else CounterTable.last_id(self, row)

    def meaning(self, row: TableRow) -> str:
        return "no ticket lies there" if row.stored is None else "the last id handed out"

    def problems(self, row: TableRow) -> tuple[str, ...]:
        if row.stored is None:
            return ("it has no row, so the next id is unknown; take one",)
        next_id = self.next_id(row)
        if next_id is None or next_id > MAX_ID:
            return ("it is used up: the next id would pass 2^63-1",)
        return ()


class _Tickets(TableDistributor):
    """A table of tickets: its name is the counter's.  Each call gets one id.

    The last id of a column, such as 2147483647 of an ``int``, is not handed out: MySQL repeats it
    for each further ticket.
    """

    _most = 0  # not known

    async def _advanced(self, step: int, above: int) -> int:  # noqa: ARG002 - 1, and 0
        statement = f"REPLACE INTO `{self.name}` (stub) VALUES ('a')"
        try:
            inserted_id = (await self._executor.run(statement)).inserted_id
        except StoreError as error:
            if isinstance(error, OutOfRangeError) or driver_code(error) == _REPEATED:
                raise self._used_up() from error.__cause__
            raise
        if inserted_id is None:
            raise self._corrupt("an id that is no AUTO_INCREMENT")
        await self._check_fits(inserted_id)
        return inserted_id

    async def _raise_above(self, above: int) -> None:
        """Raise the next ticket above an id, by inserting that into the table."""
        await self._check_fits(above + 1)  # a session that is not strict would cut it
        # One statement, which never lowers: ALTER TABLE may lower another client's higher value.
        statement = f"INSERT INTO `{self.name}` (id, stub) VALUES (:id, 'a') {_NEVER_LOWER}"
        await self._executor.run(statement, id=above, least=above)

    async def _check_fits(self, ticket: int) -> None:
        """Raise unless the column holds it, and another one after it."""
        if ticket <= self._most:
            return
        rows = (await self._executor.run(_COLUMN, table=self.name)).rows  # it may have been widened
        kind, is_unsigned, increment = rows[0] if rows else ("unknown", 0, 1)
        if kind not in _BITS:
            raise self._corrupt(f"an id of the type {kind}")
        end = (1 << _BITS[kind] - (not is_unsigned)) - 1
        self._most = min(MAX_ID, end - (as_integer(increment) or 1))
        if ticket > self._most:
            raise self._used_up()


class FlickrStore(TableStore):
    """The tables of tickets in one database: each that has the columns ``id`` and ``stub``.

    A table's name is the counter's; each call gets one id.
    """

    scheme = "flickr"
    kind: type[TableDistributor] = _Tickets
    table: ClassVar[CounterTable] = _TicketTable(
        table="information_schema.tables",
        key="table_name",
        value="id",
        width=64,
        step_limit=1,
        create={"mysql": _CREATE},
        databases="MySQL or MariaDB, which have REPLACE and AUTO_INCREMENT",
        remedy="create it like Flickr's Tickets64, or correct the name",
    )

    async def _raise(self, described: TableDistributor, above: int) -> Counter:
        """Raise all further tickets above ``above``; it never lowers.

        Each call takes a ticket, which is a gap: the table does not show what was handed out, and
        the ticket proves that the floor is effective.

        Raises:
            IdOverflowError: the column holds no id above it.
            CounterMissingError: there is no such table.
            StoreUnavailableError: tickets stay below it after several attempts.
        """
        if described.name not in {row.name for row in await self._rows()}:
            raise described._missing()
        if above == MAX_ID:
            raise described._used_up()
        for _ in range(_ATTEMPTS):
            last = await described.next_max_id(1)
            if last > above:
                return Counter(namespaced_name=described.namespaced_name, last_max_id=last)
            await cast("_Tickets", described)._raise_above(above)
        reason = f"the tickets of {described.name!r} stay below the floor {above}"
        remedy = "try again, and check the step of the tables if it lasts"
        raise StoreUnavailableError(self._executor.label, reason, remedy=remedy)

    async def _rows(self) -> Sequence[TableRow]:
        """Read the last ticket of each table, and how the database counts."""
        found: list[TableRow] = []
        for name, increment, offset in sorted((await self._executor.run(_TABLES)).rows):
            (last,) = (await self._executor.run(f"SELECT MAX(id) FROM `{name}`")).rows
            delta = as_integer(increment) or 1
            remainder = (as_integer(offset) or 1) % delta
            found.append(TableRow(name, as_integer(last[0]), delta=delta, remainder=remainder))
        return found
