"""The driver, aetcd on grpc: how its channels are made, and its errors ours.

Its messages are made when it is imported: no type checker knows them.
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
"""A request or a reply, a channel, a client: whatever is the driver's."""

STORE: Final = "etcd"

_OUTAGES: Final = {
    *("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "RESOURCE_EXHAUSTED"),
    "OUT_OF_RANGE",  # compacted between two pages of a listing
    *("UNKNOWN", "INTERNAL"),  # what etcd has no code for: its own "context deadline exceeded"
}
_REFUSALS: Final = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
_OF_LOGIN: Final = ("user name is empty", "authentication")
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"

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
    """Read the files that a URL names; return what makes a channel to one member.

    It sends nothing yet, and needs a running loop.
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
    """Remember a channel until it is gone, for those who are forked until then."""
    _channels.open.add(channel)


async def close_channel(channel: Message) -> None:
    """Close a channel; calls on it end at once."""
    try:
        await channel.close()
    finally:
        _channels.open.discard(channel)


@contextmanager
def as_store_error() -> Generator[None]:
    """Raise our error from the driver's; what is neither's goes through."""
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
    is_clients = isinstance(exc, exceptions.ClientError)  # of a user's client that connects
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
    """Tell whether the call was refused because the login has ended; it was not carried out."""
    text = exc.details() or ""
    return "invalid auth token" in text or "revision of auth store is old" in text
