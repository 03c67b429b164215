"""The schema of the SQL stores, for tools that migrate a database.  No driver is imported."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ..errors import InvalidArgumentError
from ._mysql import MYSQL
from ._postgres import POSTGRES
from ._sql_cells import NAMES as NAMES  # noqa: PLC0414 - re-exported
from ._sqlite import SQLITE

__all__ = ("NAMES", "SchemaDialect", "schema_statements")

SchemaDialect: TypeAlias = Literal["postgresql", "mysql", "sqlite"]
"""A database's dialect, by SQLAlchemy's name; MariaDB's is ``"mysql"``."""

_DIALECTS: Final = {"postgresql": POSTGRES, "mysql": MYSQL, "sqlite": SQLITE}


def schema_statements(dialect: SchemaDialect) -> tuple[str, ...]:
    """Return the statements that create what is missing of a store's schema.

    They are the statements of ``create_schema`` of the stores themselves, one by one and without a
    semicolon at the end.  Run all of them, in this order, in one session.  They may be repeated.
    On SQLite they write no marker, since that needs a function of the store's own connections.

    Args:
        dialect: the database's.

    Raises:
        InvalidArgumentError: the dialect is none of these three.
    """
    if dialect not in _DIALECTS:
        raise InvalidArgumentError("dialect", dialect, expected=f"one of {tuple(_DIALECTS)}")
    return tuple(each.strip() for each in _DIALECTS[dialect].script)
