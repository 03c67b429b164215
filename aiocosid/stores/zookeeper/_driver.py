"""The one module that knows the driver, which has no types."""

from __future__ import annotations

from typing import Any

from ...errors import MissingExtraError

try:
    from kazoo import client as _client  # type: ignore[import-untyped]
    from kazoo import exceptions as _exceptions
except ModuleNotFoundError as _exc:
    raise MissingExtraError("kazoo", extra="zookeeper") from _exc

__all__ = (
    "BadVersionError",
    "KazooClient",
    "NoAuthError",
    "NoNodeError",
    "NodeExistsError",
    "ZookeeperError",
)

KazooClient: Any = _client.KazooClient
BadVersionError: type[Exception] = _exceptions.BadVersionError
NoAuthError: type[Exception] = _exceptions.NoAuthError
NoNodeError: type[Exception] = _exceptions.NoNodeError
NodeExistsError: type[Exception] = _exceptions.NodeExistsError
ZookeeperError: type[Exception] = _exceptions.KazooException
