"""Rows of ``hibernate_sequences`` and sequences of a database, as distributors."""

# ruff: noqa: S608 - put together from names that were checked

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Self

from ...abc import MAX_ID
from ...errors import CounterMissingError, IdOverflowError, InvalidArgumentError, StoreError
from ...stores._engine_errors import errno
from .._table import as_integer
from .._table_distributor import TableIdSegmentDistributor
from ._convention import Convention, check_dialect, read_url

if TYPE_CHECKING:
    from ...stores._engine import SqlExecutor
    from .._table import CounterTable

__all__ = ("NAME", "HibernateIdSegmentDistributor", "HibernateSequenceIdSegmentDistributor")

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")

_USED_UP: Final = ("2200H", 4084)  # PostgreSQL's SQLSTATE, MariaDB's number
_MISSING: Final = ("42P01", 4091, 1146)


class HibernateIdSegmentDistributor(TableIdSegmentDistributor):
    """A row of ``hibernate_sequences``; get it from a `HibernateStore`.

    With ``store_last_used`` the row holds the last number that a node has used: with pooled-lo a
    grant owns ``(old, new]``, whatever the step.  With pooled it owns as many ids, which are
    ``increment - 1`` lower.
    """

    __slots__ = ("table",)

    table: CounterTable
    scheme = "hibernate"

    def _describe(
        self,
        executor: SqlExecutor,
        *,
        convention: Convention | None = None,
        **described: Any,  # noqa: ANN401 - the base's
    ) -> None:
        told = convention or Convention()
        told.ensure_told()
        self.table = told.table
        super()._describe(executor, **described)

    @classmethod
    def from_url(cls, url: str, **described: Any) -> Self:  # noqa: ANN401 - the base's
        """Describe one on connections of its own; see `TableIdSegmentDistributor.from_url`.

        Args:
            url: as for `HibernateStore.from_url`.
            **described: ``namespace``, ``name`` and ``step``.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        executor, convention = read_url(url)
        return cls._on(executor, owns_executor=True, convention=convention, **described)


class HibernateSequenceIdSegmentDistributor(HibernateIdSegmentDistributor):
    """A database sequence that Hibernate draws from, on PostgreSQL or MariaDB.

    A grant is one number, and the ``increment`` ids that belong to it; a call for fewer gets the
    upper ones.  The sequence's own increment is read by the same statement: it has to be the same,
    or nothing is granted.  On PostgreSQL it must have a ``CACHE`` of 1, as Hibernate makes them: a
    larger one hands numbers to each connection out of order.
    """

    __slots__ = ("_convention", "step_limit")

    def _describe(
        self,
        executor: SqlExecutor,
        *,
        convention: Convention | None = None,
        **described: Any,  # noqa: ANN401 - the base's
    ) -> None:
        self._convention = convention or Convention()
        super()._describe(executor, convention=self._convention, **described)
        check_dialect(executor)
        if not NAME.fullmatch(self.name):
            expected = "the name of a sequence, or schema.name"
            raise InvalidArgumentError("name", self.name, expected=expected)
        self.step_limit = self._convention.increment
        self.step = min(self.step, self.step_limit)

    async def _advanced(self, step: int, above: int) -> int:  # noqa: ARG002 - of groups
        size = self._convention.increment
        number = await self._drawn()
        if self._convention.optimizer == "pooled":
            # The first number is no end of a range: Hibernate draws once more, too.
            return number if number >= size else await self._drawn()
        if number + size - 1 > MAX_ID:
            raise self._used_up()
        return number + size - 1

    async def _drawn(self) -> int:
        dialect = self._executor.dialect_name
        try:
            if dialect == "postgresql":
                statement = (
                    "SELECT nextval(CAST(seqrelid AS regclass)), seqincrement FROM pg_sequence "
                    "WHERE seqrelid = CAST(CAST(:name AS text) AS regclass)"
                )
                done = await self._executor.run(statement, name=self.name)
            else:
                name = "`.`".join(self.name.split("."))
                done = await self._executor.run(
                    f"SELECT NEXTVAL(`{name}`), (SELECT increment FROM `{name}`)"
                )
        except StoreError as error:
            if _code(error) in _USED_UP:
                raise self._used_up() from error.__cause__
            if _code(error) in _MISSING:
                raise self._missing() from error.__cause__
            raise
        number, increment = (as_integer(each) for each in done.rows[0])
        if number is None or number < 1 or increment != self._convention.increment:
            expected = self._convention.increment
            raise self._corrupt(f"{number} with an increment of {increment}, not {expected}")
        return number

    def _used_up(self) -> IdOverflowError:
        return IdOverflowError(self.namespaced_name, limit=MAX_ID)

    def _missing(self) -> CounterMissingError:
        table = "pg_sequence" if self._executor.dialect_name == "postgresql" else "tables"
        remedy = "let Hibernate create the sequence, or correct the name"
        return CounterMissingError(
            self.store, table=table, key="name", counter=self.name, remedy=remedy
        )


def _code(error: StoreError) -> object:
    """Return the driver's own code of an error."""
    found: Any = getattr(error.__cause__, "orig", None) or error.__cause__
    return errno(found) or getattr(found, "sqlstate", None)
