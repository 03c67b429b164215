"""A connection of RESP without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import hiredis

from aiocosid._life.clock import SYSTEM_CLOCK
from aiocosid.abc import Clock, IdSegmentDistributor
from aiocosid.provider import IdProvider
from aiocosid.server import Limits, Token
from aiocosid.server._resp import RespProtocol
from aiocosid.server._service import Service
from aiocosid.server.dialects.resp import commands
from aiocosid.stores.memory import MemoryStore

__all__ = ("Around", "Wire", "command")

TURNS = 50


def command(*words: str | bytes | int) -> bytes:
    """One command as clients send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def words(text: str) -> bytes:
    """Commands whose words have blanks between them."""
    return b"".join(command(*line.split()) for line in text.split("; "))


class Around(MemoryStore):
    """A store whose counters are wrapped, so that they have to be awaited.

    Attributes:
        made: the wrapped counters, by name.
    """

    __slots__ = ("_wrap", "made")

    def __init__(self, wrap: Callable[[IdSegmentDistributor], Any]) -> None:
        super().__init__()
        self._wrap = wrap
        self.made: dict[str, Any] = {}

    def segment_distributor(self, **described: Any) -> Any:
        """A counter, and its wrapping."""
        made = self._wrap(super().segment_distributor(**described))
        self.made[described["name"]] = made
        return made


class Wire(asyncio.Transport):
    """A client, and the server's side of its connection.

    Attributes:
        sent: what the server has written.
        is_closed: whether the server has ended the connection.
        takes_more: whether the server takes more.
        protocol: the server's side.
    """

    def __init__(
        self,
        store: Any = None,
        *,
        tokens: Iterable[Token] = (),
        limits: Limits | None = None,
        table: Any = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False
        self.takes_more = True
        store = store or MemoryStore()
        provider = IdProvider(store)
        self.service = Service(provider, store=store, tokens=tokens, limits=limits)
        self.service.adopt(provider)
        self.protocol = RespProtocol(self.service, table or commands(), clock=clock)
        self.protocol.connection_made(self)

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        self.takes_more = False

    def resume_reading(self) -> None:
        self.takes_more = True

    def is_closing(self) -> bool:
        return self.is_closed

    def feed(self, data: bytes) -> None:
        """Let bytes arrive."""
        if not self.is_closed:
            self.protocol.data_received(data)

    async def settle(self) -> None:
        """Let the server do what it can do without another event."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def replies(self) -> list[Any]:
        """What has been answered since the last time; errors as texts."""
        reader = hiredis.Reader(notEnoughData=self)
        reader.feed(self.sent)
        self.sent = b""
        found = list[Any]()
        while (reply := reader.gets()) is not self:
            found.append(str(reply) if isinstance(reply, hiredis.ReplyError) else reply)
        assert not reader.has_data()
        return found

    async def ask(self, *commands: bytes | str) -> list[Any]:
        """Send commands at once, as bytes or as words, "GET a; PING"; the replies."""
        told = (each if isinstance(each, bytes) else words(each) for each in commands)
        self.feed(b"".join(told))
        await self.settle()
        return self.replies()
