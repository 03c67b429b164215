"""The driver, aetcd on grpc, and how its channels are made.

Its messages are made when it is imported: no type checker knows them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ... import _fork
from ...errors import ForkedError, MissingExtraError

try:
    grpc: Any = import_module("grpc")
    rpc: Any = import_module("aetcd.rpc")
    exceptions: Any = import_module("aetcd.exceptions")
except ModuleNotFoundError as _exc:
    raise MissingExtraError("etcd", extra="etcd") from _exc

if TYPE_CHECKING:
    from ._url import Target

__all__ = (
    "close_channel",
    "ensure_unforked",
    "exceptions",
    "grpc",
    "note_channel",
    "open_channel",
    "rpc",
)

LARGEST: Final = 64 << 20  # bytes of a reply

_OPTIONS: Final = (
    # A connection of its own: else a channel that is made anew gets the dead one back.
    ("grpc.use_local_subchannel_pool", 1),
    # After an outage the driver would try again after up to 120 s.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", LARGEST),
)


class _Channels:
    """Those that are open: grpc's threads are for them, and a forked child has no threads.

    A child that calls grpc nevertheless hangs or crashes, on new channels as well.
    """

    def __init__(self) -> None:
        self.open: WeakSet[Any] = WeakSet()
        self.is_broken = False
        _fork.watch(self)

    def _forget(self) -> None:
        if self.open:
            self.is_broken = True
            _fork.abandoned.append(tuple(self.open))


_channels: Final = _Channels()


def ensure_unforked() -> None:
    """Raise in a child that was forked while the parent had a connection.

    Raises:
        ForkedError: the driver does not work in it.
    """
    if _channels.is_broken:
        remedy = "grpc cannot be used in it: fork before the first call, close first, or spawn"
        raise ForkedError("the connection to etcd", remedy=remedy)


def open_channel(target: Target, host: str) -> Any:  # noqa: ANN401 - the driver's
    """Return a channel to one member; nothing is sent yet.  Needs a running loop."""
    if not target.tls:
        channel = grpc.aio.insecure_channel(host, options=_OPTIONS)
    else:
        credentials = grpc.ssl_channel_credentials(
            target.files.get("ssl_ca_certs"),
            target.files.get("ssl_keyfile"),
            target.files.get("ssl_certfile"),
        )
        channel = grpc.aio.secure_channel(host, credentials, options=_OPTIONS)
    note_channel(channel)
    return channel


def note_channel(channel: Any) -> None:  # noqa: ANN401 - the driver's
    """Remember a channel until it is gone, for those who are forked until then."""
    _channels.open.add(channel)


async def close_channel(channel: Any, grace: float | None = None) -> None:  # noqa: ANN401 - the driver's
    """Close a channel; calls on it end within ``grace`` seconds, None for at once."""
    try:
        await channel.close(grace)
    finally:
        _channels.open.discard(channel)
