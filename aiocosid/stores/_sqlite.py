"""The blocking side of the SQLite store: its URL, statements, file, and handling of forks.

SQLite keeps a journal or a log next to the file, under the file's name.  A process that opens the
file under another name, or in a container into which the file alone was mounted, uses another
journal, and neither process sees what the other one writes.

SQLite keeps the state of a file's locks in memory, which a child process inherits.  If a statement
runs during the fork, the child finds the file locked for ever.  Otherwise the child believes that
it holds the parent's locks and takes none: when the parent closes the file, it would delete the log
that the child writes to, and the child's ids would be issued again.  So a `Door` closes its file
while the process forks.  See "How To Corrupt An SQLite Database File", 2.6, in SQLite's
documentation.
"""

# ruff: noqa: S608 - the statements are assembled from constants of this file only

from __future__ import annotations

import logging
import os
import re
import sqlite3
import sys
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote
from weakref import WeakSet

from ..errors import (
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
    UnsupportedRuntimeError,
)
from ..machine.cells import FORMAT
from ._dialect import (
    CELL_TABLE,
    COLUMNS,
    MACHINE_INDEXES,
    MACHINE_TABLE,
    MAY_CREATE,
    MIGRATORS,
    NOTE_COUNTERS,
    OBJECTS,
    READ,
    WITNESS,
    Advance,
    Dialect,
)
from ._durability import SQLITE as RULES
from ._executor import code_of
from ._sequence_rules import SequenceRequest, SequenceState, grant

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from ._dialect import Creation, SqlCommit, Value

__all__ = (
    "BUSY_TIMEOUT",
    "IDENTITY",
    "SEQUENCE",
    "SQLITE",
    "Door",
    "alone",
    "check_version",
    "create_file",
    "ensure_own",
    "ensure_shared",
    "file_of",
    "in_use",
    "inherit",
    "limited_wait",
    "path_of",
    "prepare",
    "run",
    "tell_identity",
    "uri_of",
)

_MOUNT: Final = re.compile(r"^mnt_id:\s*(\d+)$", re.MULTILINE)
_IS_LINUX: Final = sys.platform == "linux"


def identity(path: str) -> tuple[int, int] | None:
    """Return a file's device and inode, to detect that the file was replaced."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of a text
    except OSError:
        return None
    return found.st_dev, found.st_ino


def ensure_shared(path: str, label: str) -> None:
    """Raise `StoreError` if other processes may use the file with another journal.

    Where the system does not report mounts, only hard links are noticed.

    Args:
        path: the file; empty for a database without a file.
        label: the store in messages.
    """
    if not path:
        return
    path = os.path.realpath(path)  # SQLite follows symbolic links in the same way
    folder = os.path.dirname(path)  # noqa: PTH120 - of a text
    try:
        links = os.stat(path).st_nlink  # noqa: PTH116 - as above
    except OSError:
        return
    if links > 1:
        reason = f"the file has {links} names (hard links), and SQLite keeps a journal next to each"
        remedy = "remove the other names; a symbolic link may be used instead"
    elif len(set(_mounts((path, folder)))) > 1:
        reason = (
            "the file itself is mounted here, and SQLite's journal next to it belongs to "
            "this container alone"
        )
        remedy = f"mount its folder instead, as in -v ./data:{folder}"
    else:
        return
    raise StoreError(label, f"{reason}; ids would be issued again", remedy=remedy)


def _mounts(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the number of the mount that each path is in, as far as the system reports it.

    ``st_dev`` does not help: a bind mount has the same device as the directory that it shows.
    """
    for path in paths if _IS_LINUX else ():
        with suppress(OSError):
            # Closing any other kind of descriptor would release SQLite's locks on the file.
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                with open(f"/proc/self/fdinfo/{found}", encoding="ascii") as facts:  # noqa: PTH123
                    yield from _MOUNT.findall(facts.read(4096))
            finally:
                os.close(found)


class OpenedFile:
    """A file, and its write-ahead log if it has one, as they were when a connection opened them.

    While a connection has the log open, the log is not removed or replaced.
    """

    __slots__ = ("_file", "_log", "_log_path", "_path")

    def __init__(self, path: str) -> None:
        """Remember the file; each call of `is_there` looks at its log."""
        self._path = path
        self._log_path = f"{os.path.realpath(path)}-wal"
        self._file = identity(path)
        self._log: tuple[int, int] | None = None

    @property
    def number(self) -> int | None:
        """The file's inode number; None if it was not there."""
        return None if self._file is None else self._file[1]

    def is_there(self) -> bool:
        """Whether file and log are both still there."""
        found, log = identity(self._path), identity(self._log_path)
        self._log = self._log or log
        return found is not None and found == self._file and log == self._log

    def reopen(self) -> None:
        """Accept another log: the last connection to close removes the old one."""
        self._log = None


logger = logging.getLogger("aiocosid")

BUSY_TIMEOUT: Final = 1.5  # seconds for a lock: below the 2 s timeout of a generator's call
OLDEST: Final = (3, 35)  # the first version of SQLite with RETURNING

_FUNCTION: Final = "aiocosid_identity"
_GRANT: Final = "aiocosid_sequence"
IDENTITY: Final = f"{_FUNCTION}()"
_NO_FILE: Final = "memory"  # the data is lost when its connections close

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
# A database in memory has no file and is not meant to be durable, so it reports no settings.
_SETTINGS: Final = f"""
SELECT 'file', 1 FROM {_OF_FILE}
UNION ALL SELECT 'journal_mode', j.journal_mode FROM pragma_journal_mode AS j, {_OF_FILE}
UNION ALL SELECT 'synchronous',
    CASE s.synchronous WHEN 0 THEN 'OFF' WHEN 1 THEN 'NORMAL' WHEN 2 THEN 'FULL' ELSE 'EXTRA' END
    FROM pragma_synchronous AS s, {_OF_FILE}
"""


# This is one statement, which holds the writer's lock from its beginning, so no other process can
# write in between.
SEQUENCE: Final = f"""
INSERT INTO {CELL_TABLE} (name, value, written_ms) SELECT :name, {_GRANT}(
    (SELECT value FROM {CELL_TABLE} WHERE name = :name), {IDENTITY}, {NOW} / 1000,
    :second, :size, :max_sequence, :tolerance, :margin), {NOW} WHERE true
ON CONFLICT (name) DO UPDATE SET value = excluded.value, written_ms = excluded.written_ms
RETURNING value
"""


def _grant(text: str | None, identity: str, now: int, *request: int) -> str | None:
    """Return a name's new state; a state that cannot be parsed stays unchanged."""
    try:
        state = None if text is None else SequenceState.read(text)[0]
    except ValueError:
        return text
    state, answer = grant(state, SequenceRequest(*request), identity, now)
    return state.text(answer)


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


# A connection's file has its identity from an SQL function.  A copied, restored or replaced file
# has another inode number than the one in its marker.  An inode number is not reused while a
# process has the old file open, as every holder of a machine id has.  Three cases are not detected:
# a file that is overwritten in place; one that is moved away and back; and one that gets the same
# number, on a fresh volume or while no process had the old file open.  A connection stays on the
# file that it opened, even if another file has taken its place: then the function fails, and the
# statement with it.


def tell_identity(database: sqlite3.Connection, label: str) -> None:
    """Define aiocosid's SQL functions on a connection.

    Raises:
        StoreError: other processes may use the file with another journal.
    """
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        known = f"SELECT 1 FROM pragma_function_list WHERE name = '{_FUNCTION}'"
        if cursor.execute(known).fetchall():
            return  # the connection already has the function, bound to the file that it opened
    path = file_of(database)
    ensure_shared(path, label)
    opened = OpenedFile(path)
    database.execute("SELECT 1 FROM sqlite_master").fetchall()  # creates the log, in WAL mode
    opened.is_there()
    database.create_function(_FUNCTION, 0, lambda: _identity(path, opened))
    database.create_function(_GRANT, -1, _grant)


def file_of(database: sqlite3.Connection) -> str:
    """Return the absolute path of a connection's file; empty if it has none."""
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        found = cursor.execute("PRAGMA database_list").fetchall()
    return next((file for _, name, file in found if name == "main"), "")


def _identity(path: str, opened: OpenedFile) -> str:
    """Return the inode number, which stays the same after a restart or an in-place VACUUM."""
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
        InvalidArgumentError: the URL is malformed, or names no file.
    """
    scheme, _, rest = str(url).partition(":")
    match = re.fullmatch(r"///([^?#\0]+)", rest) if scheme.lower() == "sqlite" else None
    path = unquote(match[1]) if match else ""
    if path in {"", ":memory:"} or path.startswith("file:") or "\0" in path:
        raise InvalidArgumentError(
            "url",
            f"{scheme}:...",  # the rest may hold a password
            "must look like sqlite:///ids.db, or sqlite:////var/lib/ids.db for an absolute path; "
            "use memory:// for counters that end with the process",
        )
    return os.path.abspath(path)  # noqa: PTH100 - Path would resolve nothing more


def create_file(path: str) -> None:
    """Create the file if it is missing; nothing else creates it."""
    with suppress(OSError):  # it exists, or opening it will raise the reason
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))
        logger.info("sqlite %s: created the file", path)


def uri_of(path: str) -> str:
    """Return SQLite's URI of an absolute path; opening it does not create a missing file."""
    return f"{Path(path).as_uri()}?mode=rw"


def prepare(database: sqlite3.Connection, label: str) -> None:
    """Set up one of our own connections.

    Raises:
        StoreError: other processes may use the file with another journal.
    """
    ensure_shared(file_of(database), label)
    # With a rollback journal everything granted is in the file itself.  In WAL mode it would be in
    # a log next to the file.  People remove that log, or leave it behind when they move the file;
    # and if one bit of the log is wrong, SQLite ignores the rest.
    database.execute("PRAGMA synchronous = EXTRA")  # sync every step of a commit to the disk
    database.execute("PRAGMA fullfsync = ON")  # on macOS a plain sync stops at the drive's cache
    database.execute("SELECT 1 FROM sqlite_master").fetchall()  # waits for a lock; the pragma fails
    try:
        database.execute("PRAGMA journal_mode = TRUNCATE")
    except sqlite3.OperationalError as exc:
        if code_of(exc) != sqlite3.SQLITE_BUSY:
            raise
        # Another connection has the file open in WAL mode, so this one must use it too.
    tell_identity(database, label)


def run(
    database: sqlite3.Connection, label: str, statement: str, values: Mapping[str, Value]
) -> list[Any]:
    """Run one statement in its own transaction, or several that are separated by semicolons.

    The first of several statements returns the rows; the others run only if there are any.

    Raises:
        StoreError: the connection is in a transaction, whose rollback would undo the grant.
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
    """Yield a cursor that runs each statement in its own transaction.

    Raises:
        StoreError: the connection is in a transaction, whose rollback would undo the grant.
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


@contextmanager
def limited_wait(database: sqlite3.Connection) -> Generator[None]:
    """Wait for a lock at most `BUSY_TIMEOUT`, on a connection that may wait longer.

    A generator's call ends before Python's default of 5 s, and its error could not say that the
    file is locked.
    """
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        [(before,)] = cursor.execute("PRAGMA busy_timeout").fetchall()
        cursor.execute(f"PRAGMA busy_timeout = {min(before, int(BUSY_TIMEOUT * 1000))}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {before}")


_T = TypeVar("_T")

PATIENCE: Final = 1.0  # seconds that a fork waits for running statements

# SQLite's own wait for a lock ends with pauses of 100 ms, and a process that commits in a loop
# always gets the lock first.  So each wait is short, and is started again.
SHORT_WAIT: Final = 0.01  # seconds
WAITS: Final = int(BUSY_TIMEOUT / SHORT_WAIT)


class Door:
    """Opens a file in the worker unless the call was cancelled, and reopens it after a fork.

    Without the worker, a call that is cancelled while the file is opened would lose the connection.

    Attributes:
        path: the file's path.
        file: the file as it was first opened; None before that.
        opened: the connection, if it is open.
    """

    __slots__ = ("__weakref__", "_is_closed", "file", "opened", "path")

    def __init__(self, path: str) -> None:
        self.path: str = path
        self.file: OpenedFile | None = None
        self.opened: list[sqlite3.Connection] = []
        self._is_closed = False
        with _gate.changed:
            _doors.add(self)

    def open(self) -> sqlite3.Connection:
        """Open the file, which must exist."""
        with in_use():
            return self._open()

    def run(self, function: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a function on the connection, in the worker."""
        with in_use():
            if self._is_closed:
                raise ValueError
            if not self.opened:
                try:
                    database = self._open()
                    _patiently(lambda: prepare(database, f"sqlite {self.path}"))
                except BaseException:
                    self.shut()  # otherwise the next call would use this connection
                    raise
            return _patiently(lambda: function(self.opened[0]))

    def _open(self) -> sqlite3.Connection:
        ensure_own(self.path)
        # The connection may be closed in the loop's thread, but is used only in the worker's.
        opened = sqlite3.connect(
            uri_of(self.path),
            uri=True,
            timeout=SHORT_WAIT,
            isolation_level=None,
            check_same_thread=False,
        )
        self.opened.append(opened)
        if self.file is None:
            self.file = OpenedFile(self.path)
        self.file.reopen()
        if self._is_closed:
            self.shut()
        return opened

    def close(self) -> None:
        """Close the connection, now or as soon as it is open.  Both threads may call this."""
        self._is_closed = True
        with in_use():
            self.shut()

    def shut(self) -> None:
        """Close the connection, if it is open; the next call opens it again."""
        with suppress(IndexError):
            self.opened.pop().close()


def _patiently(function: Callable[[], _T]) -> _T:
    """Repeat a call while another process has the file locked; such a call changes nothing."""
    for _ in range(WAITS - 1):
        try:
            return function()
        except sqlite3.OperationalError as exc:
            if code_of(exc) != sqlite3.SQLITE_BUSY:
                raise
    return function()


_doors: Final[WeakSet[Door]] = WeakSet()
_inherited: Final[set[tuple[int, int] | None]] = set()  # files that the parent had open


def inherit(path: str) -> None:
    """Record, in a forked child, that the parent had a file open."""
    _inherited.add(identity(path))
    _inherited.discard(None)


def ensure_own(path: str) -> None:
    """Raise `StoreError` if the parent had the file open when it forked."""
    if _inherited and identity(path) in _inherited:
        raise StoreError(
            f"sqlite {path}",
            "the parent process was using the file when it forked, and SQLite cannot open it here",
            remedy="fork before the first id is taken",
        )


class _Gate:
    """Keeps statements from running while the process forks."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.changed = Condition()
        self.running = self.forks = 0

    def before_fork(self) -> None:
        """Wait for running statements, close the files, and block further statements."""
        self.changed.acquire()
        self.forks += 1
        if self.changed.wait_for(lambda: not self.running, PATIENCE):
            for door in tuple(_doors):
                with suppress(sqlite3.Error):
                    door.shut()

    def after_in_parent(self) -> None:
        # A signal handler may have interrupted before_fork().
        self.forks = max(0, self.forks - 1)
        with suppress(RuntimeError):
            self.changed.notify_all()
            self.changed.release()

    def after_in_child(self) -> None:
        self.reset()
        for door in tuple(_doors):
            if door.opened:
                inherit(door.path)


_gate: Final = _Gate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.before_fork,
        after_in_parent=_gate.after_in_parent,
        after_in_child=_gate.after_in_child,
    )


@contextmanager
def in_use() -> Generator[None]:
    """Use SQLite while the process is not forking."""
    changed = _gate.changed
    with changed:
        changed.wait_for(lambda: not _gate.forks)
        _gate.running += 1
    try:
        yield
    finally:
        if changed is _gate.changed:  # otherwise a signal handler forked, and this is the child
            with changed:
                _gate.running -= 1
                changed.notify_all()
