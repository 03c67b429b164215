"""Turns what the driver raises into our errors, in one place."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ...errors import StoreAuthenticationError, StoreError, StoreUnavailableError
from ._driver import ZookeeperError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ("STORE", "translated")

STORE: Final = "zookeeper"

_REFUSALS: Final = {"AuthFailedError", "NoAuthError", "InvalidACLError"}
_OUTAGES: Final = {
    *("ConnectionLoss", "ConnectionClosedError", "SessionExpiredError", "SessionMovedError"),
    *("OperationTimeoutError", "NotReadOnlyCallError", "ReconfigInProcessError"),
    *("NewConfigNoQuorumError", "ThrottledOpError", "RequestTimeoutError"),
}


@contextmanager
def translated() -> Generator[None]:
    """Raise our error from the driver's; what is neither's goes through."""
    try:
        yield
    except ZookeeperError as exc:
        raise _meaning(exc) from exc


def _meaning(exc: Exception) -> StoreError:
    name = type(exc).__name__
    text = f"{name}: {exc}" if str(exc) else name
    if name in _REFUSALS:
        return StoreAuthenticationError(STORE, f"the user may not do this ({text})")
    if name in _OUTAGES:
        return StoreUnavailableError(STORE, text)
    return StoreError(STORE, text)
