"""Reads the ids in a user's own tables, to set the floors of counters restored from a backup."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

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
    from collections.abc import AsyncIterator, Generator, Mapping, Sequence

    from ..abc import Store
    from ._dialect import Value
    from ._executor import Row
    from .backend import Backend

__all__ = ("highest_in_column", "sql_backend_of", "values_of_column")

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
_COLUMN: Final = re.compile(rf"(?:({_NAME})\.)?({_NAME})\.({_NAME})")

_PAGE: Final = 10_000  # values per read


async def highest_in_column(source: Store | str, column: str) -> int | None:
    """Return the highest number in a column of a SQL database; None if the table is empty.

    It only reads, with one statement, and does not see transactions that are not yet committed.

    Args:
        source: a store on SQLite, PostgreSQL or MySQL, whose database has the table; or the URL of
            such a database, with or without a SQLAlchemy driver.
        column: ``table.column`` or ``schema.table.column``, as the database spells them, consisting
            of letters, digits, ``_`` and ``$``.

    Raises:
        InvalidArgumentError: ``column`` is not the name of a column, the URL names no such
            database, or the column holds something other than integers.
        MissingExtraError: the URL's driver, or SQLAlchemy, is not installed.
        UnsupportedByStoreError: the store has no tables.
        StoreError: the table or column does not exist, or the database refuses or cannot be
            reached.
    """
    found = _parsed(column)
    with _naming_the_table():
        rows = await (_from_url(source, found) if isinstance(source, str) else _own(source, found))
    value: object = rows[0][0]
    found_id = as_integer(value)
    if found_id is None and value is not None:
        given = f"{column}, which holds {value!r}"
        raise InvalidArgumentError("column", given, "must be a column of integers")
    return found_id


async def values_of_column(
    store: Store, column: str, where: Mapping[str, str]
) -> AsyncIterator[list[object]]:
    """Yield the values of a column in rising order, without NULL, in pages; it only reads.

    A value that occurs several times is yielded as often, up to 10,000 times.

    Args:
        store: a store on SQLite, PostgreSQL or MySQL, whose database has the table.
        column: ``table.column`` or ``schema.table.column``; see `highest_in_column`.
        where: the texts that other columns must have, in the same case whatever their collation.

    Raises:
        InvalidArgumentError: ``column``, or a name in ``where``, is not the name of a column.
        UnsupportedByStoreError: the store has no tables.
        StoreError: the table or column does not exist, or the database refuses or cannot be
            reached.
    """
    found = _parsed(column)
    backend = sql_backend_of(store)
    quote = "`" if backend.dialect is MYSQL else '"'
    place, name = _quoted(found, quote)
    given: dict[str, Value] = {f"w{number}": value for number, value in enumerate(where.values())}
    for each in where:
        _parsed(f"t.{each}")
    columns = ", ".join([name, *(f"{quote}{each}{quote}" for each in where)])
    parts = [f"{name} IS NOT NULL"]
    parts += [
        f"{quote}{each}{quote} = {backend.dialect.parameter(key, given[key])}"
        for each, key in zip(where, given, strict=True)
    ]
    after: dict[str, Value] = {}
    how = ">="
    while True:
        beyond = [
            f"{name} {how} {backend.dialect.parameter('after', value)}" for value in after.values()
        ]
        statement = (
            f"SELECT {columns} FROM {place} WHERE {' AND '.join(parts + beyond)} "  # noqa: S608
            f"ORDER BY {name} LIMIT {_PAGE}"
        )
        with _naming_the_table():
            rows = await backend.link.fetch_rows(statement, **given, **after)
        if len(rows) < _PAGE:
            yield _exactly(where, rows)
            return
        last: Any = rows[-1][0]
        # The next page begins with all rows that have the last value, unless that value fills this
        # page.
        whole = [each for each in rows if each[0] != last]
        how = ">=" if whole else ">"
        yield _exactly(where, whole or rows)
        after = {"after": last if isinstance(last, str) else int(last)}


def _exactly(where: Mapping[str, str], rows: Sequence[Row]) -> list[object]:
    """Return the values of the rows that a collation has not taken for others."""
    texts = [each.rstrip(" ") for each in where.values()]  # a CHAR column adds some
    return [row[0] for row in rows if [str(each).rstrip(" ") for each in row[1:]] == texts]


def _parsed(column: str) -> re.Match[str]:
    found = _COLUMN.fullmatch(column)
    if found is None:
        rule = "must be table.column or schema.table.column, in letters, digits, _ and $"
        raise InvalidArgumentError("column", column, rule)
    return found


@contextmanager
def _naming_the_table() -> Generator[None]:
    try:
        yield
    except SchemaMissingError as error:
        reason = f"table {error.table!r} does not exist"
        remedy = "correct the name of the table"
        raise StoreError(error.store, reason, remedy=remedy) from error.__cause__


async def _own(store: Store, column: re.Match[str]) -> Sequence[Row]:
    backend = sql_backend_of(store)
    is_mysql = backend.dialect is MYSQL
    return await backend.link.fetch_rows(_statement(column, is_mysql=is_mysql))


def sql_backend_of(store: Store) -> SqlBackend:
    """Return the backend of a store that can hold an application's tables.

    Raises:
        UnsupportedByStoreError: the store has no tables.
    """
    is_ours = isinstance(store, BackendStore)
    backend = backend_of(cast("BackendStore[Backend]", store)) if is_ours else None
    if not isinstance(backend, SqlBackend):
        what, remedy = "it has no tables of yours", "name the database that has them"
        raise UnsupportedByStoreError(type(store).__name__, what, remedy=remedy)
    return backend


async def _from_url(url: str, column: re.Match[str]) -> Sequence[Row]:
    from .sql import executor_of  # noqa: PLC0415 - needs SQLAlchemy

    executor = executor_of(url)
    try:
        statement = _statement(column, is_mysql=executor.dialect_name == "mysql")
        return (await executor.run(statement)).rows
    finally:
        await executor.aclose()


def _statement(column: re.Match[str], *, is_mysql: bool) -> str:
    """Return the query; each name is quoted, and the column is qualified by its table.

    Otherwise SQLite would treat the name of a missing column as a text.
    """
    place, name = _quoted(column, "`" if is_mysql else '"')
    return f"SELECT max({name}) FROM {place}"  # noqa: S608 - checked and quoted


def _quoted(column: re.Match[str], quote: str) -> tuple[str, str]:
    """Return the quoted table and its column."""
    schema, table, name = (each and f"{quote}{each}{quote}" for each in column.groups())
    return f"{schema}.{table}" if schema else str(table), f"{table}.{name}"
