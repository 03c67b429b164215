"""The schema of the SQL stores, for tools that migrate a database.  No driver is imported."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ..abc.stores import is_disposable
from ..errors import InvalidArgumentError
from ..errors.base import one_of
from ._dialect import OBJECTS, WITNESS, Creation, note_of
from ._mysql import MYSQL
from ._postgres import POSTGRES
from ._sqlite import SQLITE

__all__ = ("NAMES", "SchemaDialect", "schema_statements")

SchemaDialect: TypeAlias = Literal["postgresql", "mysql", "sqlite"]
"""A database's dialect under SQLAlchemy's name; MariaDB's is ``"mysql"``."""

NAMES: Final = frozenset(OBJECTS)
"""The tables and views of a store, which no migration of the application may change."""

_DIALECTS: Final = {"postgresql": POSTGRES, "mysql": MYSQL, "sqlite": SQLITE}


def schema_statements(dialect: SchemaDialect) -> tuple[str, ...]:
    """Return the statements that create a store's schema in a database that has no part of it.

    These are the statements that the stores' own ``create_schema`` runs, one by one and without a
    final semicolon.  Run all of them, in this order, in one session.  If a part of the schema
    exists, they change nothing, or fail.  On SQLite they write no marker, since that needs a
    function that only the store's own connections have.

    Args:
        dialect: the database's dialect.

    Raises:
        InvalidArgumentError: the dialect is not one of these three.
    """
    if dialect not in _DIALECTS:
        raise InvalidArgumentError("dialect", dialect, one_of(_DIALECTS, dialect))
    is_sqlite = dialect == "sqlite"
    tables = tuple(each for each in OBJECTS if each != WITNESS)
    creation = Creation(0, tables, note_of(disposable=is_disposable()), vouches=not is_sqlite)
    text = _DIALECTS[dialect].create(creation)
    if dialect == "postgresql":
        return (text.strip(),)  # one block
    first = 1 if is_sqlite else 0  # skips the condition, which a plain client cannot evaluate
    return tuple(each.strip() for each in text.split(";")[first:])
