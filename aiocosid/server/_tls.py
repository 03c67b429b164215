"""TLS: its certificate, and connections that are counted before their handshake."""

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

PAUSE: Final = 0.1  # seconds to wait while no file is free for another connection

HANDSHAKES: Final = 400
"""Maximum concurrent handshakes: each costs 60 kB and a millisecond of processor time; others wait
in the backlog.
"""

STALLED: Final = 0.5
"""Seconds after which a handshake may lose its place to another one; younger ones keep theirs."""

GLANCE: Final = 0.01  # seconds to wait while all places are taken


def context_of(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context; None without TLS.

    Raises:
        InvalidArgumentError: a file cannot be read, or is not a certificate or key.
    """
    server = settings.server
    if server.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(server.tls_certificate, server.tls_key)
    except OSError as error:  # including ssl.SSLError
        rule = f"must be a PEM file with the certificate of the key: {error.strerror or error}"
        name = "tls_certificate"
        raise InvalidArgumentError(name, server.tls_certificate, rule) from error
    return context


def certificate_end_ms(settings: Settings) -> int | None:
    """Return when the server's certificate expires, in unix milliseconds; None if not known."""
    name = settings.server.tls_certificate
    if name is None:
        return None
    try:
        return round(certificate_ends(name).timestamp() * 1000)
    except (OSError, ValueError):
        return None


class TlsServer:
    """Accepts TLS connections; to uvicorn it looks like an event loop's server.

    The event loop's own server reports a connection only after its handshake, so handshakes that
    never end would not be limited.
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
        """Describe the server; `start` begins to accept.

        Args:
            listener: a bound socket.
            make: creates the protocol of a connection whose handshake has ended.
            context: the TLS context with the certificate.
            connections: uvicorn's set of open connections.
            at_most: the maximum number of connections; further ones are closed at once.
            timeout: seconds that a handshake may take.
        """
        self.context = context
        self._listener = listener
        self._make = make
        self._connections = connections
        self._at_most = at_most
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None
        self._shaking: OrderedDict[_Handshake, float] = OrderedDict()  # with their start times

    def start(self, backlog: int) -> None:
        """Listen and accept until `close`."""
        self._listener.setblocking(False)  # noqa: FBT003 - the method has no keyword
        self._listener.listen(backlog)
        self._task = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more."""
        if self._task is not None:
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait until it no longer accepts connections."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._make_room()
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # no files are left, or the client has disconnected
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
        with suppress(OSError):  # the client was too slow or does not speak TLS (ssl.SSLError)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                connection,
                ssl=self.context,
                ssl_handshake_timeout=self._timeout,
                ssl_shutdown_timeout=FAREWELL,
            )


class _Handshake:
    """One connection before it has a protocol."""

    def __init__(self, connections: set[Any], shaking: OrderedDict[_Handshake, float]) -> None:
        self._connections = connections
        self._shaking = shaking
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        """Count the connection until its work has ended."""
        self._connections.add(self)
        self._shaking[self] = SYSTEM_CLOCK.monotonic()
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self._connections.discard(self)
        self._shaking.pop(self, None)

    def shutdown(self) -> None:
        """End the handshake; uvicorn calls this when it shuts down."""
        if self._task is not None:
            self._task.cancel()
