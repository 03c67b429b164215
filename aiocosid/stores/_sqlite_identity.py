"""Which file it is that a connection works on, as a function of SQL.

A copied, restored or replaced file has another inode number than the one that its marker tells of.
A number is not used again while somebody has the old file open, as whoever holds a machine id has.
What is written over in place, and a file that was moved away and comes back, cannot be told.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

__all__ = ("IDENTITY", "tell_identity")

FUNCTION: Final = "aiocosid_identity"
IDENTITY: Final = f"{FUNCTION}()"
NO_FILE: Final = "memory"  # it ends with its connections
GONE: Final = "gone"  # deleted under the connection


def tell_identity(database: sqlite3.Connection) -> None:
    """Let the statements of a connection ask for it."""
    with closing(database.cursor()) as cursor:
        cursor.row_factory = None
        found = cursor.execute("PRAGMA database_list").fetchall()
    path = next((file for _, name, file in found if name == "main"), "")
    database.create_function(FUNCTION, 0, lambda: _identity(path))


def _identity(path: str) -> str:
    """Return the inode number, which outlives a restart and an in-place VACUUM."""
    if not path:
        return NO_FILE
    try:
        return f"{os.stat(path).st_ino}"  # noqa: PTH116 - of a text
    except OSError:
        return GONE
