"""The sockets that the server listens on: bound here, or passed by systemd."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidArgumentError
from ..provider.settings import Address, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ("Listener", "bound", "refusal")

BACKLOG: Final = 2048  # connections that wait to be accepted; the same as uvicorn's

FIRST: Final = 3
"""The first descriptor that systemd passes."""

PATIENCE: Final = 1.0  # seconds for another server to answer on a Unix socket


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket.

    Attributes:
        socket: the socket.
        name: its address, as written in settings.
        is_public: whether other machines may reach it.
        file: path, device and inode of a Unix socket that this server must remove.
    """

    socket: socket.socket
    name: str
    is_public: bool = False
    file: tuple[Path, tuple[int, int]] | None = None

    def close(self) -> None:
        """Close the socket, and remove its file if no other server has replaced it."""
        self.socket.close()
        if self.file is not None:
            path, identity = self.file
            with suppress(OSError):
                if _identity(path) == identity:
                    path.unlink()


def bound(addresses: Iterable[Address], *, unix_mode: int) -> list[Listener]:
    """Return a socket for each address; none of them listens yet.

    Args:
        addresses: what to bind.
        unix_mode: the permissions of Unix sockets.

    Raises:
        InvalidArgumentError: an address is in use, or cannot be bound.
    """
    with ExitStack() as stack:
        found: list[Listener] = []
        for address in addresses:
            try:
                for each in _bound(address, unix_mode):
                    stack.callback(each.close)
                    found.append(each)
            except OSError as error:
                rule = f"cannot be bound: {_reason(address, error)}"
                raise InvalidArgumentError("listen", str(address), rule) from error
        stack.pop_all()
    return found


def _reason(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there; stop it, or name another address"
    if error.errno == errno.ENOENT:
        return f"create the directory of {address} first"
    return error.strerror or str(error)


def _bound(address: Address, unix_mode: int) -> Iterator[Listener]:
    if address.path:
        yield _unix(address.path, unix_mode)
    elif address.host:
        yield from _tcp(address)
    else:
        yield from _inherited()


def _tcp(address: Address) -> Iterator[Listener]:
    infos = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for family, kind, protocol, _, name in dict.fromkeys(infos):
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(name)
        except OSError:
            made.close()
            raise
        yield _described(made)


def _unix(path: str, mode: int) -> Listener:
    _remove_stale(Path(path))
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(~mode & 0o777)  # so that no other user can connect before a chmod
    try:
        made.bind(path)
        made.listen(BACKLOG)  # at once, so that no server treats its file as stale
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    return Listener(made, str(Address(path=path)), file=(Path(path), _identity(Path(path))))


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _remove_stale(path: Path) -> None:
    """Remove the file of a server that ended without removing it.

    Raises:
        OSError: the file is not a socket, or a server is listening.
    """
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(errno.EEXIST, "there is a file that is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PATIENCE)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _inherited() -> Iterator[Listener]:
    """Take over the sockets that systemd passes, once.

    Raises:
        OSError: systemd has passed no sockets.
    """
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) == 0:
        raise OSError(errno.EBADF, "systemd has passed no socket to this process")
    for descriptor in range(FIRST, FIRST + int(count)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the function has no keyword
        yield _described(socket.socket(fileno=descriptor))


def _described(made: socket.socket) -> Listener:
    """Return a TCP socket, or one of systemd's, with its address."""
    name: Any = made.getsockname()
    if made.family == socket.AF_UNIX:
        return Listener(made, str(Address(path=os.fsdecode(name))))
    host, port, *_ = name
    return Listener(made, str(Address(host=host, port=port)), is_public=not is_loopback(host))


def refusal(sockets: Iterable[socket.socket]) -> Callable[[], None]:
    """Return a function that refuses new and waiting connections until a process listens again.

    It works on Linux, over TCP, and not for systemd's sockets; other connections still wait.

    Args:
        sockets: the sockets from `bound`; no other process may listen yet.
    """
    inet = socket.AF_INET, socket.AF_INET6  # Unix sockets could not be reopened
    found = [
        each
        for each in sockets
        if each.family in inet and not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ]

    def refuse() -> None:
        for each in found:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    return refuse
