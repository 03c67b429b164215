"""The tables of the SQL stores as SQLAlchemy's, read from the columns of their statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import mysql

from ._dialect import (
    CELL_COLUMNS,
    COUNTER_COLUMNS,
    MACHINE_COLUMNS,
    MACHINE_INDEXES,
    SERIES_COLUMNS,
)
from ._schema import CELL_TABLE, MACHINE_TABLE, SERIES_TABLE, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.types import TypeEngine

__all__ = ("schema_metadata",)

_COLUMNS: Final = {
    TABLE: COUNTER_COLUMNS,
    MACHINE_TABLE: MACHINE_COLUMNS,
    CELL_TABLE: CELL_COLUMNS.format("varchar"),
    SERIES_TABLE: SERIES_COLUMNS,
}
_KEY: Final = re.compile(r"PRIMARY KEY \((.+)\)")
_COLUMN: Final = re.compile(
    r"^ +(\w+) (varchar|bigint|integer|text)(?:\((\d+)\))? NOT NULL(?: DEFAULT (\S+?))?,$",
    re.MULTILINE,
)
_INDEX: Final = re.compile(r"INDEX IF NOT EXISTS (\w+) ON (\w+) \((\w+)\)")

_COSIDS: Final = {TABLE, MACHINE_TABLE}  # whose numbers are unsigned on MySQL
_MYSQL: Final = ("mysql", "mariadb")
_OPTIONS: Final[dict[str, Any]] = {
    f"{dialect}_{option}": value
    for dialect in _MYSQL
    for option, value in {
        "engine": "InnoDB",
        "default charset": "utf8mb4",
        "collate": "utf8mb4_bin",
    }.items()
}


def schema_metadata(*, schema: str | None = None) -> MetaData:
    """Return the tables of the SQL stores, for an application that migrates them itself.

    Give it to Alembic beside your own: ``target_metadata=[Base.metadata, schema_metadata()]``. The
    tables alone are not marked as complete: run ``aiocosid init`` once after the migration.

    Args:
        schema: the schema that the tables are in; the default one if none is given.  The stores
            find it by the ``search_path`` of their connections.
    """
    metadata = MetaData(schema=schema)
    for name, columns in _COLUMNS.items():
        (key_columns,) = _KEY.findall(columns)
        key = PrimaryKeyConstraint(*key_columns.split(", "), name=f"{name}_pk")
        Table(name, metadata, *_columns(name, columns), key, **_OPTIONS)
    for name, table, column in _INDEX.findall(MACHINE_INDEXES):
        indexed: Any = metadata.tables[f"{schema}.{table}" if schema else table]
        Index(name, indexed.c[column])
    return metadata


def _columns(table: str, columns: str) -> Iterator[Column[Any]]:
    for name, kind, width, default in _COLUMN.findall(columns):
        yield Column(
            name,
            _type(table, kind, width),
            nullable=False,
            server_default=text(default) if default else None,
        )


def _type(table: str, kind: str, width: str) -> TypeEngine[Any]:
    if kind == "text":
        return Text()
    if kind == "varchar":
        return String(int(width)) if width else _cell_name()
    plain, unsigned = (
        (Integer(), mysql.INTEGER(unsigned=True))
        if kind == "integer"
        else (BigInteger(), mysql.BIGINT(unsigned=True))
    )
    return plain.with_variant(unsigned, *_MYSQL) if table in _COSIDS else plain


def _cell_name() -> TypeEngine[Any]:
    """Return the type of the names of cells, which are compared by their bytes."""
    exact = String(255, collation="C").with_variant(String(255), "sqlite")
    return exact.with_variant(mysql.VARBINARY(1020), *_MYSQL)
