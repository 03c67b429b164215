"""The system's Redis, when there is one.  It speaks TLS, which the wheel's Valkey does not."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ._process import find_program
from .valkey import ValkeyServer


class RedisServer(ValkeyServer):
    """One Redis server."""

    name = "redis"
    product: ClassVar[str] = "redis"

    @classmethod
    def find_binary(cls) -> Path:
        """The redis-server on the path."""
        return find_program("redis-server", remedy="apt-get install redis-server")
