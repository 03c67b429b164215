"""The file of a SQLite database: whether it was replaced, and whether its names agree.

SQLite keeps a journal or a log beside the file, under the file's name.  A process that opens the
file under another name, or in a container into which the file alone was mounted, has another
journal: neither process sees what the other one is writing.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("OpenedFile", "ensure_shared", "identity")

_MOUNT: Final = re.compile(r"^mnt_id:\s*(\d+)$", re.MULTILINE)
_IS_LINUX: Final = sys.platform == "linux"


def identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file, to detect that it was replaced."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of a text
    except OSError:
        return None
    return found.st_dev, found.st_ino


def ensure_shared(path: str, label: str) -> None:
    """Raise `StoreError` if other processes may use the file with another journal.

    Where the system does not tell what is mounted, only links are noticed.

    Args:
        path: the file; an empty text is a database without one.
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
        reason = f"the file has {links} names (hard links), and SQLite keeps a journal beside each"
        remedy = "remove the other names; a symbolic link may be used instead"
    elif len(set(_mounts((path, folder)))) > 1:
        reason = (
            "the file itself is mounted here, and SQLite's journal beside it belongs to this "
            "container alone"
        )
        remedy = f"mount its folder instead, as in -v ./data:{folder}"
    else:
        return
    raise StoreError(label, f"{reason}; ids would be issued again", remedy=remedy)


def _mounts(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the number of the mount that each path is in, as far as it is known.

    A bind mount has the device of what it shows, so ``st_dev`` does not tell.
    """
    for path in paths if _IS_LINUX else ():
        with suppress(OSError):
            # Another kind of descriptor would release SQLite's locks on the file when it is closed.
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                with open(f"/proc/self/fdinfo/{found}", encoding="ascii") as facts:  # noqa: PTH123
                    yield from _MOUNT.findall(facts.read(4096))
            finally:
                os.close(found)


class OpenedFile:
    """A file, and its write-ahead log if it has one, as they were when a connection opened them.

    As long as a connection has a log open, it stays there, the same file.
    """

    __slots__ = ("_file", "_log", "_log_path", "_path")

    def __init__(self, path: str) -> None:
        """Look at the file; its log is looked at with each call of `is_there`."""
        self._path = path
        self._log_path = f"{os.path.realpath(path)}-wal"
        self._file = identity(path)
        self._log: tuple[int, int] | None = None

    @property
    def number(self) -> int | None:
        """The file's inode number; None if it was not there."""
        return None if self._file is None else self._file[1]

    def is_there(self) -> bool:
        """Whether both are still there."""
        found, log = identity(self._path), identity(self._log_path)
        self._log = self._log or log
        return found is not None and found == self._file and log == self._log

    def reopen(self) -> None:
        """Accept another log, because the last connection to close removes it."""
        self._log = None
