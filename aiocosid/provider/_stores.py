"""Which store a URL names; its module is imported when it is asked for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..abc import Store

__all__ = ("open_store",)

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

STORES: Final = {
    "memory": ("memory", "MemoryStore"),
    "sqlite": ("sqlite", "SqliteStore"),
    **dict.fromkeys(
        (
            "redis",
            "rediss",
            "valkey",
            "valkeys",
            "unix",
            "redis+cluster",
            "rediss+cluster",
            "redis+sentinel",
            "rediss+sentinel",
        ),
        ("redis", "RedisStore"),
    ),
    **dict.fromkeys(("postgres", "postgresql"), ("postgres", "PostgresStore")),
}


def open_store(url: str) -> Store:
    """Return the store that a URL names; its module is imported here, and nothing is sent yet.

    Args:
        url: ``memory://``, ``sqlite:///ids.db``, ``redis://host:6379/0`` (``rediss://`` for TLS,
            ``unix:///path``, ``redis+cluster://a,b,c``, ``redis+sentinel://a,b,c/service/0``), or
            ``postgresql://user@host/db``.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed.
        MissingExtraError: the store's driver is not installed.
    """
    scheme = str(url).partition(":")[0].lower()
    if scheme not in STORES:
        # Only the scheme: the rest may hold a password, and so may what is no URL at all.
        shown = f"{scheme}:..." if SCHEME.match(str(url)) else "..."
        known = ", ".join(f"{name}:" for name in sorted(STORES))
        raise InvalidArgumentError("url", shown, expected=f"one that begins with {known}")
    module, name = STORES[scheme]
    store: type[Any] = getattr(import_module(f"..stores.{module}", __package__), name)
    made: Store = store.from_url(url)
    return made
