"""Runs the statements of the SQL stores on a driver's connection or pool; translates its errors.

Tables of codes translate the errors; SQLAlchemy's errors wrap those of the drivers.  This module
imports no driver: it recognises errors by attributes or class names.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import ssl
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from .._life import fork
from ..errors import (
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    WrongLoopError,
)
from ._connection import CALL_TIMEOUT, BorrowedConnection, Link, OwnedConnection, translate_errors
from ._dialect import TABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from ._connection import Connection
    from ._dialect import Value

__all__ = (
    "CONNECT_TIMEOUT",
    "MAX_CONNECTIONS",
    "PARAMETER",
    "TEAR_TIMEOUT",
    "Executor",
    "OutOfRangeError",
    "PoolDriver",
    "PoolExecutor",
    "Row",
    "as_store_error",
    "code_of",
    "confirmed",
    "is_stale",
)

_NO_TLS: Final = (
    "switch TLS on in the server, or off in the URL (sslmode=disable, ssl=disable or "
    "ssl-mode=DISABLED)"
)
_NO_OPTION: Final = (
    "remove this option from the URL, or correct it: asyncpg leaves what it does not know to the "
    "server; TLS is sslmode=require, or ssl=require with postgresql+asyncpg"
)
# Mistakes that drivers and servers tell as one error among many, and that no retry mends.
_MISTAKES: Final = (
    (r'database ".*" does not exist|Unknown database', "create it, or correct the URL's database"),
    (r"rejected SSL upgrade|does not support SSL|WRONG_VERSION_NUMBER", _NO_TLS),
    ("unrecognized configuration parameter|cannot be changed now|unexpected keyword", _NO_OPTION),
    ("^ClientConfigurationError", "correct the URL's options"),
    # From libpq, which psycopg uses: asyncpg's have classes of their own.
    (
        r"certificate verify failed|certificate for .* does not match|certificate file|private key",
        "correct the URL's TLS options, or the certificates and keys that they name",
    ),
)

_LOCKED: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_TAKE_FIRST: Final = (
    "try again when the other connection's transaction has ended; if it is your own, take the ids "
    "before it begins"
)

REPLACED: Final = "user-defined function raised exception"
"""SQLite's message if the file's identity can no longer be determined; see `_sqlite`."""


class OutOfRangeError(StoreError):
    """A number does not fit its column; nothing was written.  It never leaves the stores."""


# The server is read-only because the primary moved.
_READ_ONLY: Final[frozenset[str | int]] = frozenset({"25006", "55000", 1290, 1792, 1836})

# MySQL's drivers cannot log in in the way that the server demands, for example only with TLS.
_LOGINS: Final = frozenset({2054, 2058, 2059, 2061})

_NO_TABLE: Final = frozenset({"42P01", 1146})

# Errors by their codes: texts are SQLSTATEs, of which the longest matching prefix counts; numbers
# from 100 are MySQL's, and numbers below 100 are SQLite's.
_MEANINGS: Final[dict[type[StoreError], frozenset[str | int]]] = {
    StoreAuthenticationError: frozenset(
        {
            *("0P", "28", "42501"),  # no such role, or no privilege
            # No such privilege, user or host.
            *(1044, 1045, 1130, 1142, 1143, 1227, 1370, 1524, 1698),
            *(1820, 1862, 3118),  # the password has expired, or the account is locked
            *_LOGINS,
            *(sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY),
        }
    ),
    OutOfRangeError: frozenset({"22003", 167, 1264, 1690}),  # 167 is from AUTO_INCREMENT
    StoreUnavailableError: frozenset(
        {
            *_READ_ONLY,
            "08",  # the connection was lost or refused; also all PgBouncer errors
            "40",  # a conflict or deadlock was rolled back; nothing was written
            "53",  # out of connections, memory or disk
            "55P03",  # lock_timeout
            "57",  # starting, shutting down, or cancelled by the administrator
            "58",  # an I/O error of the server
            *(1020, 1205, 1213),  # a deadlock or a busy lock; nothing was written
            *(1021, 1037, 1038, 1041, 1114),  # out of disk or memory
            *(1040, 1129, 1203, 1226),  # too many connections or errors
            *(1053, 1077, 1079, 1080, 1317, 1927, 1969, 3024, 4031),  # ended by the server
            *(1158, 1159, 1160, 1161, 1184),  # the network
            *(1047, 1180, 1412, 1615, 3101),  # a cluster without quorum, or a changed table
            # From MySQL's drivers: not, or no longer, connected.
            *({0, *range(2000, 3000)} - _LOGINS),
            *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL),
            *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM),
            *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_SCHEMA),
        }
    ),
    StoreError: frozenset({"57P04"}),  # the database was dropped
}
_BY_CODE: Final = {code: kind for kind, codes in _MEANINGS.items() for code in codes}

# Class names of errors without a code; the last four are from asyncpg, asyncmy and SQLAlchemy.
_OUTAGES: Final = frozenset(
    {
        *("OSError", "EOFError", "TimeoutError", "OperationalError", "InterfaceError"),
        *("InternalError", "InternalClientError", "MySQLError", "DisconnectionError"),
    }
)

# libpq reports no SQLSTATE before there is a connection.
_NOT_LET_IN: Final = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r'|role ".*" does not exist|authentication failed for user|permission denied for database'
)

# A quoted table name, with or without a schema, in a message in any language.
_TABLE: Final = re.compile(
    r"""["'`«»„](?:[^"'`«»„“.]+\.)?(\w+)["'`«»“]|^no such table: (?:\w+\.)?(\w+)"""
)


def code_of(exc: BaseException | None) -> str | int | None:
    """Return the driver's code for an error: an SQLSTATE, a MySQL or SQLite number, or None.

    For SQLite it is the primary code; the higher bits, which hold the extended code, are dropped.
    """
    found: Any = getattr(exc, "orig", None) or exc
    if isinstance(found, sqlite3.Error):
        return getattr(found, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    number: Any = next(iter(getattr(found, "args", ())), None)
    is_mysql = type(found).__module__.split(".")[0] in {"aiomysql", "asyncmy", "pymysql"}
    # Both drivers follow PyMySQL, whose SQLSTATEs are too coarse.
    if is_mysql and type(number) is int:
        return number
    return getattr(found, "sqlstate", None) or None


def is_stale(exc: BaseException | None) -> bool:
    """Return whether another connection may succeed where this one no longer can.

    The server has become read-only because the primary moved, or the file was replaced.
    """
    return code_of(exc) in _READ_ONLY or _is_replaced(getattr(exc, "orig", None) or exc)


def _is_replaced(found: object) -> bool:
    return isinstance(found, sqlite3.Error) and str(found) == REPLACED


def as_store_error(label: str, exc: BaseException, path: str = "") -> StoreError:
    """Return the aiocosid error for an error of a driver or SQLAlchemy.

    Args:
        label: the store in messages.
        exc: the driver's error.
        path: the file that could not be opened, to find the reason.
    """
    found: Any = getattr(exc, "orig", None) or exc
    for each in (found, found.__cause__):
        if isinstance(each, ssl.SSLCertVerificationError):
            reason = f"the server's certificate is not trusted: {_reason(each)}"
            return StoreError(label, reason, remedy="trust its authority by the URL's TLS options")
    code, reason = code_of(found), _reason(found)
    if code == sqlite3.SQLITE_CANTOPEN and (path or not _may_open()):
        return _cannot_open(label, path, reason)
    if _is_replaced(found):
        remedy = "open a connection to the file that is there now"
        reason = "the file or its log was replaced or deleted"
        return StoreUnavailableError(label, reason, remedy=remedy)
    if code in _NO_TABLE or (code == sqlite3.SQLITE_ERROR and reason.startswith("no such table")):
        names = _TABLE.search(reason)
        return SchemaMissingError(label, table=(names and (names[1] or names[2])) or TABLE)
    for pattern, remedy in _MISTAKES:
        if re.search(pattern, f"{type(found).__name__}: {reason}"):
            return StoreError(label, reason, remedy=remedy)
    return _kind(exc, code, reason)(label, reason, remedy=_TAKE_FIRST if code in _LOCKED else "")


def _kind(exc: BaseException, code: str | int | None, reason: str) -> type[StoreError]:
    if code == "0A000" and "cached" in reason:  # a table changed; the statement is prepared again
        return StoreUnavailableError
    if isinstance(code, str):
        return _BY_CODE.get(code) or _BY_CODE.get(code[:2], StoreError)
    if code is not None:
        return _BY_CODE.get(code, StoreError)
    if _NOT_LET_IN.search(reason):
        return StoreAuthenticationError
    is_outage = _OUTAGES & {each.__name__ for each in type(exc).__mro__}
    is_lost = is_outage or getattr(exc, "connection_invalidated", False)
    return StoreUnavailableError if is_lost else StoreError


def _may_open() -> bool:
    """Return whether this process can open one more file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


def _cannot_open(label: str, path: str, reason: str) -> StoreError:
    folder = os.path.dirname(path)  # noqa: PTH120 - of a text
    if not _may_open():  # SQLite does not tell
        remedy = "close some, or raise the limit (ulimit -n); aiocosid tries again"
        return StoreUnavailableError(label, f"{reason}: too many open files", remedy=remedy)
    if not os.path.isdir(folder):  # noqa: PTH112 - as above
        remedy = "create it, or correct the path"
        return StoreError(label, f"{reason}: there is no folder {folder}", remedy=remedy)
    if os.path.isdir(path):  # noqa: PTH112 - as above
        return StoreError(label, f"{reason}: it is a folder", remedy="name a file in it")
    if not os.path.exists(path):  # noqa: PTH110 - as above
        reason = f"there is no such file, and {os.getcwd()} is the working directory"  # noqa: PTH109
        remedy = (
            "correct the path, or create a new store once, with 'aiocosid init --store URL' or "
            "create=True"
        )
        return StoreError(label, reason, remedy=remedy)
    reason = f"{reason}: no right to read and write it"
    return StoreAuthenticationError(label, reason, remedy="allow the user of this process both")


def _reason(found: BaseException) -> str:
    """Return an error's own message, without the statement and its values."""
    text = next((each for each in found.args if isinstance(each, str) and each), "")
    fallback = "no answer" if isinstance(found, TimeoutError) else type(found).__name__
    return text.strip().partition("\n")[0] or fallback


# The warning's SQLSTATE, 01000, does not identify it, because any trigger's warning has it too; and
# its text is translated.  So it is recognised by its source file.
_SOURCE: Final = "syncrep.c"


@contextmanager
def confirmed(label: str, driver: Any) -> Generator[None]:  # noqa: ANN401 - any driver's
    """Raise at the end if a standby has not confirmed a write, unless another error was raised.

    Both drivers call the listener before they return the reply.  The listener is always removed, so
    that the pool gets the connection back unchanged.

    Args:
        label: the store in messages.
        driver: a connection of asyncpg or psycopg, which report the server's warning; with any
            other driver nothing is checked.

    Raises:
        StoreUnavailableError: the write may be lost in a fail-over; its grant must not be used.
    """
    # The first pair is asyncpg's, the second psycopg's.
    kinds = ("log_listener", "server_source_filename"), ("notice_handler", "source_file")
    kind, source = next((each for each in kinds if hasattr(driver, f"add_{each[0]}")), ("", ""))
    if not kind:
        yield
        return
    found: list[object] = []

    def listen(*message: object) -> None:
        found.append(getattr(message[-1], source, None))

    add, remove = getattr(driver, f"add_{kind}"), getattr(driver, f"remove_{kind}")
    add(listen)
    try:
        yield
    finally:
        remove(listen)
    if _SOURCE in found:
        raise StoreUnavailableError(
            label,
            "the server has committed a write that its synchronous standby has not confirmed, "
            "because the wait for it was cancelled; a fail-over may take it back, so it counts as "
            "failed",
            remedy="try again, and do not cancel commits that wait for the standby",
        )


CONNECT_TIMEOUT: Final = 1.5  # seconds, for all hosts: below the 2 s of a generator's call
TEAR_TIMEOUT: Final = 0.5  # seconds that a driver may delay a cancelled caller
MAX_CONNECTIONS: Final = 4  # in a pool that aiocosid opens; further calls wait

PARAMETER: Final = re.compile(r"(?<!:):([a-z]\w*)")
"""A named parameter, in a statement that may contain casts."""

Row = Any
"""A driver's row, indexed by column number."""

_Pool = Any  # the drivers' own annotations are incomplete
_Session = Any


class Executor(Link[Any], ABC):
    """Runs one statement on the user's connection or its own, and returns the rows.

    An executor and a `Dialect` are all that a driver needs to become a store.

    Each statement is its own transaction, and is durable when the call returns.  A cancelled call
    may have taken effect; no later call receives its reply.

    Attributes:
        label: the server's or file's name in messages, without credentials.
    """

    __slots__ = ("label",)

    def __init__(self, label: str, connection: Connection[Any]) -> None:
        super().__init__(connection)
        self.label: str = label

    @abstractmethod
    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        """Run one statement and return all its rows.

        Args:
            statement: the statement in the driver's own notation.
            **values: the parameters by name.

        Raises:
            OutOfRangeError: a result does not fit its column.
            StoreUnavailableError: the store cannot be reached or does not answer.
            StoreError: the store refuses.
            ForkedError: the connection belongs to the parent process.
            WrongLoopError: the connection is in use on another event loop.
        """

    async def create_file(self) -> None:
        """Create the database's file if it is missing; do nothing for a server."""


class PoolDriver(NamedTuple):
    """The parts in which drivers with pools differ.

    Attributes:
        label: the server's name in messages.
        run: (connection, statement, values) runs a statement.
        release: (pool, connection, error) returns a connection to the pool, or drops it if its
            statement failed or was cancelled.
        disconnect: closes a pool that aiocosid opened; see `OwnedConnection`.
        salvage: handles such a pool on a closed event loop; see `OwnedConnection`.
        silence: silences such a pool in a forked child; see `OwnedConnection`.
        acquire: takes a connection from the pool, or opens one.
        foreign: wraps a statement for a user's session.
    """

    label: str
    run: Callable[[_Session, str, Mapping[str, Value]], Awaitable[list[Row]]]
    release: Callable[[_Pool, _Session, BaseException | None], Awaitable[None]]
    disconnect: Callable[[_Pool], Awaitable[None]]
    salvage: Callable[[_Pool], None]
    silence: Callable[[_Pool], None]
    acquire: Callable[[_Pool], Awaitable[_Session]] = methodcaller("acquire")
    foreign: Callable[[str], str] = str


class PoolExecutor(Executor):
    """Runs statements on a driver's pool, whose connections each run one statement at a time."""

    __slots__ = ("_driver", "_is_own")

    def __init__(
        self,
        driver: PoolDriver,
        pool: _Pool = None,
        *,
        connect: Callable[[], Awaitable[_Pool]] | None = None,
        place: str = "",
    ) -> None:
        """Use a pool; nothing is sent yet.

        Args:
            driver: the driver.
            pool: the user's pool.
            connect: creates a pool if the user has none.
            place: the servers of that pool, without credentials.
        """
        label = f"{driver.label} {place}".rstrip()
        self._driver, self._is_own = driver, connect is not None
        connection: Connection[_Pool] = BorrowedConnection("the pool", pool)
        if connect is not None:
            connection = OwnedConnection(
                f"the connection to {label}",
                connect=connect,
                disconnect=driver.disconnect,
                salvage=driver.salvage,
                silence=driver.silence,
            )
        super().__init__(label, connection)

    async def fetch_rows(self, statement: str, **values: Value) -> Sequence[Row]:
        pool = await self._connection.ready()
        if pool._loop is not asyncio.get_running_loop():
            raise WrongLoopError("the pool")
        if pool._closing or pool._closed:
            raise StoreError(self.label, "the pool is closed", remedy="give it an open one")
        meaning = partial(as_store_error, self.label)
        with translate_errors(meaning), anyio.fail_after(CALL_TIMEOUT):
            return await self._fetch(pool, statement, values)

    async def _fetch(self, pool: _Pool, statement: str, values: Mapping[str, Value]) -> list[Row]:
        generation, driver = fork.generation, self._driver
        connection = await driver.acquire(pool)
        try:
            # The process may have forked during the wait.
            fork.ensure_own(generation, f"the connection to {self.label}")
            if not self._is_own:
                statement = driver.foreign(statement)
            rows = await driver.run(connection, statement, values)
        except BaseException as error:
            if generation == fork.generation:
                await driver.release(pool, connection, error)
            else:
                fork.abandoned.append(connection)
            raise
        await driver.release(pool, connection, None)
        return rows
