"""Maps URLs to stores; a store's module is imported on first use."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidArgumentError
from ..errors.base import did_you_mean
from ..stores.over import read_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Store
    from ..abc.events import Instrument

__all__ = ("SYSTEMS", "open_tiered", "store_from_url")

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
    **dict.fromkeys(("mysql", "mariadb"), ("mysql", "MysqlStore")),
    "zookeeper": ("zookeeper", "ZookeeperStore"),
    **dict.fromkeys(("etcd", "etcds"), ("etcd", "EtcdStore")),
    **dict.fromkeys(("nats", "nats+tls"), ("nats", "NatsStore")),
    **dict.fromkeys(("cosid+http", "cosid+https"), ("http", "HttpStore")),
    **dict.fromkeys(
        ("aiocosid+http", "aiocosid+https", "aiocosid+unix"), ("remote", "RemoteStore")
    ),
    "striped": ("striped", "StripedStore"),
    "tiered": ("tiered", "TieredStore"),
}
"""The module in `aiocosid.stores` and the class of each scheme."""

NO_SCHEME: Final = (
    "must begin with a known scheme, such as sqlite:///ids.db or redis://localhost/0; look for "
    "more at https://aiocosid.readthedocs.io/en/latest/reference/stores.html"
)
FROM_CLIENT: Final = (
    "must be a URL such as memory://, or a store that you make from your own client, such as "
    "SqlAlchemyStore(engine) of aiocosid.stores.sqlalchemy"
)

ENGINES: Final = re.compile(r"(mysql|mariadb|postgresql|sqlite)\+[a-z0-9]+")
"""Schemes with a driver, which are SQLAlchemy's."""

SYSTEMS: Final = {
    "leaf": ("leaf", "LeafStore"),
    "leaf-zk-normal": ("leaf_snowflake.zookeeper", "LeafZkNormalStore"),
    "leaf-zk-recycle": ("leaf_snowflake.zookeeper", "LeafZkRecycleStore"),
    "leaf-workerid": ("leaf_snowflake.mysql", "LeafWorkerIdStore"),
    "leaf-local": ("leaf_snowflake", "LeafLocalStore"),
    "tinyid": ("tinyid", "TinyidStore"),
    "tinyid-group": ("tinyid", "TinyidGroupStore"),
    "tddl": ("tddl", "TddlStore"),
    "tddl-group": ("tddl", "TddlGroupStore"),
    "uid-generator": ("uid_generator", "UidGeneratorStore"),
    "twitter": ("twitter", "TwitterStore"),
    "redis-lua": ("redis_lua", "RedisLuaStore"),
}
"""Other systems' tables and nodes in `aiocosid.compat`, for example ``leaf+mysql://user@host/db``.
"""

TIERED: Final[dict[str, Callable[[str], Any]]] = {
    "root": str,
    "cache": str,
    "span": int,
    "cache_timeout": float,
    "pause": float,
    "root_name": str,
}
"""The options of a tiered store's URL, and the functions that read their texts."""


def store_from_url(url: str, *, instrument: Instrument | None = None) -> Store:
    """Return the store that a URL names; imports the store's module, and sends nothing yet.

    `Store.create_schema` creates a missing SQLite file; other calls raise `StoreError`.

    Args:
        url: ``memory://``, ``sqlite:///ids.db``, ``redis://host:6379/0`` (``rediss://`` for TLS,
            ``unix:///path``, ``redis+cluster://a,b,c``, ``redis+sentinel://a,b,c/service/0``),
            ``postgresql://user@host/db``, ``mysql://user@host/db``, ``zookeeper://a,b,c``,
            ``etcd://a,b,c``, ``nats://a,b,c``, ``cosid+http://host:8688``, or an aiocosid server,
            ``aiocosid+http://a,b`` or ``aiocosid+unix:///path``; a URL with a SQLAlchemy driver,
            for example ``mysql+aiomysql://``, uses that driver.  ``tiered:?root=URL&cache=URL``
            puts one store under another (see `aiocosid.stores.tiered`), and
            ``striped:?store=URL&store=URL`` combines several stores (`aiocosid.stores.striped`);
            the URLs in them are percent-encoded.  For another system's tables, put the system's
            name before the store's URL, as in ``leaf+mysql://user@host/leaf``; see
            `aiocosid.compat`.
        instrument: receives the events of a store that has its own events, which is a tiered store.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed.
        MissingExtraError: the store's driver is not installed.
    """
    scheme = str(url).partition(":")[0].lower()
    place = _place_of(scheme)
    if place is None:
        # Only the scheme is shown, because the rest, or a text that is not a URL, may contain a
        # password.
        shown = f"{scheme}:..." if SCHEME.match(str(url)) else "..."
        if shown == "..." and type(url) is not str:
            raise InvalidArgumentError("url", type(url), FROM_CLIENT)
        _, plus, inner = scheme.partition("+")
        schemes = *STORES, *(f"{each}{plus}{inner}" for each in SYSTEMS)
        near = shown != "..." and did_you_mean(f"{scheme}:", (f"{each}:" for each in schemes))
        rule = f"has no known scheme{near}" if near else NO_SCHEME
        raise InvalidArgumentError("url", shown, rule)
    if scheme == "tiered":
        return _tiered(url, instrument)
    more = {"store_from_url": store_from_url} if scheme == "striped" else {}
    made: Store = _class_at(*place).from_url(url, **more)
    return made


def open_tiered(
    root: Store,
    cache: Store,
    *,
    root_url: str | None,
    **options: Any,  # noqa: ANN401 - TieredStore's
) -> Store:
    """Return a tiered store on two others; without a ``root_name``, the URL identifies the root.

    A root without a URL must have a name, unless it can identify itself.

    Raises:
        InvalidArgumentError: an argument is outside its range, or the cache is not Redis.
        MissingExtraError: the Redis driver is not installed.
    """
    if root_url is not None and options.get("root_name") is None:
        options["root_name"] = _class_at("stores.tiered", "name_of_url")(root_url)
    made: Store = _class_at("stores.tiered", "TieredStore")(root, cache, **options)
    return made


def _place_of(scheme: str) -> tuple[str, str] | None:
    """Return the module and the name of the class for a scheme; None if there is none."""
    if scheme in STORES:
        module, name = STORES[scheme]
        return f"stores.{module}", name
    if ENGINES.fullmatch(scheme):
        return "stores.sqlalchemy", "SqlAlchemyStore"
    system, plus, _ = scheme.partition("+")
    if plus and system in SYSTEMS:
        module, name = SYSTEMS[system]
        return f"compat.{module}", name
    return None


def _class_at(module: str, name: str) -> Any:  # noqa: ANN401 - the class of a store
    return getattr(import_module(f"..{module}", __package__), name)


def _tiered(url: str, instrument: Instrument | None) -> Store:
    form = f"tiered:?root=URL&cache=URL, percent-encoded, with options {', '.join(TIERED)}"
    _, read = read_parts(url, "tiered", TIERED, needs={"root", "cache"}, form=form)
    root_url = read.pop("root")
    root, cache = store_from_url(root_url), store_from_url(read.pop("cache"))
    return open_tiered(
        root, cache, root_url=root_url, owns_stores=True, instrument=instrument, **read
    )
