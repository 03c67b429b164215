"""Flickr's ticket servers: tables of one row, on MySQL or MariaDB.  Needs the ``sqlalchemy`` extra.

A ticket is what ``REPLACE INTO Tickets64 (stub) VALUES ('a')`` makes by AUTO_INCREMENT: one id for
each call.  Two servers have an ``auto_increment_increment`` of 2, and offsets of 1 and 2; each is a
store of its own here, and its ids are unique beside the other's.
"""

# ruff: noqa: S608 - put together from names that were checked

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID, Counter
from ..abc._ids import check_text
from ..errors import (
    CounterMissingError,
    InvalidArgumentError,
    StoreUnavailableError,
)
from ..stores._arguments import check_above
from ..stores._executor import OutOfRangeError
from ._examine import Examined
from ._table import CounterTable, as_integer
from ._table_distributor import TableIdSegmentDistributor
from ._table_store import TableStore
from ._url import check_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..stores._engine import SqlExecutor

__all__ = ("FlickrIdSegmentDistributor", "FlickrStore")

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS Tickets64 (
  id bigint unsigned NOT NULL AUTO_INCREMENT,
  stub char(1) NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  UNIQUE KEY stub (stub)
) ENGINE=InnoDB"""

_TABLES: Final = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = DATABASE() AND column_name IN ('id', 'stub')
GROUP BY table_name HAVING COUNT(*) = 2"""

_NUMBERED: Final = "SELECT @@auto_increment_increment, @@auto_increment_offset"

_COLUMN: Final = """
SELECT data_type, column_type LIKE '%unsigned%', @@auto_increment_increment
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = :table AND column_name = 'id'"""

_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

_ATTEMPTS: Final = 3  # when a ticket is below a floor that was just set, by whoever set another


class FlickrIdSegmentDistributor(TableIdSegmentDistributor):
    """A table of tickets: its name is the counter's.  Each call gets one id.

    The last id of a column, such as 2147483647 of an ``int``, is not handed out: MySQL makes it
    again for each further ticket.
    """

    __slots__ = ("_most",)

    table = CounterTable(
        table="Tickets64", key="stub", value="id", ahead=0, width=64, create={"mysql": _CREATE}
    )
    scheme = "flickr"
    step_limit = 1

    def _describe(self, executor: SqlExecutor, **described: Any) -> None:  # noqa: ANN401 - the base's
        super()._describe(executor, **described)
        check_identifier("name", self.name)
        _check_dialect(executor)
        self.step = 1
        self._most = 0  # not known

    async def _advanced(self, step: int, above: int) -> int:  # noqa: ARG002 - 1, and 0
        statement = f"REPLACE INTO `{self.name}` (stub) VALUES ('a')"
        try:
            made = (await self._executor.run(statement)).inserted_id
        except OutOfRangeError as error:
            raise self._used_up() from error.__cause__
        if made is None:
            raise self._corrupt("an id that is no AUTO_INCREMENT")
        await self._check_fits(made)
        return made

    async def _raise_above(self, above: int) -> None:
        """Have the next ticket be above an id, by putting that into the table."""
        await self._check_fits(above + 1)  # a session that is not strict would cut it
        # One statement, which never lowers: ALTER TABLE may lower what somebody else has raised.
        await self._executor.run(
            f"INSERT INTO `{self.name}` (id, stub) VALUES (:id, 'a') "
            "ON DUPLICATE KEY UPDATE id = GREATEST(id, :least)",
            id=above,
            least=above,
        )

    async def _check_fits(self, ticket: int) -> None:
        """Raise unless the column holds it, and another one after it."""
        if ticket > self._most:
            self._most = await self._highest()  # it may have been widened
        if ticket > self._most:
            raise self._used_up()

    async def _highest(self) -> int:
        rows = (await self._executor.run(_COLUMN, table=self.name)).rows
        kind, is_unsigned, increment = rows[0] if rows else ("unknown", 0, 1)
        if kind not in _BITS:
            raise self._corrupt(f"an id of the type {kind}")
        end = (1 << _BITS[kind] - (not is_unsigned)) - 1
        return min(MAX_ID, end - (as_integer(increment) or 1))


class FlickrStore(TableStore):
    """The tables of tickets in one database: each that has the columns ``id`` and ``stub``."""

    __slots__ = ()

    distributor = FlickrIdSegmentDistributor

    async def create_schema(self) -> None:
        """Create ``Tickets64`` as Flickr has it, if it is missing.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        _check_dialect(self._executor)
        await super().create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the tables with their last tickets, ordered by name.

        Args:
            namespace: what to call their namespace, of which there is none.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        space = DEFAULT_NAMESPACE if namespace is None else namespace
        check_text("namespace", space)
        return [
            Counter(namespaced_name=f"{space}.{name}", last_max_id=last or 0)
            for name, last in await self._tickets()
            if last is None or last <= MAX_ID
        ]

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int
    ) -> Counter:
        """Have every further ticket be above ``above``; it never lowers.

        Each call draws a ticket, which is a gap: what lies in the table does not say what was
        handed out, and what was drawn proves that the floor is there.

        A cancelled call may have taken effect; it is safe to repeat.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            IdOverflowError: the column holds no id above it.
            CounterMissingError: there is no such table.
            StoreUnavailableError: tickets stay below it, whatever is done.
            StoreError: the store refuses or cannot be reached.
        """
        check_above(above)
        described = self.segment_distributor(namespace=namespace, name=name)
        if name not in dict(await self._tickets()):
            self._missing(name)
        if above == MAX_ID:
            raise described._used_up()
        for _ in range(_ATTEMPTS):
            last = await described.next_max_id(1)
            if last > above:
                return Counter(namespaced_name=described.namespaced_name, last_max_id=last)
            await described._raise_above(above)
        reason = f"the tickets of {name!r} stay below the floor {above}"
        raise StoreUnavailableError(self._executor.label, reason)

    def _missing(self, name: str) -> NoReturn:
        raise CounterMissingError(
            self._executor.label,
            table="information_schema.tables",
            key="table_name",
            counter=name,
            remedy="create it as Flickr's Tickets64 is, or correct the name",
        )

    async def examine(self) -> Sequence[Examined]:
        """Read the last ticket of each table, and what the next one is; nothing is written.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        tickets = await self._tickets()
        (row,) = (await self._executor.run(_NUMBERED)).rows
        increment, offset = as_integer(row[0]) or 1, as_integer(row[1]) or 1
        found: list[Examined] = []
        for name, last in tickets:
            if last is None:
                found.append(_without_row(name))
                continue
            next_id = last + 1 + (offset - last - 1) % increment
            is_used_up = next_id > MAX_ID
            found.append(
                Examined(
                    name=name,
                    stored=last,
                    meaning="the last id handed out",
                    next_id=None if is_used_up else next_id,
                    problems=("it is used up: the next id would pass 2^63-1",)
                    if is_used_up
                    else (),
                )
            )
        return found

    async def _tickets(self) -> list[tuple[str, int | None]]:
        _check_dialect(self._executor)
        names = sorted(row[0] for row in (await self._executor.run(_TABLES)).rows)
        found: list[tuple[str, int | None]] = []
        for name in names:
            try:
                check_identifier("name", name)
            except InvalidArgumentError:
                continue  # none that a distributor takes
            done = await self._executor.run(f"SELECT MAX(id) FROM `{name}`")
            found.append((name, as_integer(done.rows[0][0])))
        return found

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> FlickrIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Args:
            namespace: names the counter in messages and statistics, and nowhere else.
            name: the table's.
            offset: not used: the table is there, or it is an error.
            step: not used: each call gets one id.

        Raises:
            InvalidArgumentError: an argument is outside its range, or no table can be named so.
        """
        return FlickrIdSegmentDistributor._on(
            self._executor, namespace=namespace, name=name, offset=offset, step=step
        )


def _without_row(name: str) -> Examined:
    return Examined(
        name=name,
        stored=None,
        meaning="no ticket lies there",
        next_id=None,
        problems=("it has no row, so that nobody knows the next id; draw one",),
    )


def _check_dialect(executor: SqlExecutor) -> None:
    if executor.dialect_name != "mysql":
        expected = "MySQL or MariaDB, which know REPLACE and AUTO_INCREMENT"
        raise InvalidArgumentError("url", executor.dialect_name, expected=expected)
