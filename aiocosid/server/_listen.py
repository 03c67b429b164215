"""The connections of a process: which protocol each speaks, how many there are, how long they wait.

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
"""What says that a connection ends after an answer."""

COLON, END = b": ", b"\r\n"

ARRAY: Final = b"*"
"""The first byte of each RESP command; no HTTP method begins with it."""

MOST_HEAD: Final = 65_536
"""Bytes of a request's line and headers."""

SLICE: Final = 256
"""Bytes that the parser gets at a time; the requests in them are 14 at most."""

TURN: Final = 32
"""Slices before other connections have their turn."""

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
    """HTTP whose heads have a limit, and whose requests do not queue up; uvicorn's has neither.

    The parser gets what has arrived in slices, and none while a request waits behind another.  So a
    connection holds the requests of one slice, and the bytes of one read.
    """

    cycle: Any  # one request and its answer; None before the first
    _head = 0  # bytes since the last head, or part of a body, has ended
    _body = 0  # bytes of the last request's body so far
    _rest = b""  # what was read last, if the parser has not got all of it,
    _at = 0  # and how much of it the parser has got
    _turn: asyncio.Handle | None = None  # goes on with it
    _is_noted = False  # whether it holds bytes of what is not whole

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.flow: _Flow = _Flow(transport)  # type: ignore[arg-type]
        self._service: Service = app_of(self.config).service

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._turn is not None:
            self._turn.cancel()
        self._rest = b""
        self._service.unfinished.note(self, 0)
        super().connection_lost(exc)

    def abort(self) -> None:
        """End at once; what it holds goes now, for the loop may tell its end late."""
        reset(self.transport)
        self._rest = b""
        self.parser: Any = None

    def data_received(self, data: bytes) -> None:
        """Parse what may be parsed now."""
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
        """Answer what has arrived: who sends no more may still read; with TLS it cannot."""
        while self._turn is not None:
            self._go_on()
        return self.scheme != "https" and self._ends_after_answers()

    def on_response_complete(self) -> None:
        """Begin the next request, and parse more."""
        super().on_response_complete()
        if self._rest:
            self._go_on()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which is not held against the head.

        Who goes on to send what was refused already is not listened to for long.
        """
        self._head = 0
        self._body += len(body)
        if self.cycle.response_complete and self._body > self._service.limits.body:
            self.transport.close()
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Begin a request."""
        self._body = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, after the answers to what was."""
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
        """Say how much is held of what is not whole."""
        cycle = self.cycle
        size = self._head + len(self._rest) - self._at
        if cycle is not None and cycle.more_body and not cycle.response_complete:
            size += 2 * self._body  # the parser's, and the application's
        if size or self._is_noted:
            self._is_noted = bool(size)
            self._service.unfinished.note(self, size)

    def _parse(self, data: bytes) -> None:
        before = self.cycle  # None before the first
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
        """Read nothing more, and close after the last answer; return whether one is due."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        if cycle.more_body and not self.pipeline:  # the rest of its body never comes
            return False
        cycle.keep_alive = False
        self._rest = b""
        self.flow.stop()
        return True


class _Cycle(RequestResponseCycle):
    """One request and its answer, which can be sent by one call."""

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Write an answer at once, as uvicorn would by two messages; do nothing if it is unusual.

        Args:
            status: the HTTP status.
            head: its headers as they are sent, with the empty line behind them.
            body: the whole body.

        Returns:
            Whether it is written, or needed no more; else it has to be sent as messages.
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
    """Reads nothing while the parser has not got what was read; uvicorn resumes at each answer."""

    _is_held = _is_over = False

    def hold(self) -> None:
        """Do not read, whatever else wants to."""
        self._is_held = True
        self.pause_reading()

    def release(self, *, resume: bool) -> None:
        """Hold it no longer, and read again unless a body is to be consumed first."""
        if self._is_held and not self._is_over:
            self._is_held = False
            if resume:
                self.resume_reading()

    def stop(self) -> None:
        """Never read again."""
        self._is_over = True
        self.hold()

    def resume_reading(self) -> None:
        """Read again, unless it is held."""
        if not self._is_held:
            super().resume_reading()


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
                reset(connection.transport)
            else:
                waiting[connection] = reason, since
        self._waiting = waiting


def _awaited(connection: Any) -> object | None:  # noqa: ANN401 - of either protocol
    """Return an object that stays the same while we wait for a client; None if we do not."""
    if isinstance(connection, EitherProtocol):
        return connection
    if isinstance(connection, RespProtocol):
        # A client of Redis may keep its connection for as long as it likes, but has to show its
        # token, and to read.
        return connection if connection.session.is_stranger else connection.unread
    if not isinstance(connection, HttpToolsProtocol):
        return None
    cycle: Any = connection.cycle  # one request and its answer; None before the first
    if cycle is None:
        return connection
    keeps_waiting = cycle.response_complete or cycle.more_body or connection.flow.write_paused
    return cycle if keeps_waiting else None
