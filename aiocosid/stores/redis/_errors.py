"""Translates the driver's errors into aiocosid's.

It goes by the names of the classes, because valkey-py has its own classes of the same names; and by
the server's messages, because an error inside a script, or of an older driver, has no class of its
own.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Final

from ...abc import MAX_ID
from ...errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from .._connection import causes_of, translate_errors, untrusted

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ("STORE", "as_store_error")

STORE: Final = "redis"

_DRIVER: Final = {
    *("RedisError", "RedisClusterException", "ValkeyError", "ValkeyClusterException", "OSError")
}
_AUTHENTICATION: Final = {
    *("AuthenticationError", "AuthorizationError", "AuthenticationWrongNumberOfArgsError"),
    "NoPermissionError",
}
_REFUSALS: Final = (
    *("NOAUTH", "WRONGPASS", "NOPERM", "ACL failure"),
    "The user executing the script",  # of Redis 7.0
)
_UNAVAILABLE: Final = {
    *("ConnectionError", "TimeoutError", "BusyLoadingError", "ReadOnlyError", "OutOfMemoryError"),
    *("ClusterDownError", "ClusterError", "MasterDownError", "SlotNotCoveredError"),
}
_OUTAGES: Final = (
    *("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "OOM", "NOREPLICAS"),
    "BUSY",
    # A master became a replica during a WAIT, or before it.
    *("UNBLOCKED", "WAIT cannot be used"),
    # Messages of the cluster client, which has no classes for them.
    *("cannot be connected", "slots are not covered", "could not agree"),
    # A script's message for CLUSTERDOWN.
    "while the cluster is down",
)
_ELSEWHERE: Final = (
    *("MOVED ", "ASK ", "CROSSSLOT"),
    "Keys in request don't hash to the same slot",  # CROSSSLOT, which the drivers strip
)
_MOVING: Final = (
    "TRYAGAIN",  # a script's keys are on both nodes
    "non local key",  # a script removed a key, and may not write it again on the node that is left
    "TTL exhausted",  # the cluster client was sent from one node to the other too often
)


def as_store_error(namespaced_name: str = "", key: str = "") -> AbstractContextManager[None]:
    """Translate the driver's errors; let all others pass."""
    return translate_errors(partial(_meaning, namespaced_name, key))


def _meaning(namespaced_name: str, key: str, exc: Exception) -> CosIdError | None:
    text = _sentence(exc)
    if not _names(exc) & _DRIVER:
        return _slip(exc, text)
    if "would overflow" in text:
        return IdOverflowError(namespaced_name, limit=MAX_ID)
    if "not an integer" in text:
        return CorruptCounterError(STORE, counter=key, found="a text that is no 64-bit integer")
    if "WRONGTYPE" in text:
        return CorruptCounterError(STORE, counter=key, found="a value of another type")
    if (refusal := _refusal(exc)) is not None:
        return refusal
    return _outage(exc, text) or StoreError(STORE, text)


def _outage(exc: Exception, text: str) -> StoreUnavailableError | None:
    if "TryAgainError" in _names(exc) or any(word in text for word in _MOVING):
        reason = f"a slot of the cluster is moving to another node: {text}"
        return StoreUnavailableError(STORE, reason, remedy="try again when it has moved")
    is_outage = _names(exc) & _UNAVAILABLE or any(word in text for word in _OUTAGES)
    return StoreUnavailableError(STORE, text) if is_outage else None


def _slip(exc: Exception, text: str) -> StoreError | None:
    """Translate errors that the driver does not wrap; it drops the connection, so a retry works."""
    if isinstance(exc, RuntimeError) and "loop" in text:
        return StoreUnavailableError(STORE, f"a connection of another event loop: {text}")
    if isinstance(exc, AttributeError) and "NoneType" in text:
        return StoreUnavailableError(STORE, f"a connection was closed under the call: {text}")
    return None


def _refusal(exc: Exception) -> StoreError | None:
    """Find a refusal that no retry will fix, also among the error's causes."""
    for cause in causes_of(exc):
        text = _sentence(cause)
        if _names(cause) & _AUTHENTICATION or any(word in text for word in _REFUSALS):
            return StoreAuthenticationError(STORE, text)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return untrusted(STORE, text)
    if "AskError" in _names(exc) or str(exc).startswith(_ELSEWHERE):
        remedy = "use redis+cluster:// or a RedisCluster client"
        return StoreError(STORE, "the server is part of a cluster", remedy=remedy)
    if "Cluster mode is not enabled" in str(exc):
        return StoreError(STORE, "the server is no part of a cluster", remedy="use redis://")
    return None


def _names(exc: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(exc).__mro__}


def _sentence(exc: BaseException) -> str:
    text = str(exc)
    if type(exc).__name__ == "MasterNotFoundError":
        # After the colon old drivers list their sentinel clients, with passwords.
        text = text.partition(" : ")[0]
        exc.args = (text,)
    return text or type(exc).__name__
