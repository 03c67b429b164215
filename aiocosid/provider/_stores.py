"""Which store a URL names; its module is imported when it is asked for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Store
    from ..events import Instrument

__all__ = ("open_store", "open_tiered")

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
    "tiered": ("tiered", "TieredStore"),
}

TIERED: Final[dict[str, Callable[[str], Any]]] = {
    "root": str,
    "cache": str,
    "span": int,
    "cache_timeout": float,
    "pause": float,
    "root_name": str,
}
"""The options of a tiered store's URL, and how their text is read."""


def open_store(url: str, *, instrument: Instrument | None = None) -> Store:
    """Return the store that a URL names; its module is imported here, and nothing is sent yet.

    Args:
        url: ``memory://``, ``sqlite:///ids.db``, ``redis://host:6379/0`` (``rediss://`` for TLS,
            ``unix:///path``, ``redis+cluster://a,b,c``, ``redis+sentinel://a,b,c/service/0``), or
            ``postgresql://user@host/db``.  ``tiered:?root=URL&cache=URL`` puts one beneath another
            (see `aiocosid.stores.tiered`); within it both are percent-encoded.
        instrument: receives the events of a store that has some of its own: a tiered one.

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
    if scheme == "tiered":
        return _tiered(url, instrument)
    made: Store = _class_of(scheme).from_url(url)
    return made


def open_tiered(
    root: Store,
    cache: Store,
    *,
    root_url: str,
    **options: Any,  # noqa: ANN401 - TieredStore's
) -> Store:
    """Return a tiered store on two others; without a ``root_name`` its URL tells the root apart.

    Raises:
        InvalidArgumentError: an argument is outside its range, or the cache is not Redis.
        MissingExtraError: the driver of Redis is not installed.
    """
    if options.get("root_name") is None:
        module = import_module("..stores.tiered._root_name", __package__)
        options["root_name"] = module.name_of_url(root_url)
    made: Store = _class_of("tiered")(root, cache, **options)
    return made


def _class_of(scheme: str) -> Any:  # noqa: ANN401 - the class of a store
    module, name = STORES[scheme]
    return getattr(import_module(f"..stores.{module}", __package__), name)


def _tiered(url: str, instrument: Instrument | None) -> Store:
    query = url.partition(":")[2]
    given = parse_qsl(query.removeprefix("?").replace("+", "%2B"), keep_blank_values=True)
    options = {name: text for name, text in given if name in TIERED}
    if (
        not query.startswith("?")
        or len(options) < len(given)
        or not {"root", "cache"} <= {*options}
    ):
        # Not the URL itself, which may hold passwords.
        expected = f"tiered:?root=URL&cache=URL, percent-encoded; options are {', '.join(TIERED)}"
        raise InvalidArgumentError("url", "tiered:...", expected=expected)
    read: dict[str, Any] = {}
    for name, text in options.items():
        try:
            read[name] = TIERED[name](text)
        except ValueError:
            raise InvalidArgumentError(name, text, expected="a number") from None
    root_url = read.pop("root")
    root, cache = open_store(root_url), open_store(read.pop("cache"))
    return open_tiered(
        root, cache, root_url=root_url, owns_stores=True, instrument=instrument, **read
    )
