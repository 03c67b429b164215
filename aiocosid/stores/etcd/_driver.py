"""The driver, aetcd on grpc: creates its channels, and translates its errors.

Its message classes are created at import, so they have no types.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from ..._life import fork
from ..._life.loop import is_stray_cancellation
from ...errors import (
    CosIdError,
    ForkedError,
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from .._tls import untrusted

try:
    grpc: Any = import_module("grpc")
    rpc: Any = import_module("aetcd.rpc")
    exceptions: Any = import_module("aetcd.exceptions")
except ModuleNotFoundError as _exc:
    raise MissingExtraError("etcd", extra="etcd") from _exc

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .._url import StoreUrl

Message: TypeAlias = Any
"""An object of the driver's: a request or a reply, a channel, a client."""

STORE: Final = "etcd"

_OUTAGES: Final = {
    *("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "RESOURCE_EXHAUSTED"),
    "OUT_OF_RANGE",  # compacted between two pages of a listing
    *("UNKNOWN", "INTERNAL"),  # errors without a code of etcd's, as "context deadline exceeded"
}
_REFUSALS: Final = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
_OF_LOGIN: Final = ("user name is empty", "authentication")
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"

LARGEST: Final = 64 << 20  # bytes of a reply

_OPTIONS: Final = (
    # A connection of its own: otherwise a new channel would reuse a broken one.
    ("grpc.use_local_subchannel_pool", 1),
    # The driver's own limit would delay a new attempt after an outage by up to 120 s.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", LARGEST),
)


class _Channels:
    """The open channels: they need grpc's threads, and a forked child has no threads.

    A child that calls grpc nevertheless hangs or crashes, even on new channels.
    """

    def __init__(self) -> None:
        self.open: WeakSet[Any] = WeakSet()
        self.is_broken = False
        fork.watch(self)

    def _forget(self) -> None:
        if self.open:
            self.is_broken = True
            fork.abandoned.append(tuple(self.open))


_channels: Final = _Channels()


def ensure_unforked() -> None:
    """Raise in a child that was forked while the parent had a connection.

    Raises:
        ForkedError: the driver does not work in it.
    """
    if _channels.is_broken:
        remedy = "grpc cannot be used in it: fork before the first call, close first, or spawn"
        raise ForkedError("the connection to etcd", remedy=remedy)


def channel_opener(url: StoreUrl) -> Callable[[int], Message]:
    """Read the files that a URL names; return a function that opens a channel to one member.

    The function sends nothing, and needs a running loop.
    """
    make = grpc.aio.insecure_channel
    if url.tls:
        files = (url.options[f"ssl_{name}"] for name in ("ca_certs", "keyfile", "certfile"))
        contents = [Path(file).read_bytes() if file else None for file in files]
        credentials = grpc.ssl_channel_credentials(*contents)
        make = partial(grpc.aio.secure_channel, credentials=credentials)

    def open_channel(index: int) -> Message:
        channel = make(str(url.hosts[index]), options=_OPTIONS)
        note_channel(channel)
        return channel

    return open_channel


def note_channel(channel: Message) -> None:
    """Track a channel while it exists: a process that is forked until then cannot use grpc."""
    _channels.open.add(channel)


async def close_channel(channel: Message) -> None:
    """Close a channel; calls on it end at once."""
    try:
        await channel.close()
    finally:
        _channels.open.discard(channel)


@contextmanager
def as_store_error() -> Generator[None]:
    """Translate the driver's errors; let all others pass."""
    try:
        yield
    except CosIdError:
        raise
    except BaseException as exc:
        error = _meaning(exc)
        if error is None:
            raise
        raise error from exc


def _meaning(exc: BaseException) -> StoreError | None:
    is_clients = isinstance(exc, exceptions.ClientError)  # raised by a user's client that connects
    call = exc.__cause__ if is_clients else exc
    if isinstance(call, grpc.aio.AioRpcError):
        return _of_call(call)
    if isinstance(exc, grpc.aio.UsageError) or is_stray_cancellation(exc):
        return StoreUnavailableError(STORE, "closed while the call was under way")
    if is_clients:
        return StoreUnavailableError(STORE, str(exc) or type(exc).__name__)
    if isinstance(exc, TimeoutError):
        return StoreUnavailableError(STORE, "no connection in time")
    return None


def _of_call(exc: Message) -> StoreError:
    code, text = exc.code().name, exc.details() or exc.code().name
    if _UNTRUSTED in text:
        return untrusted(STORE, text)
    if code in _OUTAGES:
        return StoreUnavailableError(STORE, text)
    if code in _REFUSALS or any(word in text for word in _OF_LOGIN):
        return StoreAuthenticationError(STORE, text)
    return StoreError(STORE, f"{code}: {text}")


def has_bad_token(exc: Message) -> bool:
    """Return whether the call was refused because the login has expired; it had no effect."""
    text = exc.details() or ""
    return "invalid auth token" in text or "revision of auth store is old" in text
