"""The system's Redis, when there is one.  It speaks TLS, which the wheel's Valkey does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from ._process import ServerMissingError
from .valkey import ValkeyServer


class RedisServer(ValkeyServer):
    """One Redis server."""

    name = "redis"
    product: ClassVar[str] = "redis"

    @classmethod
    def find_binary(cls) -> Path:
        """The redis-server on the path."""
        if found := shutil.which("redis-server"):
            return Path(found)
        raise ServerMissingError("redis-server", remedy="apt-get install redis-server")
