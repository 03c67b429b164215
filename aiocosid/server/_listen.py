"""The connections of a process: their protocols, their number, and how long they may wait.

A connection is RESP if its first byte is ``*``, else HTTP.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from .._life.clock import SYSTEM_CLOCK
from ._resp import RespProtocol
from ._unfinished import reset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._app import App
    from ._service import Service

__all__ = ("CLOSE", "EitherProtocol", "Patience")

CLOSE: Final = (b"connection", b"close")
"""The header that says that a connection ends after an answer."""

COLON, END = b": ", b"\r\n"

ARRAY: Final = b"*"
"""The first byte of each RESP command; no HTTP method begins with it."""

MOST_HEAD: Final = 65_536
"""Maximum bytes of a request's line and headers."""

SLICE: Final = 256
"""Bytes that the parser receives at a time; they contain at most 14 requests."""

TURN: Final = 32
"""Slices that are parsed before other connections get their turn."""

AT_A_TIME: Final = 1000
"""Connections that are checked in one loop turn."""

RESP_IS_OFF: Final = b"-ERR RESP is off here: its table in the settings is [server.resp]\r\n"

TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def app_of(config: Any) -> App:  # noqa: ANN401 - uvicorn's
    """Return our application from inside the layers that uvicorn has put around it."""
    app: Any = config.loaded_app
    while not hasattr(app, "service"):
        app = app.app
    found: App = app
    return found


class EitherProtocol(asyncio.Protocol):
    """Becomes the protocol that the first byte selects; uvicorn creates one per connection."""

    def __init__(self, config: Any, server_state: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        self._config = config
        self._options = {"server_state": server_state, **options}
        self._connections: set[Any] = server_state.connections
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte; close the connection if there are too many."""
        self.transport = transport
        if len(self._connections) >= app_of(self._config).service.limits.connections:
            self.transport.abort()
            return
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Hand the connection over to its protocol."""
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
        """Close the connection: no request has arrived."""
        self.transport.close()


class _HttpProtocol(HttpToolsProtocol):
    """HTTP with limited heads and no queue of requests, both of which uvicorn's protocol lacks.

    The parser receives the data in slices, and none while a request waits behind another.  So a
    connection holds at most the requests of one slice and the bytes of one read.
    """

    cycle: Any  # the current request and its answer; None before the first
    _head = 0  # bytes since the end of the last head or body part
    _body = 0  # bytes of the last request's body so far
    _rest = b""  # the last data read, if the parser has not received all of it
    _at = 0  # how much of it the parser has received
    _turn: asyncio.Handle | None = None  # continues with the rest
    _is_noted = False  # whether it holds bytes of an incomplete request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.flow: _Flow = _Flow(transport)  # type: ignore[arg-type]
        self._service: Service = app_of(self.config).service

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        if self._turn is not None:
            self._turn.cancel()
        self._rest = b""
        self._service.unfinished.note(self, 0)
        super().connection_lost(exc)

    def abort(self) -> None:
        """End at once, and drop the buffers now, because the loop may report the end late."""
        reset(self.transport)
        self._rest = b""
        self.parser: Any = None

    def data_received(self, data: bytes) -> None:
        """Parse as much as may be parsed now."""
        if self._rest or self.pipeline or len(data) > SLICE:
            self._rest, self._at = self._rest[self._at :] + data, 0
            self._go_on()
        else:
            self._parse(data)
            self._note()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:  # noqa: ANN401 - as above
        cycle.__class__ = _Cycle
        super()._start_asgi_task(cycle, app)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer what has arrived: a client that stops sending may still read (not with TLS)."""
        while self._turn is not None:
            self._go_on()
        return self.scheme != "https" and self._ends_after_answers()

    def on_response_complete(self) -> None:
        """Start the next request, and parse more."""
        super().on_response_complete()
        if self._rest:
            self._go_on()

    def on_body(self, body: bytes) -> None:
        """Accept a part of a body, which does not count as part of the head.

        A client that keeps sending a body that was already refused is soon disconnected.
        """
        self._head = 0
        self._body += len(body)
        if self.cycle.response_complete and self._body > self._service.limits.body:
            self.transport.close()
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Start a request."""
        self._body = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, after the answers to earlier requests."""
        if not self._ends_after_answers():
            super().send_400_response(msg)

    def _go_on(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for _ in range(TURN):
            if self._at >= len(self._rest) or self.pipeline or self.transport.is_closing():
                break
            data = self._rest[self._at : self._at + SLICE]
            self._at += SLICE
            self._parse(data)
        if self._at < len(self._rest) and not self.transport.is_closing():
            self.flow.hold()
            if not self.pipeline:
                self._turn = self.loop.call_soon(self._go_on)
        else:
            self._rest, self._at = b"", 0
            is_full = self.cycle is not None and len(self.cycle.body) > HIGH_WATER_LIMIT
            self.flow.release(resume=not is_full)
        self._note()

    def _note(self) -> None:
        """Report how many bytes of incomplete requests are held."""
        cycle = self.cycle
        size = self._head + len(self._rest) - self._at
        if cycle is not None and cycle.more_body and not cycle.response_complete:
            size += 2 * self._body  # the parser's copy and the application's
        if size or self._is_noted:
            self._is_noted = bool(size)
            self._service.unfinished.note(self, size)

    def _parse(self, data: bytes) -> None:
        before = self.cycle  # None before the first request
        self._head += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._head = 0
        elif self._head > MOST_HEAD and not self.transport.is_closing():
            self._head = 0
            if not self._ends_after_answers():
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def _ends_after_answers(self) -> bool:
        """Stop reading, and close after the last answer; return whether an answer is due."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        if cycle.more_body and not self.pipeline:  # the rest of its body will never arrive
            return False
        cycle.keep_alive = False
        self._rest = b""
        self.flow.stop()
        return True


class _Cycle(RequestResponseCycle):
    """One request and its answer, which can be sent with one call."""

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Write an answer at once, as uvicorn would in two messages; do nothing in unusual cases.

        Args:
            status: the HTTP status.
            head: its headers as they are sent, with the final empty line.
            body: the whole body.

        Returns:
            Whether the answer was written or is no longer needed; otherwise it must be sent as
            messages.
        """
        if self.disconnected:
            return True
        is_usual = self.keep_alive and not (
            self.response_started or self.flow.write_paused or self.access_log
        )
        if not is_usual or CLOSE in self.default_headers:
            return False
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        ours = [part for name, value in self.default_headers for part in (name, COLON, value, END)]
        self.transport.write(b"".join((STATUS_LINE[status], *ours, head, body)))
        self.message_event.set()
        self.on_response()
        return True


class _Flow(FlowControl):
    """Stops reading until the parser has received all data; uvicorn resumes at each answer."""

    _is_held = _is_over = False

    def hold(self) -> None:
        """Stop reading, even if other code resumes it."""
        self._is_held = True
        self.pause_reading()

    def release(self, *, resume: bool) -> None:
        """End the hold, and read again unless a body must be consumed first."""
        if self._is_held and not self._is_over:
            self._is_held = False
            if resume:
                self.resume_reading()

    def stop(self) -> None:
        """Stop reading permanently."""
        self._is_over = True
        self.hold()

    def resume_reading(self) -> None:
        """Read again, unless reading is on hold."""
        if not self._is_held:
            super().resume_reading()


class Patience:
    """Closes the connections of a process whose clients keep it waiting too long.

    It checks all connections from time to time, so that requests need no timers.
    """

    def __init__(self, connections: Iterable[Any], timeout: float) -> None:
        """Watch connections.

        Args:
            connections: uvicorn's set of open connections.
            timeout: seconds that a client may take to send a request or to read an answer.
        """
        self._connections = connections
        self._timeout = timeout
        self._waiting: dict[Any, tuple[object, float]] = {}

    async def close_overdue(self, now: float) -> None:
        """Close the connections that have waited too long.

        Args:
            now: monotonic seconds; call this several times within the timeout.
        """
        waiting: dict[Any, tuple[object, float]] = {}
        for index, connection in enumerate(list(self._connections)):
            if index % AT_A_TIME == 0:
                await SYSTEM_CLOCK.sleep(0)  # give other connections their turn
            reason = _awaited(connection)
            if reason is None:
                continue
            before, since = self._waiting.get(connection, (None, now))
            since = since if before is reason else now
            if now - since >= self._timeout:
                reset(connection.transport)
            else:
                waiting[connection] = reason, since
        self._waiting = waiting


def _awaited(connection: Any) -> object | None:  # noqa: ANN401 - of either protocol
    """Return an object that stays the same while we wait for a client; None if we do not wait."""
    if isinstance(connection, EitherProtocol):
        return connection
    if isinstance(connection, RespProtocol):
        # A Redis client may keep its connection for as long as it likes, but must show its token,
        # and must read.
        return connection if connection.session.is_stranger else connection.unread
    if not isinstance(connection, HttpToolsProtocol):
        return None
    cycle: Any = connection.cycle  # the current request and its answer; None before the first
    if cycle is None:
        return connection
    keeps_waiting = cycle.response_complete or cycle.more_body or connection.flow.write_paused
    return cycle if keeps_waiting else None
