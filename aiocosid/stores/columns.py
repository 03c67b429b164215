"""What ids a user's own tables hold: for floors of counters that were restored from a backup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from ..errors import (
    InvalidArgumentError,
    SchemaMissingError,
    StoreError,
    UnsupportedByStoreError,
)
from ._mysql import MYSQL
from ._sql import SqlBackend
from .backend import as_integer
from .base import BackendStore, backend_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Store
    from ._executor import Row
    from .backend import Backend

__all__ = ("highest_in_column",)

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
_COLUMN: Final = re.compile(rf"(?:({_NAME})\.)?({_NAME})\.({_NAME})")


async def highest_in_column(source: Store | str, column: str) -> int | None:
    """Return the highest number in a column of a SQL database; None if the table is empty.

    It reads only, in one statement.  A transaction that is not committed yet does not count.

    Args:
        source: a store on SQLite, PostgreSQL or MySQL, whose database has the table; or the URL of
            such a database, with or without a driver of SQLAlchemy's.
        column: ``table.column`` or ``schema.table.column``, as the database spells them, of
            letters, digits, ``_`` and ``$``.

    Raises:
        InvalidArgumentError: the column is none, the URL names no such database, or the column
            holds something else than integers.
        MissingExtraError: the URL's driver, or SQLAlchemy, is not installed.
        UnsupportedByStoreError: the store has no tables.
        StoreError: there is no such table or column, or the database refuses or cannot be reached.
    """
    found = _COLUMN.fullmatch(column)
    if found is None:
        expected = "table.column or schema.table.column, names of letters, digits, _ and $"
        raise InvalidArgumentError("column", column, expected=expected)
    try:
        rows = await (_from_url(source, found) if isinstance(source, str) else _own(source, found))
    except SchemaMissingError as error:
        reason = f"table {error.table!r} does not exist"
        remedy = "correct the name of the table"
        raise StoreError(error.store, reason, remedy=remedy) from error.__cause__
    value: object = rows[0][0]
    found_id = as_integer(value)
    if found_id is None and value is not None:
        given = f"{column}, which holds {value!r}"
        raise InvalidArgumentError("column", given, expected="a column of integers")
    return found_id


async def _own(store: Store, column: re.Match[str]) -> Sequence[Row]:
    backend = _backend_of(store)
    if not isinstance(backend, SqlBackend):
        what, remedy = "it has no tables of yours", "name the database that has them"
        raise UnsupportedByStoreError(type(store).__name__, what, remedy=remedy)
    is_mysql = backend.dialect is MYSQL
    return await backend.link.fetch_rows(_statement(column, is_mysql=is_mysql))


def _backend_of(store: Store) -> Backend | None:
    return (
        backend_of(cast("BackendStore[Backend]", store))
        if isinstance(store, BackendStore)
        else None
    )


async def _from_url(url: str, column: re.Match[str]) -> Sequence[Row]:
    from .sql import executor_of  # noqa: PLC0415 - it needs SQLAlchemy

    executor = executor_of(url)
    try:
        statement = _statement(column, is_mysql=executor.dialect_name == "mysql")
        return (await executor.run(statement)).rows
    finally:
        await executor.aclose()


def _statement(column: re.Match[str], *, is_mysql: bool) -> str:
    """Return the query; each name is quoted, and the column by its table.

    Otherwise SQLite would take the name of a missing column for a text.
    """
    quote = "`" if is_mysql else '"'
    schema, table, name = (each and f"{quote}{each}{quote}" for each in column.groups())
    place = f"{schema}.{table}" if schema else table
    return f"SELECT max({table}.{name}) FROM {place}"  # noqa: S608 - checked and quoted
