"""Small files that survive a crash, and lock files that only one object at a time can hold.

Everything here blocks on the disk: call it in a worker thread, with `in_thread`.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from anyio import to_thread

from ..errors import (
    InvalidArgumentError,
    MachineIdInUseError,
    StoreError,
    StoreUnavailableError,
)
from .instance_ids import this_host

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = (
    "STORE",
    "LockFile",
    "create_text",
    "default_state_dir",
    "in_thread",
    "os_errors",
    "read_text",
    "remove",
    "write_text",
)

T = TypeVar("T")

STORE: Final = "machine state"
"""The kind of store, for error messages."""

NOT_BY_WAITING: Final = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EILSEQ),
}
"""Errors that the same call would meet again."""

NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""Errors that a file system without hard links answers with."""

MAX_TEXT: Final = 4096
"""Bytes.  A state has at most 31; of any other file the first bytes are enough."""


async def in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a worker thread; a cancelled caller does not wait for its end.

    Otherwise a hanging disk or network file system would hold the caller past every deadline.
    """
    return await to_thread.run_sync(function, abandon_on_cancel=True)


def default_state_dir() -> Path:
    """Return CosId's own directory, ``~/.cosid-machine-state``.

    Raises:
        InvalidArgumentError: there is no home directory.
    """
    try:
        return Path.home() / ".cosid-machine-state"
    except RuntimeError:
        rule = "is required: this user has no home directory"
        raise InvalidArgumentError("state_dir", None, rule) from None


@contextmanager
def os_errors(path: Path) -> Generator[None]:
    """Raise the system's errors as a `StoreError` that names the file and what to do."""
    try:
        yield
    except OSError as error:
        kind = StoreError if error.errno in NOT_BY_WAITING else StoreUnavailableError
        reason = f"{path}: {error.strerror or error}; state_dir may name another directory"
        raise kind(STORE, reason) from error


def read_text(path: Path) -> str | None:
    """Return the file's text, or None if there is no file; bytes that are not UTF-8 are escaped."""
    with os_errors(path):
        try:
            with path.open("rb") as file:
                return file.read(MAX_TEXT).decode(errors="backslashreplace")
        except FileNotFoundError:
            return None


def write_text(path: Path, text: str) -> None:
    """Replace the file atomically: after a crash it holds the old text or the new one.

    When it returns, the new text is on the disk and not only in the system's memory.
    """
    with os_errors(path), _written(path.parent, text) as temporary:
        temporary.replace(path)


def create_text(path: Path, text: str) -> bool:
    """Create the file, whole and durable, unless it exists; return whether this call created it.

    If several calls run at once, exactly one of them creates it.
    """
    with os_errors(path), _written(path.parent, text) as temporary:
        try:
            _link(temporary, path, text)
        except FileExistsError:
            return False
        return True


def _link(temporary: Path, path: Path, text: str) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    else:
        return
    # Without hard links, a crash in the middle leaves a damaged file.
    with path.open("xb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _written(directory: Path, text: str) -> Generator[Path]:
    """Yield a temporary file with that text; remove it at the end, and sync the directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The name begins with a dot because CosId ignores names that are not its own.
    descriptor, name = tempfile.mkstemp(prefix=".aiocosid-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        with suppress(OSError):
            Path(name).unlink()
    _sync_directory(directory)


def remove(path: Path) -> None:
    """Remove the file, if it is there."""
    with os_errors(path):
        path.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """Make the new name durable as well."""
    if sys.platform == "win32":  # a directory cannot be opened there, and NTFS keeps a journal
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


MAX_HOLDER: Final = 200  # bytes read of the text that names the holder

if sys.platform == "win32":
    import msvcrt

    BEHIND_THE_TEXT: Final = 1 << 20
    """The locked byte.  Other processes cannot read it, so it is behind the holder's text."""

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
    """A lock that the operating system releases when the process ends, however it ends.

    The file is never removed.  Otherwise a second process could lock a new file of that name while
    a third has just opened the old one.
    """

    __slots__ = ("_descriptor", "is_held", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_held = False
        self._descriptor: int | None = None

    def acquire(self, what: str) -> None:
        """Lock the file unless this object already holds it; write the holder's name to it.

        Raises:
            MachineIdInUseError: another object or process holds it.
            StoreError: the file cannot be created or locked.
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
        # Stored at once, so that a child forked in the meantime can close its copy.
        descriptor = self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _lock(descriptor):
            raise MachineIdInUseError(what, holder=self._holder())
        if not self._is_the_file(descriptor):
            return  # it was removed after it was opened, and the file in its place may be locked
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"process {os.getpid()} on {this_host()}".encode())
        self.is_held = True

    def is_intact(self) -> bool:
        """Whether it is held, and its path still names the locked file."""
        with os_errors(self.path):
            return self._descriptor is not None and self._is_the_file(self._descriptor)

    def name(self) -> str:
        """Return a name for the held file, unique while a process has it open; empty if none is.

        A file that is created later at the same path has another name.
        """
        if self._descriptor is None:
            return ""
        with os_errors(self.path):
            held = os.fstat(self._descriptor)
        return f"{held.st_dev}:{held.st_ino}"

    def release(self) -> None:
        """Unlock the file, if it is held."""
        if self._descriptor is not None:
            with suppress(OSError):  # only people read the text; closing ends the lock
                os.ftruncate(self._descriptor, 0)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor without unlocking: for a forked child, whose parent holds the lock.

        The lock ends when the last copy is closed.  If a child kept its copy, it would still hold
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
