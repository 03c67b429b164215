"""``init --sql``: print the statements that create a store's tables."""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import version
from typing import Final

from ..errors import InvalidArgumentError
from ..stores.schema import schema_statements
from ._exit import PROGRAM
from ._output import write

__all__ = ("SqlDialect", "dialect_of", "write_schema")


class SqlDialect(StrEnum):
    """The databases for which statements can be printed."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"


SCHEMES: Final = {each.value: each for each in SqlDialect} | {
    "postgres": SqlDialect.POSTGRESQL,
    "mariadb": SqlDialect.MYSQL,
}
HEADER: Final = """\
-- The tables of {} {} on {}.
-- Run all statements in this order and in one session, as a role that may create tables.
-- They do not change existing tables. Then run 'aiocosid init --store URL' once.
"""


def dialect_of(url: str) -> SqlDialect:
    """Return the dialect of a store's URL.

    Raises:
        InvalidArgumentError: the URL does not name a SQL database.
    """
    dialect = SCHEMES.get(url.partition(":")[0].partition("+")[0].lower())
    if dialect is None:
        rule = (
            f"is required, as the store is not an SQL database; give one of {', '.join(SqlDialect)}"
        )
        raise InvalidArgumentError("--dialect", None, rule)
    return dialect


def write_schema(dialect: SqlDialect) -> None:
    """Print the statements for a dialect."""
    write(HEADER.format(PROGRAM, version(PROGRAM), dialect))
    for each in schema_statements(dialect.value):
        write(f"\n{each};\n")
