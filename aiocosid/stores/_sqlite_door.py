"""A connection to a SQLite file that is closed while the process forks.

SQLite keeps the state of a file's locks in memory, which a child inherits.  If a statement runs
during the fork, the child finds the file locked for ever.  Otherwise it takes no locks of its own:
the parent would delete the log that the child writes to when it closes, and the child's ids would
be issued again.  See "How To Corrupt An SQLite Database File", 2.6, in SQLite's documentation.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from threading import Condition
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from ..errors import StoreError
from ._sql_errors import code_of
from ._sqlite import BUSY_TIMEOUT, prepare, uri_of
from ._sqlite_file import OpenedFile, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ("Door", "ensure_own", "in_use", "inherit")

_T = TypeVar("_T")

PATIENCE: Final = 1.0  # seconds that a fork waits for statements under way

# SQLite's own wait for a lock ends with pauses of 100 ms, in which a process that commits in a
# loop always gets there first; so its wait is short, and begun again.
SHORT_WAIT: Final = 0.01  # seconds
WAITS: Final = int(BUSY_TIMEOUT / SHORT_WAIT)


class Door:
    """Opens a file in the worker unless the call was cancelled, and opens it again after a fork.

    A call that is cancelled while the worker opens the file would lose the connection.

    Attributes:
        path: the file's path.
        file: the file as it was first opened; None before.
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
        """Open the file, which must be there."""
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
                    self.shut()  # otherwise the next call would use it
                    raise
            return _patiently(lambda: function(self.opened[0]))

    def _open(self) -> sqlite3.Connection:
        ensure_own(self.path)
        # It may be closed in the loop's thread, but is used in the worker's only.
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
        """Close the connection, or have it closed once it is open.  Both threads may call this."""
        self._is_closed = True
        with in_use():
            self.shut()

    def shut(self) -> None:
        """Close the connection, if it is open; the next call opens it again."""
        with suppress(IndexError):
            self.opened.pop().close()


def _patiently(function: Callable[[], _T]) -> _T:
    """Call a function again while another process has the file locked, which undoes the call."""
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
    """Note, in a forked child, that the parent had a file open."""
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
    """Keeps statements and forks apart."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.changed = Condition()
        self.running = self.forks = 0

    def before_fork(self) -> None:
        """Wait for statements under way, close the files, and hold further statements back."""
        self.changed.acquire()
        self.forks += 1
        if self.changed.wait_for(lambda: not self.running, PATIENCE):
            for door in tuple(_doors):
                with suppress(sqlite3.Error):
                    door.shut()

    def after_in_parent(self) -> None:
        # A signal handler may have cut before_fork() short.
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
    """Use SQLite while no fork is under way."""
    changed = _gate.changed
    with changed:
        changed.wait_for(lambda: not _gate.forks)
        _gate.running += 1
    try:
        yield
    finally:
        if changed is _gate.changed:  # otherwise a signal handler has forked, and this is the child
            with changed:
                _gate.running -= 1
                changed.notify_all()
