"""Real servers, the same as the tests use; they need the checkout."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

__all__ = ("postgres", "valkey")


@contextmanager
def valkey() -> Generator[str]:
    """Run a Valkey server; give its URL."""
    with ValkeyServer() as server:
        yield server.url


@contextmanager
def postgres() -> Generator[str]:
    """Run a PostgreSQL server; give its URL."""
    with PostgresServer() as server:
        yield server.url
