"""Turns what the driver raises into our errors, in one place."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..._loop import is_stray_cancellation
from ...errors import CosIdError, StoreAuthenticationError, StoreError, StoreUnavailableError
from ._driver import exceptions, grpc

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ("STORE", "has_bad_token", "translated")

STORE: Final = "etcd"

_OUTAGES: Final = {
    *("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "RESOURCE_EXHAUSTED"),
    "OUT_OF_RANGE",  # compacted between two pages of a listing
    *("UNKNOWN", "INTERNAL"),  # what etcd has no code for: its own "context deadline exceeded"
}
_REFUSALS: Final = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
_OF_LOGIN: Final = ("user name is empty", "authentication")
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"


@contextmanager
def translated() -> Generator[None]:
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
    if isinstance(exc, grpc.aio.AioRpcError):
        return _of_call(exc)
    if isinstance(exc, exceptions.ClientError):  # of a user's client that connects
        cause = exc.__cause__
        return _of_call(cause) if isinstance(cause, grpc.aio.AioRpcError) else _of_client(exc)
    if isinstance(exc, grpc.aio.UsageError) or is_stray_cancellation(exc):
        return StoreUnavailableError(STORE, "closed while the call was under way")
    if isinstance(exc, TimeoutError):
        return StoreUnavailableError(STORE, "no connection in time")
    return None


def _of_client(exc: BaseException) -> StoreError:
    return StoreUnavailableError(STORE, str(exc) or type(exc).__name__)


def _of_call(exc: Any) -> StoreError:  # noqa: ANN401 - the driver's
    code, text = exc.code().name, exc.details() or exc.code().name
    if _UNTRUSTED in text:
        remedy = "give the file of its authority as ssl_ca_certs"
        return StoreError(STORE, f"the server's certificate is not trusted ({text}); {remedy}")
    if code in _OUTAGES:
        return StoreUnavailableError(STORE, text)
    if code in _REFUSALS or any(word in text for word in _OF_LOGIN):
        return StoreAuthenticationError(STORE, text)
    return StoreError(STORE, f"{code}: {text}")


def has_bad_token(exc: Any) -> bool:  # noqa: ANN401 - the driver's
    """Tell whether the call was refused because the login has ended; it was not carried out."""
    if not isinstance(exc, grpc.aio.AioRpcError):
        return False
    text = exc.details() or ""
    return "invalid auth token" in text or "revision of auth store is old" in text
