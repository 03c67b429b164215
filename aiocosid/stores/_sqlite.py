"""The blocking side of the SQLite store: its URL, its statements, and its worker's functions."""

# ruff: noqa: S608 - put together from pieces of this file alone

from __future__ import annotations

import logging
import os
import re
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ..errors import (
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
)
from ..machine.cells import FORMAT
from ._dialect import (
    COLUMNS,
    MACHINE_INDEXES,
    MAY_CREATE,
    MIGRATORS,
    NOTE_COUNTERS,
    READ,
    Advance,
    Dialect,
)
from ._durability import SQLITE as RULES
from ._schema import CELL_TABLE, MACHINE_TABLE, OBJECTS, WITNESS
from ._sql_errors import code_of
from ._sqlite_file import OpenedFile, ensure_shared

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from ._dialect import SqlCommit
    from ._executor import Value
    from ._schema import Creation

__all__ = (
    "BUSY_TIMEOUT",
    "IDENTITY",
    "SQLITE",
    "alone",
    "check_version",
    "create_file",
    "file_of",
    "path_of",
    "prepare",
    "run",
    "tell_identity",
    "uri_of",
)

logger = logging.getLogger("aiocosid")

BUSY_TIMEOUT: Final = 1.5  # seconds for a lock: below the 2 s timeout of a generator's call
OLDEST: Final = (3, 35)  # the first version of SQLite with RETURNING

_FUNCTION: Final = "aiocosid_identity"
IDENTITY: Final = f"{_FUNCTION}()"
_NO_FILE: Final = "memory"  # its data ends with its connections

NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

_SECONDS: Final = "CAST(strftime('%s', 'now') AS INTEGER)"

# SQLite would turn a sum above int64 into a floating-point number, and compute "text" + 1 as 1.
_SUM: Final = f"""
SET last_max_id = cosid.last_max_id + :step, last_fetch_time = {_SECONDS}
WHERE typeof(cosid.last_max_id) = 'integer'
AND cosid.last_max_id <= 9223372036854775807 - :step
"""
_HIGHEST: Final = """
SET last_max_id = max(cosid.last_max_id, :above) WHERE typeof(cosid.last_max_id) = 'integer'
"""


def _advance(first: str, change: str, result: str, allowed: str = "true") -> Advance:
    creating = f"""
INSERT INTO cosid (name, last_max_id, last_fetch_time)
SELECT :name, {first}, {_SECONDS} WHERE {allowed}
ON CONFLICT (name) DO UPDATE {change}
 {result}"""
    return Advance(creating, f"UPDATE cosid {change} AND name = :name {result}")


_IS_THERE: Final = "EXISTS (SELECT 1 FROM cosid WHERE name = :name)"
_ADDED: Final = _advance(
    ":first", _SUM, "RETURNING last_max_id", f"{_IS_THERE} OR {MAY_CREATE.strip()}"
)
_NOTE_COUNTERS: Final = NOTE_COUNTERS.format(counters="SELECT 1 FROM cosid")
_RAISED: Final = _advance(":above", _HIGHEST, "RETURNING last_max_id, last_fetch_time")


_OF_FILE: Final = "pragma_database_list AS d WHERE d.name = 'main' AND d.file <> ''"
# A database in memory has no file, and is not meant to be durable: it shows no setting.
_SETTINGS: Final = f"""
SELECT 'file', 1 FROM {_OF_FILE}
UNION ALL SELECT 'journal_mode', j.journal_mode FROM pragma_journal_mode AS j, {_OF_FILE}
UNION ALL SELECT 'synchronous',
    CASE s.synchronous WHEN 0 THEN 'OFF' WHEN 1 THEN 'NORMAL' WHEN 2 THEN 'FULL' ELSE 'EXTRA' END
    FROM pragma_synchronous AS s, {_OF_FILE}
"""


def _commit(changes: SqlCommit) -> str:
    found = "".join(f" AND EXISTS (SELECT 1 FROM {each})" for each, _ in changes.found)
    missing = "".join(f" AND NOT EXISTS (SELECT 1 FROM {each})" for each in changes.missing)
    first = f"SELECT 1 WHERE {IDENTITY} = :identity{found}{missing}"
    return ";\n".join((first, *changes.writes))


_NAMES: Final = ", ".join(f"'{each}'" for each in OBJECTS)


def _create(creation: Creation) -> str:
    found = f"SELECT count(*) FROM sqlite_master WHERE name IN ({_NAMES})"
    columns = {each: COLUMNS[each].format("varchar(255)") for each in creation.tables}
    steps = [f"SELECT 1 WHERE ({found}) = {creation.found}"]
    steps += [f"CREATE TABLE {name} ({each})" for name, each in columns.items()]
    if MACHINE_TABLE in creation.tables:
        steps.append(MACHINE_INDEXES.strip())
    if creation.witness:
        steps.append(f"CREATE VIEW {WITNESS} AS SELECT '{creation.witness}' AS note")
    if creation.vouches:
        steps.append(f"""INSERT OR REPLACE INTO {CELL_TABLE} (name, value, written_ms)
SELECT 'marker', json_object('identity', {IDENTITY}, 'epoch', lower(hex(randomblob(8))),
    'format', {FORMAT}), {NOW}""")
    return ";\n".join(steps)


SQLITE: Final = Dialect(
    schema=f"SELECT name, coalesce(sql, '') FROM sqlite_master WHERE name IN ({_NAMES})",
    create=_create,
    note_counters=_NOTE_COUNTERS,
    is_created_on_use=True,
    add=Advance(f"{_ADDED.creating};{_NOTE_COUNTERS}", _ADDED.known),
    raise_to=_RAISED,
    read=READ.format(identity=IDENTITY, now=NOW),
    now=NOW,
    is_open="true",
    parameter=lambda name, _: f":{name}",
    commit=_commit,
    version="SELECT 'SQLite ' || sqlite_version()",
    migrators=f"""
SELECT name FROM sqlite_master WHERE type = 'table' AND lower(name) IN ({MIGRATORS})
""",
    settings=(_SETTINGS,),
    rules=RULES,
)


# The identity of a connection's file, as an SQL function.
# A copied, restored or replaced file has another inode number than the one in its marker.  A number
# is not reused while a process has the old file open, as every holder of a machine id has. Not
# detected are: a file that is overwritten in place; one that is moved away and back; and one that
# gets the same number, on a fresh volume or while no process had the old file open.
# A connection stays on the file that it opened, even if another one is in its place: then the
# function fails, and the statement with it.


def tell_identity(database: sqlite3.Connection, label: str) -> None:
    """Define the function on a connection.

    Raises:
        StoreError: other processes may use the file with another journal.
    """
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        known = f"SELECT 1 FROM pragma_function_list WHERE name = '{_FUNCTION}'"
        if cursor.execute(known).fetchall():
            return  # it has the function, bound to the file as it was opened
    path = file_of(database)
    ensure_shared(path, label)
    opened = OpenedFile(path)
    database.execute("SELECT 1 FROM sqlite_master").fetchall()  # creates the log, in WAL mode
    opened.is_there()
    database.create_function(_FUNCTION, 0, lambda: _identity(path, opened))


def file_of(database: sqlite3.Connection) -> str:
    """Return the absolute path of a connection's file; empty if it has none."""
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        found = cursor.execute("PRAGMA database_list").fetchall()
    return next((file for _, name, file in found if name == "main"), "")


def _identity(path: str, opened: OpenedFile) -> str:
    """Return the inode number, which a restart and an in-place VACUUM keep."""
    if not path:
        return _NO_FILE
    if not opened.is_there():
        raise FileNotFoundError(path)
    return f"{opened.number}"


def check_version() -> None:
    """Raise `UnsupportedRuntimeError` if Python was built with a SQLite that is too old."""
    if sqlite3.sqlite_version_info < OLDEST:
        found = sqlite3.sqlite_version
        remedy = "use a Python whose SQLite is 3.35 or later"
        raise UnsupportedRuntimeError(f"SQLite {found} has no RETURNING", remedy=remedy)


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


def create_file(path: str) -> None:
    """Create the file if it is missing: nothing else does."""
    with suppress(OSError):  # it is there, or opening it will raise why it cannot be
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))
        logger.info("sqlite %s: created the file", path)


def uri_of(path: str) -> str:
    """Return SQLite's own URI of an absolute path, by which a missing file is not created."""
    return f"{Path(path).as_uri()}?mode=rw"


def prepare(database: sqlite3.Connection, label: str) -> None:
    """Set up one of our own connections.

    Raises:
        StoreError: other processes may use the file with another journal.
    """
    ensure_shared(file_of(database), label)
    # With a journal all that was granted is in the file itself.  In WAL mode it would be in a log
    # beside the file, which people remove, or leave behind when they move the file; and of a log
    # with one wrong bit SQLite ignores the rest.
    database.execute("PRAGMA synchronous = EXTRA")  # each step of a commit is on the disk
    database.execute("PRAGMA fullfsync = ON")  # on macOS a plain sync stops at the drive's cache
    database.execute("SELECT 1 FROM sqlite_master").fetchall()  # waits for a lock; the pragma fails
    try:
        database.execute("PRAGMA journal_mode = TRUNCATE")
    except sqlite3.OperationalError as exc:
        if code_of(exc) != sqlite3.SQLITE_BUSY:
            raise
        # Another connection has the file open in WAL mode, and decides.
    tell_identity(database, label)


def run(
    database: sqlite3.Connection, label: str, statement: str, values: Mapping[str, Value]
) -> list[Any]:
    """Run one statement in a transaction of its own, or several that are separated by semicolons.

    Of several statements the first returns the rows, and the others run only if it has any.

    Raises:
        StoreError: the connection is in a transaction, with which the grant could be rolled back.
    """
    first, *others = statement.split(";")
    with alone(database, label) as cursor:
        if others:
            cursor.execute("BEGIN IMMEDIATE")
        try:
            rows = cursor.execute(first, values).fetchall()
            for each in others if rows else ():
                cursor.execute(each, values)
            if others:
                cursor.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        return rows


@contextmanager
def alone(database: sqlite3.Connection, label: str) -> Generator[sqlite3.Cursor]:
    """Yield a cursor whose statements are transactions of their own.

    Raises:
        StoreError: the connection is in a transaction, with which the grant could be rolled back.
    """
    if database.in_transaction:
        endless = getattr(database, "autocommit", None) is False  # since Python 3.12
        raise (StoreError if endless else StoreUnavailableError)(
            label,
            "the connection is in a transaction, and a rollback would repeat ids granted in it; "
            "give aiocosid a connection of its own",
        )
    level = database.isolation_level
    database.isolation_level = None  # otherwise Python would begin a transaction and leave it open
    try:
        with closing(database.cursor()) as cursor:
            cursor.row_factory = None
            yield cursor
    finally:
        database.isolation_level = level
