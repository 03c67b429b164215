"""Calls to an aiocosid server with RESP over its Unix socket, twice as fast as HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio

from ..._life import fork
from ...errors import (
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from .._connection import closed
from ..wire import LABEL
from ._backend import answer_of

try:
    import hiredis
except ModuleNotFoundError as _exc:
    raise MissingExtraError("hiredis", extra="redis") from _exc

__all__ = ("UnixEndpoint",)

CALLS_AT_ONCE: Final = 32
REFUSED: Final = ("NOAUTH", "NOPERM", "WRONGPASS")


class UnixEndpoint:
    """One server's socket; each call has its own connection, which is kept for the next call."""

    __slots__ = ("_idle", "_is_closed", "_open", "_path", "_slots", "_token")

    def __init__(self, path: str, *, token: str) -> None:
        """Describe the server; nothing is sent yet.  It needs a running loop.

        Args:
            path: the socket's path.
            token: the token to send to the server; empty for none.
        """
        self._path, self._token = path, token
        self._idle: list[RespConnection] = []
        self._open: set[RespConnection] = set()
        self._slots = anyio.Semaphore(CALLS_AT_ONCE, fast_acquire=True)
        self._is_closed = False

    async def exchange(self, op: str, args: bytes, *, seconds: float) -> dict[str, Any]:
        """Send a call once; see `RemoteEndpoint.exchange`.

        A connection whose call was cancelled is closed, because no other call may receive its
        answer.
        """
        try:
            async with asyncio.timeout(seconds), self._slots:
                if self._is_closed:
                    raise closed(LABEL)
                wire = await self._wire()
                try:
                    reply = await wire.ask("AIOCOSID", op, args)
                except BaseException:
                    self._drop(wire)
                    raise
                self._idle.append(wire)
        except TimeoutError:
            raise StoreUnavailableError(LABEL, f"no answer within {seconds:.3g} s") from None
        except OSError as exc:
            if self._is_closed:
                raise closed(LABEL) from exc
            reason = f"{self._path}: {exc.strerror or str(exc) or type(exc).__name__}"
            remedy = ""
            if isinstance(exc, FileNotFoundError | ConnectionRefusedError):
                reason = f"no server listens at {self._path}"
                remedy = "start 'aiocosid serve' or 'aiocosid broker', or correct the path"
            raise StoreUnavailableError(LABEL, reason, remedy=remedy) from exc
        return answer_of(reply)

    async def _wire(self) -> RespConnection:
        while self._idle:
            wire = self._idle.pop()
            if not wire.is_lost:
                return wire
            self._open.discard(wire)
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_unix_connection(RespConnection, self._path)
        if self._is_closed:  # closed while it connected
            wire.transport.abort()
            raise closed(LABEL)
        self._open.add(wire)
        try:
            if self._token:
                await wire.ask("AUTH", self._token)
        except BaseException:
            self._drop(wire)
            raise
        return wire

    def _drop(self, wire: RespConnection) -> None:
        self._open.discard(wire)
        wire.transport.abort()

    async def aclose(self) -> None:
        """Close the connections; running calls fail."""
        self._is_closed = True
        for wire in (*self._open,):
            self._drop(wire)
        self._idle.clear()
        await asyncio.sleep(0)  # the transports close in the next loop turn

    def silence(self) -> None:
        """Keep the parent's connections from sending anything in a forked child."""
        fork.silence(wire.transport.get_extra_info("socket") for wire in self._open)


class RespConnection(asyncio.Protocol):
    """One connection, with one call at a time.

    Attributes:
        transport: the connection's transport.
        is_lost: whether the connection was lost.
    """

    transport: Any  # uvloop's transport is not an asyncio.Transport

    def __init__(self) -> None:
        self.is_lost = False
        self._reader = hiredis.Reader()
        self._reply: asyncio.Future[Any] | None = None

    async def ask(self, *words: Any) -> bytes:  # noqa: ANN401 - text or bytes
        """Send a command, and return its reply.

        Raises:
            OSError: the connection was lost.
            StoreAuthenticationError: the token is missing, wrong, or has expired.
            StoreError: the server refuses.
        """
        if self.is_lost:
            raise ConnectionResetError("the server has closed the connection")
        self._reply = asyncio.get_running_loop().create_future()
        pack: Any = hiredis.pack_command  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        self.transport.write(pack(words))
        try:
            reply = await self._reply
        finally:
            self._reply = None
        if isinstance(reply, hiredis.ReplyError):
            kind = StoreAuthenticationError if str(reply).startswith(REFUSED) else StoreError
            raise kind(LABEL, str(reply))
        return reply if isinstance(reply, bytes) else b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse received data; a reply ends the call."""
        self._reader.feed(data)
        try:
            reply = self._reader.gets()
        except hiredis.ProtocolError as exc:
            self._end(ConnectionResetError(f"no RESP: {exc}"))
            self.transport.abort()
            return
        if reply is not False and self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the running call."""
        self.is_lost = True
        self._end(exc or ConnectionResetError("the server has closed the connection"))

    def _end(self, exc: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc)
