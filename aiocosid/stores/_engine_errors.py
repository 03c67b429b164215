"""What the errors of SQLAlchemy mean, and of the drivers beneath it."""

from __future__ import annotations

import re
import sqlite3
import ssl
from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    MissingExtraError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from ._mysql import refusal as mysql_refusal
from ._postgres import STANDBY
from ._postgres import refusal as postgres_refusal
from ._sqlite import translated as sqlite_translated
from ._sqlite_identity import REPLACED

try:
    from sqlalchemy import exc as errors
except ModuleNotFoundError as _exc:
    raise MissingExtraError("sqlalchemy", extra="sqlalchemy") from _exc

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("errno", "is_stale", "translated")

# MySQL's, on a replica since the primary moved: of the server, of a transaction, of its mode.
_READ_ONLY: Final = (1290, 1792, 1836)

# The name of a table, in whatever language the sentence is: quoted, after a schema or not.
_TABLE: Final = re.compile(r"""["'`«»„](?:\w+\.)?(\w+)["'`«»“]|table: (?:\w+\.)?(\w+)""")

# libpq tells no SQLSTATE before there is a connection.
_NOT_LET_IN: Final = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r'|role ".*" does not exist|authentication failed for user|permission denied for database'
)
_NO_DATABASE: Final = re.compile(r'database ".*" does not exist')


def is_stale(exc: BaseException) -> bool:
    """Tell whether another connection may do what this one cannot any more.

    Its server has become read-only, since the primary moved, or its file was replaced.
    """
    found = getattr(exc, "orig", exc)
    return (
        getattr(found, "sqlstate", None) in STANDBY
        or errno(found) in _READ_ONLY
        or (isinstance(found, sqlite3.Error) and str(found) == REPLACED)
    )


def translated(label: str, exc: Exception) -> StoreError:
    """Turn what SQLAlchemy or a driver raises into our errors."""
    found: Any = getattr(exc, "orig", None) or exc
    reason = _reason(found)
    if isinstance(found, sqlite3.Error):
        return _named(label, sqlite_translated(label, found), reason)
    if (number := errno(found)) is not None:
        return _named(label, mysql_refusal(label, number, reason), reason)
    if state := getattr(found, "sqlstate", None):
        if state == "0A000" and "cached" in reason:  # a table was changed; it is prepared anew
            return StoreUnavailableError(label, reason)
        return _named(label, postgres_refusal(label, state, reason), reason)
    return _without_code(label, exc, found, reason)


def _without_code(label: str, exc: Exception, found: Exception, reason: str) -> StoreError:
    if isinstance(found, ssl.SSLCertVerificationError):
        return StoreError(label, f"the server's certificate is not trusted: {reason}")
    if _NOT_LET_IN.search(reason):
        return StoreAuthenticationError(label, reason)
    if _NO_DATABASE.search(reason):
        return StoreError(label, reason)
    outages = (
        *(OSError, EOFError),
        *(errors.TimeoutError, errors.DisconnectionError, errors.OperationalError),
        *(errors.InterfaceError, errors.InternalError),
    )
    is_outage = isinstance(exc, outages) or getattr(exc, "connection_invalidated", False)
    return (StoreUnavailableError if is_outage else StoreError)(label, reason)


def _named(label: str, error: StoreError, reason: str) -> StoreError:
    """Name the table that is missing; there are others than CosId's."""
    if isinstance(error, SchemaMissingError) or reason.startswith("no such table"):
        names = _TABLE.search(reason)
        found = next((name for name in names.groups() if name), None) if names else None
        return SchemaMissingError(label, table=found) if found else error
    return error


def errno(found: object) -> int | None:
    """Return the number of an error of MySQL's drivers, each of which is like PyMySQL."""
    arguments = getattr(found, "args", ())
    is_theirs = type(found).__module__.split(".")[0] in {"aiomysql", "asyncmy", "pymysql"}
    if is_theirs and arguments and type(arguments[0]) is int:
        number: int = arguments[0]
        return number
    return None


def _reason(found: Exception) -> str:
    """Return its own sentence, without the statement and its values."""
    told: Iterable[object] = found.args
    text = next((each for each in told if isinstance(each, str) and each), "")
    fallback = "no answer" if isinstance(found, TimeoutError) else type(found).__name__
    return text.strip().partition("\n")[0] or fallback
