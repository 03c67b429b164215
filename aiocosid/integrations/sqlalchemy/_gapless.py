"""Gapless numbers in the caller's own transaction."""

from __future__ import annotations

import sqlite3
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Unpack

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import PendingRollbackError, ResourceClosedError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from ...errors import (
    CosIdError,
    InvalidArgumentError,
    TransactionConflictError,
    UnsuitableTransactionError,
)
from ...stores.series import STATEMENTS, Taking, key_of, take, transaction_error

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

    from ...stores.series import GaplessNumber, GaplessOptions, Value

__all__ = ("begin_immediate", "gapless", "gapless_batch", "gapless_batch_sync", "gapless_sync")

_text = cache(text)  # one object for each of the few statements
_IMMEDIATE: Final = "aiocosid_immediate"


async def gapless(
    session: AsyncSession | AsyncConnection, name: str, **options: Unpack[GaplessOptions]
) -> GaplessNumber:
    """Take the next number of a gapless series in the session's own transaction.

    The series stays locked until the transaction ends.  Its commit makes the number final; its
    rollback, or a savepoint's, undoes the number.  Take the number as the last step before the
    commit.

    Args:
        session: a session or connection on PostgreSQL, MySQL, MariaDB or SQLite.  It needs READ
            COMMITTED, or on SQLite an engine that was passed to `begin_immediate`; autocommit is
            not possible.
        name: the series, which must have been opened in this database with ``aiocosid series
            open``.
        **options: ``tenant``; ``group_by``, ``zone`` and ``at`` for periods; ``prefix`` and
            ``digits`` of the text; see `aiocosid.stores.series.GaplessOptions`.

    Returns:
        The number, its period and its text.  A cancelled call may have taken the number; SQLAlchemy
        then invalidates the connection, which rolls the transaction back.

    Raises:
        InvalidArgumentError: an option is not valid, or the series has another grouping.
        SeriesNotOpenError: the series was never opened in this database, or it is closed.
        SeriesEndedError: its approved ranges are used up.
        UnsuitableTransactionError: a rollback of this transaction would not undo a number, or an
            earlier error has broken it.
        TransactionConflictError: another transaction conflicted; roll back and run the whole
            transaction again.
        StoreError: the database refuses or cannot be reached.
    """
    return (await gapless_batch(session, name, 1, **options))[0]


async def gapless_batch(
    session: AsyncSession | AsyncConnection,
    name: str,
    count: int,
    **options: Unpack[GaplessOptions],
) -> list[GaplessNumber]:
    """Take several consecutive numbers, 1 to 10,000; see `gapless`."""

    def taken(inner: Session | Connection) -> list[GaplessNumber]:
        return gapless_batch_sync(inner, name, count, **options)

    run_sync: Any = session.run_sync
    numbers: list[GaplessNumber] = await run_sync(taken)
    return numbers


def gapless_sync(
    session: Session | Connection, name: str, **options: Unpack[GaplessOptions]
) -> GaplessNumber:
    """Take the next number in a blocking session's transaction; see `gapless`."""
    return gapless_batch_sync(session, name, 1, **options)[0]


def gapless_batch_sync(
    session: Session | Connection, name: str, count: int, **options: Unpack[GaplessOptions]
) -> list[GaplessNumber]:
    """Take several consecutive numbers in a blocking session's transaction; see `gapless`."""
    key = key_of(name, options)
    bind = session if isinstance(session, Connection) else session.get_bind()
    database = {"mariadb": "mysql"}.get(bind.dialect.name, bind.dialect.name)
    statements = STATEMENTS.get(database)
    if statements is None:
        raise InvalidArgumentError("session", database, f"must be on {' or '.join(STATEMENTS)}")

    def run(statement: str, values: dict[str, Value]) -> Taking:
        result = connection.execute(_text(statement), values)
        rows = result.fetchall() if result.returns_rows else ()
        return Taking(len(rows) if result.returns_rows else result.rowcount, rows)

    def label() -> str:
        return bind.engine.url.render_as_string(hide_password=True)

    try:  # this may begin a transaction, or connect
        connection = session if isinstance(session, Connection) else session.connection()
    except (SQLAlchemyError, OSError) as error:
        raise _ours(label(), error) from error
    _check_transaction(connection)
    try:
        return key.numbers(take(run, statements, key, count, label), count)
    except (SQLAlchemyError, OSError) as error:  # drivers raise `TimeoutError` as it is
        found = _ours(label(), error)
        if database == "mysql" and isinstance(found, TransactionConflictError):
            # The server may have begun another transaction, in which an earlier number would be a
            # repeat.
            connection.invalidate(error)
        raise found from error


def _ours(label: str, error: Exception) -> CosIdError:
    if isinstance(error, PendingRollbackError | ResourceClosedError):
        return UnsuitableTransactionError(
            "an earlier error has broken the transaction, or it has ended",
            remedy="run the whole transaction again, after a rollback",
        )
    return transaction_error(label, error)


def _check_transaction(connection: Connection) -> None:
    """Raise unless the end of the transaction decides about the number."""
    if connection.dialect.name == "sqlite":
        if not connection.info.get(_IMMEDIATE):
            raise UnsuitableTransactionError(
                "SQLite's driver does not begin a transaction that holds the lock and whose "
                "rollback takes a number back",
                remedy="pass the engine to begin_immediate() of aiocosid.integrations.sqlalchemy",
            )
        return
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.detect_autocommit_setting(driver):
        raise UnsuitableTransactionError(
            "the connection is in autocommit: a rollback would not take the number back",
            remedy="leave out isolation_level='AUTOCOMMIT'",
        )


def begin_immediate(engine: Engine | AsyncEngine) -> None:
    """Make every transaction of a SQLite engine begin with ``BEGIN IMMEDIATE``.

    The transaction then holds the write lock from its first statement on, so it is never overtaken
    by another transaction, and a savepoint does not commit it.  Call this once, before the engine
    is used.

    Args:
        engine: the engine, on sqlite3 or aiosqlite.

    Raises:
        InvalidArgumentError: the engine uses another database.
    """
    target = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    if target.dialect.name != "sqlite":
        raise InvalidArgumentError("engine", target.dialect.name, "must be on SQLite")
    event.listen(target, "do_connect", _stop_the_driver)
    event.listen(target, "begin", _begin)


def _stop_the_driver(
    _dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]
) -> None:
    """Keep the driver from beginning and ending transactions itself."""
    parameters["isolation_level"] = None
    if sys.version_info >= (3, 12):
        parameters["autocommit"] = sqlite3.LEGACY_TRANSACTION_CONTROL


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    connection.info[_IMMEDIATE] = True
