"""Creates the driver's clients for a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider

if TYPE_CHECKING:
    from .._url import StoreUrl

__all__ = ("is_cluster", "make_clients")

SENTINEL_TIMEOUT: Final = 0.5  # seconds; they are asked one after the other

_NOT_THE_DRIVERS: Final = {
    *("username", "password", "sentinel_username", "sentinel_password", "service"),
    *("replicas", "replica_timeout", "durability"),
}


def is_cluster(url: StoreUrl) -> bool:
    """Return whether a URL names a cluster."""
    return "cluster" in url.scheme


def make_clients(url: StoreUrl) -> tuple[Any, ...]:
    """Return the client to use, followed by the others that have to be closed.

    Nothing is sent yet.  Needs a running loop.
    """
    options = _options(url)
    if is_cluster(url):
        return (_cluster(url, options),)
    if "sentinel" in url.scheme:
        return _behind_sentinels(url, options)
    if not url.hosts:
        return (Redis(unix_socket_path=url.path, **options),)
    (host,) = url.hosts
    return (Redis(host=host.name, port=host.port, ssl=url.tls, **options),)


def _options(url: StoreUrl) -> dict[str, Any]:
    given = {name: each for name, each in url.options.items() if each is not None}
    user, password = (each or None for each in url.login or ("", ""))
    options: dict[str, Any] = {
        # The generator retries by itself; the driver's retries would outlast the caller.
        "retry": Retry(NoBackoff(), 0),
        "credential_provider": _login(given.get("username", user), given.get("password", password)),
        **{name: each for name, each in given.items() if name not in _NOT_THE_DRIVERS},
    }
    if url.tls:
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")
    if url.hosts:
        options["socket_keepalive"] = True
    return options


def _login(username: str | None, password: str | None) -> UsernamePasswordCredentialProvider | None:
    # A provider, because drivers before 8 show a password in the client's repr, which errors show.
    if username is None and password is None:
        return None
    return UsernamePasswordCredentialProvider(username, password)


def _cluster(url: StoreUrl, options: dict[str, Any]) -> RedisCluster:
    options.pop("db", None)
    # Drivers before 8.1 lose a connection for good if sending on it failed or was interrupted.
    options.setdefault("max_connections", 2**31)
    # The driver would resolve "localhost" itself, which blocks the loop.
    nodes = [
        ClusterNode("127.0.0.1" if host == "localhost" else host, port) for host, port in url.hosts
    ]
    # 0: a moved slot is only recorded; by default the driver closes connections in use.
    return RedisCluster(startup_nodes=nodes, ssl=url.tls, reinitialize_steps=0, **options)


def _behind_sentinels(url: StoreUrl, options: dict[str, Any]) -> tuple[Any, ...]:
    sentinel_options = {
        name: each
        for name, each in options.items()
        if name.startswith("ssl_") or name in {"socket_keepalive", "protocol", "retry"}
    }
    sentinel_options |= dict.fromkeys(
        ("socket_timeout", "socket_connect_timeout"), SENTINEL_TIMEOUT
    )
    login = url.options["sentinel_username"], url.options["sentinel_password"]
    sentinel_options |= {"ssl": url.tls, "credential_provider": _login(*login)}
    hosts = [tuple(each) for each in url.hosts]
    sentinel: Any = Sentinel(hosts, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
    client = sentinel.master_for(url.options["service"], ssl=url.tls, **options)
    return (client, *sentinel.sentinels)
