"""The blocking side of the SQLite store: its URL, its statements, and what runs in its worker."""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ..errors import (
    InvalidArgumentError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
)
from ._sql_dialect import GRANT_TABLE, NAME_WIDTH, TABLE, Dialect
from ._sqlite_identity import REPLACED, tell_identity

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from ._executor import Value

__all__ = (
    "BUSY_TIMEOUT",
    "SQLITE",
    "alone",
    "check_version",
    "is_missing",
    "path_of",
    "prepare",
    "run",
    "translated",
    "weaknesses_of",
)

BUSY_TIMEOUT: Final = 1.5  # seconds for a lock: below the 2 s after which a generator gives up
WAL_ATTEMPTS: Final = 20  # at setting the journal mode; each waits for one other process
OLDEST: Final = (3, 35)  # of SQLite's versions: it brought RETURNING

# A sum above int64 would silently become a floating-point number, and a text plus one is one.
_ADVANCE: Final = """
INSERT INTO cosid (name, last_max_id, last_fetch_time)
VALUES (:name, :first, CAST(strftime('%s', 'now') AS INTEGER))
ON CONFLICT (name) DO UPDATE
SET last_max_id = cosid.last_max_id + :step, last_fetch_time = excluded.last_fetch_time
WHERE typeof(cosid.last_max_id) = 'integer'
AND cosid.last_max_id <= 9223372036854775807 - :step
RETURNING last_max_id"""

_RAISE: Final = """
INSERT INTO cosid (name, last_max_id, last_fetch_time)
VALUES (:name, :above, CAST(strftime('%s', 'now') AS INTEGER))
ON CONFLICT (name) DO UPDATE SET last_max_id = max(cosid.last_max_id, excluded.last_max_id)
WHERE typeof(cosid.last_max_id) = 'integer'
RETURNING last_max_id, last_fetch_time"""

_FORGET: Final = "UPDATE aiocosid_grant SET nonce = '' WHERE name = :name"

# Of several statements the later ones run only if the first one gives a row; see `run`.
SQLITE: Final = Dialect(
    create_table=f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    name varchar({NAME_WIDTH}) NOT NULL,
    last_max_id bigint NOT NULL DEFAULT 0,
    last_fetch_time bigint NOT NULL DEFAULT 0,
    CONSTRAINT cosid_pk PRIMARY KEY (name)
)
""",
    next_max_id=_ADVANCE,
    set_floor=_RAISE,
    counter="SELECT last_max_id FROM cosid WHERE name = :name",
    counters="""
SELECT name, last_max_id, last_fetch_time FROM cosid
WHERE substr(name, 1, length(:prefix)) = :prefix
""",
    create_grants=f"""
CREATE TABLE IF NOT EXISTS {GRANT_TABLE} (
    name varchar({NAME_WIDTH}) NOT NULL,
    nonce varchar(64) NOT NULL DEFAULT '',
    top bigint NOT NULL DEFAULT 0,
    base bigint NOT NULL DEFAULT 0,
    CONSTRAINT aiocosid_grant_pk PRIMARY KEY (name)
)
""",
    is_created_on_use=True,
    grant=f"""
{_ADVANCE}, (
    SELECT base FROM aiocosid_grant AS g
    WHERE g.name = :name AND g.nonce = :previous AND :previous <> ''
    AND g.top = cosid.last_max_id - :step
);
INSERT INTO aiocosid_grant (name, nonce, top, base)
SELECT name, :nonce, last_max_id, last_max_id - :step FROM cosid WHERE name = :name
ON CONFLICT (name) DO UPDATE SET nonce = excluded.nonce, top = excluded.top, base =
    CASE WHEN aiocosid_grant.nonce = :previous AND :previous <> ''
        AND aiocosid_grant.top = excluded.base THEN aiocosid_grant.base ELSE excluded.base END
""",
    give_back=f"""
UPDATE cosid SET last_max_id = :lower WHERE name = :name AND last_max_id = :top
AND EXISTS (
    SELECT 1 FROM aiocosid_grant
    WHERE name = :name AND nonce = :nonce AND top = :top AND base <= :lower
)
RETURNING last_max_id;
{_FORGET}
""",
    set_floor_noted=f"{_RAISE};{_FORGET}",
)

_OUTAGES: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_SCHEMA,
}
_MISSING: Final = re.compile(rf"no such table: ((?:aio)?{TABLE}\w*)")
_REFUSALS: Final = {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY}


def check_version() -> None:
    """Raise `UnsupportedRuntimeError` if Python was built with a SQLite that is too old."""
    if sqlite3.sqlite_version_info < OLDEST:
        found = sqlite3.sqlite_version
        raise UnsupportedRuntimeError(f"SQLite {found} has no RETURNING; 3.35 is the first")


def path_of(url: str) -> str:
    """Return the absolute path that a URL names.

    Raises:
        InvalidArgumentError: it is malformed, or names no file.
    """
    scheme, _, rest = str(url).partition(":")
    match = re.fullmatch(r"///([^?#\0]+)", rest) if scheme.lower() == "sqlite" else None
    path = unquote(match[1]) if match else ""
    if path in {"", ":memory:"} or path.startswith("file:") or "\0" in path:
        raise InvalidArgumentError(
            "url",
            f"{scheme}:...",  # the rest may hold a password
            expected="sqlite:///ids.db, or sqlite:////var/lib/ids.db for an absolute path; "
            "for counters that end with the process use memory://",
        )
    return os.path.abspath(path)  # noqa: PTH100 - Path would resolve nothing more


def is_missing(path: str) -> bool:
    """Whether there is no such file in a folder that is there."""
    try:
        os.stat(path)  # noqa: PTH116 - of a text
    except FileNotFoundError:
        return os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120 - as above
    except OSError:
        pass  # whoever opens it will be told
    return False


def prepare(database: sqlite3.Connection) -> None:
    """Set up a connection of ours, and the table."""
    tell_identity(database)
    # In WAL mode the same as FULL: every commit is synced.  Where there is no WAL, on some file
    # systems, the deletion of the journal is synced as well, without which it could come back.
    database.execute("PRAGMA synchronous = EXTRA")
    database.execute("PRAGMA fullfsync = ON")  # on macOS a mere sync stops at the drive's cache
    for _ in range(WAL_ATTEMPTS):
        try:
            database.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as exc:
            if _code(exc) != sqlite3.SQLITE_BUSY:
                raise
        # This pragma does not wait for the lock as everything else does.
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
    database.execute(SQLITE.create_table)


def weaknesses_of(database: sqlite3.Connection) -> list[str]:
    """Say by which settings of somebody's connection grants may be lost."""
    asked = ("synchronous", "journal_mode")
    level, mode = (_pragma(database, name) for name in asked)
    if not _pragma(database, "database_list", column=2):
        return []  # it lies in memory, and nobody takes that for durable
    found: list[str] = []
    if mode in {"off", "memory"}:
        found.append(
            f"journal_mode is {mode}: a crash may damage the file, and ids come again; "
            "PRAGMA journal_mode = WAL"
        )
    if level == 0 or (level == 1 and mode == "wal"):
        found.append(
            f"synchronous is {'NORMAL' if level else 'OFF'}: a power cut takes back the last "
            "grants, and their ids come again; PRAGMA synchronous = FULL"
        )
    return found


def _pragma(database: sqlite3.Connection, name: str, *, column: int = 0) -> Any:  # noqa: ANN401 - as it is
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        return cursor.execute(f"PRAGMA {name}").fetchall()[0][column]


def run(
    database: sqlite3.Connection, label: str, statement: str, values: Mapping[str, Value]
) -> list[Any]:
    """Run one statement in a transaction of its own, or several that are parted by semicolons.

    Of several the first gives the rows, and the others run only if there are any.

    Raises:
        StoreError: the connection is in a transaction, with which the grant could be rolled back.
    """
    with alone(database, label) as cursor:
        first, *others = statement.split(";")
        if others:
            return _run_together(cursor, first, others, values)
        return cursor.execute(statement, values).fetchall()


@contextmanager
def alone(database: sqlite3.Connection, label: str) -> Generator[sqlite3.Cursor]:
    """Lend a cursor, each statement of which is a transaction of its own.

    Raises:
        StoreError: the connection is in a transaction, with which the grant could be rolled back.
    """
    if database.in_transaction:
        endless = getattr(database, "autocommit", None) is False  # since Python 3.12
        raise (StoreError if endless else StoreUnavailableError)(
            label,
            "the connection is in a transaction, and ids granted there would come again after a "
            "rollback; give aiocosid a connection of its own",
        )
    level = database.isolation_level
    database.isolation_level = None  # else Python would begin a transaction and leave it open
    try:
        with closing(database.cursor()) as cursor:
            cursor.row_factory = None
            yield cursor
    finally:
        database.isolation_level = level


def _run_together(
    cursor: sqlite3.Cursor, first: str, others: list[str], values: Mapping[str, Value]
) -> list[Any]:
    cursor.execute("BEGIN IMMEDIATE")
    try:
        rows = cursor.execute(first, values).fetchall()
        for each in others if rows else ():
            cursor.execute(each, values)
        cursor.execute("COMMIT")
    except BaseException:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise
    return rows


def translated(label: str, exc: sqlite3.Error, path: str = "") -> StoreError:
    """Turn SQLite's error into ours."""
    code, reason = _code(exc), str(exc)
    if code == sqlite3.SQLITE_CANTOPEN and path:
        return _cannot_open(label, path, reason)
    if reason == REPLACED:
        return StoreUnavailableError(
            label, "the file was replaced or deleted; open a connection to the one that is there"
        )
    if code in _OUTAGES:
        return StoreUnavailableError(label, reason)
    if code in _REFUSALS:
        return StoreAuthenticationError(label, reason)
    if (missing := _MISSING.match(reason)) is not None:
        return SchemaMissingError(label, table=missing[1])
    return StoreError(label, reason)


def _cannot_open(label: str, path: str, reason: str) -> StoreError:
    folder = os.path.dirname(path)  # noqa: PTH120 - of a text
    if not os.path.isdir(folder):  # noqa: PTH112 - as above
        return StoreError(label, f"{reason}: there is no folder {folder}")
    if os.path.isdir(path):  # noqa: PTH112 - as above
        return StoreError(label, f"{reason}: it is a folder")
    return StoreAuthenticationError(label, f"{reason}: no right to read and write it")


def _code(exc: sqlite3.Error) -> int:
    """Return the primary code; the extended one is in the higher bits."""
    return getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
