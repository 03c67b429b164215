"""RESP, the protocol of Redis: commands of a connection, in order, and their replies.

Commands that have arrived together are served together: additions to one counter that follow each
other are one addition on the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import hiredis

from ..errors import CosIdError
from ._problems import Problem
from ._tokens import Access

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._service import Service

__all__ = ("Command", "RespError", "RespProtocol", "Session", "encoded")

RESP3: Final = 3

MOST_WAITING: Final = 1000
"""Commands of one connection that wait; then nothing more is read from it."""


class RespError(Exception):
    """An error reply: a code in capitals, and a text."""


def encoded(value: object, *, protocol: int = 2) -> bytes:
    """Return a reply.

    Args:
        value: an integer, bytes, text for a simple string, None, a list, a dict or a `RespError`.
        protocol: 2 or 3.
    """
    if isinstance(value, dict):
        mapping = cast("dict[object, object]", value)
        is_map = protocol == RESP3
        start = b"%%%d\r\n" % len(mapping) if is_map else b"*%d\r\n" % (2 * len(mapping))
        parts = [part for pair in mapping.items() for part in pair]
        return start + b"".join(encoded(part, protocol=protocol) for part in parts)
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return b"*%d\r\n" % len(parts) + b"".join(encoded(p, protocol=protocol) for p in parts)
    return _scalar(value, protocol)


def _scalar(value: object, protocol: int) -> bytes:
    match value:
        case int():
            return b":%d\r\n" % value
        case str():
            return b"+%s\r\n" % value.encode()
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case RespError():
            return b"-%s\r\n" % str(value).replace("\r", " ").replace("\n", " ").encode()
        case None:
            return b"_\r\n" if protocol == RESP3 else b"$-1\r\n"
        case _:
            raise TypeError(value)


class Session:
    """What one connection has said about itself.

    Attributes:
        service: the server.
        protocol: 2 or 3.
        access: what it may do; None before it has shown its token.
    """

    __slots__ = ("access", "protocol", "service")

    def __init__(self, service: Service) -> None:
        self.service = service
        self.protocol = 2
        self.access: Access | None = None if service.tokens else Access()


Command: TypeAlias = Callable[[Session, list[bytes]], Awaitable[object]]
"""Serves a command, by the words that follow its name; returns what `encoded` takes."""


async def _unknown(_session: Session, _words: list[bytes]) -> object:
    raise RespError("ERR unknown command")


class RespProtocol(asyncio.Protocol):
    """One connection.

    Args:
        service: the server.
        commands: what it serves, by name.
        connections: the open connections of the process; it enters itself, and leaves.
    """

    def __init__(
        self,
        service: Service,
        commands: Mapping[bytes, Command],
        connections: set[Any] | None = None,
    ) -> None:
        self._connections: set[Any] = set() if connections is None else connections
        self._is_ending = False
        self._session = Session(service)
        self._commands = commands
        self._reader = hiredis.Reader(notEnoughData=self)
        self._waiting: list[list[bytes]] = []
        self._task: asyncio.Task[None] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._connections.add(self)
        session = self._session
        if session.service.trusts(transport.get_extra_info("sockname")):
            session.access = Access()

    def data_received(self, data: bytes) -> None:
        """Take commands."""
        self._reader.feed(data)
        while (command := self._reader.gets()) is not self:
            self._waiting.append(command)
        if self._task is None and self._waiting:
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            replies = [await self._run(command) for command in batch]
            if self._transport is not None:
                self._transport.write(b"".join(replies))
        self._task = None
        if self._is_ending and self._transport is not None:
            self._transport.close()

    def shutdown(self) -> None:
        """Answer what has arrived, and close."""
        self._is_ending = True
        if self._task is None and self._transport is not None:
            self._transport.close()

    async def _run(self, command: list[bytes]) -> bytes:
        answer: object
        try:
            run = self._commands.get(command[0].upper(), _unknown)
            answer = await run(self._session, command[1:])
        except RespError as error:
            answer = error
        except Problem as error:
            answer = RespError(f"ERR {error.detail}")
        except CosIdError as error:
            answer = RespError(f"ERR {type(error).__name__}")
        return encoded(answer, protocol=self._session.protocol)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        self._connections.discard(self)
        self._transport = None
