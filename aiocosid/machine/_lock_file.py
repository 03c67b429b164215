"""A file that one object of one process on this machine holds at a time.

Everything in here blocks on the disk: call it in a worker thread.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..errors import MachineIdInUseError
from ._files import os_errors
from .instance_ids import this_host

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("LockFile",)

MAX_HOLDER: Final = 200  # bytes that are read of the holder's note

if sys.platform == "win32":
    import msvcrt

    BEHIND_THE_TEXT: Final = 1 << 20
    """The locked byte.  Other processes cannot read it, so it lies behind the holder's note."""

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, BEHIND_THE_TEXT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        # Not lockf: its locks belong to the process, so two objects of one process would share
        # them, and closing any descriptor of the file would release them.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class LockFile:
    """A lock that the system releases when the process ends, in whatever way.

    The file stays behind: to remove it would let a second process lock a new file of that name
    while a third has just opened the old one.
    """

    __slots__ = ("_descriptor", "is_held", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_held = False
        self._descriptor: int | None = None

    def acquire(self, what: str) -> None:
        """Lock the file unless this object holds it already; note the holder in it.

        Raises:
            MachineIdInUseError: another object or process holds it.
            StoreError: the file cannot be made or locked.
        """
        with os_errors(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            while not self.is_held:
                try:
                    self._try(what)
                finally:
                    if not self.is_held:
                        self.abandon()

    def _try(self, what: str) -> None:
        # Stored at once: a child that is forked in the middle has to close its copy.
        descriptor = self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _lock(descriptor):
            raise MachineIdInUseError(what, holder=self._holder())
        if not self._is_the_file(descriptor):
            return  # removed after it was opened; the file in its place may be locked as well
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"process {os.getpid()} on {this_host()}".encode())
        self.is_held = True

    def is_intact(self) -> bool:
        """Whether it is held, and its path still names the locked file."""
        with os_errors(self.path):
            return self._descriptor is not None and self._is_the_file(self._descriptor)

    def name(self) -> str:
        """Return what names the held file, as long as anybody has it open; empty if none is held.

        A file of the same path that was created later has another name.
        """
        if self._descriptor is None:
            return ""
        with os_errors(self.path):
            held = os.fstat(self._descriptor)
        return f"{held.st_dev}:{held.st_ino}"

    def release(self) -> None:
        """Unlock the file, if it is held."""
        if self._descriptor is not None:
            with suppress(OSError):  # the note is for people; the lock ends by closing
                os.ftruncate(self._descriptor, 0)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor and leave the lock: for a forked child, whose parent still holds it.

        The lock ends when the last copy is closed.  A child that kept its copy would go on holding
        the id after its parent has died.
        """
        descriptor, self._descriptor, self.is_held = self._descriptor, None, False
        if descriptor is not None:
            os.close(descriptor)

    def _is_the_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        try:
            with self.path.open("rb") as file:
                note = file.read(MAX_HOLDER).decode(errors="replace")
        except OSError:
            note = ""
        return note or "a process that left no note"
