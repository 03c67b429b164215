"""Which file it is that a connection works on, as a function of SQL.

A copied, restored or replaced file has another inode number than the one that its marker tells of.
A number is not used again while somebody has the old file open, as whoever holds a machine id has.
What is written over in place, and a file that was moved away and comes back, cannot be told; nor
one that was made on a fresh volume, or while nobody had the old one open, and has the same number.

A connection stays on the file that it opened, although another one lies in its place: there the
function fails, and the statement with it.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

__all__ = ("IDENTITY", "REPLACED", "identity", "tell_identity")

FUNCTION: Final = "aiocosid_identity"
IDENTITY: Final = f"{FUNCTION}()"
NO_FILE: Final = "memory"  # it ends with its connections
REPLACED: Final = "user-defined function raised exception"  # SQLite's text, if it has failed


def tell_identity(database: sqlite3.Connection) -> None:
    """Let the statements of a connection ask for it."""
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        known = f"SELECT 1 FROM pragma_function_list WHERE name = '{FUNCTION}'"  # noqa: S608 - ours
        if cursor.execute(known).fetchall():
            return  # which remembers the file as it was opened
        found = cursor.execute("PRAGMA database_list").fetchall()
    path = next((file for _, name, file in found if name == "main"), "")
    opened = identity(path)
    database.create_function(FUNCTION, 0, lambda: _identity(path, opened))


def _identity(path: str, opened: tuple[int, int] | None) -> str:
    """Return the inode number, which outlives a restart and an in-place VACUUM."""
    if not path:
        return NO_FILE
    if opened is None or identity(path) != opened:
        raise FileNotFoundError(path)
    return f"{opened[1]}"


def identity(path: str) -> tuple[int, int] | None:
    """Tell the file that lies there from one that is put in its place."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of a text
    except OSError:
        return None
    return found.st_dev, found.st_ino
