"""Small files that survive a crash.  Everything in here blocks: call it in a worker thread."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import InvalidArgumentError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = (
    "STORE",
    "create_text",
    "default_state_dir",
    "os_errors",
    "read_text",
    "remove",
    "write_text",
)

STORE: Final = "machine state"
"""The kind of store, for error messages."""

NOT_BY_WAITING: Final = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EILSEQ),
}
"""Errors that the same call would run into again."""

NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""What a file system without hard links answers."""

MAX_TEXT: Final = 4096
"""Bytes.  A state has at most 31; of any other file the beginning is enough."""


def default_state_dir() -> Path:
    """Return CosId's own directory, ``~/.cosid-machine-state``.

    Raises:
        InvalidArgumentError: there is no home directory.
    """
    try:
        return Path.home() / ".cosid-machine-state"
    except RuntimeError:
        expected = "a directory, where this user has no home directory"
        raise InvalidArgumentError("state_dir", None, expected=expected) from None


@contextmanager
def os_errors(path: Path) -> Generator[None]:
    """Turn the system's errors into ours, naming the file and the way out."""
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

    Of several concurrent calls exactly one creates it.
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
    # A crash in the middle leaves a file that is damaged.
    with path.open("xb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _written(directory: Path, text: str) -> Generator[Path]:
    """Yield a temporary file that holds the text; remove it at the end, and sync the directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A dot in front: CosId ignores names that are not its own.
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
    if sys.platform == "win32":  # a directory cannot be opened there; NTFS keeps a journal
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
