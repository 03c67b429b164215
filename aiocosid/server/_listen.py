"""The connections of a process: which protocol each speaks, how many there are, how long they wait.

A connection is RESP if its first byte is ``*``, else HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .._life.clock import SYSTEM_CLOCK
from ._resp import RespProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._app import App

__all__ = ("EitherProtocol", "Patience")

ARRAY: Final = b"*"
"""The first byte of each RESP command; no HTTP method begins with it."""

MOST_HEAD: Final = 65_536
"""Bytes of a request's line and headers."""

AT_ONCE: Final = struct.pack("ii", 1, 0)  # linger for no second
AT_A_TIME: Final = 1000
"""Connections that are looked at in one turn of the loop."""

RESP_IS_OFF: Final = b"-ERR RESP is off here: its table in the settings is [server.resp]\r\n"

TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def app_of(config: Any) -> App:  # noqa: ANN401 - uvicorn's
    """Return our application from within what uvicorn has put around it."""
    app: Any = config.loaded_app
    while not hasattr(app, "service"):
        app = app.app
    found: App = app
    return found


class EitherProtocol(asyncio.Protocol):
    """Becomes the protocol that the first byte belongs to; uvicorn makes one a connection."""

    def __init__(self, config: Any, server_state: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        self._config = config
        self._options = {"server_state": server_state, **options}
        self._connections: set[Any] = server_state.connections
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte; close a connection that is one too many."""
        self.transport = transport
        if len(self._connections) >= app_of(self._config).service.limits.connections:
            self.transport.abort()
            return
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Hand the connection over."""
        app = app_of(self._config)
        self._connections.discard(self)
        chosen: asyncio.Protocol
        if data.startswith(ARRAY):
            if app.resp is None:
                self.transport.write(RESP_IS_OFF)
                self.transport.close()
                return
            chosen = RespProtocol(app.service, app.resp, connections=self._connections)
        else:
            chosen = _HttpProtocol(config=self._config, **self._options)
        self.transport.set_protocol(chosen)
        chosen.connection_made(self.transport)
        chosen.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection that never sent a byte."""
        del exc
        self._connections.discard(self)

    def shutdown(self) -> None:
        """Close: nothing has been asked."""
        self.transport.close()


class _HttpProtocol(HttpToolsProtocol):
    """HTTP whose heads have a limit; uvicorn's has none."""

    _head = 0  # bytes since the last request began to be served

    def data_received(self, data: bytes) -> None:
        """Parse, and refuse a head that is too long."""
        before = self.cycle  # None before the first
        super().data_received(data)
        if self.cycle is not before or getattr(before, "more_body", False):
            self._head = 0  # they have ended a head, or are of a body
            return
        self._head += len(data)
        if self._head > MOST_HEAD and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()


class Patience:
    """Closes the connections of a process whose clients keep it waiting for too long.

    It looks at all connections now and then, so that requests do without timers.
    """

    def __init__(self, connections: Iterable[Any], timeout: float) -> None:
        """Watch connections.

        Args:
            connections: uvicorn's set of those that are open.
            timeout: seconds that a client may take to send a request or to read an answer.
        """
        self._connections = connections
        self._timeout = timeout
        self._waiting: dict[Any, tuple[object, float]] = {}

    async def close_overdue(self, now: float) -> None:
        """Close the connections that have waited for too long.

        Args:
            now: seconds of a monotonic clock; call it several times within the timeout.
        """
        waiting: dict[Any, tuple[object, float]] = {}
        for index, connection in enumerate(list(self._connections)):
            if index % AT_A_TIME == 0:
                await SYSTEM_CLOCK.sleep(0)  # other connections' turn
            reason = _awaited(connection)
            if reason is None:
                continue
            before, since = self._waiting.get(connection, (None, now))
            since = since if before is reason else now
            if now - since >= self._timeout:
                _reset(connection.transport)
            else:
                waiting[connection] = reason, since
        self._waiting = waiting


def _reset(transport: Any) -> None:  # noqa: ANN401 - of either loop
    """Close a connection at once; the kernel does not keep an answer that nobody reads."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    transport.abort()


def _awaited(connection: Any) -> object | None:  # noqa: ANN401 - of either protocol
    """Return an object that stays the same while we wait for a client; None if we do not."""
    if isinstance(connection, EitherProtocol):
        return connection
    if isinstance(connection, RespProtocol):
        # A client of Redis may keep its connection for as long as it likes, but has to read.
        return connection.unread
    if not isinstance(connection, HttpToolsProtocol):
        return None
    cycle: Any = connection.cycle  # one request and its answer; None before the first
    if cycle is None:
        return connection
    keeps_waiting = cycle.response_complete or cycle.more_body or connection.flow.write_paused
    return cycle if keeps_waiting else None
