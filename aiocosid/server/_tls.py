"""TLS: its certificate, and connections that count from before their handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .._life.clock import SYSTEM_CLOCK
from ..errors import InvalidArgumentError
from ..provider.settings.certificates import certificate_ends

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from ..provider.settings import Settings

__all__ = ("TlsServer", "certificate_end_ms", "context_of")

FAREWELL: Final = 2.0
"""Seconds that a client may take to confirm the end of its connection."""

PAUSE: Final = 0.1  # seconds, while there are no files for another connection

HANDSHAKES: Final = 400
"""At a time: each costs 60 kB, and a millisecond of the processor; others wait in the backlog."""

STALLED: Final = 0.5
"""Seconds after which a handshake gives its place to another; those before it cost less."""

GLANCE: Final = 0.01  # seconds, while all places are taken


def context_of(settings: Settings) -> ssl.SSLContext | None:
    """Return what TLS needs; None without TLS.

    Raises:
        InvalidArgumentError: a file cannot be read, or is none of TLS.
    """
    server = settings.server
    if server.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(server.tls_certificate, server.tls_key)
    except OSError as error:  # ssl.SSLError, too
        rule = f"must be a PEM file with the certificate of the key: {error.strerror or error}"
        name = "tls_certificate"
        raise InvalidArgumentError(name, server.tls_certificate, rule) from error
    return context


def certificate_end_ms(settings: Settings) -> int | None:
    """Return when the server's certificate ends, unix time in milliseconds; None if not known."""
    name = settings.server.tls_certificate
    if name is None:
        return None
    try:
        return round(certificate_ends(name).timestamp() * 1000)
    except (OSError, ValueError):
        return None


class TlsServer:
    """Accepts connections of TLS; to uvicorn it is a server like those of the event loop.

    The event loop's own server tells of a connection when its handshake has ended, so that those
    which never end would have no limit.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        *,
        connections: set[Any],
        at_most: int,
        timeout: float,
    ) -> None:
        """Describe it; `start` accepts.

        Args:
            listener: a socket that is bound.
            make: makes the protocol of a connection whose handshake has ended.
            context: the certificate.
            connections: uvicorn's set of those that are open.
            at_most: how many of them there may be; further ones are closed at once.
            timeout: seconds that a handshake may take.
        """
        self.context = context
        self._listener = listener
        self._make = make
        self._connections = connections
        self._at_most = at_most
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None
        self._shaking: OrderedDict[_Handshake, float] = OrderedDict()  # since when

    def start(self, backlog: int) -> None:
        """Listen and accept until `close`."""
        self._listener.setblocking(False)  # noqa: FBT003 - it takes no keyword
        self._listener.listen(backlog)
        self._task = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more."""
        if self._task is not None:
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._make_room()
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # there are no files left, or the client has gone already
                await SYSTEM_CLOCK.sleep(PAUSE)
                continue
            if len(self._connections) >= self._at_most:
                connection.close()
            else:
                handshake = _Handshake(self._connections, self._shaking)
                handshake.begin(self._shake_hands(connection))

    async def _make_room(self) -> None:
        while len(self._shaking) >= HANDSHAKES:
            oldest, since = next(iter(self._shaking.items()))
            if SYSTEM_CLOCK.monotonic() - since >= STALLED:
                del self._shaking[oldest]
                oldest.shutdown()
            else:
                await SYSTEM_CLOCK.sleep(GLANCE)

    async def _shake_hands(self, connection: socket.socket) -> None:
        with suppress(OSError):  # a client that was too slow, or speaks no TLS; ssl.SSLError, too
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                connection,
                ssl=self.context,
                ssl_handshake_timeout=self._timeout,
                ssl_shutdown_timeout=FAREWELL,
            )


class _Handshake:
    """One connection before its protocol."""

    def __init__(self, connections: set[Any], shaking: OrderedDict[_Handshake, float]) -> None:
        self._connections = connections
        self._shaking = shaking
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        """Count it until its work has ended."""
        self._connections.add(self)
        self._shaking[self] = SYSTEM_CLOCK.monotonic()
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self._connections.discard(self)
        self._shaking.pop(self, None)

    def shutdown(self) -> None:
        """End it; uvicorn asks for it at its end."""
        if self._task is not None:
            self._task.cancel()
