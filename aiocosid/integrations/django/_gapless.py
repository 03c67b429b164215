"""Gapless numbers inside ``atomic``."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from django.db import DatabaseError, connections

from ...errors import (
    InvalidArgumentError,
    TransactionConflictError,
    UnsuitableTransactionError,
)
from ...stores.series import PARAMETER, STATEMENTS, Taking, key_of, take, transaction_error

if TYPE_CHECKING:
    from ...stores.series import GaplessNumber, GaplessOptions, Value

__all__ = ("gapless", "gapless_batch")


def gapless(
    name: str, *, using: str = "default", **options: Unpack[GaplessOptions]
) -> GaplessNumber:
    """Take the next number of a gapless series inside ``atomic``.

    The series stays locked until the outermost ``atomic`` ends.  Its commit makes the number final;
    a rollback, also of an inner ``atomic``, undoes the number.  Take the number as the last step in
    the block.

    Args:
        name: the series, which must have been opened in this database with ``aiocosid series
            open``.
        using: the alias of the database: PostgreSQL, MySQL, MariaDB, or SQLite with ``"OPTIONS":
            {"transaction_mode": "IMMEDIATE"}``.
        **options: ``tenant``; ``group_by``, ``zone`` and ``at`` for periods; ``prefix`` and
            ``digits`` of the text; see `aiocosid.stores.series.GaplessOptions`.

    Raises:
        InvalidArgumentError: an option is not valid, or the series has another grouping.
        SeriesNotOpenError: the series was never opened in this database, or it is closed.
        SeriesEndedError: its approved ranges are used up.
        UnsuitableTransactionError: the call is not inside ``atomic``, an earlier error has broken
            the block, or SQLite's transactions begin without the lock.
        TransactionConflictError: another transaction conflicted; run the whole block again.
        StoreError: the database refuses or cannot be reached.
    """
    return gapless_batch(name, 1, using=using, **options)[0]


def gapless_batch(
    name: str, count: int, *, using: str = "default", **options: Unpack[GaplessOptions]
) -> list[GaplessNumber]:
    """Take several consecutive numbers, 1 to 10,000, inside ``atomic``; see `gapless`."""
    key = key_of(name, options)
    connection: Any = connections[using]
    statements = STATEMENTS.get(connection.vendor)
    if statements is None:
        rule = f"must be a database on {' or '.join(STATEMENTS)}"
        raise InvalidArgumentError("using", connection.vendor, rule)
    _check_transaction(connection)

    def run(statement: str, values: dict[str, Value]) -> Taking:
        with connection.cursor() as cursor:
            cursor.execute(PARAMETER.sub(r"%(\1)s", statement), values)
            rows = cursor.fetchall() if cursor.description else ()
            return Taking(len(rows) if cursor.description else cursor.rowcount, rows)

    def label() -> str:
        return f"the database {using!r}"

    try:
        taken = take(run, statements, key, count, label)
    except DatabaseError as error:
        found = transaction_error(label(), error.__cause__ or error)
        # MySQL may have started another transaction.
        if isinstance(found, TransactionConflictError):
            connection.needs_rollback = True
        raise found from error
    return key.numbers(taken, count)


def _check_transaction(connection: Any) -> None:  # noqa: ANN401 - Django has no annotations
    """Raise unless the end of ``atomic`` decides about the number."""
    if not connection.in_atomic_block:
        raise UnsuitableTransactionError(
            "gapless() is called outside a transaction, so no rollback would take the number back",
            remedy="make the call inside 'with transaction.atomic():', as the last thing",
        )
    if connection.needs_rollback:
        raise UnsuitableTransactionError(
            "an earlier error has broken the transaction, so it can only be rolled back",
            remedy="let the error leave its 'with transaction.atomic():', and run the block again",
        )
    if connection.vendor == "sqlite" and connection.transaction_mode != "IMMEDIATE":
        raise UnsuitableTransactionError(
            "SQLite's transactions begin without the lock for writing",
            remedy='set DATABASES["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}',
        )
