"""Just enough of the Redis protocol to set servers up without a driver."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import BinaryIO, Final, TypeAlias

Reply: TypeAlias = "int | str | list[Reply] | None"

TIMEOUT: Final = 5.0  # seconds; an orchestration command answers within milliseconds


class RespError(Exception):
    """The server answered with an error; the message is the server's."""


def call(
    address: tuple[str, int] | str,  # or the path of a unix socket
    *words: str | int,
    auth: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    timeout: float = TIMEOUT,
) -> Reply:
    """Open a connection, run one command and give its reply; OSError when nobody answers."""
    unix = isinstance(address, str)
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as plain:
        plain.settimeout(timeout)
        plain.connect(address)
        if tls is None:
            return _converse(plain, auth, words)
        with tls.wrap_socket(plain, server_hostname="localhost") as wrapped:
            return _converse(wrapped, auth, words)


def _converse(connection: socket.socket, auth: Sequence[str], words: Sequence[str | int]) -> Reply:
    with connection.makefile("rb") as replies:
        if auth:
            connection.sendall(_encode(["AUTH", *auth]))
            _read(replies)
        connection.sendall(_encode(words))
        return _read(replies)


def _encode(words: Sequence[str | int]) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def _read(replies: BinaryIO) -> Reply:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection")
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b"+":
        return rest
    if kind == b"-":
        raise RespError(rest)
    if kind == b":":
        return int(rest)
    length = int(rest)
    if length < 0:
        return None
    if kind == b"$":
        return replies.read(length + 2)[:-2].decode()
    return [_read(replies) for _ in range(length)]
