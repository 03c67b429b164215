"""Counters and machine ids on a SQLAlchemy engine.  Requires the ``sqlalchemy`` extra.

The tables and statements are the same as in `postgres`, `mysql` and `sqlite`, so processes that use
those stores and processes that use an engine can share a database.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Self

from ..errors import MissingExtraError
from ._dialect import (
    CELL_COLUMNS,
    CELL_TABLE,
    COLUMNS,
    MACHINE_INDEXES,
    MACHINE_TABLE,
    TABLE,
)
from ._durability import DurabilityCheck
from ._engine_url import text_of
from ._mysql import MYSQL
from ._postgres import POSTGRES, without_durability
from ._sql import SqlBackend
from ._sqlite import SQLITE, check_version
from .base import BackendStore
from .sql import executor_of, executor_on

try:
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
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.types import TypeEngine

    from ._durability import Durability
    from .sql import SqlExecutor

__all__ = ("SqlAlchemyStore", "schema_metadata")

_KEY: Final = re.compile(r"PRIMARY KEY \((.+)\)")
_COLUMNS: Final = {**COLUMNS, CELL_TABLE: CELL_COLUMNS.format("varchar")}
_COLUMN: Final = re.compile(
    r"^ +(\w+) (varchar|bigint|integer|text)(?:\((\d+)\))? NOT NULL(?: DEFAULT (\S+?))?,$",
    re.MULTILINE,
)
_INDEX: Final = re.compile(r"INDEX IF NOT EXISTS (\w+) ON (\w+) \((\w+)\)")

_COSIDS: Final = {TABLE, MACHINE_TABLE}  # their numbers are unsigned on MySQL
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

    Pass it to Alembic along with your own metadata: ``target_metadata=[Base.metadata,
    schema_metadata()]``.  Creating the tables does not initialise the store: run ``aiocosid init``
    once after the migration.

    Args:
        schema: the schema of the tables; the default schema if None.  The stores find it through
            the ``search_path`` of their connections.
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
    """Return the type of cell names, which are compared by their bytes."""
    exact = String(255, collation="C").with_variant(String(255), "sqlite")
    return exact.with_variant(mysql.VARBINARY(1020), *_MYSQL)


_DIALECTS: Final = {"mysql": MYSQL, "postgresql": POSTGRES, "sqlite": SQLITE}


class SqlAlchemyStore(BackendStore[SqlBackend]):
    """Counters and machine ids in an engine's database, in CosId's tables and one of aiocosid's.

    Runs on asyncio.  Each grant is a separate transaction on a separate connection, never part of
    one of yours: an id stays issued even if the transaction that uses it is rolled back.  On SQLite
    it waits at most 1.5 s for another connection's lock, so take ids before your own transaction
    writes.
    `create_schema` creates the tables; tables that CosId created work as well.
    """

    __slots__ = ()

    def __init__(self, engine: AsyncEngine, *, durability: Durability = "warn") -> None:
        """Use your own engine; nothing is sent yet.

        Args:
            engine: your own engine, which the store never disposes: PostgreSQL with asyncpg or
                psycopg, MySQL and MariaDB with asyncmy or aiomysql, or a SQLite file with
                aiosqlite.  Its pool needs a spare connection while your transactions hold theirs.
            durability: what to do about a database whose settings may lose grants: ``"warn"`` logs
                one warning, ``"refuse"`` issues no ids, and ``"ignore"`` does nothing.

        Raises:
            InvalidArgumentError: the engine is not supported, or ``durability`` is not one of the
                three words.  An engine whose transactions all share one connection, for example on
                ``:memory:``, is not supported.
        """
        self._backend = _backend_on(executor_on(engine), DurabilityCheck(durability, engine))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own engine with up to four connections, which opens again after `aclose`.

        Args:
            url: a SQLAlchemy URL: ``postgresql+asyncpg``, ``postgresql+psycopg``,
                ``mysql+asyncmy``, ``mysql+aiomysql`` or ``sqlite+aiosqlite``.
                ``durability=refuse`` after the ``?`` is as for the class itself.

        Raises:
            InvalidArgumentError: the URL is malformed, or names an unsupported database.
            MissingExtraError: the driver is not installed.
            UnsupportedRuntimeError: the driver is not installed, and no aiocosid extra installs it.
        """
        plain, durability = without_durability(text_of(url))
        return cls._on(_backend_on(executor_of(plain), DurabilityCheck(durability)), plain)


def _backend_on(sql: SqlExecutor, check: DurabilityCheck) -> SqlBackend:
    if sql.dialect_name == "sqlite":
        check_version()
    return SqlBackend(sql, _DIALECTS[sql.dialect_name], check)
